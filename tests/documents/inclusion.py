"""Documents that include others, so that one text stands in one place.

``<!-- include: PATH -->`` … ``<!-- included -->`` stands for the document at that path, seen from the document that
includes it. The text between is for readers of the bare file, such as on a repository's host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

LINK: Final = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^()\s]+)\)")
FENCED: Final = re.compile(r"^ *(?P<ticks>`{3,}|~{3,})[^\n]*\n.*?^ *(?P=ticks) *$", re.MULTILINE | re.DOTALL)
_INCLUSION: Final = re.compile(r"<!-- include: (?P<path>\S+) -->\n.*?<!-- included -->\n", re.DOTALL)
_NO_PATH: Final = re.compile(r"[a-z][a-z0-9+.-]*:|#")


def text_of(document: Path) -> str:
    """The text of a document, and of those that it includes; their links lead where they led."""

    def included(match: re.Match[str]) -> str:
        return _moved((document.parent / match["path"]).resolve(), document.parent)

    return _INCLUSION.sub(included, document.read_text(encoding="utf-8"))


def _moved(document: Path, folder: Path) -> str:
    """The text of a document, with links that are right in another folder."""

    def follow(match: re.Match[str]) -> str:
        path, mark, anchor = match["target"].partition("#")
        if _NO_PATH.match(match["target"]):
            return match[0]
        return f"{match['text']}({os.path.relpath(document.parent / path, folder)}{mark}{anchor})"

    return outside_of_fences(document.read_text(encoding="utf-8"), lambda prose: LINK.sub(follow, prose))


def outside_of_fences(markdown: str, change: Callable[[str], str]) -> str:
    """The text with what is not in fenced blocks changed."""
    parts, end = [], 0
    for fence in FENCED.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])
