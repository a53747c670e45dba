"""How to reach one API server, and in whose name calls to it are made."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Final

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


_TOKEN: Final = re.compile(r"[!-~]{1,16384}", re.ASCII)


def bearer(token: str) -> str:
    """The value of ``Authorization``. Raises Unauthorized for a token that no header can carry."""
    if _TOKEN.fullmatch(token) is None:
        raise Unauthorized("the bearer token is empty, too long or holds characters that no header can carry")
    return f"Bearer {token}"
