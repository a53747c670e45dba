"""The node's serving certificate and its key: for its names and addresses, requested with the client certificate."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from cryptography import x509

from attestors.contract import IPAddress
from attestors.wire.names import Purpose
from authenticator.configuration import Serving
from authenticator.flow.asking import Requester, client_certificate
from authenticator.flow.evidence import Attestation
from authenticator.flow.own_addresses import LastingAddresses, serving_names
from authenticator.flow.pauses import paused
from authenticator.model.attempt import Attempt, pause_in_force
from authenticator.model.chain import alternative_names_of
from authenticator.model.failures import Failure, InvalidConfiguration, NoCredential, StillPending
from authenticator.model.pair import RETRY_SECONDS, Pair
from authenticator.model.plan import Use, renewal_time

_LATE: Final = 20
"""In the last twentieth of a serving certificate's life pauses are ignored: it is requested at every turn."""


class ServingPair:
    """The stored serving certificate, and its renewal."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._configuration, self._store = requester.configuration, requester.store
        self._clock, self._report = requester.clock, requester.report
        self._own_addresses = LastingAddresses(requester.clock)

    def use(self, *, share: float) -> Use:
        """A valid certificate, and the time of the next step: see :meth:`.certificates.NodeCertificates.serving`.

        Raises:
            Failure: there is no valid certificate.
        """
        require_serving(self._requester.attestation)
        self._store.open()
        deadline = self._requester.deadline()
        with self._store.lock(Purpose.SERVING, timeout=deadline.left()):
            pair = self._store.pair(Purpose.SERVING)
            self._finish_interrupted(pair)
            now = self._clock.now()
            # A default route that is briefly missing does not change the node's addresses.
            stored = _addresses_of(pair) if pair is not None else ()
            due = pair is None or now >= pair.renewal
            names, addresses = serving_names(
                self._configuration.serving or Serving(),
                self._configuration.node_name,
                lambda: self._own_addresses.now(stored, due=due),
            )
            current = pair is not None and now < pair.not_after and _is_for(pair, names, addresses)
            superseded = self._store.trust_state().is_superseded(Purpose.SERVING, pair)
            if pair is not None and current and not superseded and now < renewal_time(pair, share):
                return Use(pair, renewal_time(pair, share))
            # Other names are another request: once the refused names are corrected, no pause applies.
            digest = f"{self._configuration.asker}serving {','.join((*names, *addresses))}"
            pause = self._store.attempt(Purpose.SERVING).pause
            if pause is not None and pause_in_force(pause, credential=digest, now=now):
                if pair is None or not current:
                    raise paused(pause)
                if now < pair.not_after - pair.lifetime // _LATE:
                    return Use(pair, min(pause.until, pair.not_after - pair.lifetime // _LATE), pause.message)
            client = self._store.pair(Purpose.CLIENT)
            if client is None or now >= client.not_after:
                raise NoCredential("a serving certificate is requested with the client certificate, and there is none")
            try:
                fresh = self._requester.request(
                    Purpose.SERVING,
                    self._requester.cluster(),
                    client_certificate(client),
                    digest,
                    deadline,
                    names,
                    addresses,
                ).pair
            except Failure as failure:
                if pair is None or not current:
                    raise
                self._report(f"the serving certificate was not renewed: {failure}")
                return Use(pair, min(now + RETRY_SECONDS, pair.not_after), str(failure))
            with self._store.bootstrap_lock():
                if self._store.pair(Purpose.CLIENT) is None:
                    raise StillPending(
                        "meanwhile, the client certificate was set aside: the new certificate is not used"
                    )
                self._store.save_pair(Purpose.SERVING, fresh)
            self._store.save_attempt(Purpose.SERVING, Attempt())
            return Use(fresh, renewal_time(fresh, share))

    def _finish_interrupted(self, pair: Pair | None) -> None:
        """Finish the cleanup after a crash that followed the storing of a pair: its request is no longer pending."""
        attempt = self._store.attempt(Purpose.SERVING)
        if pair is not None and attempt.pending is not None and attempt.pending.key == pair.key:
            self._store.save_attempt(Purpose.SERVING, Attempt())


def require_serving(attestation: Attestation) -> None:
    """Require that the attestor supports serving certificates.

    Raises:
        InvalidConfiguration: it does not.
    """
    if not attestation.description.serves:
        raise InvalidConfiguration(
            f"attestor {attestation.description.provider} supports no serving certificates: use the kubelet's own "
            "serverTLSBootstrap, and leave out serving"
        )


def _addresses_of(pair: Pair) -> tuple[IPAddress, ...]:
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return tuple(address for address in addresses if isinstance(address, (IPv4Address, IPv6Address)))


def _is_for(pair: Pair, dns_names: tuple[str, ...], ip_addresses: tuple[str, ...]) -> bool:
    """Whether the certificate has exactly these alternative names."""
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    return alternative_names_of(certificate) == {*dns_names, *map(ip_address, ip_addresses)}
