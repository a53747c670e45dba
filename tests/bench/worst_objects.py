"""Measures the memory that a thousand objects of each kind take, each as large as its owner can make it.

Each object is as large as the API server or the parsers let it be. No server is asked: the objects go into the caches.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import multiprocessing
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from rich.console import Console
from rich.table import Table

from attestors.contract import Security
from signer.access.waking import GrantCaches
from signer.kube.client import Client, JsonObject
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.model.namespace_limits import MAXIMUM_LIMIT, NamespaceLimits
from signer.model.record import (
    JOURNAL_ENTRIES,
    KUBELET_CLIENT,
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    MachineKey,
)
from signer.model.record_object import record_spec
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.cache import Cache
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.bench.many_clusters import resident_bytes
from tests.support.access_objects import approval_object, bastion_object, grant_object

OBJECTS: Final = 1_000
NAMESPACE: Final = "team-a"
_BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the objects took."""

    resident: int
    """In bytes."""
    counted: int
    """How often they count toward the limit."""


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.worst_objects", description=__doc__)
    parser.add_argument("--objects", type=int, default=OBJECTS, metavar="N")
    parser.add_argument("--kind", choices=MAKERS, action="append", metavar="KIND", help="measure this kind alone")
    arguments = parser.parse_args()
    objects = arguments.objects
    table = Table("kind", "resident, MiB", "KiB each", "counted", "KiB each time", title=f"{objects:,} of each kind")
    for kind in arguments.kind or MAKERS:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            cost = pool.apply(measure, (kind, objects))
        table.add_row(
            kind,
            f"{cost.resident / 2**20:.0f}",
            f"{cost.resident / 2**10 / objects:.1f}",
            f"{cost.counted:,}",
            f"{cost.resident / 2**10 / cost.counted:.1f}",
        )
    Console(highlight=False).print(table)
    return 0


def measure(kind: str, objects: int) -> Cost:
    """Put so many objects of that kind into a cache."""
    every = NamespaceLimits(*(MAXIMUM_LIMIT for _ in NamespaceLimits.__slots__))
    version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
    caches = Caches(version, own_namespace="own", floors=NO_FLOORS, limits=every)
    grants, tokens = GrantCaches.register(caches), BootstrapTokens(cast("Client", None), caches)
    of: Mapping[str, Cache[Any]] = {
        "Cluster": caches.clusters,
        "Machine": caches.machines,
        "Machine, unreadable addresses": caches.machines,
        "MachinePool": caches.machine_pools,
        "KubeadmConfig": tokens._configs,
        "NodeAttestationPolicy": caches.policies,
        "AttestedNode": caches.records,
        "AccessGrant": grants.grants,
        "AccessApproval": grants.approval_cache,
        "Bastion": grants.bastions,
    }
    cache, make = of[kind], MAKERS[kind]
    before = resident_bytes(os.getpid())
    for number in range(objects):
        item = json.loads(json.dumps(make(number)))  # no text is shared between two objects
        cache.added(item)
        cache.applied(item)
        del item
    if len(cache) != objects:
        raise RuntimeError(f"{kind}: {len(cache)} of {objects} are kept")
    return Cost(resident_bytes(os.getpid()) - before, cache._bound._counts[NAMESPACE])


def _metadata(number: int, **more: Any) -> dict[str, Any]:
    name = f"{number:07}-".ljust(63, "n")
    uid = f"00000000-0000-4000-8000-{number:012}"
    return {"namespace": NAMESPACE, "name": name, "uid": uid, "resourceVersion": str(number + 1), **more}


def _cluster(number: int) -> JsonObject:
    networks = [f"10.{one}.0.0/16" for one in range(64)]
    endpoint = {"host": f"{number}.".ljust(512, "h"), "port": 6443}
    spec = {"controlPlaneEndpoint": endpoint, "clusterNetwork": {"services": {"cidrBlocks": networks}}}
    return {"metadata": _metadata(number), "spec": spec}


def _machine(number: int, address: Callable[[int], str] | None = None) -> JsonObject:
    written = address or (lambda one: f"{number:07}-{one:03}.".ljust(253, "a"))
    prefix = "attestation.cluster.x-k8s.io/"
    annotations = {f"{prefix}{number}-{one}": f"{number}-{one}".ljust(2048, "x") for one in range(8)}
    return {
        "metadata": _metadata(number, annotations=annotations),
        "spec": {"clusterName": f"c-{number}".ljust(253, "c"), "providerID": f"p:///{number}".ljust(512, "p")},
        "status": {"addresses": [{"type": "Hostname", "address": written(one)} for one in range(256)]},
    }


def _unreadable_machine(number: int) -> JsonObject:
    return _machine(number, lambda one: f"10.{number % 256}.{one}.1 or 10.{number % 256}.{one}.2 ".ljust(512, "u"))


