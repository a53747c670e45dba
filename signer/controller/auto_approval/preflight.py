"""Checks a cluster before Enforce: which nodes would lose renewal, what still auto-approves, and what to do first.

It changes nothing. It reads the management cluster with the caller's credentials, and the workload cluster with Secret
``<cluster>-kubeconfig``, as the controller does.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.auto_approval.workload_grants import TokensUnread, openings_of, read_grants, read_token_groups
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.controller.signer_rights import MissingSignerRights, missing_rights_message, missing_signer_rights
from signer.controller.status.policy_status import permitted_in
from signer.controller.status.renewal_coverage import Attested, MachineCoverage, RenewalCoverage, Unattested
from signer.controller.workload_access import (
    NOT_READABLE,
    WorkloadAccessRefused,
    kubeconfig_in_use,
    kubeconfig_needs,
    kubeconfig_notes,
    machines_not_known,
    remedy_in_workload,
    workload_connection,
)
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import ATTESTED_NODES, NODE_ATTESTATION_POLICIES, SECRETS, Resource
from signer.model.attestor_roles import Shortfall
from signer.model.auto_approval import BOTH_SUBRESOURCES, ApprovalSubresource, shown
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.model.condition import (
    ATTESTORS_CONFIGURED,
    CERTIFICATE_AUTHORITY_AVAILABLE,
    CERTIFICATE_AUTHORITY_NOT_SHARED,
)
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.policy import Mode, Policy
from signer.model.seal import ControllerKeys
from signer.rules.auto_approval import (
    AllowedReview,
    Grant,
    RemovableGrant,
    ReportedGrant,
    grants_that_explain,
    reviewed_identities,
)
from signer.store.cache import APPLY_DEFINITIONS, Cache
from signer.store.caches import Caches, UnreadablePolicy
from signer.store.cluster_api import discover_cluster_api
from signer.store.controller_key import MISSING_KEY_REMEDY, SECRET_NAME, MalformedControllerKey, parse_controller_keys

_KEEPS_FROM_SIGNING: Final = frozenset(
    {ATTESTORS_CONFIGURED, CERTIFICATE_AUTHORITY_AVAILABLE, CERTIFICATE_AUTHORITY_NOT_SHARED}
)
"""Conditions that are False while nodes get no certificates from the controller."""
_NODES: Final = Resource("", "v1", "nodes", namespaced=False)
_MAXIMUM_NODES: Final = 20_000


class PreflightFailed(CommandFailed):
    """The check could not be completed; the message says why."""


@dataclass(frozen=True, slots=True)
class UnknownNode:
    """A Node of the workload cluster that matches no Machine and no record."""

    name: str


@dataclass(frozen=True, slots=True)
class UnmetCondition:
    """A condition of the policy that the controller last wrote as False."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of the check."""

    cluster: ClusterKey
    mode: Mode | None
    """None without a valid policy."""
    policy_problem: str
    """Why there is no valid policy; empty if there is one."""
    renewal_coverage: tuple[MachineCoverage, ...]
    unknown_nodes: tuple[UnknownNode, ...]
    grants: tuple[Grant, ...]
    openings: tuple[AllowedReview, ...]
    notes: tuple[str, ...]
    unmet: tuple[UnmetCondition, ...] = ()
    """What keeps the controller from signing with the CA, or for an attestor: its nodes would lose renewal."""
    shortfalls: tuple[Shortfall, ...] = ()
    """Where the policy is below the operator's floors; ``mode`` is the one in force."""
    roles_without_attestor: tuple[str, ...] = ()
    """The roles whose Machines no authorized attestor can attest, each with the attestors that could."""
    machines_unread: str = ""
    """What this user may not read, so that it is not known which Machines are attested; empty if it is known."""
    missing_rights: tuple[MissingSignerRights, ...] = ()
    """What the controller may not do for the signers of the policy's attestors: their nodes would lose renewal."""
    grants_unread: str = ""
    """The same for what still auto-approves, and for the Nodes."""

    @property
    def unread(self) -> tuple[str, ...]:
        """What is not known here."""
        return tuple(one for one in (self.machines_unread, self.grants_unread) if one)

    @property
    def losing_renewal(self) -> tuple[Unattested, ...]:
        """The Machines whose nodes would lose renewal."""
        return tuple(one for one in self.renewal_coverage if isinstance(one, Unattested))

    @property
    def not_removed(self) -> tuple[AllowedReview, ...]:
        """Openings that Enforce would not close, because something other than removable bindings grants them."""
        return tuple(
            opening
            for opening in self.openings
            if not self._explaining(opening)
            or any(isinstance(grant, ReportedGrant) for grant in self._explaining(opening))
        )

    def _rights_to_revoke(self) -> list[str]:
        rights: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
        for opening in self.not_removed:
            blamed = [grant for grant in self._explaining(opening) if isinstance(grant, ReportedGrant)]
            names = [shown(grant.binding.name) for grant in blamed]
            what = f"ClusterRoleBinding {', '.join(names)}" if names else "an authorizer that is not RBAC"
            resources, identities = rights.setdefault(what, ({}, {}))
            resources[opening.subresource.resource] = identities[printable(opening.identity.label)] = None
        return [
            f"Take create on {' and '.join(resources)} from {', '.join(identities)}: granted by {what}, which Enforce "
            "does not remove."
            for what, (resources, identities) in rights.items()
        ]

    def _bindings_to_split(self) -> list[str]:
        """Bindings that Enforce keeps for renewal and that also grant first certificates."""
        removable = [grant for grant in self.grants if isinstance(grant, RemovableGrant)]
        return [
            f"Bind {ApprovalSubresource.SELFNODECLIENT.resource} apart from {ApprovalSubresource.NODECLIENT.resource}, "
            f"and delete ClusterRoleBinding {shown(grant.binding.name)}, which grants both: "
            "Enforce keeps it as long as it keeps renewal."
            for grant in removable
            if grant.subresources == BOTH_SUBRESOURCES
        ]

    @property
    def relevant_grants(self) -> tuple[Grant, ...]:
        """The grants without those of administrators, who do not depend on auto-approval."""
        blamed = {grant.binding.name for opening in self.not_removed for grant in self._explaining(opening)}
        return tuple(
            grant for grant in self.grants if isinstance(grant, RemovableGrant) or grant.binding.name in blamed
        )

    def _explaining(self, opening: AllowedReview) -> tuple[Grant, ...]:
        return grants_that_explain(opening, self.grants)

    @property
    def is_ready(self) -> bool:
        """Whether Enforce would remove all auto-approval at once, no node would lose renewal, and the controller can
        sign.
        """
        return not (
            self.policy_problem
            or self.unmet
            or self.roles_without_attestor
            or self.missing_rights
            or self.losing_renewal
            or self.unknown_nodes
            or self.not_removed
            or self.unread
        )

    def steps(self) -> tuple[str, ...]:
        """The steps to take before Enforce, in order."""
        steps: list[str] = []
        if self.policy_problem:
            steps.append(f"Write a NodeAttestationPolicy for the cluster: {self.policy_problem}.")
        steps += [
            f"Authorize {attestors} in the policy: the operator's floor accepts no other."
            for attestors in self.roles_without_attestor
        ]
        steps += [f"Correct what condition {one.type} of the policy reports: {one.message}." for one in self.unmet]
        if self.missing_rights:
            message = missing_rights_message(self.cluster, self.missing_rights)
            steps.append(f"{message[0].upper()}{message[1:]}.")
        not_installed = Counter(one.attested_by for one in self.losing_renewal if one.attested_by)
        steps += [
            f"Run preflight where attestor {provider} is installed, as in the controller's Pod: whether {count} of the "
            "Machines renew is not known here."
            for provider, count in not_installed.items()
        ]
        if unattested := len(self.losing_renewal) - not_installed.total():
            steps.append(
                f"Attest the nodes of the Machines that are not attested ({unattested}) with an attestor that the "
                "policy authorizes: an attested request adopts an existing node, and its Machine stays. For the "
                "machine of kubeadm init, see docs/first-cluster.md. Until then Enforce keeps renewal without "
                "attestation."
            )
            steps += self._bindings_to_split()
        if self.unknown_nodes:
            steps.append(
                f"Check the Nodes that match no Machine ({len(self.unknown_nodes)}): they would lose renewal, and "
                "cannot be attested."
            )
        steps += self._rights_to_revoke()
        if self.unread:
            steps.append("Run preflight as a user that may read the rest, or in the controller's Pod.")
        if not steps and self.mode is not Mode.ENFORCE:
            steps.append("Set spec.mode to Enforce.")
        return tuple(steps)


