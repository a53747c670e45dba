"""The agent's step for the trust bundle: reads and judges the published one, and keeps sshd's files as it has them.

The order, each step durable before the next: the bundle is stored, its state says that it is accepted, the revocation
list is replaced, then the trusted authorities, and the states say that all is in place. After a crash, or a file that
could not be written, it goes on from there: no earlier bundle comes back.

Last, it keeps until when this node attests anew, if the bundle has nodes do so: the certificates' own step does it.

A bundle whose trust is older than this node's counts for its revocations alone, and takes none back. The trust may have
come with a certificate before the bundle that has it, or the controller's state is from a backup.

A published bundle that does not count changes nothing. Neither does one that is gone, nor one that has run out: the
accepted one stays, and ``status`` says so. A file that somebody removed or changed is restored from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from attestors.wire import statement
from attestors.wire.names import Purpose
from attestors.wire.node_access import Trust
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list, parse_revocation_list, revoking_both
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    AcceptedNodeAccessTrust,
    MalformedStatement,
    NodeAccessTrust,
    StatementRefused,
    UnsupportedStatement,
    accept_node_access_trust,
)
from attestors.wire.statement.cluster_trust import node_digest
from authenticator.api.errors import CallFailed
from authenticator.configuration import SSH, Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.host_certificates import reported_by
from authenticator.flow.node_api import Connect, connect
from authenticator.flow.pinning import authorities_of
from authenticator.flow.sshd_files import SSHDFiles, UnwrittenFiles
from authenticator.flow.stored_bundle import bundle_digest, stored_bundle
from authenticator.model.answer import printable
from authenticator.model.bundle_state import BundleState
from authenticator.model.cluster import Cluster
from authenticator.model.node_access import AccessReason, AccessRefused, require_not_older
from authenticator.model.ssh_state import SSHRejection, SSHState, digest_of
from authenticator.store.lock import LockHeld
from authenticator.store.store import Store

LOOK_SECONDS: Final = 60.0
"""How often the bundle's version is read, and sshd's files are compared."""
REFUSED_SECONDS: Final = 600.0
"""How long a refused bundle is not read again: it may count later, after the clock or the pinned keys have changed."""
_MAXIMUM_MESSAGE_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True)
class _Read:
    """The published object that was read last."""

    version: str
    sequence: int
    """Of the bundle that was in force after that."""
    until: float
    """When it is read again, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A published bundle, as it came, with the cluster that it was read from."""

    version: str
    content: bytes
    cluster: Cluster


@dataclass
class TrustBundleStep:
    """The step; :meth:`turn` is called before certificates are renewed."""

    configuration: Configuration
    ssh: SSH
    store: Store
    clock: Clock
    report: Callable[[str], None]
    connect: Connect = connect
    _next: float = float("-inf")
    """When the next step is due, on the monotonic clock."""
    _read: _Read = _Read("", 0, float("-inf"))
    _accepted_one: tuple[str, NodeAccessTrust] | None = None
    """Digest and content of the accepted bundle, once it was loaded."""
    _told: str = ""
    """The last failure that was reported."""

    def turn(self) -> float:
        """Do what is due; returns the seconds until the next step is due, or the renewal.

        Raises:
            StoreUnusable: a state or the pin is unreadable, or cannot be written.
        """
        now = self.clock.monotonic()
        if now >= self._next:
            self._look(now)
        state, wall = self.store.bundle_state(), self.clock.now()
        left = self._next - now
        return min(left, float(state.renew_due - wall)) if state.renew_below and state.renew_due > wall else left

    def _look(self, now: float) -> None:
        self.store.open()
        found = self._published()
        try:
            with self.store.ssh_lock(timeout=0):
                self._turn(found)
        except LockHeld:
            pass  # another process writes sshd's files
        self._next = now + LOOK_SECONDS

    def _published(self) -> _Text | None:
        """The published bundle, if it is another one than was read last."""
        api = self.connect(self.configuration, self.store)
        cluster = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if api is None or cluster is None:
            return None
        try:
            version, read = api.trust_bundle_version(), self._read
            is_known = (version, self.store.bundle_state().sequence) == (read.version, read.sequence)
            if not version or (is_known and self.clock.monotonic() < read.until):
                return None
            content = api.trust_bundle()
        except CallFailed:
            return None  # renewals report it
        return None if content is None else _Text(version, content, cluster)

    def _turn(self, found: _Text | None) -> None:
        ssh_state = self.store.ssh_state()
        if ssh_state.is_of_former_cluster:
            return  # sshd's files are withdrawn first
        self._keep(self.store.bundle_state(), ssh_state)
        if found is not None:
            self._judge(found, self.store.bundle_state(), ssh_state)
            self._keep(self.store.bundle_state(), ssh_state)

    # The published bundle

    def _judge(self, found: _Text, state: BundleState, ssh_state: SSHState) -> None:
        try:
            accepted = self._accepted(found, state, ssh_state)
        except MalformedStatement as error:
            self._reject(found, state, "Malformed", str(error))
        except UnsupportedStatement as error:
            self._reject(found, state, "Unsupported", str(error))
        except StatementRefused as error:
            self._reject(found, state, error.reason.value, str(error))
        except AccessRefused as error:
            self._reject(found, state, error.reason.value, error.message)
        else:
            if _is_whole(accepted, state, ssh_state):
                self._accept(found, accepted, state)
            else:
                self._revoke(found, accepted, state, ssh_state)

    def _accepted(self, found: _Text, state: BundleState, ssh_state: SSHState) -> AcceptedNodeAccessTrust:
        signed = statement.decode(found.content, maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
        accepted = accept_node_access_trust(
            signed,
            trusted=authorities_of(found.cluster),
            pin=self.store.pin(),
            last_sequence=max(state.newest - 1, 0),
            now=self.clock.now(),
        )
        known = state.later_digest if state.later_sequence else state.digest
        if accepted.sequence == state.newest and bundle_digest(_payload(accepted)) != known:
            raise AccessRefused(
                AccessReason.CHANGED_TRUST,
                f"other content under version {state.newest}, which was accepted before",
            )
        if accepted.sequence != state.sequence and _is_whole(accepted, state, ssh_state):
            require_not_older(accepted.trust, ssh_state)
        return accepted

    def _revoke(self, found: _Text, accepted: AcceptedNodeAccessTrust, state: BundleState, ssh_state: SSHState) -> None:
        """Store its revocations with those in force; sshd's list is next."""
        try:
            revocations = revoking_both(self._in_force(state), accepted.revocations)
            encoded = encode_revocation_list(revocations)
        except SSHRefused as refused:
            self._reject(found, state, refused.reason.value, refused.message)
            return
        self.store.save_revocations(encoded)
        older = (
            f"version {accepted.trust.version} of the trust; this node has version {ssh_state.trust_version}, so its "
            "revocations alone count, with those in force"
        )
        revoking = replace(
            self._rejected(state, AccessReason.OLDER_TRUST.value, older),
            later_sequence=accepted.sequence,
            later_digest=bundle_digest(_payload(accepted)),
            later_revocations=_digest(encoded),
            revocations=revocations.entries,
            not_after=accepted.not_after,
            is_in_place=state.is_in_place and _digest(encoded) == state.later_revocations,
        )
        if revoking != state:
            self.store.save_bundle_state(revoking)
        self._read = _Read(found.version, state.sequence, float("inf"))

    def _in_force(self, state: BundleState) -> RevocationList:
        """What is revoked now. A file that is damaged holds nothing; then that of the accepted bundle counts."""
        bundle = self._load(state) if state.sequence else None
        former = RevocationList(0, 0) if bundle is None else parse_revocation_list(bundle.revocation_list)
        if not state.later_sequence:
            return former
        try:
            return revoking_both(former, parse_revocation_list(self.store.revocations()))
        except SSHRefused:
            return former

    def _accept(self, found: _Text, accepted: AcceptedNodeAccessTrust, state: BundleState) -> None:
        """Store it; its files are next."""
        payload = _payload(accepted)
        self.store.save_bundle(found.content)
        is_new = accepted.sequence != state.sequence
        now_accepted = BundleState(
            accepted.sequence,
            state.is_in_place and not is_new,
            bundle_digest(payload),
            accepted.trust.version,
            accepted.revocations.entries,
            accepted.not_after,
            restored=state.restored,
            restored_at=state.restored_at,
            renew_below=state.renew_below,
            renew_due=state.renew_due,
            renew_spread=state.renew_spread,
        )
        if now_accepted != state:
            self.store.save_bundle_state(now_accepted)
        self._accepted_one = (now_accepted.digest, payload)
        self._read = _Read(found.version, accepted.sequence, float("inf"))

    def _reject(self, found: _Text, state: BundleState, reason: str, message: str) -> None:
        """Keep why the published bundle does not count, for ``status``."""
        self._read = _Read(found.version, state.sequence, self.clock.monotonic() + REFUSED_SECONDS)
        rejected = self._rejected(state, reason, message)
        if rejected != state:
            self.store.save_bundle_state(rejected)

    def _rejected(self, state: BundleState, reason: str, message: str) -> BundleState:
        said = printable(message, _MAXIMUM_MESSAGE_CHARACTERS)
        before = state.rejection
        if before is not None and (before.reason, before.message) == (reason, said):
            return state
        self.report(f"the published trust bundle does not count: {reason}: {said}")
        return replace(state, rejection=SSHRejection(reason, said, self.clock.now()))

    # The accepted bundle

    def _keep(self, state: BundleState, ssh_state: SSHState) -> None:
        """Have sshd's files as the bundle has them. A newer trust may have come with a certificate since: it stays."""
        if not state.newest:
            return
        bundle = self._load(state) if state.sequence else None
        revocation_list = self._revocation_list(state, bundle)
        if (state.sequence and bundle is None) or not revocation_list:
            self._read = _Read("", 0, float("-inf"))
            self._tell("the stored trust bundle is missing or damaged; the published one is read again")
            return
        trust = None
        if bundle is not None:
            version, present = bundle.trust.version, ssh_state.trust_version
            is_trusted = version == present or (version > present and not state.is_in_place)
            trust = bundle.trust if is_trusted else None
        files = SSHDFiles(self.ssh.folder)
        different = ", ".join(files.differ(revocation_list, trust))
        if different and state.is_in_place:
            # The alarm first: it must not be lost if the agent ends now.
            self.report(f"{different} in {self.ssh.folder} was missing or changed; restoring it from the trust bundle")
            state = replace(state, restored=different, restored_at=self.clock.now())
            self.store.save_bundle_state(state)
        try:
            files.install_bundle(revocation_list, trust)
        except UnwrittenFiles as failure:
            self._tell(f"the trust bundle is not in force: {failure}")
            return
        if not state.is_in_place:
            state = self._in_place(state, trust, ssh_state)
        if bundle is not None and state.renew_below != bundle.renew_below:
            self._renew(bundle.renew_below, bundle.renew_spread_seconds, state)
        self._told = ""

    def _revocation_list(self, state: BundleState, bundle: NodeAccessTrust | None) -> bytes:
        """The list in force; empty if the store does not have it."""
        if not state.later_sequence:
            return b"" if bundle is None else bundle.revocation_list
        stored = self.store.revocations()
        return stored if _digest(stored) == state.later_revocations else b""

    def _in_place(self, state: BundleState, trust: Trust | None, ssh_state: SSHState) -> BundleState:
        if trust is not None and trust.version != ssh_state.trust_version:
            trusted = replace(ssh_state, trust_version=trust.version, trust_digest=digest_of(trust))
            self.store.save_ssh_state(trusted)
        what = "its revocations alone" if state.later_sequence else f"version {state.trust_version} of the trust"
        self.report(f"trust bundle {state.newest} is in {self.ssh.folder}: {what}, {state.revocations} revocations")
        state = replace(state, is_in_place=True)
        self.store.save_bundle_state(state)
        return state

    def _renew(self, below: int, spread: int, state: BundleState) -> None:
        """Keep what nodes are told to report, and when this one does, if it has not yet."""
        # In the future, so that the agent wakes for it even if it has looked at the certificates in this turn.
        seconds = 1 + int(node_digest(self.configuration.node_name), 16) % spread
        due = self.clock.now() + seconds if below else 0
        self.store.save_bundle_state(replace(state, renew_below=below, renew_due=due, renew_spread=spread))
        pair = self.store.pair(Purpose.CLIENT)
        if pair is not None and reported_by(self.store, pair) < below:
            self.report(
                f"the controller has nodes report version {below} of the trust; the client certificate is renewed in "
                f"{seconds} s"
            )

    def _load(self, state: BundleState) -> NodeAccessTrust | None:
        """The accepted bundle; None if the store does not have it."""
        if self._accepted_one is None or self._accepted_one[0] != state.digest:
            self._accepted_one = None
            payload = stored_bundle(self.store, state.digest)
            if payload is None:
                return None
            self._accepted_one = (state.digest, payload)
        return self._accepted_one[1]

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.report(text)
        self._told = text


def _is_whole(accepted: AcceptedNodeAccessTrust, state: BundleState, ssh_state: SSHState) -> bool:
    """Whether the bundle counts for its trust, too, and not for its revocations alone. The accepted one stays whole: a
    newer trust came with a certificate since.
    """
    return accepted.sequence == state.sequence or accepted.trust.version >= ssh_state.trust_version


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _payload(accepted: AcceptedNodeAccessTrust) -> NodeAccessTrust:
    return NodeAccessTrust(
        accepted.trust, accepted.revocation_list, accepted.renew_below, accepted.renew_spread_seconds
    )
