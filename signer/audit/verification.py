"""Verifies audit logs: the chain of all files, MACs, the form of every line, and each decision by a replay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final, TypeAlias

from signer.audit.access_line import EndLine, GrantsSoFar, IssuanceLine, read_end_line, read_issuance_line
from signer.audit.authenticity import Evidence, MacCheck
from signer.audit.canary_line import read_canary_line
from signer.audit.chain import (
    ACCESS_ENDED,
    ACCESS_ISSUED,
    CANARY,
    DECISION,
    START,
    AnyLine,
    ChainedLine,
    Link,
    Unreadable,
    read_lines,
)
from signer.audit.comparison import Comparison, Differs, compare
from signer.audit.decision_line import DecisionLine, read_decision_line
from signer.audit.errors import Inconsistent
from signer.audit.findings import Broken, MacsChecked, MacsNotChecked, Noticed, Place
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.values import InvalidValue
from signer.model.decision import printable
from signer.model.program_version import program_version

_MAXIMUM_UNREADABLE: Final = 1000
"""Limit of consecutive unreadable lines in memory: a file of line feeds must not exhaust it."""
_EMPTY: Final = "the file is empty: even its start line is missing"
# A crash or a full disk may also leave such a file without decisions. It cannot be told from a log that was wiped, and
# the next start of a controller appends a start line.
_NO_LINE: Final = (
    "no line of the file can be read: it is compressed (unpack it first), is not an audit log, or was overwritten"
)


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """A decision and the result of its replay. The line itself, ten times as large in memory, is dropped."""

    place: Place
    cluster: str
    csr: str
    decision: str
    reason: str
    comparison: Comparison


@dataclass(frozen=True, slots=True)
class VerifiedAccess:
    """A line of an access grant that is what it says."""

    place: Place
    cluster: str
    key_id: str


Finding: TypeAlias = ReplayedDecision | VerifiedAccess | Broken | Noticed | MacsChecked | MacsNotChecked


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The place in the chain of a file's first readable line."""

    chain: str
    sequence: int
    time: str


_UNKNOWN: Final = _Beginning("", -1, "")
"""For a file without a readable line. It sorts first."""


@dataclass(slots=True)
class _Chain:
    """The chain so far, over all files."""

    end: Link | None = None
    begun: set[str] = field(default_factory=set)
    """The chains so far. Each is given in one piece."""
    unreadable: list[tuple[Place, Unreadable]] = field(default_factory=list)

    def take(self, place: Place, line: AnyLine, *, first: bool) -> Iterator[Finding]:
        """The findings about the line's place."""
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
        self.begun.add(line.chain)

    def _joins(self, place: Place, line: ChainedLine, *, first: bool) -> Iterator[Finding]:
        end = self.end
        if first and line.kind != START:
            yield Broken(place, "the file does not begin with a start line")
        if end is None:
            if line.sequence:
                yield Noticed(place, _begins_later(line))
        elif line.chain != end.chain:
            if line.kind == START and line.sequence == 0:
                yield Noticed(place, "a new chain begins: it is not linked to the lines before it")
            elif first and line.kind == START and line.chain not in self.begun:
                yield Noticed(
                    place, f"a new chain {_begins_later(line)}"
                )  # of another replica, whose oldest are deleted
            else:
                yield Broken(place, "the line is of another chain than the one before it")
        elif (line.sequence, line.previous) != (end.sequence + 1, end.digest):
            yield Broken(place, _gap(line, end))

    def ends(self) -> Iterator[Finding]:
        """The findings at the end of all files."""
        for where, one in self.unreadable:
            if one.ended:
                yield Broken(where, f"the line {one.why}")
            else:
                yield Noticed(where, f"the last line {one.why}: it was being written, or the controller was stopped")


def _begins_later(line: ChainedLine) -> str:
    return f"begins with line {line.sequence} of its chain: the lines before it are not given"


def _gap(line: ChainedLine, end: Link) -> str:
    missing = line.sequence - end.sequence - 1
    if missing > 0:
        return (
            f"{missing} {'line is' if missing == 1 else 'lines are'} missing before line {line.sequence} of its chain"
        )
    if missing < 0:
        return f"line {line.sequence} of its chain comes after line {end.sequence}"
    return "the line before it was changed"


