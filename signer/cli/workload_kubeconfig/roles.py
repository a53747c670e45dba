"""The objects in a workload cluster: what the controller may do there, for each feature."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib.resources import files
from typing import Any, Final

import yaml

from attestors.wire.names import Purpose, SignerName
from signer.cli.workload_kubeconfig.features import Feature
from signer.kube.client import JsonObject
from signer.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from signer.kube.wanted_object import OWNER, OWNER_LABEL, WantedObject

ACCOUNT_NAMESPACE: Final = "kube-system"
"""Who may make Pods there has every right in the cluster already, so the account adds nothing to steal."""
ACCOUNT: Final = "node-attestation-controller"
_RESOURCES: Final = {
    "Namespace": NAMESPACES,
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
}
_USER: Final = "node-attestation-controller"
"""The subject in the files: the user of a restricted kubeconfig that somebody made by hand."""
_SUBJECT: Final = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNT_NAMESPACE}
_KEPT: Final = ("rules", "roleRef", "subjects")


_FILES: Final = {
    Feature.ROTATION: "workload-rotation.yaml",
    Feature.ROTATION_SPLIT: "workload-rotation-split.yaml",
    Feature.SSH: "workload-ssh.yaml",
    Feature.CONTAINERS: "workload-containers.yaml",
    Feature.CONTAINERS_TOOLS: "workload-containers-tools.yaml",
}
_BASE: Final = "workload.yaml"
_NAMES: Final = {
    "node-attestation-auto-approval": Feature.ENFORCE,
    "node-attestation-admission-policies": Feature.ENFORCE,
    "node-attestation-bootstrap-tokens": Feature.BOOTSTRAP_TOKENS,
}
"""The roles of :data:`_BASE` that a feature needs; the others are for every cluster."""
ROLE_FILES: Final = (_BASE, *_FILES.values())


ACCOUNT_OBJECT: Final = WantedObject(
    SERVICE_ACCOUNTS,
    ACCOUNT_NAMESPACE,
    ACCOUNT,
    {
        "apiVersion": SERVICE_ACCOUNTS.api_version,
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": ACCOUNT_NAMESPACE, "labels": {OWNER_LABEL: OWNER}},
        "automountServiceAccountToken": False,
    },
    ("automountServiceAccountToken",),
)


def wanted_objects(features: Collection[Feature], attestors: Collection[str]) -> tuple[WantedObject, ...]:
    """The account and its roles, in the order in which they are made; ``attestors`` are those of the policy."""
    every = [_wanted(document, attestors) for document in _documents(features)]
    return (ACCOUNT_OBJECT, *every)


def unwanted_bindings(features: Collection[Feature]) -> tuple[WantedObject, ...]:
    """The bindings of the account for features that are not among ``features``."""
    wanted = {one.path for one in wanted_objects(features, ())}
    every = wanted_objects(tuple(Feature), ())
    bindings = (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS)
    return tuple(one for one in every if one.resource in bindings and one.path not in wanted)


def _documents(features: Collection[Feature]) -> Iterable[JsonObject]:
    for document in _read(_BASE):
        feature = _NAMES.get(document["metadata"]["name"])
        if feature is None or feature in features:
            yield document
    for feature, name in _FILES.items():
        if feature in features:
            yield from _read(name)


def _read(name: str) -> Iterable[JsonObject]:
    yield from yaml.safe_load_all(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _wanted(document: JsonObject, attestors: Collection[str]) -> WantedObject:
    metadata = document["metadata"]
    body: dict[str, Any] = {**document, "metadata": {**metadata, "labels": {OWNER_LABEL: OWNER}}}
    if "subjects" in body:
        body["subjects"] = [_SUBJECT if one["name"] == _USER else one for one in body["subjects"]]
    if "rules" in body:
        body["rules"] = [_of_attestors(rule, attestors) for rule in body["rules"]]
    return WantedObject(
        _RESOURCES[body["kind"]],
        metadata.get("namespace"),
        metadata["name"],
        body,
        tuple(one for one in _KEPT if one in body),
    )


def _of_attestors(rule: JsonObject, attestors: Collection[str]) -> JsonObject:
    """The signers in the file are an example."""
    if rule.get("resources") != ["signers"] or rule["verbs"] != ["approve", "sign"]:
        return rule
    names = [str(SignerName(purpose, one)) for one in sorted(attestors) for purpose in Purpose]
    return {**rule, "resourceNames": names}


__all__ = [
    "ACCOUNT",
    "ACCOUNT_NAMESPACE",
    "ACCOUNT_OBJECT",
    "ROLE_FILES",
    "unwanted_bindings",
    "wanted_objects",
]
