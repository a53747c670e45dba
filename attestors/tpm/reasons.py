"""Why the TPM attestor denies a request or lets it wait: causes and remedies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ChallengeExpired": ReasonExplanation(
            "The answer to the challenge came later than five minutes after the challenge, or waited for so long.",
            "Nothing: the node [asks again](node.md#evidence-that-runs-out), and gets another challenge. If it happens "
            "again, find out what the request waits for, and compare the clocks.",
        ),
        "ChallengeFromTheFuture": ReasonExplanation(
            "A replica of the controller made the challenge while its clock was ahead.",
            "Compare the clocks of the controller's replicas, and set the wrong one.",
        ),
        "ChallengeKeysMissing": ReasonExplanation(
            "The controller key is not available, or the challenge was made under a controller key that this replica "
            "does not know, or not yet.",
            "Nothing if it ends within 5 minutes: the request waits for a replica that knows the key, and the node "
            "starts again when the challenge has expired. Otherwise see "
            "[the controller key](recovering.md#the-controller-key).",
        ),
        "ChallengeOfAnotherCluster": ReasonExplanation(
            "The node answered a challenge that the controller made for another Cluster, or for this one before it was "
            "created again.",
            "Nothing if the Cluster was created again: the node [asks again](node.md#evidence-that-runs-out), "
            "and gets another challenge. Otherwise a requester tries the answer of one Cluster in another: find it.",
        ),
        "EndorsementAuthorityMissing": ReasonExplanation(
            "The CA of the EK certificate is not configured, or has expired.",
            "[Add the CA](tpm.md#manufacturers-cas) to its folder. For an expired CA, see the setting "
            "`acceptExpiredAuthorities`.",
        ),
        "EndorsementCertificateMissing": ReasonExplanation(
            "The operator configured endorsement roots, and this TPM shows no EK certificate.",
            "Select an EK that has a certificate with the node's setting `ek`. If the TPM has none, it cannot be used "
            "together with endorsement roots.",
        ),
        "EndorsementCertificateNotYetValid": ReasonExplanation(
            "The EK certificate is not valid yet.", "Compare the controller's clock with the correct time."
        ),
        "EndorsementCertificateRefused": ReasonExplanation(
            "The EK certificate is of another key, is not an endorsement key certificate, has expired, or its chain "
            "does not verify.",
            "The message says which. Unless the manufacturer made the mistake, find the machine that sent the request: "
            "a certificate of another key is no accident.",
        ),
        "EndorsementKeyDenied": ReasonExplanation(
            "The endorsement key, or the chip that its certificate names, is on the operator's deny list.",
            "Nothing, or remove the entry from [the list](tpm.md#revocation).",
        ),
        "EndorsementKeyMismatch": ReasonExplanation(
            "The endorsement key source names another TPM for that Machine, or another key of the same TPM.",
            "If the board was replaced, if the fingerprint is wrong, or if it is that of an EK that "
            "[the node does not use](tpm.md#the-fingerprint), correct the source. Otherwise another machine claims "
            "this one's provider ID: find it.",
        ),
        "EndorsementKeySourceUnavailable": ReasonExplanation(
            "The controller cannot ask an endorsement key source at the moment.",
            "Read the message: it says which source, and why.",
        ),
        "EndorsementKeyTemplateNotAllowed": ReasonExplanation(
            "The EK is made from a template that the operator does not accept: a TPM has a key for each template, and "
            "several keys would make one TPM several machines.",
            "Select an accepted EK with the node's setting `ek`. If the TPM has no certificate for one, the operator "
            "adds the template to [`endorsementKeyTemplates`](tpm.md#one-chip-one-key).",
        ),
        "EndorsementKeyUnknown": ReasonExplanation(
            "No endorsement key source says which TPM is in that Machine, or a source is unclear.",
            "[Record the TPM's endorsement key](tpm.md#which-chip-is-in-the-machine). The message says what each "
            "source lacks.",
        ),
        "OperatorFileUnusable": ReasonExplanation(
            "A CA folder or the deny list cannot be read, or is malformed.",
            "[Repair the file](tpm.md#files-that-change) that the message names.",
        ),
        "QuoteRefused": ReasonExplanation(
            "This TPM did not sign the quote, the quote is of other PCRs than the controller asked for, or a PCR has a "
            "value that the policy does not allow.",
            "Nothing if the policy's `pcrs` have just changed: the node starts again. If the firmware was updated, add "
            "the PCR's new value to [the policy's `pcrs`](tpm.md#the-policys-settings). If Secure Boot is off, turn it "
            "on. Otherwise find the machine that sent the request.",
        ),
        "UnsuitableTPMKey": ReasonExplanation(
            "The EK is not made from a supported template, or the AK is not a restricted signing key that is fixed to "
            "its TPM.",
            "Select another EK with the node's setting `ek`. The project's own program never makes an unsuitable AK: "
            "if the message names the AK, find the machine that sent the request.",
        ),
        "UnusableRequestUID": ReasonExplanation(
            "The UID of the CSR is not one that API servers generate.", "Check what serves that API."
        ),
    }
)
