"""Lookups of attestors in the management cluster: the InfraMachine, and documents of the Cluster's namespace.

A tenant writes the references and, through its policy, the names. So every lookup is confined to the Cluster's own
namespace, and among the provider's objects to the one that the claimed Machine owns. Only the attestor sees the result:
no cause, log, exception or repr contains any of it. :mod:`signer.kube.coalescing_cache` bounds its age and the cost of
a flood.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from attestors.contract import Document, DocumentKind, Host, NoClaimedMachine, NotThere
from signer.decision.byo_hosts import BYO_MACHINE, byo_host_of
from signer.kube.calls import Get, List
from signer.kube.coalescing_cache import CoalescingCache
from signer.kube.errors import Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import BARE_METAL_HOSTS, CONFIG_MAPS, SECRETS, Resource
from signer.model.cluster import (
    MACHINE_KIND,
    ClusterKey,
    InfrastructureReference,
    MachineView,
    NoInfrastructure,
    attestor_annotations,
)
from signer.model.fields import MAXIMUM_NAME_CHARACTERS, mapping_of, text_of
from signer.store.infrastructure_definition import (
    DEFINITION_SECONDS,
    INFRASTRUCTURE_GROUP,
    OtherDefinition,
    definition_path,
    owners_of,
    remember,
    served_versions,
)

MAXIMUM_DOCUMENT_BYTES: Final = 1024 * 1024
"""For all keys and values, as the API server stores them: its own bound for a ConfigMap or Secret (``MaxSecretSize``),
and a third more for the base64 of a Secret."""

_METAL3_MACHINE: Final = "Metal3Machine"
_HOST_ANNOTATION: Final = "metal3.io/BareMetalHost"
"""Of a Metal3Machine: ``<namespace>/<name>`` of its BareMetalHost (cluster-api-provider-metal3,
``baremetal/metal3machine_manager.go``)."""
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_RESOURCES: Final[Mapping[DocumentKind, Resource]] = MappingProxyType(
    {DocumentKind.CONFIG_MAP: CONFIG_MAPS, DocumentKind.SECRET: SECRETS}
)
_Annotations: TypeAlias = Mapping[str, str] | NotThere
_DefinitionKey: TypeAlias = tuple[str, str, str]


class Reads(Get, List, Protocol):
    """The calls of :class:`Lookups`."""


class Lookups:
    """The lookups for all Clusters; one object for the whole controller."""

    def __init__(self, client: Reads, monotonic: Callable[[], float]) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._client = client
        self._monotonic = monotonic
        self._annotations: CoalescingCache[_Annotations] = CoalescingCache(monotonic, _size_of_annotations)
        self._hosts: CoalescingCache[Host | NotThere] = CoalescingCache(monotonic, _size_of_host)
        self._documents: CoalescingCache[Document | NotThere] = CoalescingCache(monotonic, _size_of_document)
        self._resources: OrderedDict[_DefinitionKey, tuple[Resource, float]] = OrderedDict()

    async def document(self, namespace: str, kind: DocumentKind, name: str) -> Document | NotThere:
        """A ConfigMap or Secret of that namespace; NotThere if the object or the grant is missing.

        Raises:
            ApiError: any other error of the management cluster.
        """
        if len(name) > MAXIMUM_NAME_CHARACTERS or not _SUBDOMAIN.fullmatch(name):
            return NotThere(f"what is to be looked up is no name that a {kind.value} can have")
        return await self._documents.ask((namespace, kind, name), kind, lambda: self._document(namespace, kind, name))

    async def infrastructure_annotations(self, machine: MachineView) -> Mapping[str, str] | NotThere:
        """The attestor annotations of the Machine's InfraMachine, bounded as a Machine's own; NotThere if the object or
        the grant is missing.

        Raises:
            ApiError: any other error of the management cluster.
        """
        reference = _reference_of(machine)
        if isinstance(reference, NotThere):
            return reference
        about = (machine.cluster.namespace, machine.name, machine.uid, reference)
        # The provider's conversion webhook answers for a version other than the stored one.
        return await self._annotations.ask(about, reference.kind, lambda: self._annotations_of(machine, reference))

    async def host(self, machine: MachineView) -> Host | NotThere:
        """The BareMetalHost of the Machine's Metal3Machine, or the ByoHost of its ByoMachine.

        NotThere if an object or a grant is missing, or if the objects do not say which host it is.

        Raises:
            ApiError: any other error of the management cluster.
        """
        reference = _reference_of(machine)
        if isinstance(reference, NotThere):
            return reference
        if reference.kind not in (_METAL3_MACHINE, BYO_MACHINE):
            return NotThere(f"the InfraMachine of {machine} is a {reference.kind}, which has no host object known here")
        about = (machine.cluster.namespace, machine.name, machine.uid, reference)
        return await self._hosts.ask(about, reference.kind, lambda: self._host_of(machine, reference))

    async def _document(self, namespace: str, kind: DocumentKind, name: str) -> Document | NotThere:
        what = f"{kind.value} {namespace}/{name}"
        resource = _RESOURCES[kind]
        try:
            manifest = await self._client.get(resource.object(name, namespace))
        except NotFound:
            return NotThere(f"{what} does not exist")
        except Forbidden:
            return NotThere(f"{what} may not be read: the grant to get {resource.plural} in {namespace} is missing")
        data = mapping_of(manifest, "data")
        # Before decoding: base64 is larger by a third.
        bound = MAXIMUM_DOCUMENT_BYTES if kind is DocumentKind.CONFIG_MAP else MAXIMUM_DOCUMENT_BYTES // 3 * 4
        if _size(data) > bound:
            return NotThere(f"{what} is larger than a {kind.value} can be")
        texts = {key: text for key, value in data.items() for text in _texts(kind, value)}
        return Document(MappingProxyType(texts), text_of(mapping_of(manifest, "metadata"), "resourceVersion"))

    async def _annotations_of(self, machine: MachineView, reference: InfrastructureReference) -> _Annotations:
        found = await self._infrastructure_machine(machine, reference)
        if isinstance(found, NotThere):
            return found
        return MappingProxyType(dict(attestor_annotations(mapping_of(found, "metadata"))))

    async def _host_of(self, machine: MachineView, reference: InfrastructureReference) -> Host | NotThere:
        found = await self._infrastructure_machine(machine, reference)
        if isinstance(found, NotThere):
            return found
        if reference.kind == BYO_MACHINE:
            return await byo_host_of(self._client, machine.cluster.namespace, reference.name)
        return await self._bare_metal_host_of(machine.cluster.namespace, reference, found)

    async def _bare_metal_host_of(
        self, namespace: str, reference: InfrastructureReference, found: Mapping[str, Any]
    ) -> Host | NotThere:
        """Both sides must agree: the Metal3Machine names the host, and the host's consumer is that Metal3Machine."""
        what = f"{reference.kind} {namespace}/{reference.name}"
        named = text_of(mapping_of(mapping_of(found, "metadata"), "annotations"), _HOST_ANNOTATION)
        if not named:
            return NotThere(f"{what} has no annotation {_HOST_ANNOTATION} yet")
        host_namespace, _, name = named.partition("/")
        if host_namespace != namespace or len(name) > MAXIMUM_NAME_CHARACTERS or not _SUBDOMAIN.fullmatch(name):
            return NotThere(f"annotation {_HOST_ANNOTATION} of {what} names no BareMetalHost of namespace {namespace}")
        try:
            host = await self._client.get(BARE_METAL_HOSTS.object(name, namespace))
        except (NotFound, ResourceNotServed):
            return NotThere(f"BareMetalHost {namespace}/{name}, or its definition, does not exist")
        except Forbidden:
            return NotThere(
                f"BareMetalHost {namespace}/{name} may not be read: the grant to get baremetalhosts is missing"
            )
        consumer = mapping_of(mapping_of(host, "spec"), "consumerRef")
        group = text_of(consumer, "apiVersion").rpartition("/")[0]
        named_back = (group, *(text_of(consumer, key) for key in ("kind", "namespace", "name")))
        if named_back != (INFRASTRUCTURE_GROUP, reference.kind, namespace, reference.name):
            return NotThere(f"BareMetalHost {namespace}/{name} has another consumer than {what}, which names it")
        annotations = MappingProxyType(dict(attestor_annotations(mapping_of(host, "metadata"))))
        return Host(f"metal3://{namespace}/{name}", annotations)

    async def _infrastructure_machine(
        self, machine: MachineView, reference: InfrastructureReference
    ) -> Mapping[str, Any] | NotThere:
        """The InfraMachine, which the Machine must own."""
        what = f"{reference.kind} {machine.cluster.namespace}/{reference.name}"
        key = (reference.api_group, reference.version, reference.kind)
        try:
            resource = await self._resource(key, reference)
            if isinstance(resource, NotThere):
                return resource
            manifest = await self._client.get(resource.object(reference.name, machine.cluster.namespace))
        except ResourceNotServed:
            self._resources.pop(key, None)  # that version may no longer be served: read its definition again
            raise
        except NotFound:
            return NotThere(f"{what}, or its definition, does not exist")
        except Forbidden:
            return NotThere(
                f"{what} may not be read: a grant to get its definition or {INFRASTRUCTURE_GROUP} is missing"
            )
        owners = owners_of(manifest, MACHINE_KIND, machine.name)
        if not any(owner.get("uid") == machine.uid for owner in owners):
            return NotThere(f"{what} is not owned by {machine}, which names it")
        return manifest

    async def _resource(self, key: _DefinitionKey, reference: InfrastructureReference) -> Resource | NotThere:
        """The resource in a served version, by a definition that was read at most ``DEFINITION_SECONDS`` ago."""
        known = self._resources.get(key)
        if known is not None and self._monotonic() - known[1] <= DEFINITION_SECONDS:
            return known[0]
        versions = served_versions(await self._client.get(definition_path(reference)), reference)
        if isinstance(versions, OtherDefinition):
            return NotThere(versions.cause)
        if not versions:
            return NotThere(f"no version of {reference.kind} is served")
        remember(self._resources, key, (versions[0].resource, self._monotonic()))
        return versions[0].resource


