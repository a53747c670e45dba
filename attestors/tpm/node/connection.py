"""A connection to a TPM: retries commands while the TPM is busy, and flushes everything it loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node.deadline import attempts
from attestors.tpm.node.device import default_tcti, is_held, unreachable
from attestors.tpm.node.responses import RETRIED, TPMRefused, tpm_code
from attestors.tpm.node.tss import ESAPI, ESYS_TR, TPM2_CAP, TPM2_SE, TCTILdr, TSS2_Exception

_AT_ONCE: Final = 64
"""Items of a list per command; a TPM may return fewer."""
_MAXIMUM_PARTS: Final = 64
_LAST_NUMBER: Final = 0xFFFFFFFF

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class LoadedKey:
    """A key that is usable while its context is open."""

    handle: Any
    """ESYS_TR."""
    public: Any
    """TPMT_PUBLIC."""

    @property
    def public_bytes(self) -> bytes:
        """TPMT_PUBLIC as the TPM encodes it."""
        return bytes(self.public.marshal())


class TPM:
    """A connected TPM."""

    def __init__(self, esys: Any) -> None:
        """``esys`` is an open ESAPI."""
        self.esys: Final = esys

    def ask(self, doing: str, command: Callable[..., _Answer], *arguments: Any, **options: Any) -> _Answer:
        """Run one command; retry while the TPM is busy. ``doing`` completes "the TPM did not ...".

        Raises:
            TPMRefused: the TPM refused, or stayed busy.
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
        """The numbers from ``first`` to ``last`` that the TPM lists under a capability, in as many commands as needed.

        ``items`` selects the list in TPMU_CAPABILITIES, and ``number`` the number in one of its items.

        Raises:
            TPMRefused: the TPM refuses.
            EvidenceUnavailable: the list does not end.
        """
        numbers: list[int] = []
        for _ in range(_MAXIMUM_PARTS):
            begin = numbers[-1] + 1 if numbers else first
            more, found = self.ask(f"list its {what}", self.esys.get_capability, capability, begin, _AT_ONCE)
            part = [number(item) for item in items(found.data)]
            numbers += part
            if not more or not part or part[-1] >= last:
                return tuple(found for found in numbers if first <= found <= last)
        raise EvidenceUnavailable(f"the TPM did not list its {what}: the list does not end")

    def handles(self, first: int, last: int) -> tuple[int, ...]:
        """The TPM's handles from ``first`` to ``last``, ascending."""
        return self.listed("handles", TPM2_CAP.HANDLES, lambda data: data.handles, first=first, last=last)

    def algorithms(self) -> tuple[int, ...]:
        """The TPM's algorithms (TPM_ALG_ID)."""
        return self.listed("algorithms", TPM2_CAP.ALGS, lambda data: data.algorithms, number=lambda item: int(item.alg))

    def curves(self) -> tuple[int, ...]:
        """The TPM's elliptic curves (TPM_ECC_CURVE)."""
        return self.listed("curves", TPM2_CAP.ECC_CURVES, lambda data: data.eccCurves)

    @contextlib.contextmanager
    def primary(self, doing: str, template: Any) -> Iterator[LoadedKey]:
        """Create a primary key of the endorsement hierarchy from its template; the result is the same each time."""
        handle, public, *_ = self.ask(
            doing, self.esys.create_primary, None, template, primary_handle=ESYS_TR.ENDORSEMENT
        )
        with self._flushed(handle):
            yield LoadedKey(handle, public.publicArea)

    @contextlib.contextmanager
    def policy_session(self, hash_algorithm: int) -> Iterator[Any]:
        """An empty policy session."""
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
        """Flush ``handle`` on exit in every case: a TPM has space for three keys, and nothing else flushes it."""
        with contextlib.ExitStack() as undo:
            undo.callback(self._flush_if_possible, handle)  # the first error is the one to report
            yield
            undo.pop_all()
        self._flush(handle)

    def _flush_if_possible(self, handle: Any) -> None:
        with contextlib.suppress(EvidenceUnavailable):
            self._flush(handle)

    def _flush(self, handle: Any) -> None:
        self.ask("flush what this program had loaded", self.esys.flush_context, handle)


@contextlib.contextmanager
def connected(tcti: str | None) -> Iterator[TPM]:
    """Connect to the TPM that ``tcti`` names, or to this machine's TPM.

    Raises:
        EvidenceUnavailable: there is no TPM, or it is unreachable.
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
    """Connect; retry while another program holds the device exclusively."""
    for attempt, more in enumerate(attempts()):
        try:
            return TCTILdr.parse(tcti)
        except TSS2_Exception as error:
            # Try at least twice: the other program may have closed the device between the refusal and this check.
            if not more or (attempt > 0 and not is_held(tcti)):
                raise EvidenceUnavailable(unreachable(tcti, str(error))) from error
    raise AssertionError("unreachable: the last attempt returns or raises")
