"""Host certificates by a running controller. Whatever is wrong with them, the kubelet gets its certificate."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from cryptography import x509

from attestors.contract import Security
from attestors.wire.node_access import NodeAccess, NoNodeAccess
from attestors.wire.ssh.certificate import parse_certificate_line
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import ClaimedHostKey, HostKeysClaim, claim_with, encode
from authenticator.flow.sshd_files import USER_AUTHORITIES_FILE
from signer.audit.comparison import Differs
from signer.audit.decision_inputs import NOT_REACHED, HostKeysStage
from signer.audit.decision_line import DecisionLine
from signer.configuration import operator_settings
from signer.kube.resources import SECRETS
from signer.model.host_keys import NO_HOST_KEYS, AttestedHostKeys
from signer.model.record import AttestedIdentity, AttestedNode, JournalEntry, new_record
from signer.offline.main import main
from signer.rules.host_certificates import HostAuthorityFacts
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, Verdict, WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.host_certificates import (
    ALLOWED,
    access_in,
    claim_of,
    look_often,
    principals_in,
    request_with,
    wait_for_authorities,
)
from tests.integration.test_kill import configure, controller
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.node_access import signed
from tests.support.node_program import NodeProgram
from tests.support.openssh import private_key, write_private_key
from tests.support.remembered_audit import replayed
from tests.support.ssh_server import NODE, SSHServer, run_ssh

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

KEY: Final = private_key("ed25519")
THIEF: Final = private_key("ed25519", 666)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)


def on(harness: Harness, name: str = "workload", **ssh: Any) -> WorldCluster:
    """A cluster whose policy turns SSH on, and whose authorities may sign; its controller runs already, or starts."""
    cluster = harness.cluster(name, policy={"ssh": ssh})
    if not harness.audited:
        harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    return cluster


def asks(cluster: WorldCluster, machine: str, value: bytes | None = None, *, csr: str = "") -> Verdict:
    """A join of that Machine's node, whose request has the extension; by default with ``KEY``."""
    node = added(cluster, machine)
    return posts(cluster, node, claim_of(node, KEY) if value is None else value, csr or machine)


def added(cluster: WorldCluster, machine: str, **more: Any) -> SimulatedNode:
    cluster.add_machine(machine, provider_id=provider_id(machine), **more)
    return node_of(cluster, machine)


def posts(cluster: WorldCluster, node: SimulatedNode, value: bytes, csr: str) -> Verdict:
    cluster.submit_with_token(request_with(node, csr, value))
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    x509.load_pem_x509_certificate(verdict.certificate)
    return verdict


def refused(harness: Harness, cluster: WorldCluster, verdict: Verdict, machine: str, reason: str) -> str:
    """The host certificates were refused for that reason, and nothing else was; the Event's message."""
    assert access_in(verdict) == NoNodeAccess()
    assert record(harness, cluster, machine)["ssh"].keys() == {"trustVersion", "attestedTime"}
    message = harness.wait_for_event("HostCertificatesRefused", machine, part=f"{reason}: ")
    harness.assert_audited()
    return message


def record(harness: Harness, cluster: WorldCluster, node_name: str) -> dict[str, Any]:
    """The ``spec`` of the node's record."""
    return next(one["spec"] for one in harness.records(cluster) if one["spec"]["nodeName"] == node_name)


def test_a_node_gets_a_certificate_for_its_host_key(harness: Harness) -> None:
    cluster = on(harness)
    addresses = [
        ("InternalIP", "192.0.2.17"),
        ("InternalDNS", "worker-1.internal.example"),
        ("InternalIP", "127.0.0.1"),
        ("InternalDNS", "kubernetes"),
        ("Hostname", "worker-1"),
    ]
    node = added(cluster, "worker-1", addresses=addresses)
    access = access_in(posts(cluster, node, claim_of(node, KEY, private_key("nistp384"), version=5), "worker-1"))
    assert isinstance(access, NodeAccess)
    names = ["worker-1", f"worker-1.{cluster.name}.default", "worker-1.internal.example", "192.0.2.17"]
    first, second = access.host_certificates
    for made, key in ((first, KEY), (second, private_key("nistp384"))):
        made.verify()
        assert made.certificate.public_key == public_key_of(key)
        assert made.certificate.authority in access.trust.host_authorities
        assert [str(one) for one in made.certificate.principals] == names
        assert made.certificate.key_id == f"host/default/{cluster.name}/worker-1"
    kept = record(harness, cluster, "worker-1")["ssh"]
    assert kept["trustVersion"] == 5
    assert [one["publicKey"] for one in kept["hostKeys"]] == [
        key_line(public_key_of(key)) for key in (KEY, private_key("nistp384"))
    ]
    assert kept["hostKeys"][0]["fingerprint"] == public_key_of(KEY).fingerprint
    assert kept["hostKeys"][0]["certificateSerialNumber"] == str(first.certificate.serial)
    assert kept["authorityFingerprint"] == access.trust.host_authorities[0].fingerprint
    assert kept["principals"] == names
    harness.assert_audited()


