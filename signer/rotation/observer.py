"""Observes the world of one Cluster's rotation: management cluster, API servers, workload cluster, records of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from signer.authority.presented import presented_by
from signer.kube.calls import GetList
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import Resource
from signer.model.cluster import ClusterKey, ClusterView, MachineView
from signer.model.decision import printable
from signer.model.record import AttestedNode
from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.control_plane.machines import worker_groups
from signer.rotation.controller_manager import AskControllerManager
from signer.rotation.facts import (
    Acceptance,
    CanarySigner,
    ControlPlaneMachine,
    Facts,
    HeldPair,
    NotObserved,
    Publication,
    RenewalFacts,
    ServerFacts,
    ServersFacts,
)
from signer.rotation.management import KUBECONFIG_KEY, Authorities, ManagementSecrets, read_secrets
from signer.rotation.nodes import Nodes, nodes_of
from signer.rotation.operations import Order
from signer.rotation.phases import SigningPairs, Step
from signer.rotation.reconciler import Observed
from signer.rotation.record import Moment, NotYet, RotationRecord
from signer.rotation.rotations import GetKeys
from signer.rotation.secrets import decoded
from signer.rotation.servers import observation
from signer.rotation.servers.identity import expected_servers
from signer.rotation.servers.key_observing import observe_key
from signer.rotation.servers.observation import Acceptance as Answer
from signer.rotation.servers.observation import Accepted, ExpectedServer, Refused, ServersObserved
from signer.rotation.servers.observing import Journal, NoServersExpected, TwoAuthorities, observe_servers
from signer.rotation.workload import TwoDigests, WorkloadFacts, read_workload
from signer.rotation.writer import Gathered, Pinning
from signer.rules.machine import MachineGone
from signer.store.caches import Caches

NO_NEW_AUTHORITY: Final = NotObserved("the new CA does not exist yet")
ASKED_AGAIN: Final = timedelta(minutes=10)
"""How old answers of API servers may be while nothing but a person or the clock is waited for. Each question to all
takes two canaries, which are certificates, and a rotation may be Prepared for weeks."""
_WAITS_FOR_OTHERS: Final = frozenset({Step.PREPARED, Step.SIGN_SERVING})
NOT_ASKED: Final = NotObserved("it is asked once all of its Machines are new")


class AskServers(Protocol):
    """Asks every API server of a workload cluster."""

    async def __call__(
        self, endpoint: ClusterConnection, expected: tuple[ExpectedServer, ...], authorities: TwoAuthorities
    ) -> ServersObserved:
        """See :func:`~signer.rotation.servers.observing.observe_servers`."""
        ...


class AskForKey(Protocol):
    """Asks every API server of a workload cluster whether it publishes a service-account key."""

    async def __call__(
        self,
        kubeconfig: bytes,
        expected: tuple[ExpectedServer, ...],
        authorities: TwoAuthorities,
        public_key_hash: str,
    ) -> Mapping[str, Publication | NotObserved] | NotObserved:
        """See :func:`~signer.rotation.servers.key_observing.observe_key`. ``kubeconfig`` has the credential."""
        ...


def asking_for_key(limits: ResourceLimits) -> AskForKey:
    """Asks with the credential of the kubeconfig."""

    async def ask(
        kubeconfig: bytes,
        expected: tuple[ExpectedServer, ...],
        authorities: TwoAuthorities,
        public_key_hash: str,
    ) -> Mapping[str, Publication | NotObserved] | NotObserved:
        try:
            connection = parse_kubeconfig(kubeconfig)
            found = await observe_key(connection, expected, authorities, public_key_hash, limits)
        except (KubeconfigRefused, NoServersExpected) as error:
            return NotObserved(printable(str(error)))
        return {machine: _publication(one) for machine, one in found.items()}

    return ask


def _publication(answer: observation.Publication) -> Publication | NotObserved:
    match answer:
        case observation.Published():
            return Publication.PUBLISHED
        case observation.Missing():
            return Publication.MISSING
        case observation.NotServed():
            return Publication.NOT_SERVED
        case observation.NotKnown(message):
            return NotObserved(message)


def asking(journal: Journal, now: Callable[[], datetime], limits: ResourceLimits) -> AskServers:
    """Asks with canaries that are journaled."""

    async def ask(
        endpoint: ClusterConnection, expected: tuple[ExpectedServer, ...], authorities: TwoAuthorities
    ) -> ServersObserved:
        classify = partial(presented_by, old=authorities.old.certificate, new=authorities.new.certificate, now=now())
        return await observe_servers(
            endpoint, expected, authorities, classify=classify, journal=journal, now=now, limits=limits
        )

    return ask


class ControlPlaneObserver(Protocol):
    """Knows when programs of the control plane started, and what an operator must do for a rollout."""

    async def controller_manager_started(
        self, workload: Client, machine: MachineView, signing: SigningPairs
    ) -> datetime | NotObserved:
        """When kube-controller-manager started on that Machine, as the workload cluster says. Not observed if it was
        started without flags for split pairs, and the rotation has these.
        """
        ...

    async def pinning(self, cluster: ClusterView) -> Mapping[str, Pinning]:
        """The KubeadmConfigs of MachinePools that pin CAs, by name.

        Raises:
            ApiError: the management cluster cannot be asked.
        """
        ...

    async def renewal(self, record: RotationRecord) -> RenewalFacts:
        """Whether every Machine of the control plane has taken what the present step published.

        Raises:
            ApiError: the management cluster cannot be asked.
        """
        ...

    async def renew(self, record: RotationRecord) -> str:
        """Have the API servers take what is published; returns what the operator must do, empty if nothing.

        Raises:
            ApiError: the management cluster cannot be asked.
        """
        ...

    async def first_record(self, order: Order, cluster: ClusterView, policy: JsonObject) -> RotationRecord:
        """See :class:`~signer.rotation.reconciler.Observer`."""
        ...

    @property
    def kubeadm_configs(self) -> Resource:
        """The served version of KubeadmConfigs."""
        ...


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the API servers answered in one pass."""

    servers: ServersFacts | NotObserved
    keys: Mapping[str, Publication | NotObserved] | NotObserved
    rotation_id: str
    step: Step
    expected: tuple[ExpectedServer, ...]

    def may_be_used(self, record: RotationRecord, expected: tuple[ExpectedServer, ...], now: datetime) -> bool:
        """Whether nothing has changed since, and nothing was missing then."""
        if record.step not in _WAITS_FOR_OTHERS or not isinstance(self.servers, ServersFacts):
            return False
        asked, wanted = (self.rotation_id, self.step, self.expected), (record.rotation_id, record.step, expected)
        same = asked == wanted and not self.servers.unseen
        complete = all(one.new is Acceptance.ACCEPTED and one.old is Acceptance.ACCEPTED for one in self.servers.seen)
        keys = () if isinstance(self.keys, NotObserved) else self.keys.values()
        published = all(one is Publication.PUBLISHED for one in keys)
        return same and complete and published and timedelta() <= now - self.servers.at < ASKED_AGAIN