async def preflight(
    management: Client,
    key: ClusterKey,
    configuration: Configuration,
    *,
    registry: Registry,
    now: Callable[[], datetime],
) -> Preflight:
    """Check one cluster; ``configuration`` is the controller's.

    Raises:
        PreflightFailed: the Cluster does not exist, the controller key cannot be read, or the workload cluster's API
            server fails.
        WorkloadAccessRefused, MissingGrant, CannotBeProven, UnreadableGrant, TooManyIdentities, TlsMaterialRefused:
            the workload cluster cannot be read.
        ApiError: from the management cluster.
    """
    caches, unmet, unread = await _caches(management, key, configuration)
    permits = permitted_in(key.namespace, configuration, registry)
    renewal_coverage: tuple[MachineCoverage, ...] = ()
    if not unread:
        renewal_coverage = RenewalCoverage(key, registry=registry, caches=caches, permits=permits, now=now).all()
    policy = caches.policies.get(key.namespace, key.name)
    notes: list[str] = []
    read = _WorkloadReport()
    grants_unread = ""
    try:
        async with _workload(management, key) as workload:
            read = await _read_workload(workload, None if unread else renewal_coverage, _authorized(policy), notes)
    except WorkloadAccessRefused as error:
        if not isinstance(error.__cause__, Forbidden):
            raise
        grants_unread = (
            f"{NOT_READABLE}: the Secrets of the Cluster's kubeconfig; which grants auto-approve, and which Nodes have "
            "no Machine, is not known"
        )
    in_use = await kubeconfig_in_use(management, key)
    notes += [f"{one[0].upper()}{one[1:]}." for one in kubeconfig_notes(key, in_use)]
    notes += [f"{one[0].upper()}{one[1:]}." for one in kubeconfig_needs(key, in_use, now())]
    if policy is None:
        problem = f"there is no NodeAttestationPolicy {key}"
    else:
        problem = policy.message if isinstance(policy, UnreadablePolicy) else ""
    valid = policy if isinstance(policy, Policy) else None
    return Preflight(
        cluster=key,
        mode=None if valid is None else valid.mode,
        policy_problem=problem,
        renewal_coverage=renewal_coverage,
        unknown_nodes=read.unknown,
        grants=read.grants,
        openings=read.openings,
        notes=tuple(notes),
        unmet=unmet,
        shortfalls=() if valid is None else valid.shortfalls,
        roles_without_attestor=() if valid is None else valid.roles_without_attestor,
        missing_rights=read.missing_rights,
        machines_unread=machines_not_known(unread),
        grants_unread=grants_unread,
    )