def test_a_copy_gets_the_same_bytes(harness: Harness) -> None:
    cluster = on(harness)
    node = added(cluster, "worker-1")
    value = claim_of(node, KEY)
    first = posts(cluster, node, value, "worker-1")
    assert isinstance(access_in(first), NodeAccess)
    assert access_in(posts(cluster, node, value, "copy")) == access_in(first)
    harness.assert_audited()


def test_proof_by_another_key(harness: Harness) -> None:
    """Test 11: the key of another node beside a proof of one's own key; and a proof over another request's key."""
    cluster = on(harness)
    node, other = added(cluster, "worker-1"), added(cluster, "worker-2")
    own = claim_with(THIEF, node.subject_public_key_info)
    theirs = encode(HostKeysClaim(0, (ClaimedHostKey(public_key_of(KEY), own.proof),)))
    message = refused(harness, cluster, posts(cluster, node, theirs, "one"), "worker-1", "HostKeyNotProven")
    assert "SignedByAnotherKey" in message
    copied = claim_of(node, KEY)
    refused(harness, cluster, posts(cluster, other, copied, "two"), "worker-2", "HostKeyNotProven")


def test_one_host_key_on_two_machines(harness: Harness) -> None:
    """Test 12, within a cluster and in another one."""
    cluster, other = on(harness), on(harness, "other")
    assert isinstance(access_in(asks(cluster, "worker-1")), NodeAccess)
    message = refused(harness, cluster, asks(cluster, "worker-2"), "worker-2", "HostKeyInUse")
    assert "worker-1" in message
    refused(harness, other, asks(other, "worker-3"), "worker-3", "HostKeyInUse")


def test_an_extension_of_no_form(harness: Harness) -> None:
    cluster = on(harness)
    refused(harness, cluster, asks(cluster, "worker-1", b"no DER"), "worker-1", "HostKeysMalformed")


def test_the_trust_of_a_node_whose_host_keys_are_refused_is_recorded(harness: Harness) -> None:
    """It takes trust from the bundle, so a rotation counts it. Host certificates that it has stay as they are."""
    cluster = on(harness)
    first = added(cluster, "worker-1")
    posts(cluster, first, claim_of(first, KEY, version=4), "worker-1")
    node = added(cluster, "worker-2")
    refused(
        harness, cluster, posts(cluster, node, claim_of(node, KEY, version=7), "worker-2"), "worker-2", "HostKeyInUse"
    )
    assert record(harness, cluster, "worker-2")["ssh"]["trustVersion"] == 7
    kept = record(harness, cluster, "worker-1")["ssh"]
    later = first.but(key=node_of(cluster, "worker-1").key)
    unproven = ClaimedHostKey(public_key_of(KEY), claim_with(THIEF, later.subject_public_key_info).proof)
    cluster.submit_as_node(request_with(later, "later", encode(HostKeysClaim(9, (unproven,)))), "worker-1")
    assert access_in(cluster.wait_until_decided("later")) == NoNodeAccess()
    assert record(harness, cluster, "worker-1")["ssh"] == {**kept, "trustVersion": 9}
    harness.assert_audited()


def test_where_ssh_is_off(harness: Harness) -> None:
    """Test 14: the extension counts as any unknown one, where the policy or the operator does not turn SSH on."""
    cluster = harness.cluster()
    harness.run(ssh=ALLOWED)
    assert access_in(asks(cluster, "worker-1")) == NoNodeAccess()
    assert "ssh" not in record(harness, cluster, "worker-1")
    harness.assert_audited()


def test_without_the_extension_nothing_is_added(harness: Harness) -> None:
    """Test 14: a node program that knows no SSH."""
    cluster = on(harness)
    assert access_in(harness.join(cluster, "worker-1")) == NoNodeAccess()


def test_authorities_that_may_not_sign_cost_no_kubelet_its_certificate(harness: Harness) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run()  # without --ssh: off
    assert access_in(asks(cluster, "worker-1")) == NoNodeAccess()


def test_a_renewal_renews_them(harness: Harness) -> None:
    cluster = on(harness)
    node = added(cluster, "worker-1")
    first = access_in(posts(cluster, node, claim_of(node, KEY), "worker-1"))
    assert isinstance(first, NodeAccess)
    later = node.but(key=node_of(cluster, "worker-1").key)
    cluster.submit_as_node(
        request_with(later, "renewal", claim_of(later, KEY, version=first.trust.version)), "worker-1"
    )
    second = access_in(cluster.wait_until_decided("renewal"))
    assert isinstance(second, NodeAccess)
    assert second.host_certificates[0].certificate.serial != first.host_certificates[0].certificate.serial
    assert principals_in(second) == principals_in(first)
    assert record(harness, cluster, "worker-1")["ssh"]["trustVersion"] == first.trust.version
    harness.assert_audited()


