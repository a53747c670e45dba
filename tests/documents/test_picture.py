"""The pictures of ``docs``: well formed, load nothing, readable on dark pages, and their words are the code's."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

import pytest

from signer.model.policy import Mode
from signer.model.reasons import Reason
from tests.documents.markdown import ROOT, links

PICTURES: Final = {
    "flow.svg": ("README.md", "docs/index.md"),
    "architecture.svg": ("docs/architecture.md",),
}
"""Each picture, and the documents that show it."""
SVG: Final = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=PICTURES)
def picture(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def text_of(picture: str) -> str:
    return (ROOT / "docs" / picture).read_text(encoding="utf-8")


def test_it_is_described_for_those_who_do_not_see_it(picture: str) -> None:
    root = ElementTree.fromstring(text_of(picture))  # noqa: S314 - a file of our own
    assert root.get("aria-labelledby") == "title description"
    assert all(root.findtext(f"{SVG}{name}") for name in ("title", "desc"))
    for document in PICTURES[picture]:
        (shown,) = [link for link in links(ROOT / document) if link.target.endswith(picture)]
        assert len(shown.text) > 100


def test_it_loads_nothing_and_runs_nothing(picture: str) -> None:
    root = ElementTree.fromstring(text_of(picture))  # noqa: S314 - a file of our own
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "path", "circle", "g")
    }
    assert not re.search(r"href|url\(|@import", text_of(picture))


def test_every_colour_has_one_for_dark_pages(picture: str) -> None:
    text = text_of(picture)
    light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
    classes = {name for names in re.findall(r'class="([^"]+)"', text) for name in names.split()}
    coloured = {name for name in classes if re.search(rf"\.{name}\b[^}}]*(?:fill|stroke): #", light)}
    assert coloured == classes
    assert {name for name in classes if not re.search(rf"\.{name}\b[^{{]*{{", dark)} == set()


def test_its_words_are_the_codes() -> None:
    assert f"Denied: {Reason.BINDING_MISMATCH}<" in text_of("flow.svg")
    assert f"under mode {Mode.ENFORCE.value}." in text_of("flow.svg")


def test_the_packages_are_those_of_the_code() -> None:
    shown = set(re.findall(r'<text class="(?:text|head|faint)"[^>]*>([a-z_]+)</text>', text_of("architecture.svg")))
    rooms = {path.name for path in (ROOT / "signer/controller").iterdir() if (path / "__init__.py").is_file()}
    assert rooms <= shown
    upper = {"cli", "explain", "controller", "access", "decision", "rotation", "ssh"}
    layers = upper | {"audit", "store", "admission", "kube", "rules", "authority", "model"}
    assert layers <= shown
    packages = {path.name for path in (ROOT / "signer").iterdir() if (path / "__init__.py").is_file()}
    # The controller is drawn, without its configuration. Its offline commands, the bastion controller and the gateway
    # are programs of their own.
    assert packages - layers == {"bastions", "configuration", "crds", "gateway", "offline", "testing"}


def test_every_package_is_in_the_table_of_packages() -> None:
    table = (ROOT / "docs/architecture.md").read_text(encoding="utf-8").split("## The packages")[1]
    above = ("testing", "cli", "explain", "controller", "bastions", "gateway", "access", "decision", "rotation", "ssh")
    for package in (*above, "audit", "store", "kube", "rules", "model"):
        assert f"`signer/{package}`" in table
