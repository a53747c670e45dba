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
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    Accepted,
    Answer,
    ExpectedServer,
    NotKnown,
    Refused,
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


class Question(StrEnum):
    """What an API server is asked."""

    OLD = "old"
    """Whether it accepts the old CA's canary."""
    NEW = "new"
    """The same for the new CA."""
    KEY = "key"
    """Whether it publishes the new service-account key."""


class Asks(Protocol):
    """Asks one question, on a new connection each time."""

    async def ask_endpoint(self) -> Attempt:
        """Ask the server that the cluster's endpoint leads to."""
        ...

    async def ask_address(self, server: str, server_name: str) -> Attempt:
        """Ask ``server`` (``https://address:port``); ``server_name`` is the one that clients of the endpoint send."""
        ...


@dataclass(frozen=True, slots=True)
class Sighted:
    """A server that was seen in one state, and its answers in it."""

    server: ExpectedServer
    asked_at: str
    chain: tuple[bytes, ...]
    certificate: ServerCertificate
    answers: Mapping[Question, Answer]


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
    askers: dict[Question, Asks] = {}
    try:
        for kind, authority in zip((Question.OLD, Question.NEW), trusted, strict=True):
            canary = await asyncio.to_thread(issue_canary, IssuingSet.of(authority), now())
            await journal(canary, authority)
            askers[kind] = Asker.of(canary, endpoint, trusted, limits)
        origin = Origin.of(endpoint.server)
    except (CertificateAuthorityUnavailable, IssuanceRefused, CanaryNotJournaled, TlsMaterialRefused) as error:
        return ServersObserved.none(expected, printable(f"no canary can be used: {error}"))
    except ValueError as error:
        return ServersObserved.none(expected, printable(f"the endpoint cannot be asked: {error}"))
    results = await Pass(expected, askers, origin, endpoint.tls_server_name or origin.host).run()
    return ServersObserved(
        tuple(_observation(one, classify) for one in results if isinstance(one, Sighted)),
        tuple(one for one in results if isinstance(one, Unseen)),
    )


def _observation(sighted: Sighted, classify: ChainClassifier) -> ServerObservation:
    return ServerObservation(
        server=sighted.server,
        asked_at=sighted.asked_at,
        presented=classify(sighted.chain),
        accepts_old=_acceptance(sighted.answers[Question.OLD]),
        accepts_new=_acceptance(sighted.answers[Question.NEW]),
        not_after=sighted.certificate.not_after,
        certificate_digest=sighted.certificate.digest,
    )


def _acceptance(answer: Answer) -> Acceptance:
    assert isinstance(answer, Accepted | Refused | NotKnown), "canaries ask nothing else"
    return answer


@dataclass(slots=True)
class _Sightings:
    """What was seen of one server in the pass."""

    certificates: dict[tuple[bytes, ...], ServerCertificate] = field(default_factory=dict)
    """By the whole chain: with and without a link certificate, the server is in different states."""
    answers: dict[Question, Answer] = field(default_factory=dict)
    asked_at: str = ""
    why_unseen: str = ""
    """Reason of the last failed attempt at an address."""

    def keep(self, kind: Question, answered: Answered, certificate: ServerCertificate, asked_at: str) -> None:
        self.certificates[answered.chain] = certificate
        self.asked_at = asked_at
        self.answers[kind] = _together(self.answers.get(kind, answered.answer), answered.answer)

    def is_conclusive(self, kind: Question) -> bool:
        """Whether an answer shows something."""
        return not isinstance(self.answers.get(kind, _NOT_ASKED), NotKnown)


_NOT_ASKED: Final = NotKnown("it has not been asked")
_CONTRADICTION: Final = NotKnown("it has given different answers to the same question in one pass")


def _together(before: Answer, now: Answer) -> Answer:
    """Two answers to the same question in one pass: one that shows something counts over one that does not."""
    if before is _CONTRADICTION or before == now or isinstance(now, NotKnown):
        return before
    return now if isinstance(before, NotKnown) else _CONTRADICTION


class Pass:
    """One pass over all API servers with some questions."""

    def __init__(
        self, expected: Sequence[ExpectedServer], askers: Mapping[Question, Asks], origin: Origin, server_name: str
    ) -> None:
        """``origin`` is the cluster's endpoint, ``server_name`` the name that its clients send."""
        self._expected = tuple(expected)
        self._askers = askers
        self._origin = origin
        self._server_name = server_name
        self._identities = Identities(expected, (origin.host, server_name))
        self._seen = {server: _Sightings() for server in self._expected}
        self._endpoint_says = "the cluster's endpoint has not led to it"
        self._slots = asyncio.Semaphore(TRIES_AT_ONCE)

    async def run(self) -> Sequence[Sighted | Unseen]:
        """The result for each expected server. Takes about a minute at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDPOINT_SECONDS):
                await self._ask_endpoint()
        missing = [server for server in self._expected if any(self._misses(server, kind) for kind in self._askers)]
        for server in missing:
            self._seen[server].why_unseen = f"no answer at its addresses within {ADDRESSES_SECONDS:.0f} seconds"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ADDRESSES_SECONDS), asyncio.TaskGroup() as group:
                for server in missing:
                    group.create_task(self._ask_at_addresses(server))
        return [self._result(server) for server in self._expected]

    def _misses(self, server: ExpectedServer, kind: Question) -> bool:
        return not self._seen[server].is_conclusive(kind)

    # Through the endpoint

    async def _ask_endpoint(self) -> None:
        left, fruitless = TRIES_FOR_EACH_SERVER * len(self._expected), 0
        while fruitless < FRUITLESS_ROUNDS:  # without a try left, a round is fruitless
            before = self._conclusive()
            for kind in self._askers:
                turn = min(left, TRIES_IN_A_ROW * len(self._expected))
                left -= await self._ask_endpoint_with(kind, turn)
            if self._conclusive() == len(self._askers) * len(self._expected):
                return
            fruitless = fruitless + 1 if self._conclusive() == before else 0

    def _conclusive(self) -> int:
        return sum(not self._misses(server, kind) for server in self._expected for kind in self._askers)

    async def _ask_endpoint_with(self, kind: Question, tries: int) -> int:
        """At most so many connections with that canary; returns how many there were."""
        made = 0
        while made < tries and any(self._misses(server, kind) for server in self._expected):
            at_once = min(TRIES_AT_ONCE, tries - made)
            made += at_once
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(self._ask_endpoint_once(kind))
        return made

    async def _ask_endpoint_once(self, kind: Question) -> None:
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
                if not any(self._misses(server, kind) for kind in self._askers):
                    return
                sightings.why_unseen = "; ".join(dict.fromkeys(reasons))

    async def _ask_at(self, server: ExpectedServer, origin: Origin) -> list[str]:
        """Ask one address with both canaries; returns the reasons why it showed nothing."""
        url = f"https://{origin.authority}"
        for kind in self._askers:
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

    def _result(self, server: ExpectedServer) -> Sighted | Unseen:
        sightings = self._seen[server]
        if not sightings.certificates:
            return Unseen(server, printable(f"{sightings.why_unseen}; {self._endpoint_says}"))
        if len(sightings.certificates) > 1:
            # Two servers, or one that was reading its files: the answers may not belong together. The next pass asks
            # again.
            return Unseen(server, "several certificates or chains came under its name in one pass")
        if set(sightings.answers) != set(self._askers):
            return Unseen(server, printable(f"it was asked with one canary only; {sightings.why_unseen}"))
        ((chain, certificate),) = sightings.certificates.items()
        return Sighted(server, sightings.asked_at, chain, certificate, dict(sightings.answers))
