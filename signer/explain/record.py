"""Records the inputs of an explanation, so that it can be repeated elsewhere without access to secrets.

A recording holds the objects that were read and concern the request: its Cluster, policy, Machines, records and
reservations. Of Secrets it holds only the cluster's CA certificate, as a ConfigMap. Bootstrap tokens keep their public
ID. Credentials in the evidence are redacted as in the audit log. The operator's attestor settings, which may be
secret, are never written.
"""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from attestors.contract import digest_of
from signer.audit.decision_inputs import NotReached
from signer.audit.decision_line import WHOLE_REQUEST, logged_request
from signer.controller.workload_access import KUBECONFIG_SUFFIX, RESTRICTED_SUFFIX
from signer.decision.authority_secrets import UnreadableSecret, decode_secret
from signer.explain.current_conditions import as_posted
from signer.explain.dry_run import Circumstances, DryRunResult
from signer.explain.explanation import NOT_POSTED, Explanation
from signer.explain.recorded_objects import RECORDING_API_VERSION, RECORDING_KIND
from signer.kube.calls import GetList
from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters
from signer.kube.errors import Forbidden, ResourceNotServed
from signer.model.authority_suffixes import CLIENT_CA, CLUSTER_CA, AuthoritySuffixes
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.model.decision import Deferred
from signer.model.fields import format_time, mapping_of, text_of
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy
from signer.model.reservation import InvalidReservation, parse_reservation
from signer.model.seal import Authentic
from signer.model.signing_request import NotOurs, parse_signing_request
from signer.store.authentic_reservations import AuthenticReservations
from signer.store.cache import object_key
from signer.store.caches import Caches

