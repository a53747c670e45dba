"""Access grants in the audit log: a line says what its certificates say, and a changed line is found."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.registry import Registry
from attestors.wire.ssh.certificate import parse_certificate_line
from attestors.wire.ssh.key_line import key_line
from signer.access.certificates import access_of, hops_of
from signer.access.parts import IssuanceFacts
from signer.audit.access_line import (
    EndLine,
    IssuanceLine,
    LoggedApproval,
    logged_certificate,
    read_end_line,
    read_issuance_line,
)
from signer.audit.authenticity import NoControllerKey
from signer.audit.errors import Inconsistent
from signer.audit.findings import Broken, MacsNotChecked, Noticed
from signer.audit.lines import AccessEndedContent, AccessIssuedContent, Content, FileLines
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.values import InvalidValue
from signer.audit.verification import Finding, VerifiedAccess, access_lines, decisions, is_bad, verify
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.requests import Nonce, Serial
from signer.cli import main
from signer.model.access import Creator
from signer.rules.access_certificates import Hop, HopSources, certificate_request
from tests.support.access_grants import AUTHORITY, HOUR, NOW, bastion, facts_of, grant_of, issued
from tests.support.access_objects import GRANT_UID
from tests.support.openssh import public_keys
from tests.unit.signer.authority.ssh.requests import authority_key

INGRESS: Final = [{"ipBlock": {"cidr": "198.51.100.7/32"}}]
GRANT: Final = grant_of(
    ingress=INGRESS, bastion="local", reason="disk full", ticket="OPS-7", permissions={"command": "uptime"}
)
FACTS: Final = facts_of(GRANT, bastion=bastion("10.1.0.9/32"))
KEY_ID: Final = f"grant/team-a/repair/{GRANT_UID}/alice"


def line_of(facts: IssuanceFacts = FACTS, *, authority: UserAuthority = AUTHORITY, **more: Any) -> IssuanceLine:
    access, signed = access_of(facts), issued(facts, authority=authority, **more)
    return IssuanceLine(
        cluster=str(facts.grant.cluster),
        time=NOW + timedelta(seconds=1),
        key_id=str(access.key_id),
        access=access,
        creator=Creator(facts.creator, "u-1", frozenset({"team-a", "dev"})),
        reason=facts.grant.reason,
        ticket=facts.grant.ticket,
        spec_digest=facts.grant.digest,
        approvals=(LoggedApproval("bob", "uid-7"),),
        key_fingerprint=facts.grant.public_key.fingerprint,
        issued=NOW,
        not_after=NOW + facts.lifetime,
        authority=authority.public_key.fingerprint,
        certificates=tuple(logged_certificate(hop, signed[hop.hop].line) for hop in hops_of(facts)),
    )


LINE: Final = line_of()
END: Final = EndLine(
    cluster="team-a/production",
    time=NOW + timedelta(minutes=3),
    key_id=KEY_ID,
    name="repair",
    uid=GRANT_UID,
    creator="alice",
    epoch=0,
    cause="RightLost",
    message="alice may use root no more",
    serial_numbers=(4711, 4712),
)


def content(line: IssuanceLine | EndLine = LINE, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(line.encode())
    return fields | changes


def changed(*path: str | int, to: Any, line: IssuanceLine | EndLine = LINE) -> dict[str, Any]:
    found = content(line)
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to(place[path[-1]]) if callable(to) else to
    return found


def test_it_is_read_back() -> None:
    assert read_issuance_line(content()) == LINE
    assert read_end_line(content(END)) == END
    targets: tuple[dict[str, Any], ...] = ({"allNodes": {}}, {"nodes": ["worker-1", "worker-2"]})
    for target in targets:
        other = line_of(facts_of(grant_of(target=target, logins=["root", "core"], ingress=INGRESS)))
        assert read_issuance_line(content(other)) == other


def test_the_line_names_what_sshd_logs() -> None:
    assert LINE.key_id == KEY_ID
    assert [one.principals for one in LINE.certificates] == [(f"bastion@{GRANT_UID}",), ("root@worker-1",)]
    for one in LINE.certificates:
        made = parse_certificate_line(one.certificate).certificate
        assert (made.key_id, made.serial) == (LINE.key_id, one.serial_number)


OTHER_KEY: Final = key_line(public_keys()["nistp256"])
FOREIGN: Final = line_of(authority=UserAuthority(authority_key("ed25519", 303)))
WIDER: Final = line_of(facts_of(grant_of(ingress=INGRESS, logins=["root", "core"]), bastion=FACTS.bastion))
NODE: Final = 1
"""The node's certificate in the line."""

