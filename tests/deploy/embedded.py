"""Copy the image's files into the templates of ``deploy/node``, so that each content has one source.

``content: |  # files/<path>`` is followed by the content of ``deploy/node/files/<path>``. A replacement may follow
the path: ``/opt/bin for /usr/local/bin``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NODE: Final = ROOT / "deploy/node"
FILES: Final = NODE / "files"

_EMBEDDED: Final = re.compile(
    r"^(?P<begin>(?P<indent> *)content: \|  # files/(?P<path>\S+)(?:, (?P<new>\S+) for (?P<old>\S+))?\n)"
    r"(?:(?P=indent)  .*\n|\n)*",
    re.MULTILINE,
)


def templates() -> list[Path]:
    """The manifests of ``deploy/node``."""
    return sorted(NODE.glob("*.yaml"))


def image_files() -> dict[str, str]:
    """The files of an image: absolute path, and content."""
    found = (path for path in FILES.rglob("*") if path.is_file())
    return {f"/{path.relative_to(FILES)}": path.read_text(encoding="utf-8") for path in sorted(found)}


def render(template: str) -> str:
    """The template's text with the present content of every embedded file."""
    return _EMBEDDED.sub(_embed, template)


def _embed(match: re.Match[str]) -> str:
    content = (FILES / match["path"]).read_text(encoding="utf-8")
    if match["old"]:
        content = content.replace(match["old"], match["new"])
    inner = match["indent"] + "  "
    return match["begin"] + "".join(f"{inner}{line}".rstrip() + "\n" for line in content.splitlines())


def write() -> list[Path]:
    """Regenerate the templates; returns those that changed."""
    changed = []
    for path in templates():
        before = path.read_text(encoding="utf-8")
        after = render(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed
