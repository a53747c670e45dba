"""Kubelets' requests that the built-in signer's approver let through without attestation, counted for one cluster."""

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
    """Whether what a request says was seen before."""

    BEFORE = enum.auto()
    NOW = enum.auto()


class BuiltinApprovals:
    """What was approved before the first list of requests is not counted, what while nobody watched is."""

    def __init__(self) -> None:
        self._uids: OrderedDict[str, None] = OrderedDict()
        self._has_listed = False
        self._count = 0
        self._since: datetime | None = None

    def listed(self, manifest: JsonObject) -> Seen:
        """Of a CSR of a list: ``NOW`` for an approval that is not counted, or one too many to remember."""
        is_known = not self._has_listed or len(self._uids) >= _REMEMBERED
        return self._remember(manifest) if is_known and _is_builtin_approval(manifest) else Seen.BEFORE

    def list_ended(self) -> None:
        """All of a list was told."""
        self._has_listed = True

    def count(self, manifest: JsonObject, now: Callable[[], datetime]) -> Seen:
        """Of any CSR: ``NOW`` for an approval that is counted with this call."""
        if not _is_builtin_approval(manifest) or self._remember(manifest) is Seen.BEFORE:
            return Seen.BEFORE
        self._count += 1
        self._since = self._since or now()
        return Seen.NOW

    @property
    def is_shown_otherwise(self) -> bool:
        """Whether what is said has changed with the last one that was counted."""
        return _at_least(self._count) != _at_least(self._count - 1)

    def told_in(self, condition: PolicyCondition) -> PolicyCondition:
        """The same condition, which says under Observe what Enforce would have refused."""
        if self._since is None:
            return condition
        said = (
            f"{condition.message}; {_at_least(self._count)} built-in requests were approved without attestation since "
            f"{self._since:%Y-%m-%d %H:%M} UTC, which Enforce would not have been"
        )
        return replace(condition, message=said)

    def _remember(self, manifest: JsonObject) -> Seen:
        uid = text_of(mapping_of(manifest, "metadata"), "uid")[:128]
        if uid in self._uids:
            return Seen.BEFORE
        self._uids[uid] = None
        if len(self._uids) > _REMEMBERED:
            self._uids.popitem(last=False)
        return Seen.NOW


def is_builtin_request(manifest: JsonObject) -> bool:
    """Whether it asks the built-in signer for a kubelet's client certificate."""
    return text_of(mapping_of(manifest, "spec"), "signerName") == _BUILTIN_SIGNER


def is_approved(manifest: JsonObject) -> bool:
    """Whether somebody approved that CSR."""
    return any(
        isinstance(condition, Mapping) and text_of(condition, "type") == _APPROVED
        for condition in items_of(mapping_of(manifest, "status"), "conditions")
    )


def _is_builtin_approval(manifest: JsonObject) -> bool:
    return is_builtin_request(manifest) and is_approved(manifest)


def _at_least(count: int) -> str:
    """Exact when few, then in steps: whoever posts requests must not make us write a status for each."""
    if count < 10:
        return str(count)
    step = 10 ** (len(str(count)) - 1)
    return f"at least {count // step * step}"
