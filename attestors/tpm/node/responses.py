"""Explains responses of a TPM, or of the software below it, in sentences that a person can act on.

Source of the codes: TPM 2.0 Library Specification, Part 2, 6.6 (TPM_RC), and TCG TSS 2.0 Overview and Common
Structures, 3.2 (TSS2_RC: bits 16 to 23 name the layer that answered).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from attestors.contract import EvidenceUnavailable

_LAYER: Final = 0xFF0000
_TPM_LAYER: Final = 0x000000
_RESOURCE_MANAGER_TPM_LAYER: Final = 0x0B0000
"""A resource manager that answers for the TPM, with the TPM's codes."""
TCTI_LAYER: Final = 0x0A0000
_SYS_GENERAL_FAILURE: Final = 0x080001
"""tpm2-tss's code for a response of the older kind (``Tss2_Sys_ExecuteFinish``: "The device is a TPM 1.2")."""

_FORMAT_ONE: Final = 0x080
"""Codes with this bit also name the handle, parameter or session in other bits."""
_FORMAT_ONE_CODE: Final = 0x0BF

TPM_RC_BAD_TAG: Final = 0x01E
TPM_RC_VALUE: Final = 0x084
TPM_RC_HIERARCHY: Final = 0x085
TPM_RC_HANDLE: Final = 0x08B
TPM_RC_AUTH_FAIL: Final = 0x08E
TPM_RC_SIZE: Final = 0x095
TPM_RC_INSUFFICIENT: Final = 0x09A
TPM_RC_POLICY_FAIL: Final = 0x09D
TPM_RC_INTEGRITY: Final = 0x09F
TPM_RC_BAD_AUTH: Final = 0x0A2
TPM_RC_ECC_POINT: Final = 0x0A7
TPM_RC_INITIALIZE: Final = 0x100
TPM_RC_FAILURE: Final = 0x101
TPM_RC_DISABLED: Final = 0x120
TPM_RC_UPGRADE: Final = 0x12D
TPM_RC_AUTH_UNAVAILABLE: Final = 0x12F
TPM_RC_REBOOT: Final = 0x130
TPM_RC_COMMAND_CODE: Final = 0x143
TPM_RC_NV_LOCKED: Final = 0x148
TPM_RC_NV_AUTHORIZATION: Final = 0x149
TPM_RC_NV_UNINITIALIZED: Final = 0x14A
TPM_RC_NO_RESULT: Final = 0x154
TPM_RC_CONTEXT_GAP: Final = 0x901
TPM_RC_OBJECT_MEMORY: Final = 0x902
TPM_RC_SESSION_MEMORY: Final = 0x903
TPM_RC_MEMORY: Final = 0x904
TPM_RC_SESSION_HANDLES: Final = 0x905
TPM_RC_OBJECT_HANDLES: Final = 0x906
TPM_RC_YIELDED: Final = 0x908
TPM_RC_TESTING: Final = 0x90A
TPM_RC_NV_RATE: Final = 0x920
TPM_RC_LOCKOUT: Final = 0x921
TPM_RC_RETRY: Final = 0x922
TPM_RC_NV_UNAVAILABLE: Final = 0x923

RETRIED: Final = frozenset({TPM_RC_RETRY, TPM_RC_YIELDED, TPM_RC_TESTING, TPM_RC_NV_RATE})
"""The TPM has done nothing yet; a retry may succeed."""

_AUTHORIZATION_SET: Final = (
    "the endorsement hierarchy has a password, and this program gives none: remove it with that password "
    "(tpm2_changeauth --object-context=endorsement --object-auth=...), or clear the TPM in the firmware's settings"
)
_FULL: Final = (
    "its memory for keys and sessions is full of other programs': use the kernel's resource manager "
    "(tcti device:/dev/tpmrm0), or flush their leftovers (tpm2_flushcontext --transient-object, --loaded-session)"
)
_TPM_1_2: Final = "it is a TPM 1.2, and a TPM 2.0 is needed: look for one in the firmware's settings"
_BUSY: Final = "it stayed busy: retry later, and check which other program uses it"
_RESTART: Final = "restart the machine"

_SENTENCES: Final = MappingProxyType(
    {
        TPM_RC_BAD_TAG: _TPM_1_2,
        TPM_RC_HIERARCHY: (
            "its endorsement hierarchy is disabled: restart the machine, and enable the hierarchy in the firmware's "
            "settings if it stays so"
        ),
        TPM_RC_AUTH_FAIL: _AUTHORIZATION_SET,
        TPM_RC_BAD_AUTH: _AUTHORIZATION_SET,
        TPM_RC_AUTH_UNAVAILABLE: _AUTHORIZATION_SET,
        TPM_RC_POLICY_FAIL: (
            "the policy of the endorsement key asks for more than the EK Credential Profile does; choose another key "
            "with the setting ek"
        ),
        TPM_RC_INITIALIZE: (
            "it was not started (TPM2_Startup): the firmware does that at boot, and a software TPM with the flag "
            "startup-clear"
        ),
        TPM_RC_FAILURE: f"it is in failure mode: {_RESTART}; if that does not help, it is defective",
        TPM_RC_DISABLED: "the command is disabled: check the firmware's settings",
        TPM_RC_UPGRADE: f"a firmware upgrade is unfinished: finish it, and {_RESTART}",
        TPM_RC_REBOOT: f"it needs a reset: {_RESTART}",
        TPM_RC_COMMAND_CODE: "it does not know the command: look for newer firmware",
        TPM_RC_CONTEXT_GAP: _FULL,
        TPM_RC_OBJECT_MEMORY: _FULL,
        TPM_RC_SESSION_MEMORY: _FULL,
        TPM_RC_MEMORY: _FULL,
        TPM_RC_SESSION_HANDLES: _FULL,
        TPM_RC_OBJECT_HANDLES: _FULL,
        TPM_RC_YIELDED: _BUSY,
        TPM_RC_TESTING: _BUSY,
        TPM_RC_RETRY: _BUSY,
        TPM_RC_NV_RATE: _BUSY,
        TPM_RC_NV_UNAVAILABLE: "its NV memory is unavailable now: retry later",
        TPM_RC_LOCKOUT: (
            "it is locked after too many wrong passwords: wait until it unlocks itself, or unlock it with its lockout "
            "password (tpm2_dictionarylockout --clear-lockout)"
        ),
    }
)


class TPMRefused(EvidenceUnavailable):
    """The TPM, or a layer between it and this program, refused a command."""

    def __init__(self, doing: str, response: int, meaning: str) -> None:
        """``meaning`` is the library's text for ``response``, used if there is no better sentence."""
        self.code = tpm_code(response)
        """The TPM's own code without its handle, parameter or session; ``None`` if another layer answered."""
        self.response = response
        super().__init__(f"the TPM did not {doing}: {_sentence(response, meaning)}")


def tpm_code(response: int) -> int | None:
    """The TPM's code in ``response``; ``None`` if another layer answered."""
    if response & _LAYER not in (_TPM_LAYER, _RESOURCE_MANAGER_TPM_LAYER):
        return None
    code = response & ~_LAYER
    return code & _FORMAT_ONE_CODE if code & _FORMAT_ONE else code


def _sentence(response: int, meaning: str) -> str:
    if response & _LAYER == TCTI_LAYER:
        return f"the connection to it broke ({meaning}): is it still running?"
    if response == _SYS_GENERAL_FAILURE:
        return _TPM_1_2
    code = tpm_code(response)
    known = None if code is None else _SENTENCES.get(code)
    return f"{meaning} (response code {response:#x})" if known is None else known
