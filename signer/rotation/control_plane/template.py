"""Reads the part of a KubeadmControlPlane that a rotation depends on, of v1beta1 and v1beta2 alike.

Arguments are a map in v1beta1 and a list of ``{name, value}`` in v1beta2. Source of the fields: Cluster API ae7ff04
``api/bootstrap/kubeadm/v1beta1`` and ``v1beta2``; the limits are those of v1beta2's schema, and for v1beta1, which has
none, our own.
"""

from __future__ import annotations

import enum
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.model.fields import mapping_of, short_text_of

CONFIG_PATH: Final = ("spec", "kubeadmConfigSpec")
"""Where a KubeadmControlPlane has what its machines are made with."""
DEFAULT_CERTIFICATES_DIRECTORY: Final = "/etc/kubernetes/pki"

_MOST_ARGUMENTS: Final = 100
_MOST_FILES: Final = 200
_MOST_COMMANDS: Final = 1000
_MAXIMUM_NAME_CHARACTERS: Final = 256
_MAXIMUM_CHARACTERS: Final = 10_240
_MAXIMUM_INLINE_CHARACTERS: Final = 1024 * 1024
"""Of a file's content, which v1beta1 does not limit. No object in etcd is larger than 1.5 MiB."""

_VERSION: Final = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})(?:[.+-].*)?", re.ASCII | re.DOTALL)
_KUBELET_PATCH: Final = re.compile(r"kubeletconfiguration[^/+]*(?:\+(strategic|merge|json))?\.(?:json|yaml)", re.ASCII)
"""kubeadm ``cmd/kubeadm/app/util/patches/patches.go``: ``target[suffix][+patchtype].extension``."""
_PATCHES_KUBELET: Final = (1, 25)
"""kubeadm applies patches to the kubelet's configuration since 1.25."""


class InvalidTemplate(ValueError):
    """The object is no KubeadmControlPlane that a machine could be made from; the message quotes no values."""


class Component(enum.Enum):
    """A program of a control plane machine; the value is the path of its arguments below ``kubeadmConfigSpec``."""

    API_SERVER = ("clusterConfiguration", "apiServer", "extraArgs")
    CONTROLLER_MANAGER = ("clusterConfiguration", "controllerManager", "extraArgs")
    KUBELET_OF_FIRST_MACHINE = ("initConfiguration", "nodeRegistration", "kubeletExtraArgs")
    KUBELET_OF_LATER_MACHINES = ("joinConfiguration", "nodeRegistration", "kubeletExtraArgs")


@dataclass(frozen=True, slots=True)
class NotSet:
    """The template does not set it."""

    def __str__(self) -> str:
        return "not set"


NOT_SET: Final = NotSet()
Setting: TypeAlias = str | NotSet


@dataclass(frozen=True, slots=True)
class FromSecret:
    """The content is that of a Secret, unchanged."""

    name: str
    key: str

    def __str__(self) -> str:
        return f"key {self.key} of Secret {self.name}"


@dataclass(frozen=True, slots=True)
class Inline:
    """The content is in the template itself, unchanged. It may be secret."""

    content: str = field(repr=False)

    def __str__(self) -> str:
        return "content in the template"


@dataclass(frozen=True, slots=True)
class Changed:
    """The content is appended to a file, decoded, or rendered as a template."""

    def __str__(self) -> str:
        return "content that is appended, decoded or rendered"


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """One entry of ``files``."""

    path: str
    """Normalized."""
    content: FromSecret | Inline | Changed


@dataclass(frozen=True, slots=True)
class ControlPlaneTemplate:
    """What a KubeadmControlPlane says about the machines that it makes."""

    kubernetes_version: tuple[int, int]
    """Major and minor version; zeros if unknown."""
    certificates_directory: str
    arguments: Mapping[Component, Mapping[str, str]]
    """By component and flag name. Names are written with dashes, as Kubernetes' programs read them."""
    files: tuple[TemplateFile, ...]
    patches_directories: Mapping[Component, Setting]
    """Of kubeadm's patches, for the two kubelets."""
    commands_afterwards: tuple[str, ...]
    """``postKubeadmCommands``."""

    def argument(self, component: Component, name: str) -> Setting:
        """The value of a flag."""
        return self.arguments[component].get(name, NOT_SET)

    def files_at(self, path: str) -> tuple[TemplateFile, ...]:
        """The files of that path: several entries overwrite each other."""
        return tuple(one for one in self.files if one.path == path)

    def patched_client_ca(self, kubelet: Component) -> Setting:
        """``clientCAFile`` of the kubelet's configuration by kubeadm's patches.

        kubeadm applies the patches in the order of their names. After one that cannot be read here it is not known.
        """
        directory = self.patches_directories[kubelet]
        if isinstance(directory, NotSet) or self.kubernetes_version < _PATCHES_KUBELET:
            return NOT_SET
        found: Setting = NOT_SET
        for one in sorted(self.files, key=lambda file: file.path):
            folder, name = posixpath.split(one.path)
            if folder == directory and (match := _KUBELET_PATCH.fullmatch(name)):
                found = _patched(found, one, json_patch=match[1] == "json")
        return found


