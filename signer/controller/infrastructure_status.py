"""Signer names on the InfraCluster, where its provider's schema keeps them.

The Cluster API proposal "Kubelet authentication" names ``InfraCluster.Status.KubeletClientCertificateSigner``; the
field for serving certificates is its counterpart. Structural schemas prune what they do not know, so the
CustomResourceDefinition is asked first. Best effort: nothing rests upon these fields, and without a grant, a definition
or a field for them nothing is written.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from attestors.registry import Registry
from signer.controller.conditions import permitted_in, usable_signers
from signer.controller.configuration import Configuration
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, Invalid, NotFound
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from signer.model.cluster import ClusterKey, ClusterView, InfrastructureReference, NoInfrastructure
from signer.model.policy import Policy

_LOG = logging.getLogger(__name__)

CLIENT_SIGNER_FIELD: Final = "kubeletClientCertificateSigner"
SERVING_SIGNER_FIELD: Final = "kubeletServingCertificateSigner"
INFRASTRUCTURE_GROUP: Final = "infrastructure.cluster.x-k8s.io"
"""The one API group that is written to: a tenant writes the Cluster, and may name any kind in it."""
LOOK_AGAIN_SECONDS: Final = 600.0
"""A schema, a missing grant and what stands in the object are looked at again after this long."""
_REMEMBERED: Final = 16384
_CONTRACT_LABELS: Final = ("cluster.x-k8s.io/v1beta2", "cluster.x-k8s.io/v1beta1")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


class ObjectCalls(Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """See Client."""
        ...


@dataclass(frozen=True, slots=True)
class Published:
    """The fields that the schema keeps say what they should, written now or before."""


@dataclass(frozen=True, slots=True)
class NotPublished:
    """Nothing is published there; ``cause`` says why, for a person."""

    cause: str


Publication: TypeAlias = Published | NotPublished


@dataclass(frozen=True, slots=True)
class _Target:
    """A resource whose schema keeps at least one of the fields."""

    resource: Resource
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """What was found or written, and when."""

    about: object
    outcome: Publication
    at: float


class InfrastructureStatus:
    """Publishes the signer names of every cluster; one for the whole controller, so that schemas are read once."""

    def __init__(
        self, client: ObjectCalls, registry: Registry, configuration: Configuration, monotonic: Callable[[], float]
    ) -> None:
        self._client = client
        self._registry = registry
        self._configuration = configuration
        self._monotonic = monotonic
        self._targets: OrderedDict[tuple[str, str, str], tuple[_Target | NotPublished, float]] = OrderedDict()
        self._clusters: OrderedDict[ClusterKey, _Remembered] = OrderedDict()
        self._said: OrderedDict[str, None] = OrderedDict()

    async def publish(self, cluster: ClusterView, policy: Policy) -> Publication:
        """Write the names if they differ from what stands there. Never raises ApiError; cheap while nothing changes.

        A paused or deleted Cluster is left alone.
        """
        if cluster.paused or cluster.deleting:
            return NotPublished("the Cluster is paused or being deleted")
        names = self._names(policy)
        about = (cluster.infrastructure, names)
        remembered = self._clusters.get(cluster.key)
        if remembered is not None and remembered.about == about and not self._is_old(remembered.at):
            return remembered.outcome
        outcome = await self._outcome(cluster, names)
        _remember(self._clusters, cluster.key, _Remembered(about, outcome, self._monotonic()))
        if isinstance(outcome, NotPublished):
            self._say(outcome.cause)
        return outcome

    def _names(self, policy: Policy) -> tuple[tuple[str, str], ...]:
        """The first usable signer for each purpose in the policy's order; empty where there is none."""
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
            wanted = {field: name for field, name in names if field in target.fields}
            return await self._write(target, reference, cluster.key, wanted)
        except Forbidden as error:
            return NotPublished(f"a grant is missing: {error}")
        except NotFound:
            return NotPublished(f"{reference.kind}, or its definition, does not exist yet")
        except Invalid as error:
            return NotPublished(f"the schema of {reference.kind} refuses the signer names: {error}")
        except ApiError as error:
            return NotPublished(f"the management cluster did not answer: {error}")

    async def _write(
        self, target: _Target, reference: InfrastructureReference, key: ClusterKey, wanted: Mapping[str, str]
    ) -> Publication:
        path = target.resource.object(reference.name, key.namespace, "status")
        current = await self._client.get(path)
        if not _is_owned_by(current, key):
            return NotPublished(f"a {reference.kind} is not owned by the Cluster that names it")
        if _shown(current, wanted) == wanted:
            return Published()
        # null removes the field, for a policy whose attestors sign no such certificates.
        after = await self._client.patch(path, {"status": {field: name or None for field, name in wanted.items()}})
        if _shown(after, wanted) != wanted:
            return NotPublished(f"the API server does not keep the signer names of a {reference.kind}")
        return Published()

    async def _target(self, reference: InfrastructureReference) -> _Target | NotPublished:
        about = (reference.api_group, reference.version, reference.kind)
        known = self._targets.get(about)
        if known is not None and not self._is_old(known[1]):
            return known[0]
        name = f"{_plural(reference.kind)}.{reference.api_group}"
        definition = await self._client.get(CUSTOM_RESOURCE_DEFINITIONS.object(name))
        target = _target_of(definition, reference)
        _remember(self._targets, about, (target, self._monotonic()))
        return target

    def _is_old(self, moment: float) -> bool:
        return self._monotonic() - moment > LOOK_AGAIN_SECONDS

    def _say(self, cause: str) -> None:
        """Once for each cause: what is off is no news at every look."""
        if cause not in self._said:
            _remember(self._said, cause, None)
            _LOG.info("signer names are not published on InfraClusters", extra={"cause": cause})


