"""Measures what a namespace with too many Machines costs the controller, with and without a limit.

The pages of the list are made and parsed here, as if an API server had sent them; no network is measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from signer.kube.client import JsonObject
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, MAXIMUM_LIMIT, NamespaceLimits
from signer.store.cache import Cache
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.bench.many_clusters import resident_bytes

MACHINES: Final = 200_000
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process that lists the Machines once, and again, took."""

    kept: int
    resident: int
    """More than before the lists, in bytes."""
    first_seconds: float
    again_seconds: float
    """CPU time of each list, with the parsing of its JSON."""
    taking_seconds: float
    """For which the event loop stops at the end of the first list."""
    dropping_seconds: float
    """For which it stops when one more Machine has all dropped."""


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.over_limit", description=__doc__)
    parser.add_argument("--machines", type=int, default=MACHINES, metavar="N")
    machines = parser.parse_args().machines
    table = Table(
        "limit",
        "kept",
        "resident, MiB",
        "first list, s",
        "list again, s",
        "dropping, s",
        title=f"{machines:,} Machines",
    )
    for limit in (MAXIMUM_LIMIT, DEFAULT_NAMESPACE_LIMITS.machines):
        for count in (machines, min(machines, DEFAULT_NAMESPACE_LIMITS.machines)):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                cost = pool.apply(_measure, (count, limit))
            table.add_row(
                f"{limit:,}",
                f"{cost.kept:,} of {count:,}",
                f"{cost.resident / 2**20:.0f}",
                f"{cost.first_seconds:.1f}",
                f"{cost.again_seconds:.1f}",
                f"{cost.taking_seconds:.2f}",
                f"{cost.dropping_seconds:.2f}",
            )
    Console(highlight=False).print(table)
    return 0


def _measure(machines: int, limit: int) -> Cost:
    caches = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2),
        own_namespace="own",
        floors=NO_FLOORS,
        limits=NamespaceLimits(machines=limit),
    )
    before = resident_bytes(os.getpid())
    first, taking = _timed(caches.machines, machines)
    again, _ = _timed(caches.machines, machines)
    resident, kept = resident_bytes(os.getpid()) - before, len(caches.machines)
    began = time.process_time()
    caches.machines.added(json.loads(_text(machines)))
    return Cost(kept, resident, first, again, taking, time.process_time() - began)


def _timed(cache: Cache[Any], machines: int) -> tuple[float, float]:
    """CPU time of reading the list, and of taking it over at its end, without the time for making the pages."""
    objects: list[JsonObject] = []
    read = 0.0
    cache.list_begins()
    for start in range(0, machines, _PAGE):
        body = f"[{','.join(_text(number) for number in range(start, min(start + _PAGE, machines)))}]"
        began = time.process_time()
        objects += [item for item in json.loads(body) if cache.parse_list_item(item)]
        read += time.process_time() - began
    began = time.process_time()
    cache.replaced(objects)
    return read, time.process_time() - began


def _text(number: int) -> str:
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    return _TEMPLATE.replace("NUMBER", f"{number:07}").replace("ADDRESS", address)


def _managed_fields() -> Iterator[JsonObject]:
    for manager in ("manager", "capi-machineset", "capi-machine"):
        fields: JsonObject = {f"f:field-{number}": {"f:value": {}} for number in range(12)}
        yield {"manager": manager, "operation": "Apply", "fieldsV1": {"f:status": fields}}


_TEMPLATE: Final = json.dumps(
    {
        "metadata": {
            "namespace": "team-a",
            "name": "prod-md-0-NUMBER-abcde",
            "uid": "00000000-0000-0000-0000-00000NUMBER",
            "resourceVersion": "1NUMBER",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"cluster.x-k8s.io/cluster-name": "prod", "topology.cluster.x-k8s.io/owned": ""},
            "managedFields": list(_managed_fields()),
        },
        "spec": {
            "clusterName": "prod",
            "providerID": "aws:///eu-central-1a/i-0123456789NUMBER",
            "version": "v1.34.1",
            "bootstrap": {"dataSecretName": "prod-md-0-NUMBER-abcde"},
            "infrastructureRef": {"kind": "AWSMachine", "name": "prod-md-0-NUMBER-abcde"},
        },
        "status": {
            "addresses": [
                {"type": "Hostname", "address": "ip-NUMBER"},
                {"type": "InternalIP", "address": "ADDRESS"},
            ],
            "conditions": [{"type": kind, "status": "True", "reason": "Ready"} for kind in ("Ready", "Available")],
            "nodeRef": {"name": "ip-NUMBER"},
        },
    }
)

if __name__ == "__main__":
    raise SystemExit(main())
