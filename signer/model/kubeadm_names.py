"""The names of API servers that kubeadm's ``ClusterConfiguration`` states: ``apiServer.certSANs``, and its
``controlPlaneEndpoint``.

Source: ``cmd/kubeadm/app/apis/kubeadm`` of Kubernetes, v1beta1 to v1beta4, whose names for both fields are the same;
``bootstrap/kubeadm/api`` of Cluster API, v1beta1 and v1beta2. kubeadm keeps its own in ConfigMap
``kube-system/kubeadm-config`` (``phases/uploadconfig``).

Tenants and workload clusters write these objects. What they say only adds names that no node gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from attestors.net.strict_yaml import YamlRefused, load_strict_yaml
from signer.model.addresses import MAXIMUM_NAME_CHARACTERS, canonical
from signer.model.fields import items_of, mapping_of, text_of

MAXIMUM_STATED_NAMES: Final = 256
MAXIMUM_CONFIGURATION_BYTES: Final = 64 * 1024
"""kubeadm's own have one to three kilobytes."""
_MAXIMUM_ENDPOINT_CHARACTERS: Final = MAXIMUM_NAME_CHARACTERS + len("[]:65535")


class UnreadableConfiguration(ValueError):
    """A ConfigMap holds no ClusterConfiguration that can be read; the message contains nothing of it."""


@dataclass(frozen=True, slots=True)
class StatedNames:
    """DNS names, wildcards and IP addresses, in canonical form."""

    names: frozenset[str]
    left_out: int = 0
    """Entries that are no name, or beyond :data:`MAXIMUM_STATED_NAMES`."""


def names_in_control_plane(manifest: Mapping[str, Any]) -> StatedNames:
    """Read a KubeadmControlPlane of either version."""
    spec = mapping_of(mapping_of(manifest, "spec"), "kubeadmConfigSpec")
    return _names_in(mapping_of(spec, "clusterConfiguration"))


def names_in_config_map(manifest: Mapping[str, Any]) -> StatedNames:
    """Read ConfigMap ``kubeadm-config``.

    Raises:
        UnreadableConfiguration: it has no ClusterConfiguration, a too long one, or one that is no strict YAML.
    """
    text = text_of(mapping_of(manifest, "data"), "ClusterConfiguration")
    if not text:
        raise UnreadableConfiguration("it has no data.ClusterConfiguration")
    if len(text) > MAXIMUM_CONFIGURATION_BYTES:
        raise UnreadableConfiguration(f"data.ClusterConfiguration is longer than {MAXIMUM_CONFIGURATION_BYTES} bytes")
    try:
        configuration = load_strict_yaml(text.encode("utf-8"))
    except (YamlRefused, UnicodeEncodeError) as error:
        why = error if isinstance(error, YamlRefused) else "it is not UTF-8"
        raise UnreadableConfiguration(f"data.ClusterConfiguration cannot be read: {why}") from None
    if not isinstance(configuration, Mapping):
        raise UnreadableConfiguration("data.ClusterConfiguration is not a mapping")
    return _names_in(configuration)


def _names_in(configuration: Mapping[str, Any]) -> StatedNames:
    written = items_of(mapping_of(configuration, "apiServer"), "certSANs")
    texts = [
        one
        for one in written[:MAXIMUM_STATED_NAMES]
        if isinstance(one, str) and 0 < len(one) <= MAXIMUM_NAME_CHARACTERS
    ]
    names = set(map(canonical, texts))
    left_out = len(written) - len(texts)
    endpoint = text_of(configuration, "controlPlaneEndpoint")
    if 0 < len(endpoint) <= _MAXIMUM_ENDPOINT_CHARACTERS:
        names.add(canonical(endpoint))
    elif endpoint:
        left_out += 1
    return StatedNames(frozenset(names), left_out)
