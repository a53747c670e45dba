"""``python -m tests.bench.profile [--requests N] [--functions N]``: profiles the controller's CPU time per CSR.

It runs each kind of work twice: without the profiler, for the cost with and without the CA's key operation; and with
the profiler, which doubles the cost and overstates small functions. Take the figures from the first run, and hints
from the second.
"""

from __future__ import annotations

import argparse
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from signer.authority.certificate_authority import KeyWithheld, load_certificate_authority
from signer.authority.private_key import require_supported_public_key, sign, verify
from signer.kube.client import JsonObject
from signer.testing.world import APIServer, ManagementCluster
from tests.bench.drain import CONTROLLER, Drained, drain_with_controller
from tests.bench.load import Load, submit, submit_as_nodes
from tests.support.binaries import MissingPart
from tests.support.control_plane import ControlPlane

WORK: Final[Mapping[str, Callable[[Load, list[JsonObject]], set[str]]]] = {
    "first join": submit,
    "renewal": submit_as_nodes,
}
_OURS: Final = ("signer", "attestors")
_KEY_OPERATIONS: Final = 200
_WIDTH: Final = 60

console = Console(highlight=False)


@dataclass(frozen=True, slots=True)
class Function:
    """The profile of one function, in milliseconds per CSR; ``own`` excludes its callees."""

    name: str
    part: str
    """This project's package, or the library."""
    calls: float
    own: float
    cumulative: float


def main() -> int:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, metavar="N")
    parser.add_argument("--functions", type=int, default=30, metavar="N", help="functions to print per order")
    options = parser.parse_args()
    try:
        control_plane = ControlPlane()
    except MissingPart as error:
        console.print(f"The profile needs a real control plane: {error}")
        return 2
    with control_plane, ManagementCluster(control_plane) as management, tempfile.TemporaryDirectory() as folder:
        control_plane.seed_kubeadm()
        load = Load(management.add_cluster("bench", control_plane), options.requests)
        others = replace(load, first=options.requests)
        for one in (load, others):
            one.add_machines()
        load.cluster.authorize("keyed-mac")
        _print_costs([_drain(what, load) for what in WORK], key_milliseconds(control_plane))
        for what in WORK:
            file = Path(folder) / "profile"
            _drain(what, others, "tests.bench.profiled", str(file))
            _print_functions(what, functions_of(file, options.requests), options.functions)
    return 0


def _drain(what: str, load: Load, *program: str) -> Drained:
    console.print(f"Draining {load.count} requests: {what} {'under the profiler ' if program else ''}…")
    names = WORK[what](load, load.requests(f"{what.replace(' ', '-')}"))
    return drain_with_controller(what, load, names, program=program or CONTROLLER)


def key_milliseconds(server: APIServer) -> float:
    """The minimum CPU time of a certificate: the CA's signature and its verification."""
    data = {"tls.crt": server.ca_certificate_pem, "tls.key": server.ca_key_pem}
    authority = load_certificate_authority(data, now=datetime.now(UTC))
    private_key = authority.private_key
    if isinstance(private_key, KeyWithheld):
        raise TypeError("the benchmark's CA needs its key")
    public_key = require_supported_public_key(authority.certificate.public_key, "tls.crt")
    began = time.process_time()
    for number in range(_KEY_OPERATIONS):
        text = number.to_bytes(512, "big")
        verify(public_key, sign(private_key, text), text)
    return (time.process_time() - began) * 1000 / _KEY_OPERATIONS


def functions_of(file: Path, requests: int) -> list[Function]:
    """The profile in ``file``, per request."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = vars(pstats.Stats(str(file)))["stats"]
    each = 1000 / requests
    return [
        Function(_name(place), _part(place), calls / requests, own * each, cumulative * each)
        for place, (_, calls, own, cumulative, _) in stats.items()
    ]


def _name(place: tuple[str, int, str]) -> str:
    file, line, name = place
    parts = Path(file).parts
    for root in (*_OURS, "site-packages"):
        if root in parts:
            inside = parts[parts.index(root) + (root == "site-packages") :]
            return f"{'/'.join(inside)}:{line} {name}"
    return name if file == "~" else f"{'/'.join(parts[-2:])}:{line} {name}"


def _part(place: tuple[str, int, str]) -> str:
    name = _name(place).partition(":")[0]
    first, _, rest = name.partition("/")
    if place[0] == "~":
        return "built in"
    return f"{first}/{rest.partition('/')[0]}" if first in _OURS else first.removesuffix(".py")


def _print_costs(drained: list[Drained], key: float) -> None:
    table = Table(title=f"CPU time of the controller in ms per CSR; CA key operation: {key:.2f} ms")
    for heading in ("", "CSRs", "certificates/s", "total", "without the CA key"):
        table.add_column(heading, justify="left" if not heading else "right")
    for one in drained:
        cpu = one.cpu_milliseconds
        table.add_row(one.what, str(one.requests), f"{one.per_second:.0f}", f"{cpu:.2f}", f"{cpu - key:.2f}")
    console.print(table)


def _print_functions(what: str, functions: list[Function], count: int) -> None:
    parts: defaultdict[str, float] = defaultdict(float)
    for function in functions:
        parts[function.part] += function.own
    table = Table(title=f"{what}: own time with the profiler, ms per CSR")
    table.add_column("part")
    table.add_column("ms", justify="right")
    for part, own in sorted(parts.items(), key=lambda item: -item[1])[:count]:
        table.add_row(part, f"{own:.3f}")
    console.print(table)
    for order in ("own", "cumulative"):
        table = Table(title=f"{what}: by {order} time, ms per CSR")
        for heading in ("function", "calls", "own", "cumulative"):
            table.add_column(heading, justify="left" if heading == "function" else "right")
        for function in sorted(functions, key=lambda one: -getattr(one, order))[:count]:
            figures = (f"{value:.3f}" for value in (function.own, function.cumulative))
            table.add_row(function.name[-_WIDTH:], f"{function.calls:.1f}", *figures)
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
