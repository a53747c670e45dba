"""One pass over all API servers of a workload cluster.

A load balancer chooses the server of each connection. So the pass connects to the cluster's endpoint until every
expected server has answered, and asks those that it has not met there at the addresses of their Machines.

The workload cluster's owner controls the servers, the load balancer and the network. Whatever they say or do, an
expected server counts as seen only after somebody has proven a certificate of one of the two CAs that names its Machine
and no other one. Anything else leaves it unseen, with the reason, and the rotation waits.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from signer.authority import CertificateAuthority, CertificateAuthorityUnavailable, IssuanceRefused, IssuingSet
from signer.authority.canary_certificate import CanaryCertificate, issue_canary
from signer.authority.presented import Presented
from signer.kube.connection import ClusterConnection
from signer.kube.http.messages import Origin
from signer.kube.resource_limits import ResourceLimits
from signer.kube.tls import TlsMaterialRefused
from signer.model.decision import printable
from signer.rotation.servers.asking import Answered, Asker, Attempt
from signer.rotation.servers.identity import (
    Identities,
    NotIdentified,
    ServerCertificate,
    read_server_certificate,
)
from signer.rotation.servers.observation import (
    Acceptance,
    ExpectedServer,
    NotKnown,
    ServerObservation,
    ServersObserved,
    Unseen,
)

TRIES_FOR_EACH_SERVER: Final = 20
"""Connections to the endpoint, for each expected server."""
TRIES_IN_A_ROW: Final = 2
"""Connections with one canary, for each expected server, before it is the other's turn. With one in turn, a load
balancer that alternates between two servers would show each canary to one of them only."""
FRUITLESS_ROUNDS: Final = 2
"""Rounds with both canaries that bring nothing new, after which the load balancer is given up: 8 of the 20 tries."""
TRIES_AT_ONCE: Final = 4
ENDPOINT_SECONDS: Final = 30.0
"""For all connections to the endpoint in one pass."""
ADDRESSES_SECONDS: Final = 30.0
"""For all connections to addresses of Machines in one pass."""
MAXIMUM_SERVERS: Final = 32
KUBE_APISERVER_PORT: Final = 6443
"""kubeadm's default. The endpoint's port may be the load balancer's own."""


class NoServersExpected(Exception):
    """The management cluster shows no control-plane Machine. To have seen all of none would prove everything."""


class CanaryNotJournaled(Exception):
    """The canary is not in the audit log, so it must not be used."""


class ChainClassifier(Protocol):
    """Tells from which CA a server's certificate comes."""

    def __call__(self, chain: tuple[bytes, ...]) -> Presented:
        """``chain`` is DER, the server's own certificate first, as it was sent."""
        ...


Journal = Callable[[CanaryCertificate, CertificateAuthority], Awaitable[None]]
"""Writes a canary of that CA to the audit log before it is used; raises CanaryNotJournaled."""


@dataclass(frozen=True, slots=True)
class TwoAuthorities:
    """The CA that the rotation replaces, and its successor, both with their keys."""

    old: CertificateAuthority
    new: CertificateAuthority


class _Canary(StrEnum):
    OLD = "old"
    NEW = "new"


