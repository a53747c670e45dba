"""What the agent makes of the trust bundle, and how it keeps sshd's files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire import statement
from attestors.wire.names import Purpose
from attestors.wire.node_access import NodeAccessText
from attestors.wire.ssh.certificate import parse_certificate_file
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey, host_key
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    RevocationList,
    encode_revocation_list,
    parse_revocation_list,
    revocation_list,
)
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.statement import ClusterIdentity
from attestors.wire.statement.cluster_trust import node_digest
from authenticator.api.errors import Unreachable
from authenticator.configuration import SSH
from authenticator.flow import sshd_files
from authenticator.flow.clock import Clock
from authenticator.flow.host_certificates import HostCertificates
from authenticator.flow.sshd_files import (
    BREAK_GLASS_FILE,
    KNOWN_HOSTS_FILE,
    REVOKED_KEYS_FILE,
    USER_AUTHORITIES_FILE,
    SSHDFiles,
)
from authenticator.flow.trust_bundle import REFUSED_SECONDS, TrustBundleStep
from authenticator.model.bundle_state import (
    BundleState,
    UnreadableBundleState,
    decode_bundle_state,
    encode_bundle_state,
)
from authenticator.model.pair import Pair
from authenticator.model.reported_trust import ReportedTrust
from authenticator.model.ssh_state import SSHRejection, SSHState, digest_of
from authenticator.store.store import BUNDLE_FILE, BUNDLE_STATE_FILE, PIN_FILE, REVOCATIONS_FILE, SSH_FILE, Damaged
from authenticator.stored_credential import CLUSTER_FILE
from tests.support.node_access import certificate, text_of, trust
from tests.support.openssh import private_key, write_private_key
from tests.support.statements import IDENTITY, NOW, bundle, controller, signed, trust_of
from tests.unit.authenticator.builders import NODE, pair
from tests.unit.authenticator.flow.trust_fixtures import NEW, OLD, TrustNode

HOST_KEY: Final = private_key("ed25519", 5)
OTHER_USER: Final[PublicKey] = public_key_of(private_key("ed25519", 201))


def revoked(*key_ids: str) -> CertificateRevocations:
    return CertificateRevocations(AnyAuthority(), key_ids=key_ids)


class BundleNode:
    """A node with sshd that joined under the cluster's CA, and pinned the controller's keys."""

    def __init__(self, folder: Path) -> None:
        self.node = TrustNode(folder)
        self.node.time = float(NOW)
        self.store = self.node.store
        self.host_key = write_private_key(folder / "ssh_host_ed25519_key", HOST_KEY)
        self.ssh = SSH((self.host_key,), folder=folder / "node-access")
        self.step = self.new_process()

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.node.time, monotonic=lambda: self.node.time, sleep=self.node.pass_by)

    def new_process(self) -> TrustBundleStep:
        return TrustBundleStep(
            self.node.configuration, self.ssh, self.store, self.clock, self.told.append, lambda *_: self.node.api
        )

    @property
    def told(self) -> list[str]:
        return self.node.told

    def given(self, payload: Any, *signers: Any, **how: Any) -> None:
        """Publish it, and look."""
        self.node.publish_bundle(signed(payload, *(signers or (OLD,)), **how))
        self.look()

    def look(self) -> float:
        self.node.pass_by(60)
        return self.step.turn()

    def answered(self, version: int = 7, **changes: Any) -> None:
        """A certificate came with that trust behind it."""
        host = certificate(public_key_of(HOST_KEY), node=NODE, now=int(self.node.time))
        self.received(text_of(host, version=version, **changes))

    def received(self, text: bytes) -> None:
        """A certificate came with that text behind it."""
        self.certificates.receive(NodeAccessText(text))
        self.certificates.settle()

    @property
    def certificates(self) -> HostCertificates:
        node_configuration = replace(self.node.configuration, ssh=self.ssh)
        return HostCertificates(node_configuration, self.store, self.clock, self.told.append)

    @property
    def rejected(self) -> str:
        """Why the last text was not accepted."""
        rejection = self.store.ssh_state().rejection
        return rejection.reason if rejection is not None else ""

    @property
    def pair(self) -> Pair:
        found = self.store.pair(Purpose.CLIENT)
        assert found is not None
        return found

    def wants_renewal(self) -> bool:
        return self.certificates.wants_renewal(self.pair)

    def renewed(self, version: int) -> None:
        """The client certificate was renewed by a request with that version of the trust."""
        known = self.store.known_cluster()
        assert known is not None
        self.store.save_pair(Purpose.CLIENT, pair(key=2))
        self.store.save_known_cluster(replace(known, reported=ReportedTrust.of(self.pair, version)))

    @property
    def state(self) -> BundleState:
        return self.store.bundle_state()

    @property
    def reason(self) -> str:
        return self.state.rejection.reason if self.state.rejection is not None else ""

    def file(self, name: str) -> Path:
        return self.ssh.folder / name

    def revocations(self) -> RevocationList:
        return parse_revocation_list(self.file(REVOKED_KEYS_FILE).read_bytes())

    def trusts(self) -> str:
        return self.file(USER_AUTHORITIES_FILE).read_text()


@pytest.fixture
def node(tmp_path: Path) -> BundleNode:
    return BundleNode(tmp_path / "node")


def test_revocations_and_authorities_reach_sshd(node: BundleNode) -> None:
    node.answered()
    assert node.revocations().entries == 0
    node.given(bundle(5, revoked("one", "two")), sequence=5)
    assert node.revocations().entries == 2
    assert (node.state.sequence, node.state.revocations, node.state.rejection) == (5, 2, None)
    assert "2 revocations" in node.told[-1]
    assert node.state.not_after == NOW + 86400

    changed = trust(version=8, user_authorities=(OTHER_USER,))
    node.given(replace(bundle(6), trust=changed), sequence=6)
    assert node.trusts() == key_line(OTHER_USER) + "\n"
    assert node.revocations().entries == 0
    assert node.store.ssh_state() == SSHState(8, digest_of(changed))
    told = list(node.told)
    node.step = node.new_process()
    node.look()
    assert node.told == told, "once for each bundle, also after a restart"


def test_a_node_that_was_answered_nothing_yet(node: BundleNode) -> None:
    """That of `kubeadm init`, say: the bundle is as good a proof as the text behind a certificate."""
    node.given(bundle(5), sequence=5)
    assert node.trusts() == key_line(trust().user_authorities[0]) + "\n"
    assert node.file(KNOWN_HOSTS_FILE).exists()
    node.answered()
    assert node.store.ssh_state().rejection is None
    node.answered(version=6, user_authorities=(OTHER_USER,))
    assert node.store.ssh_state() == SSHState(7, digest_of(trust())), "older than the bundle's, whose trust stays"
    assert key_line(OTHER_USER) not in node.trusts()


def test_an_answer_that_was_on_its_way_while_a_bundle_came(node: BundleNode) -> None:
    """Its host certificate counts, and nothing else of it."""
    node.answered()
    newer = trust(version=8, user_authorities=(OTHER_USER,))
    node.given(replace(bundle(5), trust=newer), sequence=5)
    node.answered(version=7)
    assert node.store.ssh_state() == SSHState(8, digest_of(newer))
    assert node.trusts() == key_line(OTHER_USER) + "\n", "the former authority stays dropped"
    file = SSHDFiles(node.ssh.folder).certificate_file(node.host_key)
    received = file.read_bytes()
    assert parse_certificate_file(received).certificate.valid_after == int(node.node.time) - 60

    earlier = certificate(public_key_of(HOST_KEY), node=NODE, now=NOW - 9000)
    node.received(text_of(earlier, version=7))
    assert node.rejected == "OlderCertificate", "one that was issued earlier does not come back"
    dropped = private_key("ed25519", 77)
    by_dropped = certificate(public_key_of(HOST_KEY), node=NODE, now=int(node.node.time), authority=dropped)
    node.received(text_of(by_dropped, version=7, host_authorities=(host_key(public_key_of(dropped)),)))
    assert node.rejected == "UnknownAuthority"
    node.received(text_of(certificate(public_key_of(HOST_KEY), node="other", now=NOW), version=7))
    assert node.rejected == "OtherNode"
    assert file.read_bytes() == received

    node.answered(version=9)
    node.answered(version=8, user_authorities=(OTHER_USER,))
    assert node.rejected == "OlderTrust", "the trust in force came with a certificate, and is not known as a whole"
    assert node.trusts() == key_line(trust().user_authorities[0]) + "\n"


def test_without_anything_published(node: BundleNode) -> None:
    assert node.look() == 60
    assert not node.ssh.folder.exists()
    node.node.api.failure = Unreachable("no answer")
    node.look()
    assert (node.state, node.told) == (BundleState(), [])


@pytest.mark.parametrize(
    ("payload", "how", "reason"),
    [
        (bundle(6), {"cluster": ClusterIdentity(IDENTITY.namespace, "other", IDENTITY.uid)}, "WrongCluster"),
        (bundle(4), {"sequence": 4}, "Replayed"),
        (bundle(6), {"keys": controller("x")}, "NotSignedByController"),
        (bundle(6), {"not_after": NOW + 1}, "Expired"),
        (bundle(6), {"not_before": NOW + 9000, "not_after": NOW + 99999}, "NotYetValid"),
        (bundle(7), {}, "BadRevocationList"),
        (replace(bundle(6), revocation_list=b"SSHKRL\n\0"), {}, "BadRevocationList"),
        (replace(bundle(6), trust=trust(user_authorities=(OTHER_USER,))), {}, "ChangedTrust"),
        (bundle(5, revoked("other")), {"sequence": 5}, "ChangedTrust"),
        (trust_of(OLD), {}, "WrongKind"),
    ],
)
def test_what_does_not_count_changes_nothing(node: BundleNode, payload: Any, how: dict[str, Any], reason: str) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    before = {path.name: path.read_bytes() for path in node.ssh.folder.iterdir()}
    stored = node.store.bundle()
    node.given(payload, **{"sequence": 6, **how})
    assert node.reason == reason
    assert (node.state.sequence, node.store.bundle()) == (5, stored)
    assert {path.name: path.read_bytes() for path in node.ssh.folder.iterdir()} == before
    told = list(node.told)
    node.look()
    assert node.told == told, "said once"
    node.given(bundle(8), sequence=8)
    assert (node.state.sequence, node.reason) == (8, "")


def test_a_signature_by_another_authority_does_not_count(node: BundleNode) -> None:
    node.given(bundle(6), NEW, sequence=6)
    assert node.reason == "NotSignedByTrustedCA"


def test_a_node_without_a_pinned_key_accepts_none(node: BundleNode) -> None:
    (node.store.folder / PIN_FILE).unlink()
    node.given(bundle(6), sequence=6)
    assert node.reason == "NotPinned"
    assert not node.ssh.folder.exists()


@pytest.mark.parametrize("text", [b"", b"{}", b"x" * 2_000_000])
def test_a_text_that_is_none(node: BundleNode, text: bytes) -> None:
    node.node.publish_bundle(text)
    node.look()
    assert node.reason == "Malformed"


def test_a_truncated_one(node: BundleNode) -> None:
    node.node.publish_bundle(statement.encode(signed(bundle(6), OLD, sequence=6))[:-9])
    node.look()
    assert node.reason == "Malformed"


def test_one_of_a_newer_controller(node: BundleNode) -> None:
    text = statement.encode(signed(bundle(6), OLD, sequence=6))
    node.node.publish_bundle(text.replace(b'"version":"v1"', b'"version":"v2"'))
    node.look()
    assert node.reason == "Unsupported"


def test_it_is_read_only_when_it_changes(node: BundleNode) -> None:
    node.given(bundle(5), sequence=5)
    for _ in range(5):
        node.look()
    assert node.node.api.bundles_read == 1
    again = signed(bundle(5), OLD, sequence=5, not_after=NOW + 999_999)
    node.node.publish_bundle(again)
    node.look()
    assert (node.node.api.bundles_read, node.state.not_after) == (2, NOW + 999_999), "signed again"

    node.given(bundle(4), sequence=4)
    node.look()
    assert node.node.api.bundles_read == 3
    node.node.pass_by(REFUSED_SECONDS)
    node.look()
    assert node.node.api.bundles_read == 4, "it may count later"


@pytest.mark.parametrize(
    "content", [None, b"", encode_revocation_list(RevocationList(9, 9)), b"nothing that sshd reads"]
)
def test_a_revocation_list_that_somebody_removed_or_changed(node: BundleNode, content: bytes | None) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.node.api.failure = Unreachable("no answer")
    node.step = node.new_process()
    if content is None:
        node.file(REVOKED_KEYS_FILE).unlink()
    else:
        node.file(REVOKED_KEYS_FILE).write_bytes(content)
    node.look()
    assert node.revocations().entries == 1, "restored without the API server"
    assert REVOKED_KEYS_FILE in node.told[-1]
    assert (node.state.restored, node.state.restored_at) == (REVOKED_KEYS_FILE, int(node.node.time))
    told = list(node.told)
    node.look()
    assert node.told == told
    node.node.api.failure = None
    node.file(REVOKED_KEYS_FILE).unlink()
    node.given(bundle(6), sequence=6)
    assert any(REVOKED_KEYS_FILE in text for text in node.told[len(told) :]), "also when a new bundle comes at once"
    assert node.state.restored_at == int(node.node.time)


def test_before_the_first_bundle_no_list_is_made_up(node: BundleNode) -> None:
    """An empty one would let revoked certificates in."""
    node.answered()
    node.file(REVOKED_KEYS_FILE).unlink()
    node.look()
    assert not node.file(REVOKED_KEYS_FILE).exists()


def test_trusted_authorities_that_somebody_changed(node: BundleNode) -> None:
    node.answered()
    node.given(bundle(5), sequence=5)
    good = node.trusts()
    node.file(USER_AUTHORITIES_FILE).write_text(key_line(OTHER_USER) + "\n")
    node.look()
    assert node.trusts() == good
    newer = (trust().user_authorities[0], OTHER_USER)
    node.answered(version=9, user_authorities=newer)
    node.look()
    assert node.trusts() == "".join(f"{key_line(key)}\n" for key in newer), "a newer trust came with a certificate"
    node.file(REVOKED_KEYS_FILE).unlink()
    node.step = node.new_process()
    node.look()
    assert node.revocations().version == 5
    assert node.reason == "", "the bundle in force is not refused for that"


@pytest.mark.parametrize("content", [None, b"", f"{key_line(trust().user_authorities[0])}\n".encode()])
def test_break_glass_authorities_that_somebody_changed(node: BundleNode, content: bytes | None) -> None:
    """The attack: the online authority gets plain logins."""
    marked = replace(bundle(5), trust=trust(break_glass_authorities=(OTHER_USER,)))
    node.given(marked, sequence=5)
    file = node.file(BREAK_GLASS_FILE)
    assert file.read_text() == f"{key_line(OTHER_USER)}\n"
    assert node.trusts().splitlines() == [key_line(key) for key in marked.trust.all_user_authorities]
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    node.look()
    assert file.read_text() == f"{key_line(OTHER_USER)}\n"
    assert node.state.restored == BREAK_GLASS_FILE


def test_an_image_s_file_that_cannot_be_read_is_reported(node: BundleNode) -> None:
    node.answered()
    node.file(sshd_files.IMAGE_BREAK_GLASS_FILE).mkdir()
    node.given(bundle(5, revoked("one")), sequence=5)
    assert node.revocations().entries == 1
    assert (node.state.is_in_place, node.state.restored) == (False, "")
    assert "the trust bundle is not in force: break_glass_ca_keys_image" in node.told[-1]
    node.file(sshd_files.IMAGE_BREAK_GLASS_FILE).rmdir()
    node.look()
    assert node.state.is_in_place


def test_a_file_of_somebody_else_stays(node: BundleNode) -> None:
    """That of `krl revoke`, for when nothing is online."""
    node.answered()
    other = node.file("revoked_keys_offline")
    other.write_bytes(b"a list")
    node.given(bundle(5), sequence=5)
    assert other.read_bytes() == b"a list"


def test_a_lost_copy_is_read_again(node: BundleNode) -> None:
    node.given(bundle(5, revoked("one")), sequence=5)
    (node.store.folder / BUNDLE_FILE).unlink()
    node.step = node.new_process()
    node.node.api.failure = Unreachable("no answer")
    node.file(REVOKED_KEYS_FILE).unlink()
    node.look()
    assert "stored trust bundle is missing" in node.told[-1]
    node.node.api.failure = None
    node.look()
    assert node.revocations().entries == 1
    assert node.store.bundle() == node.node.api.bundle


def test_a_copy_of_another_content_is_not_used(node: BundleNode) -> None:
    node.given(bundle(5, revoked("one")), sequence=5)
    node.store.save_bundle(statement.encode(signed(bundle(5), OLD, sequence=5)))
    node.node.api.failure = Unreachable("no answer")
    node.step = node.new_process()
    node.file(REVOKED_KEYS_FILE).unlink()
    node.look()
    assert not node.file(REVOKED_KEYS_FILE).exists()


@pytest.mark.parametrize("name", [REVOKED_KEYS_FILE, USER_AUTHORITIES_FILE])
def test_what_openssh_does_not_read_is_not_put_in_place(
    node: BundleNode, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    before = node.file(name).read_bytes()

    def refuse(file: Path, *arguments: str) -> None:
        if name in file.name:
            raise sshd_files.UnwrittenFiles(f"{name}: ssh-keygen does not read it")

    with monkeypatch.context() as patched:
        patched.setattr(sshd_files, "_require_openssh", refuse)
        node.given(replace(bundle(6), trust=trust(version=8, user_authorities=(OTHER_USER,))), sequence=6)
        assert node.file(name).read_bytes() == before
        assert "ssh-keygen does not read it" in node.told[-1]
        assert (node.state.sequence, node.state.is_in_place, node.store.ssh_state().trust_version) == (6, False, 7)
        assert not node.state.restored_at, "nobody changed a file"
        told = list(node.told)
        node.look()
        assert node.told == told
    node.look()
    assert (node.state.sequence, node.state.is_in_place, node.store.ssh_state().trust_version) == (6, True, 8)


# A bundle whose trust is older than this node's


def key_ids(node: BundleNode) -> set[str]:
    """What sshd refuses."""
    return {key_id for one in node.revocations().certificates for key_id in one.key_ids}


def test_revocations_of_a_bundle_that_is_one_trust_behind_an_answer(node: BundleNode) -> None:
    """The trust came with a certificate first. What was revoked meanwhile counts at once; the trust stays."""
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.answered(version=8, user_authorities=(OTHER_USER,))
    trusted = node.store.ssh_state()
    assert trusted.trust_version == 8
    node.given(bundle(6, revoked("one", "two")), sequence=6)
    assert key_ids(node) == {"one", "two"}
    assert (node.store.ssh_state(), node.trusts()) == (trusted, key_line(OTHER_USER) + "\n")
    state = node.state
    assert (state.sequence, state.newest, state.is_in_place, state.revocations) == (5, 6, True, 2)
    assert node.reason == "OlderTrust"
    assert node.told[-1].endswith("its revocations alone, 2 revocations")
    told, read = list(node.told), node.node.api.bundles_read
    node.look()
    assert (node.told, node.node.api.bundles_read) == (told, read)
    node.step = node.new_process()
    node.look()
    assert (node.told, node.state) == (told, state), "once, also after a restart"
    caught_up = trust(version=8, user_authorities=(OTHER_USER,))
    node.given(replace(bundle(7, revoked("two")), trust=caught_up), sequence=7)
    assert key_ids(node) == {"two"}, "the controller has taken an entry off the whole list"
    assert (node.state.sequence, node.state.newest, node.reason) == (7, 7, "")


def test_before_the_first_bundle(node: BundleNode) -> None:
    """A node that joined while its cluster's bundle was behind."""
    node.answered()
    node.given(bundle(6, revoked("two"), version=6), sequence=6)
    assert key_ids(node) == {"two"}
    assert (node.state.sequence, node.state.newest, node.state.is_in_place) == (0, 6, True)
    assert node.trusts() == key_line(trust().user_authorities[0]) + "\n"
    node.given(bundle(7), sequence=7)
    assert (node.state.sequence, key_ids(node)) == (7, set())


