"""One request with a canary on one new connection, and the certificates that the server of this connection presented.

TLS fixes both certificates of a connection: two canaries need two connections, and it is the server's certificate that
shows whether both went to the same server. Its key is proven in every handshake, since no session is resumed: Python's
clients do that only with the session of an earlier connection, which nothing here keeps.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, replace
from typing import Final

from signer.authority import CertificateAuthority
from signer.authority.canary_certificate import CanaryCertificate
from signer.authority.der import encode_block
from signer.kube.canary import Finding, NotProven, NotTrusted, Trusted, ask_once
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Unreachable
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.resource_limits import ResourceLimits
from signer.kube.tls import TlsMaterialRefused, client_context
from signer.rotation.servers.observation import Acceptance, Accepted, Answer, NotKnown, Refused

TRY_SECONDS: Final = 10.0
"""For one connection with its request."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The server has presented ``chain`` (DER, its own certificate first) and proven the key of the first one."""

    chain: tuple[bytes, ...]
    answer: Answer


@dataclass(frozen=True, slots=True)
class NotConnected:
    """No server has proven a certificate of the two CAs; ``message`` says why."""

    message: str


Attempt = Answered | NotConnected


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes requests with one canary. It trusts exactly the two CAs, whatever the kubeconfig says."""

    canary: CanaryCertificate
    endpoint: ClusterConnection
    """The cluster's, with the certificates of the two CAs and without credentials."""
    limits: ResourceLimits
    by_name: ssl.SSLContext
    """Also verifies that the server's certificate has the endpoint's name."""
    by_chain: ssl.SSLContext
    """Verifies the chain alone: the caller compares the names."""

    @classmethod
    def of(
        cls,
        canary: CanaryCertificate,
        endpoint: ClusterConnection,
        authorities: tuple[CertificateAuthority, ...],
        limits: ResourceLimits,
    ) -> Asker:
        """Raises TlsMaterialRefused if OpenSSL does not take a certificate."""
        trusted = b"".join(encode_block("CERTIFICATE", one.certificate.der) for one in authorities)
        bare = ClusterConnection(endpoint.server, trusted, tls_server_name=endpoint.tls_server_name)
        presenting = replace(bare, client_certificate=canary.certificate, client_key=canary.key)
        by_chain = client_context(presenting)
        by_chain.check_hostname = False
        return cls(canary, bare, limits, by_name=client_context(presenting), by_chain=by_chain)

    async def ask_endpoint(self) -> Attempt:
        """Ask the server that the cluster's endpoint leads to."""
        return await self._ask(replace(self.endpoint, tls=self.by_name))

    async def ask_address(self, server: str, server_name: str) -> Attempt:
        """Ask ``server`` (``https://address:port``). ``server_name`` is the one that clients of the endpoint send, by
        which API servers choose a certificate (``--tls-sni-cert-key``).
        """
        return await self._ask(replace(self.endpoint, server=server, tls_server_name=server_name, tls=self.by_chain))

    async def _ask(self, connection: ClusterConnection) -> Attempt:
        chains: list[tuple[bytes, ...]] = []

        def on_connect(transport: TlsTransport) -> None:
            chains.append(transport.presented_chain())

        try:
            async with asyncio.timeout(TRY_SECONDS):
                finding: Finding = await ask_once(
                    self.canary, connection, self.limits, serving_chains=True, on_connect=on_connect
                )
        except TimeoutError:
            finding = NotProven(f"no answer within {TRY_SECONDS:.0f} seconds")
        except (Unreachable, TlsMaterialRefused) as error:
            finding = NotProven(str(error))
        if len(chains) != 1:  # one request, one connection: an answer without a known server proves nothing
            message = finding.message if isinstance(finding, NotProven) else "no certificate belongs to the answer"
            return NotConnected(message)
        return Answered(chains[0], _acceptance(finding))


def _acceptance(finding: Finding) -> Acceptance:
    match finding:
        case Trusted():
            return Accepted()
        case NotTrusted():
            return Refused()
        case NotProven(message):
            return NotKnown(message)
