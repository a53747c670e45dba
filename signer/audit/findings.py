"""What the verification of a log finds, other than the results of replays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a line."""

    file: str
    """Name of the file, escaped for printing."""
    line: int
    """Number of the line, from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Broken:
    """The log was changed or damaged."""

    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """Not an error, but worth knowing."""

    place: Place
    what: str


@dataclass(frozen=True, slots=True)
class MacsNotChecked:
    """No controller key was given, so only the chain was checked."""

    with_mac: int
    """Number of lines, without start lines, as in the next one."""
    without_mac: int


@dataclass(frozen=True, slots=True)
class NoHeads:
    """No published heads were given, so the end of no chain was checked."""


@dataclass(frozen=True, slots=True)
class MacsChecked:
    """The controller key was given. Whatever was wrong is a finding of its own."""

    lines: int
    """Number of lines that the controller wrote, by their MAC or by a published head after them."""
    heads: int | NoHeads
    """Number of chains whose published head is in the files."""
