"""The checks of the attestors that come with the project, as their documents list them.

Each attestor's code has the order; this is the list of it for people. ``test_attestor_checks`` compares the two: it
runs each attestor with valid requests and asserts that it calls the linked functions, in this order; and that the rows
have every reason that the attestor gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from attestors.aws import controller as aws
from attestors.aws.caller_identity.answer import _caller, _refusal, read_answer
from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.document import verify_identity_document
from attestors.aws.ec2 import rules
from attestors.aws.ec2.directory import InstanceDirectory
from attestors.aws.ec2.trust import require_trust
from attestors.aws.freshness import Freshness
from attestors.aws.web_identity import WebIdentity
from attestors.gcp import local_checks
from attestors.gcp.certificate_source import CertificateSource
from attestors.gcp.certificates import GoogleKey
from attestors.gcp.instances import InstanceLookUp, check_is_running, check_is_the_same
from attestors.tpm import controller as tpm
from attestors.tpm import presented_keys, quote
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey
from attestors.tpm.challenge import Token
from attestors.tpm.endorsement import verify_endorsement_certificate
from attestors.tpm.endorsement_key_sources.order import SourcesInOrder
from attestors.tpm.statement import decode_quote
from attestors.tpm.trust import TrustFromFiles
from attestors.wire.binding import Binding
from attestors.wire.evidence import Evidence
from signer.model.reasons import Reason
from tests.documents.attestor_reasons import reasons_of
from tests.documents.markdown import ROOT
from tests.documents.reason_table import PLACES

Function = Callable[..., Any]

EVERY: Final = "every request"
FIRST, ANSWER = "a first request", "an answer"
PRESIGNED, TOKEN = "presigned", "web identity"
LOOKED_UP: Final = "`checkInstance`"


class Check(NamedTuple):
    """A row."""

    applies_to: str
    says: str
    functions: tuple[Function, ...]
    """The first one is linked. The others turn what it raises into reasons."""
    reasons: tuple[str, ...]
    """What a request gets otherwise."""


_CLOUD: Final = ("CloudAccessRefused", "CloudUnavailable")

CHECKS: Final[Mapping[str, tuple[Check, ...]]] = {
    "tpm": (
        Check(
            EVERY,
            "the operator's CA folders and deny list can be used",
            (TrustFromFiles.current,),
            ("OperatorFileUnusable",),
        ),
        Check(
            EVERY,
            "the evidence has exactly the [fields](#evidence-and-challenge) of a first request or of an answer",
            (Evidence.expect_fields,),
            ("MalformedEvidence",),
        ),
        Check(
            EVERY,
            "the EK is made from one of the [templates](#the-nodes-settings)",
            (EndorsementKey.decode, presented_keys.check_keys),
            ("MalformedEvidence", "UnsuitableTPMKey"),
        ),
        Check(
            EVERY,
            "the AK is a restricted key that is fixed to its TPM and only signs",
            (AttestationKey.decode, presented_keys.check_keys),
            ("MalformedEvidence", "UnsuitableTPMKey"),
        ),
        Check(
            EVERY,
            "the operator accepts the [EK's template](#one-chip-one-key)",
            (presented_keys._require_template,),
            ("EndorsementKeyTemplateNotAllowed",),
        ),
        Check(
            EVERY, "the EK is not on the deny list", (presented_keys._require_not_denied,), ("EndorsementKeyDenied",)
        ),
        Check(
            EVERY,
            "with endorsement roots: there is an EK certificate; it is an endorsement key certificate of this EK, is "
            "valid now, and chains to a root",
            (verify_endorsement_certificate, presented_keys._check_certificate),
            (
                "EndorsementCertificateMissing",
                "EndorsementCertificateRefused",
                "EndorsementCertificateNotYetValid",
                "EndorsementAuthorityMissing",
            ),
        ),
        Check(
            EVERY,
            "the [chip](#one-chip-one-key) that the verified certificate names is not on the deny list",
            (presented_keys._require_chip_not_denied,),
            ("EndorsementKeyDenied",),
        ),
        Check(
            EVERY,
            "if the Machine's annotation is the first [source](#which-chip-is-in-the-machine): it names no other EK",
            (SourcesInOrder.check_locally, tpm._mismatch),
            ("EndorsementKeyMismatch",),
        ),
        Check(
            FIRST, "the CSR's UID has the form that API servers use", (Token.issue, tpm._token), ("UnusableRequestUID",)
        ),
        Check(ANSWER, "the challenge token has the controller's form", (Token.parse,), ("MalformedEvidence",)),
        Check(
            ANSWER,
            "the challenge has not expired, and no clock that was too far ahead made it",
            (Token.require_valid,),
            ("ChallengeExpired", "ChallengeFromTheFuture"),
        ),
        Check(
            ANSWER,
            "the challenge was made for this Cluster",
            (Token.require_cluster,),
            ("ChallengeOfAnotherCluster",),
        ),
        Check(
            ANSWER,
            "the AK signed the quote, in its own scheme",
            (quote._check_signature,),
            ("QuoteRefused", "MalformedEvidence"),
        ),
        Check(
            ANSWER,
            "the quote is exactly one TPMS_ATTEST, of a quote, made by a TPM",
            (decode_quote,),
            ("MalformedEvidence",),
        ),
        Check(
            ANSWER,
            "the quote is over the challenge's secret and this request's binding",
            (Binding.prove, tpm.TPMServerPlugin._verify_quote, tpm.TPMServerPlugin._challenge_keys),
            ("BindingMismatch", "ChallengeKeysMissing"),
        ),
        Check(
            ANSWER,
            "the quote is of the PCRs that the controller asked for, and the values belong to it",
            (quote._cut_values,),
            ("QuoteRefused",),
        ),
        Check(ANSWER, "each PCR that the policy names has an allowed value", (quote._check_policy,), ("QuoteRefused",)),
        Check(
            EVERY,
            "the first [source](#which-chip-is-in-the-machine) that says anything names this EK",
            (SourcesInOrder.ask, tpm.TPMServerPlugin._confirm_key),
            ("EndorsementKeyMismatch", "EndorsementKeyUnknown", "EndorsementKeySourceUnavailable"),
        ),
        Check(
            FIRST,
            "a first request never suffices: it gets a challenge for this EK, AK and binding",
            (tpm.TPMServerPlugin._challenge, tpm.TPMServerPlugin._challenge_keys),
            ("ChallengeIssued", "ChallengeKeysMissing"),
        ),
    ),
    "aws": (
        Check(
            EVERY,
            "the evidence has an identity document and exactly one proof",
            (Evidence.expect_fields,),
            ("MalformedEvidence",),
        ),
        Check(
            EVERY,
            "the document [is EC2's](#identity-documents)",
            (verify_identity_document, aws.AWSServerPlugin._document),
            ("MalformedEvidence", "IdentityDocumentRefused", "RegionCertificateMissing"),
        ),
        Check(
            EVERY,
            "its Region is allowed, a role of its account is allowed, and it is of the claimed instance",
            (aws.AWSServerPlugin._require_allowed,),
            ("RegionNotAllowed", "AccountNotAllowed", "ProviderIDMismatch"),
        ),
        Check(
            PRESIGNED,
            "the operator accepts presigned requests, and the URL is well formed",
            (PresignedRequest.parse, aws.AWSServerPlugin._presigned),
            ("PresignedRequestNotAccepted", "MalformedEvidence"),
        ),
        Check(
            PRESIGNED,
            "it is for STS of the document's partition, in the document's Region or in an allowed one with a known "
            "certificate",
            (aws.AWSServerPlugin._require_sts_of,),
            ("PartitionMismatch", "RegionNotAllowed", "RegionCertificateMissing"),
        ),
        Check(
            TOKEN,
            "the token is well formed, and of the issuer that the operator names for the document's account",
            (WebIdentity.read, aws.AWSServerPlugin._token),
            ("MalformedEvidence", "WebIdentityNotAccepted", "IssuerMismatch"),
        ),
        Check(EVERY, "the proof was made for this request's binding", (Binding.prove,), ("BindingMismatch",)),
        Check(
            PRESIGNED,
            "it is not ahead of the controller's clock; if it is ahead by no longer than it is valid, it waits",
            (Freshness.require_fresh,),
            ("EvidenceFromTheFuture", "EvidenceNotYetValid"),
        ),
        Check(
            EVERY,
            "the proof is not too old, and has not expired",
            (Freshness.require_not_expired,),
            ("EvidenceExpired",),
        ),
        Check(
            TOKEN,
            "the token is of this instance and valid for an hour at most; with `requireIMDSv2`, its credentials were "
            "got with IMDSv2",
            (WebIdentity.require_instance,),
            ("CallerIsAnotherInstance", "CredentialsDeliveredOpenly", "WebIdentityRefused"),
        ),
        Check(
            PRESIGNED,
            "STS confirms that a role's session signed the request",
            (read_answer, _caller, _refusal),
            ("CallerIdentityRefused", "CallerIsNoInstance", "CloudUnavailable"),
        ),
        Check(
            EVERY,
            "the role is of the document's account, and is allowed",
            (aws.AWSServerPlugin._allowed_role,),
            ("CallerOfAnotherAccount", "RoleNotAllowed"),
        ),
        Check(PRESIGNED, "the session is this instance's", (aws._require_own_session,), ("CallerIsAnotherInstance",)),
        Check(
            TOKEN,
            "the issuer's key signed the token; if the controller's copy of the keys may be older than the token, the "
            "request waits",
            (aws.AWSServerPlugin._verify_token,),
            ("WebIdentityRefused", "WebIdentityKeyNotPublished", "CloudUnavailable"),
        ),
        Check(
            TOKEN, "the token is not ahead of the controller's clock", (Freshness.require_our_clock,), ("ClockBehind",)
        ),
        Check(
            PRESIGNED,
            "with `checkRoleTrust`: [EC2 alone may assume the role](#who-may-assume-the-role), and the role was not "
            "replaced",
            (require_trust, aws.AWSServerPlugin._require_trust),
            ("RoleTrustTooWide", "RoleWasReplaced", "RoleMissing", *_CLOUD),
        ),
        Check(
            EVERY,
            "with `describeInstances`: EC2 lists the instance",
            (InstanceDirectory.find, aws.AWSServerPlugin._describe),
            ("InstanceNotListed", *_CLOUD),
        ),
        Check(
            EVERY,
            "with `describeInstances`: EC2 described this instance, of the document's account",
            (rules._require_same_instance,),
            ("InstanceNotAsAsked", "InstanceOfAnotherAccount"),
        ),
        Check(
            EVERY,
            "with `describeInstances`: the instance runs",
            (rules._require_running,),
            ("InstanceTerminated", "InstanceNotRunning"),
        ),
        Check(
            EVERY,
            "with `checkAttachTimes`: its root volume and primary interface were attached together",
            (rules._require_as_launched,),
            ("InstanceTampered", "InstanceAttachmentsUnknown"),
        ),
        Check(
            EVERY,
            "with `requireIMDSv2`: it answers metadata requests with a session token only",
            (rules._require_session_tokens,),
            ("InstanceMetadataOpen",),
        ),
        Check(
            EVERY,
            "with `maximumHopLimit`: its metadata hop limit is not higher",
            (rules._require_hop_limit,),
            ("InstanceMetadataOpen",),
        ),
        Check(
            EVERY, "it has the tags of the policy's `requiredTags`", (rules._require_tags,), ("InstanceTagsMissing",)
        ),
    ),
    "gcp": (
        Check(
            EVERY,
            "the evidence is one token of at most 8192 characters: three segments of base64url, JSON with each key "
            "once, well-formed claims and a key ID, signed with RS256",
            (local_checks.read_token,),
            ("MalformedEvidence", "TokenAlgorithmRefused"),
        ),
        Check(EVERY, "its issuer is Google", (local_checks.check_issuer,), ("TokenIssuerRefused",)),
        Check(EVERY, "its audience is this request's binding", (local_checks.prove_audience,), ("BindingMismatch",)),
        Check(
            EVERY,
            "it is valid for an hour at most, and has not expired; clocks may be 60 seconds apart",
            (local_checks.check_times,),
            ("TokenLifetimeRefused", "EvidenceExpired"),
        ),
        Check(EVERY, "it names an instance", (local_checks.check_instance,), ("TokenOfNoInstance",)),
        Check(
            EVERY,
            "the instance's project is allowed, and has the number that the operator configured",
            (local_checks.check_project,),
            ("ProjectNotAllowed", "ProjectNumberMismatch"),
        ),
        Check(
            EVERY,
            "its service account is allowed, if the operator or the policy names any",
            (local_checks.check_service_account,),
            ("ServiceAccountNotAllowed",),
        ),
        Check(
            EVERY,
            "the instance is the one whose provider ID the request claims",
            (local_checks.check_claimed_provider_id,),
            ("ProviderIDMismatch",),
        ),
        Check(
            EVERY,
            "Google publishes the key; if the controller's copy of the certificates may be older than the token, the "
            "request waits",
            (CertificateSource.key,),
            ("TokenKeyUnknown", "TokenKeyNotPublished", "CloudUnavailable"),
        ),
        Check(EVERY, "that key signed the token", (GoogleKey.verify,), ("TokenSignatureInvalid",)),
        Check(EVERY, "it is not ahead of the controller's clock", (local_checks.check_clock,), ("ClockBehind",)),
        Check(
            LOOKED_UP,
            "Compute Engine knows an instance of that name",
            (InstanceLookUp.addresses,),
            ("CloudObjectMissing", *_CLOUD),
        ),
        Check(
            LOOKED_UP,
            "that instance has the token's instance number",
            (check_is_the_same,),
            ("InstanceReplaced", "InstanceNotKnownYet"),
        ),
        Check(LOOKED_UP, "that instance runs", (check_is_running,), ("InstanceNotRunning",)),
    ),
}
"""By attestor, in their order."""


def result_of(attestor: str, reason: str) -> str:
    """What becomes of a request with that reason.

    Raises:
        KeyError: neither the attestor nor the core gives it.
    """
    own = reasons_of(attestor).get(reason)
    if own is None:
        return str(PLACES[Reason(reason)].result)
    [result] = own
    return result


def link_of(function: Function) -> str:
    """Its name, with a link to its file from ``docs/``."""
    file = Path(inspect.getfile(inspect.unwrap(function))).relative_to(ROOT)
    return f"[`{function.__qualname__}`](../{file})"
