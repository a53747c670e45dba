"""As much of Markdown as the checks need: the project's documents, their links, anchors and fenced blocks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.documents.inclusion import text_of

ROOT: Final = Path(__file__).parents[2]

OPERATING_GUIDE: Final = tuple(
    ROOT / f"docs/{page}.md" for page in ("operating", "enforce", "recovering", "troubleshooting")
)
"""The pages of the operating guide, in its order."""

_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<language>[^\s`]*)\s*$")
_HEADING: Final = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$")
_LINK: Final = re.compile(r"!?\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
_CODE_SPAN: Final = re.compile(r"(`+)(.+?)\1")
_NOT_IN_ANCHORS: Final = re.compile(r"[^\w\- ]")
_NOT_OURS: Final = frozenset({".venv", ".git", ".pytest_cache", "build", "node_modules"})


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    document: Path
    line: int
    """Line of its first content line, counted from 1."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Link:
    """One inline link."""

    document: Path
    line: int
    text: str
    target: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}: [{self.text}]({self.target})"


def documents() -> list[Path]:
    """Every Markdown file of the project: what git knows and does not ignore, or all where there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.md"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = {ROOT / name for name in listed.split("\0") if name}
    except (OSError, subprocess.CalledProcessError):
        found = {path for path in ROOT.rglob("*.md") if not _NOT_OURS & set(path.relative_to(ROOT).parts)}
    return sorted(path for path in found if path.is_file())


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document.

    Raises:
        ValueError: a block is not closed.
    """
    return [block for kind, block in _parts(document) if kind == "block" and isinstance(block, Block)]


def links(document: Path) -> list[Link]:
    """The inline links of a document and of what it includes, outside code."""
    found = []
    for number, line in _prose(document):
        found += [
            Link(document, number, match["text"], match["target"]) for match in _LINK.finditer(_without_code(line))
        ]
    return found


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    counts: dict[str, int] = {}
    found = set()
    for _, line in _prose(document):
        heading = _HEADING.match(line)
        if heading is None:
            continue
        text = _LINK.sub(lambda match: match["text"], heading["text"]).replace("`", "")
        anchor = _NOT_IN_ANCHORS.sub("", text.lower()).replace(" ", "-")
        repeated = counts.get(anchor, 0)
        counts[anchor] = repeated + 1
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return found


def _without_code(line: str) -> str:
    """The line with code spans emptied, save those that are the whole text of a link."""
    return _CODE_SPAN.sub(lambda match: match[0] if _is_link_text(match) else "`code`", line)


def _is_link_text(match: re.Match[str]) -> bool:
    before, after = match.string[: match.start()], match.string[match.end() :]
    return before.endswith("[") and after.startswith("](")


def _prose(document: Path) -> Iterator[tuple[int, str]]:
    for kind, part in _parts(document):
        if kind == "line" and isinstance(part, tuple):
            yield part


def _parts(document: Path) -> Iterator[tuple[str, Block | tuple[int, str]]]:
    lines = iter(enumerate(text_of(document).splitlines(), start=1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            yield "line", (number, line)
            continue
        content = []
        for _, inner in lines:
            if inner.strip() == fence["ticks"]:
                break
            content.append(inner.removeprefix(fence["indent"]))
        else:
            raise ValueError(f"{document.name}:{number}: the block is not closed")
        yield "block", Block(document, number + 1, fence["language"], "".join(f"{inner}\n" for inner in content))
