"""The control plane of a rotation by KubeadmControlPlane: what it is, whether it can be rotated, and its rollouts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Protocol

from signer.authority import CertificateAuthorityUnavailable, load_certificate_authority
from signer.configuration import RotationSettings
from signer.kube.calls import GetList, Patch
from signer.kube.client import Client, JsonObject
from signer.kube.discovery import first_served
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2, SECRETS
from signer.model.cluster import CLUSTER_NAME_LABEL, MACHINE_POOL_KIND, ClusterKey, ClusterView, MachineView
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.rotation.authorities import (
    AuthorityKind,
    AuthorityReference,
    NotMade,
    RotatedAuthority,
    new_rotation_id,
)
from signer.rotation.control_plane.kind import (
    Assisted,
    ControlPlaneReference,
    Refused,
    Rotatable,
    SigningKey,
    control_plane_kind,
)
from signer.rotation.control_plane.kubeadm_control_plane import ClusterTopology, InvalidControlPlane, Rollout
from signer.rotation.control_plane.mirror_pods import RunningServer, read_server
from signer.rotation.control_plane.readiness import Missing, Signing, Unsuitable, readiness
from signer.rotation.control_plane.reading import KubeadmControlPlanes, cached_machines, read_rotated_cluster
from signer.rotation.control_plane.renewal import ControlPlane, NotRenewed, Renewal, machines_replaced
from signer.rotation.control_plane.rollout import ByHand, KubeadmRollout, Withheld
from signer.rotation.control_plane.template import Component, InvalidTemplate, control_plane_template
from signer.rotation.control_plane.template_patch import how_to_make_ready
from signer.rotation.facts import RENEWED, HeldPair, NotObserved, RenewalFacts
from signer.rotation.operations import Operation, OperationRejected, Order
from signer.rotation.phases import Phase, Step, TakesBack
from signer.rotation.record import Moment, NotYet, RotationRecord, WorkersRollout
from signer.rotation.secrets import decoded, read_secret
from signer.store.caches import Caches

MINIMUM_LIFETIME_LEFT: Final = timedelta(days=3)
"""A CA that ends sooner cannot be switched with proofs: its certificates end in the middle."""
OLDEST_VERSION: Final = (1, 19)
"""API servers before it read their client CAs at the start alone."""
_WRITTEN: Final[Mapping[Step, Moment]] = MappingProxyType(
    {
        Step.SERVERS_TRUST: Moment.TRUST_WRITTEN,
        Step.SERVERS_PRESENT: Moment.SWITCHED,
        Step.DROP_OLD: Moment.TRUST_WRITTEN,
        Step.NODES_RETURN: Moment.TRUST_WRITTEN,
    }
)
"""By step, when the last object was written that Machines must have read."""


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

    async def controller_manager_started(self, workload: Client, machine: MachineView) -> datetime | NotObserved:
        """See ControlPlaneObserver."""
        if not machine.node_ref:
            return NotObserved("its Machine has not joined")
        try:
            found = await read_server(workload, Component.CONTROLLER_MANAGER, machine.node_ref)
        except ApiError as error:
            return NotObserved(printable(str(error)))
        return found.started if isinstance(found, RunningServer) else NotObserved(found.why)

    async def pins(self, cluster: ClusterView) -> Mapping[str, frozenset[str]]:
        """See ControlPlaneObserver."""
        found: dict[str, frozenset[str]] = {}
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
                        found[text_of(mapping_of(config, "metadata"), "name")] = pinned
        return found

    async def renewal(self, record: RotationRecord) -> RenewalFacts:
        """See ControlPlaneObserver."""
        written = record.at(_WRITTEN[record.step]) if record.step in _WRITTEN else NotYet()
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
        written = record.at(_WRITTEN[record.step]) if record.step in _WRITTEN else NotYet()
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
        if not self._settings.allows(self._key.namespace):
            raise OperationRejected(f"the operator does not allow rotations in namespace {self._key.namespace}")
        authorities = await self._authorities()
        await self._require_control_plane(authorities[0])
        self._require_machines()
        now = self._now().replace(microsecond=0)
        without = order.operation is Operation.START_WITHOUT_WORKERS_ROLLOUT
        return RotationRecord(
            cluster=self._key,
            rotation_id=new_rotation_id(),
            sequence=1,
            phase=Phase.PREPARING_WITHOUT_WORKERS_ROLLOUT if without else Phase.PREPARING,
            step=Step.NEW_AUTHORITY,
            authorities=tuple(authorities),
            workers_rollout=WorkersRollout.BY_OWNER if without else WorkersRollout.BY_CONTROLLER,
            takes_back=await self._takes_back(),
            operation=order.identifier,
            waits=self._settings.waits,
            times=MappingProxyType({Moment.STARTED: now, Moment.STEP: now}),
        )

    async def _authorities(self) -> list[RotatedAuthority]:
        """The authorities whose Secrets hold a pair; the cluster's first."""
        found = []
        for kind in AuthorityKind:
            try:
                secret = await self._management.get(
                    SECRETS.object(f"{self._key.name}-{kind.value}", self._key.namespace)
                )
            except NotFound:
                if kind is AuthorityKind.CLUSTER:
                    raise OperationRejected(f"Secret {self._key.name}-{kind.value} does not exist") from None
                continue
            held = read_secret(kind, secret).held
            if not isinstance(held, HeldPair):
                if kind is AuthorityKind.CLUSTER:
                    reference, key = await self._reference(), SigningKey.ABSENT
                    raise OperationRejected(_refusal(control_plane_kind(reference, key)))
                continue  # external etcd: the Secret has no key
            _require_single(kind, held)
            self._require_time_left(kind, held.signs)
            found.append(RotatedAuthority(kind, held.signs, NotMade()))
        return found

    def _require_time_left(self, kind: AuthorityKind, reference: AuthorityReference) -> None:
        if reference.not_after - self._now() < MINIMUM_LIFETIME_LEFT:
            raise OperationRejected(
                f"authority {kind.value} ends at {reference.not_after:%Y-%m-%d %H:%M} UTC, which is too soon: its "
                "certificates would end in the middle of the rotation; see docs/rotation.md for an expired CA"
            )

    async def _reference(self) -> Any:
        return (await read_rotated_cluster(self._management, self._caches.version.clusters, self._key)).control_plane

    async def _require_control_plane(self, authority: RotatedAuthority) -> None:
        reference = await self._reference()
        kind = control_plane_kind(reference, SigningKey.PRESENT)
        if not isinstance(kind, Rotatable):
            raise OperationRejected(_refusal(kind))
        try:
            found = await self._read()
            template = readiness(control_plane_template(found.kubeadm.manifest), self._key.name, Signing.ONE_PAIR)
        except (InvalidControlPlane, InvalidTemplate) as error:
            raise OperationRejected(f"the KubeadmControlPlane cannot be read: {error}") from error
        if isinstance(template, Unsuitable):
            raise OperationRejected(template.reason)
        if isinstance(template, Missing):
            topology = found.cluster.topology
            name = topology.cluster_class if isinstance(topology, ClusterTopology) else ""
            raise OperationRejected(
                "the control plane's template is not rotation-ready. "
                + how_to_make_ready(found.kubeadm.manifest, template, self._key.name, name)
            )
        kubeadm = found.kubeadm
        if kubeadm.kubernetes_version < OLDEST_VERSION:
            raise OperationRejected("Kubernetes before 1.19 reads the CAs of clients at the start of API servers only")
        if kubeadm.paused or kubeadm.deleting:
            raise OperationRejected(f"{kubeadm} is paused or being deleted")
        if kubeadm.rollout is Rollout.RUNNING or not kubeadm.replicas.settled:
            raise OperationRejected(f"wait until the control plane is complete: {kubeadm.replicas}")

    def _require_machines(self) -> None:
        waiting = cached_machines(self._caches, self._key).control_plane.without_node
        if waiting:
            raise OperationRejected(f"wait until these Machines of the control plane have joined: {', '.join(waiting)}")

    async def _takes_back(self) -> TakesBack:
        """Whether the old CA may certify the new one, by its path length."""
        secret = await self._management.get(SECRETS.object(f"{self._key.name}-ca", self._key.namespace))
        try:
            authority = load_certificate_authority(decoded(secret), now=self._now())
        except (CertificateAuthorityUnavailable, ValueError) as error:
            raise OperationRejected(f"Secret {self._key.name}-ca: {error}") from error
        constraints = authority.certificate.basic_constraints
        limited = constraints is not None and constraints.path_length == 0
        return TakesBack.NOT_LINKED if limited else TakesBack.LINKED


def _require_single(kind: AuthorityKind, held: HeldPair) -> None:
    if len(held.certificates) != 1:
        raise OperationRejected(
            f"the Secret of authority {kind.value} holds {len(held.certificates)} certificates: leave that of its key"
        )


def _refusal(kind: Rotatable | Assisted | Refused) -> str:
    match kind:
        case Assisted(reason, what_to_do):
            return f"{reason}. {what_to_do}"
        case Refused(reason):
            return reason
        case Rotatable():
            return "the Secret of the cluster's CA has no usable key"


def _pins_of_a_pool(config: Mapping[str, Any]) -> frozenset[str]:
    """The pins of a MachinePool's KubeadmConfig; empty for another one."""
    owners = items_of(mapping_of(config, "metadata"), "ownerReferences")
    if not any(isinstance(one, dict) and one.get("kind") == MACHINE_POOL_KIND for one in owners):
        return frozenset()
    discovery = mapping_of(mapping_of(mapping_of(config, "spec"), "joinConfiguration"), "discovery")
    pins = items_of(mapping_of(discovery, "bootstrapToken"), "caCertHashes")
    return frozenset(pin for pin in pins if isinstance(pin, str))
