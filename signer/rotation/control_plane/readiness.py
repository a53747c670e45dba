"""Whether the template of a control plane is ready for a rotation: what its machines read comes from Secrets.

kube-apiserver, kube-controller-manager and kubelet read their trusted CAs from files below
``/etc/kubernetes/pki/rotation``, which kubeadm mounts with the rest of ``pki``. Cluster API writes the content of the
Secret anew for each machine that it makes. So a change of the Secret and a rollout change what the control plane
trusts, and the template stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from signer.rotation.control_plane.template import (
    DEFAULT_CERTIFICATES_DIRECTORY,
    NOT_SET,
    Component,
    ControlPlaneTemplate,
    FromSecret,
    NotSet,
    Setting,
)
from signer.rotation.phases import SigningPairs

ROTATION_DIRECTORY: Final = f"{DEFAULT_CERTIFICATES_DIRECTORY}/rotation"
CLIENT_CA_FILE: Final = f"{ROTATION_DIRECTORY}/client-ca.crt"
SERVER_CA_FILE: Final = f"{ROTATION_DIRECTORY}/server-ca.crt"
LINK_FILE: Final = f"{ROTATION_DIRECTORY}/link.crt"
CLIENT_CA_KEY: Final = "client-ca.crt"
SERVER_CA_KEY: Final = "server-ca.crt"
LINK_KEY: Final = "link.crt"
"""Keys of Secret ``<cluster>-trust``."""

_SERVING: Final = f"{DEFAULT_CERTIFICATES_DIRECTORY}/apiserver.crt"
_LINKED: Final = f"{_SERVING}.linked"
LINK_COMMAND: Final = (
    f"if [ -s {LINK_FILE} ]; then cp -p {_SERVING} {_LINKED} && cat {LINK_FILE} >> {_LINKED} "
    f"&& mv -f {_LINKED} {_SERVING}; fi"
)
"""Appends the link certificate to the API server's chain. The API server reads the file again, so it must never see a
part of it: hence the temporary file in the same folder. Recognized only as it is here."""

SIGNERS: Final = (
    ("kube-apiserver-client", "client"),
    ("kubelet-client", "client"),
    ("legacy-unknown", "client"),
    ("kubelet-serving", "serving"),
)
"""The signers of kube-controller-manager that have flags of their own (1.19), and the pair that each signs with."""
_SIGNING_FLAG: Final = "cluster-signing-"
_PAIR_FLAGS: Final = ("-cert-file", "-key-file")
_SPLIT_FILES: Final = frozenset(
    f"{ROTATION_DIRECTORY}/{pair}.{suffix}" for pair in ("client", "serving") for suffix in ("crt", "key")
)
_ONE_PAIR: Final = {
    "cluster-signing-cert-file": f"{DEFAULT_CERTIFICATES_DIRECTORY}/ca.crt",
    "cluster-signing-key-file": f"{DEFAULT_CERTIFICATES_DIRECTORY}/ca.key",
}


@dataclass(frozen=True, slots=True)
class RequiredArgument:
    """A flag that must have that value."""

    component: Component
    name: str
    value: str

    def __str__(self) -> str:
        return f"{'.'.join(self.component.value)}: {self.name} must be {self.value or 'empty'}"


@dataclass(frozen=True, slots=True)
class RequiredFile:
    """A file that must have the content of a Secret's key, and no other."""

    path: str
    source: FromSecret
    permissions: str = "0644"

    def __str__(self) -> str:
        return f"files: {self.path} must have {self.source}"


@dataclass(frozen=True, slots=True)
class RequiredCommand:
    """A command that must run after kubeadm."""

    command: str

    def __str__(self) -> str:
        return f"postKubeadmCommands must have `{self.command}`"


Requirement: TypeAlias = RequiredArgument | RequiredFile | RequiredCommand


@dataclass(frozen=True, slots=True)
class MissingLine:
    """A requirement that the template does not meet."""

    requirement: Requirement
    found: str
    """What the template has instead, without the content of files."""

    def __str__(self) -> str:
        return f"{self.requirement} ({self.found})"


@dataclass(frozen=True, slots=True)
class Ready:
    """Every requirement is met."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The template lacks these lines, which :mod:`template_patch` adds."""

    lines: tuple[MissingLine, ...]


@dataclass(frozen=True, slots=True)
class Unsuitable:
    """No added line would do: a person must change the template."""

    reason: str


Readiness: TypeAlias = Ready | Missing | Unsuitable


def trust_secret_name(cluster_name: str) -> str:
    """Name of the Secret with the certificates that the control plane trusts and presents."""
    return f"{cluster_name}-trust"


def signing_secret_name(cluster_name: str) -> str:
    """Name of the Secret with the pairs of :attr:`SigningPairs.SPLIT`."""
    return f"{cluster_name}-signing"


