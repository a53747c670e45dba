"""One request for the key set on one new connection, and the certificates that the server of this connection presented.

The request has the kubeconfig's credential: Kubernetes lets administrators and service accounts read the key set
(ClusterRole ``system:service-account-issuer-discovery``), and the canary's user has no group. The credential is sent to
an API server alone, that of a Machine of the control plane: its certificate is read before the request is.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from signer.authority import CertificateAuthority
from signer.authority.der import encode_block
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Forbidden, NotFound, Unreachable
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.resource_limits import ResourceLimits
from signer.kube.tls import client_context
from signer.model.decision import printable
from signer.rotation.servers.asking import TRY_SECONDS, Answered, Attempt, NotConnected
from signer.rotation.servers.identity import NotIdentified
from signer.rotation.servers.key_set import KEY_SET_PATH, MAXIMUM_BYTES, MEDIA_TYPE, InvalidKeySet, publishes
from signer.rotation.servers.observation import Missing, NotKnown, NotServed, Publication, Published

GRANT: Final = "bind ClusterRole system:service-account-issuer-discovery to the user of the kubeconfig"


@dataclass(frozen=True, slots=True)
class KeySetAsker:
    """Asks for the key set. It trusts exactly the two CAs, whatever the kubeconfig says."""

    connection: ClusterConnection
    """The cluster's, with the certificates of the two CAs and the kubeconfig's credential."""
    public_key_hash: str
    """Of the key that must be there."""
    limits: ResourceLimits
    require_identified: Callable[[tuple[bytes, ...]], object]
    """Raises NotIdentified for a chain (DER) that is of no expected API server."""
    by_name: ssl.SSLContext
    by_chain: ssl.SSLContext
    """As in :class:`~signer.rotation.servers.asking.Asker`."""

    @classmethod
    def of(
        cls,
        connection: ClusterConnection,
        public_key_hash: str,
        authorities: tuple[CertificateAuthority, ...],
        limits: ResourceLimits,
        require_identified: Callable[[tuple[bytes, ...]], object],
    ) -> KeySetAsker:
        """Raises TlsMaterialRefused if OpenSSL does not take a certificate."""
        trusted = b"".join(encode_block("CERTIFICATE", one.certificate.der) for one in authorities)
        own = replace(connection, certificate_authority=trusted, tls=None)
        by_chain = client_context(own)
        by_chain.check_hostname = False
        return cls(own, public_key_hash, limits, require_identified, by_name=client_context(own), by_chain=by_chain)

    async def ask_endpoint(self) -> Attempt:
        """Ask the server that the cluster's endpoint leads to."""
        return await self._ask(replace(self.connection, tls=self.by_name))

    async def ask_address(self, server: str, server_name: str) -> Attempt:
        """Ask ``server`` (``https://address:port``); ``server_name`` as in ``Asker``."""
        return await self._ask(replace(self.connection, server=server, tls_server_name=server_name, tls=self.by_chain))

    async def _ask(self, connection: ClusterConnection) -> Attempt:
        chains: list[tuple[bytes, ...]] = []
        foreign: list[str] = []

        def on_connect(transport: TlsTransport) -> None:
            chain = transport.presented_chain()
            try:
                self.require_identified(chain)
            except NotIdentified as error:
                foreign.append(str(error))
                raise ssl.SSLError(str(error)) from error  # before the credential is sent
            chains.append(chain)

        try:
            async with Client(
                connection,
                on_connect=on_connect,
                timeout_seconds=TRY_SECONDS,
                maximum_body_bytes=MAXIMUM_BYTES,
                connection_limit=1,
                resource_limits=self.limits,
                media_type=MEDIA_TYPE,
            ) as client:
                answer = await self._answer(client)
        except Unreachable as error:
            return NotConnected(foreign[0] if foreign else str(error))
        if len(chains) != 1:  # one request, one connection: an answer without a known server proves nothing
            return NotConnected("no certificate belongs to the answer")
        return Answered(chains[0], answer)

    async def _answer(self, client: Client) -> Publication:
        """Raises Unreachable."""
        try:
            found = await client.get(KEY_SET_PATH)
            return Published() if publishes(found, self.public_key_hash) else Missing()
        except InvalidKeySet as error:
            return NotKnown(f"its key set {error}")
        except NotFound:
            return NotServed()
        except Forbidden as error:
            return NotKnown(printable(f"its key set cannot be read: {error}; {GRANT}"))
        except Unreachable:
            raise
        except ApiError as error:
            return NotKnown(printable(f"its key set cannot be read: {error}"))