_GRANT_TOKENS: Final = (
    "Role node-attestation-bootstrap-tokens of deploy/rbac/workload.yaml grants it, as does a kubeconfig of "
    "workload-kubeconfig --bootstrap-tokens."
)


@dataclass(frozen=True, slots=True)
class _WorkloadReport:
    """What the workload cluster says."""

    grants: tuple[Grant, ...] = ()
    openings: tuple[AllowedReview, ...] = ()
    unknown: tuple[UnknownNode, ...] = ()
    missing_rights: tuple[MissingSignerRights, ...] = ()


def _authorized(policy: Policy | UnreadablePolicy | None) -> frozenset[str]:
    return frozenset(one.provider for one in policy.authorized_attestors) if isinstance(policy, Policy) else frozenset()


async def _read_workload(
    workload: Client, coverage: tuple[MachineCoverage, ...] | None, providers: frozenset[str], notes: list[str]
) -> _WorkloadReport:
    """Read the workload cluster; without ``coverage``, it is not known which Nodes have a Machine."""
    grants = await read_grants(workload)
    tokens = await read_token_groups(workload)
    if isinstance(tokens, TokensUnread):
        notes.append(f"Groups of bootstrap tokens were not checked: {tokens.cause}. {_GRANT_TOKENS}")
    groups = frozenset() if isinstance(tokens, TokensUnread) else tokens
    openings = await openings_of(workload, reviewed_identities(grants, sorted(groups, key=sorted)))
    unknown: tuple[UnknownNode, ...] = ()
    if coverage is not None:
        try:
            unknown = await _unknown_nodes(workload, coverage)
        except Forbidden as error:
            notes.append(f"Nodes were not checked: {error}.")
    missing: tuple[MissingSignerRights, ...] = ()
    try:
        missing = await missing_signer_rights(workload, providers)
    except ApiError as error:
        notes.append(f"Whether the controller may approve and sign was not checked: {error}.")
    return _WorkloadReport(grants, openings, unknown, missing)


@contextlib.asynccontextmanager
async def _workload(management: Client, key: ClusterKey) -> AsyncIterator[Client]:
    connection = await workload_connection(management, key)
    try:
        async with Client(connection) as workload:
            yield workload
    except ApiError as error:
        raise PreflightFailed(f"the API server of Cluster {key}: {error}{remedy_in_workload(error, key)}") from error


