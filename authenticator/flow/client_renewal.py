"""The agent's step for renewals: reads what the controller asks for, and has the client certificate renewed in time.

It renews nothing itself. It keeps which certificate is due and when, and the certificates' own step renews it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography import x509

from attestors.wire import statement
from attestors.wire.names import Purpose
from attestors.wire.statement import (
    ClientRenewal,
    MalformedStatement,
    StatementRefused,
    UnsupportedStatement,
    accept_client_renewal,
)
from authenticator.api.errors import CallFailed
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.node_api import Connect, connect
from authenticator.flow.pinning import authorities_of
from authenticator.model.cluster import Cluster
from authenticator.model.pair import Pair
from authenticator.model.renewal_state import RenewalState
from authenticator.model.trust_state import pair_digest
from authenticator.store.lock import LockHeld
from authenticator.store.store import Store

LOOK_SECONDS: Final = 60.0
"""How often the statement is read."""


@dataclass
class RenewalStep:
    """The step; :meth:`turn` is called before certificates are renewed."""

    configuration: Configuration
    store: Store
    clock: Clock
    report: Callable[[str], None]
    connect: Connect = connect
    _next: float = float("-inf")
    """When the next step is due, on the monotonic clock."""
    _refused: str = ""
    """The last refusal that was reported."""

    def turn(self) -> float:
        """Do what is due; returns the seconds until the next step is due, or the renewal.

        Raises:
            StoreUnusable: the state cannot be read or written.
        """
        now = self.clock.monotonic()
        if now >= self._next:
            self.store.open()
            try:
                with self.store.trust_lock():
                    self._look()
            except LockHeld:
                pass
            self._next = now + LOOK_SECONDS
        return self._seconds(self._next - now)

    def _seconds(self, until_next: float) -> float:
        """At most until the next look. A renewal that has failed has its own pauses."""
        state, now = self.store.renewal_state(), self.clock.now()
        return min(until_next, float(state.due - now)) if state.certificate and state.due > now else until_next

    def _look(self) -> None:
        api = self.connect(self.configuration, self.store)
        cluster = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if api is None or cluster is None:
            return
        try:
            text = api.renewal()
        except CallFailed:
            return  # renewals report it
        if text is not None:
            self._published(text, cluster)

    def _published(self, text: bytes, cluster: Cluster) -> None:
        state = self.store.renewal_state()
        try:
            signed = statement.decode(text)
            if signed.statement.sequence == state.sequence:
                return
            accepted = accept_client_renewal(
                signed,
                trusted=authorities_of(cluster),
                pin=self.store.pin(),
                last_sequence=state.sequence,
                now=self.clock.now(),
            )
        except UnsupportedStatement:
            return
        except (MalformedStatement, StatementRefused) as error:
            self._refuse(f"a renewal of the client certificate was asked for, and does not count: {error}")
            return
        self._refused = ""
        self._accept(accepted, signed.statement.sequence)

    def _accept(self, accepted: ClientRenewal, sequence: int) -> None:
        pair = self.store.pair(Purpose.CLIENT)
        if pair is None or authority_of(pair) != accepted.authority:
            self.store.save_renewal_state(RenewalState(sequence))
            return
        due = accepted.due(self.configuration.node_name)
        self.store.save_renewal_state(RenewalState(sequence, pair_digest(pair), due))
        seconds = max(0, due - self.clock.now())
        self.report(f"the controller has the client certificate renewed, by statement {sequence}; due in {seconds} s")

    def _refuse(self, message: str) -> None:
        if message != self._refused:
            self.report(message)
        self._refused = message


def authority_of(pair: Pair) -> str:
    """The key identifier of the CA that signed the certificate (RFC 5280 4.2.1.1), hexadecimal; may be empty."""
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    try:
        found = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except x509.ExtensionNotFound:
        return ""
    return (found.value.key_identifier or b"").hex()
