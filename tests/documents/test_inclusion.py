"""A document that another one includes stands there with its links."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.inclusion import outside_of_fences, text_of
from tests.documents.markdown import ROOT, Link, anchors, links

INCLUDING = "before\n<!-- include: ../README.md -->\nRead [it](../README.md).\n<!-- included -->\nbehind\n"


@pytest.mark.parametrize(
    ("link", "from_there"),
    [
        ("[a](docs/a.md#b)", "[a](a.md#b)"),
        ("![a](docs/a.svg)", "![a](a.svg)"),
        ("[`a`](CHANGES.md)", "[`a`](../CHANGES.md)"),
        ("[a](deploy/node/README.md)", "[a](../deploy/node/README.md)"),
        ("[a](#b)", "[a](#b)"),
        ("[a](https://kubernetes.io/docs/)", "[a](https://kubernetes.io/docs/)"),
    ],
)
def test_links_lead_where_they_led(link: str, from_there: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"{link}\n")
    index = tmp_path / "docs/index.md"
    index.write_text(INCLUDING)
    assert text_of(index) == f"before\n{from_there}\nbehind\n"


def test_a_document_that_includes_none_is_as_it_is() -> None:
    security = ROOT / "SECURITY.md"
    assert text_of(security) == security.read_text(encoding="utf-8")


def test_links_in_code_are_left_alone() -> None:
    text = "[a](b)\n```text\n[a](b)\n```\n[a](b)\n"
    assert outside_of_fences(text, lambda prose: prose.replace("(b)", "(c)")) == (
        "[a](c)\n```text\n[a](b)\n```\n[a](c)\n"
    )


def test_the_front_page_of_the_site_is_the_readme() -> None:
    readme, index = ROOT / "README.md", ROOT / "docs/index.md"
    assert anchors(readme) <= anchors(index)
    assert [destination(link) for link in links(readme)] == [destination(link) for link in links(index)]


def destination(link: Link) -> tuple[str, str | Path]:
    elsewhere = ":" in link.target
    return link.text, link.target if elsewhere else (link.document.parent / link.target).resolve()
