"""Host certificates of sshd: asked for with each client certificate, accepted, and laid out for sshd.

Nothing here costs the kubelet its certificate. A host key that cannot be read is left out of the request. A text that
is not accepted is dropped, and what is in place stays.

The text is stored before the client certificate, and removed after the last file is written: a crash loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509

from attestors.wire.node_access import Found, NodeAccessRefused, NodeAccessText, Trust, parse
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh_host_keys import LARGEST_TRUST_VERSION, HostKeysClaim, HostKeysRefused, claim_with, encode
from authenticator.configuration import SSH, Configuration
from authenticator.flow.clock import Clock
from authenticator.flow.host_keys import OwnHostKey, UnusableHostKey, read_host_key
from authenticator.flow.sshd_files import SSHDFiles, UnwrittenFiles
from authenticator.flow.stored_bundle import trust_in_force
from authenticator.model.answer import printable
from authenticator.model.bundle_state import BundleState
from authenticator.model.certificate import load_key, public_key_info
from authenticator.model.failures import StoreUnusable
from authenticator.model.node_access import AcceptedAccess, AccessReason, AccessRefused, UnknownTrust, accept_access
from authenticator.model.pair import Pair
from authenticator.model.ssh_state import SSHRejection, SSHState, digest_of
from authenticator.store.lock import LockHeld
from authenticator.store.store import Store

_MAXIMUM_MESSAGE_CHARACTERS: Final = 512


class HostCertificates:
    """Everything about SSH of this node. Without ``ssh`` in the configuration, nothing is done."""

    def __init__(self, configuration: Configuration, store: Store, clock: Clock, report: Callable[[str], None]) -> None:
        self._configuration, self._store, self._clock = configuration, store, clock
        self._report_now = report
        self._reported: set[str] = set()

    def extensions(self, key: str) -> Sequence[x509.UnrecognizedExtension]:
        """The host keys with their proofs and the version of the trust in sshd's files, for a request with this key
        (PEM); none if there is no host key to certify.
        """
        ssh = self._configuration.ssh
        if ssh is None:
            return ()
        spki = public_key_info(load_key(key))
        try:
            claims = tuple([claim_with(one.private_key, spki) for one in self._host_keys(ssh)])
            if not claims:
                return ()
            value = encode(HostKeysClaim(self._trust_version(), claims))
        except HostKeysRefused as refused:
            self._report(f"no host certificate is requested: {refused}")
            return ()
        return (x509.UnrecognizedExtension(x509.ObjectIdentifier(ssh.host_keys_oid), value),)

    def _trust_version(self) -> int:
        """Of the files of this node's sshd; 0 for none, and for an unreadable state, which may be of any version."""
        try:
            return self._store.ssh_state().trust_version
        except StoreUnusable as failure:
            self._report(f"the version of the trust in sshd's files is unknown: {failure}")
            return 0

    def trust_version(self) -> int:
        """Up to which version of the trust this node need not attest anew, once a request that is made now is answered.

        That of the files of sshd. Where the request cannot report it, that which nodes are told to attest counts, too:
        another request would report no more.
        """
        if self._configuration.ssh is None:
            return 0
        return max(self._trust_version(), self._bundle_state().renew_below)

    def wants_renewal(self, pair: Pair) -> bool:
        """Whether this node attests anew now, because the trust bundle asks nodes to report what they trust."""
        if self._configuration.ssh is None:
            return False
        state = self._bundle_state()
        return state.renew_below > 0 and state.wants_renewal(reported_by(self._store, pair), self._clock.now())

    def _bundle_state(self) -> BundleState:
        """That of no bundle, if it is unreadable: the step for the bundle reports that."""
        try:
            return self._store.bundle_state()
        except StoreUnusable:
            return BundleState()

    def receive(self, found: Found) -> None:
        """Keep what stands behind a new client certificate; the caller stores that next, under its lock."""
        if self._configuration.ssh is None:
            return
        try:
            self._store.save_received_access(found.content if isinstance(found, NodeAccessText) else b"")
        except StoreUnusable as failure:
            self._report(f"the host certificate is lost: {failure}")

    def settle(self) -> None:
        """Lay out for sshd what was received, and withdraw what a former cluster said."""
        ssh = self._configuration.ssh
        if ssh is None:
            return
        try:
            with self._store.ssh_lock(timeout=0):
                self._settle(ssh)
        except LockHeld:
            return  # another process does it
        except (StoreUnusable, UnwrittenFiles) as failure:
            self._report(f"the files of sshd are as they were: {failure}")

    def _settle(self, ssh: SSH) -> None:
        state = self._store.ssh_state()
        files = SSHDFiles(ssh.folder)
        if state.is_of_former_cluster:
            files.withdraw(ssh.host_keys)
            state = SSHState()
            self._store.save_ssh_state(state)
        for text in self._store.take_received_access():
            self._store.save_ssh_state(self._after(text, ssh, files, state))
            self._store.finish_received_access()

    def _after(self, text: bytes, ssh: SSH, files: SSHDFiles, state: SSHState) -> SSHState:
        """The state after the text, whose files are in place if it is accepted."""
        now = self._clock.now()
        if not text:
            return SSHState(state.trust_version, state.trust_digest, state.rejection, unanswered_at=now)
        own: dict[PublicKey, Path] = {one.public_key: one.file for one in self._host_keys(ssh)}
        try:
            accepted = self._accepted(text, own, files, state)
        except (NodeAccessRefused, AccessRefused) as refused:
            message = printable(refused.message, _MAXIMUM_MESSAGE_CHARACTERS)
            self._report(f"the controller's text about SSH is not accepted: {refused.reason}: {message}")
            rejection = SSHRejection(str(refused.reason), message, now)
            return SSHState(state.trust_version, state.trust_digest, rejection)
        name = self._configuration.node_name
        files.install(accepted, own, node_name=name, is_first=not state.trust_version, now=now)
        self._report(f"the host certificate and version {accepted.trust.version} of the trust are in {ssh.folder}")
        return SSHState(accepted.trust.version, digest_of(accepted.trust))

    def _accepted(self, text: bytes, own: dict[PublicKey, Path], files: SSHDFiles, state: SSHState) -> AcceptedAccess:
        accepted = accept_access(
            parse(text),
            host_keys=tuple(own),
            node_name=self._configuration.node_name,
            state=state,
            in_force=self._trust_in_force(state),
            now=self._clock.now(),
        )
        if state.trust_version:  # else the files are of another origin, such as the image
            _require_not_older(accepted, own, files)
        return accepted

    def _trust_in_force(self, state: SSHState) -> Trust | UnknownTrust:
        try:
            return trust_in_force(self._store, state)
        except StoreUnusable:
            return UnknownTrust()

    def _host_keys(self, ssh: SSH) -> Iterator[OwnHostKey]:
        for file in ssh.host_keys:
            try:
                yield read_host_key(file)
            except UnusableHostKey as unusable:
                self._report(f"the host key is left out: {unusable}")

    def _report(self, text: str) -> None:
        """Once for each text: the agent comes here at every turn."""
        if text not in self._reported:
            self._reported.add(text)
            self._report_now(text)


def reported_by(store: Store, pair: Pair) -> int:
    """Up to which version of the trust this node need not attest anew, by the request of that certificate.

    A damaged file counts as an answer: the renewal that it causes is no remedy, and would not be the last.
    """
    try:
        known = store.known_cluster()
    except StoreUnusable:
        return LARGEST_TRUST_VERSION
    return 0 if known is None else known.reported.version_of(pair)


def _require_not_older(accepted: AcceptedAccess, own: dict[PublicKey, Path], files: SSHDFiles) -> None:
    """A certificate never replaces one that was issued later.

    Raises:
        AccessRefused: it would.
    """
    for signed in accepted.host_certificates:
        made = signed.certificate
        for present in files.certificate(own[made.public_key]):
            before = present.certificate
            if before.public_key == made.public_key and before.valid_after > made.valid_after:
                raise AccessRefused(AccessReason.OLDER_CERTIFICATE, "the host certificate in place was issued later")
