"""Failures of an exchange below the Kubernetes API, besides the OSError (ssl.SSLError, gaierror) of connecting."""

from __future__ import annotations


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
