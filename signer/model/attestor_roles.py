"""The attestors that the operator accepts for each role of Machines, and where a policy falls below a floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from attestors.contract import MachineRole
from attestors.contract.composite import attestors_of_identity
from signer.model.record import AttestedIdentity


@dataclass(frozen=True, slots=True)
class AnyAttestor:
    """Every attestor that policy and operator allow is accepted."""

    def accepts(self, provider: str) -> bool:
        """Whether evidence of that attestor is accepted."""
        return bool(provider)

    def accepts_identity(self, identity: AttestedIdentity) -> bool:
        """Whether an identity that was proven counts."""
        return self.accepts(identity.provider)

    def __str__(self) -> str:
        return "any attestor"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Evidence of one of these attestors is required, and an identity that all of ``together`` proved."""

    providers: frozenset[str]
    together: frozenset[str] = frozenset()
    """Attestors that must all have proved the identity: the composite attestor asks several."""

    def accepts(self, provider: str) -> bool:
        """Whether evidence of that attestor is accepted."""
        return provider in self.providers

    def accepts_identity(self, identity: AttestedIdentity) -> bool:
        """Whether an identity that was proven counts. The identity itself tells which attestors proved it: the
        composite attestor may have asked others when the identity was recorded.
        """
        return self.accepts(identity.provider) and self.together <= attestors_of_identity(
            identity.provider, identity.identity
        )

    def __str__(self) -> str:
        names = " or ".join(sorted(self.providers)) or "no attestor"
        return f"{names} with {' and '.join(sorted(self.together))}" if self.together - self.providers else names


Accepted: TypeAlias = AnyAttestor | AnyOf


def narrower(one: Accepted, other: Accepted) -> Accepted:
    """What both accept."""
    if isinstance(one, AnyAttestor):
        return other
    if isinstance(other, AnyAttestor):
        return one
    return AnyOf(one.providers & other.providers, one.together | other.together)


@dataclass(frozen=True, slots=True)
class RequiredAttestors:
    """The attestors whose evidence counts, by the Machine's role."""

    control_plane: Accepted = AnyAttestor()
    workers: Accepted = AnyAttestor()
    """Also for members of MachinePools."""

    def of(self, role: MachineRole) -> Accepted:
        """Those for Machines of that role."""
        return self.control_plane if role is MachineRole.CONTROL_PLANE else self.workers

    def accepts_for_some_role(self, provider: str) -> bool:
        """Whether evidence of that attestor counts for any Machine."""
        return self.control_plane.accepts(provider) or self.workers.accepts(provider)

    def unmet_by(self, providers: frozenset[str]) -> tuple[str, ...]:
        """The roles for which evidence of none of ``providers`` counts, each with the attestors whose evidence does."""
        roles = (("control planes", self.control_plane), ("workers", self.workers))
        return tuple(
            f"{accepted} for {role}"
            for role, accepted in roles
            if isinstance(accepted, AnyOf) and not providers & accepted.providers
        )

    def narrower(self, other: RequiredAttestors) -> RequiredAttestors:
        """What both accept."""
        return RequiredAttestors(
            narrower(self.control_plane, other.control_plane), narrower(self.workers, other.workers)
        )


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A field of a policy that is below the operator's floor, and what is in force instead."""

    field: str
    """Path in the policy, such as ``spec.mode``."""
    stated: str
    in_force: str

    def __str__(self) -> str:
        return f"{self.field} is {self.stated}, in force is {self.in_force}"


__all__ = ["Accepted", "AnyAttestor", "AnyOf", "RequiredAttestors", "Shortfall", "narrower"]
