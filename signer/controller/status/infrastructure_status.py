"""Publishes signer names on the InfraCluster if its provider's schema has fields for them.

The Cluster API proposal "Kubelet authentication" names ``InfraCluster.Status.KubeletClientCertificateSigner``; the
field for serving certificates is its counterpart. Structural schemas prune unknown fields, so the controller reads the
CustomResourceDefinition first. This is best effort: no decision depends on these fields, and without a grant, a
definition or a field nothing is written.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.status.policy_status import permitted_in, usable_signers
from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, Invalid, NotFound, ResourceNotServed
from signer.kube.resources import Resource
from signer.model.cluster import ClusterKey, ClusterView, InfrastructureReference, NoInfrastructure
from signer.model.fields import mapping_of
from signer.model.policy import Policy
from signer.store.infrastructure_definition import (
    DEFINITION_SECONDS,
    INFRASTRUCTURE_GROUP,
    OtherDefinition,
    definition_path,
    owners_of,
    remember,
    served_versions,
)

_LOG = logging.getLogger(__name__)

CLIENT_SIGNER_FIELD: Final = "kubeletClientCertificateSigner"
SERVING_SIGNER_FIELD: Final = "kubeletServingCertificateSigner"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


@dataclass(frozen=True, slots=True)
class Published:
    """The fields that the schema keeps have the right values, written now or before."""


@dataclass(frozen=True, slots=True)
class NotPublished:
    """Nothing is published; ``cause`` is a message for the administrator."""

    cause: str


Publication: TypeAlias = Published | NotPublished


@dataclass(frozen=True, slots=True)
class _Target:
    """A resource whose schema keeps at least one of the fields."""

    resource: Resource
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The last outcome for an InfraCluster, and its time."""

    about: object
    outcome: Publication
    at: float


class InfrastructureStatus:
    """Publishes the signer names of every cluster. One instance serves the whole controller, to read schemas once."""

    def __init__(
        self, client: GetPatch, registry: Registry, configuration: Configuration, monotonic: Callable[[], float]
    ) -> None:
        self._client = client
        self._registry = registry
        self._configuration = configuration
        self._monotonic = monotonic
        self._targets: OrderedDict[tuple[str, str, str], tuple[_Target | NotPublished, float]] = OrderedDict()
        self._clusters: OrderedDict[ClusterKey, _Remembered] = OrderedDict()
        self._logged: OrderedDict[str, None] = OrderedDict()

    async def publish(self, cluster: ClusterView, policy: Policy) -> Publication:
        """Write the names if they differ. Never raises ApiError; makes no call while nothing changes.

        Nothing is written for a Cluster that is paused or being deleted.
        """
        if cluster.paused or cluster.deleting:
            return NotPublished("the Cluster is paused or being deleted")
        names = self._names(policy)
        about = (cluster.infrastructure, names)
        remembered = self._clusters.get(cluster.key)
        if remembered is not None and remembered.about == about and not self._is_old(remembered.at):
            return remembered.outcome
        outcome = await self._outcome(cluster, names)
        remember(self._clusters, cluster.key, _Remembered(about, outcome, self._monotonic()))
        if isinstance(outcome, NotPublished):
            self._log_once(outcome.cause)
        return outcome

    def _names(self, policy: Policy) -> tuple[tuple[str, str], ...]:
        """The first usable signer for each purpose in the policy's order; empty if there is none."""
        permits = permitted_in(policy.cluster.namespace, self._configuration, self._registry)
        signers = usable_signers(policy, self._registry, permits)
        return (
            (CLIENT_SIGNER_FIELD, next(iter(signers.client), "")),
            (SERVING_SIGNER_FIELD, next(iter(signers.serving), "")),
        )

    async def _outcome(self, cluster: ClusterView, names: tuple[tuple[str, str], ...]) -> Publication:
        reference = cluster.infrastructure
        if isinstance(reference, NoInfrastructure):
            return NotPublished("a Cluster names no InfraCluster")
        if reference.api_group != INFRASTRUCTURE_GROUP:
            return NotPublished(f"only objects of {INFRASTRUCTURE_GROUP} are written to")
        try:
            target = await self._target(reference)
            if isinstance(target, NotPublished):
                return target
            desired = {field: name for field, name in names if field in target.fields}
            return await self._write(target, reference, cluster.key, desired)
        except Forbidden as error:
            return NotPublished(f"a grant is missing: {error}")
        except (NotFound, ResourceNotServed):
            return NotPublished(f"{reference.kind}, or its definition, does not exist yet")
        except Invalid as error:
            return NotPublished(f"the schema of {reference.kind} refuses the signer names: {error}")
        except ApiError as error:
            return NotPublished(f"the management cluster did not answer: {error}")

    async def _write(
        self, target: _Target, reference: InfrastructureReference, key: ClusterKey, desired: Mapping[str, str]
    ) -> Publication:
        path = target.resource.object(reference.name, key.namespace, "status")
        current = await self._client.get(path)
        # Cluster API's contract: an InfraCluster is owned by its Cluster. Another Cluster's is not ours to write.
        if not owners_of(current, "Cluster", key.name):
            return NotPublished(f"a {reference.kind} is not owned by the Cluster that names it")
        if _shown(current, desired) == desired:
            return Published()
        # null removes the field if the policy's attestors sign no such certificates.
        after = await self._client.patch(path, {"status": {field: name or None for field, name in desired.items()}})
        if _shown(after, desired) != desired:
            return NotPublished(f"the API server does not keep the signer names of a {reference.kind}")
        return Published()

    async def _target(self, reference: InfrastructureReference) -> _Target | NotPublished:
        about = (reference.api_group, reference.version, reference.kind)
        known = self._targets.get(about)
        if known is not None and not self._is_old(known[1]):
            return known[0]
        definition = await self._client.get(definition_path(reference))
        target = _target_of(definition, reference)
        remember(self._targets, about, (target, self._monotonic()))
        return target

    def _is_old(self, timestamp: float) -> bool:
        return self._monotonic() - timestamp > DEFINITION_SECONDS

    def _log_once(self, cause: str) -> None:
        """Log each cause once."""
        if cause not in self._logged:
            remember(self._logged, cause, None)
            _LOG.info("signer names are not published on InfraClusters", extra={"detail": cause})


def _target_of(definition: JsonObject, reference: InfrastructureReference) -> _Target | NotPublished:
    """The version to write to, and the fields that its schema keeps."""
    versions = served_versions(definition, reference)
    if isinstance(versions, OtherDefinition):
        return NotPublished(versions.cause)
    for version in versions:
        if "status" not in mapping_of(version.definition, "subresources"):
            continue
        kept = tuple(
            field for field in (CLIENT_SIGNER_FIELD, SERVING_SIGNER_FIELD) if _keeps(version.definition, field)
        )
        if kept:
            return _Target(version.resource, kept)
    return NotPublished(f"the schema of {reference.kind} has no fields for signer names")


def _keeps(version: Mapping[str, Any], field: str) -> bool:
    root = mapping_of(mapping_of(version, "schema"), "openAPIV3Schema")
    status = mapping_of(mapping_of(root, "properties"), "status")
    if not status:
        return root.get(_PRESERVE) is True
    properties = mapping_of(status, "properties")
    if field in properties:
        return mapping_of(properties, field).get("type") == "string"
    return status.get(_PRESERVE) is True


def _shown(manifest: JsonObject, desired: Mapping[str, str]) -> dict[str, str]:
    status = mapping_of(manifest, "status")
    return {field: str(status.get(field) or "") for field in desired}
