"""Host certificates come with the kubelet's, and whatever is wrong with them, the kubelet's certificate is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire import provider_id as provider_id_format
from attestors.wire import request as request_format
from attestors.wire.certificate_request import build
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID, Purpose
from attestors.wire.node_access import NoNodeAccess, find
from attestors.wire.request import RequestBlocks
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import MAXIMUM_EXTENSION_BYTES, HostKeysClaim, claim_with, decode, encode, verify
from authenticator.configuration import SSH
from authenticator.flow.sshd_files import USER_AUTHORITIES_FILE, SSHDFiles
from authenticator.model.bundle_state import BundleState
from authenticator.model.failures import ExitCode
from authenticator.model.plan import Use
from authenticator.store.store import SSH_RECEIVED_FILE
from signer.model.certificate_request import SelfSignature, parse_certificate_request
from signer.testing.api import EmbeddedAPI
from signer.testing.api.status import APIError
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.authenticator.fixtures import DAY, LONG_AGO, ClusterAdmin, Manifest, Node, certificate_request
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.requests import blocks_of, manifest_of
from tests.support.node_access import certificate, text_of
from tests.support.node_program import NodeProgram
from tests.support.openssh import private_key, write_private_key
from tests.unit.signer.builders import extension, node_subject, pkcs10

pytestmark = pytest.mark.slow

KEY: Final = public_key_of(private_key("ed25519"))
THIEF: Final = private_key("ed25519", 666)


@pytest.fixture
def ssh(node: Node) -> SSHDFiles:
    """An sshd of this node's own."""
    host_key = write_private_key(node.folder / "ssh_host_ed25519_key", private_key("ed25519"))
    node.changes["ssh"] = SSH((host_key,), folder=node.folder / "node-access")
    return SSHDFiles(node.folder / "node-access")


def host_key_file(node: Node) -> Path:
    return node.folder / "ssh_host_ed25519_key"


def spki_of(csr: x509.CertificateSigningRequest) -> bytes:
    return csr.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def host_keys_in(found: Manifest) -> list[bytes]:
    """The values of the extension."""
    csr = certificate_request(found)
    return [
        one.value.value
        for one in csr.extensions
        if isinstance(one.value, x509.UnrecognizedExtension) and one.oid.dotted_string == SSH_HOST_KEYS_OID
    ]


def granting(admin: ClusterAdmin, node: Node, text: Callable[[], bytes]) -> Callable[[Manifest], None]:
    """Decides as a controller that knows SSH: it answers only where the extension is."""

    def decide(found: Manifest) -> None:
        pem = admin.sign(found)
        admin.issue(found, pem + text() if host_keys_in(found) else pem)

    return decide


def good(node: Node, **changes: Any) -> bytes:
    return text_of(certificate(KEY, node=node.name, now=node.time.now), **changes)


def test_a_join_brings_a_host_certificate(admin: ClusterAdmin, node: Node, ssh: SSHDFiles) -> None:
    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: good(node))) as decided:
        use = node.certificates().client()
    (found,) = decided
    (value,) = host_keys_in(found)
    assert verify(decode(value), spki_of(certificate_request(found))) == (KEY,)
    assert use.pair.certificate.count("-----BEGIN") == 1
    assert "node-access" not in use.pair.encode()
    (installed,) = ssh.certificate(host_key_file(node))
    assert node.name in map(str, installed.certificate.principals)
    assert (ssh.folder / USER_AUTHORITIES_FILE).read_bytes()


def test_a_renewal_renews_the_host_certificate(admin: ClusterAdmin, node: Node, ssh: SSHDFiles) -> None:
    node.put_pair(age=DAY, left=600)
    serials = iter((2, 3))

    def text() -> bytes:
        made = certificate(KEY, node=node.name, now=node.time.now, serial=next(serials))
        return text_of(made)

    with admin.deciding(granting(admin, node, text)) as decided:
        node.certificates().client(timeout=20)
        node.time.pass_by(DAY - 600)
        node.certificates().client(timeout=20)
    assert len(decided) == 2
    assert ssh.certificate(host_key_file(node))[0].certificate.serial == 3


