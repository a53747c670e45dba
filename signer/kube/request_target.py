"""What a call consists of: which path and parameters it may have, and in whose name it is made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from signer.kube.errors import Unauthorized

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
