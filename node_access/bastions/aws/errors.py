"""Errors of EC2 that the provider treats in a way of their own."""

from __future__ import annotations

from node_access.bastions.contract import CallFailed


class InUse(CallFailed):
    """Something refers to the resource (``DependencyViolation``)."""


class OtherRequest(CallFailed):
    """The client token was used for a request that differs (``IdempotentParameterMismatch``)."""


class InstanceEnded(CallFailed):
    """The client token was used for an instance that has ended (``IdempotentInstanceTerminated``)."""