def test_a_bundle_has_the_node_report_what_it_trusts(admin: ClusterAdmin, node: Node, ssh: SSHDFiles) -> None:
    """One renewal before its time, with the version of then. One that fails is paced as every other."""
    node.supply_bootstrap()
    serials = iter(range(1, 9))

    def text() -> bytes:
        made = certificate(KEY, node=node.name, now=node.time.now, serial=next(serials))
        return text_of(made)

    def use() -> Use:
        return node.certificates().client(timeout=20)

    with admin.deciding(granting(admin, node, text)) as decided:
        use()
        use()
        assert [trust_version_in(one) for one in decided] == [0]
        node.store.save_bundle_state(
            BundleState(5, True, "ab", 7, 0, 0, renew_below=7, renew_due=node.time.now + 9, renew_spread=9)
        )
        use()
        assert len(decided) == 1, "not before it is due"
    node.time.pass_by(10)
    with admin.deciding(lambda found: admin.decide(found, "Denied", "NotNow", "not now")) as refused:
        before = use()
        assert "not now" in before.overdue
        assert before.until > node.time.now
        assert use().pair.encode() == before.pair.encode()
        assert len(refused) == 1, "a pause first"
    node.time.pass_by(before.until - node.time.now)
    with admin.deciding(granting(admin, node, text)) as decided:
        for _ in range(3):
            use()
        assert [trust_version_in(one) for one in decided] == [7]
    assert use().pair.encode() != before.pair.encode()
    node.changes["ssh"] = None
    node.store.save_bundle_state(BundleState(5, True, "ab", 7, 0, 0, renew_below=9))
    use()
    assert len(admin.names) == 3, "without SSH, the node ignores it"


def trust_version_in(found: Manifest) -> int:
    (value,) = host_keys_in(found)
    return decode(value).trust_version


def test_requests_for_serving_certificates_hold_no_host_key(admin: ClusterAdmin, node: Node, ssh: SSHDFiles) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    node.serve()
    with admin.deciding(granting(admin, node, lambda: good(node))) as decided:
        node.certificates().serving()
    assert [host_keys_in(found) for found in decided] == [[]]
    assert not ssh.folder.exists()


def test_without_ssh_requests_are_as_before(admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: good(node))) as decided:
        node.certificates().client()
    assert [host_keys_in(found) for found in decided] == [[]]
    assert {path.name for path in node.store.folder.iterdir() if "ssh" in path.name} == set()


BAD: Final[dict[str, Callable[[Node], bytes]]] = {
    "one-byte-off": lambda node: good(node).replace(b"host-ca ", b"host-cA ", 1),
    "cut-off": lambda node: good(node)[:-1],
    "doubled": lambda node: good(node) * 2,
    "17-KiB": lambda _: b"# node-access v1\n" + b"x" * 17 * 1024,
    "not-ascii": lambda _: b"# node-access v1\n\xff\x00\n",
    "later-version": lambda _: b"# node-access v9\nnobody knows\n",
    "another-ca": lambda node: text_of(certificate(KEY, node=node.name, now=node.time.now, authority=THIEF)),
    "another-key": lambda node: text_of(certificate(public_key_of(THIEF), node=node.name, now=node.time.now)),
    "another-node": lambda node: text_of(certificate(KEY, node="somebody-else", now=node.time.now)),
    "ended": lambda node: text_of(certificate(KEY, node=node.name, now=node.time.now - 60 * DAY)),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_text_costs_the_host_certificate_alone(
    admin: ClusterAdmin, node: Node, ssh: SSHDFiles, kind: str
) -> None:
    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: BAD[kind](node))):
        use = node.certificates().client()
    assert node.store.pair(Purpose.CLIENT) is not None
    assert use.pair.not_after > node.time.now
    assert not ssh.folder.exists()
    assert node.store.ssh_state().rejection is not None


@pytest.mark.parametrize("fault", ["missing", "readable", "damaged", "folder"])
def test_an_unusable_host_key_costs_the_host_certificate_alone(
    admin: ClusterAdmin, node: Node, ssh: SSHDFiles, fault: str
) -> None:
    file = host_key_file(node)
    if fault == "readable":
        file.chmod(0o644)
    elif fault == "damaged":
        file.write_bytes(b"damaged")
    else:
        file.unlink()
    if fault == "folder":
        file.mkdir()
    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: good(node))) as decided:
        node.certificates().client()
    assert [host_keys_in(found) for found in decided] == [[]]
    assert any("host key is left out" in text for text in node.reports)


def test_a_folder_that_cannot_be_written_costs_nothing_for_ever(
    admin: ClusterAdmin, node: Node, ssh: SSHDFiles
) -> None:
    ssh.folder.write_text("in the way")
    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: good(node))):
        node.certificates().client()
    assert node.store.pair(Purpose.CLIENT) is not None
    ssh.folder.unlink()
    node.certificates().client()
    assert ssh.certificate(host_key_file(node))