TAMPERED: Final[dict[str, Callable[[DecisionLine, DecisionLine], DecisionLine]]] = {
    "another node's certificate": lambda line, other: said(line, host_certificates=other.decision.host_certificates),
    "a certificate by another key": lambda line, _: said(
        line,
        host_certificates=tuple(
            signed(parse_certificate_line(one).certificate, THIEF).line for one in line.decision.host_certificates
        ),
    ),
    "no certificate": lambda line, _: said(line, host_certificates=()),
    "a certificate twice": lambda line, _: said(line, host_certificates=line.decision.host_certificates * 2),
    "no certificate, and a reason": lambda line, _: said(
        line, host_certificates=(), host_certificates_refused="HostKeyInUse"
    ),
    "another serial number": lambda line, other: said(line, host_keys=other.decision.host_keys),
    "another name": lambda line, _: kept(line, principals=("worker-9",)),
    "a longer life": lambda line, _: kept(line, not_after=kept_in(line).not_after + timedelta(days=1)),
    "another version": lambda line, _: kept(line, trust_version=8),
    "another authority": lambda line, _: replace(
        line, decision_inputs=replace(line.decision_inputs, host_keys=with_fingerprint(stage_of(line), "x"))
    ),
    "a holder of the key": lambda line, other: replace(
        line,
        decision_inputs=replace(line.decision_inputs, host_keys=replace(stage_of(line), holders=(held_by(other),))),
    ),
    "no look at the keys": lambda line, _: replace(
        line, decision_inputs=replace(line.decision_inputs, host_keys=NOT_REACHED)
    ),
}


def said(line: DecisionLine, **changes: Any) -> DecisionLine:
    return replace(line, decision=replace(line.decision, **changes))


def kept_in(line: DecisionLine) -> AttestedHostKeys:
    assert isinstance(line.decision.host_keys, AttestedHostKeys)
    return line.decision.host_keys


def kept(line: DecisionLine, **changes: Any) -> DecisionLine:
    return said(line, host_keys=replace(kept_in(line), **changes))


def stage_of(line: DecisionLine) -> HostKeysStage:
    assert isinstance(line.decision_inputs.host_keys, HostKeysStage)
    return line.decision_inputs.host_keys


def with_fingerprint(stage: HostKeysStage, fingerprint: str) -> HostKeysStage:
    assert isinstance(stage.authority, HostAuthorityFacts)
    return replace(stage, authority=replace(stage.authority, fingerprint=fingerprint))


def held_by(line: DecisionLine) -> AttestedNode:
    """A record of that node, which is valid at the time of the others."""
    assert isinstance(line.decision.entry, JournalEntry)
    assert isinstance(line.decision_inputs.matched, tuple)
    identity = AttestedIdentity("keyed-mac", "another", Security.SECURE)
    return new_record(line.decision_inputs.matched[0], "worker-2", identity, line.decision.entry)


def test_no_changed_line_is_verified(harness: Harness) -> None:
    """``audit verify``: each host certificate follows from the line, and is signed by the authority that it names."""
    cluster = on(harness)
    node, other = added(cluster, "worker-1"), added(cluster, "worker-2")
    posts(cluster, node, claim_of(node, KEY), "worker-1")
    posts(cluster, other, claim_of(other, THIEF), "worker-2")
    audit, options, attestors = harness.audited[0]
    posts(cluster, node, claim_of(node, KEY), "copy")
    line, second, repeated = audit.lines
    changed = [tamper(line, second) for tamper in TAMPERED.values()]
    changed += [
        said(repeated, host_keys=second.decision.host_keys),
        said(repeated, host_certificates=second.decision.host_certificates),
    ]
    settings = partial(operator_settings, attestors)
    found = replayed([line, repeated, *changed], options.registry, settings)
    assert not any(isinstance(one, Differs) for one in found[:2])
    names = (*TAMPERED, "repeated, with another journal", "repeated, with another certificate")
    undetected = [name for name, one in zip(names, found[2:], strict=True) if not isinstance(one, Differs)]
    assert undetected == []


@pytest.mark.parametrize("reason", ["AuthoritiesNotAvailable", "NotJournaled", "SigningFailed"])
def test_what_changes_while_the_record_is_written_is_no_change_of_the_log(harness: Harness, reason: str) -> None:
    """The authority may be replaced between plan and signature. ``audit verify`` takes that for what it is."""
    cluster = on(harness)
    node = added(cluster, "worker-1")
    posts(cluster, node, claim_of(node, KEY), "worker-1")
    audit, options, attestors = harness.audited[0]
    changed = said(
        audit.lines[0],
        host_keys=NO_HOST_KEYS,
        host_certificates=(),
        host_certificates_refused=reason,
        host_certificates_message="it went meanwhile",
    )
    (found,) = replayed([changed], options.registry, partial(operator_settings, attestors))
    assert not isinstance(found, Differs)