@dataclass(frozen=True, slots=True)
class _NoAnswers:
    """No API server was asked yet."""


@dataclass(slots=True)
class WorldObserver:
    """One cluster's observer. See :class:`~signer.rotation.reconciler.Observer`."""

    key: ClusterKey
    management: GetList
    caches: Caches
    keys: GetKeys
    ask_servers: AskServers
    ask_controller_manager: AskControllerManager
    ask_for_key: AskForKey
    control_plane: ControlPlaneObserver
    now: Callable[[], datetime]
    _actuator: str = field(default="", init=False)
    """What the operator must do, by the last attempt to have the API servers renewed."""
    _answers: _Answers | _NoAnswers = field(default=_NoAnswers(), init=False)

    async def first_record(self, order: Order, cluster: ClusterView, policy: JsonObject) -> RotationRecord:
        """See :class:`~signer.rotation.reconciler.Observer`."""
        return await self.control_plane.first_record(order, cluster, policy)

    async def have_servers_renewed(self, record: RotationRecord, cluster: ClusterView) -> None:
        """See :class:`~signer.rotation.reconciler.Observer`."""
        self._actuator = await self.control_plane.renew(record)

    async def observe(self, record: RotationRecord, cluster: ClusterView, workload: Client, *, anew: bool) -> Observed:
        """See :class:`~signer.rotation.reconciler.Observer`."""
        self.caches.require_current(self.key.namespace)
        keys = self.keys()
        secrets = await read_secrets(self.management, self.key, record, keys, self.now())
        machines = tuple(self.caches.machines_of(self.key))
        answers, before = await self._ask(record, workload, machines, secrets, anew=anew), self._answers
        self._answers = answers
        said = await read_workload(workload, _digests(record))
        nodes = attested_nodes(self.caches, self.key, machines)
        pinning = await self.control_plane.pinning(cluster)
        renewal = await self.control_plane.renewal(record)
        facts = Facts(
            now=self.now(),
            paused=cluster.paused,
            authorities=secrets.authorities,
            trust=secrets.trust,
            kubeconfig=secrets.kubeconfig,
            cluster_info=said.cluster_info,
            authentication=said.authentication,
            root_ca=said.root_ca,
            servers=answers.servers,
            old_refused_since=NotObserved("the reconciler remembers it"),
            control_plane=await self._control_plane(workload, machines, record.signing_pairs),
            workers_joining=nodes.joining,
            nodes=nodes.attested,
            unattested=nodes.unattested,
            pins={name: one.pins for name, one in pinning.items()},
            worker_groups=worker_groups(machines),
            signing=secrets.signing,
            canary=await self._canary(record, cluster, workload, secrets.cluster, renewal),
            published_keys=answers.keys,
            actuator=self._actuator,
            renewal=renewal,
        )
        gathered = self._gathered(cluster, secrets, said, pinning)
        return Observed(facts, gathered, are_answers_earlier=answers is before)

    async def _ask(
        self,
        record: RotationRecord,
        workload: Client,
        machines: tuple[MachineView, ...],
        secrets: ManagementSecrets,
        *,
        anew: bool,
    ) -> _Answers:
        """Ask the API servers, or take the answers of an earlier pass."""
        before, expected = self._answers, expected_servers(machines)
        if not anew and isinstance(before, _Answers) and before.may_be_used(record, expected, self.now()):
            return before
        servers = await self._servers(workload, expected, secrets.cluster)
        keys = await self._published_keys(record, expected, secrets)
        return _Answers(servers, keys, record.rotation_id, record.step, expected)

    def _gathered(
        self, cluster: ClusterView, secrets: ManagementSecrets, said: WorkloadFacts, pinning: Mapping[str, Pinning]
    ) -> Gathered:
        return Gathered(
            cluster=cluster,
            owner_version=self.caches.version.clusters.api_version,
            secrets=secrets,
            workload=said,
            keys=self.keys(),
            kubeadm_configs=self.control_plane.kubeadm_configs,
            pinning=pinning,
        )

    async def _servers(
        self, workload: Client, expected: tuple[ExpectedServer, ...], authorities: Authorities
    ) -> ServersFacts | NotObserved:
        old, new = (authorities.by_role.get(role) for role in Role)
        if old is None or new is None:
            return NO_NEW_AUTHORITY
        try:
            found = await self.ask_servers(workload.server, expected, TwoAuthorities(old, new))
        except NoServersExpected as error:
            return NotObserved(str(error))
        return servers_facts(found, self.now())

    async def _published_keys(
        self, record: RotationRecord, expected: tuple[ExpectedServer, ...], secrets: ManagementSecrets
    ) -> Mapping[str, Publication | NotObserved] | NotObserved:
        """Only while the answer counts: from the rollout that brings the key on, until the key may sign."""
        wanted = _unused_key(record, secrets)
        if isinstance(wanted, NotObserved):
            return wanted
        old, new = (secrets.cluster.by_role.get(role) for role in Role)
        if old is None or new is None:
            return NO_NEW_AUTHORITY
        try:
            kubeconfig = decoded(secrets.kubeconfig_object).get(KUBECONFIG_KEY, b"")
        except ValueError as error:
            return NotObserved(f"Secret <cluster>-kubeconfig: {error}")
        return await self.ask_for_key(kubeconfig, expected, TwoAuthorities(old, new), wanted)

    async def _canary(
        self,
        record: RotationRecord,
        cluster: ClusterView,
        workload: Client,
        authorities: Authorities,
        renewal: RenewalFacts,
    ) -> CanarySigner | NotObserved:
        """Only where the answer counts: a canary is a certificate."""
        if record.step is not Step.CONTROLLER_MANAGERS_SIGN:
            return NOT_ASKED
        old, new = (authorities.by_role.get(role) for role in Role)
        if old is None or new is None:
            return NO_NEW_AUTHORITY
        if cluster.paused or renewal.lagging or not _is_written(record):
            return NOT_ASKED
        return await self.ask_controller_manager(workload, TwoAuthorities(old, new), record.rotation_id)

    async def _control_plane(
        self, workload: Client, machines: tuple[MachineView, ...], signing: SigningPairs
    ) -> tuple[ControlPlaneMachine, ...]:
        return tuple(
            [
                ControlPlaneMachine(
                    name=machine.name,
                    created=machine.created,
                    joined=bool(machine.node_ref),
                    controller_manager_started=await self.control_plane.controller_manager_started(
                        workload, machine, signing
                    ),
                )
                for machine in sorted(machines, key=lambda one: one.name)
                if machine.control_plane and not machine.deleting
            ]
        )