def _remember(memory: OrderedDict[Any, Any], key: object, value: object) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)


def _plural(kind: str) -> str:
    """The resource of a kind, by the rule that Cluster API's contract has for the names of definitions.

    Cluster API pluralizes the kind in lower case (``util/contract/crd_naming.go``); these are the regular forms.
    """
    name = kind.lower()
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in tuple("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def _target_of(definition: JsonObject, reference: InfrastructureReference) -> _Target | NotPublished:
    """The version to write to, and which of the fields it keeps."""
    spec = _object(definition, "spec")
    names = _object(spec, "names")
    if names.get("kind") != reference.kind or spec.get("scope") != "Namespaced":
        return NotPublished(f"the definition of {reference.kind} is of another kind, or not namespaced")
    versions = {str(version.get("name")): version for version in _objects(spec, "versions")}
    for name in _preferred_versions(definition, reference, versions):
        version = versions[name]
        if version.get("served") is not True or "status" not in _object(version, "subresources"):
            continue
        fields = tuple(field for field in (CLIENT_SIGNER_FIELD, SERVING_SIGNER_FIELD) if _keeps(version, field))
        if fields:
            resource = Resource(reference.api_group, name, str(names.get("plural")), namespaced=True)
            return _Target(resource, fields)
    return NotPublished(f"the schema of {reference.kind} has no fields for signer names")


def _preferred_versions(
    definition: JsonObject, reference: InfrastructureReference, versions: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The reference's own version, then those that the contract labels name, newest first, then the others."""
    labels = _object(_object(definition, "metadata"), "labels")
    preferred = [reference.version]
    for label in _CONTRACT_LABELS:
        preferred += reversed(str(labels.get(label, "")).split("_"))
    preferred += sorted(versions, key=lambda name: versions[name].get("storage") is not True)
    return [name for name in dict.fromkeys(preferred) if name in versions]


def _keeps(version: Mapping[str, Any], field: str) -> bool:
    root = _object(_object(version, "schema"), "openAPIV3Schema")
    status = _object(_object(root, "properties"), "status")
    if not status:
        return root.get(_PRESERVE) is True
    properties = _object(status, "properties")
    if field in properties:
        return _object(properties, field).get("type") == "string"
    return status.get(_PRESERVE) is True


def _is_owned_by(manifest: JsonObject, key: ClusterKey) -> bool:
    """Cluster API's contract: an InfraCluster is owned by its Cluster. Another one's is not for us to write to."""
    return any(
        owner.get("kind") == "Cluster"
        and owner.get("name") == key.name
        and str(owner.get("apiVersion")).startswith("cluster.x-k8s.io/")
        for owner in _objects(_object(manifest, "metadata"), "ownerReferences")
    )


def _shown(manifest: JsonObject, wanted: Mapping[str, str]) -> dict[str, str]:
    status = _object(manifest, "status")
    return {field: str(status.get(field) or "") for field in wanted}


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else _NOTHING


def _objects(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = parent.get(key)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
