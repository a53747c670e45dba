"""The documents as a site: every link leads somewhere in it, and no page loads anything from elsewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Final
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from tests.documents.inclusion import text_of
from tests.documents.markdown import ROOT, documents
from tests.support.binaries import MissingPart, skip_or_fail

pytestmark = pytest.mark.slow

README: Final = ROOT / "README.md"
LOADING: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""Elements that a browser follows by itself, and the attribute that says where to."""


class References(HTMLParser):
    """What a page loads, where it leads, and its anchors."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif LOADING.get(tag) in given and given.get("rel") != "canonical":
            self.loads.append(given[LOADING[tag]])


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    if importlib.util.find_spec("mkdocs") is None:
        skip_or_fail(MissingPart("mkdocs is not installed: run make site"))
    from tests.documents import site_hook

    return site_hook


@pytest.fixture(scope="module")
def site(hook: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, References]:
    """Every page of the site."""
    return {page: References(page) for page in sorted(site.rglob("*.html")) if page.name != "404.html"}


def test_every_document_of_the_folder_is_a_page(site: Path) -> None:
    names = {path.stem for path in documents() if path.parent == ROOT / "docs"}
    assert "operating" in names
    assert {name for name in names - {"index"} if not (site / name / "index.html").exists()} == set()


def test_the_front_page_is_the_readme(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    headings = [line.strip("# ") for line in text_of(README).splitlines() if line.startswith("## ")]
    assert len(headings) > 3
    assert [heading for heading in headings if f">{heading}<" not in front] == []
    assert 'src="flow.svg"' in front


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, References]) -> None:
    loaded = {reference for page in pages.values() for reference in page.loads}
    assert any(reference.endswith(".js") for reference in loaded)
    assert {reference for reference in loaded if urlsplit(reference).netloc} == set()


def test_every_link_leads_to_a_page_and_an_anchor_of_the_site(site: Path, pages: dict[Path, References]) -> None:
    assert len(pages) > 80, "the files of the repository are there, too"
    broken = []
    for page, references in pages.items():
        for reference in references.leads:
            target, anchor = urldefrag(unquote(reference))
            if urlsplit(target).scheme:
                continue
            there = (page.parent / target).resolve() if target else page
            there = there / "index.html" if there.is_dir() else there
            known = anchor in ("", "__skip") or (there in pages and anchor in pages[there].anchors)
            if not there.exists() or not known:
                broken.append(f"{page.relative_to(site)}: {reference}")
    assert broken == []


@pytest.mark.parametrize(
    ("document", "target", "linked"),
    [
        ("docs/protocol.md", "../signer/rules/checks.py", "signer/rules/checks.py"),
        ("docs/protocol.md", "threat-model.md#floods", "docs/threat-model.md"),
        ("deploy/README.md", "node", "deploy/node/README.md"),
        ("docs/protocol.md", "#binding", None),
        ("docs/protocol.md", "https://kubernetes.io/docs", None),
        ("docs/protocol.md", "../../elsewhere.md", None),
        ("docs/protocol.md", "../no/such/file.py", None),
    ],
    ids=["source", "page", "folder", "anchor", "elsewhere", "outside", "nothing"],
)
def test_what_a_link_leads_to(hook: ModuleType, document: str, target: str, linked: str | None) -> None:
    assert hook._repository_path(document, target) == linked
