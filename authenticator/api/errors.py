"""Why a call failed, and whether the API server may have done it all the same.

::

    CallFailed
      NotDone            surely without effect
        Unreachable      no connection                                temporary
        Untrusted        the server is not the one whose CA we have
        Busy             429: come back later                         temporary
        Unauthorized     401
        Forbidden        403
        NotFound         404
        AlreadyExists    409
        Expired          410: a watch from a version that is too old
        Rejected         anything else that the server refused
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
    """Whoever answers does not have a certificate of the cluster's CA, or speaks no TLS."""


class Busy(NotDone):
    """The server wants to be asked later."""

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
    """An object of that name is there."""


class Expired(NotDone):
    """The server no longer knows the version that a watch is to start from."""


class Rejected(NotDone):
    """The server refused the request as it is."""


class PerhapsDone(CallFailed):
    """The request went out, and no answer came back that says what became of it."""