async def observe_servers(
    endpoint: ClusterConnection,
    expected: Sequence[ExpectedServer],
    authorities: TwoAuthorities,
    *,
    classify: ChainClassifier,
    journal: Journal,
    now: Callable[[], datetime],
    limits: ResourceLimits,
) -> ServersObserved:
    """Ask every expected server once with a canary of each CA. Takes about a minute at most.

    Args:
        endpoint: address of the cluster's API as in the kubeconfig. Its CA and credentials are not used.
        expected: from :func:`~signer.rotation.servers.identity.expected_servers`.
        authorities: each issues one canary. A server's certificate must be of one of them.
        classify: for the servers' chains.
        journal: called with both canaries before the first connection.
        now: the current time.
        limits: those of all workload clusters.

    Raises:
        NoServersExpected: ``expected`` is empty.
    """
    if not expected:
        raise NoServersExpected("the management cluster shows no control-plane Machine")
    if len(expected) > MAXIMUM_SERVERS:
        return ServersObserved.none(expected, f"there are more than {MAXIMUM_SERVERS} control-plane Machines")
    trusted = (authorities.old, authorities.new)
    askers: dict[_Canary, Asker] = {}
    try:
        for kind, authority in zip(_Canary, trusted, strict=True):
            canary = await asyncio.to_thread(issue_canary, IssuingSet.of(authority), now())
            await journal(canary, authority)
            askers[kind] = Asker.of(canary, endpoint, trusted, limits)
        origin = Origin.of(endpoint.server)
    except (CertificateAuthorityUnavailable, IssuanceRefused, CanaryNotJournaled, TlsMaterialRefused) as error:
        return ServersObserved.none(expected, printable(f"no canary can be used: {error}"))
    except ValueError as error:
        return ServersObserved.none(expected, printable(f"the endpoint cannot be asked: {error}"))
    one_pass = _Pass(expected, askers, origin, endpoint.tls_server_name or origin.host, classify)
    return await one_pass.run()


@dataclass(slots=True)
class _Sightings:
    """What was seen of one server in the pass."""

    certificates: dict[tuple[bytes, ...], ServerCertificate] = field(default_factory=dict)
    """By the whole chain: with and without a link certificate, the server is in different states."""
    answers: dict[_Canary, Acceptance] = field(default_factory=dict)
    asked_at: str = ""
    why_unseen: str = ""
    """Reason of the last failed attempt at an address."""

    def keep(self, kind: _Canary, answered: Answered, certificate: ServerCertificate, asked_at: str) -> None:
        self.certificates[answered.chain] = certificate
        self.asked_at = asked_at
        self.answers[kind] = _together(self.answers.get(kind, answered.acceptance), answered.acceptance)

    def is_conclusive(self, kind: _Canary) -> bool:
        """Whether an answer shows if the server accepts that canary."""
        return not isinstance(self.answers.get(kind, _NOT_ASKED), NotKnown)


_NOT_ASKED: Final = NotKnown("it has not been asked")
_CONTRADICTION: Final = NotKnown("it has accepted and refused the canary in the same pass")


def _together(before: Acceptance, now: Acceptance) -> Acceptance:
    """Two answers to the same canary in one pass: one that shows something counts over one that does not."""
    if before is _CONTRADICTION or before == now or isinstance(now, NotKnown):
        return before
    return now if isinstance(before, NotKnown) else _CONTRADICTION


