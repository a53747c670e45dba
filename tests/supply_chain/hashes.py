"""The files in ``requirements``: each dependency's one version, with the hashes of its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.supply_chain.dependencies import CONSTRAINTS

FOLDER: Final = CONSTRAINTS.parent / "requirements"
_HASH: Final = re.compile(r" {4}--hash=sha256:([0-9a-f]{64})", re.ASCII)


class MalformedHashes(ValueError):
    """A file in ``requirements`` has more or less than versions with SHA-256 hashes."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """One requirement."""

    line: str
    """As constraints.txt has it: name, version and perhaps a marker."""
    hashes: frozenset[str]


def hashed_requirements(text: str) -> Mapping[str, Hashed]:
    """The requirements, by their lines.

    Raises:
        MalformedHashes: a line of another form, one twice, or one without a hash.
    """
    found: dict[str, Hashed] = {}
    for block in re.split(r"(?<!\\)\n", text.removesuffix("\n")):
        line, *rest = block.split(" \\\n")
        hashes = [_HASH.fullmatch(each) for each in rest]
        if not hashes or "://" in line or line.startswith((" ", "-")) or "==" not in line or line in found:
            raise MalformedHashes(f"not one version with hashes: {line!r}")
        if wrong := [each for each, match in zip(rest, hashes, strict=True) if match is None]:
            raise MalformedHashes(f"{line}: not a SHA-256: {wrong[0].strip()!r}")
        found[line] = Hashed(line, frozenset(match[1] for match in hashes if match is not None))
    return found


def read(name: str, folder: Path = FOLDER) -> Mapping[str, Hashed]:
    """Those of an extra, of ``node`` or of ``build``."""
    return hashed_requirements((folder / f"{name}.txt").read_text(encoding="utf-8"))
