"""A small, faithful Kubernetes API server in pure Python, for tests, demonstrations and authors of plugins.

Its behaviour is pinned by running the same conformance tests against it and against a real kube-apiserver.
"""

from __future__ import annotations

from .embedded import EmbeddedAPI
from .faults import Fault, Faults, LoggedRequest, Request, RequestLog
from .identity import ADMINISTRATOR, User
from .status import APIError

__all__ = [
    "EmbeddedAPI",
    "User",
    "ADMINISTRATOR",
    "APIError",
    "Faults",
    "Fault",
    "Request",
    "RequestLog",
    "LoggedRequest",
]