class _Pass:
    def __init__(
        self,
        expected: Sequence[ExpectedServer],
        askers: dict[_Canary, Asker],
        origin: Origin,
        server_name: str,
        classify: ChainClassifier,
    ) -> None:
        self._expected = tuple(expected)
        self._askers = askers
        self._origin = origin
        self._server_name = server_name
        self._classify = classify
        self._identities = Identities(expected, (origin.host, server_name))
        self._seen = {server: _Sightings() for server in self._expected}
        self._endpoint_says = "the cluster's endpoint has not led to it"
        self._slots = asyncio.Semaphore(TRIES_AT_ONCE)

    async def run(self) -> ServersObserved:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDPOINT_SECONDS):
                await self._ask_endpoint()
        missing = [server for server in self._expected if any(self._misses(server, kind) for kind in _Canary)]
        for server in missing:
            self._seen[server].why_unseen = f"no answer at its addresses within {ADDRESSES_SECONDS:.0f} seconds"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ADDRESSES_SECONDS), asyncio.TaskGroup() as group:
                for server in missing:
                    group.create_task(self._ask_at_addresses(server))
        results = [self._result(server) for server in self._expected]
        return ServersObserved(
            tuple(one for one in results if isinstance(one, ServerObservation)),
            tuple(one for one in results if isinstance(one, Unseen)),
        )

    def _misses(self, server: ExpectedServer, kind: _Canary) -> bool:
        return not self._seen[server].is_conclusive(kind)

    # Through the endpoint

    async def _ask_endpoint(self) -> None:
        left, fruitless = TRIES_FOR_EACH_SERVER * len(self._expected), 0
        while fruitless < FRUITLESS_ROUNDS:  # without a try left, a round is fruitless
            before = self._conclusive()
            for kind in _Canary:
                turn = min(left, TRIES_IN_A_ROW * len(self._expected))
                left -= await self._ask_endpoint_with(kind, turn)
            if self._conclusive() == 2 * len(self._expected):
                return
            fruitless = fruitless + 1 if self._conclusive() == before else 0

    def _conclusive(self) -> int:
        return sum(not self._misses(server, kind) for server in self._expected for kind in _Canary)

    async def _ask_endpoint_with(self, kind: _Canary, tries: int) -> int:
        """At most so many connections with that canary; returns how many there were."""
        made = 0
        while made < tries and any(self._misses(server, kind) for server in self._expected):
            at_once = min(TRIES_AT_ONCE, tries - made)
            made += at_once
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(self._ask_endpoint_once(kind))
        return made

    async def _ask_endpoint_once(self, kind: _Canary) -> None:
        attempt = await self._askers[kind].ask_endpoint()
        try:
            server, certificate, answered = self._identify(attempt)
        except NotIdentified as error:
            self._endpoint_says = f"the cluster's endpoint has not led to it; a server there: {error}"
        else:
            self._seen[server].keep(kind, answered, certificate, f"https://{self._origin.authority}")

    def _identify(self, attempt: Attempt) -> tuple[ExpectedServer, ServerCertificate, Answered]:
        """Raises NotIdentified."""
        if not isinstance(attempt, Answered):
            raise NotIdentified(attempt.message)
        certificate = read_server_certificate(attempt.chain)
        return self._identities.server_of(certificate), certificate, attempt

    # Address by address

    async def _ask_at_addresses(self, server: ExpectedServer) -> None:
        sightings = self._seen[server]
        if not server.addresses:
            sightings.why_unseen = "its Machine has no IP address"
            return
        reasons: list[str] = []
        for port in dict.fromkeys((self._origin.port, KUBE_APISERVER_PORT)):
            for address in server.addresses:
                origin = Origin(address, port, "")
                reasons += await self._ask_at(server, origin)
                if not any(self._misses(server, kind) for kind in _Canary):
                    return
                sightings.why_unseen = "; ".join(dict.fromkeys(reasons))

    async def _ask_at(self, server: ExpectedServer, origin: Origin) -> list[str]:
        """Ask one address with both canaries; returns the reasons why it showed nothing."""
        url = f"https://{origin.authority}"
        for kind in _Canary:
            async with self._slots:
                attempt = await self._askers[kind].ask_address(url, self._server_name)
            try:
                found, certificate, answered = self._identify(attempt)
            except NotIdentified as error:
                return [f"at {url}: {error}"]
            if found != server:
                return [f"at {url}: its certificate names Machine {found.machine}"]
            self._seen[server].keep(kind, answered, certificate, url)
        return []

    # The result

    def _result(self, server: ExpectedServer) -> ServerObservation | Unseen:
        sightings = self._seen[server]
        if not sightings.certificates:
            return Unseen(server, printable(f"{sightings.why_unseen}; {self._endpoint_says}"))
        if len(sightings.certificates) > 1:
            # Two servers, or one that was reading its files: the answers may not belong together. The next pass asks
            # again.
            return Unseen(server, "several certificates or chains came under its name in one pass")
        if set(sightings.answers) != set(_Canary):
            return Unseen(server, printable(f"it was asked with one canary only; {sightings.why_unseen}"))
        ((chain, certificate),) = sightings.certificates.items()
        return ServerObservation(
            server=server,
            asked_at=sightings.asked_at,
            presented=self._classify(chain),
            accepts_old=sightings.answers[_Canary.OLD],
            accepts_new=sightings.answers[_Canary.NEW],
            not_after=certificate.not_after,
            certificate_digest=certificate.digest,
        )
