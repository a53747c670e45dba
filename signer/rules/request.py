"""Checks of the request alone: shape, requester, attestor. No network, cheapest first; each raises or returns None.

Sources: ``pkg/apis/certificates/helpers.go`` (ValidateKubeletClientCSR, ValidateKubeletServingCSR) for the shape that
Kubernetes itself demands; the rest is stricter, because the raw request may hold what Go's parsed view hides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from attestors.contract import AttestorDescription, Security
from attestors.wire import provider_id as provider_id_format
from attestors.wire.names import (
    BOOTSTRAP_USER_PREFIX,
    BOOTSTRAPPERS_GROUP,
    NODE_USER_PREFIX,
    NODES_GROUP,
    SUPPORTED_VERSIONS_ANNOTATION,
    Purpose,
)
from attestors.wire.provider_id import InvalidProviderID
from signer.model.certificate_request import (
    AUTHORITY_EXTENSIONS,
    COMMON_NAME,
    EXTENSION_REQUEST,
    KNOWN_EXTENSIONS,
    ORGANIZATION,
    SUBJECT_ALTERNATIVE_NAME,
    SelfSignature,
)
from signer.model.cluster import ClusterView
from signer.model.decision import Deferred, Refused
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.requested_key import (
    KeyKind,
)
from signer.model.signing_request import SigningRequest, StockServingRequest
from signer.rules.node_name import is_node_name

MINIMUM_RSA_BITS: Final = 2048
MAXIMUM_RSA_BITS: Final = 8192
MINIMUM_RSA_EXPONENT: Final = 65537
ALLOWED_CURVES: Final = frozenset({"secp256r1", "secp384r1", "secp521r1"})
ALLOWED_SIGNATURE_HASHES: Final = frozenset({"sha256", "sha384", "sha512"})

_NODE_ATTRIBUTES: Final = sorted((COMMON_NAME, ORGANIZATION))
_BOOTSTRAP_TOKEN_ID: Final = re.compile(r"[a-z0-9]{6}")
_KEY_ENCIPHERMENT: Final = "key encipherment"
_USAGES: Final = {
    Purpose.CLIENT: frozenset({"digital signature", "client auth"}),
    Purpose.SERVING: frozenset({"digital signature", "server auth"}),
}


ShapedRequest: TypeAlias = SigningRequest | StockServingRequest
"""What is judged by its shape: a request to one of our signers, or a kubelet's own to the stock serving signer."""


class ClusterFacts(Protocol):
    """What the checks of the cluster itself look at."""

    @property
    def cluster(self) -> ClusterView:
        """The cluster that the request was posted in."""
        ...


class ShapeFacts(ClusterFacts, Protocol):
    """What the checks of a request's shape look at, whoever will sign it."""

    @property
    def request(self) -> ShapedRequest:
        """The request."""
        ...


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Everything that the checks of the request alone look at."""

    request: SigningRequest
    cluster: ClusterView
    policy: Policy
    attestor: AttestorDescription
    insecure_allowed: bool
    """Whether the controller's flag and its list of namespaces both allow the insecure attestor here."""
    operator_allows: bool
    """Whether the controller's configuration allows this attestor in the cluster's namespace."""
    ca_cert_hashes: frozenset[str]
    """Hashes of the CAs whose key we hold for this cluster, and of those that they chain to."""


def node_name_of(request: ShapedRequest) -> str:
    """The node name in the subject's common name; only after :func:`subject_is_a_node` has passed."""
    for relative_name in request.certificate_request.subject:
        for attribute in relative_name:
            if attribute.oid == COMMON_NAME:
                return attribute.value.removeprefix(NODE_USER_PREFIX)
    raise Refused(Reason.INVALID_SUBJECT, "the subject has no common name")


def facts_belong_together(facts: RequestFacts) -> None:
    """The policy is the Cluster's and the attestor the signer's; a defect of ours otherwise."""
    if facts.policy.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"judged by the policy of Cluster {facts.policy.cluster}")
    if facts.attestor.provider != facts.request.envelope.signer.provider:
        raise Deferred(Reason.INTERNAL_ERROR, f"judged by attestor {facts.attestor.provider}")


