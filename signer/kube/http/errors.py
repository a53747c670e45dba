"""How an exchange fails below the Kubernetes API, besides the OSError (ssl.SSLError, gaierror) of connecting."""

from __future__ import annotations


class MalformedAnswer(Exception):
    """What came is not HTTP/1.1, or not within its bounds. Says nothing of it: it is the server's text."""


class ConnectionClosed(ConnectionError):
    """The connection ended before the answer did."""

    def __init__(self, *, within_answer: bool, tls_reason: str | None = None) -> None:
        super().__init__("the connection was closed" + (" within the answer" if within_answer else ""))
        self.within_answer = within_answer
        """Whether a byte of the answer had come; if not, the request may have been processed, or never been read."""
        self.tls_reason = tls_reason
        """OpenSSL's word for what was wrong, where TLS broke it off."""
