"""Names that travel between node, workload API server and controller.

Sources: the Cluster API kubelet authentication proposal (20210222), with the corrections that API servers force: a
signer name's domain needs two dot-separated labels (``ValidateSignerName`` in ``pkg/apis/core/validation/names.go``),
so the proposal's dashed ``cluster-x-k8s-io/`` signers cannot exist.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

SIGNER_DOMAIN: Final = "cluster.x-k8s.io"
CLIENT_SIGNER_PREFIX: Final = f"{SIGNER_DOMAIN}/kube-apiserver-client-kubelet-"
SERVING_SIGNER_PREFIX: Final = f"{SIGNER_DOMAIN}/kubelet-serving-"

CERTIFICATE_REQUEST_LABEL: Final = "CERTIFICATE REQUEST"
ATTESTATION_PROVIDER_LABEL: Final = "KUBELET AUTHENTICATOR ATTESTATION PROVIDER"
ATTESTATION_DATA_LABEL: Final = "KUBELET AUTHENTICATOR ATTESTATION DATA"
ATTESTATION_DATA_LABEL_ALIAS: Final = "ATTESTATION DATA"
"""What the proposal's own example calls the data block; read, never written."""

PROVIDER_ID_OID: Final = "1.3.6.1.4.1.11129.2.1.21"
"""KubernetesNodeProviderIdentifierOID: Google's arc, as the proposal suggests until one is assigned to Kubernetes.

A default: nodes and controllers can be told another.
"""

ENTRY_POINT_GROUP: Final = "node_attestation.attestors"

CREDENTIAL_ID_KEY: Final = "authentication.kubernetes.io/credential-id"
"""In a CSR's ``spec.extra`` from Kubernetes 1.32 on: which credential the requester authenticated with
(``CredentialIDKey`` in ``staging/src/k8s.io/apiserver/pkg/authentication/user``)."""
CERTIFICATE_CREDENTIAL_PREFIX: Final = "X509SHA256="
"""Before the SHA-256 of a client certificate's DER, in lower-case hexadecimal
(``staging/src/k8s.io/apiserver/pkg/authentication/request/x509``)."""

ANNOTATION_PREFIX: Final = "attestation.cluster.x-k8s.io"
CHALLENGE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/challenge"
SUPPORTED_VERSIONS_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/supported-evidence-versions"
ENDORSEMENT_KEY_ANNOTATION: Final = "cluster-x-k8s-io/tpm-endorsement-key"
"""Written by the controller alone, after it resolved the key itself; worthless when a requester set it."""
ENDORSEMENT_KEY_SOURCE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/tpm-endorsement-key-source"
"""Written beside it: which source said that the key is that machine's."""

EVIDENCE_EXPIRED: Final = "EvidenceExpired"
"""Reason of a denial, by any attestor, for evidence that was good once: the node asks again with new evidence."""

EVIDENCE_VERSION: Final = "v1"
"""The newest evidence version, which nodes write first."""

ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/tpm-endorsement-key"
"""On a Machine: which TPM is in it, as whoever manages the hardware knows."""

MAXIMUM_REQUEST_BYTES: Final = 64 * 1024
MAXIMUM_CERTIFICATE_REQUEST_BYTES: Final = 8 * 1024
"""Of DER: RSA-8192, the longest names and dozens of addresses take half; to decode the worst takes 2 ms."""
MAXIMUM_PROVIDER_ID_CHARACTERS: Final = 512
"""Cluster API's own bound on ``Machine.spec.providerID``."""

NODE_USER_PREFIX: Final = "system:node:"
NODES_GROUP: Final = "system:nodes"
BOOTSTRAP_USER_PREFIX: Final = "system:bootstrap:"
BOOTSTRAPPERS_GROUP: Final = "system:bootstrappers"

_PROVIDER_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?")


class InvalidProviderName(ValueError):
    """A provider name cannot be part of a signer name."""


class Purpose(enum.Enum):
    """What the requested certificate is for."""

    CLIENT = "client"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class SignerName:
    """One of our signer names, taken apart."""

    purpose: Purpose
    provider: str

    def __post_init__(self) -> None:
        check_provider_name(self.provider)

    def __str__(self) -> str:
        prefix = CLIENT_SIGNER_PREFIX if self.purpose is Purpose.CLIENT else SERVING_SIGNER_PREFIX
        return prefix + self.provider


class BuiltinSigner(enum.Enum):
    """The signers that kubelets ask by themselves; kube-controller-manager signs (``api/certificates/v1/types.go``)."""

    KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
    KUBELET_SERVING = "kubernetes.io/kubelet-serving"

    @property
    def purpose(self) -> Purpose:
        """What its certificates are for."""
        return Purpose.SERVING if self is BuiltinSigner.KUBELET_SERVING else Purpose.CLIENT

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class ForeignSigner:
    """A signer name that is not one of ours; the request belongs to somebody else."""

    name: str


def check_provider_name(provider: str) -> str:
    """Return ``provider`` if it may stand in a signer name.

    One DNS-1123 label of at most 40 characters, so that both signer names stay valid on every API server.

    Raises:
        InvalidProviderName: anything else.
    """
    if not _PROVIDER_NAME.fullmatch(provider):
        raise InvalidProviderName(
            "a provider name is 1 to 40 lower-case letters, digits and dashes, with a letter or digit at both ends"
        )
    return provider


def parse_signer_name(name: str) -> SignerName | ForeignSigner:
    """Take apart ``spec.signerName``.

    A name below our prefix whose rest is no provider name belongs to nobody, so it is foreign too.
    """
    for prefix, purpose in ((CLIENT_SIGNER_PREFIX, Purpose.CLIENT), (SERVING_SIGNER_PREFIX, Purpose.SERVING)):
        if name.startswith(prefix):
            try:
                return SignerName(purpose, name.removeprefix(prefix))
            except InvalidProviderName:
                break
    return ForeignSigner(name)