@pytest.mark.parametrize("at", ["approval", "status"])
@pytest.mark.parametrize("drop", ["before", "after"])
def test_a_controller_that_died_between_journal_and_answer(
    harness: Harness, tmp_path: Path, at: str, drop: Literal["before", "after"]
) -> None:
    """Test 9, with SIGKILL of the real command line: what it has logged as signed is what the next one publishes."""
    cluster = harness.cluster(policy={"ssh": {}})
    made_the_authorities = harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    made_the_authorities.kill()
    configure(harness, tmp_path, ssh={"namespaces": ["default"]})
    audit = tmp_path / "audit.log"
    options = ("--ssh", "--controller-namespace", CONTROLLER_NAMESPACE, "--audit-log-path", str(audit))
    node = added(cluster, "worker-1")
    with controller(tmp_path, *options) as first:

        def kill(request: Request) -> bool:
            if fnmatch(f"{request.method} {request.path}", f"PUT *certificatesigningrequests/worker-1/{at}"):
                first.send_signal(signal.SIGKILL)
                return True
            return False

        api = embedded_api(cluster)
        api.faults.inject(kill, drop=drop)
        cluster.submit_with_token(request_with(node, "worker-1", claim_of(node, KEY, private_key("nistp384"))))
        assert first.wait(60) == -signal.SIGKILL
        api.faults.clear()
    [signed] = host_certificates_logged(audit, "worker-1")
    assert len(signed) == 2
    kept = record(harness, cluster, "worker-1")["ssh"]
    with controller(tmp_path, *options):
        access = access_in(cluster.wait_until_decided("worker-1"))
    assert isinstance(access, NodeAccess)
    assert [one.line for one in access.host_certificates] == signed
    assert all(one == signed for one in host_certificates_logged(audit, "worker-1"))
    assert record(harness, cluster, "worker-1")["ssh"] == kept


def host_certificates_logged(audit: Path, csr: str) -> list[list[str]]:
    """Of each approval of that request."""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    decisions = [line["decision"] for line in lines if line["kind"] == "Decision" and line["request"]["name"] == csr]
    return [one["host_certificates"] for one in decisions if one["kind"] == "Approve"]


def test_clients_accept_the_host_without_a_prompt(
    harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str], sshd: SSHServer
) -> None:
    """From the node program's attested join to a login with stock ssh; and a server with a stolen name is refused."""
    cluster = on(harness)
    added(cluster, NODE)
    program = NodeProgram(tmp_path / "node", node_of(cluster, NODE))
    host_key = write_private_key(tmp_path / "ssh_host_ed25519_key", sshd.host_key)
    folder = tmp_path / "node-access"
    program.configure(ssh={"hostKeys": [str(host_key)], "folder": str(folder)})
    program.supply_bootstrap(cluster)
    program.credential().certificate()
    line = (folder / "ssh_host_ed25519_key-cert.pub").read_text()
    authority = parse_certificate_line(line.strip()).certificate.authority
    sshd.host_certificate.write_text(line)
    (sshd.folder / "user-authorities").write_text((folder / USER_AUTHORITIES_FILE).read_text())
    sshd.restart()

    manifest, user = tmp_path / "user.json", write_private_key(tmp_path / "id", private_key("ed25519", 9))
    secret = cluster.management.client.get(SECRETS.object(f"{cluster.name}-ssh-user", cluster.namespace))
    manifest.write_text(json.dumps(secret))
    public = tmp_path / "id.pub"
    public.write_text(f"{key_line(public_key_of(private_key('ed25519', 9)))}\n")
    assert main(["ssh-sign", "--authority", str(manifest), "--principal", "root", "--validity", "1h", str(public)]) == 0
    (tmp_path / "id-cert.pub").write_text(capsys.readouterr().out)

    def login(host_authority: PublicKey) -> subprocess.CompletedProcess[str]:
        return run_ssh(*sshd.options(host_authority=host_authority), "-i", user, f"root@{NODE}", "echo", "in")

    accepted = login(authority)
    assert (accepted.returncode, accepted.stdout) == (0, "in\n"), accepted.stderr + sshd.log()
    stolen = login(public_key_of(THIEF))
    assert stolen.returncode == 255
    assert "Host key verification failed" in stolen.stderr


@pytest.fixture
def sshd() -> Iterator[SSHServer]:
    try:
        server = SSHServer(user_authority=public_key_of(THIEF))
    except MissingPart as missing:
        skip_or_fail(missing)
    with server:
        yield server
