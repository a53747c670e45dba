"""The provider ``pod``, and its settings."""

from __future__ import annotations

import re
from typing import Any, Final

from node_access.bastions.contract import (
    InvalidSettings,
    NoKubernetes,
    Place,
    ProviderUnavailable,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.fields import mapping, networks, require_known, switch, text
from node_access.bastions.pod.objects import PodSettings
from node_access.bastions.pod.resources import PodBastions

_KNOWN: Final = frozenset(
    {"namespace", "image", "sshd", "ipv6", "nodePorts", "egress", "serviceAnnotations", "nodeSelector"}
)
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,510}", re.ASCII)
_PATH: Final = re.compile(r"/[A-Za-z0-9._/-]{1,200}", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?", re.ASCII)
_VALUE: Final = re.compile(r"[ -~]{0,1024}", re.ASCII)
_OWN_PREFIX: Final = "access.cluster.x-k8s.io/"


class PodProvider:
    """The provider."""

    name: str = "pod"

    def settings(self, documents: SettingsDocuments) -> PodSettings:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        operator = documents.operator
        require_known(operator, _KNOWN, "the operator's settings")
        require_known(documents.policy, frozenset(), "a policy's settings")
        return PodSettings(
            namespace=text(operator, "namespace", _NAMESPACE),
            image=text(operator, "image", _IMAGE),
            sshd=text(operator, "sshd", _PATH, "/usr/sbin/sshd"),
            ipv6=switch(operator, "ipv6", default=False),
            node_ports=switch(operator, "nodePorts", default=False),
            egress=networks(operator, "egress"),
            service_annotations=_pairs(operator, "serviceAnnotations"),
            node_selector=_pairs(operator, "nodeSelector"),
        )

    def place(self, settings: Any) -> Place:
        """See :class:`~node_access.bastions.contract.BastionProvider`: the namespace, in the Bastion's cluster."""
        if not isinstance(settings, PodSettings):
            raise TypeError("settings of another provider")
        return Place((("namespace", settings.namespace),))

    def open(self, settings: Any, surroundings: Surroundings) -> PodBastions:
        """See :class:`~node_access.bastions.contract.BastionProvider`."""
        if not isinstance(settings, PodSettings):
            raise TypeError("settings of another provider")
        if isinstance(surroundings.kubernetes, NoKubernetes):
            raise ProviderUnavailable("the provider pod needs an API server")
        return PodBastions(settings, surroundings, surroundings.kubernetes)


def _pairs(operator: Any, name: str) -> tuple[tuple[str, str], ...]:
    stated = mapping(operator, name)
    for key, value in stated.items():
        if _KEY.fullmatch(key) is None or key.startswith(_OWN_PREFIX):
            raise InvalidSettings(f"{name}: {key[:64]!a} is no key that an operator may set")
        if not isinstance(value, str) or _VALUE.fullmatch(value) is None:
            raise InvalidSettings(f"{name}.{key} must be a text")
    return tuple(sorted(stated.items()))


provider: Final = PodProvider()
