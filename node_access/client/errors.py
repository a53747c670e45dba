"""Why a command ends without its result."""

from __future__ import annotations


class ClientFailed(Exception):
    """The command cannot do what it is for. The message says why, and may hold text of the cluster."""


class WrongUse(ClientFailed):
    """An argument is wrong."""


class ManagementFailed(ClientFailed):
    """kubectl failed for another reason than the classes below: it is missing, cannot log in, or gets no answer."""


class NotFound(ManagementFailed):
    """The API server says that the object does not exist."""


class AccessNotServed(ManagementFailed):
    """The API server does not serve the definitions of access. It may have just started, so nothing counts as gone."""


class Forbidden(ManagementFailed):
    """The API server, or an admission policy, refuses."""


class Invalid(ManagementFailed):
    """The API server says that the object is not valid."""


class Conflict(ManagementFailed):
    """Another object of the name exists, or it has another UID."""
