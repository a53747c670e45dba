"""The one line in ``~/.ssh/config``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from node_access.client.errors import ClientFailed

COMMENT: Final = "# node-access: hosts NODE.CLUSTER of live grants"


def install(file: Path, pattern: str) -> bool:
    """Have ``~/.ssh/config`` include files, before everything else; returns whether it had to change.

    ssh takes the first value of each option, so what stands before an ``Include`` would win, and behind a ``Host`` line
    it would count for those hosts alone.

    Raises:
        ClientFailed: the file cannot be read or written.
    """
    line = f'Include "{pattern}"'
    try:
        target = file.resolve()
        text = target.read_text(encoding="utf-8") if target.exists() else ""
        if _is_there(text, line):
            return False
        others = "".join(one for one in text.splitlines(keepends=True) if one.strip() not in (line, COMMENT))
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "w", encoding="utf-8", newline="") as opened:
            opened.write(f"{COMMENT}\n{line}\n{others}")
        partial.replace(target)
    except (OSError, UnicodeDecodeError) as error:
        raise ClientFailed(f"{file}: {error}") from error
    return True


def is_installed(file: Path, pattern: str) -> bool:
    """Whether the line is where it must be."""
    try:
        return _is_there(file.read_text(encoding="utf-8"), f'Include "{pattern}"')
    except (OSError, UnicodeDecodeError):
        return False


def _is_there(text: str, line: str) -> bool:
    """Whether it stands before the first ``Host`` and ``Match``, and before every option."""
    for one in text.splitlines():
        if one.strip() == line:
            return True
        if one.strip() and not one.lstrip().startswith("#") and not one.lower().lstrip().startswith("include"):
            return False
    return False
