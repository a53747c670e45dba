"""``audit verify`` with controller key and published heads: what a writer of the file without the key cannot hide."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from signer.audit.chain import START, ChainedLine, Link, digest_of_line, read_lines
from signer.audit.line_mac import LineMac, LineSeals, NoKeyYet
from signer.audit.lines import FileLines
from signer.cli import main
from signer.model.audit_head import HEADS_NAME, Head
from signer.model.seal import ControllerKeys, KeyUse, Seals
from signer.store.controller_key import controller_key_secret
from tests.unit.signer.audit.found import start_lines

KEYS = ControllerKeys(b"k" * 32)
LATER = ControllerKeys(b"l" * 32, KEYS.current)
LATEST = ControllerKeys(b"m" * 32, LATER.current)
OTHER = ControllerKeys(b"o" * 32)
PUBLISHED = datetime(2026, 11, 28, tzinfo=UTC)
RECORDED = Path(__file__).parents[3] / "fixtures" / "audit" / "v1" / "audit.log"
HEADER = ("version", "kind", "chain", "sequence", "previous", "mac")


def seals(keys: ControllerKeys, use: KeyUse = KeyUse.AUDIT_LINE) -> Seals:
    return Seals(keys, use)


def decisions() -> list[bytes]:
    lines = map(json.loads, RECORDED.read_text().splitlines())
    contents = [{key: line[key] for key in line if key not in HEADER} for line in lines if line["kind"] == "Decision"]
    return [json.dumps(content).encode() for content in contents]


class Log:
    """A log of a controller, with the objects that it published."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "audit.log"
        self.keys = KEYS
        self.heads: dict[str, str] = {}

    def append(self, count: int, keys: LineSeals | None = None) -> Link:
        lines = FileLines(self.path, 0, 0)
        lines.seals = seals(KEYS) if keys is None else keys
        lines.write(decisions()[:count])
        lines.close()
        return lines.end

    def publish(self, end: Link, keys: ControllerKeys = KEYS) -> None:
        head = Head(end.chain, end.sequence, end.digest, PUBLISHED)
        self.heads[end.chain] = head.encode(seals(keys, KeyUse.AUDIT_HEAD))

    def verify(self, *options: str, heads: bool = True) -> int:
        key = self.folder / "key.json"
        key.write_text(json.dumps(controller_key_secret("own", self.keys)))
        file = self.folder / "heads.json"
        metadata = {"name": HEADS_NAME, "namespace": "own"}
        file.write_text(json.dumps({"kind": "ConfigMap", "metadata": metadata, "data": self.heads}))
        given = ["--controller-key", str(key), *(["--heads", str(file)] if heads else [])]
        return main(["audit", "verify", str(self.path), *given, *options])

    def lines(self) -> list[ChainedLine]:
        return [line for line in read_lines(self.path) if isinstance(line, ChainedLine)]

    def rechain(self, drop: int, keys: LineSeals, *, keep_macs: bool = False) -> None:
        """Write the lines anew without one of them, as who can write the file does."""
        raw = self.path.read_bytes().splitlines()
        first = self.lines()[0]
        link, written = Link(first.chain, -1, "sha256:" + "0" * 64), []
        for number, (line, text) in enumerate(zip(self.lines(), raw, strict=True)):
            if number == drop:
                continue
            content = json.dumps(dict(line.content)).encode()
            new = link.next_line(line.kind, content)
            if keep_macs and isinstance(line.mac, LineMac):
                new = new[:-1] + b',"mac":"' + line.mac.seal.encode() + b'"}'
            elif isinstance(keys, Seals) and line.kind != START:
                new = new[:-1] + b',"mac":"' + keys.seal(new.decode()).encode() + b'"}'
            assert text
            written.append(new)
            link = link.after(new)
        self.path.write_bytes(b"".join(line + b"\n" for line in written))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """With three decisions, the last one published."""
    made = Log(tmp_path)
    made.publish(made.append(3))
    return made


Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return lambda: " ".join(capsys.readouterr().out.split())


