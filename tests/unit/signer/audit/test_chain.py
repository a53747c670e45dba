"""What the chain shows of a log that was changed, and what it tolerates."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import permutations
from pathlib import Path

import pytest

from signer.audit.chain import (
    MAXIMUM_LINE_BYTES,
    NOTHING_BEFORE,
    START,
    ChainedLine,
    Link,
    Unreadable,
    digest_of_line,
    read_line,
    read_lines,
    start_content,
)
from signer.audit.findings import Broken, Noticed
from signer.audit.lines import FileLines
from signer.audit.verification import files_in_order
from signer.model.program_version import program_version
from tests.unit.signer.audit.found import broken, found_in

START_LINE = Link("a" * 32, -1, NOTHING_BEFORE).next_line(START, b'{"time":"now","torn":"","program":"0.2.0"}')


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of start and four lines, whose content is not a valid decision."""
    path = tmp_path / "audit.log"
    lines = FileLines(path, 0, 0)
    for number in range(4):
        lines.write([b'{"number":%d}' % number])
    lines.close()
    return path


def said(*paths: Path) -> list[str]:
    """The findings about the chain; findings about the lines as decisions are left out."""
    found = asyncio.run(found_in(*paths))
    remarks = [one.why if isinstance(one, Broken) else one.what for one in found if isinstance(one, Broken | Noticed)]
    return [remark for remark in remarks if "not a valid decision" not in remark]


def test_as_written(log: Path) -> None:
    assert said(log) == []


def test_a_changed_byte(log: Path) -> None:
    log.write_bytes(log.read_bytes().replace(b'"number":1', b'"number":7'))
    assert said(log) == ["the line before it was changed"]


def test_a_removed_line(log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert said(log) == ["1 line is missing before line 3 of its chain"]


def test_swapped_lines(log: Path) -> None:
    lines = lines_of(log)
    lines[2], lines[3] = lines[3], lines[2]
    log.write_bytes(b"".join(lines))
    assert len(said(log)) >= 2


def test_a_line_twice(log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines, lines[-1]]))
    assert said(log) == ["line 4 of its chain comes after line 4"]


def test_a_line_of_another_chain(log: Path, tmp_path: Path) -> None:
    other = FileLines(tmp_path / "other.log", 0, 0)
    other.write([b'{"number":0}'])
    other.close()
    log.write_bytes(log.read_bytes() + lines_of(tmp_path / "other.log")[1])
    assert said(log) == ["the line is of another chain than the one before it"]


def test_logs_of_two_replicas_whose_oldest_files_are_deleted(tmp_path: Path) -> None:
    """The bound of kept files deletes the beginning of each chain, and not only that of the one that is read first."""
    for replica in ("a", "b"):
        lines = FileLines(tmp_path / f"{replica}.log", 1000, 1)
        for number in range(8):
            lines.write([b'{"number":%d,"filling":"%s"}' % (number, b"x" * 300)])
        lines.close()
    files = files_in_order(sorted(tmp_path.glob("*.log")))
    assert broken(*files) == []
    remarks = said(*files)
    assert len(remarks) == 2
    assert all("the lines before it are not given" in remark for remark in remarks)
    first, second, *others = files
    assert len(others) == 2
    assert broken(second, others[0], first) != [], "a chain that was given before does not begin again"


def test_junk_among_the_lines(log: Path) -> None:
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[:3], b"junk\n", *lines[3:]]))
    assert said(log) == ["the line is not JSON"]


def test_junk_at_the_end(log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"junk\n")
    assert said(log) == ["the line is not JSON"]


def test_a_line_that_was_removed_before_a_restart(log: Path) -> None:
    """A start line excuses what a crash cut off; it excuses no line that was written whole."""
    FileLines(log, 0, 0).close()
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[:4], b"cut o\n", lines[5]]))
    assert any("missing" in remark for remark in said(log))


def test_an_empty_file(log: Path) -> None:
    log.write_bytes(b"")
    assert said(log) == ["the file is empty: even its start line is missing"]


NO_LINE = "no line of the file can be read: it is compressed (unpack it first), is not an audit log, or was overwritten"