def cluster_is_not_paused(facts: ClusterFacts) -> None:
    """A paused Cluster is being moved: two management clusters must not sign at once."""
    if facts.cluster.paused:
        raise Deferred(Reason.CLUSTER_PAUSED, f"Cluster {facts.cluster.key} is paused")


def cluster_is_not_deleting(facts: ClusterFacts) -> None:
    """A Cluster that is going gets no further certificate; one that is moved away is somebody else's from now on."""
    if facts.cluster.deleting_for_move:
        raise Deferred(Reason.CLUSTER_PAUSED, f"Cluster {facts.cluster.key} is being moved")
    if facts.cluster.deleting:
        raise Refused(Reason.CLUSTER_DELETING, f"Cluster {facts.cluster.key} is being deleted")


def requester_may_ask(facts: ShapeFacts) -> None:
    """A bootstrap token of the bootstrappers' group, for client certificates; or a node. Nobody else."""
    envelope = facts.request.envelope
    username, groups = envelope.username, envelope.groups
    if username.startswith(NODE_USER_PREFIX) and NODES_GROUP in groups:
        return
    if (
        envelope.signer.purpose is Purpose.CLIENT
        and username.startswith(BOOTSTRAP_USER_PREFIX)
        and _BOOTSTRAP_TOKEN_ID.fullmatch(username.removeprefix(BOOTSTRAP_USER_PREFIX))
        and BOOTSTRAPPERS_GROUP in groups
    ):
        return
    wanted = (
        f"{NODE_USER_PREFIX}<name> in {NODES_GROUP}"
        if envelope.signer.purpose is Purpose.SERVING
        else f"{BOOTSTRAP_USER_PREFIX}<token id> in {BOOTSTRAPPERS_GROUP}, or {NODE_USER_PREFIX}<name> in {NODES_GROUP}"
    )
    raise Refused(Reason.REQUESTER_NOT_ALLOWED, f"requested by {username}; only {wanted} may ask")


def provider_is_the_signers(facts: RequestFacts) -> None:
    """The provider block and the signer name say the same."""
    provider = facts.request.envelope.signer.provider
    if facts.request.provider != provider:
        raise Refused(
            Reason.PROVIDER_MISMATCH, f"the provider block says {facts.request.provider}, the signer name {provider}"
        )


def attestor_is_authorized(facts: RequestFacts) -> None:
    """The cluster's policy names the attestor; an insecure one needs the controller's consent besides."""
    provider = facts.attestor.provider
    policy_names_the_attestor(facts.policy, provider)
    if not facts.operator_allows:
        raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, not_allowed(provider, facts.cluster.key.namespace))
    if facts.attestor.security is Security.INSECURE and not facts.insecure_allowed:
        raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, insecure_not_allowed(provider, facts.cluster.key.namespace))


def not_allowed(provider: str, namespace: str) -> str:
    """What a person is told, who may be a tenant; the operator decides."""
    return (
        f"this controller does not allow attestor {provider} in namespace {namespace}: its configuration file says "
        f"where, in attestors.{provider}.namespaces"
    )


def insecure_not_allowed(provider: str, namespace: str) -> str:
    """The same, where flags decide."""
    return (
        f"attestor {provider} is insecure, and this controller does not allow it in namespace {namespace}: see its "
        "flags --enable-insecure-attestor and --insecure-attestor-namespaces"
    )


def policy_names_the_attestor(policy: Policy, provider: str) -> None:
    """What a policy does not name is not even loaded.

    Raises:
        Refused: the policy does not authorize it.
    """
    if provider not in {attestor.provider for attestor in policy.authorized_attestors}:
        raise Refused(
            Reason.ATTESTOR_NOT_AUTHORIZED,
            f"NodeAttestationPolicy {policy.cluster} does not authorize attestor {provider}",
        )


