"""The launch keys of infrastructure machines: which field of which kind declares one. Pure.

Each rule names the provider's source. ``docs/ssh-ways-in.md`` has the versions that were read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from signer.model.fields import items_of, mapping_of, text_of
from signer.ssh.ways_in.findings import Certainty, Finding, shown

TEMPLATE: Final = "Template"
"""What the kind of a template ends with, after the machine's kind."""
MANAGED_BY_ANNOTATION: Final = "cluster.x-k8s.io/managed-by"
"""On an InfraCluster that is managed by something else than its provider (Cluster API, ``ManagedByAnnotation``)."""
_TRUE: Final = frozenset({"true", "t", "1"})
_FALSE: Final = frozenset({"false", "f", "0"})
"""As Go's ``strconv.ParseBool``, by which Google's guest agent reads metadata, in lower case."""

Spec: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InfraCluster:
    """The InfraCluster, whose keys some machines take when they name none."""

    kind: str
    spec: Spec = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_externally_managed(self) -> bool:
        """Whether its provider leaves it alone."""
        return MANAGED_BY_ANNOTATION in self.annotations


@dataclass(frozen=True, slots=True)
class NoInfraCluster:
    """It could not be read."""


AnyInfraCluster: TypeAlias = InfraCluster | NoInfraCluster
Rule: TypeAlias = Callable[[Spec, AnyInfraCluster], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class NoFields:
    """Objects of that kind declare no keys: they are not read."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """What is known of one kind of infrastructure machine."""

    rule: Rule | NoFields
    unseen: tuple[str, ...]
    """Ways in that no object shows: the cloud's guest agents, and keys that belong to an account."""
    cluster: str = ""
    """Kind of the InfraCluster that the rule asks for."""


def _aws(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """An empty string means no key; an absent field the AWSCluster's key, and without it the key pair ``default``.

    Source: cluster-api-provider-aws ``pkg/cloud/services/ec2/instances.go``, CreateInstance.
    """
    close = 'set it to ""'
    if "sshKeyName" in spec:
        if spec["sshKeyName"] != "":
            yield Finding("sshKeyName", f"is the EC2 key pair {shown(spec['sshKeyName'])}", close)
        return
    if not isinstance(cluster, InfraCluster) or cluster.kind != "AWSCluster":
        says = "is absent, and the AWSCluster, which then names the key pair, could not be read"
        yield Finding("sshKeyName", says, close, Certainty.POSSIBLE)
    elif "sshKeyName" in cluster.spec:
        if cluster.spec["sshKeyName"] != "":
            key_pair = shown(cluster.spec["sshKeyName"])
            yield Finding("sshKeyName", f"is absent, so it is the AWSCluster's EC2 key pair {key_pair}", close)
    elif not cluster.is_externally_managed:
        yield Finding("sshKeyName", "is absent here and in the AWSCluster, so it is the EC2 key pair 'default'", close)


def _aws_pool(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """An absent field means no key here.

    Source: cluster-api-provider-aws ``pkg/cloud/services/ec2/launchtemplate.go``, createLaunchTemplateData.
    """
    del cluster
    template = mapping_of(spec, "awsLaunchTemplate")
    if template.get("sshKeyName") not in (None, ""):
        says = f"is the EC2 key pair {shown(template['sshKeyName'])}"
        yield Finding("awsLaunchTemplate.sshKeyName", says, 'set it to ""')


def _azure(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Azure creates no Linux VM without a key or password, so the provider makes a key where none is named, and drops
    its private half. Both look alike.

    Source: cluster-api-provider-azure ``internal/webhooks``, SetDefaultSSHPublicKey.
    """
    del cluster
    if spec.get("sshPublicKey"):
        yield _azure_finding("sshPublicKey")


def _azure_pool(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Source: cluster-api-provider-azure ``exp/api/v1beta1/azuremachinepool_types.go``."""
    del cluster
    if mapping_of(spec, "template").get("sshPublicKey"):
        yield _azure_finding("template.sshPublicKey")


def _azure_finding(name: str) -> Finding:
    says = "is a key of yours, or one that the provider made and whose private key it dropped"
    return Finding(name, says, "set AuthorizedKeysFile none in the image's sshd", Certainty.POSSIBLE)


def _gcp(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Where a key is absent in the instance's metadata, the project's counts. With OS Login, keys in metadata do not.

    Sources: cluster-api-provider-gcp ``cloud/scope/machine.go``, InstanceAdditionalMetadataSpec, and
    ``cloud/scope/machinepool.go``; Compute Engine's documents on SSH keys in metadata and on OS Login.
    """
    del cluster
    name = "additionalMetadata"
    metadata = {
        text_of(item, "key"): text_of(item, "value") for item in items_of(spec, name) if isinstance(item, Mapping)
    }
    login = metadata.get("enable-oslogin", "").lower()
    if login in _TRUE:
        yield Finding(f"{name}[enable-oslogin]", "lets in everyone with an OS Login role", "set it to FALSE")
        return
    if login not in _FALSE:
        says = "is not FALSE, so the project's metadata may turn OS Login on"
        yield Finding(f"{name}[enable-oslogin]", says, "set it to FALSE", Certainty.POSSIBLE)
    for key in ("ssh-keys", "sshKeys"):
        if metadata.get(key):
            yield Finding(f"{name}[{key}]", "has keys", "remove them")
    if metadata.get("block-project-ssh-keys", "").lower() not in _TRUE:
        says = "is not TRUE, so keys in the project's metadata count"
        yield Finding(f"{name}[block-project-ssh-keys]", says, "set it to TRUE", Certainty.POSSIBLE)


def _hetzner_cloud(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """The machine's keys, else the HetznerCluster's; and always the one that the provider's Secret names.

    Source: cluster-api-provider-hetzner ``pkg/services/hcloud/server/server.go``, getSSHKeys.
    """
    if spec.get("sshKeys"):
        yield Finding("sshKeys", "names keys of the Hetzner project", "remove them")
    if not isinstance(cluster, InfraCluster) or cluster.kind != "HetznerCluster":
        says = "may be extended by the HetznerCluster, which could not be read"
        yield Finding("sshKeys", says, "make it readable", Certainty.POSSIBLE)
        return
    if not spec.get("sshKeys") and mapping_of(cluster.spec, "sshKeys").get("hcloud"):
        says = "is absent, so spec.sshKeys.hcloud of the HetznerCluster counts, which names keys"
        yield Finding("sshKeys", says, "remove them there")
    if mapping_of(mapping_of(cluster.spec, "hetznerSecretRef"), "key").get("sshKey"):
        says = "may be extended by the key that the Secret of the HetznerCluster names"
        close = "let that Secret lack what spec.hetznerSecretRef.key.sshKey of the HetznerCluster names"
        yield Finding("sshKeys", says, close, Certainty.POSSIBLE)


def _hetzner_bare_metal(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """The provider installs the machine over SSH, with the key of that Secret.

    Source: cluster-api-provider-hetzner ``api/v1beta1/hetznerbaremetalmachine_types.go``, SSHSpec.
    """
    del cluster
    if mapping_of(mapping_of(spec, "sshSpec"), "secretRef").get("name"):
        says = "is the key by which the provider installs the machine"
        yield Finding("sshSpec.secretRef", says, "remove that key from the installed system")


def _kubevirt(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """The provider adds a user with the rights of root to the bootstrap data, whatever the machine says.

    Source: cluster-api-provider-kubevirt ``controllers/kubevirtmachine_controller.go``, addCapkUserToCloudInitConfig.
    """
    del spec
    close = f"have the KubevirtCluster managed by you, with annotation {MANAGED_BY_ANNOTATION}"
    if not isinstance(cluster, InfraCluster) or cluster.kind != "KubevirtCluster":
        says = "may come with the provider's user capk: the KubevirtCluster could not be read"
        yield Finding("virtualMachineTemplate", says, close, Certainty.POSSIBLE)
    elif not cluster.is_externally_managed:
        says = "comes with the provider's user capk, whose private key is in a Secret <cluster>-ssh-keys"
        yield Finding("virtualMachineTemplate", says, close)


def _oracle_pool(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Source: cluster-api-provider-oci ``exp/api/v1beta2/ocimachinepool_types.go``."""
    del cluster
    if mapping_of(mapping_of(spec, "instanceConfiguration"), "metadata").get("ssh_authorized_keys"):
        yield Finding("instanceConfiguration.metadata.ssh_authorized_keys", "has keys", "remove it")


def _oracle(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Source: cluster-api-provider-oci ``api/v1beta2/ocimachine_types.go``."""
    del cluster
    if mapping_of(spec, "metadata").get("ssh_authorized_keys"):
        yield Finding("metadata.ssh_authorized_keys", "has keys", "remove it")


def _linode(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
    """Source: linode/cluster-api-provider-linode ``api/v1alpha2/linodemachine_types.go``."""
    del cluster
    for name, says in (("authorizedKeys", "has keys"), ("authorizedUsers", "names users, whose keys count")):
        if spec.get(name):
            yield Finding(name, says, "remove it")
    if spec.get("rootPass"):
        yield Finding("rootPass", "is a password of root, for an sshd that takes passwords", "remove it")


def _keys(*names: str) -> Rule:
    """A rule for fields that have keys or the names of keys, unless they are absent or empty."""

    def rule(spec: Spec, cluster: AnyInfraCluster) -> Iterator[Finding]:
        del cluster
        for name in names:
            if spec.get(name):
                value = spec[name]
                says = f"is {shown(value)}" if isinstance(value, str) else "has keys"
                yield Finding(name, says, "remove it")

    return rule


_AWS_AGENTS: Final = ("EC2 Instance Connect", "Systems Manager's agent")
_AZURE_AGENTS: Final = ("Azure's guest agent (waagent) with its extensions VMAccess, RunCommand and AADSSHLogin",)
_GCP_AGENTS: Final = ("Google's guest agent, for keys that somebody adds to an instance's metadata",)
_QEMU_AGENT: Final = ("QEMU's guest agent, by the hypervisor's administrators",)
_CLOUD_INIT: Final = ("keys in the cloud's metadata, by cloud-init",)
_NO_OTHERS: Final = ()

MACHINE_KINDS: Final[Mapping[str, MachineKind]] = {
    "AWSMachine": MachineKind(_aws, _AWS_AGENTS, cluster="AWSCluster"),
    "AWSMachinePool": MachineKind(_aws_pool, _AWS_AGENTS),
    "AzureMachine": MachineKind(_azure, _AZURE_AGENTS),
    "AzureMachinePool": MachineKind(_azure_pool, _AZURE_AGENTS),
    "GCPMachine": MachineKind(_gcp, _GCP_AGENTS),
    "GCPMachinePool": MachineKind(_gcp, _GCP_AGENTS),
    # cluster-api-provider-openstack pkg/cloud/services/compute/instance.go
    "OpenStackMachine": MachineKind(_keys("sshKeyName"), (*_CLOUD_INIT, *_QEMU_AGENT)),
    "HCloudMachine": MachineKind(_hetzner_cloud, _CLOUD_INIT, cluster="HetznerCluster"),
    "HetznerBareMetalMachine": MachineKind(_hetzner_bare_metal, ("Hetzner's rescue system",)),
    # cluster-api-provider-digitalocean cloud/services/computes/droplets.go
    "DOMachine": MachineKind(_keys("sshKeys"), ("DigitalOcean's agent for its console",)),
    "KubevirtMachine": MachineKind(
        _kubevirt, ("accessCredentials of the VM, and its console", *_QEMU_AGENT), cluster="KubevirtCluster"
    ),
    "LinodeMachine": MachineKind(_linode, ("Linode's console (Lish)",)),
    "OCIMachine": MachineKind(_oracle, ("Oracle Cloud Agent with its Bastion plugin",)),
    "OCIMachinePool": MachineKind(_oracle_pool, ("Oracle Cloud Agent with its Bastion plugin",)),
    # cluster-api-provider-cloudstack pkg/cloud/instance.go
    "CloudStackMachine": MachineKind(_keys("sshKey"), _CLOUD_INIT),
    # cluster-api-provider-ibmcloud api/vpc, api/powervs
    "IBMVPCMachine": MachineKind(_keys("sshKeys", "sshKeyNames"), _CLOUD_INIT),
    "IBMPowerVSMachine": MachineKind(_keys("sshKey"), _CLOUD_INIT),
    # Without such a field: their users and keys come from KubeadmConfigs, the image, or an account.
    "VSphereMachine": MachineKind(NoFields(), ("VMware Tools, by vSphere's administrators",)),
    "Metal3Machine": MachineKind(NoFields(), ("public_keys in the meta data of a Metal3DataTemplate",)),
    "ProxmoxMachine": MachineKind(NoFields(), _QEMU_AGENT),
    "NutanixMachine": MachineKind(NoFields(), ("Nutanix Guest Tools",)),
    "PacketMachine": MachineKind(NoFields(), ("SSH keys of the project and of its members",)),
    "MaasMachine": MachineKind(NoFields(), ("SSH keys of the user in MAAS that deploys the machine",)),
    "ByoMachine": MachineKind(NoFields(), ("the accounts that the host had before",)),
    "DockerMachine": MachineKind(NoFields(), _NO_OTHERS),
    "DockerMachinePool": MachineKind(NoFields(), _NO_OTHERS),
    "DevMachine": MachineKind(NoFields(), _NO_OTHERS),
}
"""By kind, in the API group ``infrastructure.cluster.x-k8s.io``."""


_KEY_FIELD: Final = re.compile(
    r"ssh_?(?:authorized_?)?(?:public_?)?keys?(?:_?names?)?|authorized_?(?:keys|users)", re.IGNORECASE | re.ASCII
)
"""Names of fields that speak of SSH keys, for kinds whose fields are not known."""
_MAXIMUM_DEPTH: Final = 8
_MAXIMUM_PATH: Final = 256


def _any(value: object, path: str, depth: int) -> Iterator[Finding]:
    """Fields whose names speak of SSH keys, and that are not empty."""
    if depth > _MAXIMUM_DEPTH:
        return
    if isinstance(value, Mapping):
        for name, one in value.items():
            where = f"{path}.{name}" if path else str(name)
            if not _KEY_FIELD.fullmatch(str(name)):
                yield from _any(one, where, depth + 1)
            elif one:
                yield Finding(where[:_MAXIMUM_PATH], "speaks of SSH keys, and is not empty", "remove it")
    elif isinstance(value, list):
        for one in value:
            yield from _any(one, f"{path}[]", depth + 1)


def machine_kind(kind: str) -> str:
    """The kind of the machines that a template makes; a machine's own kind otherwise."""
    return kind.removesuffix(TEMPLATE)


def findings_in(kind: str, manifest: Mapping[str, Any], cluster: AnyInfraCluster) -> Iterator[Finding]:
    """What an infrastructure machine, pool or template declares.

    Of a kind that is none of ``MACHINE_KINDS``, only names of fields are looked at.
    """
    spec, known = spec_of(kind, manifest), MACHINE_KINDS.get(machine_kind(kind))
    if known is None:
        yield from _any(spec, "", 0)
    elif not isinstance(known.rule, NoFields):
        yield from known.rule(spec, cluster)


def spec_of(kind: str, manifest: Mapping[str, Any]) -> Spec:
    """The machine's spec, also in a template."""
    spec = mapping_of(manifest, "spec")
    return mapping_of(mapping_of(spec, "template"), "spec") if kind.endswith(TEMPLATE) else spec


def prefix_of(kind: str) -> str:
    """The path of :func:`spec_of`."""
    return "spec.template.spec" if kind.endswith(TEMPLATE) else "spec"
