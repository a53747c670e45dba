"""HTTP/1.1 messages: the wire format of requests, which only this module writes, and parsing of responses. Does no I/O.

Parsing takes bytes and returns status, the used header fields, and the body. llhttp is strict (RFC 9112 section 6.3:
one length, stated once, in digits), but does not bound the bytes outside the body. This module does: an endless head,
chunk extensions or trailers are malformed. It also declares the failures of an exchange below the Kubernetes API,
besides the OSError (ssl.SSLError, gaierror) of connecting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

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


# Absolute, no empty and no dot segments, nothing that starts a query or leaves the path, also when decoded.
# Possessive quantifiers: a segment's characters are matched at once, not one by one, and no match is tried twice.
_PATH = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))(?:[A-Za-z0-9._~:@!$&'()*+,;=-]++|%(?!2[EeFf])[0-9A-Fa-f]{2})++)++|/", re.ASCII
)


def target(path: str, params: Mapping[str, str | int | bool] | None) -> str:
    """Path and query. Raises ValueError for a path that no API call can have."""
    if _PATH.fullmatch(path) is None:
        raise ValueError("an API path is absolute, encoded, and without dot segments and query")
    if not params:
        return path
    query = urlencode([(k, str(v).lower() if isinstance(v, bool) else v) for k, v in params.items()])
    return f"{path}?{query}"


class RequestWriter:
    """Writes requests to one origin with common header ``fields``, in which a name may be repeated."""

    def __init__(self, origin: Origin, fields: Iterable[tuple[str, str]]) -> None:
        self._path_prefix = origin.path_prefix
        lines = [f"Host: {origin.authority}", *(f"{name}: {value}" for name, value in fields)]
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


class MalformedAnswer(Exception):
    """The data is not HTTP/1.1, or exceeds its bounds. The error never quotes the data, which is the server's."""


class ConnectionClosed(ConnectionError):
    """The connection ended before the response did."""

    def __init__(self, *, within_answer: bool, tls_reason: str | None = None) -> None:
        super().__init__("the connection was closed" + (" within the answer" if within_answer else ""))
        self.within_answer = within_answer
        """Whether a byte of the response had arrived; if not, the request may have been processed, or never been read.
        """
        self.tls_reason = tls_reason
        """OpenSSL's reason if TLS ended the connection."""


MAXIMUM_HEAD_BYTES = 16 * 1024
"""For all header fields of a response. API servers send a few hundred bytes, and at most 4 KiB of warnings (apiserver
``pkg/warning``)."""
MAXIMUM_FIELDS = 100
MAXIMUM_OVERHEAD_BYTES = 32 * 1024
"""Bytes outside the body, beyond ``OVERHEAD_PER_BODY_BYTE`` for each byte of the body."""
OVERHEAD_PER_BODY_BYTE = 8
"""A chunk of one byte has five bytes around it."""
_USED = frozenset(
    {b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"retry-after", b"date"}
)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and the used header fields; a repeated field is joined to a list (RFC 9110 section 5.3)."""

    status: int
    content_type: str = ""
    content_encoding: str = ""
    content_length: int | None = None
    retry_after: str | None = None
    date: str = ""
    ends_with_connection: bool = False
    """The server does not state where the body ends. Such a body is not read: a truncated one would go unnoticed."""


class ResponseParser:
    """Parses one response; informational ones (1xx) before it are skipped.

    ``feed`` never raises: its results are attributes.
    """

    __slots__ = (
        "_body", "_body_bytes", "_fields", "_head_bytes", "_overhead", "_parser", "_used",
        "began", "complete", "head", "held", "malformed", "reusable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.began = False
        """A byte has arrived."""
        self.head: ResponseHead | None = None
        self.complete = False
        self.malformed = False
        self.reusable = False
        """The response is complete, and the connection can carry another request."""
        self.held = 0
        """Buffered bytes of the body."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._fields = 0
        self._head_bytes = 0
        self._overhead = 0
        self._used: dict[bytes, str] = {}
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse more data."""
        self.began = True
        if self._parser is None:
            self.reusable = False  # unrequested data
            return
        before = self._body_bytes
        failed = False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):  # also errors of the callbacks below, and status 101
            failed = True
        body = self._body_bytes - before
        self._overhead = max(0, self._overhead + len(data) - body - OVERHEAD_PER_BODY_BYTE * body)
        if self.complete:
            self.reusable = self.reusable and not failed
            self.close()
        elif failed or self._overhead > MAXIMUM_OVERHEAD_BYTES:
            self.malformed = True
            self._forget()
        elif self.head is not None and self.head.ends_with_connection:
            self._forget()

    def take(self, maximum: int | None = None) -> bytes:
        """Up to ``maximum`` of the buffered bytes of the body."""
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if maximum is not None and len(data) > maximum:
            self._body.append(data[maximum:])
            data = data[:maximum]
        self.held -= len(data)
        return data

    def close(self) -> None:
        """Stop parsing."""
        self._parser = None  # it references methods of this object

    def _forget(self) -> None:
        self.close()
        self._body.clear()
        self.held = 0

    # Called by the parser

    def on_message_begin(self) -> None:
        if self.complete:
            raise HttpParserError("bytes behind the answer")
        self._used.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._head_bytes += len(name) + len(value) + 4
        if self._fields > MAXIMUM_FIELDS or self._head_bytes > MAXIMUM_HEAD_BYTES:
            raise HttpParserError("too much head")
        key = name.lower()
        if key in _USED:
            text = value.strip(b" \t").decode("latin-1")
            earlier = self._used.get(key)
            self._used[key] = text if earlier is None else f"{earlier}, {text}"

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 100 or self._parser.get_http_version() not in {"1.1", "1.0"}:
            raise HttpParserError("not HTTP/1")
        if status >= 200:  # trailers are ignored
            self.head = _head(status, self._used)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self._body.append(data)
        self.held += len(data)

    def on_message_complete(self) -> None:
        if self.head is not None and self._parser is not None:
            self.complete = True
            self.reusable = self._parser.should_keep_alive()


def _head(status: int, used: dict[bytes, str]) -> ResponseHead:
    """Raises HttpParserError for a transfer coding that is not plain chunked."""
    coding, length = used.get(b"transfer-encoding"), used.get(b"content-length")
    if coding is not None and coding.lower() != "chunked":
        raise HttpParserError("another transfer coding than chunked")
    return ResponseHead(
        status=status,
        content_type=used.get(b"content-type", ""),
        content_encoding=used.get(b"content-encoding", ""),
        content_length=None if length is None else int(length),
        retry_after=used.get(b"retry-after"),
        date=used.get(b"date", ""),
        ends_with_connection=coding is None and length is None and status not in {204, 304},
    )
