"""What others say to the GCP attestor, as the audit log notes it: nothing secret is among it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from attestors.clouds.noted import ending_read, ending_written, text_of
from attestors.contract import AnswerForm, Consultations, IPAddress
from attestors.gcp.certificates import VerifiedToken
from attestors.gcp.token import IdentityToken
from attestors.gcp.verdict import Ended

T = TypeVar("T")


async def asked(
    consultations: Consultations, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]
) -> T:
    """Ask, where the answer may also end the judgement.

    Raises:
        Ended: it does.
    """
    said = await consultations.ask(question, lambda: _or_ended(answer), _form(form))
    if isinstance(said, Ended):
        raise said
    return said


async def _or_ended(answer: Callable[[], Awaitable[T]]) -> T | Ended:
    try:
        return await answer()
    except Ended as ended:
        return ended


def _form(form: AnswerForm[T]) -> AnswerForm[T | Ended]:
    def write(said: T | Ended) -> Any:
        if isinstance(said, Ended):
            return {"ended": ending_written(said.outcome)}
        return {"said": form.write(said)}

    def read(written: Any) -> T | Ended:
        return Ended(ending_read(written["ended"])) if "ended" in written else form.read(written["said"])

    return AnswerForm(write, read)


def verified_form(token: IdentityToken) -> AnswerForm[VerifiedToken]:
    """That Google signed this token. The log does not hold the signature, so it is not verified again."""

    def read(written: Any) -> VerifiedToken:
        if written != {"keyID": token.key_id}:
            raise ValueError("another key")
        return VerifiedToken(token.claims)

    return AnswerForm(lambda _: {"keyID": token.key_id}, read)


def _addresses_read(written: Any) -> tuple[IPAddress, ...]:
    return tuple(ip_address(text_of(address)) for address in written)


ADDRESSES: Final[AnswerForm[tuple[IPAddress, ...]]] = AnswerForm(
    lambda addresses: [str(address) for address in addresses], _addresses_read
)
"""Of the running instance with that number."""
