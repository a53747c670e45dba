"""The address and credentials of one API server, and the valid paths and parameters of calls to it."""

from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import dataclass, field
from typing import Final

from signer.kube.errors import Unauthorized


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """The address of an API server and the credentials for it, as parsed from a kubeconfig.

    Certificates and keys are PEM. No field names a file: a connection from a tenant's Secret must not make the
    controller read local files.
    """

    server: str
    """``https://host:port``, without a trailing slash; a path prefix is allowed."""
    certificate_authority: bytes
    """PEM bundle that the server's certificate must chain to."""
    tls_server_name: str | None = None
    """Name to verify in the server's certificate instead of the host in ``server``."""
    client_certificate: bytes | None = None
    client_key: bytes | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False, compare=False)
    """A context that is known to work with these certificates and key, if one was created: creating another costs as
    much as the rest of a new connection."""


def token_digest(token: str | None) -> str:
    """SHA-256 of a bearer token, to compare two; empty for none."""
    return "" if token is None else hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)


def bearer(token: str) -> str:
    """The value of ``Authorization``. Raises Unauthorized for a token that no header can carry."""
    if _TOKEN.fullmatch(token) is None:
        raise Unauthorized("the bearer token is empty, too long or holds characters that no header can carry")
    return f"Bearer {token}"