FORGERIES: Final[dict[str, dict[str, Any]]] = {
    "another person": changed("creator", "username", to="mallory"),
    "another person in both places": {
        **changed("creator", "username", to="mallory"),
        "access": {**content()["access"], "creator": "mallory"},
    },
    "another key id": changed("key_id", to=f"{KEY_ID}/1"),
    "another epoch": changed("access", "epoch", to=1),
    "another name": changed("access", "name", to="other"),
    "another UID": changed("access", "uid", to="0d2f7e9e-58a4-4ad1-9a55-0d6fdf9a3c99"),
    "another Cluster": changed("cluster", to="team-a/other"),
    "another Cluster in both places": {
        **changed("access", "cluster", "namespace", to="team-b"),
        "cluster": "team-b/production",
    },
    "another key": changed("access", "public_key", to=OTHER_KEY),
    "another fingerprint": changed("key_fingerprint", to=public_keys()["nistp256"].fingerprint),
    "fewer logins": changed("access", "logins", to=["core"]),
    "another node": changed("access", "target", "names", to=["worker-2"]),
    "every node": changed("access", "target", to={}),
    "a terminal less": changed("access", "pty", to=False),
    "forwarding more": changed("access", "port_forwarding", to=True),
    "without the command": changed("access", "command", to=""),
    "another end": changed("not_after", to="2026-11-27T15:29:59Z"),
    "another begin": changed("issued", to="2026-11-27T14:29:59Z"),
    "another authority": changed("authority", to=FOREIGN.authority),
    "another serial number": changed("certificates", NODE, "serial_number", to=9),
    "serial numbers in exchange": {
        **content(),
        "certificates": [
            {**one, "serial_number": other["serial_number"]}
            for one, other in zip(content()["certificates"], content()["certificates"][::-1], strict=True)
        ],
    },
    "other principals": changed("certificates", NODE, "principals", to=["core@worker-1"]),
    "another source": changed("certificates", NODE, "source_addresses", to=["10.1.0.10/32"]),
    "no source": changed("certificates", NODE, "source_addresses", to=[]),
    "a wider certificate": {
        **content(),
        "certificates": content(WIDER)["certificates"],
    },
    "a certificate of another authority": {**content(), "certificates": content(FOREIGN)["certificates"]},
    "a certificate with another signature": changed(
        "certificates", NODE, "certificate", to=lambda line: line[:-8] + ("A" if line[-8] != "A" else "B") + line[-7:]
    ),
    "a host certificate": changed("certificates", NODE, "certificate", to=f"ssh-ed25519 {OTHER_KEY.split(' ')[1]}"),
    "no certificate": changed("certificates", to=[]),
    "the bastion's alone": changed("certificates", to=lambda found: found[:1]),
    "one twice": changed("certificates", to=lambda found: [*found, found[1]]),
    "the creator's approval": changed("approvals", to=[{"username": "alice", "uid": "uid-7"}]),
    "one person's approval twice": changed("approvals", to=[{"username": "bob", "uid": str(n)} for n in range(2)]),
    "written long after": changed("time", to="2026-11-27T14:36:00Z"),
    "written before": changed("time", to="2026-11-27T14:29:59Z"),
}


@pytest.mark.parametrize("how", sorted(FORGERIES))
def test_a_changed_line_is_found(how: str) -> None:
    with pytest.raises(Inconsistent):
        read_issuance_line(copy.deepcopy(FORGERIES[how]))


