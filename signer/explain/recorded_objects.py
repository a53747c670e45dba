"""Serves the paths of a management cluster from a recording.

A recording is a set of manifests, as written by ``kubectl get --output yaml`` or ``explain --record``. It holds the
certificates of a cluster's CAs without their private keys, in ConfigMaps or Secrets ``<cluster>-ca`` and such. It holds
no controller key: its AttestedNodes are trusted unverified. Therefore only explanations may use a recording.
"""

from __future__ import annotations

import base64
import copy
import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from attestors.wire.provider_id import InvalidOID, read_oids
from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters
from signer.kube.errors import Cause, NotFound, ResourceNotServed, Unreachable
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTERS_V1BETA1,
    CLUSTERS_V1BETA2,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    IDENTITY_RESERVATIONS,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    Resource,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, parse_time, text_of
from signer.model.record_object import InvalidRecord, parse_record
from signer.model.reservation import InvalidReservation, ReservationSeals, parse_reservation
from signer.model.seal import KEY_BYTES, ControllerKeys, RecordSeals
from signer.model.service_networks import MAXIMUM_REPORTED, ReportedServices, network_of
from signer.store.controller_key import controller_key_secret

RECORDING_KIND: Final = "Recording"
RECORDING_API_VERSION: Final = "explain.attestation.cluster.x-k8s.io/v1alpha1"
"""The apiVersion of the header, the one document of a recording that is no Kubernetes object."""

_MAXIMUM_REDACTED: Final = 32
_MAXIMUM_ANSWERS: Final = 64
_DISCOVERY: Final = re.compile(r"/apis/[^/]+(?:/[^/]+)?")
_NEWEST: Final = f"/apis/{CLUSTERS_V1BETA2.group}/{CLUSTERS_V1BETA2.version}"
_CLUSTER_API: Final = frozenset({CLUSTERS_V1BETA2.plural, MACHINES_V1BETA2.plural, MACHINE_POOLS_V1BETA2.plural})
_PLURALS: Final[Mapping[tuple[str, str], tuple[str, bool]]] = {
    ("cluster.x-k8s.io", "Cluster"): ("clusters", True),
    ("cluster.x-k8s.io", "Machine"): ("machines", True),
    ("cluster.x-k8s.io", "MachinePool"): ("machinepools", True),
    (KUBEADM_CONFIGS_V1BETA2.group, "KubeadmConfig"): (KUBEADM_CONFIGS_V1BETA2.plural, True),
    (NODE_ATTESTATION_POLICIES.group, "NodeAttestationPolicy"): (NODE_ATTESTATION_POLICIES.plural, True),
    (ATTESTED_NODES.group, "AttestedNode"): (ATTESTED_NODES.plural, True),
    (IDENTITY_RESERVATIONS.group, "IdentityReservation"): (IDENTITY_RESERVATIONS.plural, True),
    (CERTIFICATE_SIGNING_REQUESTS.group, "CertificateSigningRequest"): (CERTIFICATE_SIGNING_REQUESTS.plural, False),
    (CUSTOM_RESOURCE_DEFINITIONS.group, "CustomResourceDefinition"): (CUSTOM_RESOURCE_DEFINITIONS.plural, False),
    ("", "Secret"): (SECRETS.plural, True),
    ("", "ConfigMap"): (CONFIG_MAPS.plural, True),
}
"""Plural, and whether the resource is namespaced, by group and kind. Infrastructure providers' resources are looked up
in the CustomResourceDefinitions among the documents."""


class UnusableRecording(ValueError):
    """The documents are no usable recording; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a recording; all fields are empty for documents collected by hand."""

    recorded: datetime | None
    cluster: ClusterKey | None
    controller_namespace: str
    provider_id_oids: tuple[str, ...]
    """OIDs of the extension that holds the provider ID; a recording may omit them."""
    host_keys_oids: tuple[str, ...]
    """The same of the extension that holds host keys of sshd."""
    insecure_allowed: bool
    floors: bool
    """Whether a floor of the operator's applied, which is not recorded."""
    with_settings: frozenset[str]
    """Attestors with operator settings, which are never recorded."""
    withheld: frozenset[str]
    """Paths that were read and are not in the recording."""
    answers: tuple[Mapping[str, Any], ...]
    """The attestor's recorded calls, in order; an attestor refuses answers of another form."""
    redacted: tuple[str, ...]
    """Redacted fields of the evidence; ``request`` if the whole request is redacted."""
    reported_services: ReportedServices
    """What the workload cluster reported."""


