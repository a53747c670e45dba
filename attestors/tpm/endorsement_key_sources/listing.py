"""The text of an inventory: lines ``<provider ID> sha256:<hexadecimal digits>``, comments and blank lines.

A line may name a host instead of a provider ID, such as ``metal3://<namespace>/<host>``. A provider ID that contains a
host (:mod:`attestors.tpm.endorsement_key_sources.host`) stands for that host, so that one line is right for all
Machines that run on it one after the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from attestors.tpm.endorsement_key_sources.host import host_of

MAXIMUM_CHARACTERS: Final = 1024 * 1024
"""The maximum size of a ConfigMap."""
MAXIMUM_LINES: Final = 20_000
MAXIMUM_UNREADABLE_LINES: Final = 1000
"""A text with more is not an inventory; parsing it only costs time."""

_ENTRY_BYTES: Final = 220
"""Memory per provider ID or key: objects, and their entries in mappings."""
_NUMBER_BYTES: Final = 36

_KEY_PREFIX: Final = "sha256:"
_KEY: Final = re.compile(rf"{_KEY_PREFIX}[0-9a-f]{{64}}")
_KEY_CHARACTERS: Final = len(_KEY_PREFIX) + 64
_LINE: Final = re.compile(rf"[ \t]*(?P<provider_id>[^\s#]\S*)[ \t]+(?P<key>{_KEY.pattern})[ \t]*\r?")
_NO_KEY: Final = rf"(?![!-~]*{_KEY_PREFIX})"
_LINE_OF_WORDS: Final = re.compile(
    rf"[ \t]*(?P<provider_id>{_NO_KEY}[a-z][a-z0-9+.-]*://[!-~]*(?: +{_NO_KEY}[!-~]+)+)[ \t]+"
    rf"(?P<key>{_KEY.pattern})[ \t]*\r?"
)
"""A provider ID with spaces, as MAAS writes them. The line may also be meant otherwise, so its words stay at fault."""
_WORD: Final = re.compile(r"\S+")
_WORDS_AT_FAULT: Final = 4
"""Words of an unreadable line that may be the provider ID, which may stand after the key or after another ID."""
_PUNCTUATION: Final = r",;=|\"'`(){}\[\]<>"
"""Characters around a provider ID in tables, lists and JSON. A provider ID may contain them too."""
_PUNCTUATED: Final = re.compile(rf"[{_PUNCTUATION}]|:\Z")
_PIECE: Final = re.compile(rf"[^\s:{_PUNCTUATION}][^\s{_PUNCTUATION}]*")
_PIECES_AT_FAULT: Final = 8
_BYTE_ORDER_MARK: Final = "\ufeff"


class InvalidListing(ValueError):
    """The whole text is rejected; the message says why and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class ListingLine:
    """The key listed for one provider ID."""

    key: str


@dataclass(frozen=True, slots=True)
class NoLine:
    """The provider ID is not listed."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The lines about the provider ID are unreadable or contradict each other; ``lines`` are numbered from 1."""

    lines: tuple[int, ...]


