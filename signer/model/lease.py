"""A Lease of ``coordination.k8s.io/v1`` as leader election reads and writes it (client-go ``tools/leaderelection``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from signer.model.fields import format_micro_time, mapping_of, text_of

API_VERSION: Final = "coordination.k8s.io/v1"
JITTER_FACTOR: Final = 1.2
"""A pause between two attempts is at most so many retry periods (client-go's ``JitterFactor``)."""
_RELEASED_SECONDS: Final = 1
"""``leaseDurationSeconds`` of a Lease that nobody holds: 0 is invalid."""

_MOST_TRANSITIONS: Final = 2**31 - 1
"""An int32: the API server would refuse more, and nobody could ever take a Lease over that somebody wrote so."""


class InvalidLease(ValueError):
    """A Lease cannot be read."""


class InvalidTimes(ValueError):
    """The times of a leader election exclude each other; the message names the flags."""


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """How long a Lease is good for, and how it is kept; the defaults are client-go's.

    Raises:
        InvalidTimes: what client-go's ``NewLeaderElector`` refuses, and a Lease of a broken number of seconds.
    """

    lease_duration: timedelta = timedelta(seconds=15)
    """A standby takes over when it has seen the Lease unchanged for so long."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """The leader stops when its last renewal began so long ago."""
    retry_period: timedelta = timedelta(seconds=2)
    """Between two attempts."""

    def __post_init__(self) -> None:
        if self.retry_period <= timedelta(0):
            raise InvalidTimes("--leader-elect-retry-period must be more than zero")
        if self.renew_deadline <= JITTER_FACTOR * self.retry_period:
            raise InvalidTimes(
                f"--leader-elect-renew-deadline must be more than {JITTER_FACTOR} times --leader-elect-retry-period"
            )
        if self.lease_duration <= self.renew_deadline:
            raise InvalidTimes("--leader-elect-lease-duration must be more than --leader-elect-renew-deadline")
        if self.lease_duration % timedelta(seconds=1):
            raise InvalidTimes("--leader-elect-lease-duration must be whole seconds: a Lease holds no others")


@dataclass(frozen=True, slots=True)
class Holding:
    """What a Lease says about who holds it; nothing in it is compared with a clock."""

    holder: str
    """``holderIdentity``; empty where it was released."""
    duration_seconds: int
    acquire_time: str
    """As the holder wrote it, or empty."""
    renew_time: str
    """Differs after each renewal, which is all that it is read for."""
    transitions: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API server has it."""

    holding: Holding
    manifest: Mapping[str, Any]
    """With its resourceVersion and what others wrote into it: an update keeps all that."""


def parse_lease(manifest: Mapping[str, Any]) -> Lease:
    """Read a Lease.

    Raises:
        InvalidLease: no API server writes it so.
    """
    if not text_of(mapping_of(manifest, "metadata"), "resourceVersion"):
        raise InvalidLease("a Lease without a resourceVersion")
    spec = mapping_of(manifest, "spec")
    holding = Holding(
        holder=text_of(spec, "holderIdentity"),
        duration_seconds=_number(spec, "leaseDurationSeconds"),
        acquire_time=text_of(spec, "acquireTime"),
        renew_time=text_of(spec, "renewTime"),
        transitions=_number(spec, "leaseTransitions"),
    )
    return Lease(holding, manifest)


def new_lease(
    name: str,
    namespace: str,
    holding: Holding,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The manifest of a Lease that does not exist yet."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    metadata |= {key: dict(texts) for key, texts in (("labels", labels), ("annotations", annotations)) if texts}
    return {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": _spec(holding)}


def changed_lease(
    lease: Lease,
    holding: Holding,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The manifest of that Lease in other hands. It is good for the resourceVersion that was read, and no other.

    It has ``labels`` and ``annotations`` too, also where somebody removed them.
    """
    metadata = dict(mapping_of(lease.manifest, "metadata"))
    for key, texts in (("labels", labels), ("annotations", annotations)):
        if texts:
            metadata[key] = {**mapping_of(metadata, key), **texts}
    spec = {**mapping_of(lease.manifest, "spec"), **_spec(holding)}
    return {**lease.manifest, "metadata": metadata, "spec": spec}


def taken(identity: str, times: ElectionTimes, now: datetime, transitions: int = 0) -> Holding:
    """The Lease is ``identity``'s from ``now`` on."""
    moment = format_micro_time(now)
    seconds = times.lease_duration // timedelta(seconds=1)
    return Holding(identity, seconds, moment, moment, min(transitions, _MOST_TRANSITIONS))


def renewed(holding: Holding, times: ElectionTimes, now: datetime) -> Holding:
    """Its holder goes on holding it."""
    seconds = times.lease_duration // timedelta(seconds=1)
    return replace(holding, duration_seconds=seconds, renew_time=format_micro_time(now))


def released(holding: Holding, now: datetime) -> Holding:
    """Nobody holds it: whoever sees it so may take it at once."""
    moment = format_micro_time(now)
    return Holding("", _RELEASED_SECONDS, moment, moment, holding.transitions)


def _spec(holding: Holding) -> dict[str, Any]:
    times = {"acquireTime": holding.acquire_time, "renewTime": holding.renew_time}
    return {
        "holderIdentity": holding.holder,
        "leaseDurationSeconds": holding.duration_seconds,
        "leaseTransitions": holding.transitions,
        **{key: text for key, text in times.items() if text},  # "" is no time
    }


def _number(spec: Mapping[str, Any], key: str) -> int:
    value = spec.get(key, 0)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidLease(f"spec.{key} is no count")
    return value
