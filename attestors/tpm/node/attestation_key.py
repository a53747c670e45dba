"""The attestation key (AK): a primary key of the endorsement hierarchy, from a fixed template.

The TPM derives a primary key from the hierarchy's seed and the template. The same key therefore comes back for the
answer to a challenge, after a crash and after a restart, and nothing is stored (TPM 2.0 Library Specification, Part 1,
"Primary Seeds").
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from typing import Any, Final

from attestors.tpm.node.connection import TPM, LoadedKey
from attestors.tpm.node.tss import (
    TPM2_ALG,
    TPM2_ECC,
    TPM2B_PUBLIC,
    TPMA_OBJECT,
    TPMS_ECC_PARMS,
    TPMS_ECC_POINT,
    TPMS_RSA_PARMS,
    TPMT_ECC_SCHEME,
    TPMT_KDF_SCHEME,
    TPMT_PUBLIC,
    TPMT_RSA_SCHEME,
    TPMT_SYM_DEF_OBJECT,
    TPMU_PUBLIC_ID,
    TPMU_PUBLIC_PARMS,
)

LABEL: Final = hashlib.sha256(b"capi-node-attestation attestation key v1").digest()
"""Part of the template's unique field, so that the key differs from other programs' keys."""
RSA_KEY_BITS: Final = 2048
_P256_BYTES: Final = 32

# Restricted: it signs only TPM-generated data. Without dictionary attack protection: it has no password, and a locked
# TPM must still be able to attest.
_ATTRIBUTES: Final = (
    TPMA_OBJECT.FIXEDTPM
    | TPMA_OBJECT.FIXEDPARENT
    | TPMA_OBJECT.SENSITIVEDATAORIGIN
    | TPMA_OBJECT.USERWITHAUTH
    | TPMA_OBJECT.NODA
    | TPMA_OBJECT.RESTRICTED
    | TPMA_OBJECT.SIGN_ENCRYPT
)


def attestation_key(tpm: TPM) -> AbstractContextManager[LoadedKey]:
    """Create the attestation key: ECC P-256 if the TPM supports it, else RSA-2048, which takes some TPMs a minute."""
    return tpm.primary("make the attestation key", ecc_template() if _has_p256(tpm) else rsa_template())


def ecc_template() -> Any:
    """TPM2B_PUBLIC: ECC P-256, ECDSA with SHA-256."""
    scheme = TPMT_ECC_SCHEME(scheme=TPM2_ALG.ECDSA)
    scheme.details.anySig.hashAlg = TPM2_ALG.SHA256
    return _template(
        TPM2_ALG.ECC,
        TPMU_PUBLIC_PARMS(
            eccDetail=TPMS_ECC_PARMS(
                symmetric=TPMT_SYM_DEF_OBJECT(algorithm=TPM2_ALG.NULL),
                scheme=scheme,
                curveID=TPM2_ECC.NIST_P256,
                kdf=TPMT_KDF_SCHEME(scheme=TPM2_ALG.NULL),
            )
        ),
        TPMU_PUBLIC_ID(ecc=TPMS_ECC_POINT(x=LABEL, y=bytes(_P256_BYTES))),
    )


def rsa_template() -> Any:
    """TPM2B_PUBLIC: RSA-2048, RSASSA with SHA-256."""
    scheme = TPMT_RSA_SCHEME(scheme=TPM2_ALG.RSASSA)
    scheme.details.anySig.hashAlg = TPM2_ALG.SHA256
    return _template(
        TPM2_ALG.RSA,
        TPMU_PUBLIC_PARMS(
            rsaDetail=TPMS_RSA_PARMS(
                symmetric=TPMT_SYM_DEF_OBJECT(algorithm=TPM2_ALG.NULL), scheme=scheme, keyBits=RSA_KEY_BITS
            )
        ),
        TPMU_PUBLIC_ID(rsa=LABEL + bytes(RSA_KEY_BITS // 8 - len(LABEL))),
    )


def _template(kind: Any, parameters: Any, unique: Any) -> Any:
    return TPM2B_PUBLIC(
        publicArea=TPMT_PUBLIC(
            type=kind, nameAlg=TPM2_ALG.SHA256, objectAttributes=_ATTRIBUTES, parameters=parameters, unique=unique
        )
    )


def _has_p256(tpm: TPM) -> bool:
    if not {int(TPM2_ALG.ECC), int(TPM2_ALG.ECDSA)} <= set(tpm.algorithms()):
        return False
    return int(TPM2_ECC.NIST_P256) in tpm.curves()
