"""The arguments of ``run`` that ``check`` takes, too: one list, so that ``check`` misses none."""

from __future__ import annotations

import argparse

from signer.cli.parsers.arguments import add_access, add_configuration, add_management_cluster, add_rotation, add_ssh
from signer.cli.parsers.leader_election import add_leader_election


def add_controller_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the management cluster, the configuration, the switches of the wings, and leader election."""
    add_management_cluster(parser)
    add_configuration(parser)
    add_rotation(parser)
    add_ssh(parser)
    add_access(parser)
    add_leader_election(parser)
