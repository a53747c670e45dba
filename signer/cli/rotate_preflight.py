"""The checks before a rotation, with the rights of a person, and who holds CAs in the workload cluster."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from signer.cli.remedies import remedy_of
from signer.cli.rotate_reading import NoPolicy, read_policy, read_rotation
from signer.controller.named_cluster import require_cluster
from signer.controller.workload_access import WorkloadAccessRefused, remedy_in_workload, workload_connection
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError
from signer.kube.resources import Resource
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, machine_view
from signer.model.decision import printable
from signer.rotation.bundles import digests_in
from signer.rotation.control_plane.machines import ControlPlaneMachines, cluster_machines
from signer.rotation.control_plane.reading import KubeadmControlPlanes
from signer.rotation.leftovers import Scan, scan_for
from signer.rotation.preflight import Check, Examined, Holds, Lacks, NotAsked, NotReadable, Preflight, Result
from signer.rotation.view import NoRotation, rotation_view
from signer.store.cluster_api import discover_cluster_api

_OPERATOR: Final = NotAsked(
    "only the controller knows: it must run with --rotate-authorities, and name this namespace in "
    "--rotate-authorities-namespaces if that is given"
)


class Readiness(enum.Enum):
    """The result of all checks; the value is for scripts."""

    READY = "Ready"
    NOT_READY = "NotReady"
    NOT_KNOWN = "NotKnown"
    """No check is known to fail, and some could not be made here."""


@dataclass(frozen=True, slots=True)
class NotScanned:
    """The workload cluster could not be looked at."""

    why: str


@dataclass(frozen=True, slots=True)
class PreflightFound:
    """What ``rotate preflight`` shows."""

    cluster: ClusterKey
    checks: tuple[Check, ...]
    operator: Check
    """What no person can read; it does not count."""
    scan: Scan | NotScanned

    @property
    def readiness(self) -> Readiness:
        """See there."""
        results = [check.result for check in self.checks]
        if any(isinstance(one, Lacks) for one in results):
            return Readiness.NOT_READY
        if any(isinstance(one, NotReadable | NotAsked) for one in results):
            return Readiness.NOT_KNOWN
        return Readiness.READY


async def examine(management: Client, key: ClusterKey, now: datetime) -> PreflightFound:
    """Make every check, and look over the workload cluster.

    Raises:
        NoSuchCluster: the Cluster does not exist.
        ApiError: the Cluster cannot be read.
    """
    version = await discover_cluster_api(management)
    await require_cluster(management, version.clusters, key)
    preflight = Preflight(
        key=key,
        management=management,
        clusters=version.clusters,
        machines=_ListMachines(management, version.machines, key),
        now=now,
        control_planes=KubeadmControlPlanes(management),
    )
    examined = await preflight.examine(_OPERATOR)
    operator, *others = examined.checks
    checks = (await _policy(management, key), await _no_other(management, key), *others)
    return PreflightFound(key, checks, operator, await _scan(management, key, examined))


@dataclass(frozen=True, slots=True)
class _ListMachines:
    management: Client
    machines: Resource
    key: ClusterKey

    async def __call__(self) -> ControlPlaneMachines:
        pages = self.management.list_pages(
            self.machines.collection(self.key.namespace),
            {"labelSelector": f"{CLUSTER_NAME_LABEL}={self.key.name}"},
        )
        found = [machine_view(item) async for page in pages for item in page["items"]]
        return cluster_machines(one for one in found if one.cluster == self.key).control_plane


async def _policy(management: Client, key: ClusterKey) -> Check:
    title = "the Cluster has a NodeAttestationPolicy, by which rotations are ordered"
    try:
        await read_policy(management, key)
    except NoPolicy as error:
        return Check(title, Lacks(str(error)))
    except ApiError as error:
        return Check(title, NotReadable(error))
    return Check(title, Holds())


async def _no_other(management: Client, key: ClusterKey) -> Check:
    title = "no other rotation is under way"
    try:
        view = rotation_view(key, {}, await read_rotation(management, key))
    except ApiError as error:
        return Check(title, NotReadable(error))
    if isinstance(view, NoRotation):
        return Check(title, Lacks(view.fault) if view.fault else Holds())
    over = Holds(f"the last one is {view.phase.value}")
    under_way = Lacks(f"a rotation is {view.phase.value}: complete it or roll it back first")
    return Check(title, over if view.phase.is_over else under_way)


async def _scan(management: Client, key: ClusterKey, examined: Examined) -> Scan | NotScanned:
    try:
        connection = await workload_connection(management, key)
        async with Client(connection) as workload:
            return await scan_for(workload, _old_digest(connection, examined))
    except WorkloadAccessRefused as error:
        return NotScanned(f"{error}{remedy_of(error.__cause__)}")
    except (TlsMaterialRefused, ApiError) as error:
        return NotScanned(f"{printable(str(error))}{remedy_in_workload(error, key)}")


def _old_digest(connection: ClusterConnection, examined: Examined) -> str:
    """Of the cluster's CA; if its Secret cannot be read, of the one in the kubeconfig."""
    if examined.authorities:
        return examined.authorities[0].old.digest
    found = digests_in(connection.certificate_authority)
    return found[0] if isinstance(found, tuple) and found else ""


WORDS: Final[Mapping[type[Result], str]] = {
    Holds: "holds",
    Lacks: "lacks",
    NotReadable: "notReadable",
    NotAsked: "notAsked",
}
"""For scripts."""


def explanation(result: Result) -> str:
    """The detail, the reason, or why it is not known; empty if there is nothing to say."""
    match result:
        case Holds(detail):
            return detail
        case Lacks(reason, remedy):
            return f"{reason}. {remedy}" if remedy else reason
        case NotReadable(error):
            return f"not readable here: {printable(str(error))}{remedy_of(error)}"
        case NotAsked(why):
            return why