def test_a_bundle_with_older_trust_takes_no_revocation_back(node: BundleNode) -> None:
    """The controller's state may be from a backup. What it adds counts, one after the other."""
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    for sequence, added in ((6, "two"), (7, "three")):
        node.given(bundle(sequence, revoked(added), version=6), sequence=sequence)
    assert key_ids(node) == {"one", "two", "three"}
    node.given(bundle(8, version=6), sequence=8)
    assert key_ids(node) == {"one", "two", "three"}
    assert node.state.newest == 8


@pytest.mark.parametrize("sequence", [5, 6, 7])
def test_no_bundle_from_before_comes_back(node: BundleNode, sequence: int) -> None:
    """Whoever writes the ConfigMap puts an earlier one there, with the controller's own signatures."""
    node.answered()
    given = {5: bundle(5), 6: bundle(6, version=6), 7: bundle(7, revoked("two"), version=6)}
    for number in (5, 6):
        node.given(given[number], sequence=number)
    node.given(bundle(8, revoked("three"), version=6), sequence=8)
    before = node.state
    node.given(given[sequence], sequence=sequence)
    assert node.reason == "Replayed"
    assert key_ids(node) == {"three"}
    assert replace(node.state, rejection=before.rejection) == before
    node.given(bundle(8, revoked("other"), version=6), sequence=8)
    assert (node.reason, key_ids(node)) == ("ChangedTrust", {"three"})


