"""Arguments of ``workload-kubeconfig``."""

from __future__ import annotations

import argparse
from pathlib import Path

from signer.cli.loading import Load
from signer.cli.parsers.arguments import add_cluster, add_config, add_management_cluster, add_output
from signer.cli.workload_kubeconfig.features import FEATURES
from signer.cli.workload_kubeconfig.lifetime import DEFAULT_LIFETIME, MINIMUM_LIFETIME


def add_workload_kubeconfig(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Needs an administrator's rights at both clusters. Makes a ServiceAccount with the rights of the "
        "features in use, and writes its kubeconfig into Secret CLUSTER-kubeconfig-restricted of the management "
        "cluster, which the controller then uses. Repeat it to renew the credential, or to change the features: the "
        "former credential ends. Exit code 0: done; 1: failed; 2: wrong usage."
    )
    parser.set_defaults(load=load)
    add_cluster(parser)
    add_management_cluster(parser)
    parser.add_argument(
        "--workload-kubeconfig",
        type=Path,
        metavar="FILE",
        help="an administrator's kubeconfig of the workload cluster (default: Secret CLUSTER-kubeconfig)",
    )
    for feature, text in FEATURES.items():
        parser.add_argument(f"--{feature.value}", action="store_true", help=text)
    parser.add_argument(
        "--no-enforce",
        action="store_true",
        help="without the rights for mode Enforce, which preflight needs as well; refused where policy or floor says "
        "Enforce",
    )
    add_config(parser)
    parser.add_argument(
        "--attestors",
        default="",
        metavar="NAME,...",
        help="attestors whose requests the controller may sign (default: those of the policy)",
    )
    parser.add_argument(
        "--days",
        type=_days,
        default=DEFAULT_LIFETIME.days,
        metavar="N",
        help="lifetime of the credential (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the objects of the workload cluster; write nothing"
    )
    add_output(parser)


def _days(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not MINIMUM_LIFETIME.days <= int(text[:5]) <= 3650 or len(text) > 4:
        raise argparse.ArgumentTypeError("must be a number of days from 1 to 3650")
    return int(text)
