"""The node's certificates: which is there, and how the next one comes to be there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from cryptography import x509

from attestors.contract import IPAddress
from attestors.wire.names import Purpose
from authenticator.api.server import CALL_SECONDS, ApiServer
from authenticator.configuration import Configuration, Serving
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig, take_in
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation
from authenticator.flow.exchange import Exchange
from authenticator.flow.own_addresses import LastingAddresses, serving_names
from authenticator.flow.patience import Deadline
from authenticator.model.attempt import Attempt, Pause, Subject, pause_after, pause_in_force, times
from authenticator.model.chain import alternative_names_of
from authenticator.model.cluster import Bootstrap, ClientCertificate, Cluster, Credential
from authenticator.model.failures import (
    ApiUnavailable,
    CredentialRefused,
    Denied,
    ExitCode,
    Failure,
    InvalidConfiguration,
    NoCredential,
    NoEvidence,
    StillPending,
    UntrustedServer,
)
from authenticator.model.pair import Pair
from authenticator.model.plan import (
    PLUGIN_SHARE,
    Expired,
    Join,
    KeepStill,
    Next,
    Nothing,
    Renew,
    Use,
    next_step,
    renewal_time,
)
from authenticator.store.lock import LockHeld
from authenticator.store.store import KnownCluster, Store

RENEWAL_PATIENCE_SECONDS: Final = 5.0
"""How long a kubelet that has a valid certificate waits for the next one; then it goes on with the one it has."""
RETRY_SECONDS: Final = 15
"""When client-go is to ask again while a renewal is under way."""

_LATE: Final = 20
"""In the last twentieth of a serving certificate's life no pause holds: it is asked for at every turn."""
_FLOOR_SECONDS: Final = 30
"""After a certificate came that is due for renewal at once, because it is so short or the clock so wrong."""

_FAILURES: Final[dict[int, type[Failure]]] = {
    kind.exit_code: kind for kind in (Denied, CredentialRefused, NoEvidence, ApiUnavailable, StillPending)
}