def test_a_whole_log_is_authentic(log: Log, said: Said, capsys: pytest.CaptureFixture[str]) -> None:
    assert log.verify() == 0
    assert "3 lines have a right MAC; its chain reaches its published head." in said()
    assert log.verify("--output", "json") == 0
    macs = json.loads(capsys.readouterr().out)["macs"]
    assert macs == {"checked": True, "authenticLines": 3, "headsChecked": True, "publishedChains": 1}


def test_without_the_key_it_says_that_macs_were_not_checked(log: Log, said: Said) -> None:
    assert main(["audit", "verify", str(log.path)]) == 0
    assert "MACs were not checked: 0 lines have none, and no controller key was given for 3." in said()
    assert main(["audit", "verify", str(RECORDED)]) == 0
    assert "MACs were not checked: 3 lines have none" in said()


@pytest.mark.parametrize(
    ("keys", "keep_macs", "why"),
    [
        (NoKeyYet(), False, "2 lines from here on without a MAC"),
        (NoKeyYet(), True, "the line's MAC is wrong"),
        (seals(OTHER), False, "2 lines from here on with a MAC of a key that is not given"),
    ],
    ids=["no MACs", "the old MACs", "MACs of another key"],
)
def test_a_decision_that_was_dropped_and_the_log_chained_anew(
    log: Log, said: Said, keys: LineSeals, keep_macs: bool, why: str
) -> None:
    log.rechain(2, keys, keep_macs=keep_macs)
    assert main(["audit", "verify", str(log.path)]) == 0, "the chain alone shows nothing"
    said()
    assert log.verify(heads=False) == 1
    assert why in said()


def test_decisions_that_were_replaced_by_start_lines_while_the_controller_writes(log: Log, said: Said) -> None:
    """Start lines need no MAC, and a line with one vouches for those before it: it must not follow made-up ones."""
    lines = FileLines(log.path, 0, 0)
    lines.seals = seals(KEYS)
    lines.write(decisions()[:2])
    made_up = start_lines(log.path.read_bytes().splitlines()[0], lines.end.sequence)
    log.path.rename(log.folder / "taken away")
    log.path.write_bytes(made_up)
    lines.write(decisions()[2:])
    log.publish(lines.end)
    lines.close()
    assert log.verify() == 1
    assert "the line before it was changed" in said()


def test_an_end_that_was_cut(log: Log, said: Said) -> None:
    log.path.write_bytes(b"".join(log.path.read_bytes().splitlines(keepends=True)[:-1]))
    assert log.verify(heads=False) == 0
    assert "No published heads were given: a cut end would not be found." in said()
    assert log.verify() == 1
    assert "1 line missing at the end: the chain ends with line 2, and line 3 was published" in said()


def test_a_log_that_was_removed(log: Log, said: Said) -> None:
    log.path.unlink()
    another = log.append(1)
    assert log.verify() == 1
    assert "no line of chain" in said()
    assert log.verify("--partial") == 0
    text = said()
    assert "note: ConfigMap node-attestation-audit-heads:1: no line of chain" in text
    assert f"no head of chain {another.chain} is published: a cut end would not be found" in text


def test_a_log_that_was_written_anew_before_macs_would_have_begun(log: Log, said: Said) -> None:
    """A log cannot be downgraded to one without MACs."""
    log.path.unlink()
    log.append(3, NoKeyYet())
    assert log.verify("--partial") == 1
    assert "3 lines from here on without a MAC" in said()


def test_another_continuation_of_an_older_copy(log: Log, said: Said) -> None:
    """Each line is the controller's, and they are not those that were published."""
    log.path.write_bytes(b"".join(log.path.read_bytes().splitlines(keepends=True)[:2]))
    log.append(2)
    assert log.verify(heads=False) == 0
    assert log.verify() == 1
    assert "the line is not the one whose digest is published: the log was written anew" in said()


def test_a_line_without_mac_between_others(log: Log, said: Said) -> None:
    """The lines after it are the controller's, which did not notice it."""
    log.append(1, NoKeyYet())
    log.publish(log.append(1))
    assert log.verify() == 1
    assert "1 line from here on without a MAC" in said()