def test_other_faults_of_a_bundle_with_older_trust_leave_its_revocations_out(node: BundleNode) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    for how in ({"keys": controller("x")}, {"not_after": NOW + 1}):
        node.given(bundle(6, revoked("two"), version=6), sequence=6, **how)
    node.given(bundle(6, revoked("two"), version=6), NEW, sequence=6)
    node.given(replace(bundle(6, revoked("two")), trust=trust(user_authorities=(OTHER_USER,))), sequence=6)
    assert node.reason == "ChangedTrust"
    assert (key_ids(node), node.state.newest) == ({"one"}, 5)


@pytest.mark.parametrize(
    "content", [None, b"", b"nothing that sshd reads", encode_revocation_list(RevocationList(9, 9))]
)
def test_the_list_of_a_later_bundle_is_kept(node: BundleNode, content: bytes | None) -> None:
    """In sshd's folder as in the store: one is restored from the other, or read again."""
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.given(bundle(6, revoked("two"), version=6), sequence=6)
    for file in (node.file(REVOKED_KEYS_FILE), node.store.folder / REVOCATIONS_FILE):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
        node.step = node.new_process()
        node.look()
        node.look()
        assert key_ids(node) == {"one", "two"}
        assert hashlib.sha256(node.store.revocations()).hexdigest() == node.state.later_revocations
    assert node.state.restored == REVOKED_KEYS_FILE


