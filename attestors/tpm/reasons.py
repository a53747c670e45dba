"""Why the TPM attestor refuses or waits: cause and cure, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.errors import SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ChallengeFromTheFuture": ReasonExplanation(
            "A replica of the controller made the challenge while its clock was ahead.",
            "Set that clock; the node starts again.",
        ),
        "ChallengeKeysMissing": ReasonExplanation(
            "The controller key is not at hand, or the challenge was made under one that is not known here (yet).",
            "See [the controller key](recovering.md#the-controller-key).",
        ),
        "EndorsementAuthorityMissing": ReasonExplanation(
            "The authority of the EK certificate is not configured, or has run out.",
            "[Add it](tpm.md#manufacturers-cas).",
        ),
        "EndorsementCertificateMissing": ReasonExplanation(
            "The operator wants EK certificates, and this TPM shows none.", "Choose another `ek` on the node."
        ),
        "EndorsementCertificateNotYetValid": ReasonExplanation(
            "Its time has not begun.", "Compare the controller's clock."
        ),
        "EndorsementCertificateRefused": ReasonExplanation(
            "It is not of this key, or no endorsement key's, has run out, or its chain does not hold.",
            "The message says which. Where nothing of it is the manufacturer's doing, find out who asks.",
        ),
        "EndorsementKeyDenied": ReasonExplanation(
            "It is on the operator's deny list.", "Nothing, or take it off the list."
        ),
        "EndorsementKeyMismatch": ReasonExplanation(
            "Another chip is said to be in that Machine than the one that answered, or another key of it.",
            "Was the board replaced, the wrong fingerprint entered, or that of a key which [the node does not "
            "use](tpm.md#the-fingerprint)? Then correct it. Else find out who asks.",
        ),
        "EndorsementKeySourceUnavailable": ReasonExplanation(
            "A source that knows which chip it is cannot be asked.", "The message says which, and why."
        ),
        "EndorsementKeyUnknown": ReasonExplanation(
            "Nobody says which chip is in that Machine.", "[Say it](tpm.md#which-chip-is-in-the-machine)."
        ),
        "EvidenceExpired": SHARED_EXPLANATIONS["EvidenceExpired"],
        "OperatorFileUnusable": ReasonExplanation(
            "A CA folder or deny list cannot be used.",
            "[Mend the file](tpm.md#files-that-change) that the message names.",
        ),
        "QuoteRefused": ReasonExplanation(
            "The quote is not this TPM's, not of the PCRs asked for, or of values that the policy does not allow.",
            "Where the policy's `pcrs` have just been changed, nothing: the node starts again. Where firmware was "
            "updated on purpose, add what the PCR holds now to [the policy's `pcrs`](tpm.md#the-policys-settings); "
            "turn Secure Boot on where it is off. Else find out who asks.",
        ),
        "UnsuitableTPMKey": ReasonExplanation(
            "EK or AK is not of the kind that proves anything.", "Choose another `ek`; else find out who asks."
        ),
        "UnusableRequestUID": ReasonExplanation(
            "The CSR's UID is none that API servers give.", "See what serves that API."
        ),
    }
)
