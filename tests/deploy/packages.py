"""Files rendered from the Helm chart: the grants as one file, the kustomize base, and the clusterctl package."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, Final

import yaml

from signer.crds import CRD_FILES, custom_resource_definitions
from signer.crds.expressions import POLICY_FILE, policy_definition_text
from tests.support.helm import CHART, render_chart

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
MANAGEMENT: Final = DEPLOY / "rbac/management.yaml"
ROTATION: Final = DEPLOY / "rbac/rotation.yaml"
SSH: Final = DEPLOY / "rbac/ssh.yaml"
BASE: Final = DEPLOY / "kustomize/base"
ROTATION_COMPONENT: Final = DEPLOY / "kustomize/rotation"
SSH_COMPONENT: Final = DEPLOY / "kustomize/ssh"
BASTIONS_COMPONENT: Final = DEPLOY / "kustomize/bastions"
COMPONENTS: Final = DEPLOY / "clusterctl/addon-components.yaml"

CONFIG_SECRET: Final = "node-attestation-config"
NO_ATTESTORS: Final = "# See docs/operating.md, Configuration file.\nattestors: {}\n"
PROVIDER_LABEL: Final = ("cluster.x-k8s.io/provider", "addon-node-attestation")
"""The label by which clusterctl finds this provider's objects: the type is AddonProvider, the name node-attestation."""

_MADE: Final = "# Generated from deploy/helm/capi-node-attestation by `make generate`. Change the chart instead.\n"
_GRANTS: Final = """\
# The controller's grants in the management cluster: exactly the verbs that its code calls.
# tests/documents/test_grants.py runs the controller with exactly these grants. You can leave out the roles marked
# "optional", with their bindings; their comments say which function is off without them.
"""
_ROTATION_GRANTS: Final = """\
# The controller's grants in the management cluster for the rotation of CAs, besides those of management.yaml. Apply
# them only where the controller runs with --rotate-authorities. Bind node-attestation-rotation in each namespace whose
# Clusters it may rotate.
"""
_SSH_GRANTS: Final = """\
# The controller's grants in the management cluster for SSH authorities, besides those of management.yaml. Apply them
# only where the controller runs with --ssh. Bind node-attestation-ssh in each namespace whose Clusters may have SSH.
"""
_HELMS_OWN: Final = re.compile(
    r"^ *(?:helm\.sh/[a-z-]+: .*|app\.kubernetes\.io/managed-by: Helm|# Source: .*)\n", re.MULTILINE
)
_EMPTY_ANNOTATIONS: Final = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)
_EVERY_ROLE: Final = {
    "createNamespace": True,
    "rbac": {
        "inventoryNamespaces": ["default"],
        "infrastructureStatus": True,
        "infrastructureMachines": {"enabled": True},
        "bareMetalHosts": True,
        "byoHosts": True,
    },
}
# kustomize and clusterctl move all namespaced objects into one namespace, and would also move a binding in `default`.
_PACKAGED: Final = {
    "createNamespace": True,
    "config": {"existingSecret": CONFIG_SECRET},
    "rbac": {"secretNamespaces": []},
}
_ROTATION_TEMPLATES: Final = ("rbac-rotation.yaml",)
_SSH_TEMPLATES: Final = ("rbac-ssh.yaml",)
_BASTIONS: Final = {
    "enabled": True,
    "existingConfigSecret": "node-access-bastions-config",
    "hostKeySecret": "node-access-bastions-host-key",
}
_SWITCH: Final = """\
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
- rbac.yaml
patches:
- target:
    kind: Deployment
    name: node-attestation-controller
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: {flag}
"""
_BASE_FILES: Final = {
    "namespace.yaml": ("namespace.yaml",),
    "crds.yaml": ("crds.yaml",),
    "rbac.yaml": ("service-account.yaml", "rbac.yaml", "rbac-optional.yaml"),
    "metrics.yaml": ("metrics.yaml",),
    "network-policy.yaml": ("network-policy.yaml",),
    "deployment.yaml": ("deployment.yaml",),
}
_VARIABLES: Final = (
    ("--diagnostics-address=:8443", "--diagnostics-address=${CAPI_DIAGNOSTICS_ADDRESS:=:8443}"),
    ("replicas: 1", "replicas: ${NODE_ATTESTATION_REPLICAS:=1}"),
)


def generated() -> dict[Path, str]:
    """Every generated file, with its content. Raises MissingPart without helm."""
    return {
        **_definitions_in_the_chart(),
        MANAGEMENT: _management(),
        ROTATION: _rotation(),
        SSH: _ssh(),
        **_kustomize_base(),
        **_kustomize_rotation(),
        **_kustomize_ssh(),
        **_kustomize_bastions(),
        COMPONENTS: _clusterctl_components(),
    }


def write() -> list[Path]:
    """Write the generated files; returns those that changed."""
    # The chart's own copies come first, because the other files are rendered from them.
    changed = _write(_definitions_in_the_chart())
    return changed + _write(generated())


def _write(files: dict[Path, str]) -> list[Path]:
    changed = []
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _definitions_in_the_chart() -> dict[Path, str]:
    """Copies of the definitions, because a chart can read only its own files."""
    plain = dict(zip(CRD_FILES, custom_resource_definitions(), strict=True))
    return {
        **{CHART / "files/crds" / name: text for name, text in plain.items()},
        CHART / "files/crds-cel" / POLICY_FILE: policy_definition_text(),
    }


