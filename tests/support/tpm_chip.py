"""Uses a software TPM like a node or an attacker: keys of any template, credentials, quotes, bare signatures.

It uses tpm2-pytss (the extra ``tpm``) with encoded values, and shares no encoding with ``attestors.tpm``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from tpm2_pytss import ESAPI, TPM2_ALG, TPM2_SE
from tpm2_pytss.constants import ESYS_TR, TPM2_RH, TPM2_ST
from tpm2_pytss.types import (
    TPM2B_DIGEST,
    TPM2B_ENCRYPTED_SECRET,
    TPM2B_ID_OBJECT,
    TPM2B_PUBLIC,
    TPML_DIGEST_VALUES,
    TPML_PCR_SELECTION,
    TPMT_HA,
    TPMT_SIG_SCHEME,
    TPMT_TK_HASHCHECK,
    TPMU_HA,
)

from tests.support.closing import ClosedAtTheEnd
from tests.support.software_tpm import SoftwareTPM

Handle: TypeAlias = Any
_BANKS: Final = {"sha1": TPM2_ALG.SHA1, "sha256": TPM2_ALG.SHA256, "sha384": TPM2_ALG.SHA384}


class Chip(ClosedAtTheEnd):
    """A connection to one running software TPM."""

    def __init__(self, software_tpm: SoftwareTPM) -> None:
        self._esapi = ESAPI(software_tpm.tcti)

    @contextmanager
    def primary(self, template: bytes, *, owner: bool = False) -> Iterator[tuple[Handle, bytes]]:
        """A primary key of this template in the endorsement or the owner hierarchy: its handle and TPMT_PUBLIC."""
        parsed, _ = TPM2B_PUBLIC.unmarshal(len(template).to_bytes(2, "big") + template)
        hierarchy = ESYS_TR.OWNER if owner else ESYS_TR.ENDORSEMENT
        handle, public, *_ = self._esapi.create_primary(None, parsed, primary_handle=hierarchy)
        try:
            yield handle, public.publicArea.marshal()
        finally:
            self._esapi.flush_context(handle)

    def activate(
        self, attestation_key: Handle, endorsement_key: Handle, id_object: bytes, encrypted_secret: bytes
    ) -> bytes:
        """TPM2_ActivateCredential, with an empty password or the standard endorsement key policy."""
        credential, _ = TPM2B_ID_OBJECT.unmarshal(id_object)
        secret, _ = TPM2B_ENCRYPTED_SECRET.unmarshal(encrypted_secret)
        public, *_ = self._esapi.read_public(endorsement_key)
        if public.publicArea.objectAttributes & 0x40:  # userWithAuth: an empty password suffices
            return bytes(self._esapi.activate_credential(attestation_key, endorsement_key, credential, secret))
        session = self._esapi.start_auth_session(ESYS_TR.NONE, ESYS_TR.NONE, TPM2_SE.POLICY, None, TPM2_ALG.SHA256)
        try:
            self._esapi.policy_secret(ESYS_TR.ENDORSEMENT, session)
            return bytes(
                self._esapi.activate_credential(attestation_key, endorsement_key, credential, secret, session2=session)
            )
        finally:
            self._esapi.flush_context(session)

    def quote(self, attestation_key: Handle, selection: str, extra_data: bytes) -> tuple[bytes, bytes]:
        """TPM2_Quote: TPMS_ATTEST and TPMT_SIGNATURE."""
        parsed = TPML_PCR_SELECTION.parse(selection)
        quoted, signature = self._esapi.quote(attestation_key, parsed, extra_data)
        return bytes(quoted), signature.marshal()

    def sign(self, key: Handle, message: bytes) -> bytes:
        """TPM2_Sign of a message hashed outside the TPM: TPMT_SIGNATURE."""
        ticket = TPMT_TK_HASHCHECK(tag=TPM2_ST.HASHCHECK, hierarchy=TPM2_RH.NULL)
        digest = TPM2B_DIGEST(hashlib.sha256(message).digest())
        return bytes(self._esapi.sign(key, digest, TPMT_SIG_SCHEME(scheme=TPM2_ALG.NULL), ticket).marshal())

    def extend(self, index: int, event: bytes) -> None:
        """TPM2_PCR_Extend, in each bank."""
        digests = [
            TPMT_HA(hashAlg=algorithm, digest=TPMU_HA(**{bank: hashlib.new(bank, event).digest()}))
            for bank, algorithm in _BANKS.items()
        ]
        self._esapi.pcr_extend(ESYS_TR(index), TPML_DIGEST_VALUES(digests))

    def pcr_values(self, selection: str) -> bytes:
        """TPM2_PCR_Read of one register after another; returns the concatenated values."""
        values = b""
        for part in selection.split("+"):
            bank, indices = part.split(":")
            for index in indices.split(","):
                _, _, digests = self._esapi.pcr_read(TPML_PCR_SELECTION.parse(f"{bank}:{index}"))
                values += bytes(digests[0])
        return values

    def close(self) -> None:
        """Close the connection to the TPM."""
        self._esapi.close()
