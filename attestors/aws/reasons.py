"""Cause and remedy of the AWS attestor's reasons, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.reasons import BOTH_SETTINGS, SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        **SHARED_EXPLANATIONS,
        "AccountNotAllowed": ReasonExplanation(
            "No role of the instance's account is allowed.", f"Name one in `allowedRoles`: {BOTH_SETTINGS}."
        ),
        "CallerIdentityRefused": ReasonExplanation(
            "STS rejects the presigned request: its signature is wrong, or the credentials have expired or are not "
            "valid in the Region whose STS the node uses.",
            "The node retries. If the reason recurs, correct the node's clock or its `region`.",
        ),
        "CallerIsAnotherInstance": ReasonExplanation(
            "Document and credentials belong to two instances.",
            "No honest node sends this: find out what sent the request.",
        ),
        "CallerIsNoInstance": ReasonExplanation(
            "The caller is a user or another session, not an instance.",
            "Run the instance with an instance profile, or find out what sent the request.",
        ),
        "CallerOfAnotherAccount": ReasonExplanation(
            "The role belongs to another account than the instance.", "Find out what sent the request."
        ),
        "CredentialsDeliveredOpenly": ReasonExplanation(
            "The instance got its credentials without IMDSv2, which is required.", "Require IMDSv2 on the instance."
        ),
        "EvidenceFromTheFuture": ReasonExplanation(
            "The node's clock is far ahead, or the controller's behind.",
            "Compare both clocks with the time, and set the wrong one.",
        ),
        "EvidenceNotYetValid": ReasonExplanation(
            "The node's clock is some minutes ahead, or the controller's behind.",
            "It resolves by itself. Compare both clocks with the time, and set the wrong one.",
        ),
        "IdentityDocumentRefused": ReasonExplanation(
            "The document is not signed with its Region's key.",
            "Find out what sent the request. If every node of a Region is denied, AWS may have changed its "
            "certificate: [replace it](aws.md#certificates-of-further-regions).",
        ),
        "InstanceAttachmentsUnknown": ReasonExplanation(
            "EC2 does not report yet when volume and interface were attached.", "Nothing."
        ),
        "InstanceMetadataOpen": ReasonExplanation(
            "The instance's metadata service answers without IMDSv2, or answers Pods.",
            "Require IMDSv2, lower the hop limit.",
        ),
        "InstanceNotAsAsked": ReasonExplanation(
            "EC2 described another instance.", "Check what is between the controller and EC2."
        ),
        "InstanceNotListed": ReasonExplanation(
            "EC2 does not list the instance yet.",
            "Nothing if it resolves by itself; otherwise name a role of its account in `accountRoles`.",
        ),
        "InstanceOfAnotherAccount": ReasonExplanation(
            "EC2 names another account than the document.", "Find out what sent the request."
        ),
        "InstanceTagsMissing": ReasonExplanation(
            "The instance lacks a tag that the policy requires.", "Tag it, or correct `requiredTags`."
        ),
        "InstanceTampered": ReasonExplanation(
            "The root volume was not attached at launch.", "Replace the Machine; find out what detached the volume."
        ),
        "InstanceTerminated": ReasonExplanation(
            "EC2 has terminated the instance, or is about to.", "Find out what uses its credentials."
        ),
        "IssuerMismatch": ReasonExplanation(
            "The token is from another issuer than the account's.",
            "Correct it in the operator's `webIdentityIssuers`, or find out what sent the request.",
        ),
        "PartitionMismatch": ReasonExplanation(
            "Document and STS belong to two partitions.", "Correct the node's `region`."
        ),
        "PresignedRequestNotAccepted": ReasonExplanation(
            "The operator accepts web identity tokens only.", "Set the node's `proof` to `web-identity`."
        ),
        "RegionCertificateMissing": ReasonExplanation(
            "The certificate of that Region is not configured.",
            "[Add it](aws.md#certificates-of-further-regions), and restart the controller.",
        ),
        "RegionNotAllowed": ReasonExplanation(
            "The Region is not allowed.", f"Add it to `allowedRegions`: {BOTH_SETTINGS}."
        ),
        "RoleMissing": ReasonExplanation(
            "IAM knows no such role.",
            "Recreate it, correct `allowedRoles`, or name a role of its account in `accountRoles`.",
        ),
        "RoleNotAllowed": ReasonExplanation(
            "The instance's role is not allowed.", f"Name it in `allowedRoles`: {BOTH_SETTINGS}."
        ),
        "RoleTrustTooWide": ReasonExplanation(
            "Principals other than EC2 may assume the role.",
            "[Narrow its trust policy](aws.md#who-may-assume-the-role).",
        ),
        "RoleWasReplaced": ReasonExplanation(
            "The role was deleted and recreated.",
            "Associate its instance profile with the instance again, or replace the Machine: the instance still has "
            "credentials of the deleted role.",
        ),
        "WebIdentityKeyNotPublished": ReasonExplanation(
            "The cached keys of the issuer may be older than the token.",
            "The controller fetches them again in seconds.",
        ),
        "WebIdentityNotAccepted": ReasonExplanation(
            "The operator names no issuer for that account.",
            "Add it to the operator's `webIdentityIssuers`, or set the node's `proof` to `presigned`.",
        ),
        "WebIdentityRefused": ReasonExplanation(
            "The token's signature, key or lifetime is wrong.", "Find out what sent the request."
        ),
    }
)
