"""Counts one cluster's kubelet requests to the built-in signer that were approved without attestation."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from attestors.wire.names import BuiltinSigner
from signer.kube.client import JsonObject
from signer.model.condition import PolicyCondition
from signer.model.fields import items_of, mapping_of, text_of

_REMEMBERED: Final = 4096
_APPROVED: Final = "Approved"
_BUILTIN_SIGNER: Final = BuiltinSigner.KUBELET_CLIENT.value


class Seen(enum.Enum):
    """Whether an observation is new."""

    BEFORE = enum.auto()
    NOW = enum.auto()


class BuiltinApprovals:
    """Counts approvals, except those from before the first list; approvals during a gap of the watch count."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._has_listed = False
        self._count = 0
        self._since: datetime | None = None

    def listed(self, manifest: JsonObject) -> Seen:
        """Observe a CSR of a list; ``NOW`` for an approval that is new but not counted, or that exceeds the memory."""
        is_known = not self._has_listed or len(self._uids) >= _REMEMBERED
        return self._remember(manifest) if is_known and _is_builtin_approval(manifest) else Seen.BEFORE

    def list_ended(self) -> None:
        """The list is complete."""
        self._has_listed = True

    def count(self, manifest: JsonObject, now: Callable[[], datetime]) -> Seen:
        """Observe any CSR; ``NOW`` if this call counted an approval."""
        if not _is_builtin_approval(manifest) or self._remember(manifest) is Seen.BEFORE:
            return Seen.BEFORE
        self._count += 1
        self._since = self._since or now()
        return Seen.NOW

    @property
    def changes_message(self) -> bool:
        """Whether the last counted approval changes the message of the condition."""
        return _at_least(self._count) != _at_least(self._count - 1)

    def annotated(self, condition: PolicyCondition) -> PolicyCondition:
        """The condition with the number of approvals that Enforce would have prevented."""
        if self._since is None:
            return condition
        message = (
            f"{condition.message}; {_at_least(self._count)} built-in requests were approved without attestation since "
            f"{self._since:%Y-%m-%d %H:%M} UTC; Enforce would have prevented that"
        )
        return replace(condition, message=message)

    def _remember(self, manifest: JsonObject) -> Seen:
        uid = text_of(mapping_of(manifest, "metadata"), "uid")[:128]
        if uid in self._uids:
            return Seen.BEFORE
        self._uids[uid] = None
        if len(self._uids) > _REMEMBERED:
            self._uids.popitem(last=False)
        return Seen.NOW


def is_builtin_request(manifest: JsonObject) -> bool:
    """Whether the CSR requests a kubelet's client certificate from the built-in signer."""
    return text_of(mapping_of(manifest, "spec"), "signerName") == _BUILTIN_SIGNER


def is_approved(manifest: JsonObject) -> bool:
    """Whether the CSR has condition ``Approved``."""
    return any(
        isinstance(condition, Mapping) and text_of(condition, "type") == _APPROVED
        for condition in items_of(mapping_of(manifest, "status"), "conditions")
    )


def _is_builtin_approval(manifest: JsonObject) -> bool:
    return is_builtin_request(manifest) and is_approved(manifest)


def _at_least(count: int) -> str:
    """The exact count if small, then steps, so that a requester cannot cause a status write per request."""
    if count < 10:
        return str(count)
    step = 10 ** (len(str(count)) - 1)
    return f"at least {count // step * step}"