@pytest.mark.parametrize("left", [b"junk", b"junk\n", b"\n", b"{}", b"{}\nju", START_LINE[:100], START_LINE[:-1]])
def test_a_file_without_one_line_of_ours(log: Path, left: bytes) -> None:
    """However it ends: a log that was cut to its first bytes is no log, and neither is another file."""
    log.write_bytes(left)
    assert NO_LINE in broken(log)


def test_each_file_has_a_line_of_ours(log: Path, tmp_path: Path) -> None:
    """The start line of the next file excuses a line that was cut off, and not that nothing else is left."""
    wiped = [tmp_path / name for name in ("audit-2026-03-01T00-00-00.000000.log", "audit-2026-03-02.log")]
    for path in wiped:
        path.write_bytes(START_LINE[:100])
    assert broken(*wiped) == [NO_LINE, NO_LINE]
    assert broken(*wiped, log) == [NO_LINE, NO_LINE]
    assert broken(log, wiped[0]) == [NO_LINE]


def test_one_line_of_ours_is_enough(log: Path) -> None:
    for left in (START_LINE, START_LINE + b"\n", START_LINE + b"\ncut o", b"cut o\n" + START_LINE):
        log.write_bytes(left)
        assert broken(log) == []


def test_a_last_line_that_is_cut_off(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-9])
    (remark,) = said(log)
    assert remark.startswith("the last line is cut off")


def test_a_cut_off_line_and_what_follows_it(log: Path) -> None:
    """After the crash the next controller goes on with the same chain."""
    log.write_bytes(log.read_bytes()[:-9])
    again = FileLines(log, 0, 0)
    again.write([b'{"number":9}'])
    again.close()
    (remark,) = said(log)
    assert "the controller was stopped" in remark
    assert b'"number":9' in lines_of(log)[-1]


def test_cut_off_before_the_line_feed(log: Path) -> None:
    log.write_bytes(log.read_bytes()[:-1])
    assert said(log) == []
    FileLines(log, 0, 0).close()
    assert said(log) == []


def test_a_new_chain_is_told(log: Path, tmp_path: Path) -> None:
    FileLines(tmp_path / "new.log", 0, 0).close()
    assert said(log, tmp_path / "new.log") == ["a new chain begins: it is not linked to the lines before it"]


def test_a_file_without_its_start(log: Path) -> None:
    log.write_bytes(b"".join(lines_of(log)[1:]))
    remarks = said(log)
    assert "the file does not begin with a start line" in remarks


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        b'{"version":1}',
        b"[" * 100_000,
        b'{"version":"v9","kind":"Start","chain":"%s","sequence":0,"previous":"","time":"","torn":""}' % (b"a" * 32),
    ],
)
def test_hostile_lines(line: bytes) -> None:
    assert isinstance(read_line(line), Unreadable)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sequence":0', b'"sequence":-1'),
        (b'"sequence":0', b'"sequence":0.0'),
        (b'"sequence":0', b'"sequence":true'),
        (b'"sequence":0', b'"sequence":NaN'),
        (b'"sequence":0', b'"sequence":9007199254740993'),
        (b'"chain":"aaa', b'"chain":"xyz'),
        (b'"time":"now"', b'"time":"\\ud800"'),
        (b'"time":"now"', b'"time":"\xed\xa0\x80"'),
        (b'"kind":"Start"', b'"kind":"Other"'),
        (b'"torn":""', b'"torn":"","torn":""'),
        (b'"torn":""', b'"torn":"","more":""'),
        (b'"version"', b'"Version"'),
    ],
)
def test_headers_are_strict(old: bytes, new: bytes) -> None:
    assert isinstance(read_line(START_LINE), ChainedLine)
    assert old in START_LINE
    assert isinstance(read_line(START_LINE.replace(old, new)), Unreadable)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"time":"now"', b'"time":NaN', "is not JSON"),
        (b'"version"', b'"Version"', "does not begin with version, kind, chain, sequence, previous"),
        (b"/v1", b"/v2", "is of an unknown version"),
        (b'"kind":"Start"', b'"kind":"Other"', "is of an unknown kind"),
        (b'"chain":"%s"' % (b"a" * 32), b'"chain":1', "is of an unknown kind"),
        (b'"previous":"', b'"previous":1,"more":"', "is of an unknown kind"),
        (b'"sequence":0', b'"sequence":-1', "has no valid place in a chain"),
        (b'"chain":"%s"' % (b"a" * 32), b'"chain":"%s"' % (b"a" * 33), "has no valid place in a chain"),
        (b'"torn":""', b'"torn":1', "is not a valid start line"),
        (b'"torn":""', b'"turn":""', "is not a valid start line"),
        (b'"torn":"",', b"", "is not a valid start line"),
        (b',"program":"0.2.0"', b"", "is not a valid start line"),
        (b'"program":"0.2.0"', b'"program":1', "is not a valid start line"),
        (b'"program":"0.2.0"', b'"program":"0.2.0","more":""', "is not a valid start line"),
    ],
    ids=range(14),
)
def test_why_a_line_is_none(old: bytes, new: bytes, why: str) -> None:
    line = START_LINE.replace(old, new)
    assert read_line(line) == Unreadable(why, digest_of_line(line), ended=True)


