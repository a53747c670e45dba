"""Comparisons for the checks of a request alone. Only ``explain`` calls them.

Each function takes the facts of its check, whether that passed or not. None raises for a request that could be read.
"""

from __future__ import annotations

from typing import Final

from attestors.wire.names import BOOTSTRAPPERS_GROUP, NODE_USER_PREFIX, NODES_GROUP, Purpose
from signer.model.certificate_request import (
    COMMON_NAME,
    EXTENSION_REQUEST,
    ORGANIZATION,
    CertificateRequest,
    KeyKind,
    NoProviderID,
    SelfSignature,
)
from signer.model.decision import Refused
from signer.rules.comparison import Comparison, listed
from signer.rules.request import RequestFacts
from signer.rules.shape import ClusterFacts, ShapedRequest, ShapeFacts, node_name_of, usages_of

_SUBJECT_NAMES: Final = {COMMON_NAME: "CN", ORGANIZATION: "O"}
_MINUTES: Final = "%Y-%m-%d %H:%M UTC"


def policy_and_attestor(facts: RequestFacts) -> Comparison:
    """``facts_belong_together``."""
    return Comparison(
        f"policy of {facts.policy.cluster}, attestor {facts.attestor.provider}",
        f"Cluster {facts.cluster.key}, signer {facts.request.header.signer}",
    )


def paused(facts: ClusterFacts) -> Comparison:
    """``cluster_is_not_paused``."""
    return Comparison("paused" if facts.cluster.paused else "not paused", "not paused")


def moving(facts: ClusterFacts) -> Comparison:
    """``cluster_is_not_moving``."""
    return Comparison("being moved" if facts.cluster.deleting_for_move else "not being moved", "not being moved")


def requester(facts: ShapeFacts) -> Comparison:
    """``requester_may_ask``."""
    header = facts.request.header
    wanted = f"{NODE_USER_PREFIX}<name> in {NODES_GROUP}"
    if header.signer.purpose is Purpose.CLIENT:
        wanted = f"system:bootstrap:<token id> in {BOOTSTRAPPERS_GROUP}, or {wanted}"
    return Comparison(f"{header.username} in {listed(sorted(header.groups), 'no group')}", wanted)


def provider(facts: RequestFacts) -> Comparison:
    """``provider_is_the_signers``."""
    return Comparison(facts.request.provider, facts.request.header.signer.provider)


def authorization(facts: RequestFacts) -> Comparison:
    """``attestor_is_authorized``."""
    operator = "" if facts.operator_allows else "; this controller does not allow it in this namespace"
    return Comparison(
        f"{facts.attestor.provider} ({facts.attestor.security.value})",
        f"one of the policy's: {listed(one.provider for one in facts.policy.authorized_attestors)}{operator}",
    )


def purpose(facts: RequestFacts) -> Comparison:
    """``attestor_supports_the_purpose``."""
    header, attestor = facts.request.header, facts.attestor
    requested_by = "a node" if header.username.startswith(NODE_USER_PREFIX) else "a bootstrap token"
    supported = [name for name, does in (("renewal", attestor.renews), ("serving", attestor.serves)) if does]
    return Comparison(
        f"{header.signer.purpose.value} certificate for {requested_by}",
        f"attestor {attestor.provider} supports: {', '.join(['first join', *supported])}",
    )


def version(facts: RequestFacts) -> Comparison:
    """``version_is_supported``."""
    return Comparison(facts.request.evidence.version, f"one of: {listed(facts.attestor.evidence_versions)}")


def subject(facts: ShapeFacts) -> Comparison:
    """``subject_is_a_node``."""
    return Comparison(_subject(facts.request.certificate_request), f"O={NODES_GROUP}, CN={NODE_USER_PREFIX}<node name>")