def test_a_list_in_the_store_that_somebody_changed_replaces_nothing(node: BundleNode) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.given(bundle(6, revoked("two"), version=6), sequence=6)
    node.node.api.failure = Unreachable("no answer")
    node.store.save_revocations(encode_revocation_list(RevocationList(9, 9)))
    node.step = node.new_process()
    node.look()
    assert key_ids(node) == {"one", "two"}
    assert "missing or damaged" in node.told[-1]


def test_a_crash_between_list_and_state(node: BundleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.given(bundle(6, revoked("two"), version=6), sequence=6)

    def crash(state: BundleState) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(node.store, "save_bundle_state", crash)
        with pytest.raises(KeyboardInterrupt):
            node.given(bundle(7, revoked("three"), version=6), sequence=7)
    assert node.state.newest == 6
    node.step = node.new_process()
    node.look()
    node.look()
    assert key_ids(node) == {"one", "two", "three"}
    assert (node.state.newest, node.state.is_in_place) == (7, True)


def test_lists_that_are_too_large_together(node: BundleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    monkeypatch.setattr(revocation_list, "MAXIMUM_ENTRIES", 1)
    node.given(bundle(6, revoked("two"), version=6), sequence=6)
    assert (node.reason, key_ids(node), node.state.newest) == ("TooLarge", {"one"}, 5)


def test_the_accepted_bundle_stays_whole_when_an_answer_brings_newer_trust(node: BundleNode) -> None:
    node.answered()
    node.given(bundle(5, revoked("one")), sequence=5)
    node.answered(version=8, user_authorities=(OTHER_USER,))
    node.given(bundle(5, revoked("one")), sequence=5, not_after=NOW + 999_999)
    assert (node.state.sequence, node.state.later_sequence, node.state.not_after) == (5, 0, NOW + 999_999)
    assert node.reason == ""


def test_signed_again_it_lives_longer(node: BundleNode) -> None:
    node.answered()
    node.given(bundle(6, revoked("two"), version=6), sequence=6)
    node.given(bundle(6, revoked("two"), version=6), sequence=6, not_after=NOW + 999_999)
    assert (node.state.not_after, node.state.is_in_place) == (NOW + 999_999, True)
    assert node.state.restored == ""


SPREAD: Final = 240
DUE: Final = 1 + int(node_digest(NODE), 16) % SPREAD


def test_a_bundle_has_the_node_attest_once(node: BundleNode) -> None:
    node.answered()
    assert (node.wants_renewal(), node.certificates.trust_version()) == (False, 7)
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    due = int(node.node.time) + DUE
    assert (node.state.renew_below, node.state.renew_due) == (8, due)
    assert f"version 8 of the trust; the client certificate is renewed in {DUE} s" in node.told[-1]
    assert 10 < DUE < SPREAD
    assert not node.wants_renewal(), "spread over the nodes"
    node.node.time = float(due - 10)
    assert node.step.turn() <= 10, "it wakes in time"
    node.node.time = float(due)
    told = list(node.told)
    node.step = node.new_process()
    node.look()
    assert (node.told, node.state.renew_due) == (told, due), "once for each value, also after a restart"
    assert node.wants_renewal()
    assert node.certificates.trust_version() == 8
    node.renewed(8)
    assert not node.wants_renewal()
    node.given(bundle(6, version=8), sequence=6)
    assert (node.state.renew_below, node.state.renew_due) == (0, 0)
    node.given(bundle(7, version=8, renew_below=8), sequence=7)
    node.node.pass_by(SPREAD)
    assert not node.wants_renewal(), "it has reported that version already"
    node.given(bundle(8, version=9, renew_below=9), sequence=8)
    node.node.pass_by(SPREAD)
    assert node.wants_renewal()


def test_the_spread_is_the_bundles(node: BundleNode) -> None:
    """Only the controller knows how many nodes there are. Another spread alone has nobody attest at another time."""
    node.answered()
    node.given(bundle(5, version=8, renew_below=8, spread=1800), sequence=5)
    seconds = 1 + int(node_digest(NODE), 16) % 1800
    due = int(node.node.time) + seconds
    assert (node.state.renew_due, node.state.renew_spread) == (due, 1800)
    assert seconds > 240
    node.given(bundle(6, version=8, renew_below=8, spread=10), sequence=6)
    assert (node.state.renew_due, node.state.renew_spread) == (due, 1800)
    assert not node.wants_renewal()
    node.node.pass_by(seconds)
    assert node.wants_renewal()


def test_a_rotation_that_waits_no_more(node: BundleNode) -> None:
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    assert node.wants_renewal(), "a node that never reported"
    node.given(bundle(6, version=8), sequence=6)
    assert not node.wants_renewal()


def test_a_request_that_was_on_its_way_is_no_report(node: BundleNode) -> None:
    """It was made before the bundle came, with the version of then."""
    node.answered()
    before = node.certificates.trust_version()
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    node.renewed(before)
    assert node.wants_renewal()


def test_after_a_crash_the_report_of_the_next_certificate_is_not_taken_for_that_of_the_former(node: BundleNode) -> None:
    """The report is stored first, and the certificate of that request is lost."""
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    former = node.pair
    node.renewed(8)
    node.store.save_pair(Purpose.CLIENT, former)
    assert node.wants_renewal()


def test_what_cannot_be_reported_is_asked_once(node: BundleNode) -> None:
    """Another request would report no more: no loop of requests, each of which costs an entry in the journal."""
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    (node.store.folder / SSH_FILE).write_text("damaged")
    version = node.certificates.trust_version()
    node.renewed(version)
    assert not node.wants_renewal()


def test_files_first(node: BundleNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request before sshd's files are in place would report the former version."""
    node.answered()

    def refuse(file: Path, *arguments: str) -> None:
        raise sshd_files.UnwrittenFiles("ssh-keygen does not read it")

    with monkeypatch.context() as patched:
        patched.setattr(sshd_files, "_require_openssh", refuse)
        node.given(bundle(5, version=8, renew_below=8), sequence=5)
        node.node.pass_by(SPREAD)
        assert (node.state.is_in_place, node.state.renew_below) == (False, 0)
        assert not node.wants_renewal()
        node.answered(version=6)
        assert node.rejected == "OlderTrust", "a trust that is not in force yet is no excuse for an older one"
        assert node.store.ssh_state().trust_version == 7
    node.look()
    assert node.state.renew_below == 8


def test_who_may_have_nodes_attest(node: BundleNode) -> None:
    for payload, how in (
        (bundle(5, version=8, renew_below=8), {"keys": controller("x")}),
        (bundle(5, version=6, renew_below=6), {}),
    ):
        node.answered()
        node.given(payload, sequence=5, **how)
        node.node.pass_by(SPREAD)
        assert not node.wants_renewal()


def test_a_clock_that_was_ahead_does_not_hold_it(node: BundleNode) -> None:
    node.node.time += 90 * 60
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.time -= 80 * 60
    assert node.wants_renewal()


@pytest.mark.parametrize("name", [BUNDLE_STATE_FILE, CLUSTER_FILE])
def test_a_damaged_file_costs_no_certificate(node: BundleNode, name: str) -> None:
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    (node.store.folder / name).write_text("damaged")
    assert not node.wants_renewal()


def test_a_node_without_ssh_ignores_it(node: BundleNode) -> None:
    node.given(bundle(5, version=8, renew_below=8), sequence=5)
    node.node.pass_by(SPREAD)
    without = HostCertificates(node.node.configuration, node.store, node.clock, node.told.append)
    assert not without.wants_renewal(node.pair)
    assert without.trust_version() == 0


def test_another_cluster_begins_anew(node: BundleNode) -> None:
    node.given(bundle(9), sequence=9)
    node.given(bundle(10, version=6), sequence=10)
    node.store.forget_trust()
    assert not (node.store.folder / BUNDLE_FILE).exists()
    assert not (node.store.folder / BUNDLE_STATE_FILE).exists()
    assert not (node.store.folder / REVOCATIONS_FILE).exists()
    node.look()
    assert node.state == BundleState(), "nothing before sshd's files are withdrawn"
    assert node.store.ssh_state().is_of_former_cluster


def test_a_lock_that_another_process_holds(node: BundleNode) -> None:
    node.node.publish_bundle(signed(bundle(5), OLD, sequence=5))
    with node.store.ssh_lock(timeout=0):
        node.look()
    assert node.state == BundleState()
    node.look()
    assert node.state.sequence == 5


def test_the_state_survives() -> None:
    for rejection in (None, SSHRejection("Replayed", "old", NOW)):
        state = BundleState(5, True, "ab", 7, 2, NOW, rejection, "revoked_keys", NOW, 7, NOW, 240, 6, "cd", "ef")
        assert decode_bundle_state(encode_bundle_state(state)) == state


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"sequence": -1},
        {"sequence": True},
        {"is_in_place": 1},
        {"digest": 1},
        {"restored": None},
        {"renew_below": -1},
        {"renew_below": True},
        {"renew_due": "1"},
        {"renew_spread": -1},
        {"later_sequence": -1},
        {"later_digest": 1},
        {"later_revocations": None},
        {"more": 1},
        {"rejection": 1},
    ],
)
def test_a_damaged_state_is_not_taken_for_none(node: BundleNode, change: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(encode_bundle_state(BundleState(5))), **change})
    with pytest.raises(UnreadableBundleState):
        decode_bundle_state(text)
    (node.store.folder / BUNDLE_STATE_FILE).write_text(text)
    with pytest.raises(Damaged):
        node.look()
