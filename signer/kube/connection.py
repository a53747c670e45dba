"""The address and credentials of one API server, and the valid paths and parameters of calls to it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

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


# Absolute, without empty or dot segments, and without characters that end the path, even when decoded.
_PATH: Final = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))(?:[A-Za-z0-9._~:@!$&'()*+,;=-]|%(?!2[EeFf])[0-9A-Fa-f]{2})+)+|/", re.ASCII
)
_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)


def target(path: str, params: Mapping[str, str | int | bool] | None) -> str:
    """Path and query of a request. Raises ValueError for a path that no API call can have."""
    if _PATH.fullmatch(path) is None:
        raise ValueError("an API path is absolute, encoded, and without dot segments and query")
    if not params:
        return path
    query = urlencode([(k, str(v).lower() if isinstance(v, bool) else v) for k, v in params.items()])
    return f"{path}?{query}"


def bearer(token: str) -> str:
    """The value of ``Authorization``. Raises Unauthorized for a token that no header can carry."""
    if _TOKEN.fullmatch(token) is None:
        raise Unauthorized("the bearer token is empty, too long or holds characters that no header can carry")
    return f"Bearer {token}"
