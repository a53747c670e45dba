"""Which clients the webhook of access answers: any, or those with a certificate of the API server's.

A kube-apiserver presents a client certificate to webhooks if its ``AdmissionConfiguration`` names a kubeconfig
(``apiserver/pkg/util/webhook/authentication.go``).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

_COMMON_NAME: Final = "commonName"
_REMEDY: Final = "name the CA of the API server's client certificate"
MAXIMUM_AUTHORITIES_BYTES: Final = 256 * 1024


class InvalidClientAuthorities(ValueError):
    """The file has no certificates that clients could be verified with."""


class NotTheApiServer(Exception):
    """The client's certificate is trusted, and has a name that is not admitted."""


@dataclass(frozen=True, slots=True)
class AnyClient:
    """Whoever reaches the port is answered."""


@dataclass(frozen=True, slots=True)
class CertifiedClients:
    """Clients with a certificate of these authorities, for client authentication."""

    authorities: str
    """PEM."""
    names: frozenset[str] = frozenset()
    """Common names, one of which the certificate has. Empty: any."""


WebhookClients: TypeAlias = AnyClient | CertifiedClients
ANY_CLIENT: Final = AnyClient()


def parse_client_authorities(content: bytes, names: frozenset[str]) -> CertifiedClients:
    """Read a file with certificates of authorities.

    Raises:
        InvalidClientAuthorities: there are none in it.
    """
    if len(content) > MAXIMUM_AUTHORITIES_BYTES:
        raise InvalidClientAuthorities("the file is too large: name one with the certificates of the authorities alone")
    store = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        authorities = content.decode("ascii")
        store.load_verify_locations(cadata=authorities)
    except (ValueError, ssl.SSLError):
        raise InvalidClientAuthorities(f"the file is no PEM: {_REMEDY}") from None
    if not store.cert_store_stats()["x509_ca"]:
        raise InvalidClientAuthorities(f"the file has no certificate of an authority: {_REMEDY}")
    return CertifiedClients(authorities, names)


def require_certificates(tls: ssl.SSLContext, clients: WebhookClients) -> None:
    """Have the handshake fail for clients that are not among them, whatever their names."""
    if isinstance(clients, CertifiedClients):
        tls.load_verify_locations(cadata=clients.authorities)
        tls.verify_mode = ssl.CERT_REQUIRED


def require_name(certificate: Mapping[str, Any], clients: WebhookClients) -> None:
    """``certificate`` is what the handshake has verified, as of :meth:`ssl.SSLSocket.getpeercert`.

    Raises:
        NotTheApiServer: it has another name.
    """
    if isinstance(clients, AnyClient) or not clients.names:
        return
    found = [value for part in certificate.get("subject", ()) for name, value in part if name == _COMMON_NAME]
    if len(found) != 1 or found[0] not in clients.names:
        raise NotTheApiServer


__all__ = [
    "ANY_CLIENT",
    "MAXIMUM_AUTHORITIES_BYTES",
    "AnyClient",
    "CertifiedClients",
    "InvalidClientAuthorities",
    "NotTheApiServer",
    "WebhookClients",
    "parse_client_authorities",
    "require_certificates",
    "require_name",
]
