"""Loaded by MkDocs (``hooks`` in ``mkdocs.yml``): what documents link to outside ``docs/`` becomes part of the site.

The site knows no address of the repository. Each file that a document links to, such as a module of the source, is a
page of the site, and links lead there. Files that those pages link to are added in turn. The front page includes the
README (:mod:`tests.documents.inclusion`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from tests.documents.inclusion import FENCED, LINK, outside_of_fences, text_of

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs"
REPOSITORY: Final = "repository"
"""Folder of the site with the pages of other files of the repository."""
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "bash"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for every file of the repository that documents link to, and for what these link to."""
    waiting = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        document = waiting.pop()
        for linked in _linked_files(document, _text_of(document)):
            if linked in seen or linked.startswith(f"{DOCS}/"):
                continue
            seen.add(linked)
            page = File.generated(
                config, _page_of(linked), content=_content_of(linked), inclusion=InclusionLevel.NOT_IN_NAV
            )
            files.append(page)
            if linked.endswith(".md"):
                waiting.append(linked)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put included documents in, and lead links to files of the repository to their pages, which are not searched."""
    origin = _origin_of(page.file.src_uri)
    if not origin.startswith(f"{DOCS}/"):
        page.meta["search"] = {"exclude": True}
    here = posixpath.dirname(page.file.src_uri)

    def follow(match: re.Match[str]) -> str:
        linked = _repository_path(origin, match["target"])
        if linked is None:
            return match[0]
        anchor = match["target"].partition("#")[2]
        target = posixpath.relpath(_page_of(linked), here or ".")
        return f"{match['text']}({target}{'#' + anchor if anchor else ''})"

    return outside_of_fences(_text_of(origin) or markdown, lambda prose: LINK.sub(follow, prose))


def _text_of(document: str) -> str:
    """The text of a document, with the documents that it includes; empty for other files."""
    path = ROOT / document
    return text_of(path) if path.suffix == ".md" else ""


def _linked_files(document: str, text: str) -> Iterator[str]:
    if document.endswith(".md"):
        for match in LINK.finditer(FENCED.sub("", text)):
            linked = _repository_path(document, match["target"])
            if linked is not None:
                yield linked


def _repository_path(document: str, target: str) -> str | None:
    """What a link of a document leads to, from the repository's root; None where it leads out of it or nowhere."""
    path = target.partition("#")[0]
    if not path or re.match(r"[a-z][a-z0-9+.-]*:", path):
        return None
    linked = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
    if linked.startswith("..") or not (ROOT / linked).exists():
        return None
    if (ROOT / linked).is_dir() and (ROOT / linked / "README.md").exists():
        return f"{linked}/README.md"
    return linked


def _page_of(linked: str) -> str:
    """Where in the site a file of the repository is."""
    if linked == "README.md":
        return "index.md"
    if linked.startswith(f"{DOCS}/"):
        return linked.removeprefix(f"{DOCS}/")
    return f"{REPOSITORY}/{linked}" + ("" if linked.endswith(".md") else ".md")


def _origin_of(page: str) -> str:
    """The file of the repository that a page of the site is made from."""
    if not page.startswith(f"{REPOSITORY}/"):
        return f"{DOCS}/{page}"
    origin = page.removeprefix(f"{REPOSITORY}/")
    return origin if (ROOT / origin).exists() else origin.removesuffix(".md")


def _content_of(linked: str) -> str:
    path = ROOT / linked
    if path.is_dir():
        names = sorted(f"{child.name}/" if child.is_dir() else child.name for child in path.iterdir())
        return f"# `{linked}`\n\n" + "".join(f"- `{name}`\n" for name in names if not name.startswith("__"))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# `{linked}`\n\n`````{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n`````\n"
