"""Users, files and commands that KubeadmConfigs bring to a machine. Pure.

Source of the fields: Cluster API v1.14 ``api/bootstrap/kubeadm/v1beta2/kubeadmconfig_types.go``; v1beta1 has the same.
What they become: ``bootstrap/kubeadm/pkg/cloudinit/users.go`` and ``bootstrap/kubeadm/pkg/ignition/clc/clc.go``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from signer.model.fields import items_of, mapping_of, text_of
from signer.ssh.ways_in.findings import Certainty, Finding, shown

KUBEADM_CONFIG: Final = "KubeadmConfig"
KUBEADM_CONFIG_TEMPLATE: Final = "KubeadmConfigTemplate"
KUBEADM_CONTROL_PLANE: Final = "KubeadmControlPlane"
SPECS: Final[Mapping[str, tuple[str, ...]]] = {
    KUBEADM_CONFIG: ("spec",),
    KUBEADM_CONFIG_TEMPLATE: ("spec", "template", "spec"),
    KUBEADM_CONTROL_PLANE: ("spec", "kubeadmConfigSpec"),
}
"""By kind: where the KubeadmConfig's spec is."""
_COMMANDS: Final = ("bootCommands", "preKubeadmCommands", "postKubeadmCommands")
_AUTHORIZED_KEYS: Final = frozenset({"authorized_keys", "authorized_keys2", "authorized_keys.d"})
_OWN_FILES: Final = "/etc/ssh/node-access"
"""What the paths of this project's files for sshd begin with (``docs/ssh.md``)."""
_SSHD_FOLDER: Final = "/etc/ssh/"
_MENTIONS: Final = (
    "authorized_keys",
    "authorizedkeys",
    "sshd",
    "/etc/ssh/",
    "ssh-import-id",
    "chpasswd",
    "dropbear",
)
"""In lower case. Hints, not proofs: a command may do anything."""
_CLOSES: Final = re.compile(
    r"(?:sudo )?systemctl(?: (?:disable|mask|stop|--now)){1,3}(?: sshd?(?:\.(?:service|socket))?)+", re.ASCII
)
"""A command that does nothing but switch a stock sshd off."""
_IGNITION_USER: Final = re.compile(r"^[ \t-]*(ssh_authorized_keys|password_hash)[ \t]*:", re.MULTILINE | re.ASCII)
_USERS_CLOSE: Final = "remove it: certificates need no key on the machine"


def kubeadm_findings(kind: str, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """What a KubeadmConfig, its template or a KubeadmControlPlane declares.

    Raises:
        KeyError: the kind is none of ``SPECS``.
    """
    spec: Mapping[str, Any] = manifest
    for name in SPECS[kind]:
        spec = mapping_of(spec, name)
    for number, user in enumerate(items_of(spec, "users")):
        if isinstance(user, Mapping):
            yield from _user(f"users[{number}]", user)
    for number, file in enumerate(items_of(spec, "files")):
        if isinstance(file, Mapping):
            yield from _file(f"files[{number}]", file)
    for commands in _COMMANDS:
        for number, command in enumerate(items_of(spec, commands)):
            yield from _command(f"{commands}[{number}]", command)
    yield from _ignition(mapping_of(mapping_of(spec, "ignition"), "containerLinuxConfig"))


def _user(path: str, user: Mapping[str, Any]) -> Iterator[Finding]:
    """Passwords count only with ``lockPassword: false``: cloud-init locks them by default, and Cluster API's
    configuration for Ignition takes no other user's password over SSH.
    """
    who = f"of user {shown(text_of(user, 'name'))}"
    if user.get("sshAuthorizedKeys"):
        yield Finding(f"{path}.sshAuthorizedKeys", f"has keys {who}", _USERS_CLOSE)
    if user.get("lockPassword") is False and (user.get("passwd") or user.get("passwdFrom")):
        says = f"unlocks the password {who}, for an sshd that takes passwords"
        yield Finding(f"{path}.lockPassword", says, "set it to true, or remove the password")


def _file(path: str, file: Mapping[str, Any]) -> Iterator[Finding]:
    name = posixpath.normpath(f"/{text_of(file, 'path')}")
    name = f"/{name.lstrip('/')}"
    if _AUTHORIZED_KEYS.intersection(name.split("/")):
        yield Finding(f"{path}.path", f"is {shown(name)}", "remove the file")
    elif name.startswith(_SSHD_FOLDER) and not name.startswith(_OWN_FILES):
        says = f"is {shown(name)}, which may change whom sshd lets in"
        yield Finding(f"{path}.path", says, "bring it by the image, or remove it", Certainty.POSSIBLE)
    elif mentioned := _mentioned(text_of(file, "content")):
        says = f"mentions {mentioned}"
        yield Finding(f"{path}.content", says, "bring the file by the image, or remove it", Certainty.POSSIBLE)


def _command(path: str, command: object) -> Iterator[Finding]:
    """A command is a string; in v1beta1 and v1beta2 alike."""
    if isinstance(command, str) and (mentioned := _mentioned(command)) and not _CLOSES.fullmatch(command.strip()):
        says = f"mentions {mentioned}"
        yield Finding(path, says, "have the image do it, or remove it", Certainty.POSSIBLE)


def _ignition(config: Mapping[str, Any]) -> Iterator[Finding]:
    path, text = "ignition.containerLinuxConfig.additionalConfig", text_of(config, "additionalConfig")
    if found := _IGNITION_USER.search(text):
        yield Finding(path, f"has {found[1]}", _USERS_CLOSE)
    elif mentioned := _mentioned(text):
        yield Finding(path, f"mentions {mentioned}", "remove it", Certainty.POSSIBLE)


def _mentioned(text: str) -> str:
    """The first of the words that may mean a way in; empty without one."""
    lower = text.lower()
    return next((word for word in _MENTIONS if word in lower), "")
