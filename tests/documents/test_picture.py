"""``docs/flow.svg``: well formed, loads nothing, readable on dark pages, and its words are the code's."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Final

from signer.model.policy import Mode
from signer.model.reasons import Reason
from tests.documents.markdown import ROOT, links

PICTURE: Final = ROOT / "docs/flow.svg"
TEXT: Final = PICTURE.read_text(encoding="utf-8")
SVG: Final = "{http://www.w3.org/2000/svg}"


def test_it_is_described_for_those_who_do_not_see_it() -> None:
    root = ElementTree.fromstring(TEXT)  # noqa: S314 - a file of our own
    assert root.get("aria-labelledby") == "title description"
    assert all(root.findtext(f"{SVG}{name}") for name in ("title", "desc"))
    for document in ("README.md", "docs/index.md"):
        (shown,) = [link for link in links(ROOT / document) if link.target.endswith("flow.svg")]
        assert len(shown.text) > 100


def test_it_loads_nothing_and_runs_nothing() -> None:
    root = ElementTree.fromstring(TEXT)  # noqa: S314 - a file of our own
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "path", "circle", "g")
    }
    assert not re.search(r"href|url\(|@import", TEXT)


def test_every_colour_has_one_for_dark_pages() -> None:
    light, _, dark = TEXT.partition("@media (prefers-color-scheme: dark)")
    classes = {name for names in re.findall(r'class="([^"]+)"', TEXT) for name in names.split()}
    coloured = {name for name in classes if re.search(rf"\.{name}\b[^}}]*(?:fill|stroke): #", light)}
    assert coloured == classes
    assert {name for name in classes if not re.search(rf"\.{name}\b[^{{]*{{", dark)} == set()


def test_its_words_are_the_codes() -> None:
    assert f"Denied: {Reason.BINDING_MISMATCH}<" in TEXT
    assert f"under mode {Mode.ENFORCE.value}." in TEXT