@dataclass
class NodeCertificates:
    """The client and the serving certificate of this node."""

    configuration: Configuration
    store: Store
    clock: Clock = field(default_factory=Clock)
    report: Callable[[str], None] = lambda _: None
    cluster: Cluster | None = None
    """The cluster as client-go names it; None where it does not say."""
    load_attestation: Callable[[Configuration], Attestation] = Attestation.of

    def __post_init__(self) -> None:
        self._attestation: Attestation | None = None
        self._own_addresses = LastingAddresses(self.clock)

    @property
    def attestation(self) -> Attestation:
        """The attestor, loaded when it is first needed.

        Raises:
            InvalidConfiguration: it cannot be.
        """
        if self._attestation is None:
            self._attestation = self.load_attestation(self.configuration)
        return self._attestation

    def client(self, *, share: float = PLUGIN_SHARE, patience: float = RENEWAL_PATIENCE_SECONDS) -> Use:
        """A valid client certificate, and until when there is nothing to do.

        ``share`` is the share of its life from which on it is renewed; ``patience`` the seconds to wait for a renewal
        before the former certificate is returned once more.

        Raises:
            Failure: there is none.
        """
        self.store.open()
        deadline = Deadline(self.clock, self.configuration.timeout)
        next_thing = self._next(share)
        if isinstance(next_thing, Use) and not self.store.keeps_bootstrap():
            return next_thing
        try:
            with self._locked(next_thing, deadline):
                return self._client_locked(share, patience, deadline)
        except LockHeld:
            if isinstance(next_thing, (Use, Renew)):
                return Use(next_thing.pair, self.clock.now() + RETRY_SECONDS)
            raise

    def serving(self, *, share: float = PLUGIN_SHARE) -> Use:
        """A valid serving certificate for this node's names, and until when there is nothing to do.

        It is asked for with the client certificate.

        Raises:
            Failure: there is none.
        """
        require_serving(self.attestation)
        self.store.open()
        deadline = Deadline(self.clock, self.configuration.timeout)
        with self.store.lock(Purpose.SERVING, timeout=deadline.left()):
            pair = self.store.pair(Purpose.SERVING)
            now = self.clock.now()
            # A default route that is gone for a moment makes no other node of it.
            stored = _addresses_of(pair) if pair is not None else ()
            due = pair is None or now >= pair.renewal
            names, addresses = serving_names(
                self.configuration.serving or Serving(),
                self.configuration.node_name,
                lambda: self._own_addresses.now(stored, due=due),
            )
            current = pair is not None and now < pair.not_after and _is_for(pair, names, addresses)
            if pair is not None and current and now < renewal_time(pair, share):
                return Use(pair, renewal_time(pair, share))
            # Other names are another question: whoever mended the refused ones need not wait.
            asked = f"{self.configuration.asker}serving {','.join((*names, *addresses))}"
            pause = self.store.attempt(Purpose.SERVING).pause
            if pause is not None and pause_in_force(pause, credential=asked, now=now):
                if pair is None or not current:
                    raise _paused(pause)
                if now < pair.not_after - pair.lifetime // _LATE:
                    return Use(pair, min(pause.until, pair.not_after - pair.lifetime // _LATE), pause.message)
            client = self.store.pair(Purpose.CLIENT)
            if client is None or now >= client.not_after:
                raise NoCredential("a serving certificate is asked for with the client certificate, and there is none")
            try:
                fresh = self._exchange(
                    Purpose.SERVING, self._cluster(), _certificate(client), asked, deadline, names, addresses
                )
            except Failure as failure:
                if pair is None or not current:
                    raise
                self.report(f"the serving certificate was not renewed: {failure}")
                return Use(pair, min(now + RETRY_SECONDS, pair.not_after), str(failure))
            with self.store.bootstrap_lock():
                if self.store.pair(Purpose.CLIENT) is None:
                    raise StillPending("meanwhile, the client certificate was set aside: what came is not used")
                self.store.save_pair(Purpose.SERVING, fresh)
            self.store.save_attempt(Purpose.SERVING, Attempt())
            return Use(fresh, renewal_time(fresh, share))

    def check(self) -> None:
        """See that the attestor can do what is configured; asks nobody.

        Raises:
            InvalidConfiguration: it cannot, and waiting does not mend it.
        """
        _ = self.attestation
        if self.configuration.serving is not None:
            require_serving(self.attestation)

    # The client certificate, behind the lock.

    def _client_locked(self, share: float, patience: float, deadline: Deadline) -> Use:
        with self.store.bootstrap_lock():
            self._tidy()
            take_in(self.configuration, self.store, now=self.clock.now())
        next_thing = self._next(share)
        if isinstance(next_thing, Use):
            return next_thing
        if isinstance(next_thing, Renew):
            return self._renew(next_thing.pair, share, Deadline(self.clock, min(patience, self.configuration.timeout)))
        if isinstance(next_thing, Join):
            return self._join(next_thing.bootstrap, share, deadline)
        if isinstance(next_thing, KeepStill):
            raise _paused(next_thing.pause)
        raise self._nothing_to_ask_with(next_thing)

    def _join(self, bootstrap: Bootstrap, share: float, deadline: Deadline) -> Use:
        fresh = self._exchange(
            Purpose.CLIENT,
            bootstrap.cluster,
            bootstrap.credential,
            self.configuration.asker + bootstrap.digest,
            deadline,
            (),
            (),
        )
        return self._keep(fresh, KnownCluster(bootstrap.cluster, bootstrap.digest), share)

    def _renew(self, pair: Pair, share: float, deadline: Deadline) -> Use:
        """Renew; whatever goes wrong, the pair that is there stays good until it runs out."""
        known = self.store.known_cluster()
        try:
            cluster = self._cluster()
            asker = self.configuration.asker
            fresh = self._exchange(Purpose.CLIENT, cluster, _certificate(pair), asker, deadline, (), ())
        except StillPending as failure:
            overdue = str(failure)
            until = self.clock.now() + RETRY_SECONDS
        except Failure as failure:
            self.report(f"the certificate was not renewed: {failure}")
            overdue = str(failure)
            until = self._pause_renewal(failure, pair)
        else:
            return self._keep(fresh, KnownCluster(cluster, known.used if known is not None else ""), share)
        return Use(pair, min(until, pair.not_after), overdue)

    def _pause_renewal(self, failure: Failure, pair: Pair) -> int:
        """When to try again: later each time, but several times before the certificate runs out."""
        now = self.clock.now()
        attempt = self.store.attempt(Purpose.CLIENT)
        pause = attempt.pause
        if pause is None or not pause_in_force(pause, credential=self.configuration.asker, now=now):
            pause = pause_after(
                pause,
                exit_code=failure.exit_code,
                message=str(failure),
                credential=self.configuration.asker,
                now=now,
                jitter=self.clock.jitter(),
            )
        bounded = Pause(
            min(pause.until, now + max(1, (pair.not_after - now) // 4)),
            pause.failures,
            pause.exit_code,
            pause.message,
            pause.credential,
        )
        self.store.save_attempt(Purpose.CLIENT, Attempt(attempt.pending, bounded))
        return bounded.until

    def _keep(self, fresh: Pair, known: KnownCluster, share: float) -> Use:
        """Store a certificate. A crash in between leaves the bootstrap credential until the pair is there.

        It is wiped last: while it is there, the next run tidies up.
        """
        with self.store.bootstrap_lock():
            copied = self.store.bootstrap()
            if copied is not None and not copied.cluster.shares_authority_with(known.cluster):
                self.store.save_attempt(Purpose.CLIENT, Attempt())
                raise StillPending(
                    "meanwhile, a bootstrap kubeconfig of another cluster was supplied: the certificate that came "
                    "is not used, and that cluster is asked next"
                )
            self.store.save_known_cluster(known)
            self.store.save_pair(Purpose.CLIENT, fresh)
            self.store.save_attempt(Purpose.CLIENT, Attempt(pause=self._floor(fresh, share)))
            self.store.wipe_bootstrap()
        self.report(f"the certificate of node {self.configuration.node_name} is in {self.store.folder}")
        return Use(fresh, renewal_time(fresh, share))

    def _floor(self, fresh: Pair, share: float) -> Pause | None:
        """A pause where the certificate that just came is due again: each renewal costs an entry in the journal."""
        now = self.clock.now()
        if now < renewal_time(fresh, share):
            return None
        message = "the certificate that came has almost run out: is this node's clock right?"
        self.report(message)
        return Pause(now + _FLOOR_SECONDS, 1, ExitCode.DENIED, message, self.configuration.asker)

    def _tidy(self) -> None:
        """Finish what a crash behind the storing of a pair left undone: who has a certificate needs no token."""
        pair = self.store.pair(Purpose.CLIENT)
        if pair is None:
            return
        attempt = self.store.attempt(Purpose.CLIENT)
        if attempt.pending is not None and attempt.pending.key == pair.key:
            self.store.save_attempt(Purpose.CLIENT, Attempt())
        if self.clock.now() < pair.not_after:
            self.store.wipe_bootstrap()

    def _next(self, share: float) -> Next:
        pair = self.store.pair(Purpose.CLIENT)
        now = self.clock.now()
        # Only near its end does it matter whether the attestor renews; until then it need not be imported.
        due = pair is not None and renewal_time(pair, share) <= now < pair.not_after
        return next_step(
            pair,
            self.store.bootstrap(),
            self.store.attempt(Purpose.CLIENT),
            renews=self.attestation.description.renews if due else True,
            now=now,
            share=share,
            asker=self.configuration.asker,
        )

    @contextlib.contextmanager
    def _locked(self, next_thing: Next, deadline: Deadline) -> Iterator[None]:
        # Who has a valid certificate does not wait for somebody else who is renewing it.
        timeout = 0.0 if isinstance(next_thing, (Use, Renew)) else deadline.left()
        with self.store.lock(Purpose.CLIENT, timeout=timeout):
            yield

    def _cluster(self) -> Cluster:
        """The cluster to renew at: as client-go says, as the kubelet's kubeconfig says, as it was known last."""
        if self.cluster is not None:
            return self.cluster
        own = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if own is not None:
            return own
        known = self.store.known_cluster()
        if known is None:
            raise NoCredential(
                f"nothing says where the API server is: {self.configuration.kubeconfig} does not, and no bootstrap "
                f"kubeconfig was taken in to {self.store.folder}"
            )
        return known.cluster

    def _exchange(
        self,
        purpose: Purpose,
        cluster: Cluster,
        credential: Credential,
        credential_digest: str,
        deadline: Deadline,
        dns_names: tuple[str, ...],
        ip_addresses: tuple[str, ...],
    ) -> Pair:
        try:
            server = ApiServer(cluster, credential, seconds=min(CALL_SECONDS, deadline.seconds))
        except (OSError, ValueError) as error:
            raise UntrustedServer(f"the CA or the client certificate cannot be used: {error}") from None
        return Exchange(
            store=self.store,
            attestation=self.attestation,
            server=server,
            clock=self.clock,
            deadline=deadline,
            purpose=purpose,
            find_subject=lambda: Subject(
                provider=self.configuration.provider,
                node_name=self.configuration.node_name,
                provider_id=self.attestation.provider_id(),
                ca_cert_hash=cluster.ca_cert_hash.text,
                dns_names=dns_names,
                ip_addresses=ip_addresses,
            ),
            credential=credential_digest,
            report=self.report,
        ).run()

    def _nothing_to_ask_with(self, next_thing: Next) -> NoCredential:
        where = self.configuration.bootstrap_kubeconfig
        supply = f"Supply a new bootstrap kubeconfig as {where} (with Cluster API: let the Machine be replaced)"
        if isinstance(next_thing, Expired):
            when = _at(next_thing.not_after)
            return NoCredential(
                f"the certificate in {self.store.folder} ran out at {when}, and only a valid one can be renewed. "
                f"{supply}; one that was used before does not count. Is this node's clock right?"
            )
        if not isinstance(next_thing, Nothing):
            raise TypeError(f"{type(next_thing).__name__} leaves something to do")
        return NoCredential(f"there is no certificate in {self.store.folder} and no bootstrap kubeconfig. {supply}")


def require_serving(attestation: Attestation) -> None:
    """The attestor has serving certificates.

    Raises:
        InvalidConfiguration: it has none.
    """
    if not attestation.description.serves:
        raise InvalidConfiguration(
            f"attestor {attestation.description.provider} has no serving certificates: use the kubelet's own "
            "serverTLSBootstrap, and leave out serving"
        )


def _certificate(pair: Pair) -> ClientCertificate:
    return ClientCertificate(pair.certificate, pair.key)


def _addresses_of(pair: Pair) -> tuple[IPAddress, ...]:
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return tuple(address for address in addresses if isinstance(address, (IPv4Address, IPv6Address)))


def _is_for(pair: Pair, dns_names: tuple[str, ...], ip_addresses: tuple[str, ...]) -> bool:
    """Whether the certificate names exactly these."""
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    return alternative_names_of(certificate) == {*dns_names, *map(ip_address, ip_addresses)}


def _paused(pause: Pause) -> Failure:
    kind = _FAILURES.get(pause.exit_code, Denied)
    return kind(f"{pause.message} (asked {times(pause.failures)}; not again before {_at(pause.until)})")


def _at(unix_time: int) -> str:
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
