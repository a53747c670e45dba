"""Checks of the cluster, the requester and the shape of a request, for every signer. Each raises or returns None.

Sources: ``pkg/apis/certificates/helpers.go`` (ValidateKubeletClientCSR, ValidateKubeletServingCSR) for the shape that
Kubernetes requires. The rest is stricter, because the raw request may hold data that Go's parsed view hides.
"""

from __future__ import annotations

import re
from typing import Final, Protocol, TypeAlias

from attestors.wire.names import BOOTSTRAP_USER_PREFIX, BOOTSTRAPPERS_GROUP, NODE_USER_PREFIX, NODES_GROUP, Purpose
from signer.model.certificate_request import (
    AUTHORITY_EXTENSIONS,
    COMMON_NAME,
    EXTENSION_REQUEST,
    KNOWN_EXTENSIONS,
    ORGANIZATION,
    SUBJECT_ALTERNATIVE_NAME,
    KeyKind,
    SelfSignature,
)
from signer.model.cluster import ClusterView
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.signing_request import BuiltinServingRequest, SigningRequest
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


ShapedRequest: TypeAlias = SigningRequest | BuiltinServingRequest
"""A request to one of our signers, or a kubelet's own request to the built-in serving signer."""


class ClusterFacts(Protocol):
    """The input of the checks of the cluster itself."""

    @property
    def cluster(self) -> ClusterView:
        """The cluster that the request was posted in."""
        ...


class ShapeFacts(ClusterFacts, Protocol):
    """The input of the checks of a request's shape, for every signer."""

    @property
    def request(self) -> ShapedRequest:
        """The request."""
        ...


def node_name_of(request: ShapedRequest) -> str:
    """The node name in the subject's common name. Call it only after :func:`subject_is_a_node` has passed.

    Raises:
        Refused: the subject has no common name.
    """
    for relative_name in request.certificate_request.subject:
        for attribute in relative_name:
            if attribute.oid == COMMON_NAME:
                return attribute.value.removeprefix(NODE_USER_PREFIX)
    raise Refused(Reason.INVALID_SUBJECT, "the subject has no common name")


def cluster_is_not_paused(facts: ClusterFacts) -> None:
    """The Cluster is not paused. It may be moving, and two management clusters must not sign at once."""
    if facts.cluster.paused:
        raise Deferred(Reason.CLUSTER_PAUSED, f"Cluster {facts.cluster.key} is paused")


def cluster_is_not_moving(facts: ClusterFacts) -> None:
    """The Cluster is not being moved to another management cluster, which deletes it here."""
    if facts.cluster.deleting_for_move:
        raise Deferred(Reason.CLUSTER_PAUSED, f"Cluster {facts.cluster.key} is being moved")


def requester_may_ask(facts: ShapeFacts) -> None:
    """The requester is a node, or for client certificates a bootstrap token in the bootstrappers group."""
    header = facts.request.header
    username, groups = header.username, header.groups
    if username.startswith(NODE_USER_PREFIX) and NODES_GROUP in groups:
        return
    if (
        header.signer.purpose is Purpose.CLIENT
        and username.startswith(BOOTSTRAP_USER_PREFIX)
        and _BOOTSTRAP_TOKEN_ID.fullmatch(username.removeprefix(BOOTSTRAP_USER_PREFIX))
        and BOOTSTRAPPERS_GROUP in groups
    ):
        return
    wanted = (
        f"{NODE_USER_PREFIX}<name> in {NODES_GROUP}"
        if header.signer.purpose is Purpose.SERVING
        else f"{BOOTSTRAP_USER_PREFIX}<token id> in {BOOTSTRAPPERS_GROUP}, or {NODE_USER_PREFIX}<name> in {NODES_GROUP}"
    )
    raise Refused(Reason.REQUESTER_NOT_ALLOWED, f"requested by {username}; the requester must be {wanted}")


def subject_is_a_node(facts: ShapeFacts) -> None:
    """The subject is ``O=system:nodes`` and ``CN=system:node:<name>``, each once and in its own relative name."""
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
    """A node requests only its own certificate. The API server checks that for the signers of kubernetes.io only."""
    username = facts.request.header.username
    common_name = NODE_USER_PREFIX + node_name_of(facts.request)
    if username.startswith(NODE_USER_PREFIX) and username != common_name:
        raise Refused(Reason.REQUESTER_NOT_ALLOWED, f"{username} requests a certificate for {common_name}")


