"""The operator's floors: what no policy of a namespace may fall below, whatever it says.

A floor changes the values in force, and never refuses a policy: a policy below it would otherwise stop the cluster's
nodes from renewing. :func:`signer.model.policy.parse_policy` applies the floor, so no value below it is ever read.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from typing import Final, TypeVar

from attestors.contract import INSECURE_PROVIDER
from signer.model.attestor_roles import RequiredAttestors, Shortfall
from signer.model.durations import duration_text
from signer.model.policy import (
    MAXIMUM_CERTIFICATE_DURATION,
    ApprovalByOthers,
    Mode,
    NodeNameReuse,
    Policy,
    UntraceableTokens,
)
from signer.model.ssh_access import SSHSettings

_Choice = TypeVar("_Choice", bound=enum.Enum)

_STRICTER_LATER: Final[tuple[tuple[enum.Enum, ...], ...]] = (
    (Mode.OBSERVE, Mode.ENFORCE),
    (NodeNameReuse.IMMEDIATE, NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE, NodeNameReuse.AFTER_EXPIRY),
    (ApprovalByOthers.HONOR, ApprovalByOthers.REFUSE),
    (UntraceableTokens.ALLOW, UntraceableTokens.REFUSE),
)
"""The choices of each field, the least strict first."""
_RANKS: Final = {choice: rank for choices in _STRICTER_LATER for rank, choice in enumerate(choices)}


MODE_FIELD: Final = "spec.mode"
_FIELDS: Final = {
    MODE_FIELD: "mode",
    "spec.certificates.clientDuration": "client_duration",
    "spec.certificates.servingDuration": "serving_duration",
    "spec.certificates.deletingDuration": "deleting_duration",
    "spec.nodeNameReuse": "node_name_reuse",
    "spec.approvalByOthers": "approval_by_others",
    "spec.bootstrapTokens.untraceable": "untraceable_tokens",
}
"""Attributes of a policy that floors change, by their paths."""


def stricter(one: _Choice, other: _Choice) -> _Choice:
    """The stricter of two choices of one field."""
    return one if _RANKS[one] >= _RANKS[other] else other


@dataclass(frozen=True, slots=True)
class MaximumDurations:
    """The longest lifetimes of certificates."""

    client: timedelta = MAXIMUM_CERTIFICATE_DURATION
    serving: timedelta = MAXIMUM_CERTIFICATE_DURATION
    insecure: timedelta = MAXIMUM_CERTIFICATE_DURATION
    deleting: timedelta = MAXIMUM_CERTIFICATE_DURATION
    ssh_host: timedelta = MAXIMUM_CERTIFICATE_DURATION

    def shorter(self, other: MaximumDurations) -> MaximumDurations:
        """The shorter of each."""
        return MaximumDurations(
            min(self.client, other.client),
            min(self.serving, other.serving),
            min(self.insecure, other.insecure),
            min(self.deleting, other.deleting),
            min(self.ssh_host, other.ssh_host),
        )


@dataclass(frozen=True, slots=True)
class Floor:
    """What the policies of a namespace cannot fall below. The default lets them say anything that is valid."""

    mode: Mode = Mode.OBSERVE
    durations: MaximumDurations = field(default_factory=MaximumDurations)
    node_name_reuse: NodeNameReuse = NodeNameReuse.IMMEDIATE
    approval_by_others: ApprovalByOthers = ApprovalByOthers.HONOR
    untraceable_tokens: UntraceableTokens = UntraceableTokens.ALLOW
    required: RequiredAttestors = field(default_factory=RequiredAttestors)

    def stricter(self, other: Floor) -> Floor:
        """The stricter of both, field by field."""
        return Floor(
            stricter(self.mode, other.mode),
            self.durations.shorter(other.durations),
            stricter(self.node_name_reuse, other.node_name_reuse),
            stricter(self.approval_by_others, other.approval_by_others),
            stricter(self.untraceable_tokens, other.untraceable_tokens),
            self.required.narrower(other.required),
        )

    def in_force(self, stated: Policy) -> Policy:
        """The policy that applies: the stricter of ``stated`` and this floor, field by field."""
        most = self.durations
        raised = replace(
            stated,
            mode=stricter(stated.mode, self.mode),
            node_name_reuse=stricter(stated.node_name_reuse, self.node_name_reuse),
            approval_by_others=stricter(stated.approval_by_others, self.approval_by_others),
            untraceable_tokens=stricter(stated.untraceable_tokens, self.untraceable_tokens),
            client_duration=min(stated.client_duration, most.client),
            serving_duration=min(stated.serving_duration, most.serving),
            insecure_duration=min(stated.insecure_duration, most.insecure),
            deleting_duration=min(stated.deleting_duration, most.deleting),
            ssh=_shortened(stated.ssh, most.ssh_host) if isinstance(stated.ssh, SSHSettings) else stated.ssh,
            required_attestors=self.required,
        )
        found = (*_changed(stated, raised), *_attestors_below(stated, self.required))
        return replace(raised, shortfalls=found)


NO_FLOOR: Final = Floor()


@dataclass(frozen=True, slots=True)
class NamespaceFloor:
    """A floor, and the namespaces that it is for."""

    namespaces: frozenset[str]
    everywhere: bool
    """It is for every namespace."""
    floor: Floor


@dataclass(frozen=True, slots=True)
class Floors:
    """The operator's floors."""

    entries: tuple[NamespaceFloor, ...] = ()

    def of(self, namespace: str) -> Floor:
        """The floor of the namespace: of all entries for it, the strictest, field by field."""
        found = (one.floor for one in self.entries if one.everywhere or namespace in one.namespaces)
        return reduce(Floor.stricter, found, NO_FLOOR)


