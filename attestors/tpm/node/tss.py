"""The only import of ``tpm2-pytss``, with tpm2-tss's output to standard error turned off."""

from __future__ import annotations

import os

# tpm2-tss reads it when it first logs. This program reports every refusal itself; an operator may set the variable to
# see more.
os.environ.setdefault("TSS2_LOG", "all+none")

from tpm2_pytss import ESAPI, TCTILdr, TSS2_Exception
from tpm2_pytss.constants import ESYS_TR, TPM2_ALG, TPM2_CAP, TPM2_ECC, TPM2_SE, TPMA_NV, TPMA_OBJECT
from tpm2_pytss.types import (
    TPM2B_DIGEST,
    TPM2B_ECC_PARAMETER,
    TPM2B_ENCRYPTED_SECRET,
    TPM2B_ID_OBJECT,
    TPM2B_PUBLIC,
    TPML_DIGEST,
    TPML_PCR_SELECTION,
    TPMS_ATTEST,
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
from tpm2_pytss.utils import NoSuchIndex, create_ek_template

__all__ = [
    "ESAPI",
    "ESYS_TR",
    "TPM2B_DIGEST",
    "TPM2B_ECC_PARAMETER",
    "TPM2B_ENCRYPTED_SECRET",
    "TPM2B_ID_OBJECT",
    "TPM2B_PUBLIC",
    "TPM2_ALG",
    "TPM2_CAP",
    "TPM2_ECC",
    "TPM2_SE",
    "TPMA_NV",
    "TPMA_OBJECT",
    "TPML_DIGEST",
    "TPML_PCR_SELECTION",
    "TPMS_ATTEST",
    "TPMS_ECC_PARMS",
    "TPMS_ECC_POINT",
    "TPMS_RSA_PARMS",
    "TPMT_ECC_SCHEME",
    "TPMT_KDF_SCHEME",
    "TPMT_PUBLIC",
    "TPMT_RSA_SCHEME",
    "TPMT_SYM_DEF_OBJECT",
    "TPMU_PUBLIC_ID",
    "TPMU_PUBLIC_PARMS",
    "NoSuchIndex",
    "TCTILdr",
    "TSS2_Exception",
    "create_ek_template",
]
