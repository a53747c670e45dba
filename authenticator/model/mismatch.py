"""What the stored client certificate was issued for, compared with the configuration.

A host name changes after a reboot or when a resolver begins to answer with domains; images and templates change
settings. The certificate stays what it was, and the kubelet would act with it as another node, or not at all.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from attestors.wire.names import Purpose, SignerName
from authenticator.model.answer import printable
from authenticator.model.certificate import is_of_node, node_name_of
from authenticator.model.cluster import Cluster
from authenticator.model.pair import Pair

_MAXIMUM_NAME_CHARACTERS: Final = 253


class Property(enum.Enum):
    """What may differ."""

    NODE_NAME = "nodeName"
    PROVIDER_ID = "providerID"
    SIGNER = "signerName"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The certificate was issued for something else than is configured."""

    property: Property
    stored: str
    configured: str
    advice: str
    """What follows for the kubelet and the renewal, and the cure."""

    def __str__(self) -> str:
        return f"the stored certificate is of {self.property.value} {self.stored}, not {self.configured}: {self.advice}"


@dataclass(frozen=True, slots=True)
class Issued:
    """What a client certificate was issued for, beside its name. Empty texts are unknown, as of earlier versions."""

    cluster: Cluster
    provider: str
    provider_id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the next certificate is requested for. Empty texts and None are unknown."""

    node_name: str
    provider: str
    provider_id: str
    cluster: Cluster | None
    bootstrap_kubeconfig: str
    """Where a new bootstrap kubeconfig is expected."""


def mismatches(pair: Pair, issued: Issued | None, wanted: Wanted) -> tuple[Mismatch, ...]:
    """In which properties the stored certificate is not the wanted one.

    Raises:
        UnusableCertificate: the certificate is unreadable.
    """
    found = []
    if not is_of_node(pair, wanted.node_name):
        found.append(_of_another_node(node_name_of(pair), wanted))
    if issued is None:
        return tuple(found)
    if issued.provider_id and wanted.provider_id and issued.provider_id != wanted.provider_id:
        advice = (
            "the renewal claims the latter, and is denied unless the evidence proves it and the node's Machine has it; "
            "without a renewal, the kubelet uses this certificate until it expires"
        )
        found.append(Mismatch(Property.PROVIDER_ID, issued.provider_id, wanted.provider_id, advice))
    if issued.provider and wanted.provider and issued.provider != wanted.provider:
        stored, configured = (str(SignerName(Purpose.CLIENT, one)) for one in (issued.provider, wanted.provider))
        advice = "the renewal goes to the latter, whose attestor the cluster's policy must authorize"
        found.append(Mismatch(Property.SIGNER, stored, configured, advice))
    if wanted.cluster is not None and not issued.cluster.shares_authority_with(wanted.cluster):
        advice = (
            "the two have no CA in common, so the latter accepts neither the certificate nor its renewal; supply its "
            f"bootstrap kubeconfig as {wanted.bootstrap_kubeconfig}"
        )
        found.append(Mismatch(Property.CLUSTER, issued.cluster.server, wanted.cluster.server, advice))
    return tuple(found)


def _of_another_node(stored: str, wanted: Wanted) -> Mismatch:
    shown = printable(stored, _MAXIMUM_NAME_CHARACTERS)
    advice = (
        f"the API server takes the kubelet for {shown}, whatever it calls itself, and the certificate is not renewed, "
        f"because a node may only renew its own. If {shown} is right, set nodeName to it, or correct the host's name. "
        f"If {wanted.node_name} is right, supply a new bootstrap kubeconfig as {wanted.bootstrap_kubeconfig}"
    )
    return Mismatch(Property.NODE_NAME, shown, wanted.node_name, advice)