@pytest.mark.parametrize(
    "changes",
    [
        {"more": 1},
        {"time": "now"},
        {"reason": None},
        {"approvals": "bob"},
        {"certificates": [{}]},
        {"access": {**content()["access"], "target": {"names": ["worker-1"], "more": 1}}},
    ],
)
def test_other_fields(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        read_issuance_line(content(**changes))


def test_a_bastions_certificate_needs_a_source() -> None:
    """The controller issues none such, and a node's may count from anywhere."""
    direct = line_of(replace(FACTS, grant=replace(GRANT, ingress=()), bastion=facts_of(GRANT).bastion))
    assert read_issuance_line(content(direct)) == direct
    hop, access = HopSources(Hop.BASTION, ()), access_of(FACTS)
    nonce = Nonce(bytes(32))
    signed = AUTHORITY.sign(certificate_request(access, hop, Serial(4713), nonce, NOW, FACTS.lifetime))
    line = replace(LINE, certificates=(logged_certificate(hop, signed.line), LINE.certificates[1]))
    with pytest.raises(Inconsistent, match="from anywhere"):
        read_issuance_line(content(line))


def test_two_hops_with_one_serial_number_are_found() -> None:
    with pytest.raises(Inconsistent, match="one serial number"):
        read_issuance_line(content(line_of(step=0)))


@pytest.mark.parametrize("path", ["key_id", "name", "uid", "creator", "cluster"])
def test_an_end_of_another_grant_is_found(path: str) -> None:
    with pytest.raises(Inconsistent):
        read_end_line(changed(path, to="other/x", line=END))
    with pytest.raises(Inconsistent):
        read_end_line(changed("epoch", to=1, line=END))


# The whole log


def written(path: Path, *lines: IssuanceLine | EndLine | dict[str, Any]) -> Path:
    def content_of(line: IssuanceLine | EndLine | dict[str, Any]) -> Content:
        if isinstance(line, dict):
            return AccessIssuedContent(json.dumps(line).encode())
        return (AccessEndedContent if isinstance(line, EndLine) else AccessIssuedContent)(line.encode())

    file = FileLines(path, 0, 0)
    file.write([content_of(line) for line in lines])
    file.close()
    return path


async def found(path: Path) -> list[Finding]:
    plugins = ReplayAttestors(Registry([]), lambda provider, namespace: {})
    found = [finding async for finding in verify([path], plugins, NoControllerKey())]
    return [finding for finding in found if not isinstance(finding, MacsNotChecked)]


RENEWED: Final = line_of(serial=5000)
RETURNED: Final = line_of(replace(FACTS, epoch=1), serial=6000)


async def test_a_log_with_grants_verifies(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.log", LINE, LINE, RENEWED, END, END, RETURNED)
    findings = await found(path)
    assert [type(one) for one in findings] == [VerifiedAccess] * 6
    assert not any(map(is_bad, findings))
    assert list(decisions([path])) == []
    assert [line for _, line in access_lines([path])] == [LINE, LINE, RENEWED, END, END, RETURNED]  # type: ignore[misc]


async def test_what_no_single_line_shows_is_found(tmp_path: Path) -> None:
    after_the_end = await found(written(tmp_path / "a.log", LINE, END, RENEWED))
    assert [type(one) for one in after_the_end] == [VerifiedAccess] * 3 + [Noticed], "its write may have failed"
    assert isinstance(after_the_end[-1], Noticed)
    assert "says that it ends" in after_the_end[-1].what
    same_serial = await found(written(tmp_path / "b.log", LINE, line_of(replace(FACTS, lifetime=HOUR / 2))))
    assert isinstance(same_serial[-1], Broken)
    assert "same serial number" in same_serial[-1].why


async def test_a_changed_line_in_a_log_is_found(tmp_path: Path) -> None:
    [finding] = await found(written(tmp_path / "audit.log", FORGERIES["another node"]))
    assert isinstance(finding, Broken)
    assert "not a valid one of an access grant" in finding.why
    assert [type(one) for one in access_lines([tmp_path / "audit.log"])] == [Broken]


def test_the_command_shows_who_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a line of sshd's log to the person."""
    path = written(tmp_path / "audit.log", LINE, END)
    assert main(["audit", "show", "--key-id", KEY_ID, str(path)]) == 0
    shown = capsys.readouterr().out
    for text in ("alice", "disk full", "OPS-7", "bob", "root@worker-1", "4712", "198.51.100.7/32", "RightLost"):
        assert text in shown
    assert main(["audit", "show", "--key-id", KEY_ID, "--output", "json", str(path)]) == 0
    assert [one["key_id"] for one in json.loads(capsys.readouterr().out)] == [KEY_ID, KEY_ID]
    assert main(["audit", "show", "--key-id", f"{KEY_ID}/1", str(path)]) == 1
    assert main(["audit", "verify", str(path)]) == 0
    assert "2 lines of access grants" in capsys.readouterr().out
    assert main(["audit", "verify", "--output", "json", str(path)]) == 0
    assert [one["keyID"] for one in json.loads(capsys.readouterr().out)["access"]] == [KEY_ID, KEY_ID]