def files_in_order(paths: Sequence[Path]) -> list[Path]:
    """The files in the order of their first readable lines. Names and modification times do not count.

    Of several chains, the one that began earlier comes first. A file without a readable line, or one that can be read
    only once, such as a pipe, stays after the file before it in ``paths``.

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


async def verify(paths: Sequence[Path], plugins: ReplayAttestors, evidence: Evidence) -> AsyncIterator[Finding]:
    """All findings about these files, in order.

    Raises:
        OSError: a file cannot be read.
    """
    chain, macs, written_by, grants = _Chain(), MacCheck(evidence), "", GrantsSoFar.none()
    for path in paths:
        number, any_of_ours = 0, False
        for number, line in enumerate(read_lines(path), start=1):
            place = Place(printable(path.name), number)
            for finding in chain.take(place, line, first=number == 1):
                yield finding
            if isinstance(line, ChainedLine):
                any_of_ours = True
                for of_mac in macs.take(place, line):
                    yield of_mac
                if line.kind == DECISION:
                    yield _by_version(await _replayed(place, line, plugins), written_by)
                elif line.kind == CANARY:
                    for found in _of_canary(place, line):
                        yield found
                elif line.kind in (ACCESS_ISSUED, ACCESS_ENDED):
                    for of_grant in _of_access(place, line, grants):
                        yield of_grant
                else:
                    written_by = str(line.content["program"])
        if not any_of_ours:
            yield Broken(Place(printable(path.name), 1), _NO_LINE if number else _EMPTY)
    for finding in chain.ends():
        yield finding
    for at_end in macs.ends():
        yield at_end


def _by_version(finding: ReplayedDecision | Broken, written_by: str) -> ReplayedDecision | Broken:
    """Rules change between versions: a difference may come from the version, so the finding names it."""
    if isinstance(finding, Broken) or not isinstance(finding.comparison, Differs) or written_by == program_version():
        return finding
    writer = f"version {written_by}" if written_by else "an unknown version"
    advice = f"written by {writer}, replayed by {program_version()}: verify it with the version that wrote it"
    return replace(finding, comparison=Differs(printable(f"{finding.comparison.why}; {advice}")))


def _of_canary(place: Place, line: ChainedLine) -> Iterator[Broken]:
    try:
        read_canary_line(line.content)
    except (InvalidValue, Inconsistent) as error:
        yield Broken(place, printable(f"the line is not a valid canary: {error}"))


def _of_access(place: Place, line: ChainedLine, grants: GrantsSoFar) -> Iterator[VerifiedAccess | Broken | Noticed]:
    found: IssuanceLine | EndLine
    notices: tuple[str, ...] = ()
    try:
        if line.kind == ACCESS_ISSUED:
            found = read_issuance_line(line.content)
            notices = grants.issued(found)
        else:
            found = read_end_line(line.content)
            grants.end(found)
    except (InvalidValue, Inconsistent) as error:
        yield Broken(place, printable(f"the line is not a valid one of an access grant: {error}"))
        return
    yield VerifiedAccess(place, found.cluster, found.key_id)
    for notice in notices:
        yield Noticed(place, notice)


def access_lines(paths: Sequence[Path]) -> Iterator[tuple[Place, IssuanceLine | EndLine] | Broken]:
    """The lines of access grants in these files and the unreadable lines. Each is checked by itself.

    Raises:
        OSError: a file cannot be read.
    """
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            place = Place(printable(path.name), number)
            if isinstance(line, Unreadable):
                yield Broken(place, f"the line {line.why}")
            elif line.kind in (ACCESS_ISSUED, ACCESS_ENDED):
                try:
                    issued = line.kind == ACCESS_ISSUED
                    yield place, read_issuance_line(line.content) if issued else read_end_line(line.content)
                except (InvalidValue, Inconsistent) as error:
                    yield Broken(place, printable(f"the line is not a valid one of an access grant: {error}"))


async def _replayed(place: Place, line: ChainedLine, plugins: ReplayAttestors) -> ReplayedDecision | Broken:
    try:
        decision = read_decision_line(line.content)
    except InvalidValue as error:
        return Broken(place, printable(f"the line is not a valid decision: {error}"))
    said = decision.decision
    comparison = await compare(decision, plugins)
    return ReplayedDecision(place, decision.cluster, decision.request.name, said.kind, said.reason, comparison)


def decisions(paths: Sequence[Path]) -> Iterator[tuple[Place, DecisionLine] | Broken]:
    """The decisions in these files and the unreadable lines, without verification.

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
                    yield Broken(place, printable(f"the line is not a valid decision: {error}"))


def is_bad(finding: Finding) -> bool:
    """Whether the finding is an error of the log or of a decision."""
    return isinstance(finding, Broken) or (
        isinstance(finding, ReplayedDecision) and isinstance(finding.comparison, Differs)
    )
