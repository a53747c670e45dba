"""Files rendered from the Helm chart: the grants as one file, the kustomize base, and the clusterctl package."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, Final

import yaml

from signer.access.admission.mutation import CREATOR_POLICY, mutation_binding_spec, mutation_spec
from signer.access.admission.policies import Controllers, access_policies
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.cli.workload_kubeconfig.roles import ROLE_FILES
from signer.crds import ACCESS_CRD_FILES, CRD_FILES, access_definitions, custom_resource_definitions
from signer.crds.access_expressions import access_definition_texts
from signer.crds.expressions import POLICY_FILE, policy_definition_text
from tests.documents.generated import parser_of
from tests.support.helm import CHART, REGISTRY, render_chart
from tests.support.yaml_documents import safe_load, safe_load_all

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
MANAGEMENT: Final = DEPLOY / "rbac/management.yaml"
ROTATION: Final = DEPLOY / "rbac/rotation.yaml"
SSH: Final = DEPLOY / "rbac/ssh.yaml"
ACCESS: Final = DEPLOY / "rbac/access.yaml"
USERS: Final = DEPLOY / "rbac/users.yaml"
ACCESS_USERS: Final = DEPLOY / "rbac/access-users.yaml"
CONTAINERS: Final = DEPLOY / "rbac/containers.yaml"
BASE: Final = DEPLOY / "kustomize/base"
ROTATION_COMPONENT: Final = DEPLOY / "kustomize/rotation"
SSH_COMPONENT: Final = DEPLOY / "kustomize/ssh"
ACCESS_COMPONENT: Final = DEPLOY / "kustomize/access"
ACCESS_POLICIES_COMPONENT: Final = DEPLOY / "kustomize/access-policies"
ACCESS_CREATOR_COMPONENT: Final = DEPLOY / "kustomize/access-creator"
BASTIONS_COMPONENT: Final = DEPLOY / "kustomize/bastions"
CONTAINERS_COMPONENT: Final = DEPLOY / "kustomize/containers"
GATEWAY_COMPONENT: Final = DEPLOY / "kustomize/gateway"
COMPONENTS: Final = DEPLOY / "clusterctl/addon-components.yaml"

CONFIG_SECRET: Final = "node-attestation-config"
NO_ATTESTORS: Final = (
    "# No attestor is allowed until it is named: docs/operating.md, Configuration file.\nattestors: {}\n"
)
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
_ACCESS_GRANTS: Final = """\
# The controller's grants in the management cluster for access grants, besides those of management.yaml and ssh.yaml.
# Apply them only where the controller runs with --access. Bind node-attestation-access in each namespace whose
# Clusters may have access grants.
"""
_USERS_GRANTS: Final = """\
# Roles for people who look after Clusters, and for people who write their policies. The controller needs neither.
"""
_ACCESS_USERS_GRANTS: Final = """\
# Roles for people who ask for access and who approve it. They are of use only where a controller runs with --access.
"""
_CONTAINERS_GRANTS: Final = """\
# The gateway's namespace, and the controller's grants in it, besides those of management.yaml, ssh.yaml and
# access.yaml. Apply them only where the controller runs with --containers.
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
_ACCESS_TEMPLATES: Final = ("rbac-access.yaml",)
_USERS_TEMPLATES: Final = ("rbac-users.yaml",)
_ACCESS_USERS_TEMPLATES: Final = ("access-users.yaml",)
_ACCESS_POLICIES_TEMPLATE: Final = "access-policies.yaml"
_ACCESS_GROUP: Final = "access.cluster.x-k8s.io"
_ACCESS_ON: Final = {"ssh": {"enabled": True}, "access": {"enabled": True}}
_CONTAINERS_TEMPLATES: Final = ("rbac-containers.yaml",)
_CONTAINERS_ON: Final = {**_ACCESS_ON, "containers": {"enabled": True, "gateway": {"enabled": True}}}
_ACCESS_POLICIES: Final = """\
{{- /* Generated from signer/access/admission by `make generate`. */ -}}
{{- if and .Values.access.enabled .Values.access.admissionPolicies }}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}
%s{{- end }}
{{- if semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version }}
%s{{- end }}
{{- end }}
"""
_LABELS: Final = '  labels:\n    {{- include "capi-node-attestation.labels" . | nindent 4 }}\n'
_GRANT_CONTROLLER, _BASTION_CONTROLLER = "grant-controller-here", "bastion-controller-here"
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
    "users.yaml": _USERS_TEMPLATES,
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
        **_workload_roles(),
        MANAGEMENT: _management(),
        ROTATION: _rotation(),
        SSH: _ssh(),
        ACCESS: _access(),
        USERS: _users(),
        ACCESS_USERS: _access_users(),
        CONTAINERS: _containers(),
        **_kustomize_base(),
        **_kustomize_rotation(),
        **_kustomize_ssh(),
        **_kustomize_access(),
        **_kustomize_bastions(),
        **_kustomize_containers(),
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


