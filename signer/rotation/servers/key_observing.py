"""One pass over all API servers that shows which of them publish a service-account key.

Servers are found and identified as for canaries (:mod:`signer.rotation.servers.observing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from signer.authority import CertificateAuthority
from signer.kube.connection import ClusterConnection
from signer.kube.http.messages import Origin
from signer.kube.resource_limits import ResourceLimits
from signer.kube.tls import TlsMaterialRefused
from signer.model.decision import printable
from signer.rotation.servers.identity import Identities, read_server_certificate
from signer.rotation.servers.key_asking import KeySetAsker
from signer.rotation.servers.observation import (
    Answer,
    ExpectedServer,
    Missing,
    NotKnown,
    NotServed,
    Publication,
    Published,
)
from signer.rotation.servers.observing import (
    MAXIMUM_SERVERS,
    NoServersExpected,
    Pass,
    Question,
    Sighted,
    TwoAuthorities,
)


async def observe_key(
    connection: ClusterConnection,
    expected: Sequence[ExpectedServer],
    authorities: TwoAuthorities,
    public_key_hash: str,
    limits: ResourceLimits,
) -> Mapping[str, Publication]:
    """Whether each expected server publishes that key, by Machine. Takes about a minute at most.

    Args:
        connection: the kubeconfig's, with its credential. Its CA is not used.
        expected: from :func:`~signer.rotation.servers.identity.expected_servers`.
        authorities: a server's certificate must be of one of them.
        public_key_hash: as in :func:`~signer.rotation.servers.key_set.publishes`.
        limits: those of all workload clusters.

    Raises:
        NoServersExpected: ``expected`` is empty.
    """
    if not expected:
        raise NoServersExpected("the management cluster shows no control-plane Machine")
    if len(expected) > MAXIMUM_SERVERS:
        return _none(expected, f"there are more than {MAXIMUM_SERVERS} control-plane Machines")
    trusted: tuple[CertificateAuthority, ...] = (authorities.old, authorities.new)
    try:
        origin = Origin.of(connection.server)
        server_name = connection.tls_server_name or origin.host
        identities = Identities(expected, (origin.host, server_name))
        asker = KeySetAsker.of(
            connection,
            public_key_hash,
            trusted,
            limits,
            lambda chain: identities.server_of(read_server_certificate(chain)),
        )
    except (TlsMaterialRefused, ValueError) as error:
        return _none(expected, printable(f"the kubeconfig cannot be used: {error}"))
    results = await Pass(expected, {Question.KEY: asker}, origin, server_name).run()
    return {
        one.server.machine: _publication(one.answers[Question.KEY]) if isinstance(one, Sighted) else NotKnown(one.why)
        for one in results
    }


def _none(expected: Sequence[ExpectedServer], why: str) -> Mapping[str, Publication]:
    return {server.machine: NotKnown(why) for server in expected}


def _publication(answer: Answer) -> Publication:
    assert isinstance(answer, Published | Missing | NotServed | NotKnown), "nothing else was asked"
    return answer
