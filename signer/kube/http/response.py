"""What a server answers: bytes in, status, the few header fields that are used, and the body out. Knows no network.

llhttp is strict (RFC 9112 section 6.3: one length, said once, in digits) and keeps no count of what is no body. That is
done here: a head, chunk extensions or trailers without end are malformed.
"""

from __future__ import annotations

from dataclasses import dataclass

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAXIMUM_HEAD_BYTES = 16 * 1024
"""Of an answer's header fields together. API servers send a few hundred bytes, with warnings at most 4 KiB
(apiserver ``pkg/warning``)."""
MAXIMUM_FIELDS = 100
MAXIMUM_OVERHEAD_BYTES = 32 * 1024
"""Of what is no body, beyond what comes with it."""
OVERHEAD_PER_BODY_BYTE = 8
"""A chunk of one byte has five around it."""
_USED = frozenset({b"content-type", b"content-encoding", b"content-length", b"transfer-encoding", b"retry-after"})


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status, and the header fields that are used; one that was sent several times is a list (RFC 9110 section 5.3)."""

    status: int
    content_type: str = ""
    content_encoding: str = ""
    content_length: int | None = None
    retry_after: str | None = None
    ends_with_connection: bool = False
    """The server does not say where the body ends. It is not read: whoever cuts the connection would cut it, too."""


class ResponseParser:
    """Reads one answer, informational ones (1xx) before it passed over.

    ``feed`` never raises: what it found stands in the attributes.
    """

    __slots__ = (
        "_body", "_body_bytes", "_fields", "_head_bytes", "_overhead", "_parser", "_used",
        "began", "complete", "head", "held", "malformed", "reusable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.began = False
        """A byte has come."""
        self.head: ResponseHead | None = None
        self.complete = False
        self.malformed = False
        self.reusable = False
        """The answer is complete, and the connection may carry another request."""
        self.held = 0
        """Bytes of the body that were read and not taken."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._fields = 0
        self._head_bytes = 0
        self._overhead = 0
        self._used: dict[bytes, str] = {}
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read on."""
        self.began = True
        if self._parser is None:
            self.reusable = False  # more than was asked for
            return
        before = self._body_bytes
        failed = False
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):  # also what the callbacks below raise, and status 101
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
        """What is held of the body, at most ``maximum`` bytes of it."""
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if maximum is not None and len(data) > maximum:
            self._body.append(data[maximum:])
            data = data[:maximum]
        self.held -= len(data)
        return data

    def close(self) -> None:
        """Read no more."""
        self._parser = None  # which holds methods of this object

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
        if status >= 200:  # what trailers say is not looked at
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
        ends_with_connection=coding is None and length is None and status not in {204, 304},
    )
