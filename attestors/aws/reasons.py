"""Why the AWS attestor refuses or waits: cause and cure, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.errors import BOTH_SETTINGS, SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        **SHARED_EXPLANATIONS,
        "AccountNotAllowed": ReasonExplanation(
            "No role of the instance's account is let in.", f"Name one in `allowedRoles`: {BOTH_SETTINGS}."
        ),
        "CallerIdentityRefused": ReasonExplanation(
            "STS does not accept the presigned request: wrong signature, or credentials that have run out, or that do "
            "not hold in the Region that the node asks.",
            "The node asks again; where it comes back, mend its clock, or its `region`.",
        ),
        "CallerIsAnotherInstance": ReasonExplanation(
            "Document and credentials are of two instances.", "No honest node does that: find out who asks."
        ),
        "CallerIsNoInstance": ReasonExplanation(
            "A user or another session asked, no instance.",
            "Run the instance with an instance profile; else find out who asks.",
        ),
        "CallerOfAnotherAccount": ReasonExplanation(
            "The role is of another account than the instance.", "Find out who asks."
        ),
        "CredentialsDeliveredOpenly": ReasonExplanation(
            "The credentials were got without IMDSv2, which is required.", "Require IMDSv2 of the instance."
        ),
        "EvidenceFromTheFuture": ReasonExplanation(
            "The node's clock is far ahead, or the controller's behind.",
            "Compare both with the time, and set the wrong one.",
        ),
        "EvidenceNotYetValid": ReasonExplanation(
            "The node's clock is some minutes ahead, or the controller's behind.",
            "It ends by itself. Compare both with the time, and set the wrong one.",
        ),
        "IdentityDocumentRefused": ReasonExplanation(
            "The document is not signed by its Region.",
            "Find out who asks. Where every node of a Region is refused, AWS may have changed its certificate: "
            "[replace it](aws.md#certificates-of-further-regions).",
        ),
        "InstanceAttachmentsUnknown": ReasonExplanation(
            "EC2 does not say yet when volume and interface were attached.", "Nothing."
        ),
        "InstanceMetadataOpen": ReasonExplanation(
            "The instance answers without IMDSv2, or to Pods.", "Require IMDSv2, lower the hop limit."
        ),
        "InstanceNotAsAsked": ReasonExplanation(
            "EC2 described another instance.", "See what stands between controller and EC2."
        ),
        "InstanceNotListed": ReasonExplanation(
            "EC2 does not list the instance yet.",
            "Nothing where it ends; else name a role of its account in `accountRoles`.",
        ),
        "InstanceOfAnotherAccount": ReasonExplanation(
            "EC2 says another account than the document.", "Find out who asks."
        ),
        "InstanceTagsMissing": ReasonExplanation(
            "The instance lacks a tag that the policy wants.", "Tag it, or correct `requiredTags`."
        ),
        "InstanceTampered": ReasonExplanation(
            "The root volume was not attached at launch.", "Replace the Machine; find out who detached the volume."
        ),
        "InstanceTerminated": ReasonExplanation(
            "EC2 has terminated it, or is about to.", "Find out who uses its credentials."
        ),
        "IssuerMismatch": ReasonExplanation(
            "The token is of another issuer than the account's.",
            "Correct it in the operator's `webIdentityIssuers`; else find out who asks.",
        ),
        "PartitionMismatch": ReasonExplanation(
            "Document and STS are of two partitions.", "Correct the node's `region`."
        ),
        "PresignedRequestNotAccepted": ReasonExplanation(
            "The operator takes web identity tokens only.", "Set the node's `proof` to `web-identity`."
        ),
        "RegionCertificateMissing": ReasonExplanation(
            "No certificate of that Region is there.",
            "[Add it](aws.md#certificates-of-further-regions), and restart the controller.",
        ),
        "RegionNotAllowed": ReasonExplanation(
            "The Region is not let in.", f"Add it to `allowedRegions`: {BOTH_SETTINGS}."
        ),
        "RoleMissing": ReasonExplanation(
            "IAM knows no such role.",
            "Make it again, correct `allowedRoles`, or name a role of its account in `accountRoles`.",
        ),
        "RoleNotAllowed": ReasonExplanation(
            "The instance's role is not let in.", f"Name it in `allowedRoles`: {BOTH_SETTINGS}."
        ),
        "RoleTrustTooWide": ReasonExplanation(
            "Others than EC2 may assume the role.", "[Narrow its trust policy](aws.md#who-may-assume-the-role)."
        ),
        "RoleWasReplaced": ReasonExplanation(
            "The role was deleted and made anew.",
            "Associate its instance profile with the instance again, or replace the Machine: it still has credentials "
            "of the role that is gone.",
        ),
        "WebIdentityKeyNotPublished": ReasonExplanation(
            "The issuer's keys at hand may be older than the token.", "They are fetched again in seconds."
        ),
        "WebIdentityNotAccepted": ReasonExplanation(
            "The operator names no issuer for that account.",
            "Add it to the operator's `webIdentityIssuers`, or set the node's `proof` to `presigned`.",
        ),
        "WebIdentityRefused": ReasonExplanation("The token's signature, key or life is wrong.", "Find out who asks."),
    }
)
