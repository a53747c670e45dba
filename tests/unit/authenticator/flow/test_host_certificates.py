"""From a request with host keys to the files of sshd; whatever goes wrong, what is in place stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.names import SSH_HOST_KEYS_OID
from attestors.wire.node_access import NodeAccessText, NoNodeAccess
from attestors.wire.ssh.keys import HostKey
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import decode, verify
from authenticator.configuration import SSH, Configuration
from authenticator.flow.clock import Clock
from authenticator.flow.host_certificates import HostCertificates
from authenticator.flow.sshd_files import REVOKED_KEYS_FILE, USER_AUTHORITIES_FILE, SSHDFiles
from authenticator.model.ssh_state import SSHState
from authenticator.store.store import SSH_FILE, SSH_RECEIVED_FILE, SSH_TAKEN_FILE, Store
from tests.support.node_access import DAY, NOW, certificate, text_of
from tests.support.openssh import private_key, write_private_key
from tests.unit.authenticator.builders import NODE, key_pem
from tests.unit.authenticator.builders import private_key as request_key

KEY: HostKey = public_key_of(private_key("ed25519"))
SPKI = request_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
GOOD = text_of(certificate(KEY))
THIEF = private_key("ed25519", 666)


class Host:
    """A node with an sshd."""

    def __init__(self, folder: Path, *, on: bool = True) -> None:
        self.key_file = folder / "ssh_host_ed25519_key"
        self.ssh = SSH((self.key_file,), folder=folder / "node-access")
        self.store = Store(folder / "pki")
        self.store.open()
        self.now, self.told = NOW, list[str]()
        nowhere = folder / "nowhere"
        self.configuration = Configuration(
            "keyed-mac", {}, NODE, "", "1.2.3", nowhere, nowhere, self.store.folder, 1.0, None, None
        )
        if on:
            self.configuration = Configuration(
                "keyed-mac", {}, NODE, "", "1.2.3", nowhere, nowhere, self.store.folder, 1.0, None, None, ssh=self.ssh
            )
        write_private_key(self.key_file, private_key("ed25519"))

    @property
    def certificates(self) -> HostCertificates:
        """As a process of its own has them."""
        clock = Clock(lambda: float(self.now))
        return HostCertificates(self.configuration, self.store, clock, self.told.append)

    def given(self, text: bytes) -> None:
        self.certificates.receive(NodeAccessText(text) if text else NoNodeAccess())
        self.certificates.settle()

    @property
    def files(self) -> dict[str, bytes]:
        folder = self.ssh.folder
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}

    @property
    def left(self) -> set[str]:
        return {path.name for path in self.store.folder.iterdir() if path.suffix in {".received", ".taken"}}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_host_keys_are_in_the_request_with_a_proof(host: Host) -> None:
    (extension,) = host.certificates.extensions(key_pem())
    assert extension.oid.dotted_string == SSH_HOST_KEYS_OID
    assert verify(decode(extension.value), SPKI) == (KEY,)
    assert host.told == []


def trust_version(host: Host) -> int:
    (extension,) = host.certificates.extensions(key_pem())
    return decode(extension.value).trust_version


def test_the_request_tells_the_trust_in_sshds_files(host: Host) -> None:
    assert trust_version(host) == 0
    host.certificates.receive(NodeAccessText(GOOD))
    assert trust_version(host) == 0  # not in place yet
    host.certificates.settle()
    assert trust_version(host) == 7
    (host.store.folder / SSH_FILE).write_text("damaged")
    assert trust_version(host) == 0


def test_nothing_happens_unless_ssh_is_on(tmp_path: Path) -> None:
    host = Host(tmp_path, on=False)
    before = sorted(tmp_path.rglob("*"))
    assert host.certificates.extensions(key_pem()) == ()
    host.given(GOOD)
    host.given(b"")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unusable_host_key_is_left_out(host: Host, tmp_path: Path) -> None:
    second = write_private_key(tmp_path / "ssh_host_ecdsa_key", private_key("nistp256"))
    host.configuration = _with(host, SSH((host.key_file, second), folder=host.ssh.folder))
    host.key_file.chmod(0o644)
    (extension,) = host.certificates.extensions(key_pem())
    assert verify(decode(extension.value), SPKI) == (public_key_of(private_key("nistp256")),)
    second.unlink()
    assert host.certificates.extensions(key_pem()) == ()
    assert any("others may read" in text for text in host.told)


def test_too_many_bytes_of_host_keys_are_no_request_for_a_host_certificate(host: Host, tmp_path: Path) -> None:
    second = write_private_key(tmp_path / "copy", private_key("ed25519"))
    host.configuration = _with(host, SSH((host.key_file, second), folder=host.ssh.folder))
    assert host.certificates.extensions(key_pem()) == ()
    assert "HostKeyRepeated" in host.told[0]


def _with(host: Host, ssh: SSH) -> Configuration:
    found = host.configuration
    return Configuration(
        found.provider, {}, NODE, "", "1.2.3", found.kubeconfig, found.kubeconfig, found.store, 1.0, None, None, ssh=ssh
    )


def test_a_good_text_is_laid_out(host: Host) -> None:
    host.given(GOOD)
    assert host.files["ssh_host_ed25519_key-cert.pub"] == f"{certificate(KEY).line}\n".encode()
    assert host.store.ssh_state().trust_version == 7
    assert host.left == set()


BAD: dict[str, bytes] = {
    "VersionUnknown": b"# node-access v2\n",
    "TextMalformed": GOOD[:-1],
    "LineUnexpected": GOOD + b"\n",
    "TextTooLarge": b"# node-access v1\n" + b"x" * 17 * 1024,
    "UnknownAuthority": text_of(certificate(KEY, authority=THIEF), version=8),
    "ForeignHostKey": text_of(certificate(public_key_of(THIEF)), version=8),
    "OtherNode": text_of(certificate(KEY, node="worker-2"), version=8),
    "Expired": text_of(certificate(KEY, valid_before=NOW - 1), version=8),
    "NotYetValid": text_of(certificate(KEY, valid_after=NOW + 301), version=8),
    "OlderTrust": text_of(certificate(KEY), version=6),
    "ChangedTrust": text_of(certificate(KEY), user_authorities=(public_key_of(THIEF),)),
    "OlderCertificate": text_of(certificate(KEY, valid_after=NOW - 61), version=8),
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_text_changes_no_file(host: Host, reason: str) -> None:
    host.given(GOOD)
    before = host.files
    host.given(BAD[reason])
    assert host.files == before
    state = host.store.ssh_state()
    assert (state.trust_version, state.rejection is not None and state.rejection.reason) == (7, reason)
    assert host.left == set()
    assert any(reason in text for text in host.told)
    host.given(text_of(certificate(KEY, serial=2), version=8))
    assert host.store.ssh_state().rejection is None
    assert host.store.ssh_state().trust_version == 8


def test_a_bad_text_without_files_makes_none(host: Host) -> None:
    host.given(BAD["UnknownAuthority"])
    assert host.files == {}


def test_an_older_controller_changes_nothing(host: Host) -> None:
    host.given(GOOD)
    before = host.files
    host.now += DAY
    host.given(b"")
    assert host.files == before
    assert host.store.ssh_state() == SSHState(7, host.store.ssh_state().trust_digest, unanswered_at=NOW + DAY)
    host.given(GOOD)
    assert host.store.ssh_state().unanswered_at == 0


def test_a_process_that_ends_after_any_step_loses_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step fails once; the next process finishes."""
    for step in ("take_received_access", "save_ssh_state", "finish_received_access"):
        with monkeypatch.context() as patched:
            patched.setattr(Store, step, _killed)
            with pytest.raises(_Killed):
                host.given(GOOD)
        assert host.left & {SSH_RECEIVED_FILE, SSH_TAKEN_FILE}
        host.certificates.settle()
        assert host.left == set()
        assert host.store.ssh_state().trust_version == 7
        (host.store.folder / SSH_FILE).unlink()
    assert "ssh_host_ed25519_key-cert.pub" in host.files