NO_FLOORS: Final = Floors()


def below_floors(shortfalls: Iterable[Shortfall]) -> str:
    """Where a policy is below the operator's floors, as condition, ``status`` and ``explain`` say it."""
    return f"below the operator's floors: {'; '.join(map(str, shortfalls))}"


def _shortened(ssh: SSHSettings, most: timedelta) -> SSHSettings:
    return replace(ssh, host_certificate_duration=min(ssh.host_certificate_duration, most))


def _changed(stated: Policy, raised: Policy) -> Iterator[Shortfall]:
    """The fields whose value in force is another than stated."""
    fields = {path: (getattr(stated, name), getattr(raised, name)) for path, name in _FIELDS.items()}
    if INSECURE_PROVIDER in _providers(stated):
        fields["spec.certificates.insecureDuration"] = (stated.insecure_duration, raised.insecure_duration)
    if isinstance(stated.ssh, SSHSettings) and isinstance(raised.ssh, SSHSettings):
        lifetimes = (stated.ssh.host_certificate_duration, raised.ssh.host_certificate_duration)
        fields["spec.ssh.hostCertificateDuration"] = lifetimes
    for path, (before, after) in fields.items():
        if before != after:
            yield Shortfall(path, _text(before), _text(after))


def _text(value: timedelta | enum.Enum) -> str:
    return duration_text(value) if isinstance(value, timedelta) else str(value.value)


def _providers(policy: Policy) -> frozenset[str]:
    return frozenset(attestor.provider for attestor in policy.authorized_attestors)


def _attestors_below(stated: Policy, required: RequiredAttestors) -> Iterator[Shortfall]:
    """Attestors that no Machine can use, and roles for which the policy authorizes none that is accepted."""
    path, providers = "spec.authorizedAttestors", _providers(stated)
    for name in sorted(providers):
        if not required.accepts_for_some_role(name):
            yield Shortfall(path, name, f"{required.control_plane} for control planes, {required.workers} for workers")
    for lacking in required.unmet_by(providers):
        yield Shortfall(path, ", ".join(sorted(providers)) or "empty", lacking)


__all__ = [
    "MODE_FIELD",
    "NO_FLOOR",
    "NO_FLOORS",
    "Floor",
    "Floors",
    "MaximumDurations",
    "NamespaceFloor",
    "below_floors",
    "stricter",
]