def _workload_roles() -> dict[Path, str]:
    """Copies of the roles that ``workload-kubeconfig`` makes, for those who apply them by hand."""
    folder = ROOT / "signer/cli/workload_kubeconfig"
    return {ROOT / "deploy/rbac" / name: (folder / name).read_text(encoding="utf-8") for name in ROLE_FILES}


def _definitions_in_the_chart() -> dict[Path, str]:
    """Copies of what the chart needs of the program, because a chart can read only its own files."""
    plain = dict(zip(CRD_FILES, custom_resource_definitions(), strict=True))
    return {
        **{CHART / "files/crds" / name: text for name, text in plain.items()},
        CHART / "files/crds-cel" / POLICY_FILE: policy_definition_text(),
        **{
            CHART / "files/crds-access" / name: text
            for name, text in zip(ACCESS_CRD_FILES, access_definitions(), strict=True)
        },
        **{CHART / "files/crds-access-cel" / name: text for name, text in access_definition_texts().items()},
        CHART / "templates" / _ACCESS_POLICIES_TEMPLATE: _access_policies_template(),
        CHART / "files/flags.yaml": _flags(),
        **{
            CHART / "files/monitoring" / name: (DEPLOY / "monitoring" / name).read_text(encoding="utf-8")
            for name in ("alerts.yaml", "dashboard.json")
        },
    }


def _flags() -> str:
    """The flags of ``run``, by which the chart refuses others: whether each takes a value or is a switch."""
    found = {
        flag: "switch" if action.nargs == 0 else "value"
        for action in parser_of("run")._actions
        for flag in action.option_strings
        if flag.startswith("--") and action.dest != "help"
    }
    return "# Generated from the program's parser by `make generate`.\n" + yaml.safe_dump(found)


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


def _access_policies_template() -> str:
    """The admission policies of access as a template, which names the ServiceAccounts."""
    policies = access_policies(Controllers(_GRANT_CONTROLLER, _BASTION_CONTROLLER))
    manifests = [
        make(policy, AdmissionVersion.V1).body for policy in policies for make in (policy_manifest, binding_manifest)
    ]
    validating = [_policy(one["kind"], one["metadata"]["name"], one["spec"]) for one in manifests]
    mutating = [
        _policy("MutatingAdmissionPolicy", CREATOR_POLICY, mutation_spec()),
        _policy("MutatingAdmissionPolicyBinding", CREATOR_POLICY, mutation_binding_spec()),
    ]
    return _ACCESS_POLICIES % ("".join(validating), "".join(mutating))


def _policy(kind: str, name: str, spec: dict[str, Any]) -> str:
    head = f"---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{_LABELS}"
    text = yaml.safe_dump({"spec": spec}, sort_keys=False, width=100_000)
    if "{{" in text:
        raise ValueError(f"helm would read a part of {name} as its own")
    for placeholder, user in ((_GRANT_CONTROLLER, "grantController"), (_BASTION_CONTROLLER, "bastionController")):
        text = text.replace(placeholder, f'{{{{ include "capi-node-attestation.{user}" . }}}}')
    return head + text


def _access() -> str:
    rendered = render_chart(_ACCESS_ON, templates=_ACCESS_TEMPLATES)
    return _MADE + _ACCESS_GRANTS + _joined(_beside_their_bindings(_documents(rendered)))


def _users() -> str:
    return _MADE + _USERS_GRANTS + _joined(_documents(render_chart(templates=_USERS_TEMPLATES)))


def _access_users() -> str:
    rendered = render_chart(_ACCESS_ON, templates=_ACCESS_USERS_TEMPLATES)
    return _MADE + _ACCESS_USERS_GRANTS + _joined(_documents(rendered))