@dataclass(frozen=True, slots=True)
class ConfinedLookups:
    """Implements :class:`attestors.contract.ManagementCluster` for one request."""

    lookups: Lookups
    cluster: ClusterKey
    machine: MachineView | NoClaimedMachine

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """See the contract."""
        if isinstance(self.machine, NoClaimedMachine):
            return NotThere("no Machine has the claimed provider ID, so there is no InfraMachine")
        return await self.lookups.infrastructure_annotations(self.machine)

    async def host(self) -> Host | NotThere:
        """See the contract."""
        if isinstance(self.machine, NoClaimedMachine):
            return NotThere("no Machine has the claimed provider ID, so there is no host")
        return await self.lookups.host(self.machine)

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """See the contract."""
        return await self.lookups.document(self.cluster.namespace, kind, name)


def _reference_of(machine: MachineView) -> InfrastructureReference | NotThere:
    reference = machine.infrastructure
    if isinstance(reference, NoInfrastructure):
        return NotThere(f"{machine} names no InfraMachine in its own namespace")
    if reference.api_group != INFRASTRUCTURE_GROUP:
        return NotThere(f"{machine} names an InfraMachine that is not of {INFRASTRUCTURE_GROUP}")
    return reference


def _texts(kind: DocumentKind, value: object) -> Iterator[str]:
    """The value as text, if it is one."""
    if not isinstance(value, str):
        return
    if kind is DocumentKind.CONFIG_MAP:
        yield value
        return
    try:
        yield base64.b64decode(value, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return


def _size(texts: Mapping[str, object]) -> int:
    """Size in UTF-8. A lone surrogate, which no API server stores, counts as its escape."""
    every = (text for pair in texts.items() for text in pair if isinstance(text, str))
    return sum(len(text.encode("utf-8", "backslashreplace")) for text in every)


def _size_of_annotations(answer: _Annotations) -> int:
    return 0 if isinstance(answer, NotThere) else _size(answer)


def _size_of_host(answer: Host | NotThere) -> int:
    return 0 if isinstance(answer, NotThere) else _size(answer.annotations)


def _size_of_document(answer: Document | NotThere) -> int:
    return 0 if isinstance(answer, NotThere) else _size(answer.texts)
