"""The flags by which replicas share the work: leader election, by the names of client-go and Cluster API, or shards."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from signer.configuration import (
    DEFAULT_LEASE_NAME,
    InvalidConfiguration,
    LeaderElection,
    NoLeaderElection,
    Sharding,
)
from signer.kube.resources import segment
from signer.model.lease import ElectionTimes, InvalidTimes
from signer.model.shard import MAXIMUM_SHARDS

_LONGEST_MICROSECONDS: Final = 24 * 60 * 60 * 10**6
_PART: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>ms|us|h|m|s)", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.ASCII)
_MICROSECONDS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


def add_leader_election(parser: argparse.ArgumentParser) -> None:
    """Whether, and how, replicas agree who works on what."""
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="work only while holding the Lease; replicas that do not hold it stand by",
    )
    parser.add_argument(
        "--shards",
        type=_shard_count,
        metavar="N",
        help="instead of --leader-elect: divide the Clusters into so many shards, and these between all replicas; the "
        "same number in each, and a few times as many as there are replicas",
    )
    for name, default, meaning in (
        ("lease-duration", "15s", "others take over when they have seen the Lease unchanged for so long"),
        ("renew-deadline", "10s", "a replica that has not renewed its Lease for so long ends, with exit code 4"),
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
        help="name of the Lease, or what the names of several begin with, in the controller's namespace; controllers "
        "that serve different Clusters from one namespace need different ones (default: %(default)s)",
    )


def leader_election(options: argparse.Namespace) -> LeaderElection | Sharding | NoLeaderElection:
    """What the flags say; without ``--leader-elect`` and ``--shards`` the others mean nothing, as in client-go.

    Raises:
        InvalidConfiguration: they contradict each other.
    """
    sharded = options.shards is not None
    if options.leader_elect and sharded:
        raise InvalidConfiguration("--leader-elect lets one replica work and --shards all of them: give one of the two")
    if not options.leader_elect and not sharded:
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
    name = options.leader_elect_resource_name
    if not sharded:
        return LeaderElection(times, name)
    if _LABEL_VALUE.fullmatch(name) is None:
        raise InvalidConfiguration(
            "--leader-elect-resource-name: with --shards at most 63 of a-z, 0-9, - and ., and neither of the last two "
            "at an end: Leases have it for a label"
        )
    return Sharding(options.shards, times, name)


def _shard_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAXIMUM_SHARDS:
        raise argparse.ArgumentTypeError(f"between 1 and {MAXIMUM_SHARDS}")
    return int(text)


def _go_duration(text: str) -> timedelta:
    """A duration as Go's ``time.ParseDuration`` reads it, from microseconds on and without a sign."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise argparse.ArgumentTypeError("a duration is a number and a unit, such as 15s, 1m30s or 500ms")
    microseconds = int(sum(Fraction(part["number"]) * _MICROSECONDS[part["unit"]] for part in parts))
    if microseconds > _LONGEST_MICROSECONDS:
        raise argparse.ArgumentTypeError("a duration of more than a day serves nobody here")
    return timedelta(microseconds=microseconds)
