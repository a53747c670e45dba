"""Other ways into a cluster's nodes than certificates, as bootstrap data and infrastructure objects show them. Pure.

A launch key is put into ``authorized_keys`` by cloud-init or a cloud's guest agent, which an sshd that takes
certificates alone ignores, and a stock sshd beside it does not. What an image holds is not seen from here.

Fields, by provider's source:

- ``AWSMachine.spec.sshKeyName``, of which none means AWSCluster's, else the key pair ``default``
  (cluster-api-provider-aws ``pkg/cloud/services/ec2/instances.go``);
- ``AzureMachine.spec.sshPublicKey``, for which the provider makes a key that nobody has if there is none
  (cluster-api-provider-azure ``api/v1beta1/azuremachine_default.go``);
- ``GCPMachine.spec.additionalMetadata`` with Compute Engine's ``ssh-keys`` and ``block-project-ssh-keys``;
- ``HCloudMachine.spec.sshKeys``, of which none means HetznerCluster's (cluster-api-provider-hetzner
  ``api/v1beta1/hcloudmachine_types.go``);
- ``sshKeyName``, ``sshKey``, ``sshKeys``, ``authorizedKeys`` of OpenStack, CloudStack, DigitalOcean, Packet, Linode and
  Vultr. Of other kinds, fields with such names.

Bootstrap data: Cluster API's ``KubeadmConfigSpec`` (``users``, ``files``, commands, ``ignition``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of

KUBEADM_CONFIG: Final = "KubeadmConfig"
AWS_MACHINE: Final = "AWSMachine"
AZURE_MACHINE: Final = "AzureMachine"
GCP_MACHINE: Final = "GCPMachine"
HCLOUD_MACHINE: Final = "HCloudMachine"
NO_KEYS: Final = frozenset({"ByoMachine", "DockerMachine", "Metal3Machine"})
"""Kinds without a field for keys: theirs come by the bootstrap data, or by the host."""
WITH_KEYS: Final = frozenset(
    {
        AWS_MACHINE,
        AZURE_MACHINE,
        GCP_MACHINE,
        "CloudStackMachine",
        "DOMachine",
        HCLOUD_MACHINE,
        "LinodeMachine",
        "OpenStackMachine",
        "PacketMachine",
        "VultrMachine",
    }
)
MAXIMUM_WAYS: Final = 256
"""Tenants write these objects."""
_EXAMPLES: Final = 3
_SHOWN: Final = 5
_MAXIMUM_ITEMS: Final = 256
_MAXIMUM_DEPTH: Final = 4
_MAXIMUM_TEXT: Final = 256 * 1024
_MAXIMUM_PATH: Final = 4096
_KEY_FIELD: Final = re.compile(
    r"ssh_?(?:authorized_?)?(?:public_?)?keys?(?:_?names?)?|authorized_?(?:keys|users)", re.I
)
_WRITES_KEYS: Final = re.compile(
    r"authorized_keys|ssh_authorized_keys|sshAuthorizedKeys|ssh[-_]import[-_]id|\bchpasswd\b|\busermod\b.*-p\b", re.I
)
"""In commands and files: what adds keys or passwords."""
_SSHD_FILES: Final = re.compile(r"/etc/ssh/sshd_config(?:\.d/.*)?|.*/\.ssh/.*|.*authorized_keys.*|/etc/shadow", re.I)
"""Where keys, passwords and the configuration of a stock sshd are. The second sshd has files of its own."""
_TRUE: Final = "true"


@dataclass(frozen=True, slots=True)
class Way:
    """A way in that stays open."""

    kind: str
    """Of the objects that open it."""
    where: str
    """Their field."""
    what: str


@dataclass(slots=True)
class WaysIn:
    """What was found, and what could not be read. Objects that open the same way are counted, and some are named."""

    found: dict[Way, list[str]] = field(default_factory=dict)
    counts: dict[Way, int] = field(default_factory=dict)
    not_known: dict[str, None] = field(default_factory=dict)
    """Why something is not known, in the order in which it was met."""

    def add(self, ways: Iterable[Way], name: str) -> None:
        """Add what one object opens."""
        for way in ways:
            if way not in self.counts and len(self.counts) == MAXIMUM_WAYS:
                self.unknown(f"there are more than {MAXIMUM_WAYS} ways in")
                return
            self.counts[way] = self.counts.get(way, 0) + 1
            named = self.found.setdefault(way, [])
            if len(named) < _EXAMPLES:
                named.append(name)

    def unknown(self, why: str) -> None:
        """Add what could not be read."""
        self.not_known.setdefault(why)

    @property
    def lines(self) -> tuple[str, ...]:
        """One for each way, for people; printable."""
        return tuple(_line(way, self.found[way], self.counts[way]) for way in sorted(self.found, key=_order))

    @property
    def message(self) -> str:
        """All in one line, within bounds."""
        shown = "; ".join(self.lines[:_SHOWN])
        more = len(self.lines) - _SHOWN
        return f"{shown}; and {more} more ways" if more > 0 else shown


def ways_of_bootstrap_config(manifest: Mapping[str, Any]) -> Iterator[Way]:
    """What one KubeadmConfig opens."""
    spec = mapping_of(manifest, "spec")
    for user in _objects(spec, "users"):
        name = printable(text_of(user, "name"))[:64]
        if items_of(user, "sshAuthorizedKeys"):
            yield Way(KUBEADM_CONFIG, "spec.users[].sshAuthorizedKeys", f"user {name} has keys")
        if user.get("lockPassword") is False:
            yield Way(KUBEADM_CONFIG, "spec.users[].lockPassword", f"user {name} has a password that is not locked")
    for file in _objects(spec, "files"):
        path = text_of(file, "path")[:_MAXIMUM_PATH]
        if _SSHD_FILES.fullmatch(path):
            yield Way(KUBEADM_CONFIG, "spec.files[].path", f"it writes {printable(path)[:128]}")
        elif _mentions(text_of(file, "content")):
            yield Way(KUBEADM_CONFIG, "spec.files[].content", f"{printable(path)[:128]} adds keys or passwords")
    for name in ("bootCommands", "preKubeadmCommands", "postKubeadmCommands"):
        if any(_mentions(command) for command in items_of(spec, name)[:_MAXIMUM_ITEMS]):
            yield Way(KUBEADM_CONFIG, f"spec.{name}", "a command adds keys or passwords")
    ignition = mapping_of(mapping_of(spec, "ignition"), "containerLinuxConfig")
    if _mentions(text_of(ignition, "additionalConfig")):
        yield Way(KUBEADM_CONFIG, "spec.ignition", "its additional configuration adds keys or passwords")


def ways_of_infrastructure(kind: str, manifest: Mapping[str, Any]) -> Iterator[Way]:
    """What one InfraMachine opens."""
    spec = mapping_of(manifest, "spec")
    if kind == AWS_MACHINE and spec.get("sshKeyName") is None:
        yield Way(kind, "spec.sshKeyName", "without it, the provider takes its default: AWSCluster's, or `default`")
    if kind == HCLOUD_MACHINE and not spec.get("sshKeys"):
        yield Way(kind, "spec.sshKeys", "without it, the provider takes HetznerCluster's keys, if it has any")
    if kind == GCP_MACHINE:
        yield from _of_google(spec)
    for path, value in _key_fields(spec, "spec", 0):
        note = " (the provider fills it with a key that nobody has, if you name none)" if kind == AZURE_MACHINE else ""
        shown = f" {printable(value)[:64]}" if isinstance(value, str) and "name" in path.lower() else ""
        yield Way(kind, path, f"a launch key{shown}{note}")


def knows_fields_of(kind: str) -> bool:
    """Whether the fields for keys of that kind are known. Of others, names of fields are taken for what they say."""
    return kind in NO_KEYS or kind in WITH_KEYS


def _of_google(spec: Mapping[str, Any]) -> Iterator[Way]:
    metadata = {text_of(one, "key"): text_of(one, "value") for one in _objects(spec, "additionalMetadata")}
    for name in ("ssh-keys", "sshKeys"):
        if metadata.get(name):
            yield Way(GCP_MACHINE, "spec.additionalMetadata", f"{name}: the guest agent lets these keys in")
    if metadata.get("enable-oslogin", "").lower() == _TRUE:
        yield Way(GCP_MACHINE, "spec.additionalMetadata", "enable-oslogin: Google's accounts log in")
    elif metadata.get("block-project-ssh-keys", "").lower() != _TRUE:
        where = "without block-project-ssh-keys: true, the guest agent lets the project's keys in"
        yield Way(GCP_MACHINE, "spec.additionalMetadata", where)


def _key_fields(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Fields whose names speak of SSH keys, and that are not empty."""
    if depth > _MAXIMUM_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, one in list(value.items())[:_MAXIMUM_ITEMS]:
            where = f"{path}.{printable(str(name))[:64]}"
            if _KEY_FIELD.fullmatch(str(name)):
                if one:
                    yield where, one
            else:
                yield from _key_fields(one, where, depth + 1)
    elif isinstance(value, list):
        for one in value[:_MAXIMUM_ITEMS]:
            yield from _key_fields(one, f"{path}[]", depth + 1)


def _mentions(text: Any) -> bool:
    return isinstance(text, str) and _WRITES_KEYS.search(text[:_MAXIMUM_TEXT]) is not None


def _objects(parent: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    return (one for one in items_of(parent, key)[:_MAXIMUM_ITEMS] if isinstance(one, Mapping))


def _order(way: Way) -> tuple[str, str, str]:
    return (way.kind, way.where, way.what)


def _line(way: Way, names: list[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{way.kind} {way.where}: {way.what} ({printable(', '.join(names))}{more})"


__all__ = [
    "KUBEADM_CONFIG",
    "MAXIMUM_WAYS",
    "NO_KEYS",
    "WITH_KEYS",
    "Way",
    "WaysIn",
    "knows_fields_of",
    "ways_of_bootstrap_config",
    "ways_of_infrastructure",
]
