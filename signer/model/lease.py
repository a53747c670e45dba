"""Reads and writes Leases of ``coordination.k8s.io/v1`` for leader election (client-go ``tools/leaderelection``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from signer.model.fields import format_micro_time, mapping_of, text_of

DEFAULT_LEASE_NAME: Final = "node-attestation-controller"
"""Of the Lease by which the controller's replicas elect their leader."""
API_VERSION: Final = "coordination.k8s.io/v1"
JITTER_FACTOR: Final = 1.2
"""Maximum pause between two attempts, in retry periods (client-go's ``JitterFactor``)."""
_RELEASED_SECONDS: Final = 1
"""``leaseDurationSeconds`` of a released Lease: 0 is invalid."""

_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
_MOST_TRANSITIONS: Final = 2**31 - 1
"""Maximum of an int32. The API server refuses more, so a Lease that has it could never be taken over otherwise."""


class InvalidLease(ValueError):
    """A Lease cannot be read."""


class InvalidTimes(ValueError):
    """The times of a leader election contradict each other. The message names the flags."""


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """The times of a leader election. The defaults are client-go's.

    Raises:
        InvalidTimes: client-go's ``NewLeaderElector`` would refuse them, or the duration is not whole seconds.
    """

    lease_duration: timedelta = timedelta(seconds=15)
    """A standby takes over when it has seen the Lease unchanged for this long."""
    renew_deadline: timedelta = timedelta(seconds=10)
    """The leader stops when its last renewal began this long ago."""
    retry_period: timedelta = timedelta(seconds=2)
    """Pause between two attempts."""

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
            raise InvalidTimes("--leader-elect-lease-duration must be whole seconds, as in a Lease")


@dataclass(frozen=True, slots=True)
class Holding:
    """The spec of a Lease. An election compares its times with no clock; see ``signer.rules.leadership``."""

    holder: str
    """``holderIdentity``; empty after a release."""
    duration_seconds: int
    acquire_time: str
    """As the holder wrote it, or empty."""
    renew_time: str
    """It changes with each renewal. An election reads it only to detect that."""
    transitions: int


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API server has it."""

    holding: Holding
    manifest: Mapping[str, Any]
    """The whole object: an update keeps its resourceVersion and the fields of other writers."""


def parse_lease(manifest: Mapping[str, Any]) -> Lease:
    """Read a Lease.

    Raises:
        InvalidLease: a field is missing or malformed.
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


def renewed_at(holding: Holding) -> datetime:
    """When the holder renewed the Lease, by the holder's clock.

    Raises:
        InvalidLease: ``renewTime`` is missing or is no time.
    """
    if not _MICRO_TIME.fullmatch(holding.renew_time):
        raise InvalidLease("spec.renewTime is not a time of the form 2026-01-02T03:04:05.000000Z")
    try:
        return datetime.fromisoformat(holding.renew_time)
    except ValueError as error:
        raise InvalidLease("spec.renewTime is not a time that exists") from error


def new_lease(
    name: str,
    namespace: str,
    holding: Holding,
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The manifest of a new Lease."""
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
    """The manifest of that Lease with another holding. The update succeeds only for the resourceVersion that was read.

    It restores ``labels`` and ``annotations`` that another client removed.
    """
    metadata = dict(mapping_of(lease.manifest, "metadata"))
    for key, texts in (("labels", labels), ("annotations", annotations)):
        if texts:
            metadata[key] = {**mapping_of(metadata, key), **texts}
    spec = {**mapping_of(lease.manifest, "spec"), **_spec(holding)}
    return {**lease.manifest, "metadata": metadata, "spec": spec}


def taken(identity: str, times: ElectionTimes, now: datetime, transitions: int = 0) -> Holding:
    """The holding after ``identity`` takes the Lease at ``now``."""
    moment = format_micro_time(now)
    seconds = times.lease_duration // timedelta(seconds=1)
    return Holding(identity, seconds, moment, moment, min(transitions, _MOST_TRANSITIONS))


def renewed(holding: Holding, times: ElectionTimes, now: datetime) -> Holding:
    """The holding after its holder renews the Lease at ``now``."""
    seconds = times.lease_duration // timedelta(seconds=1)
    return replace(holding, duration_seconds=seconds, renew_time=format_micro_time(now))


def released(holding: Holding, now: datetime) -> Holding:
    """The holding after a release: any replica may take the Lease at once."""
    moment = format_micro_time(now)
    return Holding("", _RELEASED_SECONDS, moment, moment, holding.transitions)


def _spec(holding: Holding) -> dict[str, Any]:
    times = {"acquireTime": holding.acquire_time, "renewTime": holding.renew_time}
    return {
        "holderIdentity": holding.holder,
        "leaseDurationSeconds": holding.duration_seconds,
        "leaseTransitions": holding.transitions,
        **{key: text for key, text in times.items() if text},  # "" is not a valid time
    }


def _number(spec: Mapping[str, Any], key: str) -> int:
    value = spec.get(key, 0)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidLease(f"spec.{key} is not a count")
    return value