class _Killed(BaseException):
    """The process is gone."""


def _killed(*_: Any) -> Any:
    raise _Killed


def test_files_that_cannot_be_written_are_written_later(host: Host, tmp_path: Path) -> None:
    host.ssh.folder.mkdir()
    host.ssh.folder.chmod(0o777)
    keeping = host.certificates
    keeping.receive(NodeAccessText(GOOD))
    for _ in range(3):
        keeping.settle()
    assert len([text for text in host.told if "as they were" in text]) == 1
    assert host.left == {SSH_TAKEN_FILE}
    host.ssh.folder.chmod(0o755)
    host.certificates.settle()
    assert "ssh_host_ed25519_key-cert.pub" in host.files
    assert host.left == set()


def test_the_newest_text_counts(host: Host) -> None:
    host.certificates.receive(NodeAccessText(BAD["Expired"]))
    host.given(GOOD)
    assert host.store.ssh_state().rejection is None
    assert host.store.ssh_state().trust_version == 7


def test_another_process_that_holds_the_lock_does_the_work(host: Host) -> None:
    host.certificates.receive(NodeAccessText(GOOD))
    with host.store.ssh_lock(timeout=0):
        host.certificates.settle()
        assert host.files == {}
    host.certificates.settle()
    assert host.files


def test_a_damaged_state_is_not_replaced(host: Host) -> None:
    """It says which version of the trust this node has, and versions never go back."""
    host.given(GOOD)
    (host.store.folder / SSH_FILE).write_text("{}")
    before = host.files
    host.given(text_of(certificate(KEY), version=1))
    assert host.files == before
    assert (host.store.folder / SSH_FILE).read_text() == "{}"


def test_a_store_that_takes_no_text_costs_the_host_certificate_alone(host: Host) -> None:
    (host.store.folder / f".{SSH_RECEIVED_FILE}.partial").mkdir()
    host.certificates.receive(NodeAccessText(GOOD))
    assert "the host certificate is lost" in host.told[0]


def test_the_revocation_list_is_not_made_a_second_time(host: Host) -> None:
    host.given(GOOD)
    (host.ssh.folder / REVOKED_KEYS_FILE).unlink()
    host.given(text_of(certificate(KEY, serial=2), version=8))
    assert REVOKED_KEYS_FILE not in host.files


def test_another_cluster_takes_the_trust_of_the_former_one_away(host: Host) -> None:
    host.given(text_of(certificate(KEY), version=900))
    host.certificates.receive(NodeAccessText(GOOD))
    host.store.forget_trust()
    assert host.left == set()
    host.certificates.settle()
    assert host.files[USER_AUTHORITIES_FILE] == b""
    assert SSHDFiles(host.ssh.folder).certificate(host.key_file) == ()
    host.given(GOOD)
    assert host.store.ssh_state().trust_version == 7
    assert host.files[USER_AUTHORITIES_FILE]


def test_leaving_a_cluster_with_a_damaged_state_takes_its_trust_away(host: Host) -> None:
    host.given(GOOD)
    (host.store.folder / SSH_FILE).write_text("{}")
    host.store.forget_trust()
    host.certificates.settle()
    assert host.files[USER_AUTHORITIES_FILE] == b""


def test_a_node_without_ssh_forgets_as_before(host: Host) -> None:
    host.store.forget_trust()
    assert not (host.store.folder / SSH_FILE).exists()
