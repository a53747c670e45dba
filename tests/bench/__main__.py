"""``python -m tests.bench [--requests N] [--json FILE]``: prints a table; figures hold for one run on one machine."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from signer.testing.world import ManagementCluster
from tests.bench.challenge_flood import (
    MAXIMUM_GROWTH,
    MAXIMUM_SECONDS_SLOWER,
    Flood,
    Flooded,
    measure_challenge_flood,
)
from tests.bench.cloud_verification import measure_cloud_verification
from tests.bench.drain import Drained, drain_with_controller, drain_with_controller_manager
from tests.bench.load import Load, for_stock_signer, submit, submit_as_nodes
from tests.bench.tpm_verification import measure_tpm_verification
from tests.bench.verification import Verification
from tests.bench.warm_start import WarmStart, measure_warm_start
from tests.support.binaries import MissingPart
from tests.support.control_plane import ControlPlane

console = Console(highlight=False)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--requests", type=int, default=2000, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    warm_start = measure_warm_start()
    _print_warm_start(warm_start)
    verifications, of_clouds = measure_tpm_verification(), measure_cloud_verification()
    _print_verifications("A TPM's answer", verifications)
    _print_verifications("Evidence of clouds, without network", of_clouds)
    try:
        control_plane = ControlPlane()
    except MissingPart as error:
        console.print(f"The benchmark needs a real control plane: {error}")
        return 2
    with control_plane:
        control_plane.seed_kubeadm()
        drained = _drains(control_plane, options.requests)
        _print(drained, control_plane.versions())
    flooded = [_flood(flood) for flood in Flood]
    _print_floods(flooded)
    if options.json is not None:
        report: dict[str, Any] = {"drains": [one.as_json() for one in drained], "warmStart": warm_start.as_json()}
        report["challengeFloods"] = [asdict(one) for one in flooded]
        report["tpmVerification"] = [asdict(one) for one in verifications]
        report["cloudVerification"] = [asdict(one) for one in of_clouds]
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def _flood(flood: Flood) -> Flooded:
    """Each on a control plane of its own."""
    console.print(f"A flood of challenges: {flood.value} …")
    with ControlPlane() as control_plane:
        control_plane.seed_kubeadm()
        return measure_challenge_flood(control_plane, flood)


def _drains(control_plane: ControlPlane, count: int) -> list[Drained]:
    drained = []
    with ManagementCluster(control_plane) as management:
        cluster = management.add_cluster("bench", control_plane)
        load = Load(cluster, count)
        console.print(f"Creating {count} Machines …")
        load.add_machines()
        cluster.authorize("keyed-mac")
        for what, post in (
            ("first join", submit),
            ("renewal", submit_as_nodes),
            ("renewal, audit log", submit_as_nodes),
        ):
            names = post(load, load.requests(what.replace(" ", "-").replace(",", "")))
            console.print(f"Draining {count} requests: {what} …")
            drained.append(drain_with_controller(what, load, names, audited="audit" in what))
        names = submit(load, for_stock_signer(load.requests("stock"), "kcm"))
        console.print(f"Draining {count} requests: kube-controller-manager …")
        drained.append(drain_with_controller_manager(control_plane, names))
    return drained


def _print_verifications(what: str, measured: list[Verification]) -> None:
    table = Table(title=f"{what}, CPU time of the controller")
    for heading in ("", "ms", "at most"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in measured:
        table.add_row(one.title, f"{one.median_milliseconds:.2f}", f"{one.maximum_milliseconds:.2f}")
    console.print(table)


def _print_floods(flooded: list[Flooded]) -> None:
    limit = f"{MAXIMUM_GROWTH // 2**20} MiB, {MAXIMUM_SECONDS_SLOWER:.0f} s"
    table = Table(title=f"{flooded[0].requests} first requests by one stolen token; to keep: {limit}")
    for heading in ("", "MiB more", "join p99, s", "meanwhile", "slower by"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in flooded:
        seconds = (one.p99_seconds_before, one.p99_seconds_meanwhile, one.slower_seconds)
        table.add_row(one.flood, f"{one.grown / 2**20:.0f}", *(f"{value:.2f}" for value in seconds))
    console.print(table)


def _print_warm_start(measured: WarmStart) -> None:
    table = Table(title=f"kubelet-authenticator with a valid stored certificate, median of {measured.runs}")
    for heading in ("", "ms", "of the bare interpreter"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("python -c pass", f"{measured.interpreter_milliseconds:.1f}", "1.00 x")
    table.add_row("kubelet-authenticator", f"{measured.plugin_milliseconds:.1f}", f"{measured.ratio:.2f} x")
    console.print(table)


def _print(drained: list[Drained], versions: dict[str, str]) -> None:
    peer = next(one for one in drained if one.what == "kube-controller-manager")
    table = Table(title=f"Draining {peer.requests} pending kubelet client CSRs, RSA-2048 CA")
    for heading in ("", "certificates/s", "of the peer", "CPU ms/CSR"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in drained:
        ratio = f"{one.per_second / peer.per_second:.2f} x"
        table.add_row(one.what, f"{one.per_second:.0f}", ratio, f"{one.cpu_milliseconds:.2f}")
    console.print(table)
    console.print(f"{platform.machine()}, Python {platform.python_version()}, {versions}")


if __name__ == "__main__":
    sys.exit(main())