class RecordedObjects:
    """The documents by their paths; see :class:`~signer.kube.calls.GetList`."""

    def __init__(self, manifests: Iterable[Mapping[str, Any]], default_namespace: str) -> None:
        """``default_namespace`` is the controller's namespace if the recording does not name it."""
        documents = [dict(one) for one in manifests]
        self.header = _header(documents, default_namespace)
        self._objects: dict[str, JsonObject] = {}
        self._by_collection: dict[str, list[str]] = {}
        keys = ControllerKeys(secrets.token_bytes(KEY_BYTES))
        self._seals = RecordSeals(keys)
        self._reservation_seals = ReservationSeals(keys)
        definitions = _definitions(documents)
        for document in documents:
            self._add(document, definitions)
        self._add(controller_key_secret(self.header.controller_namespace, keys), definitions)

    @property
    def requests(self) -> tuple[JsonObject, ...]:
        """The CSRs among the documents."""
        return tuple(
            self._objects[path] for path in self._by_collection.get(CERTIFICATE_SIGNING_REQUESTS.collection(), [])
        )

    def clusters(self) -> tuple[ClusterKey, ...]:
        """The Clusters among the documents."""
        metadata = [mapping_of(one, "metadata") for one in self._objects.values() if one.get("kind") == "Cluster"]
        return tuple(sorted({ClusterKey(text_of(one, "namespace"), text_of(one, "name")) for one in metadata}, key=str))

    async def get(self, path: str) -> JsonObject:
        """See Client.

        Raises:
            NotFound: the recording has no such document.
            ResourceNotServed: the recording has no document of that API group or version.
            Unreachable: the object was read, but left out of the recording.
        """
        if path in self.header.withheld:
            raise Unreachable("it was left out of the recording", cause=Cause.REFUSED)
        if _DISCOVERY.fullmatch(path):
            return self._served(path) if path.count("/") == 3 else self._versions(path)
        if path not in self._objects:
            raise NotFound("it is not in the recording", status=404)
        return copy.deepcopy(self._objects[path])

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client; one page."""
        del params, limit, maximum_bytes
        if path in self.header.withheld:
            raise Unreachable("it was left out of the recording", cause=Cause.REFUSED)
        items = [copy.deepcopy(self._objects[one]) for one in self._by_collection.get(path, [])]
        yield {"metadata": {"resourceVersion": "1"}, "items": items}

    def _served(self, path: str) -> JsonObject:
        """The resources of a group and version: those of the documents, and always those of Cluster API."""
        names = {one.rpartition("/")[2] for one in self._by_collection if one.startswith(f"{path}/")}
        if not names and (path != _NEWEST or CLUSTERS_V1BETA1.collection() in self._by_collection):
            raise ResourceNotServed("nothing of that version is in the recording", status=404)
        return {"resources": [{"name": name} for name in sorted(names | _CLUSTER_API)]}

    def _versions(self, path: str) -> JsonObject:
        """The versions of a group: those of the documents, and always one of Cluster API."""
        served = {one.split("/")[3] for one in self._by_collection if one.startswith(f"{path}/")}
        if _NEWEST.startswith(f"{path}/") and CLUSTERS_V1BETA1.collection() not in self._by_collection:
            served.add(CLUSTERS_V1BETA2.version)
        if not served:
            raise ResourceNotServed("nothing of that group is in the recording", status=404)
        return {"versions": [{"version": version} for version in sorted(served)]}

    def _add(self, document: JsonObject, definitions: Mapping[tuple[str, str], str]) -> None:
        resource = _resource(document, definitions)
        if resource is None:
            return
        given = mapping_of(document, "metadata")
        metadata = {"namespace": "default", "uid": f"recorded-{given.get('name')}", "resourceVersion": "1", **given}
        if not resource.namespaced:
            metadata.pop("namespace")
        document = {**document, "metadata": metadata}
        if resource == ATTESTED_NODES:
            document = self._sealed(document)
        if resource == IDENTITY_RESERVATIONS:
            document = self._sealed_reservation(document)
        namespace = str(metadata["namespace"]) if resource.namespaced else None
        try:
            path = resource.object(str(metadata.get("name", "")), namespace)
            collections = {resource.collection(), resource.collection(namespace)}
        except ValueError as error:
            raise UnusableRecording(f"a document of kind {document.get('kind')}: {error}") from error
        known = path in self._objects
        self._objects[path] = document
        for collection in collections if not known else ():
            self._by_collection.setdefault(collection, []).append(path)
        if resource == CONFIG_MAPS and "tls.crt" in mapping_of(document, "data"):
            certificate = str(mapping_of(document, "data")["tls.crt"])
            data = {"tls.crt": base64.b64encode(certificate.encode()).decode("ascii")}
            self._add({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}, definitions)

    def _sealed(self, document: JsonObject) -> JsonObject:
        """Seal a record with this recording's own key, because it was authentic when it was recorded."""
        unsealed = {**document, "spec": {**mapping_of(document, "spec"), "seal": "recorded"}}
        try:
            seal = self._seals.seal(parse_record(unsealed))
        except InvalidRecord:
            return document
        return {**document, "spec": {**mapping_of(document, "spec"), "seal": seal}}

    def _sealed_reservation(self, document: JsonObject) -> JsonObject:
        """The same for a reservation."""
        unsealed = {**document, "spec": {**mapping_of(document, "spec"), "seal": "recorded"}}
        try:
            found = parse_reservation(unsealed)
        except InvalidReservation:
            return document
        return {**document, "spec": self._reservation_seals.spec(found.side, found.pair, found.basis)}


