"""The agent's step for trust: reads the published statement, judges it, and changes the CAs in this node's turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from attestors.wire import statement
from attestors.wire.statement import (
    AcceptedTrust,
    MalformedStatement,
    StatementRefused,
    UnsupportedStatement,
    accept_trust,
)
from attestors.wire.statement.verification import bundle_text
from authenticator.api.errors import CallFailed
from authenticator.configuration import Configuration, Trust
from authenticator.flow.authority_files import AuthorityFiles, UnusableFiles
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.kubelet import Kubelet
from authenticator.flow.node_api import Connect, NodeApi, connect
from authenticator.flow.pinning import authorities_of
from authenticator.flow.trust_change import Done, TrustChange, Underway, certificates_of, settled
from authenticator.model.cluster import Cluster
from authenticator.model.trust_state import Change, FormerFile, Rejection, TrustState
from authenticator.store.lock import LockHeld
from authenticator.store.store import Store

LOOK_SECONDS: Final = 60.0
"""How often the statement is read."""
WAIT_SECONDS: Final = 120
"""How long a kubelet may take to be healthy, and its Node to be Ready; less in short turns."""
LONGEST_SECONDS: Final = 300.0
"""Bound of one call: the restart command, and calls to the API server."""

_FIRST_PAUSE_SECONDS: Final = 600
_LONGEST_PAUSE_SECONDS: Final = 6 * 3600


@dataclass
class TrustStep:
    """The step; :meth:`turn` is called before certificates are renewed."""

    configuration: Configuration
    trust: Trust
    store: Store
    clock: Clock
    report: Callable[[str], None]
    kubelet: Kubelet
    connect: Connect = connect
    _next: float = float("-inf")
    """When the next step is due, on the monotonic clock."""

    def __post_init__(self) -> None:
        self._change = TrustChange(self.configuration, self.store, self.clock, self.report, self.kubelet, self.connect)

    def turn(self) -> float:
        """Do what is due; returns the seconds until the next step is due.

        Raises:
            StoreUnusable: the state or the pin is unreadable, or cannot be written.
        """
        now = self.clock.monotonic()
        if now < self._next:
            return self._next - now
        self.store.open()
        try:
            with self.store.trust_lock():
                seconds = self._turn()
        except LockHeld:
            seconds = LOOK_SECONDS
        self._next = self.clock.monotonic() + seconds
        return seconds

    def _turn(self) -> float:
        state = self.store.trust_state()
        if state.change is not None:
            return self._carry_on(state, state.change)
        api = self.connect(self.configuration, self.store)
        cluster = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if api is None or cluster is None:
            return LOOK_SECONDS
        try:
            text = api.statement()
        except CallFailed:
            return LOOK_SECONDS  # renewals report it
        return LOOK_SECONDS if text is None else self._published(state, text, cluster, api)

    def _published(self, state: TrustState, text: bytes, cluster: Cluster, api: NodeApi) -> float:
        sequence = 0
        try:
            signed = statement.decode(text)
            sequence = signed.statement.sequence
            if sequence == state.sequence:
                return self._in_force(state)
            accepted = accept_trust(
                signed,
                trusted=authorities_of(cluster),
                pin=self.store.pin(),
                last_sequence=max(state.sequence, state.highest - 1),
                now=self.clock.now(),
            )
            files = self._files().read()
        except MalformedStatement as error:
            return self._reject(state, "Malformed", str(error), sequence)
        except UnsupportedStatement as error:
            return self._reject(state, "Unsupported", str(error), sequence)
        except StatementRefused as error:
            return self._reject(state, error.reason.value, str(error), sequence)
        except UnusableFiles as error:
            return self._reject(state, error.reason, str(error), sequence)
        if self._is_in_place(accepted, files):
            self.store.save_trust_state(settled(state, sequence, state.superseded))
            return LOOK_SECONDS
        return self._change_in_turn(state, accepted, files, cluster, api)

    def _change_in_turn(
        self,
        state: TrustState,
        accepted: AcceptedTrust,
        files: tuple[FormerFile, ...],
        cluster: Cluster,
        api: NodeApi,
    ) -> float:
        now, sequence, rejection = self.clock.now(), accepted.sequence, state.rejection
        if rejection is not None and rejection.sequence == sequence and now < rejection.until:
            return min(LOOK_SECONDS, float(rejection.until - now))
        begin, end = accepted.trust.next_turn(self.configuration.node_name, now)
        if now < begin:
            return min(LOOK_SECONDS, float(begin - now))
        if now >= (begin + end) // 2:  # the second half is for nodes that began in the first and have to turn back
            return min(LOOK_SECONDS, float(end - now))
        try:
            ready = api.is_ready()
        except CallFailed as error:
            return self._reject(state, "NodeUnknown", str(error), sequence)
        if not ready:
            return self._reject(state, "NodeNotReady", "the Node is not Ready, so nothing is begun", sequence)
        change = Change(
            bundle_text(accepted), sequence, files, wait=min(WAIT_SECONDS, accepted.trust.turn_seconds // 2)
        )
        trusted = (*cluster.authority_hashes, *(authority.key_hash.text for authority in accepted.authorities))
        state = replace(state.with_lineage(trusted), highest=max(state.highest, sequence), change=change)
        self.store.save_trust_state(state)
        self.report(f"changing the trusted CAs by statement {sequence}; the kubelet is restarted")
        return self._carry_on(state, change)

    def _carry_on(self, state: TrustState, change: Change) -> float:
        progress = self._change.carry_on(state, change)
        if isinstance(progress, Underway):
            return progress.seconds
        if isinstance(progress, Done):
            self.report(f"the kubelet trusts the CAs of statement {change.sequence}")
            return LOOK_SECONDS
        undone = progress.change
        return self._reject(replace(state, change=None), undone.reason, undone.message, undone.sequence, begun=True)

    def _is_in_place(self, accepted: AcceptedTrust, files: tuple[FormerFile, ...]) -> bool:
        """Whether the files say the same already, and the evidence of the stored certificate named its first CA.

        So it is on nodes that joined after the statement was published: their kubelets have read these CAs.
        """
        wanted = tuple(authority.der for authority in accepted.authorities)
        known = self.store.known_cluster()
        named = known is not None and known.cluster.ca_cert_hash == accepted.authorities[0].key_hash
        return named and all(certificates_of(file.content) == wanted for file in files)

    def _in_force(self, state: TrustState) -> float:
        if state.rejection is not None:
            self.store.save_trust_state(replace(state, rejection=None))
        return LOOK_SECONDS

    def _reject(self, state: TrustState, reason: str, message: str, sequence: int, *, begun: bool = False) -> float:
        """Keep why the statement is not in force, for ``status``. A change that was begun is tried again later."""
        now, before = self.clock.now(), state.rejection
        at, failures, until = now, 0, now
        if before is not None and before.sequence == sequence:
            failures, until = before.failures, before.until
            at = before.at if before.reason == reason else now
        if begun:
            until = now + min(_FIRST_PAUSE_SECONDS * 2 ** min(failures, 10), _LONGEST_PAUSE_SECONDS)
            failures += 1
        rejection = Rejection(reason, message, sequence, at, failures, until)
        rejected = replace(state, rejection=rejection)
        if rejected != self.store.trust_state():
            self.report(f"TrustRejected: {reason}: {message}")
            self.store.save_trust_state(rejected)
        return LOOK_SECONDS

    def _files(self) -> AuthorityFiles:
        trust = self.trust
        return AuthorityFiles(self.store.authority_file, trust.authority_files, trust.authority_files_may_be_missing)
