"""Cause and remedy of the GCP attestor's reasons, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.reasons import BOTH_SETTINGS, SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        **SHARED_EXPLANATIONS,
        "CloudObjectMissing": ReasonExplanation(
            "Google knows no such instance, or not yet.", "Check whether it exists in that project and zone."
        ),
        "InstanceNotKnownYet": ReasonExplanation(
            "Compute Engine's answer does not match the token yet.",
            "Nothing if it resolves by itself; otherwise check whether the instance was replaced.",
        ),
        "InstanceReplaced": ReasonExplanation(
            "Another instance has its name now.", "Find out what uses the old instance's token."
        ),
        "ProjectNotAllowed": ReasonExplanation(
            "The instance's project is not allowed.", f"Add it to `projects`: {BOTH_SETTINGS}."
        ),
        "ProjectNumberMismatch": ReasonExplanation(
            "The project has another number than the operator configured.",
            "Correct it in the operator's `projects`; a project of the same name is another project.",
        ),
        "ServiceAccountNotAllowed": ReasonExplanation(
            "The instance's service account is not allowed.",
            f"Add it to `serviceAccounts`: {BOTH_SETTINGS}. Or run the instance with another service account.",
        ),
        "TokenAlgorithmRefused": ReasonExplanation(
            "The token is not signed with RS256.", "Google issues no such token: find out what sent the request."
        ),
        "TokenIssuerRefused": ReasonExplanation("Google did not issue the token.", "Find out what sent the request."),
        "TokenKeyNotPublished": ReasonExplanation(
            "The cached certificates of Google may be older than the token.",
            "Check that the controller reaches Google.",
        ),
        "TokenKeyUnknown": ReasonExplanation("Google publishes no such key.", "Find out what sent the request."),
        "TokenLifetimeRefused": ReasonExplanation(
            "The token is valid for longer than an hour.", "Find out what sent the request."
        ),
        "TokenOfNoInstance": ReasonExplanation(
            "The token names no instance.", "Request a token in format `full` from an instance's metadata server."
        ),
        "TokenSignatureInvalid": ReasonExplanation(
            "Google's key did not sign the token.", "Find out what sent the request."
        ),
    }
)
