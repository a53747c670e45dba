"""The workload cluster from the node's view, and the credentials for it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from attestors.wire.binding import CACertHash
from authenticator.model.chain import load_chain, public_key_info_of

_HTTPS_PORT: Final = 443
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")


class InvalidCluster(ValueError):
    """A cluster's address or CA is unusable; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The address of the API server, and the CA that authenticates it."""

    server: str
    """``https://host[:port][/path]``."""
    certificate_authority: str
    """One or more CA certificates, PEM."""
    tls_server_name: str = ""
    """The name in the API server's certificate, if it is not the host of ``server``."""
    ca_cert_hash: CACertHash = field(init=False)
    """Hash of the first CA, which identifies the cluster in evidence."""

    def __post_init__(self) -> None:
        wanted = InvalidCluster("the API server's address must be https://host[:port]")
        try:
            parts = urlsplit(self.server)
            _ = parts.port
        except ValueError:
            raise wanted from None
        unused = "@" in parts.netloc or parts.query or parts.fragment
        if parts.scheme != "https" or not parts.hostname or unused or not _PRINTABLE.fullmatch(self.server):
            raise wanted
        try:
            public = public_key_info_of(load_chain(self.certificate_authority.encode("ascii"))[0])
        except ValueError as error:
            raise InvalidCluster(f"the API server's CA certificate is unreadable: {error}") from None
        object.__setattr__(self, "ca_cert_hash", CACertHash.of(public))

    def shares_authority_with(self, other: Cluster) -> bool:
        """Whether it is the same cluster: the two have a CA in common, even during a rotation."""
        return not self._authorities().isdisjoint(other._authorities())

    @property
    def authority_hashes(self) -> tuple[str, ...]:
        """The hashes of all its CAs, in their order."""
        chain = load_chain(self.certificate_authority.encode("ascii"))
        return tuple(CACertHash.of(public_key_info_of(one)).text for one in chain)

    def _authorities(self) -> frozenset[bytes]:
        return frozenset(public_key_info_of(one) for one in load_chain(self.certificate_authority.encode("ascii")))

    @property
    def host(self) -> str:
        """The API server's name or address."""
        return urlsplit(self.server).hostname or ""

    @property
    def port(self) -> int:
        """The API server's port."""
        return urlsplit(self.server).port or _HTTPS_PORT

    @property
    def path(self) -> str:
        """The path before ``/apis``: empty, or a proxy's prefix."""
        return urlsplit(self.server).path.rstrip("/")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bootstrap token, or another token from a bootstrap kubeconfig."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """A certificate chain and its key, PEM."""

    certificate: str
    key: str = field(repr=False)


Credential: TypeAlias = BearerToken | ClientCertificate


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The content of a bootstrap kubeconfig: the cluster, and the credential to request the first certificate."""

    cluster: Cluster
    credential: Credential

    @property
    def digest(self) -> str:
        """Identifies the bootstrap credential without revealing it: SHA-256, hexadecimal."""
        credential = self.credential
        parts = (credential.token,) if isinstance(credential, BearerToken) else (credential.certificate, credential.key)
        digest = hashlib.sha256()
        for part in parts:
            encoded = part.encode("utf-8")
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
        return digest.hexdigest()