def _management() -> str:
    templates = ("namespace.yaml", "service-account.yaml", "rbac.yaml", "rbac-optional.yaml")
    return _MADE + _GRANTS + _joined(_beside_their_bindings(_documents(render_chart(_EVERY_ROLE, templates=templates))))


def _rotation() -> str:
    rendered = render_chart({"rotation": {"enabled": True}}, templates=_ROTATION_TEMPLATES)
    return _MADE + _ROTATION_GRANTS + _joined(_beside_their_bindings(_documents(rendered)))


def _kustomize_rotation() -> dict[Path, str]:
    """The component that switches rotation on. As in the base, it has no binding in namespaces of Clusters."""
    rendered = render_chart({**_PACKAGED, "rotation": {"enabled": True}}, templates=_ROTATION_TEMPLATES)
    return {
        ROTATION_COMPONENT / "rbac.yaml": _MADE + _joined(_beside_their_bindings(_documents(rendered))),
        ROTATION_COMPONENT / "kustomization.yaml": _MADE + _SWITCH.format(flag="--rotate-authorities"),
    }


def _ssh() -> str:
    rendered = render_chart({"ssh": {"enabled": True}}, templates=_SSH_TEMPLATES)
    return _MADE + _SSH_GRANTS + _joined(_beside_their_bindings(_documents(rendered)))


def _kustomize_ssh() -> dict[Path, str]:
    """The component that switches SSH on. As in the base, it has no binding in namespaces of Clusters."""
    rendered = render_chart({**_PACKAGED, "ssh": {"enabled": True}}, templates=_SSH_TEMPLATES)
    return {
        SSH_COMPONENT / "rbac.yaml": _MADE + _joined(_beside_their_bindings(_documents(rendered))),
        SSH_COMPONENT / "kustomization.yaml": _MADE + _SWITCH.format(flag="--ssh"),
    }


def _kustomize_bastions() -> dict[Path, str]:
    """The component with the bastion controller. Its two Secrets are the operator's."""
    rendered = render_chart({**_PACKAGED, "access": {"bastions": _BASTIONS}}, templates=("bastions.yaml",))
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["bastions.yaml"],
    }
    return {
        BASTIONS_COMPONENT / "bastions.yaml": _MADE + _joined(_beside_their_bindings(_documents(rendered))),
        BASTIONS_COMPONENT / "kustomization.yaml": _MADE + yaml.safe_dump(kustomization, sort_keys=False),
    }


def _kustomize_base() -> dict[Path, str]:
    made = {
        BASE / name: _MADE + _joined(_beside_their_bindings(_documents(render_chart(_PACKAGED, templates=templates))))
        for name, templates in _BASE_FILES.items()
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(_BASE_FILES),
        "secretGenerator": [{"name": CONFIG_SECRET, "namespace": _namespace(), "files": ["attestors.yaml"]}],
    }
    return {
        **made,
        BASE / "attestors.yaml": NO_ATTESTORS,
        BASE / "kustomization.yaml": _MADE + yaml.safe_dump(kustomization, sort_keys=False),
    }


def _clusterctl_components() -> str:
    """The components as clusterctl needs them: one Namespace, one label on all objects, variables with defaults.

    Source: clusterctl's provider contract, and cmd/clusterctl/client/repository/components.go of Cluster API.
    """
    values = {**_PACKAGED, "podLabels": dict([PROVIDER_LABEL])}
    configuration = base64.b64encode(NO_ATTESTORS.encode()).decode("ascii")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": CONFIG_SECRET, "namespace": _namespace()},
        "type": "Opaque",
        "data": {"attestors.yaml": f"${{NODE_ATTESTATION_CONFIG_B64:={configuration}}}"},
    }
    objects = [*yaml.safe_load_all(_plain(render_chart(values))), secret]
    for one in objects:
        labels: dict[str, str] = one["metadata"].setdefault("labels", {})
        labels.update([PROVIDER_LABEL])
        if one["kind"] == "Deployment":
            [manager] = one["spec"]["template"]["spec"]["containers"]
            manager["image"] = f"${{NODE_ATTESTATION_IMAGE:={manager['image']}}}"
    text = _MADE + yaml.safe_dump_all(objects, sort_keys=False, width=120)
    for written, variable in _VARIABLES:
        if text.count(written) != 1:
            raise ValueError(f"{written} occurs {text.count(written)} times in the components")
        text = text.replace(written, variable)
    return text


def _namespace() -> str:
    [namespace] = yaml.safe_load_all(render_chart({"createNamespace": True}, templates=["namespace.yaml"]))
    name: str = namespace["metadata"]["name"]
    return name


def _plain(text: str) -> str:
    """The text without Helm's own labels, annotations and comments."""
    return _EMPTY_ANNOTATIONS.sub("", _HELMS_OWN.sub("", text))


def _documents(rendered: str) -> list[str]:
    parts = re.split(r"^---\n", _plain(rendered), flags=re.MULTILINE)
    return [f"{part.strip()}\n" for part in parts if yaml.safe_load(part) is not None]


def _beside_their_bindings(documents: list[str]) -> list[str]:
    """Helm sorts by kind. For readers, each role comes with its binding."""
    first: dict[tuple[bool, str], int] = {}

    def place(number: int, document: str) -> tuple[int, int]:
        one: dict[str, Any] = yaml.safe_load(document)
        about_roles = one["apiVersion"].startswith("rbac.")
        return first.setdefault((about_roles, one["metadata"]["name"]), number), number

    order = [place(number, document) for number, document in enumerate(documents)]
    return [document for _, document in sorted(zip(order, documents, strict=True))]


def _joined(documents: list[str]) -> str:
    return "---\n".join(documents)
