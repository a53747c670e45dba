"""Why the GCP attestor refuses or waits: cause and cure, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.errors import BOTH_SETTINGS, SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        **SHARED_EXPLANATIONS,
        "CloudObjectMissing": ReasonExplanation(
            "Google knows no such instance, or not yet.", "See whether it exists in that project and zone."
        ),
        "InstanceNotKnownYet": ReasonExplanation(
            "Compute Engine's answer does not fit the token yet.",
            "Nothing where it ends; else see whether the instance was replaced.",
        ),
        "InstanceReplaced": ReasonExplanation(
            "Another instance has its name now.", "Find out who uses the old one's token."
        ),
        "ProjectNotAllowed": ReasonExplanation(
            "The instance's project is not let in.", f"Add it to `projects`: {BOTH_SETTINGS}."
        ),
        "ProjectNumberMismatch": ReasonExplanation(
            "The project has another number than the operator wrote.",
            "Correct it in the operator's `projects`; a project of the same name is another project.",
        ),
        "ServiceAccountNotAllowed": ReasonExplanation(
            "The instance's service account is not let in.",
            f"Add it to `serviceAccounts`: {BOTH_SETTINGS}. Or run the instance with another.",
        ),
        "TokenAlgorithmRefused": ReasonExplanation(
            "The token is not signed with RS256.", "Nothing honest makes one: find out who asks."
        ),
        "TokenIssuerRefused": ReasonExplanation("Google did not issue it.", "Find out who asks."),
        "TokenKeyNotPublished": ReasonExplanation(
            "Google's certificates at hand may be older than the token.", "See that the controller reaches Google."
        ),
        "TokenKeyUnknown": ReasonExplanation("Google publishes no such key.", "Find out who asks."),
        "TokenLifetimeRefused": ReasonExplanation("It is good for longer than an hour.", "Find out who asks."),
        "TokenOfNoInstance": ReasonExplanation(
            "It names no instance.", "Ask for a token in format `full`; a service account's is no instance's."
        ),
        "TokenSignatureInvalid": ReasonExplanation("Google's key did not sign it.", "Find out who asks."),
    }
)