_KINDS: Final = {
    "clusters": "Cluster",
    "machines": "Machine",
    "machinepools": "MachinePool",
    "nodeattestationpolicies": "NodeAttestationPolicy",
    "attestednodes": "AttestedNode",
    "identityreservations": "IdentityReservation",
    "kubeadmconfigs": "KubeadmConfig",
}
"""Kinds by plural: the items of a list do not name theirs."""
_COLLECTION: Final = re.compile(r"/apis/([^/]+)/([^/]+)/(?:namespaces/[^/]+/)?([a-z]+)")
_SECRET: Final = re.compile(r"/api/v1/namespaces/[^/]+/secrets/[^/]+")
_TOKEN_SECRET: Final = "0" * 16  # replaces the secret part of a bootstrap token
_KEPT_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Recorder:
    """A source that keeps a copy of everything read from another source."""

    def __init__(self, source: GetList) -> None:
        self._source = source
        self._read: dict[str, JsonObject] = {}
        self._listed: list[JsonObject] = []
        self._refused: set[str] = set()

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        try:
            found = await self._source.get(path)
        except Forbidden:
            self._refused.add(path)
            raise
        if "metadata" in found:
            self._read[path] = copy.deepcopy(found)
        return found

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client."""
        matched = _COLLECTION.fullmatch(path)
        group, version, plural = matched.groups() if matched else ("", "", "")
        try:
            async for page in self._source.list_pages(path, params, limit, maximum_bytes=maximum_bytes):
                for item in page["items"]:
                    about = {"apiVersion": f"{group}/{version}", "kind": _KINDS.get(plural, "")}
                    self._listed.append({**about, **copy.deepcopy(item)})
                yield page
        except (Forbidden, ResourceNotServed):
            self._refused.add(path)
            raise

    def documents(
        self,
        request: Mapping[str, Any],
        explained: Explanation,
        dry_run_result: DryRunResult,
        around: Circumstances,
        answers: Sequence[Mapping[str, Any]] = (),
    ) -> list[JsonObject]:
        """The documents of the recording: a header, the request, and every object that concerns it.

        ``answers`` are the attestor's recorded calls (:class:`~signer.explain.recorded_calls.NotingRegistry`).
        """
        key, configuration = explained.cluster, around.configuration
        request, redacted = _without_credentials(request, around)
        identities = {one.identity.identity for one in dry_run_result.findings.facts}
        provider_ids = {one.machine.provider_id for one in dry_run_result.findings.facts}
        holders = _holders(dry_run_result)
        concerning = [
            one
            for one in self._listed
            if _concerns(one, key, identities, provider_ids)
            or (one["kind"] == "AttestedNode" and object_key(one) in holders)
        ]
        foreign = _not_authentic(concerning, dry_run_result.caches)
        authorities = _authority_secrets(key, dry_run_result)
        withheld = sorted(self._refused | {path for path in self._read if _is_withheld(path, key, authorities)})
        header = {
            "apiVersion": RECORDING_API_VERSION,
            "kind": RECORDING_KIND,
            "recordedTime": format_time(explained.at),
            "cluster": {"namespace": key.namespace, "name": key.name},
            "controllerNamespace": configuration.namespace,
            "providerIDOIDs": list(configuration.provider_id_oids),
            "hostKeysOIDs": list(configuration.host_keys_oids),
            "insecureAllowed": configuration.insecure_allowed(key.namespace),
            "floors": configuration.floors.of(key.namespace) != NO_FLOOR,
            "attestorsWithSettings": sorted(
                name for name, one in configuration.attestors.items() if one.settings_in(key.namespace)
            ),
            "reportedServiceNetworks": [str(network) for network in around.reported_services.networks],
            "reportedServiceVersions": sorted(around.reported_services.known_versions),
            "withheld": withheld,
            "redacted": list(redacted),
            "answers": list(answers),
            "notAuthentic": [f"{namespace}/{name}" for namespace, name in map(object_key, foreign)],
        }
        read = [kept for path, one in sorted(self._read.items()) for kept in _of_read(path, one, key, authorities)]
        listed = [_reduced(one) for one in concerning if one not in foreign]
        seen = {_identity(one) for one in listed}
        return [header, _stripped(request), *listed, *(one for one in read if _identity(one) not in seen)]


def as_yaml(documents: Sequence[JsonObject]) -> str:
    """The recording as YAML."""
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=False, explicit_start=True)


def _without_credentials(
    request: Mapping[str, Any], around: Circumstances
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The CSR as in the audit log, and the redacted fields of its evidence."""
    oids = around.configuration.provider_id_oids
    posted = {**as_posted(request), "metadata": {"uid": NOT_POSTED, **mapping_of(request, "metadata")}}
    parsed = parse_signing_request(posted, around.registry.providers, oids)
    spec = mapping_of(request, "spec")
    if isinstance(parsed, NotOurs):  # its attestor may not be installed here, so its credentials are unknown
        return {**request, "spec": {**spec, "request": digest_of(text_of(spec, "request"))}}, (WHOLE_REQUEST,)
    logged = logged_request(posted, parsed, around.registry, oids)
    return {**request, "spec": logged.spec}, logged.redacted


def _not_authentic(concerning: Sequence[JsonObject], caches: Caches) -> list[JsonObject]:
    """The records and reservations that do not count. The others lose their seals, and get new ones in a replay."""
    records = {(one.machine.cluster.namespace, one.name) for one in caches.authentic.values()}
    return [
        one
        for one in concerning
        if (one["kind"] == "AttestedNode" and object_key(one) not in records)
        or (one["kind"] == "IdentityReservation" and not _is_authentic(one, caches.authentic_reservations))
    ]


def _is_authentic(item: JsonObject, reservations: AuthenticReservations) -> bool:
    try:
        return isinstance(reservations.verify(parse_reservation(item)), Authentic)
    except (InvalidReservation, Deferred):  # unreadable, or there is no controller key
        return False


def _holders(dry_run_result: DryRunResult) -> frozenset[tuple[str, str]]:
    """The records of other nodes that have a host key of the request."""
    stage = dry_run_result.decided_request.decision_inputs.host_keys
    holders = () if isinstance(stage, NotReached) else stage.holders
    return frozenset((one.machine.cluster.namespace, one.name) for one in holders)