async def _caches(
    client: Client, key: ClusterKey, configuration: Configuration
) -> tuple[Caches, tuple[UnmetCondition, ...], tuple[str, ...]]:
    """The caches that the controller keeps, for one namespace, filled once; the policy's unmet conditions; and what
    this user may not read.
    """
    unread: list[str] = []
    controller_namespace = configuration.namespace
    caches = Caches(
        await discover_cluster_api(client),
        own_namespace=controller_namespace,
        floors=configuration.floors,
        watch_namespace=key.namespace,
        limits=configuration.namespace_limits,
    )
    try:
        await require_cluster(client, caches.version.clusters, key)
    except NoSuchCluster as error:
        raise PreflightFailed(str(error)) from None
    keys: ControllerKeys | None = None
    try:
        keys = parse_controller_keys(await client.get(SECRETS.object(SECRET_NAME, controller_namespace)))
        caches.authentic.use_keys(keys)
    except Forbidden:
        unread.append(
            f"Secret {controller_namespace}/{SECRET_NAME}, so that the seals of AttestedNodes are not verified"
        )
    except NotFound:
        raise PreflightFailed(
            f"Secret {controller_namespace}/{SECRET_NAME} does not exist: {MISSING_KEY_REMEDY}"
        ) from None
    except MalformedControllerKey as error:
        raise PreflightFailed(f"Secret {controller_namespace}/{SECRET_NAME}: {error}") from error
    machines, pools = caches.version.machines, caches.version.machine_pools
    lists: list[tuple[Cache[Any], Resource]] = [(caches.machines, machines), (caches.records, ATTESTED_NODES)]
    if isinstance(pools, Resource):
        lists.append((caches.machine_pools, pools))
    for cache, resource in lists:
        try:
            cache.replaced(await _list_all(client, resource.collection(key.namespace)))
        except Forbidden:
            unread.append(f"{resource.plural} of namespace {key.namespace}")
    unmet: tuple[UnmetCondition, ...] = ()
    with contextlib.suppress(NotFound):
        policy = await client.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace))
        caches.policies.replaced([policy])
        unmet = _unmet_conditions(policy)
    # Records sealed with a key that the Secret does not have are not the controller's.
    if keys is not None:
        caches.authentic.begin_key_read()
        caches.authentic.use_keys(keys)
    return caches, unmet, tuple(unread)


def _unmet_conditions(policy: JsonObject) -> tuple[UnmetCondition, ...]:
    """The False ones of those that preflight does not determine itself."""
    generation = mapping_of(policy, "metadata").get("generation")
    return tuple(
        UnmetCondition(text_of(one, "type"), printable(text_of(one, "message")))
        for one in items_of(mapping_of(policy, "status"), "conditions")
        if isinstance(one, Mapping)
        and text_of(one, "type") in _KEEPS_FROM_SIGNING
        and text_of(one, "status") == "False"
        and one.get("observedGeneration") == generation
    )


async def _list_all(client: Client, path: str) -> list[JsonObject]:
    found: list[JsonObject] = []
    try:
        async for page in client.list_pages(path):
            items = page.get("items")
            found += [item for item in (items if isinstance(items, list) else []) if isinstance(item, dict)]
    except ResourceNotServed as error:
        raise ResourceNotServed(f"{path} is not served there: {APPLY_DEFINITIONS}", status=error.status) from error
    return found


async def _unknown_nodes(workload: Client, renewal_coverage: tuple[MachineCoverage, ...]) -> tuple[UnknownNode, ...]:
    known = {one.record.node_name for one in renewal_coverage if isinstance(one, Attested)}
    known |= {one.machine.node_ref for one in renewal_coverage}
    provider_ids = {one.machine.provider_id for one in renewal_coverage} - {""}
    unknown: list[UnknownNode] = []
    count = 0
    async for page in workload.list_pages(_NODES.collection()):
        items = page.get("items")
        for node in items if isinstance(items, list) else []:
            count += 1
            if count > _MAXIMUM_NODES:
                raise PreflightFailed(f"the cluster has more than {_MAXIMUM_NODES} Nodes")
            if isinstance(node, Mapping) and not _is_known(node, known, provider_ids):
                unknown.append(UnknownNode(printable(text_of(mapping_of(node, "metadata"), "name"))))
    return tuple(unknown)


def _is_known(node: Mapping[str, Any], names: set[str], provider_ids: set[str]) -> bool:
    """Whether a Node matches by name or provider ID. The workload cluster controls both; only the report uses them."""
    name = text_of(mapping_of(node, "metadata"), "name")
    return name in names or text_of(mapping_of(node, "spec"), "providerID") in provider_ids