def attestor_supports_the_purpose(facts: RequestFacts) -> None:
    """Insecure attestors neither serve nor renew (proposal, "Insecure providers")."""
    envelope = facts.request.envelope
    if envelope.signer.purpose is Purpose.SERVING and not facts.attestor.serves:
        raise Refused(Reason.SERVING_NOT_SUPPORTED, f"attestor {facts.attestor.provider} signs no serving certificates")
    if envelope.username.startswith(NODE_USER_PREFIX) and not facts.attestor.renews:
        raise Refused(
            Reason.RENEWAL_NOT_SUPPORTED,
            f"attestor {facts.attestor.provider} does not renew: the node joins again with a new bootstrap token",
        )


def version_is_supported(facts: RequestFacts) -> None:
    """The attestor reads this evidence version; if not, the node is told which it reads."""
    if facts.request.evidence.version not in facts.attestor.evidence_versions:
        raise unsupported_version(facts.attestor)


def unsupported_version(attestor: AttestorDescription) -> Refused:
    """The denial that lists the versions which ``attestor`` reads, for the node to file again."""
    supported = ",".join(attestor.evidence_versions)
    return Refused(
        Reason.UNSUPPORTED_VERSION,
        f"the evidence version is not supported; attestor {attestor.provider} reads {supported}",
        {SUPPORTED_VERSIONS_ANNOTATION: supported},
    )


def subject_is_a_node(facts: ShapeFacts) -> None:
    """Exactly ``O=system:nodes`` and ``CN=system:node:<name>``, each once, in relative names of their own."""
    subject = facts.request.certificate_request.subject
    if any(len(relative_name) != 1 for relative_name in subject):
        raise Refused(Reason.INVALID_SUBJECT, "the subject has a multi-valued relative distinguished name")
    values = [(attribute.oid, attribute.value) for relative_name in subject for attribute in relative_name]
    if sorted(oid for oid, _ in values) != _NODE_ATTRIBUTES:
        raise Refused(Reason.INVALID_SUBJECT, "the subject must hold one common name, one organization, nothing else")
    if (ORGANIZATION, NODES_GROUP) not in values:
        raise Refused(Reason.INVALID_SUBJECT, f"the subject's organization is not {NODES_GROUP}")
    common_name = dict(values)[COMMON_NAME]
    if not common_name.startswith(NODE_USER_PREFIX) or not is_node_name(common_name.removeprefix(NODE_USER_PREFIX)):
        raise Refused(Reason.INVALID_SUBJECT, f"the subject's common name is not {NODE_USER_PREFIX}<node name>")


def requester_is_the_node(facts: ShapeFacts) -> None:
    """A node asks for itself; the API server checks that for the signers of kubernetes.io only."""
    username = facts.request.envelope.username
    common_name = NODE_USER_PREFIX + node_name_of(facts.request)
    if username.startswith(NODE_USER_PREFIX) and username != common_name:
        raise Refused(Reason.REQUESTER_NOT_ALLOWED, f"{username} asks for a certificate of {common_name}")


def attributes_are_known(facts: ShapeFacts) -> None:
    """Only the extension request: anything else in PKCS#10 attributes would go unjudged."""
    if set(facts.request.certificate_request.attributes) - {EXTENSION_REQUEST}:
        raise Refused(Reason.FORBIDDEN_EXTENSION, "the request has PKCS#10 attributes beside the extension request")


def extensions_are_harmless(facts: ShapeFacts) -> None:
    """Nothing that makes an authority, nothing critical that we do not know; the rest is dropped when signing."""
    request = facts.request.certificate_request
    if request.asks_to_be_authority:
        raise Refused(Reason.FORBIDDEN_EXTENSION, "the request asks to become a certificate authority")
    for extension in request.extensions:
        if extension.oid in AUTHORITY_EXTENSIONS:
            raise Refused(Reason.FORBIDDEN_EXTENSION, f"extension {extension.oid} is for authorities only")
        if extension.critical and extension.oid not in KNOWN_EXTENSIONS | {request.provider_id_oid}:
            raise Refused(Reason.FORBIDDEN_EXTENSION, f"critical extension {extension.oid} is unknown")


