"""Every relative link leads somewhere, and what a link calls a name is defined there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

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


def test_the_destination_exists() -> None:
    there = {str(link): destination(link) for link in RELATIVE}
    assert [link for link, path in there.items() if not path.is_relative_to(ROOT)] == [], "leads out of the project"
    assert [link for link, path in there.items() if not path.exists()] == []


def test_the_anchor_exists() -> None:
    found = functools.cache(anchors)
    anchored = [link for link in RELATIVE if "#" in link.target]
    assert [str(one) for one in anchored if one.target.partition("#")[2] not in found(destination(one))] == []


def test_a_linked_name_is_defined_there() -> None:
    defined = functools.cache(lambda path: defined_names(path.read_text(encoding="utf-8")))
    missing = []
    for link in RELATIVE:
        named = _NAME.fullmatch(link.text) if link.target.endswith(".py") else None
        if named is not None and not named["name"].endswith(".py") and named["name"] not in defined(destination(link)):
            missing.append(str(link))
    assert missing == []


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {destination(link) for link in RELATIVE if link.document == index}
    assert {page for page in documents() if page.is_relative_to(ROOT / "docs")} - linked == {index}


def test_other_links_are_https() -> None:
    """They are not followed: the tests need no network."""
    relative = set(map(id, RELATIVE))
    others = [link for link in ALL_LINKS if id(link) not in relative]
    assert [str(link) for link in others if not link.target.startswith("https://")] == []