def _concerns(item: JsonObject, key: ClusterKey, identities: set[str], provider_ids: set[str]) -> bool:
    metadata, spec = mapping_of(item, "metadata"), mapping_of(item, "spec")
    kind, namespace = item["kind"], text_of(metadata, "namespace")
    if spec.get("identity") in identities or (spec.get("providerID") in provider_ids and kind != "Machine"):
        return True
    if kind in ("Cluster", "NodeAttestationPolicy"):
        return (namespace, text_of(metadata, "name")) == (key.namespace, key.name)
    if kind == "KubeadmConfig":
        return (namespace, mapping_of(metadata, "labels").get(CLUSTER_NAME_LABEL)) == (key.namespace, key.name)
    if kind == "IdentityReservation":
        reference = mapping_of(spec, "machineRef")
        return (reference.get("namespace"), reference.get("clusterName")) == (key.namespace, key.name)
    return (namespace, spec.get("clusterName")) == (key.namespace, key.name)


def _authority_secrets(key: ClusterKey, dry_run_result: DryRunResult) -> frozenset[str]:
    """The names of the Secrets that may hold the cluster's CAs."""
    policy = dry_run_result.caches.policies.get(key.namespace, key.name)
    suffixes = {CLUSTER_CA, CLIENT_CA}
    if isinstance(policy, Policy) and isinstance(policy.certificate_authorities, AuthoritySuffixes):
        suffixes = {policy.certificate_authorities.client, policy.certificate_authorities.serving}
    return frozenset(f"{key.name}-{suffix}" for suffix in suffixes)


def _is_withheld(path: str, key: ClusterKey, authorities: frozenset[str]) -> bool:
    """Whether ``path`` is a Secret that an attestor read, such as the TPM inventory; the controller's own ones are
    replaced instead.
    """
    kubeconfigs = (f"{key.name}-{suffix}" for suffix in (KUBECONFIG_SUFFIX, RESTRICTED_SUFFIX))
    own = ("node-attestation-controller-key", *authorities, *kubeconfigs)
    return _SECRET.fullmatch(path) is not None and path.rpartition("/")[2] not in own


def _of_read(path: str, item: JsonObject, key: ClusterKey, authorities: frozenset[str]) -> Iterator[JsonObject]:
    if _SECRET.fullmatch(path) is None:
        yield _reduced(item)
        return
    before, _, name = path.rpartition("/")
    if not before.endswith(f"/{key.namespace}/secrets") or name not in authorities:
        return
    try:
        certificate = decode_secret(item).get("tls.crt", b"").decode("utf-8", "replace")
    except UnreadableSecret:
        return
    metadata = {"name": name, "namespace": key.namespace}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tls.crt": certificate}}


def _reduced(item: JsonObject) -> JsonObject:
    """The object without fields that may be secret, and without fields that no decision reads."""
    item = _stripped(item)
    kind = item.get("kind")
    if kind == "KubeadmConfig":
        discovery = mapping_of(mapping_of(mapping_of(item, "spec"), "joinConfiguration"), "discovery")
        token = text_of(mapping_of(discovery, "bootstrapToken"), "token").partition(".")[0]
        spec = {"joinConfiguration": {"discovery": {"bootstrapToken": {"token": f"{token}.{_TOKEN_SECRET}"}}}}
        return {**{name: item[name] for name in ("apiVersion", "kind", "metadata")}, "spec": spec if token else {}}
    if kind == "Cluster":  # topology variables belong to the tenant, and no decision reads them
        return {**item, "spec": {name: value for name, value in mapping_of(item, "spec").items() if name != "topology"}}
    if kind in ("AttestedNode", "IdentityReservation"):
        return {**item, "spec": {name: value for name, value in item["spec"].items() if name != "seal"}}
    if kind not in (*_KINDS.values(), "ConfigMap", "CustomResourceDefinition"):
        # An infrastructure provider's object: decisions read its metadata only.
        return {name: item[name] for name in ("apiVersion", "kind", "metadata") if name in item}
    return item


def _stripped(item: Mapping[str, Any]) -> JsonObject:
    metadata = {name: value for name, value in mapping_of(item, "metadata").items() if name in _KEPT_METADATA}
    annotations = {key: value for key, value in mapping_of(metadata, "annotations").items() if key != _LAST_APPLIED}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    return {**item, "metadata": metadata}


def _identity(item: JsonObject) -> tuple[Any, ...]:
    return item.get("kind"), *object_key(item)
