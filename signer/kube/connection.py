"""How to reach one API server, which path and parameters a call to it may have, and in whose name it is made."""

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
    """Where an API server is and how to prove to it who we are: what a kubeconfig turns into.

    Certificates and keys are PEM. Nothing here names a file: a connection that comes from a tenant's Secret must not
    make the controller read local files (DESIGN: kubeconfigs are parsed by allow-list).
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
    """What these certificates and the key were found usable with, where somebody has tried: making it again costs as
    much as all else in a connection's beginning."""


# Absolute, no empty and no dot segments, nothing that starts a query or leaves the path, also when decoded.
_PATH: Final = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))(?:[A-Za-z0-9._~:@!$&'()*+,;=-]|%(?!2[EeFf])[0-9A-Fa-f]{2})+)+|/", re.ASCII
)
_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)


def target(path: str, params: Mapping[str, str | int | bool] | None) -> str:
    """Path and query. Raises ValueError for a path that no API call can have."""
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