@pytest.mark.parametrize(
    "change",
    [
        lambda head: {**head, "sequence": 2},
        lambda head: {**head, "time": "2026-11-27T00:00:00Z"},
        lambda head: {**head, "digest": "sha256:" + "0" * 64},
        lambda head: {**head, "seal": "v2." + "0" * 16 + "." + "0" * 64},
        lambda head: {**head, "sequence": -1},
        lambda head: {**head, "more": 1},
        lambda head: {"sequence": 3},
    ],
)
def test_a_changed_head(log: Log, said: Said, change: Callable[[Mapping[str, Any]], Any]) -> None:
    [(chain, head)] = log.heads.items()
    log.heads[chain] = json.dumps(change(json.loads(head)))
    assert log.verify() == 1
    assert f"the published head of chain {chain} does not count: it" in said()


def test_a_head_of_another_chain(log: Log, said: Said) -> None:
    [(chain, head)] = log.heads.items()
    log.heads = {"0" * 32: head, chain: head}
    assert log.verify("--partial") == 1
    assert "a head that does not count: its content or place is not what was sealed" in said()


def test_a_head_is_short(log: Log, said: Said) -> None:
    [(chain, head)] = log.heads.items()
    log.heads[chain] = head + " " * 512
    assert log.verify() == 1
    assert "does not count: it is malformed" in said()


@pytest.mark.parametrize("head", ["x" * 10_000, "[" * 500, "null", 1])
def test_a_malformed_head(log: Log, head: Any) -> None:
    log.heads["0" * 32] = head
    assert log.verify() == 1


def test_a_seal_of_a_head_is_none_of_a_line(log: Log) -> None:
    log.path.unlink()
    log.append(1, seals(KEYS, KeyUse.AUDIT_HEAD))
    assert log.verify("--partial") == 1


def test_lines_outlive_their_key_by_the_published_head(log: Log, said: Said) -> None:
    """Two rotations later, the key of the lines is gone."""
    log.keys = LATEST
    assert log.verify(heads=False) == 1
    assert "3 lines from here on with a MAC of a key that is not given" in said()
    log.publish(log.append(1, seals(LATEST)), LATEST)
    assert log.verify() == 0
    assert "4 lines have a right MAC" in said()
    log.append(1, seals(KEYS))
    assert log.verify() == 1, "after the head"


@pytest.mark.parametrize("mac", [b"", b"v2.0.0", b"v1." + b"0" * 16 + b"." + b"0" * 64])
def test_a_malformed_mac(log: Log, mac: bytes, said: Said) -> None:
    *others, last = log.path.read_bytes().splitlines(keepends=True)
    changed = last[: last.rindex(b',"mac":"')] + b',"mac":"' + mac + b'"}\n'
    log.path.write_bytes(b"".join((*others, changed)))
    assert main(["audit", "verify", str(log.path)]) == 1
    assert "the line has a malformed MAC" in said()


def test_a_mac_that_is_not_the_last_field(log: Log) -> None:
    *others, last = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join((*others, last[:-2] + b',"more":"field"}\n')))
    assert main(["audit", "verify", str(log.path)]) == 1


def test_the_mac_covers_the_whole_line(log: Log) -> None:
    """And its digest covers the MAC."""
    line = log.lines()[1]
    assert isinstance(line.mac, LineMac)
    raw = log.path.read_bytes().splitlines()[1]
    assert line.digest == digest_of_line(raw)
    assert json.loads(line.mac.content) == {key: value for key, value in json.loads(raw).items() if key != "mac"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--heads", "FILE"], "--heads needs --controller-key"),
        (["--management-cluster", "--heads", "FILE"], "--management-cluster reads key and heads"),
        (["--controller-key", "/missing"], "--controller-key: /missing"),
        (["--controller-key", "EMPTY"], "the controller key is malformed"),
    ],
)
def test_wrong_use(log: Log, options: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    empty = log.folder / "empty.yaml"
    empty.write_text("kind: Secret\nmetadata: {name: x}\n")
    given = [str(empty) if option in ("FILE", "EMPTY") else option for option in options]
    assert main(["audit", "verify", str(log.path), *given]) == 2
    assert why in capsys.readouterr().err
