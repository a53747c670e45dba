"""Cause and remedy of the TPM attestor's reasons, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.clouds.reasons import SHARED_EXPLANATIONS
from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ChallengeFromTheFuture": ReasonExplanation(
            "A replica of the controller made the challenge while its clock was ahead.",
            "Set that clock. The node starts again.",
        ),
        "ChallengeKeysMissing": ReasonExplanation(
            "The controller key is not available, or the challenge was made under a key that is not known here (yet).",
            "See [the controller key](recovering.md#the-controller-key).",
        ),
        "EndorsementAuthorityMissing": ReasonExplanation(
            "The authority of the EK certificate is not configured, or has expired.",
            "[Add it](tpm.md#manufacturers-cas).",
        ),
        "EndorsementCertificateMissing": ReasonExplanation(
            "The operator requires EK certificates, and this TPM presents none.", "Choose another `ek` on the node."
        ),
        "EndorsementCertificateNotYetValid": ReasonExplanation(
            "The EK certificate is not valid yet.", "Check the controller's clock."
        ),
        "EndorsementCertificateRefused": ReasonExplanation(
            "The certificate is for another key, is not an EK certificate, has expired, or its chain does not verify.",
            "The message says which. If the manufacturer is not the cause, find out what sent the request.",
        ),
        "EndorsementKeyDenied": ReasonExplanation(
            "The EK is on the operator's deny list.", "Nothing, or remove the key from the list."
        ),
        "EndorsementKeyMismatch": ReasonExplanation(
            "The sources name another chip, or another key of the chip, for that Machine.",
            "If the board was replaced, or the entered fingerprint is wrong or that of a key which [the node does not "
            "use](tpm.md#the-fingerprint), correct it. Otherwise find out what sent the request.",
        ),
        "EndorsementKeySourceUnavailable": ReasonExplanation(
            "An endorsement key source cannot be reached.", "The message names the source and the cause."
        ),
        "EndorsementKeyUnknown": ReasonExplanation(
            "No source names the chip of that Machine.", "[Register it](tpm.md#which-chip-is-in-the-machine)."
        ),
        "EvidenceExpired": SHARED_EXPLANATIONS["EvidenceExpired"],
        "OperatorFileUnusable": ReasonExplanation(
            "A CA folder or deny list cannot be used.",
            "[Fix the file](tpm.md#files-that-change) that the message names.",
        ),
        "QuoteRefused": ReasonExplanation(
            "This TPM did not make the quote, it covers other PCRs than requested, or the policy forbids its values.",
            "If the policy's `pcrs` changed recently, nothing: the node starts again. If firmware was updated on "
            "purpose, add the PCR's current value to [the policy's `pcrs`](tpm.md#the-policys-settings). If Secure "
            "Boot is off, turn it on. Otherwise find out what sent the request.",
        ),
        "UnsuitableTPMKey": ReasonExplanation(
            "The EK or AK is not of an accepted kind.", "Choose another `ek`, or find out what sent the request."
        ),
        "UnusableRequestUID": ReasonExplanation(
            "The CSR's UID is not one that API servers assign.", "Check what serves that API."
        ),
    }
)
