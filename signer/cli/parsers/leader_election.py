"""Flags of leader election, named as in client-go and Cluster API, and of sharding."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

from signer.model.lease import DEFAULT_LEASE_NAME
from signer.model.shard import MAXIMUM_SHARDS

_LONGEST_MICROSECONDS: Final = 24 * 60 * 60 * 10**6
_PART: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?P<unit>ms|us|h|m|s)", re.ASCII)
_MICROSECONDS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


def add_leader_election(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say how replicas share the work."""
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="work only while holding the Lease; the other replicas stand by",
    )
    parser.add_argument(
        "--shards",
        type=_shard_count,
        metavar="N",
        help="instead of --leader-elect: divide the Clusters into N shards, which all replicas share; every replica "
        "needs the same N, a few times the number of replicas",
    )
    for name, default, meaning in (
        ("lease-duration", "15s", "another replica takes over a Lease that has not changed for this long"),
        ("renew-deadline", "10s", "a replica that cannot renew its Lease for this long exits with code 4"),
        ("retry-period", "2s", "pause between two attempts to take or renew the Lease"),
    ):
        parser.add_argument(
            f"--leader-elect-{name}",
            type=_go_duration,
            default=default,
            metavar="DURATION",
            help=f"{meaning} (default: {default})",
        )
    add_lease_name(
        parser,
        "name of the Lease in the controller's namespace, or with --shards the prefix of the Leases' names; "
        "controllers that serve different Clusters from one namespace need different names",
    )


def add_lease_name(parser: argparse.ArgumentParser, meaning: str) -> None:
    """Add the flag that names the Lease."""
    parser.add_argument(
        "--leader-elect-resource-name",
        default=DEFAULT_LEASE_NAME,
        metavar="NAME",
        help=f"{meaning} (default: %(default)s)",
    )


def _shard_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= MAXIMUM_SHARDS:
        raise argparse.ArgumentTypeError(f"must be between 1 and {MAXIMUM_SHARDS}")
    return int(text)


def _go_duration(text: str) -> timedelta:
    """Parse a duration like Go's ``time.ParseDuration``, without a sign and without nanoseconds."""
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise argparse.ArgumentTypeError("a duration is a number and a unit, such as 15s, 1m30s or 500ms")
    microseconds = int(sum(Fraction(part["number"]) * _MICROSECONDS[part["unit"]] for part in parts))
    if microseconds > _LONGEST_MICROSECONDS:
        raise argparse.ArgumentTypeError("a duration may be at most one day")
    return timedelta(microseconds=microseconds)
