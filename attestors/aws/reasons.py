"""Why the AWS attestor denies a request or lets it wait: causes and remedies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.errors import BOTH_SETTINGS, SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

_FIND_REQUESTER: Final = "Find the machine that sent the request: no genuine node sends this."

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        **SHARED_EXPLANATIONS,
        "AccountNotAllowed": ReasonExplanation(
            "No role of the instance's account is allowed.",
            f"Add a role of the account to `allowedRoles`: {BOTH_SETTINGS}.",
        ),
        "CallerIdentityRefused": ReasonExplanation(
            "STS does not accept the presigned request. Its signature is wrong, or its credentials have expired or are "
            "not valid in the Region that the node signed for.",
            "Nothing if the node's next request is approved. Otherwise correct the node's clock or its setting "
            "`region`.",
        ),
        "CallerIsAnotherInstance": ReasonExplanation(
            "The identity document and the credentials are of two different instances.", _FIND_REQUESTER
        ),
        "CallerIsNoInstance": ReasonExplanation(
            "The credentials are a user's or another session's, not an instance's.",
            "Run the instance with an instance profile. If it has one, find the machine that sent the request.",
        ),
        "CallerOfAnotherAccount": ReasonExplanation(
            "The role is of another account than the instance.", _FIND_REQUESTER
        ),
        "CredentialsDeliveredOpenly": ReasonExplanation(
            "The instance got its credentials without IMDSv2, which the operator requires.",
            "Require IMDSv2 on the instance.",
        ),
        "EvidenceFromTheFuture": ReasonExplanation(
            "The node's clock is far ahead, or the controller's clock is behind.",
            "Compare both clocks with the correct time, and set the wrong one.",
        ),
        "EvidenceNotYetValid": ReasonExplanation(
            "The node's clock is some minutes ahead, or the controller's clock is behind.",
            "Nothing if it ends by itself. Otherwise compare both clocks with the correct time, and set the wrong one.",
        ),
        "IdentityDocumentRefused": ReasonExplanation(
            "The identity document is not signed with its Region's key.",
            "Find the machine that sent the request. If every node of a Region is denied, AWS may have changed its "
            "certificate: [replace it](aws.md#certificates-of-further-regions).",
        ),
        "InstanceAttachmentsUnknown": ReasonExplanation(
            "EC2 does not report yet when the root volume and the primary interface were attached.", "Nothing."
        ),
        "InstanceMetadataOpen": ReasonExplanation(
            "The instance answers metadata requests without IMDSv2, or answers Pods.",
            "Require IMDSv2 on the instance, or lower its metadata hop limit.",
        ),
        "InstanceNotAsAsked": ReasonExplanation(
            "EC2 described another instance than the one that the controller asked for.",
            "Check the proxies and endpoints between the controller and EC2.",
        ),
        "InstanceNotListed": ReasonExplanation(
            "EC2 does not list the instance, or not yet.",
            "Nothing if it ends soon. Otherwise name a role of the instance's account in `accountRoles`.",
        ),
        "InstanceOfAnotherAccount": ReasonExplanation(
            "EC2 reports another account for the instance than its identity document.", _FIND_REQUESTER
        ),
        "InstanceTagsMissing": ReasonExplanation(
            "The instance lacks a tag that the policy requires.", "Tag the instance, or correct `requiredTags`."
        ),
        "InstanceTampered": ReasonExplanation(
            "The root volume and the primary interface were attached more than 60 seconds apart: one of them was "
            "detached after the launch and attached again.",
            "Replace the Machine, and find out who detached the volume or the interface.",
        ),
        "InstanceTerminated": ReasonExplanation(
            "EC2 has terminated the instance, or is terminating it.", "Find the machine that uses its credentials."
        ),
        "IssuerMismatch": ReasonExplanation(
            "The web identity token is of another issuer than the account's.",
            "Correct the issuer in the operator's `webIdentityIssuers`. If it is correct, find the machine that sent "
            "the request.",
        ),
        "PartitionMismatch": ReasonExplanation(
            "The identity document and the STS host are of two AWS partitions.", "Correct the node's setting `region`."
        ),
        "PresignedRequestNotAccepted": ReasonExplanation(
            "The operator accepts web identity tokens only.", "Set the node's `proof` to `web-identity`."
        ),
        "RegionCertificateMissing": ReasonExplanation(
            "The controller has no certificate of that Region.",
            "[Add the certificate](aws.md#certificates-of-further-regions), and restart the controller.",
        ),
        "RegionNotAllowed": ReasonExplanation(
            "The Region is not allowed.", f"Add it to `allowedRegions`: {BOTH_SETTINGS}."
        ),
        "RoleMissing": ReasonExplanation(
            "IAM does not know the role.",
            "Create the role again, correct `allowedRoles`, or name a role of its account in `accountRoles`.",
        ),
        "RoleNotAllowed": ReasonExplanation(
            "The instance's role is not allowed.", f"Add it to `allowedRoles`: {BOTH_SETTINGS}."
        ),
        "RoleTrustTooWide": ReasonExplanation(
            "The role's trust policy lets others than EC2 assume the role.",
            "[Narrow the trust policy](aws.md#who-may-assume-the-role).",
        ),
        "RoleWasReplaced": ReasonExplanation(
            "The role was deleted and created again.",
            "Associate the instance profile with the instance again, or replace the Machine: the instance still has "
            "credentials of the deleted role.",
        ),
        "WebIdentityKeyNotPublished": ReasonExplanation(
            "The controller's copy of the issuer's keys may be older than the token.",
            "Nothing: the controller fetches the keys again within seconds.",
        ),
        "WebIdentityNotAccepted": ReasonExplanation(
            "The operator names no issuer for the instance's account.",
            "Add the issuer to the operator's `webIdentityIssuers`, or set the node's `proof` to `presigned`.",
        ),
        "WebIdentityRefused": ReasonExplanation(
            "The web identity token has a wrong signature, an unknown key or too long a lifetime.", _FIND_REQUESTER
        ),
    }
)
