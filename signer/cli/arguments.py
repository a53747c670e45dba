"""Arguments that several commands share, under the same names."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

DEFAULT_NAMESPACE: Final = "node-attestation-system"


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    """Which management cluster."""
    parser.add_argument("--kubeconfig", type=Path, help="management cluster (default: in-cluster, or KUBECONFIG)")


def add_controller_namespace(parser: argparse.ArgumentParser) -> None:
    """Where the controller keeps what is its own."""
    parser.add_argument(
        "--controller-namespace",
        default=os.environ.get("POD_NAMESPACE", DEFAULT_NAMESPACE),
        help="the controller's own namespace, where IdentityReservations live (default: POD_NAMESPACE, "
        f"or {DEFAULT_NAMESPACE})",
    )