def _kustomize_access() -> dict[Path, str]:
    """The components that switch access on, and the policies that prove creators, by the API server's version."""
    values = {**_PACKAGED, **_ACCESS_ON}

    def rendered(template: str) -> list[str]:
        return _documents(render_chart(values, templates=(template,), kube_version="1.36.0"))

    definitions = [one for one in rendered("crds.yaml") if safe_load(one)["spec"].get("group", "") == _ACCESS_GROUP]
    policies = rendered(_ACCESS_POLICIES_TEMPLATE)
    validating = [one for one in policies if safe_load(one)["kind"].startswith("Validating")]
    mutating = [one for one in policies if one not in validating]
    switch = _SWITCH.format(flag="--access").replace("- rbac.yaml\n", "- crds.yaml\n- rbac.yaml\n- users.yaml\n")
    resource = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n- policies.yaml\n"
    return {
        ACCESS_COMPONENT / "crds.yaml": _MADE + _joined(definitions),
        ACCESS_COMPONENT / "rbac.yaml": _MADE + _joined(_beside_their_bindings(rendered("rbac-access.yaml"))),
        ACCESS_COMPONENT / "users.yaml": _MADE + _joined(rendered("access-users.yaml")),
        ACCESS_COMPONENT / "kustomization.yaml": _MADE + switch,
        ACCESS_POLICIES_COMPONENT / "policies.yaml": _MADE + _joined(validating),
        ACCESS_POLICIES_COMPONENT / "kustomization.yaml": _MADE + resource,
        ACCESS_CREATOR_COMPONENT / "policies.yaml": _MADE + _joined(mutating),
        ACCESS_CREATOR_COMPONENT / "kustomization.yaml": _MADE + resource,
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


def _containers() -> str:
    rendered = render_chart(_CONTAINERS_ON, templates=_CONTAINERS_TEMPLATES)
    return _MADE + _CONTAINERS_GRANTS + _joined(_beside_their_bindings(_documents(rendered)))


def _kustomize_containers() -> dict[Path, str]:
    """The component that switches containers on, and the one with the gateway. Both are in the gateway's namespace."""

    def rendered(template: str) -> str:
        made = render_chart({**_PACKAGED, **_CONTAINERS_ON}, templates=(template,))
        return _MADE + _joined(_beside_their_bindings(_documents(made)))

    resource = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources:\n- gateway.yaml\n"
    return {
        CONTAINERS_COMPONENT / "rbac.yaml": rendered("rbac-containers.yaml"),
        CONTAINERS_COMPONENT / "kustomization.yaml": _MADE + _SWITCH.format(flag="--containers"),
        GATEWAY_COMPONENT / "gateway.yaml": rendered("gateway.yaml"),
        GATEWAY_COMPONENT / "kustomization.yaml": _MADE + resource,
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
    objects = [*safe_load_all(_plain(render_chart(values))), secret]
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
    [namespace] = safe_load_all(render_chart({"createNamespace": True}, templates=["namespace.yaml"]))
    name: str = namespace["metadata"]["name"]
    return name


def _plain(text: str) -> str:
    """The text without Helm's own labels, annotations and comments, and without a registry, which the user names."""
    return _EMPTY_ANNOTATIONS.sub("", _HELMS_OWN.sub("", text)).replace(f"{REGISTRY}/", "")


def _documents(rendered: str) -> list[str]:
    parts = re.split(r"^---\n", _plain(rendered), flags=re.MULTILINE)
    return [f"{part.strip()}\n" for part in parts if safe_load(part) is not None]


def _beside_their_bindings(documents: list[str]) -> list[str]:
    """Helm sorts by kind. For readers, each role comes with its binding."""
    first: dict[tuple[bool, str], int] = {}

    def place(number: int, document: str) -> tuple[int, int]:
        one: dict[str, Any] = safe_load(document)
        about_roles = one["apiVersion"].startswith("rbac.")
        return first.setdefault((about_roles, one["metadata"]["name"]), number), number

    order = [place(number, document) for number, document in enumerate(documents)]
    return [document for _, document in sorted(zip(order, documents, strict=True))]


def _joined(documents: list[str]) -> str:
    return "---\n".join(documents)