def attested_nodes(caches: Caches, key: ClusterKey, machines: tuple[MachineView, ...]) -> Nodes:
    """The nodes of the Cluster, whose Machines are ``machines``, by their authentic records."""
    found: list[tuple[MachineView, AttestedNode]] = []
    for record in caches.authentic.values():
        if record.machine.cluster != key:
            continue
        machine = caches.machine(record.machine)
        if not isinstance(machine, MachineGone):
            found.append((machine, record))
    return nodes_of(machines, found)


def _unused_key(record: RotationRecord, secrets: ManagementSecrets) -> str | NotObserved:
    """The hash of the new service-account key, unless it signs already or is not published yet."""
    kind = AuthorityKind.SERVICE_ACCOUNT
    if all(authority.kind is not kind for authority in record.authorities):
        return NotObserved("the service-account key is not rotated")
    key, held = record.authority(kind).new, secrets.authorities[kind].secret
    leads_on = isinstance(record.held_at, Step) or (
        not record.goes_back and record.step.is_at_least(Step.SERVERS_TRUST)
    )
    if isinstance(key, NotMade) or not leads_on:
        return NotObserved("the new service-account key is not published yet")
    if isinstance(held, HeldPair) and held.signs.digest == key.digest:
        return NotObserved("Secret <cluster>-sa holds the new service-account key")
    return key.public_key_hash