def asks_for(facts: ShapeFacts) -> Comparison:
    """``requester_is_the_node``."""
    asked = NODE_USER_PREFIX + _node_name(facts.request)
    username = facts.request.header.username
    if username.startswith(NODE_USER_PREFIX):
        return Comparison(f"{username} requests {asked}", asked)
    return Comparison(f"{username} requests {asked}", "any node for a token; later checks decide which")


def attributes(facts: ShapeFacts) -> Comparison:
    """``attributes_are_known``."""
    return Comparison(
        listed(facts.request.certificate_request.attributes), f"only {EXTENSION_REQUEST} (extensionRequest)"
    )


def extensions(facts: ShapeFacts) -> Comparison:
    """``extensions_are_harmless``."""
    request = facts.request.certificate_request
    found = [f"{one.oid}{' (critical)' if one.critical else ''}" for one in request.extensions]
    authority = "requests a CA certificate: " if request.asks_to_be_authority else ""
    return Comparison(authority + listed(found), "no CA extension, no unknown critical extension")


def kinds_of_names(facts: ShapeFacts) -> Comparison:
    """``alternative_names_fit_the_purpose``."""
    request = facts.request.certificate_request
    found = listed([*request.dns_names, *request.ip_addresses, *(f"a {kind}" for kind in request.other_name_kinds)])
    serving = facts.request.header.signer.purpose is Purpose.SERVING
    return Comparison(found, "DNS names or IP addresses, at least one" if serving else "none")


def usages(facts: ShapeFacts) -> Comparison:
    """``usages_fit_the_purpose``."""
    header = facts.request.header
    return Comparison(listed(header.usages), f"{usages_of(header.signer.purpose)}, optionally key encipherment")


def key(facts: ShapeFacts) -> Comparison:
    """``key_is_acceptable``."""
    found = facts.request.certificate_request.key
    shown = {
        KeyKind.RSA: f"RSA, {found.bits} bits, exponent {found.exponent}",
        KeyKind.ECDSA: f"ECDSA, {found.curve or 'unnamed curve'}",
        KeyKind.OTHER: "of another kind",
    }[found.kind]
    return Comparison(shown, "RSA of 2048 to 8192 bits, or ECDSA on P-256, P-384 or P-521")


def provider_id(facts: RequestFacts) -> Comparison:
    """``provider_id_is_well_formed``."""
    found = facts.request.certificate_request.provider_id
    if isinstance(found, NoProviderID):
        value = found.value
        found = f"{len(value)} bytes: {value[:32].hex()}" if value else "no provider-ID extension"
    return Comparison(found, "printable ASCII, UTF8String")


def shared_authority(facts: RequestFacts) -> Comparison:
    """``certificate_authority_is_not_shared``."""
    issuers = facts.shared.issuers & {facts.request.evidence.cluster.text}
    found = listed(sorted(facts.shared.keys | issuers), "no CA in common with another Cluster")
    return Comparison(found, "none, or Clusters in one group of certificateAuthorities.sharedBy")


def cluster_authority(facts: RequestFacts) -> Comparison:
    """``evidence_names_this_cluster``."""
    return Comparison(facts.request.evidence.cluster.text, listed(sorted(facts.ca_cert_hashes), "no CA known"))


def signature(facts: ShapeFacts) -> Comparison:
    """``self_signature_verifies``."""
    request = facts.request.certificate_request
    verifies = request.signature_is_valid() is SelfSignature.VALID
    return Comparison(
        f"{request.signature_hash or 'unknown hash'}, {'verifies' if verifies else 'does not verify'}",
        "SHA-256, SHA-384 or SHA-512, with the request's own key",
    )


def _subject(request: CertificateRequest) -> str:
    names = [
        "+".join(f"{_SUBJECT_NAMES.get(one.oid, one.oid)}={one.value}" for one in relative_name)
        for relative_name in request.subject
    ]
    return listed(names, "empty")


def _node_name(request: ShapedRequest) -> str:
    try:
        return node_name_of(request)
    except Refused:
        return "<none>"
