"""Checks of a request to one of our signers alone, and of the attestor's outcome for it. No network.

Each check raises or returns None. The checks that apply to every request are in :mod:`signer.rules.shape`. This module
also computes the properties of the certificate that follow from policy, record and request alone.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from attestors.contract import INSECURE_PROVIDER, AssertedIdentity, AttestorDescription, Security, VerifiedIdentity
from attestors.wire.binding import Binding
from attestors.wire.names import NODE_USER_PREFIX, SUPPORTED_VERSIONS_ANNOTATION, Purpose
from signer.model.authority_sharing import SharedAuthorities
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.decision import Deferred, Refused
from signer.model.fields import parse_time
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.signing_request import BuiltinServingRequest, SigningRequest
from signer.rules.machine import NoRecord


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The input of the checks of the request alone."""

    request: SigningRequest
    cluster: ClusterView
    policy: Policy
    attestor: AttestorDescription
    insecure_allowed: bool
    """Whether the controller's flag and its list of namespaces both allow the insecure attestor here."""
    operator_allows: bool
    """Whether the controller's configuration allows this attestor in the cluster's namespace."""
    ca_cert_hashes: frozenset[str]
    """Hashes of the CAs whose key the controller has for this cluster, and of the CAs that they chain to."""
    shared: SharedAuthorities
    """Those of the CAs that another Cluster has too, without the operator's word."""
    waiting_ca_cert_hashes: frozenset[str] = frozenset()
    """Hashes of the cluster's other CAs: listed in a Secret, or known from earlier certificates of its nodes."""


def facts_belong_together(facts: RequestFacts) -> None:
    """The policy is of this Cluster and the attestor of this signer. Anything else is a bug in the controller."""
    if facts.policy.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"the policy is of Cluster {facts.policy.cluster}")
    if facts.attestor.provider != facts.request.header.signer.provider:
        raise Deferred(Reason.INTERNAL_ERROR, f"the attestor is {facts.attestor.provider}, not the signer's")


def provider_is_the_signers(facts: RequestFacts) -> None:
    """The provider block and the signer name have the same provider."""
    provider = facts.request.header.signer.provider
    if facts.request.provider != provider:
        raise Refused(
            Reason.PROVIDER_MISMATCH, f"the provider block says {facts.request.provider}, the signer name {provider}"
        )


def attestor_is_authorized(facts: RequestFacts) -> None:
    """The policy and the controller's configuration allow the attestor; an insecure one needs the flags too."""
    provider = facts.attestor.provider
    policy_names_the_attestor(facts.policy, provider)
    operator_allows_the_attestor(provider, facts.cluster.key.namespace, allowed=facts.operator_allows)
    if facts.attestor.security is Security.INSECURE and not facts.insecure_allowed:
        raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, insecure_not_allowed(provider, facts.cluster.key.namespace))


def not_allowed(provider: str, namespace: str) -> str:
    """The message for an attestor that the controller's configuration does not allow in that namespace."""
    if provider == INSECURE_PROVIDER:
        return (
            f"{insecure_not_allowed(provider, namespace)}; if its configuration file names attestors.{provider}, that "
            "must allow the namespace too"
        )
    return (
        f"this controller does not allow attestor {provider} in namespace {namespace}: the operator names it in the "
        f"configuration file, in attestors.{provider}, and the namespace in attestors.{provider}.namespaces"
    )


def insecure_not_allowed(provider: str, namespace: str) -> str:
    """The message for an insecure attestor that the controller's flags do not allow in that namespace."""
    return (
        f"attestor {provider} is insecure, and this controller does not allow it in namespace {namespace}: see its "
        "flags --enable-insecure-attestor and --insecure-attestor-namespaces"
    )


def policy_names_the_attestor(policy: Policy, provider: str) -> None:
    """The policy authorizes the attestor. The controller does not load one that it does not authorize.

    Raises:
        Refused: the policy does not authorize it.
    """
    if provider not in {attestor.provider for attestor in policy.authorized_attestors}:
        raise Refused(
            Reason.ATTESTOR_NOT_AUTHORIZED,
            f"NodeAttestationPolicy {policy.cluster} does not authorize attestor {provider}",
        )