def attributes_are_known(facts: ShapeFacts) -> None:
    """The only PKCS#10 attribute is the extension request: no check reads any other."""
    if set(facts.request.certificate_request.attributes) - {EXTENSION_REQUEST}:
        raise Refused(Reason.FORBIDDEN_EXTENSION, "the request has PKCS#10 attributes beside the extension request")


def extensions_are_harmless(facts: ShapeFacts) -> None:
    """There is no CA extension and no unknown critical extension. Other extensions are dropped when signing."""
    request = facts.request.certificate_request
    if request.asks_to_be_authority:
        raise Refused(Reason.FORBIDDEN_EXTENSION, "the request asks to become a certificate authority")
    for extension in request.extensions:
        if extension.oid in AUTHORITY_EXTENSIONS:
            raise Refused(Reason.FORBIDDEN_EXTENSION, f"extension {extension.oid} is for authorities only")
        if extension.critical and extension.oid not in KNOWN_EXTENSIONS.union(request.provider_id_oids):
            raise Refused(Reason.FORBIDDEN_EXTENSION, f"critical extension {extension.oid} is unknown")


def alternative_names_fit_the_purpose(facts: ShapeFacts) -> None:
    """A client certificate has no alternative names; a serving certificate has at least one DNS name or IP address."""
    request = facts.request.certificate_request
    if request.other_name_kinds:
        raise Refused(
            Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES,
            f"subject alternative names may be DNS names and IP addresses only, not {request.other_name_kinds[0]}",
        )
    has_names = any(extension.oid == SUBJECT_ALTERNATIVE_NAME for extension in request.extensions)
    if facts.request.header.signer.purpose is Purpose.CLIENT and has_names:
        raise Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, "a client certificate has no alternative names")
    if facts.request.header.signer.purpose is Purpose.SERVING and not (request.dns_names or request.ip_addresses):
        raise Refused(Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES, "a serving certificate needs an alternative name")


def usages_fit_the_purpose(facts: ShapeFacts) -> None:
    """The usages are digital signature and client or server auth, each once, optionally with key encipherment."""
    header = facts.request.header
    asked = frozenset(header.usages)
    if asked - {_KEY_ENCIPHERMENT} != _USAGES[header.signer.purpose] or len(asked) != len(header.usages):
        raise Refused(
            Reason.INVALID_USAGES,
            f"usages must be {usages_of(header.signer.purpose)}, with or without {_KEY_ENCIPHERMENT}",
        )


def usages_of(purpose: Purpose) -> str:
    """The usages that a certificate for that purpose must have, as text for a message."""
    return ", ".join(sorted(_USAGES[purpose]))


def key_is_acceptable(facts: ShapeFacts) -> None:
    """The key is RSA of 2048 to 8192 bits, or ECDSA on P-256, P-384 or P-521. An RSA exponent is odd, from 65537 up,
    and at most 32 bits.
    """
    key = facts.request.certificate_request.key
    if key.kind is KeyKind.RSA:
        if not MINIMUM_RSA_BITS <= key.bits <= MAXIMUM_RSA_BITS:
            raise Refused(
                Reason.UNACCEPTABLE_KEY,
                f"an RSA key must have {MINIMUM_RSA_BITS} to {MAXIMUM_RSA_BITS} bits, not {key.bits}",
            )
        if key.exponent < MINIMUM_RSA_EXPONENT or key.exponent % 2 == 0 or key.exponent.bit_length() > 32:
            raise Refused(
                Reason.UNACCEPTABLE_KEY,
                f"the RSA key's public exponent must be odd, at least {MINIMUM_RSA_EXPONENT}, and at most 32 bits",
            )
    elif key.kind is not KeyKind.ECDSA or key.curve not in ALLOWED_CURVES:
        raise Refused(Reason.UNACCEPTABLE_KEY, "the key is neither RSA nor ECDSA on P-256, P-384 or P-521")


def self_signature_verifies(facts: ShapeFacts) -> None:
    """The request is signed with its own key and a secure hash: the requester has the private key."""
    request = facts.request.certificate_request
    if request.signature_hash not in ALLOWED_SIGNATURE_HASHES:
        raise Refused(Reason.INVALID_SIGNATURE, "the request must be signed with SHA-256, SHA-384 or SHA-512")
    if request.signature_is_valid() is not SelfSignature.VALID:
        raise Refused(Reason.INVALID_SIGNATURE, "the request's signature does not verify with its own key")
