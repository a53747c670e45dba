"""The flags of leader election, by the names of client-go and Cluster API."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from signer.controller.configuration import (
    DEFAULT_LEASE_NAME,
    InvalidConfiguration,
    LeaderElection,
    NoLeaderElection,
)
from signer.kube.resources import segment
from signer.model.lease import ElectionTimes, InvalidTimes

_LONGEST_MICROSECONDS: Final = 24 * 60 * 60 * 10**6
_PART: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>ms|us|h|m|s)", re.ASCII)
_MICROSECONDS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


def add_leader_election(parser: argparse.ArgumentParser) -> None:
    """Whether, and how, replicas agree who works."""
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="work only while holding the Lease; replicas that do not hold it stand by",
    )
    for name, default, meaning in (
        ("lease-duration", "15s", "a standby takes over when it has seen the Lease unchanged for so long"),
        ("renew-deadline", "10s", "a leader that has not renewed the Lease for so long ends, with exit code 4"),
        ("retry-period", "2s", "pause between two attempts to take or renew the Lease"),
    ):
        parser.add_argument(
            f"--leader-elect-{name}",
            type=_go_duration,
            default=default,
            metavar="DURATION",
            help=f"{meaning} (default: {default})",
        )
    parser.add_argument(
        "--leader-elect-resource-name",
        default=DEFAULT_LEASE_NAME,
        metavar="NAME",
        help="name of the Lease, in the controller's namespace; controllers that serve different Clusters from one "
        "namespace need different ones (default: %(default)s)",
    )


def leader_election(options: argparse.Namespace) -> LeaderElection | NoLeaderElection:
    """What the flags say; without ``--leader-elect`` the others mean nothing, as in client-go.

    Raises:
        InvalidConfiguration: they contradict each other.
    """
    if not options.leader_elect:
        return NoLeaderElection()
    try:
        times = ElectionTimes(
            lease_duration=options.leader_elect_lease_duration,
            renew_deadline=options.leader_elect_renew_deadline,
            retry_period=options.leader_elect_retry_period,
        )
        segment(options.leader_elect_resource_name)
    except InvalidTimes as error:
        raise InvalidConfiguration(str(error)) from error
    except ValueError as error:
        raise InvalidConfiguration(f"--leader-elect-resource-name: {error}") from error
    return LeaderElection(times, options.leader_elect_resource_name)


def _go_duration(text: str) -> timedelta:
    """A duration as Go's ``time.ParseDuration`` reads it, from microseconds on and without a sign."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise argparse.ArgumentTypeError("a duration is a number and a unit, such as 15s, 1m30s or 500ms")
    microseconds = int(sum(Fraction(part["number"]) * _MICROSECONDS[part["unit"]] for part in parts))
    if microseconds > _LONGEST_MICROSECONDS:
        raise argparse.ArgumentTypeError("a duration of more than a day serves nobody here")
    return timedelta(microseconds=microseconds)