def operator_allows_the_attestor(provider: str, namespace: str, *, allowed: bool) -> None:
    """The controller's configuration allows the attestor in that namespace. It is not loaded otherwise.

    Raises:
        Refused: it is not allowed.
    """
    if not allowed:
        raise Refused(Reason.ATTESTOR_NOT_AUTHORIZED, not_allowed(provider, namespace))


def attestor_supports_the_purpose(facts: RequestFacts) -> None:
    """The attestor supports serving certificates or renewal, if the request is for one.

    Insecure attestors support neither (proposal, "Provider Specification").
    """
    header = facts.request.header
    if facts.attestor.security is Security.SECURE:
        return
    if header.signer.purpose is Purpose.SERVING:
        raise Refused(Reason.SERVING_NOT_SUPPORTED, f"attestor {facts.attestor.provider} signs no serving certificates")
    if header.username.startswith(NODE_USER_PREFIX):
        raise Refused(
            Reason.RENEWAL_NOT_SUPPORTED,
            f"attestor {facts.attestor.provider} does not renew: the node joins again with a new bootstrap token",
        )


def version_is_supported(facts: RequestFacts) -> None:
    """The attestor reads this evidence version. If not, the denial lists the versions that it reads."""
    if facts.request.evidence.version not in facts.attestor.evidence_versions:
        raise unsupported_version(facts.attestor)


def unsupported_version(attestor: AttestorDescription) -> Refused:
    """The denial that lists the versions that ``attestor`` reads, so that the node can post a new request."""
    supported = ",".join(attestor.evidence_versions)
    return Refused(
        Reason.UNSUPPORTED_VERSION,
        f"the evidence version is not supported; attestor {attestor.provider} reads {supported}",
        {SUPPORTED_VERSIONS_ANNOTATION: supported},
    )


def provider_id_is_well_formed(facts: RequestFacts) -> None:
    """The provider-ID extension is present and well formed."""
    claimed_provider_id(facts.request)


def claimed_provider_id(request: SigningRequest) -> str:
    """The provider ID in the request's extension. It is a claim, not proven.

    Raises:
        Refused: there is none, or it is not a provider ID.
    """
    asked = request.certificate_request
    if isinstance(asked.provider_id, str):
        return asked.provider_id
    if not asked.provider_id.value:
        raise Refused(
            Reason.INVALID_PROVIDER_ID,
            f"the request has no provider-ID extension ({' or '.join(asked.provider_id_oids)})",
        )
    raise Refused(Reason.INVALID_PROVIDER_ID, f"provider-ID extension: {asked.provider_id.why}")


def certificate_authority_is_not_shared(facts: RequestFacts) -> None:
    """No other Cluster has the private key of a CA of this one, and none has the issuer that the evidence names.

    Evidence for the other Cluster would count here: with a Machine that has the other's provider ID, this Cluster's
    owner would reserve the identity, and the other's node would be denied. With the operator's word that both have one
    owner, this passes. It defers and never denies: the honest of two Clusters cannot be told from the other.
    """
    cluster, named = facts.cluster.key, facts.request.evidence.cluster.text
    if facts.shared.keys:
        raise Deferred(Reason.CERTIFICATE_AUTHORITY_SHARED, key_is_shared(cluster, facts.shared))
    if named in facts.shared.issuers:
        raise Deferred(
            Reason.CERTIFICATE_AUTHORITY_SHARED,
            f"the evidence names {named}, an issuer of the CA of Cluster {cluster}, and another Cluster has it too: "
            "put the CA that signs first into the node's kubeconfig, or let the operator allow both to share it",
        )


def key_is_shared(cluster: ClusterKey, shared: SharedAuthorities) -> str:
    """The message for a CA key of that Cluster that another Cluster has too. It does not name the other."""
    return (
        f"another Cluster has the private key of CA {', '.join(sorted(shared.keys))} of Cluster {cluster} too: give "
        "each Cluster a CA of its own, or let the operator allow both to share it, in certificateAuthorities.sharedBy"
    )