def alternative_names_fit_the_purpose(facts: ShapeFacts) -> None:
    """None in client certificates; DNS names and IP addresses, at least one, in serving certificates."""
    request = facts.request.certificate_request
    if request.other_name_kinds:
        raise Refused(
            Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES,
            f"subject alternative names may be DNS names and IP addresses only, not {request.other_name_kinds[0]}",
        )
    has_names = any(extension.oid == SUBJECT_ALTERNATIVE_NAME for extension in request.extensions)
    if facts.request.envelope.signer.purpose is Purpose.CLIENT and has_names:
        raise Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, "a client certificate has no alternative names")
    if facts.request.envelope.signer.purpose is Purpose.SERVING and not (request.dns_names or request.ip_addresses):
        raise Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, "a serving certificate needs an alternative name")


def usages_fit_the_purpose(facts: ShapeFacts) -> None:
    """Digital signature and client or server auth, each once; key encipherment may come with them."""
    envelope = facts.request.envelope
    asked = frozenset(envelope.usages)
    if asked - {_KEY_ENCIPHERMENT} != _USAGES[envelope.signer.purpose] or len(asked) != len(envelope.usages):
        raise Refused(
            Reason.INVALID_USAGES,
            f"usages must be {usages_of(envelope.signer.purpose)}, with or without {_KEY_ENCIPHERMENT}",
        )


def usages_of(purpose: Purpose) -> str:
    """The usages that a certificate for that purpose must have, for a message."""
    return ", ".join(sorted(_USAGES[purpose]))


def key_is_acceptable(facts: ShapeFacts) -> None:
    """RSA of 2048 to 8192 bits with an ordinary exponent, or ECDSA on P-256, P-384 or P-521."""
    key = facts.request.certificate_request.key
    if key.kind is KeyKind.RSA:
        if not MINIMUM_RSA_BITS <= key.bits <= MAXIMUM_RSA_BITS:
            raise Refused(
                Reason.UNACCEPTABLE_KEY,
                f"an RSA key must have {MINIMUM_RSA_BITS} to {MAXIMUM_RSA_BITS} bits, not {key.bits}",
            )
        if key.exponent < MINIMUM_RSA_EXPONENT or key.exponent % 2 == 0 or key.exponent.bit_length() > 32:
            raise Refused(Reason.UNACCEPTABLE_KEY, "the RSA key's public exponent is not an ordinary one")
    elif key.kind is not KeyKind.ECDSA or key.curve not in ALLOWED_CURVES:
        raise Refused(Reason.UNACCEPTABLE_KEY, "the key is neither RSA nor ECDSA on P-256, P-384 or P-521")


def provider_id_is_well_formed(facts: RequestFacts) -> None:
    """The provider-ID extension is there and holds one."""
    claimed_provider_id(facts.request)


def claimed_provider_id(request: SigningRequest) -> str:
    """The provider ID in the request's extension: a claim.

    Raises:
        Refused: there is none, or it is not a provider ID.
    """
    certificate_request = request.certificate_request
    if not certificate_request.provider_id:
        raise Refused(
            Reason.INVALID_PROVIDER_ID,
            f"the request has no provider-ID extension ({certificate_request.provider_id_oid})",
        )
    try:
        return provider_id_format.decode(certificate_request.provider_id)
    except InvalidProviderID as error:
        raise Refused(Reason.INVALID_PROVIDER_ID, f"provider-ID extension: {error}") from error


def evidence_names_this_cluster(facts: RequestFacts) -> None:
    """The CA that the node believes in is one whose key we hold, or one that such a CA chains to."""
    if not facts.ca_cert_hashes:
        raise Deferred(
            Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, f"no CA of Cluster {facts.cluster.key} is known here yet"
        )
    if facts.request.evidence.cluster.text not in facts.ca_cert_hashes:
        raise Refused(
            Reason.CLUSTER_MISMATCH,
            f"the evidence was made for another cluster than {facts.cluster.key}: its CA differs",
        )


def self_signature_verifies(facts: ShapeFacts) -> None:
    """The requester holds the private key, and signed with a hash that still means something."""
    request = facts.request.certificate_request
    if request.signature_hash not in ALLOWED_SIGNATURE_HASHES:
        raise Refused(Reason.INVALID_SIGNATURE, "the request must be signed with SHA-256, SHA-384 or SHA-512")
    if request.signature_is_valid() is not SelfSignature.VALID:
        raise Refused(Reason.INVALID_SIGNATURE, "the request's signature does not verify with its own key")
