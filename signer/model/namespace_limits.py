"""How many objects of each kind one namespace may have, so that no tenant fills the controller's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAXIMUM_LIMIT: Final = 1_000_000
"""Also the number of objects of one kind, in all namespaces together, that the controller lists."""


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """The largest number of objects of each kind in one namespace, from 1 to :data:`MAXIMUM_LIMIT`.

    In a namespace with more, the controller decides nothing; of access grants, approvals and bastions, nothing about
    access. The defaults are far above what a controller can serve in one namespace.
    """

    clusters: int = 5_000
    machines: int = 50_000
    """A Machine with many or long addresses counts several times."""
    machine_pools: int = 2_000
    """A pool counts once more for each hundred instances that it lists."""
    kubeadm_configs: int = 50_000
    attested_nodes: int = 100_000
    """Former nodes have records too, until their last certificates expire."""
    policies: int = 5_000
    access_grants: int = 5_000
    access_approvals: int = 20_000
    bastions: int = 5_000


DEFAULT_NAMESPACE_LIMITS: Final = NamespaceLimits()
NOTHING_IS_DECIDED: Final = "nothing in the namespace is decided"


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A namespace that has too many objects of one kind, or had and was not listed again."""

    resource: str
    """The plural, as in ``machines``."""
    namespace: str
    count: int
    limit: int
    consequence: str = NOTHING_IS_DECIDED
    counting: str = ""
    """Continues the sentence, where large objects count several times."""

    @property
    def at_least(self) -> int:
        """The count in steps of a tenth of the limit: each change of a condition's message is a write."""
        step = max(1, self.limit // 10)
        return self.count // step * step

    @property
    def returns_at(self) -> int:
        """With so many objects, or fewer, the controller reads the namespace again."""
        return returns_at(self.limit)

    def __str__(self) -> str:
        return (
            f"namespace {self.namespace} has at least {self.at_least} {self.resource}{self.counting}, and the "
            f"operator's limit is {self.limit}, so {self.consequence}: delete {self.resource} until {self.returns_at} "
            "are left, or have the operator raise namespaceLimits in the controller's configuration"
        )


def returns_at(limit: int) -> int:
    """A tenth below the limit: a namespace at its limit must not have the collection listed at each change."""
    return limit * 9 // 10
