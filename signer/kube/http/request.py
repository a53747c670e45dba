"""The wire format of requests. Only this module writes requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

HTTPS_PORT = 443
_VISIBLE = re.compile(r"[!-~]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Origin:
    """The destination of requests."""

    host: str
    """A name or an address; IPv6 without brackets."""
    port: int
    path_prefix: str
    """Prefix of each path: empty, or with a leading and without a trailing slash."""

    @property
    def authority(self) -> str:
        """The value of ``Host`` (RFC 9110 section 7.2), without the port if it is the https port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == HTTPS_PORT else f"{host}:{self.port}"

    @classmethod
    def of(cls, server: str) -> Origin:
        """Parse ``https://host[:port][/prefix]``; raises ValueError for anything else."""
        refused = ValueError("an API server is reached by https only, as https://host[:port][/prefix]")
        if _VISIBLE.fullmatch(server) is None:  # urlsplit would drop some other characters
            raise refused
        try:
            parts = urlsplit(server)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise refused from None
        if parts.scheme != "https" or not host or port == 0 or parts.username is not None or set(server) & {"?", "#"}:
            raise refused
        return cls(host, port or HTTPS_PORT, parts.path.rstrip("/"))


class RequestWriter:
    """Writes requests to one origin with common header ``fields``."""

    def __init__(self, origin: Origin, fields: Mapping[str, str]) -> None:
        self._path_prefix = origin.path_prefix
        lines = [f"Host: {origin.authority}", *(f"{name}: {value}" for name, value in fields.items())]
        self._common = "\r\n".join(lines)
        self._lines = len(lines)

    def write(self, method: str, target: str, fields: Mapping[str, str], body: bytes | None) -> bytes:
        """One request. ``target`` is path and query after the prefix, both encoded.

        Raises:
            ValueError: a part contains a character that would start another part, line, or request, or is not ASCII.
        """
        lines = [f"{method} {self._path_prefix}{target} HTTP/1.1", self._common]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines) + "\r\n\r\n"
        ends = len(lines) + self._lines  # one for each line and the empty line; `lines` holds the common lines as one
        if head.count("\r") != ends or head.count("\n") != ends or "\0" in head or lines[0].count(" ") != 2:
            raise ValueError("a part of the request holds a character that would end it")
        return head.encode("ascii") + (body or b"")
