"""The questions that programs answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["AcceptsClient", "AcceptsServer", "Answer", "written"]

Answer = str
"""The program's error; empty if it accepts the chain."""


@dataclass(frozen=True, slots=True)
class AcceptsServer:
    """Does a client that trusts these CAs accept the server ``localhost`` at this port?"""

    port: int
    chain: bytes = field(repr=False)
    """PEM, the same that the server at the port presents."""
    trust: bytes = field(repr=False)
    """PEM."""


@dataclass(frozen=True, slots=True)
class AcceptsClient:
    """Does a server that trusts these CAs accept the client's chain?"""

    chain: bytes = field(repr=False)
    """PEM."""
    key: bytes = field(repr=False)
    """PEM."""
    trust: bytes = field(repr=False)
    """PEM."""


def written(folder: Path, name: str, content: bytes) -> str:
    """A file in a program's own folder."""
    path = folder / name
    path.write_bytes(content)
    return str(path)
