"""The agent's step for the trust bundle: reads and judges the published one, and keeps sshd's files as it has them.

The order, each step durable before the next: the bundle is stored, the revocation list is replaced, then the trusted
authorities, then the states say so. After a crash, the published bundle is judged again.

A published bundle that does not count changes nothing. Neither does one that is gone, nor one that has run out: the
bundle in force stays, and ``status`` says so. A file that somebody removed or changed is restored from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    AcceptedNodeAccessTrust,
    MalformedStatement,
    NodeAccessTrust,
    StatementRefused,
    UnsupportedStatement,
    accept_node_access_trust,
)
from attestors.wire.statement.strict_json import canonical
from authenticator.api.errors import CallFailed
from authenticator.configuration import SSH, Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.node_api import Connect, connect
from authenticator.flow.pinning import authorities_of
from authenticator.flow.sshd_files import SSHDFiles, UnwrittenFiles
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
    _in_force: tuple[str, NodeAccessTrust] | None = None
    """Digest and content of the bundle in force, once it was loaded."""
    _told: str = ""
    """The last failure that was reported."""

    def turn(self) -> float:
        """Do what is due; returns the seconds until the next step is due.

        Raises:
            StoreUnusable: a state or the pin is unreadable, or cannot be written.
        """
        now = self.clock.monotonic()
        if now < self._next:
            return self._next - now
        self.store.open()
        found = self._published()
        try:
            with self.store.ssh_lock(timeout=0):
                self._turn(found)
        except LockHeld:
            pass  # another process writes sshd's files
        except UnwrittenFiles as failure:
            self._tell(f"the trust bundle is not in force: {failure}")
        self._next = now + LOOK_SECONDS
        return LOOK_SECONDS

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
        state = self.store.bundle_state()
        if found is not None:
            state, ssh_state = self._judge(found, state, ssh_state)
        if state.sequence:
            self._restore(state, ssh_state)

    # The published bundle

    def _judge(self, found: _Text, state: BundleState, ssh_state: SSHState) -> tuple[BundleState, SSHState]:
        try:
            accepted = self._accepted(found, state, ssh_state)
        except MalformedStatement as error:
            return self._reject(found, state, "Malformed", str(error)), ssh_state
        except UnsupportedStatement as error:
            return self._reject(found, state, "Unsupported", str(error)), ssh_state
        except StatementRefused as error:
            return self._reject(found, state, error.reason.value, str(error)), ssh_state
        except AccessRefused as error:
            return self._reject(found, state, error.reason.value, error.message), ssh_state
        return self._accept(found, accepted, state, ssh_state)

    def _accepted(self, found: _Text, state: BundleState, ssh_state: SSHState) -> AcceptedNodeAccessTrust:
        signed = statement.decode(found.content, maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
        accepted = accept_node_access_trust(
            signed,
            trusted=authorities_of(found.cluster),
            pin=self.store.pin(),
            last_sequence=max(state.sequence - 1, 0),
            now=self.clock.now(),
        )
        if accepted.sequence == state.sequence and _digest(_payload(accepted)) != state.digest:
            raise AccessRefused(
                AccessReason.CHANGED_TRUST, f"other content under version {state.sequence}, which is in force here"
            )
        require_not_older(accepted.trust, ssh_state)
        return accepted

    def _accept(
        self, found: _Text, accepted: AcceptedNodeAccessTrust, state: BundleState, ssh_state: SSHState
    ) -> tuple[BundleState, SSHState]:
        payload = _payload(accepted)
        self.store.save_bundle(found.content)
        SSHDFiles(self.ssh.folder).install_bundle(accepted.revocation_list, accepted.trust)
        now_trusted = replace(ssh_state, trust_version=accepted.trust.version, trust_digest=digest_of(accepted.trust))
        if now_trusted != ssh_state:
            self.store.save_ssh_state(now_trusted)
        now_in_force = BundleState(
            accepted.sequence,
            _digest(payload),
            accepted.trust.version,
            accepted.revocations.entries,
            accepted.not_after,
            restored=state.restored,
            restored_at=state.restored_at,
        )
        if now_in_force != state:
            self.store.save_bundle_state(now_in_force)
        if accepted.sequence != state.sequence:
            self.report(
                f"trust bundle {accepted.sequence} is in {self.ssh.folder}: version {accepted.trust.version} of the "
                f"trust, {accepted.revocations.entries} revocations"
            )
        self._in_force = (now_in_force.digest, payload)
        self._read = _Read(found.version, accepted.sequence, float("inf"))
        self._told = ""
        return now_in_force, now_trusted

    def _reject(self, found: _Text, state: BundleState, reason: str, message: str) -> BundleState:
        """Keep why the published bundle does not count, for ``status``."""
        self._read = _Read(found.version, state.sequence, self.clock.monotonic() + REFUSED_SECONDS)
        said = printable(message, _MAXIMUM_MESSAGE_CHARACTERS)
        before = state.rejection
        if before is not None and (before.reason, before.message) == (reason, said):
            return state
        self.report(f"the published trust bundle does not count: {reason}: {said}")
        rejected = replace(state, rejection=SSHRejection(reason, said, self.clock.now()))
        self.store.save_bundle_state(rejected)
        return rejected

    # The bundle in force

    def _restore(self, state: BundleState, ssh_state: SSHState) -> None:
        """Have sshd's files as the bundle has them. A newer trust may have come with a certificate since: it stays."""
        bundle = self._load(state)
        if bundle is None:
            self._read = _Read("", 0, float("-inf"))
            self._tell("the stored trust bundle is missing or damaged; the published one is read again")
            return
        trust = bundle.trust if bundle.trust.version == ssh_state.trust_version else None
        files = SSHDFiles(self.ssh.folder)
        restored = ", ".join(files.differ(bundle.revocation_list, trust))
        if restored:
            files.install_bundle(bundle.revocation_list, trust)
            self.report(f"{restored} in {self.ssh.folder} was missing or changed, and is restored: who did that?")
            self.store.save_bundle_state(replace(state, restored=restored, restored_at=self.clock.now()))

    def _load(self, state: BundleState) -> NodeAccessTrust | None:
        """The bundle in force; None if the store does not have it."""
        if self._in_force is None or self._in_force[0] != state.digest:
            self._in_force = None
            try:
                signed = statement.decode(self.store.bundle(), maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
            except (MalformedStatement, UnsupportedStatement):
                return None
            payload = signed.statement.payload
            if not isinstance(payload, NodeAccessTrust) or _digest(payload) != state.digest:
                return None
            self._in_force = (state.digest, payload)
        return self._in_force[1]

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.report(text)
        self._told = text


def _payload(accepted: AcceptedNodeAccessTrust) -> NodeAccessTrust:
    return NodeAccessTrust(accepted.trust, accepted.revocation_list)


def _digest(payload: NodeAccessTrust) -> str:
    return hashlib.sha256(canonical(payload.document()).encode("ascii")).hexdigest()