def test_a_process_that_ends_before_the_files_are_written_loses_nothing(
    admin: ClusterAdmin, node: Node, ssh: SSHDFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    node.supply_bootstrap()
    with admin.deciding(granting(admin, node, lambda: good(node))), monkeypatch.context() as patched:
        patched.setattr(SSHDFiles, "install", killed)
        with pytest.raises(Killed):
            node.certificates().client()
    assert node.store.pair(Purpose.CLIENT) is not None
    node.certificates().client()
    assert ssh.certificate(host_key_file(node))
    assert not (node.store.folder / SSH_RECEIVED_FILE).exists()


# With the controller of today, which knows no SSH (test 14).


def test_a_new_node_loses_nothing_with_an_older_controller(harness: Harness, tmp_path: Path) -> None:
    """The unknown extension is dropped: the node has its certificate, and keeps what sshd has."""
    cluster = harness.cluster()
    harness.run()
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    program = NodeProgram(tmp_path / "node", node_of(cluster, "worker-1"))
    host_key = write_private_key(tmp_path / "ssh_host_ed25519_key", private_key("ed25519"))
    folder = tmp_path / "node-access"
    folder.mkdir(mode=0o755)
    (folder / USER_AUTHORITIES_FILE).write_text("of the image")
    program.configure(ssh={"hostKeys": [str(host_key)], "folder": str(folder)})
    program.supply_bootstrap(cluster)
    issued = program.credential().certificate()
    unknown = [one for one in issued.extensions if isinstance(one.value, x509.UnrecognizedExtension)]
    assert unknown == []
    shown = program.run("status")
    assert shown.exit_code == ExitCode.DONE
    assert "the controller answered without SSH at" in shown.output
    assert [path.name for path in folder.iterdir()] == [USER_AUTHORITIES_FILE]
    assert (folder / USER_AUTHORITIES_FILE).read_text() == "of the image"
    found = json.loads(program.run("status", "--output", "json").output)["ssh"]
    assert (found["answeredWithoutText"], found["trustVersion"], found["rejected"]) == (True, 0, None)
    program.configure()
    assert "ssh" not in json.loads(program.run("status", "--output", "json").output)


def with_host_keys(node: SimulatedNode, value: bytes) -> bytes:
    """PKCS#10 with such an extension."""
    further = x509.UnrecognizedExtension(x509.ObjectIdentifier(SSH_HOST_KEYS_OID), value)
    return build(node.key, node_name=node.node_name, provider_id=node.provider_id, further=[further])


def asks(cluster: WorldCluster, machine: str, request: Callable[[SimulatedNode], bytes]) -> Verdict:
    cluster.add_machine(machine, provider_id=provider_id(machine))
    node = node_of(cluster, machine)
    cluster.submit_with_token(manifest_of(machine, b"".join(blocks_of(node, request(node)))))
    return cluster.wait_until_decided(machine)


def honest(node: SimulatedNode) -> bytes:
    return with_host_keys(
        node, encode(HostKeysClaim(0, (claim_with(private_key("ed25519"), node.subject_public_key_info),)))
    )


@pytest.mark.parametrize("kind", ["honest", "no-DER", "large"])
def test_todays_checks_drop_the_extension_whatever_it_holds(harness: Harness, kind: str) -> None:
    cluster = harness.cluster()
    harness.run()
    made = {
        "honest": honest,
        "no-DER": lambda node: with_host_keys(node, b"no DER"),
        "large": lambda node: with_host_keys(node, bytes(MAXIMUM_EXTENSION_BYTES)),
    }[kind]
    verdict = asks(cluster, "worker-1", made)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    issued = x509.load_pem_x509_certificate(verdict.certificate)
    assert not any(isinstance(one.value, x509.UnrecognizedExtension) for one in issued.extensions)
    assert find(verdict.certificate) == NoNodeAccess()
    harness.assert_audited()


def test_a_critical_one_is_refused_as_every_unknown_one(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()

    def critical(node: SimulatedNode) -> bytes:
        claimed = extension(PROVIDER_ID_OID, provider_id_format.encode(node.provider_id))
        marked = extension(SSH_HOST_KEYS_OID, b"\x30\x00", critical=True)
        return pkcs10(node.key, subject=node_subject(node.node_name), extensions=[claimed, marked])

    verdict = asks(cluster, "worker-1", critical)
    assert (verdict.condition, verdict.reason) == ("Denied", "ForbiddenExtension")


def test_a_copied_request_cannot_hold_another_host_key(api: EmbeddedAPI, node: Node) -> None:
    """Test 10. The API server verifies the signature, which covers the extension."""
    simulated = SimulatedNode(node.name, provider_id(node.name), "sha256:" + "0f" * 32, "keyed-mac")
    theirs, mine = (
        encode(HostKeysClaim(0, (claim_with(key, simulated.subject_public_key_info),)))
        for key in (private_key("ed25519"), THIEF)
    )
    copied = with_host_keys(simulated, theirs)
    changed = copied.replace(theirs, mine)
    assert changed != copied
    assert parse_certificate_request(copied).signature_is_valid() is SelfSignature.VALID
    assert parse_certificate_request(changed).signature_is_valid() is SelfSignature.INVALID
    blocks = request_format.encode(RequestBlocks(changed, "keyed-mac", b"{}"))
    with pytest.raises(APIError, match="signature verification failed"):
        api.create(manifest_of("copied", blocks))
