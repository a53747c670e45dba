"""The control plane of a rotation by KubeadmControlPlane: what it is, whether it can be rotated, and its rollouts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from signer.configuration import RotationSettings
from signer.kube.calls import GetList, Patch
from signer.kube.client import Client, JsonObject
from signer.kube.discovery import first_served
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2
from signer.model.cluster import CLUSTER_NAME_LABEL, MACHINE_POOL_KIND, ClusterKey, ClusterView, MachineView
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.rotation.authorities import (
    new_rotation_id,
)
from signer.rotation.control_plane.kind import (
    ControlPlaneReference,
)
from signer.rotation.control_plane.kubeadm_control_plane import InvalidControlPlane
from signer.rotation.control_plane.machines import ControlPlaneMachines
from signer.rotation.control_plane.mirror_pods import RunningServer, read_server
from signer.rotation.control_plane.reading import KubeadmControlPlanes, cached_machines, read_rotated_cluster
from signer.rotation.control_plane.renewal import ControlPlane, NotRenewed, Renewal, machines_replaced
from signer.rotation.control_plane.rollout import ByHand, KubeadmRollout, Withheld
from signer.rotation.control_plane.template import Component
from signer.rotation.facts import RENEWED, NotObserved, RenewalFacts
from signer.rotation.operations import Operation, Order
from signer.rotation.phases import Phase, SigningPairs, Step
from signer.rotation.preflight import Examined, Holds, Lacks, Preflight
from signer.rotation.record import Moment, NotYet, RotationRecord, WorkersRollout
from signer.rotation.writer import Pinning
from signer.store.caches import Caches


class ManagementCalls(GetList, Patch, Protocol):
    """The calls to the management cluster."""


class KubeadmObserver:
    """One Cluster's control plane."""

    def __init__(
        self,
        key: ClusterKey,
        management: ManagementCalls,
        caches: Caches,
        settings: RotationSettings,
        now: Callable[[], datetime],
    ) -> None:
        self._key = key
        self._management = management
        self._caches = caches
        self._settings = settings
        self.kubeadm_configs = KUBEADM_CONFIGS_V1BETA2
        """See ControlPlaneObserver."""
        self._now = now
        self._control_planes = KubeadmControlPlanes(management)
        self._rollout = KubeadmRollout(management, caches.version.clusters, now)

    # Observing

    async def controller_manager_started(
        self, workload: Client, machine: MachineView, signing: SigningPairs
    ) -> datetime | NotObserved:
        """See ControlPlaneObserver."""
        if not machine.node_ref:
            return NotObserved("its Machine has not joined")
        try:
            found = await read_server(workload, Component.CONTROLLER_MANAGER, machine.node_ref)
        except ApiError as error:
            return NotObserved(printable(str(error)))
        if not isinstance(found, RunningServer):
            return NotObserved(found.why)
        if signing is SigningPairs.SPLIT and (lacking := found.lacks(signing)):
            return NotObserved(f"it was started with other flags: {lacking[0]}")
        return found.started

    async def pinning(self, cluster: ClusterView) -> Mapping[str, Pinning]:
        """See ControlPlaneObserver."""
        found: dict[str, Pinning] = {}
        self.kubeadm_configs = await first_served(self._management, KUBEADM_CONFIGS_V1BETA2, KUBEADM_CONFIGS_V1BETA1)
        pages = self._management.list_pages(
            self.kubeadm_configs.collection(self._key.namespace),
            {"labelSelector": f"{CLUSTER_NAME_LABEL}={self._key.name}"},
        )
        async with contextlib.aclosing(pages):
            async for page in pages:
                for config in page["items"]:
                    pinned = _pins_of_a_pool(config)
                    if pinned:
                        metadata = mapping_of(config, "metadata")
                        found[text_of(metadata, "name")] = Pinning(pinned, text_of(metadata, "resourceVersion"))
        return found

    async def renewal(self, record: RotationRecord) -> RenewalFacts:
        """See ControlPlaneObserver."""
        written = record.machines_made_after
        if isinstance(written, NotYet):
            return RENEWED
        try:
            proof = machines_replaced(await self._read(), Renewal(written))
        except (InvalidControlPlane, NotFound) as error:
            return RenewalFacts((self._key.name,), f"the control plane cannot be read: {printable(str(error))}")
        return RenewalFacts(proof.members, proof.cure) if isinstance(proof, NotRenewed) else RENEWED

    async def renew(self, record: RotationRecord) -> str:
        """Have the API servers take what is published; returns what the operator must do, empty if nothing.

        Raises:
            ApiError: the management cluster cannot be asked.
        """
        written = record.machines_made_after
        if isinstance(written, NotYet):
            return ""
        try:
            progress = await self._rollout.renew(await self._read(), Renewal(written))
        except InvalidControlPlane as error:
            return printable(f"the control plane cannot be read: {error}")
        match progress:
            case ByHand(what_to_do):
                return what_to_do
            case Withheld(reason):
                return reason
            case _:
                return ""

    async def _read(self) -> ControlPlane:
        """Raises InvalidControlPlane or ApiError."""
        cluster = await read_rotated_cluster(self._management, self._caches.version.clusters, self._key)
        reference = cluster.control_plane
        if not isinstance(reference, ControlPlaneReference) or not reference.is_kubeadm:
            raise InvalidControlPlane("the Cluster has no KubeadmControlPlane")
        kubeadm = await self._control_planes.read(reference, self._key.namespace)
        return ControlPlane(cluster, kubeadm, cached_machines(self._caches, self._key).control_plane)

    # Preflight

    async def first_record(self, order: Order, cluster: ClusterView, policy: JsonObject) -> RotationRecord:
        """The first record of a rotation that can be finished, as far as that can be known.

        Raises:
            OperationRejected: it could not be finished.
            ApiError: the management cluster cannot be asked.
        """
        examined = await self._examine()
        examined.require()
        now = self._now().replace(microsecond=0)
        without = order.operation is Operation.START_WITHOUT_WORKERS_ROLLOUT
        return RotationRecord(
            cluster=self._key,
            rotation_id=new_rotation_id(),
            sequence=1,
            phase=Phase.PREPARING_WITHOUT_WORKERS_ROLLOUT if without else Phase.PREPARING,
            step=Step.NEW_AUTHORITY,
            authorities=examined.authorities,
            workers_rollout=WorkersRollout.BY_OWNER if without else WorkersRollout.BY_CONTROLLER,
            takes_back=examined.takes_back,
            signing_pairs=examined.signing_pairs,
            operation=order.identifier,
            waits=self._settings.waits,
            times=MappingProxyType({Moment.STARTED: now, Moment.STEP: now}),
        )

    async def _examine(self) -> Examined:
        namespace = self._key.namespace
        refused = Lacks(f"the operator does not allow rotations in namespace {namespace}")
        preflight = Preflight(
            key=self._key,
            management=self._management,
            clusters=self._caches.version.clusters,
            machines=self._machines,
            now=self._now(),
            control_planes=self._control_planes,
        )
        return await preflight.examine(Holds() if self._settings.allows(namespace) else refused)

    async def _machines(self) -> ControlPlaneMachines:
        return cached_machines(self._caches, self._key).control_plane


def _pins_of_a_pool(config: Mapping[str, Any]) -> frozenset[str]:
    """The pins of a MachinePool's KubeadmConfig; empty for another one."""
    owners = items_of(mapping_of(config, "metadata"), "ownerReferences")
    if not any(isinstance(one, dict) and one.get("kind") == MACHINE_POOL_KIND for one in owners):
        return frozenset()
    discovery = mapping_of(mapping_of(mapping_of(config, "spec"), "joinConfiguration"), "discovery")
    pins = items_of(mapping_of(discovery, "bootstrapToken"), "caCertHashes")
    return frozenset(pin for pin in pins if isinstance(pin, str))
