"""What already stands on a CSR: the answer that it has, and the request as it was before it had one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signer.model.csr_header import Condition
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of


@dataclass(frozen=True, slots=True)
class CurrentCondition:
    """One condition of a CSR; everything in it is the workload cluster's word, printable."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CurrentConditions:
    """What the API server shows of a CSR."""

    conditions: tuple[CurrentCondition, ...]
    has_certificate: bool

    @property
    def is_settled(self) -> bool:
        """Whether the controller would not look at it any more."""
        ended = {Condition.DENIED.value, Condition.FAILED.value}
        return self.has_certificate or any(one.type in ended for one in self.conditions)


def current_conditions_of(manifest: Mapping[str, Any]) -> CurrentConditions:
    """Read ``status`` of a CSR, whatever it holds."""
    status = mapping_of(manifest, "status")
    found = tuple(
        CurrentCondition(*(printable(text_of(one, field)) for field in ("type", "reason", "message")))
        for one in items_of(status, "conditions")[:8]
        if isinstance(one, Mapping)
    )
    return CurrentConditions(found, bool(status.get("certificate")))


def as_posted(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The CSR as it was before anybody answered it."""
    return {**manifest, "status": {}}
