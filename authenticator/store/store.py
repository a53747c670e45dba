"""The store: a folder with this node's files. Every method is one step that a crash leaves done or not done."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from attestors.wire.names import Purpose
from attestors.wire.ssh.krl import MAXIMUM_LIST_BYTES
from attestors.wire.statement import MAXIMUM_NODE_ACCESS_TRUST_BYTES, NotPinned, PinnedController
from authenticator.model.attempt import Attempt, UnreadableAttempt, decode_attempt, encode_attempt
from authenticator.model.bundle_state import (
    BundleState,
    UnreadableBundleState,
    decode_bundle_state,
    encode_bundle_state,
)
from authenticator.model.certificate import UnusableCertificate, check_pair
from authenticator.model.cluster import BearerToken, Bootstrap, ClientCertificate, Cluster, Credential, InvalidCluster
from authenticator.model.failures import StoreUnusable
from authenticator.model.pair import Pair, UnreadablePair, parse_pair
from authenticator.model.renewal_state import RenewalState, decode_renewal, encode_renewal
from authenticator.model.reported_trust import ReportedTrust
from authenticator.model.ssh_state import SSHState, UnreadableSSHState, decode_ssh_state, encode_ssh_state
from authenticator.model.trust_state import (
    Pin,
    TrustState,
    UnreadableTrust,
    decode_pin,
    decode_state,
    encode_pin,
    encode_state,
)
from authenticator.store.files import TooLargeFile, read_bounded, remove, wipe, write_atomically
from authenticator.store.lock import locked
from authenticator.stored_credential import BOOTSTRAP_FILE, CLIENT_PAIR_FILE, CLUSTER_FILE

AUTHORITY_FILE: Final = "kubelet-authenticator-ca.crt"
SERVING_PAIR_FILE: Final = "kubelet-authenticator-serving.pem"
PIN_FILE: Final = "kubelet-authenticator-controller.json"
TRUST_FILE: Final = "kubelet-authenticator-trust.json"
SSH_FILE: Final = "kubelet-authenticator-ssh.json"
SSH_RECEIVED_FILE: Final = "kubelet-authenticator-ssh.received"
"""The text behind a new client certificate, as it came; empty without one."""
SSH_TAKEN_FILE: Final = "kubelet-authenticator-ssh.taken"
"""The same, while it is worked on."""
BUNDLE_FILE: Final = "kubelet-authenticator-ssh-bundle.statement"
"""The trust bundle in force, as it was published."""
BUNDLE_STATE_FILE: Final = "kubelet-authenticator-ssh-bundle.json"
REVOCATIONS_FILE: Final = "kubelet-authenticator-ssh-bundle.krl"
"""The revocation list in force, if a later bundle, whose trust is older than this node's, revokes more."""
RENEWAL_FILE: Final = "kubelet-authenticator-renewal.json"

_MAXIMUM_BYTES: Final = 512 * 1024
_BOOTSTRAP_LOCK_SECONDS: Final = 30.0
_SSH_LOCK_SECONDS: Final = 30.0
_DAMAGED: Final = (ValueError, KeyError, TypeError, RecursionError)
_PUBLIC: Final = 0o644
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class TooLarge(StoreUnusable):
    """A file of the store is larger than this program writes."""


class Damaged(StoreUnusable):
    """A file of the store has other content than this program writes."""


@dataclass(frozen=True, slots=True)
class KnownCluster:
    """The cluster of the stored certificates, and what the client certificate was requested with."""

    cluster: Cluster
    used: str
    """Digest of the bootstrap credential; may be empty."""
    provider: str = ""
    """The attestor of the client certificate's signer; empty if an earlier version stored the certificate."""
    provider_id: str = ""
    """The provider ID that the client certificate was requested for; empty as above."""
    reported: ReportedTrust = field(default_factory=ReportedTrust)
    """What the client certificate's request reported about SSH."""