Entry: TypeAlias = ListingLine | NoLine | Contradiction


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of :func:`parse_listing`."""

    _keys: Mapping[str, str] = field(repr=False)
    _owners: Mapping[str, tuple[str, int]] = field(repr=False)
    _faults: Mapping[str, tuple[int, ...]] = field(repr=False)

    @property
    def weight(self) -> int:
        """Upper bound of its memory beside its text, in bytes."""
        numbers = sum(map(len, self._faults.values()))
        return _ENTRY_BYTES * (len(self._keys) + len(self._owners) + len(self._faults)) + _NUMBER_BYTES * numbers

    def line_of(self, provider_id: str) -> Entry:
        """The entry for a provider ID, or for its host."""
        provider_id = host_of(provider_id)
        if provider_id in self._faults:
            return Contradiction(self._faults[provider_id])
        if provider_id in self._keys:
            return ListingLine(self._keys[provider_id])
        return NoLine()

    def lists(self, key: str) -> bool:
        """Whether the key is listed under any provider ID."""
        return key in self._owners


def parse_listing(text: str) -> Listing:
    """Parse an inventory.

    An error in a line affects only the provider IDs in it: one provider ID with two keys, one key under two provider
    IDs, a line without a key. A repeated line is no error. In an unreadable line, each of the first words counts as a
    possible provider ID or key, with and without surrounding punctuation, and so does each part of a provider ID
    between punctuation. A provider ID with spaces begins with a scheme. A comment of words that ends with an entry is a
    comment and an entry that lost the line end between them, unless the provider ID has a line of its own.

    Raises:
        InvalidListing: too many characters, lines or unreadable lines; or one line with several machines: the text lost
        its
            line ends, and other machines could be missed.
    """
    if len(text) > MAXIMUM_CHARACTERS:
        raise InvalidListing(f"it has more than {MAXIMUM_CHARACTERS} characters")
    if text.count("\n") > MAXIMUM_LINES:
        raise InvalidListing(f"it has more than {MAXIMUM_LINES} lines")
    keys: dict[str, str] = {}
    owners: dict[str, tuple[str, int]] = {}
    first_lines: dict[str, int] = {}
    faults: dict[str, set[int]] = {}
    folded: dict[str, set[int]] = {}
    unreadable = 0
    for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split("\n"), start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            words = _words_at_fault(line)
            _require_line_ends(line, number, words)
            for one in _entry_behind_a_comment(line):
                folded.setdefault(one, set()).add(number)
            for word in {*words, *map(host_of, words)}:
                faults.setdefault(word, set()).add(number)
            found = _LINE_OF_WORDS.fullmatch(line)
            unreadable += bool(words) and found is None
            if unreadable > MAXIMUM_UNREADABLE_LINES:
                raise InvalidListing(f"more than {MAXIMUM_UNREADABLE_LINES} lines cannot be read")
        if found is None:
            continue
        provider_id, key = host_of(found["provider_id"]), found["key"]
        if _PUNCTUATED.search(found["provider_id"]):
            for piece in _pieces(found["provider_id"]):
                faults.setdefault(host_of(piece), set()).add(number)
        first_line = first_lines.setdefault(provider_id, number)
        if keys.setdefault(provider_id, key) != key:
            faults.setdefault(provider_id, set()).update((first_line, number))
        owner, owners_line = owners.setdefault(key, (provider_id, number))
        if owner != provider_id:
            for one in (owner, provider_id):
                faults.setdefault(one, set()).update((owners_line, number))
    for one, numbers in folded.items():
        if one not in keys and one not in owners:
            faults.setdefault(one, set()).update(numbers)
    return Listing(keys, owners, {one: tuple(sorted(numbers)) for one, numbers in faults.items()})


def _require_line_ends(line: str, number: int, at_fault: frozenset[str]) -> None:
    """Detect lost line ends: a YAML block scalar with ``>`` folds an inventory into one line, or into one comment.

    Raises:
        InvalidListing: the line names more machines than are searched in an unreadable line.
    """
    machines = []
    for before in _KEY.split(line)[:-1]:
        pieces = _PIECE.findall(before)
        if pieces and "://" in pieces[-1]:
            machines.append(pieces[-1].rstrip(":"))
    if len(machines) > 1 and not at_fault.issuperset(machines):
        raise InvalidListing(f"line {number} has {len(machines)} machines: are its line ends lost?")


def _entry_behind_a_comment(line: str) -> tuple[str, ...]:
    """Host and key of an entry that ends a comment of words: ``>`` folds the two, where a blank line follows them.

    Without words before it, the entry is one that a person took out.
    """
    key = line.rstrip(" \t\r")[-_KEY_CHARACTERS:]
    if _KEY.fullmatch(key) is None:
        return ()
    comment, scheme, rest = line.partition("://")
    before, space, begun = comment.rpartition(" ")
    words = before.lstrip(" \t")
    if not (scheme and space and words.startswith("#") and words.strip("# \t")):
        return ()
    return host_of(f"{begun}{scheme}{rest}".rstrip(" \t\r").removesuffix(key).rstrip(" \t")), key


def _words_at_fault(line: str) -> frozenset[str]:
    """The first words of a line, with and without surrounding punctuation; empty for a comment."""
    words = [found.group() for found in itertools.islice(_WORD.finditer(line), _WORDS_AT_FAULT)]
    if not words or words[0].startswith("#"):
        return frozenset()
    return frozenset((*words, *_pieces(" ".join(words).replace(_KEY_PREFIX, f" {_KEY_PREFIX}"))))


def _pieces(text: str) -> list[str]:
    """The first parts between punctuation, without the trailing colons of YAML and JSON."""
    return [found.group().rstrip(":") for found in itertools.islice(_PIECE.finditer(text), _PIECES_AT_FAULT)]
