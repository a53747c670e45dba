"""Checks who wrote the lines: their MACs with the controller key, and the published heads of their chains.

Every line but a start line needs a MAC. The MAC of a key that is not given any more counts only at or before the line
that a published head names, because the head is under a newer seal, and the chain leads from it to the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from signer.audit.chain import START, ChainedLine
from signer.audit.findings import Broken, MacsChecked, MacsNotChecked, NoHeads, Noticed, Place
from signer.audit.line_mac import NoMac
from signer.model.audit_head import HEADS_NAME, AuthenticHead, BadHead, Head, KnownHead
from signer.model.fields import format_time
from signer.model.seal import Authentic, Fault, Seals

_NOWHERE: Final = Place("", 0)
_HEADS_PLACE: Final = f"ConfigMap {HEADS_NAME}"


@dataclass(frozen=True, slots=True)
class NoControllerKey:
    """Check the chain alone."""


@dataclass(frozen=True, slots=True)
class GivenHeads:
    """The heads in the ConfigMap, by chain."""

    heads: Mapping[str, KnownHead]
    files_are_complete: bool
    """Whether each published chain must have lines in the files."""


@dataclass(frozen=True, slots=True)
class GivenKey:
    """Check the MACs, and the heads if they are given."""

    seals: Seals
    """Of use AUDIT_LINE."""
    heads: GivenHeads | NoHeads


Evidence: TypeAlias = GivenKey | NoControllerKey


@dataclass(slots=True)
class _Chain:
    """One chain so far."""

    place: Place
    """Of its last line."""
    sequence: int
    without_mac: int = 0
    without_mac_from: Place = _NOWHERE
    unknown_key: int = 0
    """Lines since the last published head whose MAC no given key verifies."""
    unknown_key_from: Place = _NOWHERE
    head_passed: bool = False


@dataclass(slots=True)
class MacCheck:
    """Takes the lines of all files in order."""

    evidence: Evidence
    _chains: dict[str, _Chain] = field(default_factory=dict)
    _with_mac: int = 0
    _without_mac: int = 0
    _authentic: int = 0
    _heads_found: int = 0

    def take(self, place: Place, line: ChainedLine) -> Iterator[Broken]:
        """The findings about one line."""
        if isinstance(self.evidence, NoControllerKey):
            self._count(line)
            return
        chain = self._chains.setdefault(line.chain, _Chain(place, line.sequence))
        chain.place, chain.sequence = place, line.sequence
        if line.kind != START or not isinstance(line.mac, NoMac):
            yield from self._mac(place, line, chain, self.evidence.seals)
        match self._head(line.chain):
            case AuthenticHead(head):
                yield from self._at_head(place, line, chain, head)

    def ends(self) -> Iterator[Broken | Noticed | MacsChecked | MacsNotChecked]:
        """The findings at the end of all files."""
        if isinstance(self.evidence, NoControllerKey):
            yield MacsNotChecked(self._with_mac, self._without_mac)
            return
        for name, chain in self._chains.items():
            yield from self._chain_ends(name, chain)
        heads = self.evidence.heads
        if isinstance(heads, GivenHeads):
            yield from self._not_given(heads)
        yield MacsChecked(self._authentic, self._heads_found if isinstance(heads, GivenHeads) else heads)

    def _count(self, line: ChainedLine) -> None:
        if line.kind == START:
            return
        if isinstance(line.mac, NoMac):
            self._without_mac += 1
        else:
            self._with_mac += 1

    def _head(self, chain: str) -> KnownHead | NoHeads:
        heads = self.evidence.heads if isinstance(self.evidence, GivenKey) else NoHeads()
        return NoHeads() if isinstance(heads, NoHeads) else heads.heads.get(chain, NoHeads())

    def _mac(self, place: Place, line: ChainedLine, chain: _Chain, seals: Seals) -> Iterator[Broken]:
        if isinstance(line.mac, NoMac):
            if not chain.without_mac:
                chain.without_mac_from = place
            chain.without_mac += 1
            return
        verified = line.mac.verify(seals)
        if isinstance(verified, Authentic):
            self._authentic += 1
        elif verified.fault is Fault.UNKNOWN_KEY:
            if not chain.unknown_key:
                chain.unknown_key_from = place
            chain.unknown_key += 1
        else:
            yield Broken(place, "the line's MAC is wrong: the line was changed, or the controller did not write it")

    def _at_head(self, place: Place, line: ChainedLine, chain: _Chain, head: Head) -> Iterator[Broken]:
        if line.sequence != head.sequence:
            return
        chain.head_passed = True
        if line.digest == head.digest:
            self._authentic += chain.unknown_key
            chain.unknown_key = 0
            self._heads_found += 1
        else:
            yield Broken(place, "the line is not the one whose digest is published: the log was written anew")

    def _chain_ends(self, name: str, chain: _Chain) -> Iterator[Broken | Noticed]:
        if chain.without_mac:
            yield Broken(
                chain.without_mac_from,
                f"{_lines(chain.without_mac)} from here on without a MAC: written by another program, or by a version "
                "before MACs; verify older logs without the controller key",
            )
        if chain.unknown_key:
            yield Broken(
                chain.unknown_key_from,
                f"{_lines(chain.unknown_key)} from here on with a MAC of a key that is not given, and no published "
                "head after them: give the Secret as it was then",
            )
        match self._head(name):
            case BadHead(why):
                yield Broken(chain.place, f"the published head of chain {name} does not count: {why}")
            case AuthenticHead(head) if not chain.head_passed:
                yield _cut(chain, head)
            case NoHeads() if isinstance(self.evidence, GivenKey) and isinstance(self.evidence.heads, GivenHeads):
                yield Noticed(chain.place, f"no head of chain {name} is published: a cut end would not be found")

    def _not_given(self, given: GivenHeads) -> Iterator[Broken | Noticed]:
        missing = [(name, head) for name, head in given.heads.items() if name not in self._chains]
        for number, (name, head) in enumerate(missing, start=1):
            place = Place(_HEADS_PLACE, number)
            match head:
                case BadHead(why):
                    yield Broken(place, f"a head that does not count: {why}")
                case AuthenticHead(found):
                    text = (
                        f"no line of chain {name} is given, and its line {found.sequence} was published at "
                        f"{format_time(found.published)}"
                    )
                    if given.files_are_complete:
                        yield Broken(place, f"{text}: give the files of every replica, or --partial")
                    else:
                        yield Noticed(place, text)


def _cut(chain: _Chain, head: Head) -> Broken:
    missing = head.sequence - chain.sequence
    if missing > 0:
        why = f"{_lines(missing)} missing at the end: the chain ends with line {chain.sequence}"
    else:
        why = "the published line is missing"
    published = f"line {head.sequence} was published at {format_time(head.published)}"
    return Broken(chain.place, f"{why}, and {published}: give the last file")


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


__all__ = ["Evidence", "GivenHeads", "GivenKey", "MacCheck", "NoControllerKey"]
