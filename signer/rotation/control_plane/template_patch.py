"""The lines that a template lacks, as a patch that a person can apply.

It is a JSON Patch (RFC 6902): a merge patch would have to repeat whole lists, and with them the content of files, which
may be secret.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.fields import items_of, mapping_of, text_of
from signer.rotation.control_plane.readiness import (
    Missing,
    MissingLine,
    RequiredArgument,
    RequiredCommand,
    RequiredFile,
    trust_secret_name,
)
from signer.rotation.control_plane.template import CONFIG_PATH, flag_name, normal_path

Operation = dict[str, Any]
_WITH_ARGUMENTS_IN_A_MAP: Final = "controlplane.cluster.x-k8s.io/v1beta1"
_TEMPLATE_KIND: Final = "KubeadmControlPlaneTemplate"
_CLUSTER_NAME: Final = "{{ .builtin.cluster.name }}"
"""In the patches of a ClusterClass: the name of the Cluster."""


def template_patch(manifest: Mapping[str, Any], missing: Missing) -> list[Operation]:
    """The JSON Patch that adds the missing lines to a KubeadmControlPlane, whose template has been read without an
    error.

    An entry that is replaced is named first by a ``test``, so that the patch fails if the object has changed meanwhile.
    """
    return [operation for operations in _by_line(manifest, missing) for operation in operations]


def patch_command(manifest: Mapping[str, Any], missing: Missing) -> str:
    """The ``kubectl`` command that adds the missing lines to a KubeadmControlPlane of no ClusterClass."""
    metadata = mapping_of(manifest, "metadata")
    group, _, version = text_of(manifest, "apiVersion").rpartition("/")
    patch = json.dumps(template_patch(manifest, missing), separators=(",", ":"))
    words = (
        *("kubectl", "patch", f"kubeadmcontrolplanes.{version}.{group}", text_of(metadata, "name")),
        *("--namespace", text_of(metadata, "namespace"), "--type", "json", "--patch", patch),
    )
    return shlex.join(words)


def how_to_make_ready(manifest: Mapping[str, Any], missing: Missing, cluster_name: str, cluster_class: str) -> str:
    """What a person must do; ``cluster_class`` is the name of the Cluster's ClusterClass, or empty."""
    own = {one.source.name for line in missing.lines if isinstance(one := line.requirement, RequiredFile)}
    named = " and ".join(f"Secret {name}" for name in sorted(own | {trust_secret_name(cluster_name)}, reverse=True))
    first = f"When {named} exist (without these no control plane machine can be made)"
    if not cluster_class:
        return f"{first}, run this; it rolls the control plane once:\n{patch_command(manifest, missing)}"
    patch = cluster_class_patch(manifest, missing, cluster_name)
    by_hand = "".join(f"\nChange in its {_TEMPLATE_KIND}: {line}" for line in patch.by_hand)
    return (
        f"The template of the control plane belongs to ClusterClass {cluster_class}, and changes of the "
        f"KubeadmControlPlane are overwritten. {first}, append this to spec.patches of the ClusterClass; it rolls the "
        f"control planes of all its Clusters, and each needs such Secrets of its own:\n{patch.entry}{by_hand}"
    )


@dataclass(frozen=True, slots=True)
class ClusterClassPatch:
    """What to change in a ClusterClass."""

    entry: str
    """An entry of ``spec.patches``, as JSON, which is YAML too."""
    by_hand: tuple[MissingLine, ...]
    """Lines that no such patch can change, because the template has another entry in their place."""


def cluster_class_patch(manifest: Mapping[str, Any], missing: Missing, cluster_name: str) -> ClusterClassPatch:
    """The missing lines as a change of the ClusterClass.

    The entry must be the last one: it applies to the template with all earlier patches, which is what ``manifest`` was
    made from. No patch of a ClusterClass can replace or remove an entry of a list (Cluster API
    ``core/webhooks/admission/patch_validation.go``).
    """
    operations: list[Operation] = []
    by_hand: list[MissingLine] = []
    for line, of_line in zip(missing.lines, _by_line(manifest, missing), strict=True):
        if any(operation["op"] == "test" for operation in of_line):
            by_hand.append(line)
        else:
            operations += (_of_class(operation, cluster_name) for operation in of_line)
    entry = {
        "name": "certificateAuthorityRotation",
        "definitions": [
            {
                "selector": {
                    "apiVersion": text_of(manifest, "apiVersion"),
                    "kind": _TEMPLATE_KIND,
                    "matchResources": {"controlPlane": True},
                },
                "jsonPatches": operations,
            }
        ],
    }
    return ClusterClassPatch(json.dumps([entry], indent=2), tuple(by_hand))


def _by_line(manifest: Mapping[str, Any], missing: Missing) -> list[list[Operation]]:
    """The operations of each line."""
    as_map = text_of(manifest, "apiVersion") == _WITH_ARGUMENTS_IN_A_MAP
    building = _Building(manifest, arguments_are_a_map=as_map)
    found: list[list[Operation]] = []
    for line in missing.lines:
        begin = len(building.operations)
        match line.requirement:
            case RequiredArgument():
                building.argument(line.requirement)
            case RequiredFile():
                building.file(line.requirement)
            case RequiredCommand():
                building.append(("postKubeadmCommands",), line.requirement.command)
        found.append(building.operations[begin:])
    return found


