"""Whether a controller renews its Lease, for commands that show what the controller has written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.controller.workload_access import NOT_READABLE
from signer.kube.client import Client
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import LEASES
from signer.kube.server_clock import ServerTime
from signer.model.decision import printable
from signer.model.lease import Holding, InvalidLease, parse_lease, renewed_at

HOLDERS_CLOCK: Final = timedelta(seconds=15)
"""By how much the holder's clock, which wrote the time of renewal, may be behind the API server's."""
OWN_CLOCK: Final = timedelta(minutes=1)
"""The same for this machine's clock, where the API server tells no time."""


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """A controller has renewed the Lease within its duration."""


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """No controller renews the Lease; the message says since when."""

    message: str


@dataclass(frozen=True, slots=True)
class LeaseNotKnown:
    """There is no such Lease, as without leader election, or it cannot be read; the message is empty for the former."""

    message: str = ""


ControllerLease: TypeAlias = LeaseRenewed | LeaseExpired | LeaseNotKnown


async def read_controller_lease(management: Client, namespace: str, name: str, now: datetime) -> ControllerLease:
    """Read the Lease by which replicas elect their leader. ``now`` counts where the API server tells no time."""
    title = f"Lease {namespace}/{name}"
    try:
        holding = parse_lease(await management.get(LEASES.object(name, namespace))).holding
        return judge_lease(management, title, holding, now)
    except NotFound:
        return LeaseNotKnown()
    except Forbidden:
        return LeaseNotKnown(f"{NOT_READABLE}: {title}; whether a controller runs is not known")
    except (ApiError, InvalidLease) as error:
        return LeaseNotKnown(f"{title} cannot be read, so whether a controller runs is not known: {error}")


def judge_lease(management: Client, title: str, holding: Holding, now: datetime) -> LeaseRenewed | LeaseExpired:
    """Whether the Lease is in force, by the clock of the API server that it was read from, else by ``now``.

    Raises:
        InvalidLease: it does not say when it was renewed.
    """
    server = management.clock.now()
    moment = server.moment - HOLDERS_CLOCK if isinstance(server, ServerTime) else now - OWN_CLOCK
    renewed = renewed_at(holding)
    if renewed + timedelta(seconds=holding.duration_seconds) >= moment:
        return LeaseRenewed()
    return LeaseExpired(
        printable(
            f"no controller has renewed {title} since {renewed:%Y-%m-%d %H:%M:%S} UTC: conditions are as it last wrote "
            "them. If no replica elects a leader by this Lease any more, delete it"
        )
    )


__all__ = ["ControllerLease", "LeaseExpired", "LeaseNotKnown", "LeaseRenewed", "judge_lease", "read_controller_lease"]
