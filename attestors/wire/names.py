"""Names that travel between node, workload API server and controller.

Sources: the Cluster API kubelet authentication proposal (20210222), with the corrections that API servers require: a
signer name's domain needs two dot-separated labels (``ValidateSignerName`` in ``pkg/apis/core/validation/names.go``),
so the proposal's dashed ``cluster-x-k8s-io/`` signers are invalid.
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
"""The label of the data block in the proposal's own example; read, never written."""

PROVIDER_ID_OID: Final = "1.3.6.1.4.1.11129.2.1.21"
"""KubernetesNodeProviderIdentifierOID: Google's arc, as the proposal suggests until one is assigned to Kubernetes.

This is the default; nodes and controllers can be configured with another.
"""

SSH_HOST_KEYS_OID: Final = "1.2.840.113556.1.8000.2554.59153.820.27525.19743.47467.10575021.1254978"
"""The CSR extension with a node's SSH host keys. The default, as above.

Made from the UUID e7110334-6b85-4d1f-b96b-a15cad132642 in Microsoft's arc for that purpose. Under 2.25, the arc
of X.667, a UUID is one number, and no API server reads it.
"""

ENTRY_POINT_GROUP: Final = "node_attestation.attestors"

CREDENTIAL_ID_KEY: Final = "authentication.kubernetes.io/credential-id"
"""Key in a CSR's ``spec.extra`` from Kubernetes 1.32 on: the credential that the requester authenticated with
(``CredentialIDKey`` in ``staging/src/k8s.io/apiserver/pkg/authentication/user``)."""
CERTIFICATE_CREDENTIAL_PREFIX: Final = "X509SHA256="
"""Prefix of the SHA-256 of a client certificate's DER, in lower-case hexadecimal
(``staging/src/k8s.io/apiserver/pkg/authentication/request/x509``)."""

ANNOTATION_PREFIX: Final = "attestation.cluster.x-k8s.io"
CHALLENGE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/challenge"
APPROVAL_SEAL_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/approval-seal"
"""Written with the controller's approval: proves to the controller, and to nobody else, that it approved this CSR."""
SUPPORTED_VERSIONS_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/supported-evidence-versions"
ENDORSEMENT_KEY_ANNOTATION: Final = "cluster-x-k8s-io/tpm-endorsement-key"
"""Only the controller writes it, after it resolved the key itself; a value that a requester set means nothing."""
ENDORSEMENT_KEY_SOURCE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/tpm-endorsement-key-source"
"""Written with it: the source that assigned the key to the machine."""
CHIP_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/tpm-chip"
"""Written with it: the chip that the key's certificate names, or ``CHIP_NOT_NAMED``."""
CHIP_NOT_NAMED: Final = "NotNamed"
"""Nothing ties the key to other keys of its chip."""

EVIDENCE_EXPIRED: Final = "EvidenceExpired"
"""Denial reason, for any attestor, of evidence that was valid earlier: the node retries with new evidence."""
CHALLENGE_EXPIRED: Final = "ChallengeExpired"
"""The same of an answer to a challenge that comes too late: the node asks for another challenge."""
CHALLENGE_OF_ANOTHER_CLUSTER: Final = "ChallengeOfAnotherCluster"
"""The same of an answer to a challenge for another Cluster object, or for this one before it was created again."""
NODE_STARTS_AGAIN: Final = frozenset({EVIDENCE_EXPIRED, CHALLENGE_EXPIRED, CHALLENGE_OF_ANOTHER_CLUSTER})
"""After these denials the node asks again at once, with a new key."""

EVIDENCE_VERSION: Final = "v1"
"""The newest evidence version; nodes try it first."""

ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/tpm-endorsement-key"
"""On a Machine: the endorsement key of its TPM, written by the hardware's administrator."""

MAXIMUM_REQUEST_BYTES: Final = 64 * 1024
MAXIMUM_CERTIFICATE_REQUEST_BYTES: Final = 8 * 1024
"""In DER. RSA-8192, the longest names and dozens of addresses take half of it; the worst case decodes in 2 ms."""
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
    """One of this project's signer names, parsed."""

    purpose: Purpose
    provider: str

    def __post_init__(self) -> None:
        check_provider_name(self.provider)

    def __str__(self) -> str:
        prefix = CLIENT_SIGNER_PREFIX if self.purpose is Purpose.CLIENT else SERVING_SIGNER_PREFIX
        return prefix + self.provider


class BuiltinSigner(enum.Enum):
    """The built-in kubelet signers; kube-controller-manager signs for them (``api/certificates/v1/types.go``)."""

    KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
    KUBELET_SERVING = "kubernetes.io/kubelet-serving"

    @property
    def purpose(self) -> Purpose:
        """The purpose of its certificates."""
        return Purpose.SERVING if self is BuiltinSigner.KUBELET_SERVING else Purpose.CLIENT

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class ForeignSigner:
    """A signer name outside this project; another signer handles the request."""

    name: str


def check_provider_name(provider: str) -> str:
    """Return ``provider`` if it is valid within a signer name.

    It is one DNS-1123 label of at most 40 characters, so that both signer names are valid on every API server.

    Raises:
        InvalidProviderName: anything else.
    """
    if not _PROVIDER_NAME.fullmatch(provider):
        raise InvalidProviderName(
            "a provider name is 1 to 40 lower-case letters, digits and dashes, with a letter or digit at both ends"
        )
    return provider


def parse_signer_name(name: str) -> SignerName | ForeignSigner:
    """Parse ``spec.signerName``.

    A name with our prefix whose rest is not a provider name is foreign too.
    """
    for prefix, purpose in ((CLIENT_SIGNER_PREFIX, Purpose.CLIENT), (SERVING_SIGNER_PREFIX, Purpose.SERVING)):
        if name.startswith(prefix):
            try:
                return SignerName(purpose, name.removeprefix(prefix))
            except InvalidProviderName:
                break
    return ForeignSigner(name)