def _of_class(operation: Operation, cluster_name: str) -> Operation:
    """The operation for a template of many Clusters: a Secret's name is made from that of each Cluster."""
    moved = {**operation, "path": "/spec/template" + operation["path"]}
    if not operation["path"].startswith(_pointer(("files",))):
        return moved
    own, of_each = (json.dumps({"name": f"{name}-"})[1:-2] for name in (cluster_name, _CLUSTER_NAME))
    return {**moved, "valueFrom": {"template": json.dumps(moved.pop("value")).replace(own, of_each)}}


def _pointer(path: tuple[str, ...]) -> str:
    """The JSON Pointer of a field of ``kubeadmConfigSpec``.

    No part needs an escape: each is a field, an index or a known flag's name.
    """
    return "".join(f"/{part}" for part in (*CONFIG_PATH, *path))


class _Building:
    """Collects operations, each for the object that the earlier ones leave."""

    def __init__(self, manifest: Mapping[str, Any], *, arguments_are_a_map: bool) -> None:
        self.operations: list[Operation] = []
        self._document: dict[str, Any] = copy.deepcopy(dict(manifest))
        self._arguments_are_a_map = arguments_are_a_map

    def argument(self, wanted: RequiredArgument) -> None:
        """Set a flag, in the form of its version."""
        path = wanted.component.value
        if self._arguments_are_a_map:
            self._drop_other_spellings(path, wanted.name)
            self._set((*path, wanted.name), wanted.value)
            return
        entry = {"name": wanted.name, "value": wanted.value}
        for index, found in enumerate(self._list(path)):
            if flag_name(text_of(found, "name")) == wanted.name:
                self._replace_entry(path, index, "name", entry)
                return
        self.append(path, entry)

    def file(self, wanted: RequiredFile) -> None:
        """Have one entry for a path, with the content of a Secret."""
        path = ("files",)
        source = {"secret": {"name": wanted.source.name, "key": wanted.source.key}}
        entry = {"path": wanted.path, "owner": "root:root", "permissions": wanted.permissions, "contentFrom": source}
        found = [i for i, one in enumerate(self._list(path)) if normal_path(text_of(one, "path")) == wanted.path]
        for index in reversed(found[1:]):
            self._drop_entry(path, index, "path")
        if found:
            self._replace_entry(path, found[0], "path", entry)
        else:
            self.append(path, entry)

    def append(self, path: tuple[str, ...], value: Any) -> None:
        """Append to a list, which is created if there is none."""
        if isinstance(self._at(path), list):
            self._do("add", (*path, "-"), value)
        else:
            self._set(path, [value])

    def _drop_other_spellings(self, path: tuple[str, ...], name: str) -> None:
        given = self._at(path)
        for other in list(given) if isinstance(given, Mapping) else []:
            if other != name and flag_name(other) == name:
                self._do("remove", (*path, other))

    def _replace_entry(self, path: tuple[str, ...], index: int, key: str, entry: Mapping[str, Any]) -> None:
        self._test_entry(path, index, key)
        self._do("replace", (*path, str(index)), entry)

    def _drop_entry(self, path: tuple[str, ...], index: int, key: str) -> None:
        self._test_entry(path, index, key)
        self._do("remove", (*path, str(index)))

    def _test_entry(self, path: tuple[str, ...], index: int, key: str) -> None:
        self._do("test", (*path, str(index), key), self._list(path)[index][key])

    def _set(self, path: tuple[str, ...], value: Any) -> None:
        """Set a field of an object. Objects above it that do not exist become part of the value."""
        for depth in range(1, len(path)):
            if not isinstance(self._at(path[:depth]), Mapping):
                for key in reversed(path[depth:]):
                    value = {key: value}
                self._do("add", path[:depth], value)
                return
        self._do("add", path, value)

    def _do(self, name: str, path: tuple[str, ...], value: Any = None) -> None:
        operation: Operation = {"op": name, "path": _pointer(path)}
        if name != "remove":
            operation["value"] = copy.deepcopy(value)
        self.operations.append(operation)
        if name != "test":
            self._apply(name, path, value)

    def _apply(self, name: str, path: tuple[str, ...], value: Any) -> None:
        parent, last = self._parent(path), path[-1]
        if isinstance(parent, list):
            if name == "remove":
                del parent[int(last)]
            elif last == "-":
                parent.append(value)
            else:
                parent[int(last)] = value
        elif name == "remove":
            del parent[last]
        else:
            parent[last] = copy.deepcopy(value)

    def _parent(self, path: tuple[str, ...]) -> Any:
        found: Any = self._document
        for key in (*CONFIG_PATH, *path[:-1]):
            found = found[key]
        return found

    def _at(self, path: tuple[str, ...]) -> Any:
        found: Any = self._document
        for key in (*CONFIG_PATH, *path):
            found = found.get(key) if isinstance(found, Mapping) else None
        return found

    def _list(self, path: tuple[str, ...]) -> list[Any]:
        *parents, last = path
        holder = self._at(tuple(parents))
        return items_of(holder, last) if isinstance(holder, Mapping) else []
