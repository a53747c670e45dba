"""Recorded calls of the GCP attestor in the audit log; they contain no secrets."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Final

from attestors.clouds.recorded_calls import text_of
from attestors.contract import AnswerForm, IPAddress
from attestors.gcp.certificates import VerifiedToken
from attestors.gcp.token import IdentityToken


def verified_form(token: IdentityToken) -> AnswerForm[VerifiedToken]:
    """Whether Google signed this token. The log does not hold the signature, so a replay does not verify it again."""

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
"""Addresses of the running instance with that numeric ID."""