def _is_written(record: RotationRecord) -> bool:
    """Whether all that the present step writes was seen."""
    written, began = record.at(Moment.TRUST_WRITTEN), record.at(Moment.STEP)
    return not isinstance(written, NotYet) and not isinstance(began, NotYet) and written >= began


def _digests(record: RotationRecord) -> TwoDigests:
    cluster = record.authority(AuthorityKind.CLUSTER)
    return TwoDigests(cluster.old.digest, "" if isinstance(cluster.new, NotMade) else cluster.new.digest)


def servers_facts(found: ServersObserved, at: datetime) -> ServersFacts:
    """What a pass over the API servers has shown, as facts."""
    seen = tuple(
        ServerFacts(
            machine=one.server.machine,
            presents=one.presented,
            old=_acceptance(one.accepts_old),
            new=_acceptance(one.accepts_new),
        )
        for one in found.observations
    )
    return ServersFacts(seen, {one.server.machine: one.why for one in found.unseen}, at)


def _acceptance(answer: Answer) -> Acceptance | NotObserved:
    match answer:
        case Accepted():
            return Acceptance.ACCEPTED
        case Refused():
            return Acceptance.REFUSED
        case _:
            return NotObserved(answer.message)


__all__ = ["AskServers", "ControlPlaneObserver", "WorldObserver", "asking", "attested_nodes", "servers_facts"]
