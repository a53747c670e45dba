"""Verifies audit logs: the chain of all files, the shape of every line, and each decision by judging it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from signer.audit.chain import DECISION, START, AnyLine, ChainedLine, Link, Unreadable, read_lines
from signer.audit.comparison import Comparison, Differs, compare
from signer.audit.decision_line import DecisionLine, read_decision_line
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.values import InvalidValue
from signer.model.decision import printable
from signer.model.program_version import program_version

_MAXIMUM_UNREADABLE: Final = 1000
"""Kept of those that stand together: a file of nothing but line feeds must not take all memory."""
_EMPTY: Final = "the file is empty: not even its start line is left"
# A crash or a full disk leaves such a file, too, with no decision in it; but nobody can tell it from a log that was
# wiped, and the next start of a controller puts a start line behind it.
_NO_LINE: Final = (
    "no line of the file can be read: it is compressed (unpack it first), is no audit log, or what was in it is gone"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a line stands."""

    file: str
    """Its name, printable."""
    line: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision, and what judging it again gave. The line itself, ten times as large in memory, is not kept."""

    place: Place
    cluster: str
    csr: str
    decision: str
    reason: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class Broken:
    """The log is not what was written."""

    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """Nothing is wrong, but a reader should know."""

    place: Place
    what: str


Finding: TypeAlias = Judged | Broken | Noticed


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What the first line of a file that can be read says of its place."""

    chain: str
    sequence: int
    time: str


_UNKNOWN: Final = _Beginning("", -1, "")
"""Before all others."""


@dataclass(slots=True)
class _Chain:
    """The chain so far, over all files."""

    end: Link | None = None
    unreadable: list[tuple[Place, Unreadable]] = field(default_factory=list)

    def take(self, place: Place, line: AnyLine, *, first: bool) -> Iterator[Finding]:
        """What is wrong with the line's place."""
        if isinstance(line, Unreadable):
            if len(self.unreadable) < _MAXIMUM_UNREADABLE:
                self.unreadable.append((place, line))
                if len(self.unreadable) == _MAXIMUM_UNREADABLE:
                    yield Broken(place, f"the {_MAXIMUM_UNREADABLE}th line in a row that cannot be read")
            return
        cut_off, self.unreadable = self.unreadable, []
        if line.kind == START:
            for where, one in cut_off:
                yield Noticed(where, f"the line {one.why}: the controller was stopped, or the disk was full")
        else:
            for where, one in cut_off:
                yield Broken(where, f"the line {one.why}")
        yield from self._joins(place, line, first=first)
        self.end = line.link

    def _joins(self, place: Place, line: ChainedLine, *, first: bool) -> Iterator[Finding]:
        end = self.end
        if first and line.kind != START:
            yield Broken(place, "the file does not begin with a start line")
        if end is None:
            if line.sequence:
                yield Noticed(place, f"begins with line {line.sequence} of its chain: what was before is not given")
        elif line.chain != end.chain:
            if line.kind == START and line.sequence == 0:
                yield Noticed(place, "a new chain begins: nothing ties it to what is before")
            else:
                yield Broken(place, "the line is of another chain than the one before it")
        elif (line.sequence, line.previous) != (end.sequence + 1, end.digest):
            yield Broken(place, _gap(line, end))

    def ends(self) -> Iterator[Finding]:
        """What is left at the end of all files."""
        for where, one in self.unreadable:
            if one.ended:
                yield Broken(where, f"the line {one.why}")
            else:
                yield Noticed(where, f"the last line {one.why}: it was being written, or the controller was stopped")


def _gap(line: ChainedLine, end: Link) -> str:
    missing = line.sequence - end.sequence - 1
    if missing > 0:
        return (
            f"{missing} {'line is' if missing == 1 else 'lines are'} missing before line {line.sequence} of its chain"
        )
    if missing < 0:
        return f"line {line.sequence} of its chain stands behind line {end.sequence}"
    return "the line before it is not the one that was written: something in it was changed"


def files_in_order(paths: Sequence[Path]) -> list[Path]:
    """By the first line of each that can be read, whatever they are called: names and clocks may say otherwise.

    Of several chains the one that began earlier comes first. What has no such line, or can be read only once, such as a
    pipe, stays behind the file that it is given behind.

    Raises:
        OSError: a file cannot be read.
    """
    beginnings = [_beginning_of(path) for path in paths]
    began: dict[str, str] = {}
    for beginning in sorted(beginnings, key=attrgetter("sequence"), reverse=True):
        began[beginning.chain] = beginning.time
    places: list[tuple[str, str, int]] = []
    last = _UNKNOWN
    for beginning in beginnings:
        last = last if beginning is _UNKNOWN else beginning
        places.append((began[last.chain], last.chain, last.sequence))
    return [path for _, path in sorted(zip(places, paths, strict=True), key=itemgetter(0))]


def _beginning_of(path: Path) -> _Beginning:
    if path.exists() and not path.is_file():
        return _UNKNOWN
    for line in read_lines(path):
        if isinstance(line, ChainedLine):
            return _Beginning(line.chain, line.sequence, str(line.content.get("time", "")))
    return _UNKNOWN


async def verify(paths: Sequence[Path], plugins: ReplayAttestors) -> AsyncIterator[Finding]:
    """Everything that is to be said of these files, in their order.

    Raises:
        OSError: a file cannot be read.
    """
    chain, written_by = _Chain(), ""
    for path in paths:
        number, any_of_ours = 0, False
        for number, line in enumerate(read_lines(path), start=1):
            place = Place(printable(path.name), number)
            for finding in chain.take(place, line, first=number == 1):
                yield finding
            if isinstance(line, ChainedLine):
                any_of_ours = True
                if line.kind == DECISION:
                    yield _by_version(await _judged(place, line, plugins), written_by)
                else:
                    written_by = str(line.content["program"])
        if not any_of_ours:
            yield Broken(Place(printable(path.name), 1), _NO_LINE if number else _EMPTY)
    for finding in chain.ends():
        yield finding


def _by_version(finding: Judged | Broken, written_by: str) -> Judged | Broken:
    """Rules change: what another version decided otherwise is not forged for that."""
    if isinstance(finding, Broken) or not isinstance(finding.comparison, Differs) or written_by == program_version():
        return finding
    writer = f"version {written_by}" if written_by else "a program that does not say which version it was"
    advice = f"written by {writer}, judged by the rules of {program_version()}: judge it with the one that wrote it"
    return replace(finding, comparison=Differs(printable(f"{finding.comparison.why}; {advice}")))


async def _judged(place: Place, line: ChainedLine, plugins: ReplayAttestors) -> Judged | Broken:
    try:
        decision = read_decision_line(line.content)
    except InvalidValue as error:
        return Broken(place, printable(f"the line is no decision: {error}"))
    said = decision.decision
    comparison = await compare(decision, plugins)
    return Judged(place, decision.cluster, decision.request.name, said.kind, said.reason, comparison)


def decisions(paths: Sequence[Path]) -> Iterator[tuple[Place, DecisionLine] | Broken]:
    """The decisions in these files, and the lines that cannot be read; nothing is verified.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            place = Place(printable(path.name), number)
            if isinstance(line, Unreadable):
                yield Broken(place, f"the line {line.why}")
            elif line.kind == DECISION:
                try:
                    yield place, read_decision_line(line.content)
                except InvalidValue as error:
                    yield Broken(place, printable(f"the line is no decision: {error}"))


def is_bad(finding: Finding) -> bool:
    """Whether the log, or a decision in it, is not right."""
    return isinstance(finding, Broken) or (isinstance(finding, Judged) and isinstance(finding.comparison, Differs))
