"""Every relative link leads somewhere, and what a link calls a name is defined there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.documents.markdown import ROOT, Link, anchors, documents, links

_NAME = re.compile(r"`(?P<name>[A-Za-z_][A-Za-z0-9_.]*)`")
ALL_LINKS = [link for document in documents() for link in links(document)]
RELATIVE = [link for link in ALL_LINKS if not re.match(r"[a-z][a-z0-9+.-]*:", link.target)]


def destination(link: Link) -> Path:
    path = link.target.partition("#")[0]
    return (link.document.parent / path).resolve() if path else link.document


def defined_names(source: str) -> set[str]:
    """Functions, classes and methods of a module; methods as ``Class.method``."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            members = (member for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{member.name}" for member in members}
    return names


def test_there_are_links() -> None:
    assert len(RELATIVE) > 100


@pytest.mark.parametrize("link", RELATIVE, ids=str)
def test_the_destination_exists(link: Link) -> None:
    there = destination(link)
    assert there.is_relative_to(ROOT), "leads out of the project"
    assert there.exists()


@pytest.mark.parametrize("link", [link for link in RELATIVE if "#" in link.target], ids=str)
def test_the_anchor_exists(link: Link) -> None:
    assert link.target.partition("#")[2] in anchors(destination(link))


@pytest.mark.parametrize("link", [link for link in RELATIVE if link.target.endswith(".py")], ids=str)
def test_a_linked_name_is_defined_there(link: Link) -> None:
    named = _NAME.fullmatch(link.text)
    if named is None or named["name"].endswith(".py"):
        return
    assert named["name"] in defined_names(destination(link).read_text(encoding="utf-8"))


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {destination(link) for link in RELATIVE if link.document == index}
    assert {page for page in documents() if page.is_relative_to(ROOT / "docs")} - linked == {index}


@pytest.mark.parametrize("link", [link for link in ALL_LINKS if link not in RELATIVE], ids=str)
def test_other_links_are_https(link: Link) -> None:
    """They are not followed: the tests need no network."""
    assert link.target.startswith("https://")