def _pool(number: int) -> JsonObject:
    room = 1_400_000 // 10_000  # etcd takes 1.5 MiB
    listed = [f"aws:///{number:07}/{one:05}/".ljust(room, "i") for one in range(10_000)]
    return {"metadata": _metadata(number), "spec": {"clusterName": "prod", "providerIDList": listed}}


def _config(number: int) -> JsonObject:
    owner = {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "name": f"{number}".ljust(253, "o"),
        "uid": f"{number}".ljust(253, "u"),
        "controller": True,
    }
    labels = {"cluster.x-k8s.io/cluster-name": f"{number}".ljust(63, "c")}
    token = {"bootstrapToken": {"token": f"{number:06}.0123456789abcdef"}}
    metadata = _metadata(number, ownerReferences=[owner], labels=labels)
    return {"metadata": metadata, "spec": {"joinConfiguration": {"discovery": token}}}


def _policy(number: int) -> JsonObject:
    settings = {f"setting-{one}": f"{number}-{one}".ljust(1000, "s") for one in range(120)}
    return {
        "metadata": _metadata(number, generation=1),
        "spec": {"authorizedAttestors": [{"name": "keyed-mac", "settings": settings}]},
    }


def _record(number: int) -> JsonObject:
    key = MachineKey(ClusterKey(NAMESPACE, f"c-{number}"), "Machine", f"m-{number}", f"p:///{number}".ljust(512, "p"))
    entries = tuple(_entry(number, one) for one in range(JOURNAL_ENTRIES))
    identity = AttestedIdentity("keyed-mac", f"{number}".ljust(1024, "i"), Security.SECURE)
    first, last = entries[0], entries[-1]
    node = f"n-{number}".ljust(200, "n")
    record = AttestedNode(key, "uid", node, identity, first.decided, last.decided, last.not_after, entries)
    metadata = {**_metadata(number), "name": record.name}
    return {"metadata": metadata, "spec": {**record_spec(record), "seal": "v1:00:" + "0" * 64}}


def _entry(number: int, one: int) -> JournalEntry:
    digest = f"{number:032x}{one:032x}"
    decided = _BEGAN + timedelta(days=one)
    return JournalEntry(
        kind=KUBELET_CLIENT,
        csr_name=digest.ljust(253, "c"),
        csr_uid=digest[:36],
        spec_digest=digest,
        signer_name="attestation.cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac",
        requester=f"system:node:{number}".ljust(253, "r"),
        serial_number=(1 << 126) + number * 100 + one,
        not_before=decided,
        not_after=decided + timedelta(days=7),
        ca_cert_hash=f"sha256:{digest}",
        evidence_ca_cert_hash=f"sha256:{digest}",
        certificate_digest=digest,
        public_key_digest=digest,
        created=decided,
        decided=decided,
    )


def _creator(number: int) -> dict[str, Any]:
    groups = [f"{number}-{one}".ljust(256, "g") for one in range(64)]
    return {"username": f"{number}".ljust(512, "u"), "uid": f"{number}".ljust(128, "i"), "groups": groups}


def _grant(number: int) -> JsonObject:
    noise = itertools.cycle(f"{number:x}")
    ingress = [{"ipBlock": {"cidr": f"10.{number % 256}.{one}.0/24"}} for one in range(16)]
    found = grant_object("g", creator=_creator(number), reason="".join(itertools.islice(noise, 1024)), ingress=ingress)
    record = {"text": base64.b64encode(os.urandom(70_000)).decode("ascii")}  # what somebody else may write there
    found["metadata"] = {**found["metadata"], **_metadata(number)}
    return {**found, "status": {"record": record}}


def _approval(number: int) -> JsonObject:
    found = approval_object("a", creator=_creator(number))
    return {**found, "metadata": {**found["metadata"], **_metadata(number)}}


def _bastion(number: int) -> JsonObject:
    addresses = [f"10.{number % 256}.{one}.1" for one in range(16)]
    found = bastion_object("b", targets=[{"addresses": addresses, "port": 22} for _ in range(1024)])
    return {**found, "metadata": {**found["metadata"], **_metadata(number)}}


MAKERS: Final[Mapping[str, Callable[[int], JsonObject]]] = {
    "Cluster": _cluster,
    "Machine": _machine,
    "Machine, unreadable addresses": _unreadable_machine,
    "MachinePool": _pool,
    "KubeadmConfig": _config,
    "NodeAttestationPolicy": _policy,
    "AttestedNode": _record,
    "AccessGrant": _grant,
    "AccessApproval": _approval,
    "Bastion": _bastion,
}

if __name__ == "__main__":
    raise SystemExit(main())