@pytest.mark.parametrize("program", [b"", b"0.2.0", b"whatever stands there"])
def test_a_start_line_says_which_program_it_was(program: bytes) -> None:
    assert isinstance(read_line(START_LINE.replace(b"0.2.0", program)), ChainedLine)


def test_a_new_start_line_says_it() -> None:
    found = read_line(Link("a" * 32, -1, NOTHING_BEFORE).next_line(START, start_content("")))
    assert isinstance(found, ChainedLine)
    assert found.content["program"] == program_version() == version("capi-node-attestation")


def test_the_last_place_in_a_chain() -> None:
    last = START_LINE.replace(b'"sequence":0', b'"sequence":9007199254740992')
    found = read_line(last)
    assert isinstance(found, ChainedLine)
    assert found.sequence == 2**53


def test_a_log_of_before_is_read() -> None:
    """As released: its version, and how digests are written."""
    lines = list(read_lines(Path(__file__).parents[4] / "fixtures" / "audit" / "v1" / "audit.log"))
    assert lines
    assert all(isinstance(line, ChainedLine) for line in lines)
    assert digest_of_line(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("beyond", [0, 1, 2, 3 * 1024 * 1024])
def test_lines_are_bounded_to_the_byte(tmp_path: Path, beyond: int, ended: bool) -> None:
    """What is longer than 1 MiB is not read, but its digest is as of any line."""
    line = b'"' + b"x" * (1024 * 1024 + beyond - 2) + b'"'
    path = tmp_path / "audit.log"
    path.write_bytes(line + b"\n" * ended)
    if beyond:
        why = "is too long"
    else:
        why = "does not begin with version, kind, chain, sequence, previous" if ended else "is cut off"
    assert list(read_lines(path)) == [Unreadable(why, digest_of_line(line), ended=ended)]


def test_a_line_without_end(log: Path) -> None:
    """It is read in bounds, and what follows it is found again."""
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines[:2], b"x" * (3 * MAXIMUM_LINE_BYTES) + b"\n", *lines[2:]]))
    assert said(log) == ["the line is too long"]


def rotated(path: Path, *, moments: tuple[datetime, ...] = (), lines: int = 4) -> list[Path]:
    """Files of one line each, in the order in which they were written; rotated at these moments."""
    clock = iter(moments or [datetime(2026, 3, day, tzinfo=UTC) for day in range(1, lines)])
    log = FileLines(path, 900, 0, now=lambda: next(clock))
    files = []
    for number in range(lines):
        before = set(path.parent.iterdir())
        log.write([b'{"number":%d}' % number])
        files += sorted(set(path.parent.iterdir()) - before - {path})
    log.close()
    return [*files, path]


@pytest.mark.parametrize("name", ["audit.log", "audit", "audit-2.log"])
def test_rotated_files_in_any_order(tmp_path: Path, name: str) -> None:
    """Without a suffix the file that is written to comes before all others by its name."""
    files = rotated(tmp_path / name)
    assert len(files) == 4
    for given in permutations(files):
        assert files_in_order(given) == files
    assert broken(*files) == []


def test_a_clock_that_was_set_back_between_two_rotations(tmp_path: Path) -> None:
    days = [2, 1, 3]
    files = rotated(tmp_path / "audit.log", moments=tuple(datetime(2026, 1, day, tzinfo=UTC) for day in days))
    assert files_in_order(sorted(files)) == files
    assert broken(*files) == []


