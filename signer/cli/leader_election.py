"""How replicas share the work, from the flags of :mod:`signer.cli.parsers.leader_election`."""

from __future__ import annotations

import argparse
import re
from typing import Final

from signer.configuration import (
    InvalidConfiguration,
    LeaderElection,
    NoLeaderElection,
    Sharding,
)
from signer.model.decision import printable
from signer.model.lease import ElectionTimes, InvalidTimes

# apimachinery ``validation.IsDNS1123Subdomain``, for the name of a Lease.
_SUBDOMAIN: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_LABEL_VALUE: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.ASCII)


def lease_name(options: argparse.Namespace) -> str:
    """Parse the flag that names the Lease.

    Raises:
        InvalidConfiguration: no Lease can have that name.
    """
    name = str(options.leader_elect_resource_name)
    if _SUBDOMAIN.fullmatch(name) is None:
        raise InvalidConfiguration(
            f"--leader-elect-resource-name: {printable(name)!r} cannot be a Lease's name: at most 253 of a-z, 0-9, - "
            "and ., with a letter or digit at both ends and beside each dot"
        )
    return name


def leader_election(options: argparse.Namespace) -> LeaderElection | Sharding | NoLeaderElection:
    """Parse the flags. Without ``--leader-elect`` and ``--shards``, the times have no effect, as in client-go.

    Raises:
        InvalidConfiguration: the flags contradict each other.
    """
    sharded = options.shards is not None
    if options.leader_elect and sharded:
        raise InvalidConfiguration("--leader-elect and --shards exclude each other: give one of the two")
    name = lease_name(options)
    if not options.leader_elect and not sharded:
        return NoLeaderElection(name)
    try:
        times = ElectionTimes(
            lease_duration=options.leader_elect_lease_duration,
            renew_deadline=options.leader_elect_renew_deadline,
            retry_period=options.leader_elect_retry_period,
        )
    except InvalidTimes as error:
        raise InvalidConfiguration(str(error)) from error
    if not sharded:
        return LeaderElection(times, name)
    if _LABEL_VALUE.fullmatch(name) is None:
        raise InvalidConfiguration(
            "--leader-elect-resource-name: with --shards it is also a label value: at most 63 of a-z, 0-9, - and ., "
            "with a letter or digit at both ends"
        )
    return Sharding(options.shards, times, name)
