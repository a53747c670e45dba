"""Answers a challenge: decrypts it with the endorsement key, and quotes with the attestation key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node.challenge import Challenge
from attestors.tpm.node.connection import TPM, LoadedKey
from attestors.tpm.node.responses import (
    TPM_RC_ECC_POINT,
    TPM_RC_FAILURE,
    TPM_RC_INSUFFICIENT,
    TPM_RC_INTEGRITY,
    TPM_RC_NO_RESULT,
    TPM_RC_SIZE,
    TPM_RC_VALUE,
    TPMRefused,
)
from attestors.tpm.node.templates import UnknownPolicy, authorization
from attestors.tpm.node.tss import (
    ESYS_TR,
    TPM2_ALG,
    TPM2B_DIGEST,
    TPM2B_ENCRYPTED_SECRET,
    TPM2B_ID_OBJECT,
    TPML_DIGEST,
    TPML_PCR_SELECTION,
    TPMS_ATTEST,
)
from attestors.tpm.selection import PCRBankSelection, PCRSelection

SECRET_BYTES: Final = 32
"""The size of the controller's secret, an HMAC-SHA256."""
QUOTE_ATTEMPTS: Final = 5
"""PCRs may be extended between read and quote; then both are repeated."""
_READ_AT_ONCE: Final = 8
"""The most values that TPM2_PCR_Read returns (Part 2, 10.9.6: TPML_DIGEST)."""
_FOREIGN_CHALLENGE: Final = frozenset(
    {
        TPM_RC_ECC_POINT,
        # libtpms, if the seed was not encrypted for its RSA key; a TPM in failure mode fails earlier.
        TPM_RC_FAILURE,
        TPM_RC_INSUFFICIENT,
        TPM_RC_INTEGRITY,
        TPM_RC_NO_RESULT,
        TPM_RC_SIZE,
        TPM_RC_VALUE,
    }
)
"""Response codes for a credential made for other keys, or malformed (Part 3, 12.5)."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A TPM's quote of its PCRs, as the TPM encoded it."""

    attested: bytes
    """TPMS_ATTEST."""
    signature: bytes
    """TPMT_SIGNATURE."""
    pcr_values: bytes
    """The concatenated values, in the order of the selection."""


def activate(tpm: TPM, endorsement: LoadedKey, attestation: LoadedKey, challenge: Challenge) -> bytes:
    """Decrypt the challenge's secret; only the TPM that has both keys can (Part 3, 12.5: TPM2_ActivateCredential).

    Raises:
        EvidenceUnavailable: the challenge is not for these keys, or the TPM refuses.
    """
    blob, _ = TPM2B_ID_OBJECT.unmarshal(challenge.credential_blob)
    encrypted, _ = TPM2B_ENCRYPTED_SECRET.unmarshal(challenge.encrypted_secret)
    try:
        policy = authorization(bytes(endorsement.public.authPolicy))
    except UnknownPolicy as error:
        raise EvidenceUnavailable(
            f"the policy of the TPM's endorsement key is {error}; choose another key with the setting ek"
        ) from error
    with tpm.policy_session(TPM2_ALG(policy.hash_algorithm.value)) as session:
        tpm.ask(
            "authorise the use of its endorsement key",
            tpm.esys.policy_secret,
            ESYS_TR.ENDORSEMENT,
            session,
            expiration=0,
        )
        if policy.alternatives:
            branches = TPML_DIGEST([TPM2B_DIGEST(branch) for branch in policy.alternatives])
            tpm.ask("authorise the use of its endorsement key", tpm.esys.policy_or, session, branches)
        try:
            secret = tpm.ask(
                "open the controller's challenge",
                tpm.esys.activate_credential,
                attestation.handle,
                endorsement.handle,
                blob,
                encrypted,
                session2=session,
            )
        except TPMRefused as refused:
            if refused.code in _FOREIGN_CHALLENGE:
                raise EvidenceUnavailable(
                    "the controller's challenge is not for this TPM's keys: was the TPM reset or replaced since the "
                    "first request? Start again with a new request"
                ) from refused
            raise
    if len(bytes(secret)) != SECRET_BYTES:
        raise EvidenceUnavailable(f"the controller's challenge holds a secret that is not {SECRET_BYTES} bytes long")
    return bytes(secret)


def quote(tpm: TPM, attestation: LoadedKey, commitment: bytes, selection: PCRSelection) -> Quote:
    """Quote the selected PCRs, and return the quoted values.

    Raises:
        EvidenceUnavailable: the TPM does not have the PCRs, they keep changing, or it refuses.
    """
    wanted = TPML_PCR_SELECTION.parse(str(selection))
    for _ in range(QUOTE_ATTEMPTS):
        values = _pcr_values(tpm, selection)
        attested, signature = tpm.ask("quote its PCRs", tpm.esys.quote, attestation.handle, wanted, commitment)
        statement, _ = tpm.ask("write a quote that can be read", TPMS_ATTEST.unmarshal, bytes(attested))
        if bytes(statement.attested.quote.pcrSelect.marshal()) != selection.encode():
            raise _missing_pcrs(selection)
        # Both attestation key templates sign with SHA-256, and the digest's hash is the signature's.
        if bytes(statement.attested.quote.pcrDigest) == hashlib.sha256(values).digest():
            return Quote(bytes(attested), bytes(signature.marshal()), values)
    raise EvidenceUnavailable(
        f"the TPM's PCRs changed during each of {QUOTE_ATTEMPTS} attempts to quote them: retry later, and check "
        "which program keeps extending them"
    )


def _pcr_values(tpm: TPM, selection: PCRSelection) -> bytes:
    values = b""
    for selected in selection.banks:
        for start in range(0, len(selected.indices), _READ_AT_ONCE):
            values += _read(tpm, PCRBankSelection(selected.bank, selected.indices[start : start + _READ_AT_ONCE]))
    return values


def _read(tpm: TPM, part: PCRBankSelection) -> bytes:
    """The values of at most eight PCRs."""
    selection = PCRSelection((part,))
    _, returned, digests = tpm.ask("read its PCRs", tpm.esys.pcr_read, TPML_PCR_SELECTION.parse(str(selection)))
    values = b"".join(bytes(digest) for digest in digests)
    if bytes(returned.marshal()) != selection.encode() or len(values) != len(part.indices) * part.bank.digest_bytes:
        raise _missing_pcrs(selection)
    return values


def _missing_pcrs(selection: PCRSelection) -> EvidenceUnavailable:
    banks = ", ".join(selected.bank.text for selected in selection.banks)
    return EvidenceUnavailable(
        f"the TPM lacks PCRs that the controller requests ({selection}): activate the bank {banks} "
        "in the firmware's settings (or with tpm2_pcrallocate), or select others in the cluster's policy"
    )