def control_plane_template(manifest: Mapping[str, Any]) -> ControlPlaneTemplate:
    """Read a KubeadmControlPlane of either version.

    Raises:
        InvalidTemplate: a field has another type than in both versions, or is larger than any machine could use.
    """
    config = _object(_object(manifest, "spec"), "kubeadmConfigSpec")
    cluster = _object(config, "clusterConfiguration")
    return ControlPlaneTemplate(
        kubernetes_version=kubernetes_version(mapping_of(manifest, "spec")),
        certificates_directory=_path(_text(cluster, "certificatesDir") or DEFAULT_CERTIFICATES_DIRECTORY),
        arguments={component: _arguments(config, component) for component in Component},
        files=tuple(_files(config)),
        patches_directories={
            kubelet: _patches_directory(config, kubelet)
            for kubelet in (Component.KUBELET_OF_FIRST_MACHINE, Component.KUBELET_OF_LATER_MACHINES)
        },
        commands_afterwards=tuple(_commands(config)),
    )


def kubernetes_version(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Major and minor version of ``spec.version``; zeros if it is missing or malformed."""
    match = _VERSION.fullmatch(short_text_of(spec, "version", _MAXIMUM_NAME_CHARACTERS))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def flag_name(name: str) -> str:
    """A flag's name as Kubernetes' programs read it (component-base ``cli/flag.WordSepNormalizeFunc``)."""
    return name.replace("_", "-")


def normal_path(path: str) -> str:
    """A file's path without repeated slashes and dot segments."""
    normal = posixpath.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def _arguments(config: Mapping[str, Any], component: Component) -> Mapping[str, str]:
    parent = config
    *parents, last = component.value
    for key in parents:
        parent = _object(parent, key)
    where = ".".join(component.value)
    found: dict[str, str] = {}
    for given, value in _pairs(parent.get(last), where):
        name = flag_name(given)
        if name in found:
            raise InvalidTemplate(f"{where} sets one flag twice")
        found[name] = value
    return found


def _pairs(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    entries = value.items() if isinstance(value, Mapping) else _named(value, where)
    for count, (name, text) in enumerate(entries):
        if count == _MOST_ARGUMENTS:
            raise InvalidTemplate(f"{where} has more than {_MOST_ARGUMENTS} entries")
        if not (isinstance(name, str) and isinstance(text, str)):
            raise InvalidTemplate(f"{where} has an entry that is no text")
        if not 0 < len(name) <= _MAXIMUM_NAME_CHARACTERS or len(text) > _MAXIMUM_CHARACTERS:
            raise InvalidTemplate(f"{where} has an entry that is empty or too long")
        yield name, text


def _named(value: Any, where: str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, list):
        raise InvalidTemplate(f"{where} is neither a list nor an object")
    for entry in value:
        if not isinstance(entry, Mapping):
            raise InvalidTemplate(f"{where} has an entry that is no object")
        yield entry.get("name"), entry.get("value")


def _files(config: Mapping[str, Any]) -> Iterator[TemplateFile]:
    for entry in _list(config, "files", _MOST_FILES):
        if not isinstance(entry, Mapping):
            raise InvalidTemplate("files has an entry that is no object")
        yield TemplateFile(_path(_text(entry, "path")), _content(entry))


def _content(entry: Mapping[str, Any]) -> FromSecret | Inline | Changed:
    if entry.get("append") or _text(entry, "encoding") or _text(entry, "contentFormat") not in ("", "Raw"):
        return Changed()
    secret = _object(_object(entry, "contentFrom"), "secret")
    if secret:
        return FromSecret(_text(secret, "name"), _text(secret, "key"))
    return Inline(_text(entry, "content", _MAXIMUM_INLINE_CHARACTERS))


def _patches_directory(config: Mapping[str, Any], kubelet: Component) -> Setting:
    patches = _object(_object(config, kubelet.value[0]), "patches")
    directory = _text(patches, "directory")
    return _path(directory) if directory else NOT_SET


def _patched(before: Setting, patch: TemplateFile, *, json_patch: bool) -> Setting:
    if not isinstance(patch.content, Inline) or json_patch or len(patch.content.content) > _MAXIMUM_CHARACTERS:
        return NOT_SET
    try:
        document = load_strict_yaml(patch.content.content.encode("utf-8", "surrogatepass"))
    except YamlRefused:
        return NOT_SET
    found: Any = document
    for key in ("authentication", "x509", "clientCAFile"):
        if not isinstance(found, Mapping) or any(name.startswith("$") for name in found):  # a directive of the patch
            return NOT_SET
        if key not in found:
            return before
        found = found[key]
    return found if isinstance(found, str) else NOT_SET


def _commands(config: Mapping[str, Any]) -> Iterator[str]:
    for command in _list(config, "postKubeadmCommands", _MOST_COMMANDS):
        if not isinstance(command, str) or len(command) > _MAXIMUM_INLINE_CHARACTERS:
            raise InvalidTemplate("postKubeadmCommands has an entry that is no text, or is too long")
        yield command


def _path(path: str) -> str:
    return normal_path(path) if path else ""


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidTemplate(f"{key} is no object")
    return value


def _list(parent: Mapping[str, Any], key: str, most: int) -> list[Any]:
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > most:
        raise InvalidTemplate(f"{key} is no list of at most {most} entries")
    return value


def _text(parent: Mapping[str, Any], key: str, maximum: int = _MAXIMUM_CHARACTERS) -> str:
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > maximum:
        raise InvalidTemplate(f"{key} is no text of at most {maximum} characters")
    return value
