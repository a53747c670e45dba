"""A connection to a software TPM that answers some commands in the TPM's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tpm2_pytss import PyTCTI, TCTILdr

FLUSH_CONTEXT: Final = 0x165
QUOTE: Final = 0x158

Rule: TypeAlias = Callable[[int, int], int | None]
"""Gets the command's number, from 1, and its command code; gives the response code to answer with, if it answers."""


class Interposer(PyTCTI):  # type: ignore[misc]  # tpm2-pytss has no types
    """Hands commands to the TPM and answers back, but for those that its rule answers."""

    def __init__(self, tcti: str, rule: Rule = lambda number, code: None) -> None:
        super().__init__()
        self._inner: Any = TCTILdr.parse(tcti)
        self._rule = rule
        self._answer: bytes | None = None
        self.before: dict[int, bytes] = {}
        """Commands that somebody else runs right before ours of that command code."""
        self.codes: list[int] = []
        """Command codes of all commands so far."""

    def do_transmit(self, command: bytes) -> None:
        code = int.from_bytes(command[6:10], "big")
        self.codes.append(code)
        response = self._rule(len(self.codes), code)
        if response is not None:
            self._answer = bytes.fromhex("80010000000a") + response.to_bytes(4, "big")
            return
        if code in self.before:
            self._inner.transmit(self.before[code])
            assert self._inner.receive()[6:10] == bytes(4)
        self._inner.transmit(command)

    def do_receive(self, timeout: int) -> bytes:
        if self._answer is not None:
            answer, self._answer = self._answer, None
            return answer
        received: bytes = self._inner.receive(timeout=timeout)
        return received

    def close(self) -> None:
        self._inner.close()


def extend_command(index: int) -> bytes:
    """TPM2_PCR_Extend of a SHA-256 PCR, with its empty password (Part 3, 22.2)."""
    authorization = bytes.fromhex("400000090000000000")
    body = index.to_bytes(4, "big") + len(authorization).to_bytes(4, "big") + authorization
    body += bytes.fromhex("00000001000b") + bytes(range(32))
    return bytes.fromhex("8002") + (10 + len(body)).to_bytes(4, "big") + bytes.fromhex("00000182") + body