def _header(documents: list[JsonObject], default_namespace: str) -> Header:
    found = [one for one in documents if one.get("kind") == RECORDING_KIND]
    if len(found) > 1:
        raise UnusableRecording("there is more than one recording among the documents")
    header = found[0] if found else {}
    cluster = mapping_of(header, "cluster")
    try:
        recorded = parse_time(text_of(header, "recordedTime")) if "recordedTime" in header else None
    except ValueError as error:
        raise UnusableRecording(f"recordedTime: {error}") from error
    return Header(
        recorded=recorded,
        cluster=ClusterKey(text_of(cluster, "namespace"), text_of(cluster, "name")) if cluster else None,
        controller_namespace=text_of(header, "controllerNamespace") or default_namespace,
        provider_id_oids=_oids(header, "providerIDOIDs"),
        host_keys_oids=_oids(header, "hostKeysOIDs"),
        insecure_allowed=header.get("insecureAllowed") is True,
        floors=header.get("floors") is True,
        with_settings=frozenset(str(one) for one in items_of(header, "attestorsWithSettings")),
        withheld=frozenset(str(one) for one in items_of(header, "withheld")),
        answers=tuple(one for one in items_of(header, "answers")[:_MAXIMUM_ANSWERS] if isinstance(one, dict)),
        redacted=tuple(printable(str(one)) for one in items_of(header, "redacted")[:_MAXIMUM_REDACTED]),
        reported_services=_reported_services(header),
    )


def _reported_services(header: Mapping[str, Any]) -> ReportedServices:
    texts = items_of(header, "reportedServiceNetworks")[:MAXIMUM_REPORTED]
    try:
        networks = tuple(network_of(str(text)) for text in texts)
    except ValueError as error:
        raise UnusableRecording(f"reportedServiceNetworks: {error}") from error
    versions = items_of(header, "reportedServiceVersions")
    return ReportedServices(networks, frozenset(version for version in (4, 6) if version in versions))


def _oids(header: Mapping[str, Any], name: str) -> tuple[str, ...]:
    recorded = items_of(header, name)
    try:
        return read_oids(",".join(map(str, recorded))) if recorded else ()
    except InvalidOID as error:
        raise UnusableRecording(f"{name}: {error}") from error


def _definitions(documents: list[JsonObject]) -> dict[tuple[str, str], str]:
    """Plurals by group and kind, from the CustomResourceDefinitions among the documents."""
    specs = [mapping_of(one, "spec") for one in documents if one.get("kind") == "CustomResourceDefinition"]
    return {
        (text_of(spec, "group"), text_of(mapping_of(spec, "names"), "kind")): text_of(
            mapping_of(spec, "names"), "plural"
        )
        for spec in specs
    }


def _resource(document: JsonObject, definitions: Mapping[tuple[str, str], str]) -> Resource | None:
    """The resource of a document; None if no decision reads that kind."""
    group, _, version = text_of(document, "apiVersion").rpartition("/")
    about = group, text_of(document, "kind")
    if about in _PLURALS:
        plural, namespaced = _PLURALS[about]
        return Resource(group, version, plural, namespaced=namespaced)
    if definitions.get(about):
        return Resource(group, version, definitions[about], namespaced=True)
    return None