class Store:
    """The folder, by default the kubelet's ``pki`` folder. Reading needs no lock; writing does (:meth:`lock`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self) -> None:
        """Create the folder if it is missing, and check that only this user can write to it.

        Raises:
            StoreUnusable: it cannot be created, belongs to another user, or other users may write to it.
        """
        with self._reporting("open"):
            missing = takewhile(lambda folder: not folder.exists(), self.folder.parents)
            with contextlib.suppress(FileExistsError):  # if it is not a folder
                for folder in (*reversed([*missing]), self.folder):  # `parents=True` would use the umask for their mode
                    folder.mkdir(mode=0o755, exist_ok=True)
            self._require_exclusive()

    def check_folder(self) -> None:
        """Check, for reading, that only this user can write to the folder; a missing folder counts as empty.

        Raises:
            StoreUnusable: it belongs to another user, or other users may write to it.
        """
        with self._reporting("open"), contextlib.suppress(FileNotFoundError):
            self._require_exclusive()

    def _require_exclusive(self) -> None:
        found = self.folder.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise StoreUnusable(f"the store {self.folder} is not a folder: name another one with --store")
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
            raise StoreUnusable(
                f"the store {self.folder} must belong to the user who runs kubelet-authenticator (uid {os.geteuid()}), "
                "and must not be writable by others: chown and chmod go-w, or name another folder with --store"
            )

    @contextlib.contextmanager
    def lock(self, purpose: Purpose, *, timeout: float) -> Iterator[None]:
        """Hold the exclusive right to request a certificate of ``purpose``, for as long as the request takes.

        Raises:
            LockHeld: another process held it for ``timeout`` seconds.
            StoreUnusable: the lock file cannot be opened.
        """
        with self._locked(purpose.value, timeout):
            yield

    @contextlib.contextmanager
    def bootstrap_lock(self) -> Iterator[None]:
        """Hold the exclusive right to write the bootstrap credential's copy, the cluster and the kubelet's kubeconfig.

        No call to the API server is made while it is held, so that ``prepare`` does not wait for a running request. A
        holder of a purpose's lock may take this lock, but never the other way round.

        Raises:
            LockHeld: another process held it for a long time.
            StoreUnusable: the lock file cannot be opened.
        """
        with self._locked("bootstrap", _BOOTSTRAP_LOCK_SECONDS):
            yield

    @contextlib.contextmanager
    def _locked(self, what: str, timeout: float) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with self._reporting("lock"):
                stack.enter_context(locked(self.folder / f"kubelet-authenticator-{what}.lock", timeout=timeout))
            yield

    def pair_file(self, purpose: Purpose) -> Path:
        """The path of the pair."""
        return self.folder / (CLIENT_PAIR_FILE if purpose is Purpose.CLIENT else SERVING_PAIR_FILE)

    def pair(self, purpose: Purpose) -> Pair | None:
        """The stored pair; None if there is none.

        Raises:
            StoreUnusable: the file is not a pair, or certificate and key do not belong together. This program never
            leaves
                such a file, so a person should look at it.
        """
        path = self.pair_file(purpose)
        text = self._read(path)
        if text is None:
            return None
        try:
            pair = parse_pair(text)
            check_pair(pair)
        except (UnreadablePair, UnusableCertificate) as error:
            raise StoreUnusable(f"{path}: {error}; move the file away, and supply a bootstrap kubeconfig") from None
        return pair

    def save_pair(self, purpose: Purpose, pair: Pair) -> None:
        """Store a pair; the same step removes the former one."""
        with self._reporting("write"):
            write_atomically(self.pair_file(purpose), pair.encode())

    @property
    def authority_file(self) -> Path:
        """The path of the cluster's CA certificates, which the kubelet's kubeconfig names."""
        return self.folder / AUTHORITY_FILE

    def authority(self) -> str:
        """The cluster's CA certificates, PEM; empty without the file."""
        return self._read(self.authority_file) or ""

    def save_authority(self, certificates: str) -> bool:
        """Store the cluster's CA certificates, PEM, readable for everyone; returns whether they changed."""
        if self._read(self.authority_file) == certificates:
            return False
        with self._reporting("write"):
            write_atomically(self.authority_file, certificates, mode=_PUBLIC)
        return True

    def set_aside(self, purpose: Purpose) -> None:
        """Rename a pair of another cluster, so that it is no longer used."""
        path = self.pair_file(purpose)
        with self._reporting("rename"), contextlib.suppress(FileNotFoundError):
            os.replace(path, path.with_suffix(".former.pem"))

    def attempt(self, purpose: Purpose) -> Attempt:
        """The pending request and the pause, if any.

        An unreadable file counts as no attempt: its key has no certificate yet, so a new key is as good.
        """
        try:
            text = self._read(self._attempt_file(purpose))
            return Attempt() if text is None else decode_attempt(text)
        except (TooLarge, UnreadableAttempt):
            return Attempt()

    def save_attempt(self, purpose: Purpose, attempt: Attempt) -> None:
        """Store the attempt; an empty one removes the file."""
        path = self._attempt_file(purpose)
        with self._reporting("write"):
            if attempt == Attempt():
                remove(path)
            else:
                write_atomically(path, encode_attempt(attempt))

    def bootstrap(self) -> Bootstrap | None:
        """The copied bootstrap credential; None if there is none, or none any more.

        Raises:
            StoreUnusable: the copy is unreadable.
        """
        path = self.folder / BOOTSTRAP_FILE
        text = self._read(path)
        if text is None or "\0" in text:  # another process is wiping it, or a crash interrupted that
            return None
        try:
            document = json.loads(text)
            return Bootstrap(_cluster_from(document["cluster"]), _credential_from(document["credential"]))
        except _DAMAGED:
            raise StoreUnusable(f"{path} is damaged: remove it, and supply the bootstrap kubeconfig again") from None

    def save_bootstrap(self, bootstrap: Bootstrap) -> None:
        """Store a copy of a bootstrap credential."""
        document = {"cluster": _cluster_document(bootstrap.cluster), "credential": _credential_document(bootstrap)}
        with self._reporting("write"):
            write_atomically(self.folder / BOOTSTRAP_FILE, json.dumps(document, indent=1) + "\n")

    def keeps_bootstrap(self) -> bool:
        """Whether a copy must still be wiped, readable or not."""
        return os.path.lexists(self.folder / BOOTSTRAP_FILE)

    def wipe_bootstrap(self) -> None:
        """Wipe the bootstrap credential."""
        with self._reporting("wipe"):
            wipe(self.folder / BOOTSTRAP_FILE)

    def known_cluster(self) -> KnownCluster | None:
        """The cluster of the stored certificates; None before the first certificate.

        Raises:
            StoreUnusable: the file is unreadable.
        """
        path = self.folder / CLUSTER_FILE
        text = self._read(path)
        if text is None:
            return None
        try:
            document = json.loads(text)
            cluster, used = _cluster_from(document["cluster"]), _text(document, "usedBootstrap")
            provider, provider_id = (_text({name: ""} | document, name) for name in ("provider", "providerID"))
            return KnownCluster(cluster, used, provider, provider_id, ReportedTrust.parse(document.get("sshTrust")))
        except _DAMAGED:
            raise StoreUnusable(f"{path} is damaged: remove it, and supply a bootstrap kubeconfig") from None

    def save_known_cluster(self, known: KnownCluster) -> None:
        """Store the cluster."""
        document = {
            "cluster": _cluster_document(known.cluster),
            "usedBootstrap": known.used,
            "provider": known.provider,
            "providerID": known.provider_id,
            "sshTrust": known.reported.document(),
        }
        with self._reporting("write"):
            write_atomically(self.folder / CLUSTER_FILE, json.dumps(document, indent=1) + "\n")

    def pin(self) -> Pin:
        """The controller's pinned keys.

        Raises:
            Damaged: it has other content. Nothing replaces it: that would be a way around the pin.
            StoreUnusable: the file is unreadable.
        """
        path = self.folder / PIN_FILE
        text = self._read(path)
        try:
            return NotPinned() if text is None else decode_pin(text)
        except UnreadableTrust as error:
            raise Damaged(f"{path}: {error}; restore it, or let the Machine be replaced") from None

    def save_pin(self, pin: PinnedController) -> None:
        """Store the controller's keys."""
        with self._reporting("write"):
            write_atomically(self.folder / PIN_FILE, encode_pin(pin))

    def trust_state(self) -> TrustState:
        """The state of this node's trust.

        Raises:
            Damaged: it has other content.
            StoreUnusable: the file is unreadable.
        """
        path = self.folder / TRUST_FILE
        text = self._read(path)
        try:
            return TrustState() if text is None else decode_state(text)
        except UnreadableTrust as error:
            raise Damaged(f"{path}: {error}; restore it, or let the Machine be replaced") from None

    def save_trust_state(self, state: TrustState) -> None:
        """Store the state of this node's trust."""
        with self._reporting("write"):
            write_atomically(self.folder / TRUST_FILE, encode_state(state))

    def renewal_state(self) -> RenewalState:
        """The last accepted statement about a renewal.

        Raises:
            StoreUnusable: the file is unreadable.
        """
        try:
            text = self._read(self.folder / RENEWAL_FILE)
        except TooLarge:
            return RenewalState()
        return RenewalState() if text is None else decode_renewal(text)

    def save_renewal_state(self, state: RenewalState) -> None:
        """Store it."""
        with self._reporting("write"):
            write_atomically(self.folder / RENEWAL_FILE, encode_renewal(state))

    def forget_trust(self) -> None:
        """Remove the pinned keys, and the states of the trust and of a renewal: this node joins another cluster.

        What the former cluster said about SSH is no longer to count.
        """
        with self._reporting("remove"):
            remove(self.folder / PIN_FILE)
            remove(self.folder / TRUST_FILE)
            remove(self.folder / RENEWAL_FILE)
        if not any(os.path.lexists(self.folder / name) for name in (SSH_FILE, BUNDLE_FILE, BUNDLE_STATE_FILE)):
            return
        with self.ssh_lock(timeout=_SSH_LOCK_SECONDS):
            for name in (SSH_RECEIVED_FILE, SSH_TAKEN_FILE, BUNDLE_FILE, BUNDLE_STATE_FILE, REVOCATIONS_FILE):
                with self._reporting("remove"):
                    remove(self.folder / name)
            self.save_ssh_state(SSHState(is_of_former_cluster=True))

    def ssh_state(self) -> SSHState:
        """What this node accepted about SSH.

        Raises:
            Damaged: it has other content. Nothing replaces it: that would let versions go back.
            StoreUnusable: the file is unreadable.
        """
        path = self.folder / SSH_FILE
        text = self._read(path)
        try:
            return SSHState() if text is None else decode_ssh_state(text)
        except UnreadableSSHState as error:
            raise Damaged(f"{path}: {error}; restore it, or let the Machine be replaced") from None

    def save_ssh_state(self, state: SSHState) -> None:
        """Store what this node accepted about SSH. The caller holds :meth:`ssh_lock`."""
        with self._reporting("write"):
            write_atomically(self.folder / SSH_FILE, encode_ssh_state(state))

    def bundle(self) -> bytes:
        """The text of the trust bundle in force; empty if it is missing or too large.

        Raises:
            StoreUnusable: the file is unreadable.
        """
        with self._reporting("read"):
            try:
                return read_bounded(self.folder / BUNDLE_FILE, MAXIMUM_NODE_ACCESS_TRUST_BYTES)
            except (FileNotFoundError, TooLargeFile):
                return b""

    def save_bundle(self, text: bytes) -> None:
        """Store it. The caller holds :meth:`ssh_lock`."""
        with self._reporting("write"):
            write_atomically(self.folder / BUNDLE_FILE, text)

    def revocations(self) -> bytes:
        """The list in ``REVOCATIONS_FILE``; empty if it is missing or too large.

        Raises:
            StoreUnusable: the file is unreadable.
        """
        with self._reporting("read"):
            try:
                return read_bounded(self.folder / REVOCATIONS_FILE, MAXIMUM_LIST_BYTES)
            except (FileNotFoundError, TooLargeFile):
                return b""

    def save_revocations(self, revocation_list: bytes) -> None:
        """Store it. The caller holds :meth:`ssh_lock`."""
        with self._reporting("write"):
            write_atomically(self.folder / REVOCATIONS_FILE, revocation_list)

    def bundle_state(self) -> BundleState:
        """What this node knows about the trust bundle in force.

        Raises:
            Damaged: it has other content. Nothing replaces it: that would let revocations be taken back.
            StoreUnusable: the file is unreadable.
        """
        path = self.folder / BUNDLE_STATE_FILE
        text = self._read(path)
        try:
            return BundleState() if text is None else decode_bundle_state(text)
        except UnreadableBundleState as error:
            raise Damaged(f"{path}: {error}; restore it, or let the Machine be replaced") from None

    def save_bundle_state(self, state: BundleState) -> None:
        """Store it. The caller holds :meth:`ssh_lock`."""
        with self._reporting("write"):
            write_atomically(self.folder / BUNDLE_STATE_FILE, encode_bundle_state(state))

    def save_received_access(self, text: bytes) -> None:
        """Store the text behind a new client certificate. The caller holds the lock of client certificates."""
        with self._reporting("write"):
            write_atomically(self.folder / SSH_RECEIVED_FILE, text)

    def take_received_access(self) -> tuple[bytes, ...]:
        """The newest received text, if one is left to work on. The caller holds :meth:`ssh_lock`.

        It is returned again until :meth:`finish_received_access`: a crash loses nothing.
        """
        taken = self.folder / SSH_TAKEN_FILE
        with self._reporting("read"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.folder / SSH_RECEIVED_FILE, taken)
            with contextlib.suppress(FileNotFoundError):
                return (read_bounded(taken, _MAXIMUM_BYTES),)
        return ()

    def finish_received_access(self) -> None:
        """There is nothing left to do with the text."""
        with self._reporting("remove"):
            remove(self.folder / SSH_TAKEN_FILE)

    @contextlib.contextmanager
    def ssh_lock(self, *, timeout: float) -> Iterator[None]:
        """Hold the exclusive right to write sshd's files and the state of SSH.

        A holder takes no other lock.

        Raises:
            LockHeld: another process holds it.
            StoreUnusable: the lock file cannot be opened.
        """
        with self._locked("ssh", timeout):
            yield

    @contextlib.contextmanager
    def trust_lock(self) -> Iterator[None]:
        """Hold the exclusive right to change the CAs that the kubelet trusts.

        A holder may take any other lock, but never the other way round.

        Raises:
            LockHeld: another process holds it.
            StoreUnusable: the lock file cannot be opened.
        """
        with self._locked("trust", 0.0):
            yield

    def _attempt_file(self, purpose: Purpose) -> Path:
        return self.folder / f"kubelet-authenticator-{purpose.value}.attempt.json"

    def _read(self, path: Path) -> str | None:
        with self._reporting("read"):
            try:
                return read_bounded(path, _MAXIMUM_BYTES).decode("utf-8", "replace")
            except TooLargeFile as error:
                raise TooLarge(f"{path}: {error.strerror}; move it away") from error
            except FileNotFoundError:
                return None

    @contextlib.contextmanager
    def _reporting(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = error.filename or self.folder
            raise StoreUnusable(f"cannot {verb} {what}: {error.strerror}") from error


def _cluster_document(cluster: Cluster) -> dict[str, str]:
    return {
        "server": cluster.server,
        "certificateAuthority": cluster.certificate_authority,
        "tlsServerName": cluster.tls_server_name,
    }


def _cluster_from(document: dict[str, Any]) -> Cluster:
    try:
        return Cluster(
            _text(document, "server"), _text(document, "certificateAuthority"), _text(document, "tlsServerName")
        )
    except InvalidCluster as error:
        raise ValueError from error


def _credential_document(bootstrap: Bootstrap) -> dict[str, str]:
    credential = bootstrap.credential
    if isinstance(credential, BearerToken):
        return {"token": credential.token}
    return {"certificate": credential.certificate, "key": credential.key}


def _credential_from(document: dict[str, Any]) -> Credential:
    if set(document) == {"token"}:
        return BearerToken(_text(document, "token"))
    return ClientCertificate(_text(document, "certificate"), _text(document, "key"))


def _text(document: dict[str, Any], name: str) -> str:
    value = document[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a text")
    return value