def requirements(cluster_name: str, signing: SigningPairs) -> tuple[Requirement, ...]:
    """What the template of a cluster's control plane must have."""
    trust = trust_secret_name(cluster_name)
    found: list[Requirement] = [
        RequiredArgument(Component.API_SERVER, "client-ca-file", CLIENT_CA_FILE),
        RequiredArgument(Component.CONTROLLER_MANAGER, "client-ca-file", CLIENT_CA_FILE),
        RequiredArgument(Component.CONTROLLER_MANAGER, "root-ca-file", SERVER_CA_FILE),
        RequiredArgument(Component.KUBELET_OF_FIRST_MACHINE, "client-ca-file", CLIENT_CA_FILE),
        RequiredArgument(Component.KUBELET_OF_LATER_MACHINES, "client-ca-file", CLIENT_CA_FILE),
        RequiredFile(CLIENT_CA_FILE, FromSecret(trust, CLIENT_CA_KEY)),
        RequiredFile(SERVER_CA_FILE, FromSecret(trust, SERVER_CA_KEY)),
        RequiredFile(LINK_FILE, FromSecret(trust, LINK_KEY)),
        RequiredCommand(LINK_COMMAND),
    ]
    if signing is SigningPairs.SPLIT:
        found += _split_signing(signing_secret_name(cluster_name))
    return tuple(found)


def chosen_pairs(template: ControlPlaneTemplate) -> SigningPairs:
    """What the owner of the template has chosen: split pairs as soon as one signer has a pair of the rotation's."""
    flags = (f"{_SIGNING_FLAG}{signer}{flag}" for signer, _ in SIGNERS for flag in _PAIR_FLAGS)
    given = (template.argument(Component.CONTROLLER_MANAGER, name) for name in flags)
    return SigningPairs.SPLIT if any(one in _SPLIT_FILES for one in given) else SigningPairs.ONE_PAIR


def readiness(template: ControlPlaneTemplate, cluster_name: str, signing: SigningPairs) -> Readiness:
    """Judge a template."""
    if template.certificates_directory != DEFAULT_CERTIFICATES_DIRECTORY:
        return Unsuitable(
            f"clusterConfiguration.certificatesDir is not {DEFAULT_CERTIFICATES_DIRECTORY}: kubeadm would mount other "
            "files into the servers than a rotation writes"
        )
    if signing is SigningPairs.ONE_PAIR and (flag := _foreign_signing_flag(template)):
        return Unsuitable(
            f"clusterConfiguration.controllerManager.extraArgs has {flag}: kube-controller-manager would sign with "
            "another pair than that of Secret <cluster>-ca, which a rotation replaces"
        )
    lines = tuple(
        MissingLine(one, found)
        for one in requirements(cluster_name, signing)
        if not isinstance(found := _found(template, one), _Met)
    )
    return Missing(lines) if lines else Ready()


def required_flags(component: Component, signing: SigningPairs) -> tuple[RequiredArgument, ...]:
    """The flags that a rotation requires of one program."""
    return tuple(
        one for one in requirements("", signing) if isinstance(one, RequiredArgument) and one.component is component
    )


@dataclass(frozen=True, slots=True)
class _Met:
    """The requirement is met."""


def _split_signing(secret: str) -> Iterator[Requirement]:
    for name in _ONE_PAIR:
        yield RequiredArgument(Component.CONTROLLER_MANAGER, name, "")
    for signer, pair in SIGNERS:
        for flag, suffix in zip(_PAIR_FLAGS, ("crt", "key"), strict=True):
            path = f"{ROTATION_DIRECTORY}/{pair}.{suffix}"
            yield RequiredArgument(Component.CONTROLLER_MANAGER, f"{_SIGNING_FLAG}{signer}{flag}", path)
    for pair in ("client", "serving"):
        for suffix, permissions in (("crt", "0644"), ("key", "0600")):
            name = f"{pair}.{suffix}"
            yield RequiredFile(f"{ROTATION_DIRECTORY}/{name}", FromSecret(secret, name), permissions)


def _foreign_signing_flag(template: ControlPlaneTemplate) -> str:
    """The first flag by which kube-controller-manager signs with another pair than kubeadm's; empty if there is "
    "none."""
    for name, value in sorted(template.arguments[Component.CONTROLLER_MANAGER].items()):
        if name.startswith(_SIGNING_FLAG) and name.endswith(_PAIR_FLAGS) and value != _ONE_PAIR.get(name):
            return name
    return ""


def _found(template: ControlPlaneTemplate, requirement: Requirement) -> str | _Met:
    """What the template has in the place of a requirement."""
    match requirement:
        case RequiredArgument():
            setting = _setting(template, requirement)
            return _Met() if setting == requirement.value else _shown(setting)
        case RequiredFile():
            files = template.files_at(requirement.path)
            if len(files) > 1:
                return f"{len(files)} files of that path"
            content = files[0].content if files else NOT_SET
            return _Met() if content == requirement.source else f"it has {content}" if files else str(NOT_SET)
        case RequiredCommand():
            return _Met() if requirement.command in template.commands_afterwards else str(NOT_SET)


def _setting(template: ControlPlaneTemplate, required: RequiredArgument) -> Setting:
    given = template.argument(required.component, required.name)
    kubelets = (Component.KUBELET_OF_FIRST_MACHINE, Component.KUBELET_OF_LATER_MACHINES)
    if isinstance(given, NotSet) and required.component in kubelets:  # a flag takes precedence over the configuration
        return template.patched_client_ca(required.component)
    return given


_MAXIMUM_SHOWN_CHARACTERS: Final = 128


def _shown(setting: Setting) -> str:
    return str(setting) if isinstance(setting, NotSet) else f"it is {setting[:_MAXIMUM_SHOWN_CHARACTERS]!a}"
