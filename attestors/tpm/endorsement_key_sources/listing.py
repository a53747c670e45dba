"""The text of an inventory: lines ``<provider ID> sha256:<hexadecimal digits>``, comments and blank lines."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

MAXIMUM_CHARACTERS: Final = 1024 * 1024
"""As much as a ConfigMap holds."""
MAXIMUM_LINES: Final = 20_000
MAXIMUM_UNREADABLE_LINES: Final = 1000
"""With more it is something else than an inventory, and only costs time."""

_ENTRY_BYTES: Final = 220
"""Of a provider ID or key: objects, and their places in mappings."""
_NUMBER_BYTES: Final = 36

_KEY_PREFIX: Final = "sha256:"
_KEY: Final = re.compile(rf"{_KEY_PREFIX}[0-9a-f]{{64}}")
_LINE: Final = re.compile(rf"[ \t]*(?P<provider_id>[^\s#]\S*)[ \t]+(?P<key>{_KEY.pattern})[ \t]*\r?")
_WORD: Final = re.compile(r"\S+")
_WORDS_AT_FAULT: Final = 4
"""Of a line that cannot be read; the provider ID may stand behind the key, or behind another one."""
_PUNCTUATION: Final = r",;=|\"'`(){}\[\]<>"
"""What stands around a provider ID in tables, lists and JSON. It may stand in one, too."""
_PUNCTUATED: Final = re.compile(rf"[{_PUNCTUATION}]|:\Z")
_PIECE: Final = re.compile(rf"[^\s:{_PUNCTUATION}][^\s{_PUNCTUATION}]*")
_PIECES_AT_FAULT: Final = 8
_BYTE_ORDER_MARK: Final = "\ufeff"


class InvalidListing(ValueError):
    """A text that is not read at all; the message says why, without anything of it."""


@dataclass(frozen=True, slots=True)
class ListingLine:
    """The key of one provider ID."""

    key: str


@dataclass(frozen=True, slots=True)
class NoLine:
    """Nothing is said about the provider ID."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What is said about the provider ID cannot be read, or cannot all be true; ``lines`` are numbered from 1."""

    lines: tuple[int, ...]


Entry: TypeAlias = ListingLine | NoLine | Contradiction


@dataclass(frozen=True, slots=True)
class Listing:
    """What :func:`parse_listing` read."""

    _keys: Mapping[str, str] = field(repr=False)
    _owners: Mapping[str, tuple[str, int]] = field(repr=False)
    _faults: Mapping[str, tuple[int, ...]] = field(repr=False)

    @property
    def weight(self) -> int:
        """What it takes beside its text, at most, in bytes."""
        numbers = sum(map(len, self._faults.values()))
        return _ENTRY_BYTES * (len(self._keys) + len(self._owners) + len(self._faults)) + _NUMBER_BYTES * numbers

    def line_of(self, provider_id: str) -> Entry:
        """What it says about a provider ID."""
        if provider_id in self._faults:
            return Contradiction(self._faults[provider_id])
        if provider_id in self._keys:
            return ListingLine(self._keys[provider_id])
        return NoLine()

    def lists(self, key: str) -> bool:
        """Whether the key is there, under whichever provider ID."""
        return key in self._owners


def parse_listing(text: str) -> Listing:
    """Read an inventory.

    Whatever is wrong with a line is a fault of the provider IDs that it is about, and of no other: one provider ID with
    two keys, one key under two provider IDs, a line that has no key. A repeated line is none. Of a line that cannot be
    read, each of the first words may be the provider ID, or its key, also without what stands around it; and so may be
    what is left of a provider ID without that.

    Raises:
        InvalidListing: too many characters or lines, or lines that cannot be read, or one of several machines: where
            line ends are lost, nobody can tell who else would not be found.
    """
    if len(text) > MAXIMUM_CHARACTERS:
        raise InvalidListing(f"it has more than {MAXIMUM_CHARACTERS} characters")
    if text.count("\n") > MAXIMUM_LINES:
        raise InvalidListing(f"it has more than {MAXIMUM_LINES} lines")
    keys: dict[str, str] = {}
    owners: dict[str, tuple[str, int]] = {}
    first_lines: dict[str, int] = {}
    faults: dict[str, set[int]] = {}
    unreadable = 0
    for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split("\n"), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            words = _words_at_fault(line)
            _require_line_ends(line, number, words)
            unreadable += bool(words)
            if unreadable > MAXIMUM_UNREADABLE_LINES:
                raise InvalidListing(f"more than {MAXIMUM_UNREADABLE_LINES} lines cannot be read")
            for word in words:
                faults.setdefault(word, set()).add(number)
            continue
        provider_id, key = found.groups()
        if _PUNCTUATED.search(provider_id):
            for piece in _pieces(provider_id):
                faults.setdefault(piece, set()).add(number)
        first_line = first_lines.setdefault(provider_id, number)
        if keys.setdefault(provider_id, key) != key:
            faults.setdefault(provider_id, set()).update((first_line, number))
        owner, owners_line = owners.setdefault(key, (provider_id, number))
        if owner != provider_id:
            for one in (owner, provider_id):
                faults.setdefault(one, set()).update((owners_line, number))
    return Listing(keys, owners, {one: tuple(sorted(numbers)) for one, numbers in faults.items()})


def _require_line_ends(line: str, number: int, at_fault: frozenset[str]) -> None:
    """A block scalar of YAML that begins with ``>`` makes one line of an inventory, and of one with a comment nothing.

    Raises:
        InvalidListing: more machines stand in the line than are looked for in one that cannot be read.
    """
    machines = []
    for before in _KEY.split(line)[:-1]:
        pieces = _PIECE.findall(before)
        if pieces and "://" in pieces[-1]:
            machines.append(pieces[-1].rstrip(":"))
    if len(machines) > 1 and not at_fault.issuperset(machines):
        raise InvalidListing(f"line {number} has {len(machines)} machines: are its line ends lost?")


def _words_at_fault(line: str) -> frozenset[str]:
    """The first words of a line, as they stand and without what stands around them; none of a comment."""
    words = [found.group() for found in itertools.islice(_WORD.finditer(line), _WORDS_AT_FAULT)]
    if not words or words[0].startswith("#"):
        return frozenset()
    return frozenset((*words, *_pieces(" ".join(words).replace(_KEY_PREFIX, f" {_KEY_PREFIX}"))))


def _pieces(text: str) -> list[str]:
    """What is between punctuation first, without the colons of YAML and JSON behind it."""
    return [found.group().rstrip(":") for found in itertools.islice(_PIECE.finditer(text), _PIECES_AT_FAULT)]
