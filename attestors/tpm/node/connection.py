"""One connection to a TPM: commands that are tried again while it is busy, and nothing left loaded in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node.deadline import attempts
from attestors.tpm.node.device import default_tcti, is_taken, unreachable
from attestors.tpm.node.responses import RETRIED, TPMRefused, tpm_code
from attestors.tpm.node.tss import ESAPI, ESYS_TR, TPM2_CAP, TPM2_SE, TCTILdr, TSS2_Exception

_AT_ONCE: Final = 64
"""How many items of a list one command asks for; a TPM may give fewer."""
_MAXIMUM_PARTS: Final = 64
_LAST_NUMBER: Final = 0xFFFFFFFF

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class LoadedKey:
    """A key that can be used as long as its context lasts."""

    handle: Any
    """ESYS_TR."""
    public: Any
    """TPMT_PUBLIC."""

    @property
    def public_bytes(self) -> bytes:
        """TPMT_PUBLIC as the TPM writes it."""
        return bytes(self.public.marshal())


class TPM:
    """A TPM that can be asked."""

    def __init__(self, esys: Any) -> None:
        """``esys`` is an open ESAPI."""
        self.esys: Final = esys

    def ask(self, doing: str, command: Callable[..., _Answer], *arguments: Any, **options: Any) -> _Answer:
        """Run one command, again while the TPM is busy. ``doing`` completes "the TPM did not ...".

        Raises:
            TPMRefused: it refused, or was busy for too long.
        """
        for more in attempts():
            try:
                return command(*arguments, **options)
            except TSS2_Exception as error:
                if not more or tpm_code(int(error.rc)) not in RETRIED:
                    raise TPMRefused(doing, int(error.rc), str(error)) from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def listed(
        self,
        what: str,
        capability: int,
        items: Callable[[Any], Iterable[Any]],
        *,
        first: int = 0,
        last: int = _LAST_NUMBER,
        number: Callable[[Any], int] = int,
    ) -> tuple[int, ...]:
        """The numbers from ``first`` to ``last`` that the TPM lists under a capability, however many it gives at once.

        ``items`` picks the list out of TPMU_CAPABILITIES, and ``number`` the number out of one of its items.

        Raises:
            TPMRefused: the TPM does not answer.
            EvidenceUnavailable: its answer has no end.
        """
        numbers: list[int] = []
        for _ in range(_MAXIMUM_PARTS):
            begin = numbers[-1] + 1 if numbers else first
            more, found = self.ask(f"list its {what}", self.esys.get_capability, capability, begin, _AT_ONCE)
            part = [number(item) for item in items(found.data)]
            numbers += part
            if not more or not part or part[-1] >= last:
                return tuple(found for found in numbers if first <= found <= last)
        raise EvidenceUnavailable(f"the TPM did not list its {what}: there is no end to them")

    def handles(self, first: int, last: int) -> tuple[int, ...]:
        """The handles from ``first`` to ``last`` that the TPM has, ascending."""
        return self.listed("handles", TPM2_CAP.HANDLES, lambda data: data.handles, first=first, last=last)

    def algorithms(self) -> tuple[int, ...]:
        """The algorithms that the TPM has (TPM_ALG_ID)."""
        return self.listed("algorithms", TPM2_CAP.ALGS, lambda data: data.algorithms, number=lambda item: int(item.alg))

    def curves(self) -> tuple[int, ...]:
        """The elliptic curves that the TPM has (TPM_ECC_CURVE)."""
        return self.listed("curves", TPM2_CAP.ECC_CURVES, lambda data: data.eccCurves)

    @contextlib.contextmanager
    def primary(self, doing: str, template: Any) -> Iterator[LoadedKey]:
        """Make a primary key of the endorsement hierarchy from its template; it is the same each time."""
        handle, public, *_ = self.ask(
            doing, self.esys.create_primary, None, template, primary_handle=ESYS_TR.ENDORSEMENT
        )
        with self._flushed(handle):
            yield LoadedKey(handle, public.publicArea)

    @contextlib.contextmanager
    def policy_session(self, hash_algorithm: int) -> Iterator[Any]:
        """A policy session without anything in it yet."""
        session = self.ask(
            "start a session",
            self.esys.start_auth_session,
            ESYS_TR.NONE,
            ESYS_TR.NONE,
            TPM2_SE.POLICY,
            symmetric=None,
            auth_hash=hash_algorithm,
        )
        with self._flushed(session):
            yield session

    @contextlib.contextmanager
    def _flushed(self, handle: Any) -> Iterator[None]:
        """Whatever happens, ``handle`` is flushed: a TPM has room for three keys, and nobody else would do it."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(EvidenceUnavailable):  # what went wrong before is what a person should read
                self._flush(handle)
            raise
        self._flush(handle)

    def _flush(self, handle: Any) -> None:
        self.ask("flush what this program had loaded", self.esys.flush_context, handle)


@contextlib.contextmanager
def connected(tcti: str | None) -> Iterator[TPM]:
    """Connect to the TPM that ``tcti`` names, or to this machine's.

    Raises:
        EvidenceUnavailable: there is none, or it cannot be reached.
    """
    name = default_tcti() if tcti is None else tcti
    with contextlib.closing(_open(name)) as transport:
        try:
            esys = ESAPI(transport)
        except TSS2_Exception as error:
            raise EvidenceUnavailable(unreachable(name, str(error))) from error
        with contextlib.closing(esys):
            yield TPM(esys)


def _open(tcti: str) -> Any:
    """Connect; while another program has the device for itself, again and again."""
    for attempt, more in enumerate(attempts()):
        try:
            return TCTILdr.parse(tcti)
        except TSS2_Exception as error:
            # At least twice: who had it may have let go of it between the refusal and this look.
            if not more or (attempt > 0 and not is_taken(tcti)):
                raise EvidenceUnavailable(unreachable(tcti, str(error))) from error
    raise AssertionError("unreachable: the last attempt returns or raises")
