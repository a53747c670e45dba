"""Names and bounds of the fields in the TPM attestor's evidence and challenge; both plugins use them."""

from __future__ import annotations

import hashlib
from typing import Final

EVIDENCE_VERSION: Final = "v1"

ENDORSEMENT_PUBLIC_FIELD: Final = "ekPublic"
"""TPMT_PUBLIC of the endorsement key."""
ENDORSEMENT_CERTIFICATE_FIELD: Final = "ekCertificate"
"""As stored in the TPM's NV memory, including padding; omitted if there is none."""
ENDORSEMENT_CHAIN_FIELD: Final = "ekCertificateChain"
"""Intermediate certificates from the TPM, concatenated; omitted if there are none."""
ATTESTATION_PUBLIC_FIELD: Final = "akPublic"
"""TPMT_PUBLIC of the attestation key."""
IDENTITY_FIELDS: Final = (ENDORSEMENT_PUBLIC_FIELD, ATTESTATION_PUBLIC_FIELD)
OPTIONAL_FIELDS: Final = (ENDORSEMENT_CERTIFICATE_FIELD, ENDORSEMENT_CHAIN_FIELD)

CHALLENGE_TOKEN_FIELD: Final = "challengeToken"  # noqa: S105  the name of a field
QUOTE_FIELD: Final = "quote"
"""TPMS_ATTEST."""
QUOTE_SIGNATURE_FIELD: Final = "quoteSignature"
"""TPMT_SIGNATURE."""
PCR_VALUES_FIELD: Final = "pcrValues"
"""Concatenated values, in the order of the selection."""
ANSWER_FIELDS: Final = (CHALLENGE_TOKEN_FIELD, QUOTE_FIELD, QUOTE_SIGNATURE_FIELD, PCR_VALUES_FIELD)

MAXIMUM_PUBLIC_BYTES: Final = 1024
MAXIMUM_CERTIFICATE_BYTES: Final = 8 * 1024
MAXIMUM_CHAIN_BYTES: Final = 16 * 1024
MAXIMUM_QUOTE_BYTES: Final = 1024
MAXIMUM_SIGNATURE_BYTES: Final = 1024
MAXIMUM_PCR_VALUES_BYTES: Final = 4 * 24 * 64
MAXIMUM_TOKEN_CHARACTERS: Final = 256

CHALLENGE_VERSION: Final = "v1"
VERSION_KEY: Final = "version"
TOKEN_KEY: Final = "token"  # noqa: S105  the name of a key
CREDENTIAL_BLOB_KEY: Final = "credentialBlob"
ENCRYPTED_SECRET_KEY: Final = "encryptedSecret"  # noqa: S105  the name of a key
PCR_SELECTION_KEY: Final = "pcrSelection"


def qualifying_data(secret: bytes, binding: bytes) -> bytes:
    """The quote's ``extraData``: it shows that the challenge was opened, and for which request."""
    return hashlib.sha256(secret + binding).digest()