def test_files_that_an_operator_renamed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    files = rotated(path)
    renamed = [file.rename(tmp_path / f"audit.log.{age}") for age, file in zip((3, 2, 1), files[:-1], strict=True)]
    assert files_in_order(sorted([*renamed, path])) == [*renamed, path]
    assert broken(*files_in_order(sorted([*renamed, path]))) == []


def test_of_several_chains_the_older_one_comes_first(tmp_path: Path) -> None:
    """Its beginning is not kept any more: behind the other it would be lines that belong nowhere."""
    (tmp_path / "a").mkdir()
    (tmp_path / "z").mkdir()
    older, newer = rotated(tmp_path / "z" / "audit.log")[1:], rotated(tmp_path / "a" / "audit.log")
    for given in permutations([*older, *newer[:2]]):
        assert files_in_order(given) == [*older, *newer[:2]]
    assert broken(*older, *newer) == []


def test_of_two_chains_that_were_written_at_once_the_older_one_comes_first(tmp_path: Path) -> None:
    """However long it went on."""
    (tmp_path / "a").mkdir()
    older = FileLines(tmp_path / "audit.log", 900, 0)
    for number in range(3):
        older.write([b'{"number":%d}' % number])
    newer = rotated(tmp_path / "a" / "audit.log")
    older.write([b'{"number":3}'])
    older.close()
    _, *kept = sorted(tmp_path.glob("audit-*.log"))
    files = [*kept, tmp_path / "audit.log", *newer]
    assert files_in_order(files[::-1]) == files
    assert broken(*files) == []


def test_a_file_that_is_missing_among_others(tmp_path: Path) -> None:
    files = rotated(tmp_path / "audit.log")
    for given in permutations((files[0], files[1], files[3])):
        assert broken(*files_in_order(given)) == ["2 lines are missing before line 6 of its chain"]


def test_a_file_that_claims_another_place(tmp_path: Path) -> None:
    """Whatever order a forged first line gives: its place is not its own."""
    files = rotated(tmp_path / "audit.log")
    for sequence in (0, 1, 5, 6, 99):
        forged = tmp_path / f"forged-{sequence}"
        forged.write_bytes(files[1].read_bytes().replace(b'"sequence":2', b'"sequence":%d' % sequence))
        assert broken(*files_in_order([files[0], forged, *files[2:]]))


def test_a_file_twice(tmp_path: Path) -> None:
    files = rotated(tmp_path / "audit.log")
    assert "line 2 of its chain comes after line 3" in broken(*files_in_order([*files, files[1]]))


@pytest.mark.parametrize("left", [b"", b"junk\n", START_LINE[:100]])
def test_a_file_without_a_place_stays_where_it_is_given(tmp_path: Path, left: bytes) -> None:
    files = rotated(tmp_path / "audit.log")
    wiped = tmp_path / "audit-2026-03-02.log"
    wiped.write_bytes(left)
    assert files_in_order([files[2], wiped, files[0]]) == [files[0], files[2], wiped]
    assert files_in_order([wiped, files[2], files[0]]) == [wiped, files[0], files[2]]
    assert files_in_order([wiped]) == [wiped]
    assert len(broken(*files_in_order([*files, wiped]))) >= 1


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """As of ``verify <(zcat audit-1.log.gz) audit.log``."""
    files = rotated(tmp_path / "audit.log")
    descriptors = []
    for file in files[:2]:
        reading, writing = os.pipe()
        os.write(writing, file.read_bytes())
        os.close(writing)
        descriptors.append(reading)
    pipes = [Path(f"/dev/fd/{descriptor}") for descriptor in descriptors]
    given = [*pipes, files[3], files[2]]
    assert files_in_order(given) == [*pipes, *files[2:]]
    assert broken(*files_in_order(given)) == []
    for descriptor in descriptors:
        os.close(descriptor)


def test_of_many_lines_that_cannot_be_read_not_all_are_kept(log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"\n" * 10_000)
    assert "the 1000th line in a row that cannot be read" in said(log)
    assert len(said(log)) < 1100


def test_the_name_of_a_file_is_shown_escaped(log: Path) -> None:
    hostile = log.rename(log.with_name("audit-\x1b[2J.log"))
    hostile.write_bytes(b"")
    (found,) = asyncio.run(found_in(hostile))
    assert isinstance(found, Broken)
    assert str(found.place) == r"audit-\x1b[2J.log:1"
