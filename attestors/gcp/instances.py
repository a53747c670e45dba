"""Compute Engine's description of an instance, in addition to its token (``instances.get``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, TypeAlias

from attestors.clouds.google import ComputeEngine, Instance
from attestors.contract import IPAddress
from attestors.gcp.claims import InstanceClaims
from attestors.verdict import denied, not_yet

_ROUNDING: Final = timedelta(seconds=1)
"""A token holds the time of creation in whole seconds, Compute Engine in milliseconds."""


@dataclass(frozen=True, slots=True)
class NoLookUp:
    """Instances are not looked up: only the token describes them."""

    async def addresses(self, claimed: InstanceClaims) -> tuple[IPAddress, ...]:
        """Always empty: a token names no address."""
        return ()


@dataclass(frozen=True, slots=True)
class InstanceLookUp:
    """Looks instances up by their names."""

    engine: Callable[[], ComputeEngine] = field(repr=False)

    async def addresses(self, claimed: InstanceClaims) -> tuple[IPAddress, ...]:
        """The internal addresses of that very instance, which must run.

        Raises:
            Ended: the instance is gone, does not run, or is not yet the one that Compute Engine reports.
            CloudError: Compute Engine does not answer, rejects the call, or knows no instance of that name.
        """
        place = claimed.provider_id
        found = await self.engine().instance(place.project, place.zone, place.name)
        check_is_the_same(claimed, found)
        check_is_running(claimed, found)
        return found.internal_addresses


InstanceAddresses: TypeAlias = InstanceLookUp | NoLookUp


def check_is_the_same(claimed: InstanceClaims, found: Instance) -> None:
    """Check that the instance that has the name now is the token's instance. Names are reused, numeric IDs are not.

    Only the ID identifies the instance. The times of creation only order two instances: token and Compute Engine may
    not agree on the exact moment, and an instance must not wait for ever.

    Raises:
        Ended: denied if another instance was created since; otherwise Compute Engine's answer may be older than the
        token.
    """
    if found.instance_id == claimed.instance_id:
        return
    if found.created > claimed.created + _ROUNDING:
        raise denied(
            "InstanceReplaced",
            f"instance {claimed.instance_id} is gone: {claimed.provider_id} is another one, {found.instance_id}, "
            "which was created later",
        )
    raise not_yet(
        "InstanceNotKnownYet",
        f"Compute Engine says that {claimed.provider_id} is instance {found.instance_id}, and its identity token "
        f"{claimed.instance_id}",
    )


def check_is_running(claimed: InstanceClaims, found: Instance) -> None:
    """Raises ``Ended`` if the instance does not run now; it may be started again."""
    if not found.running:
        raise not_yet("InstanceNotRunning", f"instance {claimed.provider_id} is {found.status}, and not RUNNING")
