"""Failures of a call, by whether the API server may have executed it.

::

    CallFailed
      NotDone            certainly without effect
        Unreachable      no connection                                temporary
        Untrusted        the server has no certificate of our CA
        Busy             429: retry later                             temporary
        Unauthorized     401
        Forbidden        403
        NotFound         404
        AlreadyExists    409
        Expired          410: a watch from a version that is too old
        Rejected         any other refusal of the server
      PerhapsDone        the connection broke, or the server failed   temporary
"""

from __future__ import annotations


class CallFailed(Exception):
    """A call failed; the text is for a person."""


class NotDone(CallFailed):
    """The call had no effect."""


class Unreachable(NotDone):
    """No connection could be made."""


class Untrusted(NotDone):
    """The server has no certificate of the cluster's CA, or does not speak TLS."""


class Busy(NotDone):
    """The server asks for a retry later."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds."""


class Unauthorized(NotDone):
    """The server does not know the credential, or no longer."""


class Forbidden(NotDone):
    """The credential may not do that."""


class NotFound(NotDone):
    """There is no such object."""


class AlreadyExists(NotDone):
    """An object of that name exists."""


class Expired(NotDone):
    """The server no longer knows the resource version from which a watch should start."""


class Rejected(NotDone):
    """The server rejected the request."""


class PerhapsDone(CallFailed):
    """The request was sent, but no answer reports its result."""
