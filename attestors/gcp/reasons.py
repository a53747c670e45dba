"""Why the GCP attestor denies a request or lets it wait: causes and remedies."""

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
        "CloudObjectMissing": ReasonExplanation(
            "Compute Engine does not know the instance, or not yet.",
            "Check whether the instance exists in that project and zone.",
        ),
        "InstanceNotKnownYet": ReasonExplanation(
            "Compute Engine reports another instance of that name than the token, and not a newer one.",
            "Nothing if it ends soon. Otherwise check whether the instance was replaced.",
        ),
        "InstanceReplaced": ReasonExplanation(
            "A newer instance has the name now.", "Find the machine that uses the old instance's token."
        ),
        "ProjectNotAllowed": ReasonExplanation(
            "The instance's project is not allowed.", f"Add it to `projects`: {BOTH_SETTINGS}."
        ),
        "ProjectNumberMismatch": ReasonExplanation(
            "The project has another number than the operator configured.",
            "Correct the number in the operator's `projects`. A project of the same name with another number is "
            "another project.",
        ),
        "ServiceAccountNotAllowed": ReasonExplanation(
            "The instance's service account is not allowed.",
            f"Add it to `serviceAccounts`: {BOTH_SETTINGS}. Or run the instance with another service account.",
        ),
        "TokenAlgorithmRefused": ReasonExplanation("The token is not signed with RS256.", _FIND_REQUESTER),
        "TokenIssuerRefused": ReasonExplanation("The token's issuer is not Google.", _FIND_REQUESTER),
        "TokenKeyNotPublished": ReasonExplanation(
            "The controller's copy of Google's certificates may be older than the token.",
            "Check that the controller reaches `www.googleapis.com`.",
        ),
        "TokenKeyUnknown": ReasonExplanation(
            "Google publishes no certificate for the token's key, or no longer does.",
            "Find the machine that sent the request: the token is forged, or older than Google's current keys.",
        ),
        "TokenLifetimeRefused": ReasonExplanation(
            "The token is valid for longer than an hour, or never.", _FIND_REQUESTER
        ),
        "TokenOfNoInstance": ReasonExplanation(
            "The token names no instance.",
            "Check what answers in place of the metadata server: the token must be requested with `format=full`. A "
            "service account's token names no instance; if it is one, find the machine that sent the request.",
        ),
        "TokenSignatureInvalid": ReasonExplanation(
            "Google's key did not sign the token.", "Find the machine that sent the request: the token is forged."
        ),
    }
)
