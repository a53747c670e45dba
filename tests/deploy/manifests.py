"""The objects of ``deploy/node``, and the templates that a cluster of the class gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.deploy.embedded import NODE
from tests.deploy.patches import apply_class
from tests.support.yaml_documents import safe_load_all

CLOUD_CONFIG: Final = "kubeadmconfigtemplate-cloud-config.yaml"
IGNITION: Final = "kubeadmconfigtemplate-ignition.yaml"
CLUSTER_CLASS: Final = "clusterclass-patch.yaml"
WORKER: Final = "KubeadmConfigTemplate"
CONTROL_PLANE: Final = "KubeadmControlPlaneTemplate"


def objects(name: str) -> list[dict[str, Any]]:
    """The objects of a file."""
    return list(safe_load_all((NODE / name).read_text(encoding="utf-8")))


def every_object() -> list[tuple[str, dict[str, Any]]]:
    """All objects, each with its file's name."""
    return [(path.name, one) for path in sorted(NODE.glob("*.yaml")) for one in objects(path.name)]


def worker(name: str) -> dict[str, Any]:
    """The KubeadmConfig spec of a file's only template."""
    [template] = objects(name)
    return spec_of(template)


def of_class(kind: str, attestation: Mapping[str, Any] | None) -> dict[str, Any]:
    """The KubeadmConfig spec of a cluster of the class, with the variable's value or without."""
    return spec_of(template_of_class(kind, attestation))


def template_of_class(kind: str, attestation: Mapping[str, Any] | None) -> dict[str, Any]:
    """The class's template, as the cluster gets it."""
    by_kind = {one["kind"]: one for one in objects(CLUSTER_CLASS)}
    variables = {} if attestation is None else {"nodeAttestation": attestation}
    return apply_class(by_kind["ClusterClass"], by_kind[kind], variables)


def spec_of(template: Mapping[str, Any]) -> dict[str, Any]:
    """The KubeadmConfig spec of a template of either kind."""
    spec: dict[str, Any] = template["spec"]["template"]["spec"]
    return spec["kubeadmConfigSpec"] if template["kind"] == CONTROL_PLANE else spec
