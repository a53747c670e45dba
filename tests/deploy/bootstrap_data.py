"""Bootstrap data for cloud-init and Ignition, as Cluster API's kubeadm bootstrap provider renders it.

The layout is that of the provider's templates (v1.14), as whole texts: tests cover indentation and block scalars, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import yaml

Spec = Mapping[str, Any]
Role = Literal["init", "join"]

KUBEADM_API: Final = "kubeadm.k8s.io/v1beta4"
DISCOVERY: Final = {
    "bootstrapToken": {
        "token": "abcdef.0123456789abcdef",
        "apiServerEndpoint": "control-plane.example:6443",
        "caCertHashes": ["sha256:" + 64 * "0"],
    }
}
"""The part that the bootstrap provider adds to a joinConfiguration."""


def cloud_config(spec: Spec, role: Role, api: str = KUBEADM_API) -> str:
    """User data for cloud-init, a jinja template. ``api`` is the API version that the cluster's kubeadm reads."""
    path = "/run/kubeadm/kubeadm.yaml" if role == "init" else "/run/kubeadm/kubeadm-join-config.yaml"
    lines = ["## template: jinja", "#cloud-config", "", "write_files:"]
    for file in spec.get("files", ()):
        lines.append(f"-   path: {file['path']}")
        lines += [f'    encoding: "{file["encoding"]}"'] if "encoding" in file else []
        lines += [f"    owner: {file['owner']}"] if "owner" in file else []
        lines += [f"    permissions: '{file['permissions']}'"] if "permissions" in file else []
        lines += ["    content: |", _indent(6, file["content"])]
    lines += [f"-   path: {path}", "    owner: root:root", "    permissions: '0640'", "    content: |"]
    lines.append(_indent(6, kubeadm_configuration(spec, role, api)))
    lines += ["-   path: /run/cluster-api/placeholder", "    owner: root:root", "    permissions: '0640'"]
    lines += ['    content: "makes the folder"', "runcmd:"]
    lines += [f"  - {json.dumps(command)}" for command in spec.get("preKubeadmCommands", ())]
    command = f"kubeadm {role} --config {path} && echo success > /run/cluster-api/bootstrap-success.complete"
    lines.append(f"  - '{command}'" if role == "init" else f"  - {command}")
    lines += [f"  - {json.dumps(command)}" for command in spec.get("postKubeadmCommands", ())]
    return "\n".join(lines) + "\n"


def container_linux_config(spec: Spec, role: Role, api: str = KUBEADM_API) -> str:
    """The Container Linux Config that is transpiled to Ignition's JSON. No jinja; commands only in kubeadm.sh."""
    unit = ["[Unit]", "Description=kubeadm", "ConditionPathExists=/etc/kubeadm.yml", "After=network.target"]
    unit += ["[Service]", "Type=oneshot", "ExecStart=/etc/kubeadm.sh", "[Install]", "WantedBy=multi-user.target"]
    lines = ["---", "systemd:", "  units:", "    - name: kubeadm.service", "      enabled: true", "      contents: |"]
    lines += [f"        {line}" for line in unit]
    lines += ["storage:", "  files:"]
    for file in spec.get("files", ()):
        user, _, group = file.get("owner", ":").partition(":")
        lines.append(f"    - path: {file['path']}")
        lines += ["      user:", f"        name: {user}"] if user else []
        lines += ["      group:", f"        name: {group}"] if group else []
        lines += [f"      mode: {file['permissions']}"] if "permissions" in file else []
        lines += ["      contents:", "        inline: |", _indent(10, file["content"])]
    script = ["#!/bin/bash", "set -e", *spec.get("preKubeadmCommands", ()), ""]
    script += [f"kubeadm {role} --config /etc/kubeadm.yml "]
    script += ["mkdir -p /run/cluster-api && echo success > /run/cluster-api/bootstrap-success.complete"]
    script += ["mv /etc/kubeadm.yml /tmp/", *spec.get("postKubeadmCommands", ())]
    for path, mode, content in (
        ("/etc/kubeadm.sh", "0700", "\n".join(script)),
        ("/etc/kubeadm.yml", "0600", "---\n" + kubeadm_configuration(spec, role, api)),
    ):
        lines += [f"    - path: {path}", f"      mode: {mode}", "      contents:", "        inline: |"]
        lines.append(_indent(10, content))
    return "\n".join(lines) + "\n"


def kubeadm_configuration(spec: Spec, role: Role, api: str = KUBEADM_API) -> str:
    """The configuration documents that kubeadm reads for its command."""
    if role == "init":
        kinds = {"clusterConfiguration": "ClusterConfiguration", "initConfiguration": "InitConfiguration"}
        documents = [_document(api, kind, spec.get(field, {})) for field, kind in kinds.items()]
    else:
        joining = {"discovery": DISCOVERY, **spec.get("joinConfiguration", {})}
        documents = [_document(api, "JoinConfiguration", joining)]
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def _document(api: str, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    document = {"apiVersion": api, "kind": kind, **json.loads(json.dumps(fields))}
    if api != KUBEADM_API and (registration := document.get("nodeRegistration")):
        # Before v1beta4 the arguments are a map. Cluster API converts them for older clusters.
        arguments = registration.get("kubeletExtraArgs", ())
        registration["kubeletExtraArgs"] = {argument["name"]: argument["value"] for argument in arguments}
    return document


def _indent(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))