def evidence_names_this_cluster(facts: RequestFacts) -> None:
    """The evidence names a CA whose key the controller has, or one that such a CA chains to.

    A CA that a Secret of the cluster merely lists, or that earlier certificates were issued under, belongs to a
    rotation. Evidence for it is deferred, never denied.
    """
    if not facts.ca_cert_hashes:
        raise Deferred(
            Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, f"no CA of Cluster {facts.cluster.key} is known here yet"
        )
    named = facts.request.evidence.cluster.text
    if named in facts.ca_cert_hashes:
        return
    if named in facts.waiting_ca_cert_hashes:
        raise Deferred(
            Reason.CERTIFICATE_AUTHORITY_CHANGING,
            f"the evidence names a CA of Cluster {facts.cluster.key} that does not sign: a Secret lists it beside the "
            "one that signs, or earlier certificates are of it; evidence counts only for the CAs that sign and for "
            "those that they chain to",
        )
    raise Refused(
        Reason.CLUSTER_MISMATCH,
        f"the evidence was made for another cluster than {facts.cluster.key}: its CA differs",
    )


@dataclass(frozen=True, slots=True)
class IdentityFacts:
    """The input of the checks of an identity."""

    claimed_provider_id: str
    binding: Binding
    attestor: AttestorDescription
    identity: VerifiedIdentity | AssertedIdentity


def security_is_declared(facts: IdentityFacts) -> None:
    """Only an attestor that declares itself insecure returns an unproven identity. Anything else is a bug."""
    if isinstance(facts.identity, AssertedIdentity) is not (facts.attestor.security is Security.INSECURE):
        raise Deferred(
            Reason.INTERNAL_ERROR,
            f"attestor {facts.attestor.provider} declares itself {facts.attestor.security.value} and returned "
            f"{type(facts.identity).__name__}",
        )


def binding_is_this_requests(facts: IdentityFacts) -> None:
    """A verified identity was proven for this request's binding."""
    if isinstance(facts.identity, VerifiedIdentity) and not hmac.compare_digest(
        facts.identity.binding.value, facts.binding.value
    ):
        raise Refused(Reason.BINDING_MISMATCH, "the evidence was made for another key, cluster or signer")


def provider_id_is_proven(facts: IdentityFacts) -> None:
    """The provider ID in the CSR's extension is the one that the evidence proves."""
    if facts.identity.provider_id != facts.claimed_provider_id:
        raise Refused(
            Reason.PROVIDER_ID_MISMATCH,
            f"the request claims provider ID {facts.claimed_provider_id}, which its evidence does not prove",
        )


def certificate_duration(policy: Policy, purpose: Purpose, security: Security, *, deleting: bool) -> timedelta:
    """The certificate lifetime that the policy sets for this purpose and kind of attestor.

    ``deleting``: the Machine or its Cluster is being deleted.
    """
    duration = policy.serving_duration if purpose is Purpose.SERVING else policy.client_duration
    if security is Security.INSECURE:
        duration = policy.insecure_duration
    return min(duration, policy.deleting_duration) if deleting else duration


def requested_duration(request: SigningRequest, record: AttestedNode | NoRecord) -> int | None:
    """The request's ``expirationSeconds``; None for a key that already has a certificate.

    No evidence covers this field. Copies of a request with other values would otherwise each get another certificate.
    """
    if not isinstance(record, NoRecord) and record.entries_for_key(
        public_key_digest(request), str(request.header.signer)
    ):
        return None
    return request.header.expiration_seconds


def public_key_digest(request: SigningRequest | BuiltinServingRequest) -> str:
    """SHA-256 of the requested public key, hexadecimal. Copies of a request have the same."""
    return _sha256(request.certificate_request.subject_public_key_info)


@functools.lru_cache(maxsize=256)  # needed five times while a request is decided
def _sha256(subject_public_key_info: bytes) -> str:
    return hashlib.sha256(subject_public_key_info).hexdigest()


def first_requested_at(request: SigningRequest, record: AttestedNode | NoRecord, now: datetime) -> datetime:
    """When this key was first requested, by the API server's clock; ``now`` if its time cannot be read.

    A copy of a request may be posted at any later time. It counts as old as the first one.
    """
    try:
        created = parse_time(request.header.created)
    except ValueError:
        created = now.replace(microsecond=0)
    if isinstance(record, NoRecord):
        return created
    entries = record.entries_for_key(public_key_digest(request), str(request.header.signer))
    return min((created, *(entry.created for entry in entries)))
