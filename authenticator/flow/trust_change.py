"""One change of the CAs that this node's kubelet trusts: forward, and back if it fails.

The order, each step durable before the next:

1. the state announces the change, and keeps the former content of the files;
2. the files are replaced, one rename each;
3. the state says so, and names the running kubelet; the kubelet is restarted;
4. another process of the kubelet is healthy, and its Node is Ready, after a new heartbeat, over a connection that only
   the new CAs verify;
5. the state says that the statement is in force, and that both certificates are due for renewal.

Until then, no evidence is made for a renewal. So the next evidence names the CA that the running kubelet has read. If a
step fails, the former files are restored and the kubelet is restarted again. After a crash, the same step is repeated.
Both contents are CAs of the cluster, so a kubelet that starts in between works with either.

No step waits. systemd restarts the agent with the kubelet, and starts the kubelet only after the agent said that its
certificates are there: an agent that waited for the kubelet first would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from attestors.net.kubeconfig import UnusableValue, certificates_in
from attestors.wire.names import Purpose
from authenticator.api.errors import CallFailed
from authenticator.configuration import Configuration
from authenticator.flow.authority_files import replace_content, restore
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.kubelet import Kubelet, KubeletFailed
from authenticator.flow.node_api import Connect
from authenticator.model.failures import StoreUnusable
from authenticator.model.trust_state import Change, Direction, Phase, TrustState, pair_digest
from authenticator.store.store import Store

POLL_SECONDS: Final = 1.0
_LONGEST_RETRY_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class Underway:
    """The change goes on; the next step is due after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The statement is in force."""


@dataclass(frozen=True, slots=True)
class Undone:
    """The former CAs are in force again."""

    change: Change


Progress: TypeAlias = Underway | Done | Undone


class _Failed(Exception):
    """The change cannot end in its direction."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass
class TrustChange:
    """Carries changes on. The caller holds the trust lock."""

    configuration: Configuration
    store: Store
    clock: Clock
    report: Callable[[str], None]
    kubelet: Kubelet
    connect: Connect
    _restarted: tuple[object, ...] = ()
    """The restart that this process has asked for."""
    _heartbeat: str = field(default="")
    """The first heartbeat that was seen after it."""

    def carry_on(self, state: TrustState, change: Change) -> Progress:
        """Take the next step of the change in ``state``.

        Raises:
            StoreUnusable: the state cannot be written.
        """
        try:
            change = self._begun(state, change)
        except _Failed as failure:
            return self._failed(state, change, failure)
        try:
            self._require_finished(change)
        except _Failed as failure:
            now = self.clock.now()
            if now < change.until <= now + change.wait:
                return Underway(POLL_SECONDS)
            return self._failed(state, change, failure)
        if change.direction is Direction.BACK:
            return Undone(change)
        self.store.save_trust_state(settled(state, change.sequence, self._superseded()))
        return Done()

    def _begun(self, state: TrustState, change: Change) -> Change:
        """The change after its files are written and the restart was asked for."""
        if change.phase is Phase.WRITING:
            self._write(change)
            until = self.clock.now() + change.wait
            change = replace(change, phase=Phase.RESTARTING, kubelet=self.kubelet.process(), until=until)
            self.store.save_trust_state(replace(state, change=change))
        # A kubelet other than the former one is the new one, or is about to start: another process of this agent asked.
        restart = (change.sequence, change.direction, change.attempts)
        if self._restarted != restart and self.kubelet.process() == change.kubelet:
            self._restarted, self._heartbeat = restart, ""
            try:
                self.kubelet.restart()
            except KubeletFailed as error:
                raise _Failed("KubeletFailed", str(error)) from None
        return change

    def _write(self, change: Change) -> None:
        try:
            with self.store.bootstrap_lock():
                if change.direction is Direction.BACK:
                    restore(change.former)
                    return
                replace_content(change.former, change.bundle)
        except OSError as error:
            raise _Failed("FileNotWritten", f"{error.filename}: {error.strerror}") from None
        except StoreUnusable as error:
            raise _Failed("FileNotWritten", str(error)) from None
        present = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if present is None or certificates_of(present.certificate_authority) != certificates_of(change.bundle):
            raise _Failed("NotManaged", f"{self.configuration.kubeconfig} does not name the CA file of the store")

    def _require_finished(self, change: Change) -> None:
        """Another kubelet than before is healthy; forward, its Node is Ready too.

        A heartbeat that differs from the first one after the restart is of the new kubelet.
        """
        process = self.kubelet.process()
        if process and process == change.kubelet:
            raise _Failed("KubeletFailed", "the restart command did not end the kubelet's process")
        problem = self.kubelet.problem()
        if problem:
            raise _Failed("KubeletFailed", problem)
        if change.direction is Direction.BACK:
            return
        try:
            api = self.connect(self.configuration, self.store)
            if api is None:
                raise _Failed("NodeNotReady", "there is no certificate to ask the API server with")
            heartbeat = api.heartbeat()
            self._heartbeat = self._heartbeat or heartbeat
            if heartbeat == self._heartbeat:
                raise _Failed("NodeNotReady", "the kubelet sends no heartbeat")
            if not api.is_ready():
                raise _Failed("NodeNotReady", "the Node is not Ready")
        except CallFailed as error:
            raise _Failed("NodeNotReady", str(error)) from None

    def _failed(self, state: TrustState, change: Change, failure: _Failed) -> Progress:
        """Turn back; on the way back, try again, later each time."""
        if change.direction is Direction.FORWARD:
            self.report(f"TrustRejected: {failure.reason}: {failure}; restoring the former CAs")
            back = replace(
                change,
                direction=Direction.BACK,
                phase=Phase.WRITING,
                attempts=0,
                reason=failure.reason,
                message=str(failure),
            )
            seconds = 0.0
        else:
            self.report(f"the former CAs are not in force again: {failure}")
            back = replace(change, phase=Phase.WRITING, attempts=change.attempts + 1)
            seconds = float(min(60 * 2 ** min(change.attempts, 10), _LONGEST_RETRY_SECONDS))
        self.store.save_trust_state(replace(state, change=back))
        return Underway(max(seconds, POLL_SECONDS))

    def _superseded(self) -> tuple[tuple[Purpose, str], ...]:
        pairs = ((purpose, self.store.pair(purpose)) for purpose in Purpose)
        return tuple((purpose, pair_digest(pair)) for purpose, pair in pairs if pair is not None)


def settled(state: TrustState, sequence: int, superseded: tuple[tuple[Purpose, str], ...]) -> TrustState:
    """The state with that statement in force."""
    highest = max(state.highest, sequence)
    return replace(state, sequence=sequence, highest=highest, superseded=superseded, change=None, rejection=None)


def certificates_of(pem: str) -> tuple[bytes, ...]:
    """The certificates of a file, DER, in their order; empty if there is none."""
    try:
        return certificates_in(pem.encode("ascii"))
    except (UnusableValue, UnicodeEncodeError):
        return ()
