"""Reads the TPM's NV memory: endorsement key certificates, and the manufacturer's nonces and templates."""

from __future__ import annotations

from typing import Any, Final

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node.connection import TPM
from attestors.tpm.node.responses import (
    TPM_RC_AUTH_FAIL,
    TPM_RC_AUTH_UNAVAILABLE,
    TPM_RC_BAD_AUTH,
    TPM_RC_LOCKOUT,
    TPM_RC_NV_AUTHORIZATION,
    TPM_RC_NV_LOCKED,
    TPM_RC_NV_UNINITIALIZED,
    TPMRefused,
)
from attestors.tpm.node.tss import ESYS_TR, TPM2_CAP, TPMA_NV

_LARGEST_CHUNK: Final = 1024
_SMALLEST_CHUNK: Final = 64
_USUAL_CHUNK: Final = 512
_PROPERTY_NV_BUFFER_MAX: Final = 0x12C
"""TPM_PT_NV_BUFFER_MAX (Part 2, 6.13): the maximum read size per command."""
_UNAUTHORIZED: Final = frozenset(
    {TPM_RC_AUTH_FAIL, TPM_RC_AUTH_UNAVAILABLE, TPM_RC_BAD_AUTH, TPM_RC_NV_AUTHORIZATION, TPM_RC_NV_LOCKED}
)


class UnreadableIndex(EvidenceUnavailable):
    """The index is not publicly readable, or too large."""


class NVReader:
    """Reads whole NV indices of one TPM."""

    def __init__(self, tpm: TPM) -> None:
        """Sends no command."""
        self.tpm = tpm
        self._chunk: int | None = None

    def read(self, index: int, maximum_bytes: int) -> bytes:
        """The whole content of the index; empty if it was never written.

        Raises:
            UnreadableIndex: it is larger than ``maximum_bytes``, requires a password, or is locked.
            EvidenceUnavailable: the TPM refuses.
        """
        doing = f"read NV index {index:#010x}"
        handle = self.tpm.ask(doing, self.tpm.esys.tr_from_tpmpublic, index)
        public, _ = self.tpm.ask(doing, self.tpm.esys.nv_read_public, handle)
        size = int(public.nvPublic.dataSize)
        if size > maximum_bytes:
            raise UnreadableIndex(
                f"NV index {index:#010x} of the TPM holds {size} bytes, more than the limit of {maximum_bytes}"
            )
        # With an empty password: the index's own if that suffices, else the owner's.
        by_index = bool(int(public.nvPublic.attributes) & int(TPMA_NV.AUTHREAD))
        authorization = handle if by_index else ESYS_TR.OWNER
        try:
            return self._read(doing, handle, authorization, size)
        except TPMRefused as refused:
            if refused.code == TPM_RC_NV_UNINITIALIZED:
                return b""
            if refused.code == TPM_RC_LOCKOUT:
                raise UnreadableIndex(str(refused)) from refused
            if refused.code in _UNAUTHORIZED:
                raise UnreadableIndex(
                    f"the TPM did not {doing}: it requires a password of the index or the owner, and this program "
                    f"gives none, or it is locked until the next boot (response code {refused.response:#x}); choose "
                    "another endorsement key with the setting ek"
                ) from refused
            raise

    def _read(self, doing: str, handle: Any, authorization: Any, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            length = min(self._chunk_bytes(), size - len(content))
            part = self.tpm.ask(doing, self.tpm.esys.nv_read, handle, length, len(content), auth_handle=authorization)
            if not bytes(part):
                raise EvidenceUnavailable(f"the TPM did not {doing}: it returned nothing after {len(content)} bytes")
            content += bytes(part)
        return bytes(content)

    def _chunk_bytes(self) -> int:
        if self._chunk is None:
            _, found = self.tpm.ask(
                "say how much it reads at once",
                self.tpm.esys.get_capability,
                TPM2_CAP.TPM_PROPERTIES,
                _PROPERTY_NV_BUFFER_MAX,
                1,
            )
            values = [
                int(item.value) for item in found.data.tpmProperties if int(item.property) == _PROPERTY_NV_BUFFER_MAX
            ]
            self._chunk = max(_SMALLEST_CHUNK, min(_LARGEST_CHUNK, values[0])) if values else _USUAL_CHUNK
        return self._chunk
