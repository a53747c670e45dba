"""Challenges that nobody remembers.

The controller cannot keep what it asked: a flood of first requests would fill its memory, and the answer may reach
another replica, or the same one after a restart. So the secret that the TPM has to open is computed, not drawn::

    token  = "<UID of the first CSR>-<identifier of the challenge key>.<expiry, Unix time>"
    secret = HMAC-SHA256(challenge key, "tpm challenge v1", token, EK name, AK name, binding)

each part with its length before it. The token goes to the node in clear and comes back with the answer; whoever changes
it, or answers for another key, cluster, signer, EK or AK, has not the secret that belongs to it. Only the TPM with that
EK, holding that AK, can open the credential in which the secret travels (TPM 2.0 Library Part 1, section 24).

The identifier says nothing about the key. By it a replica that does not know the key yet, or any more, can tell an
honest answer, for which it waits, from one that is wrong.

An answer is good until it expires. It commits to the request's key, and the core gives one key one certificate, so a
copy of an answer gets nobody a second one.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from attestors.tpm import wire
from attestors.tpm.attestation_key import AttestationKey, EndorsementKey
from attestors.tpm.credential import make_credential
from attestors.tpm.selection import PCRSelection
from attestors.wire.binding import Binding

LIFETIME: Final = timedelta(minutes=5)
"""A TPM answers within a second; the rest is for the node's way back. Far below the life of any certificate."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""As much as the clocks of two replicas may differ."""

_CONTEXT: Final = b"tpm challenge v1"
_KEY_CONTEXT: Final = b"tpm challenge key identifier v1"
_IDENTIFIER_CHARACTERS: Final = 16
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,128}")
_TOKEN: Final = re.compile(r"(?P<uid>[0-9A-Za-z-]{1,128})-(?P<key>[0-9a-f]{16})\.(?P<expiry>[1-9][0-9]{0,11})")


def key_identifier(challenge_key: bytes) -> str:
    """What a token names a challenge key by."""
    return hmac.digest(challenge_key, _KEY_CONTEXT, "sha256").hex()[:_IDENTIFIER_CHARACTERS]


class InvalidToken(ValueError):
    """The token is not of the form that challenges have."""


class ChallengeExpired(Exception):
    """The answer comes too late, or had to wait for too long."""


class ChallengeFromTheFuture(Exception):
    """The challenge was made while a clock was ahead."""


@dataclass(frozen=True, slots=True)
class Token:
    """What the answer brings back in clear."""

    csr_uid: str
    expiry: int
    """Unix time."""
    key_identifier: str = ""
    """Of the challenge key; empty before one is chosen."""

    def __str__(self) -> str:
        key = f"-{self.key_identifier}" if self.key_identifier else ""
        return f"{self.csr_uid}{key}.{self.expiry}"

    def under(self, challenge_key: bytes) -> Token:
        """The token of a challenge under that key."""
        return replace(self, key_identifier=key_identifier(challenge_key))

    @classmethod
    def issue(cls, csr_uid: str, now: datetime) -> Token:
        """The token of a challenge that is made now.

        Raises:
            InvalidToken: the UID is none that an API server gives.
        """
        if not _UID.fullmatch(csr_uid):
            raise InvalidToken("the request's UID is of no form that an API server gives")
        return cls(csr_uid, int((now + LIFETIME).timestamp()))

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read a token.

        Raises:
            InvalidToken: it is none.
        """
        found = _TOKEN.fullmatch(text)
        if found is None:
            raise InvalidToken("the challenge token is not of the form that the controller gives")
        return cls(found["uid"], int(found["expiry"]), found["key"])

    def require_valid(self, now: datetime) -> None:
        """The answer is in time.

        Raises:
            ChallengeExpired: it is too late.
            ChallengeFromTheFuture: for as long as that it could be answered in advance.
        """
        # As numbers: a node may write an expiry that is no date any more.
        if now.timestamp() >= self.expiry:
            expiry = datetime.fromtimestamp(self.expiry, UTC)
            raise ChallengeExpired(
                f"the challenge was good until {expiry:%Y-%m-%dT%H:%M:%SZ}; the node starts again with a new key"
            )
        if self.expiry - now.timestamp() > (LIFETIME + CLOCKS_APART).total_seconds():
            raise ChallengeFromTheFuture(
                "the challenge was made by a controller whose clock was ahead; the node starts again with a new key"
            )

    def expires_in(self, now: datetime) -> timedelta:
        """How long a token that is valid stays so."""
        return timedelta(seconds=self.expiry - now.timestamp())


@dataclass(frozen=True, slots=True)
class Challenged:
    """Whom a challenge is for: the secret depends on all of it."""

    token: Token
    endorsement_key: EndorsementKey
    attestation_key: AttestationKey
    binding: Binding

    def secret(self, challenge_key: bytes) -> bytes:
        """The secret of this challenge under one of the controller's challenge keys."""
        message = bytearray()
        for part in (
            _CONTEXT,
            str(self.token).encode("ascii"),
            self.endorsement_key.name,
            self.attestation_key.name,
            self.binding.value,
        ):
            message += len(part).to_bytes(8, "big") + part
        return hmac.digest(challenge_key, bytes(message), "sha256")

    def text(self, challenge_key: bytes, selection: PCRSelection, *, random_bytes: Callable[[int], bytes]) -> str:
        """The challenge as it goes into the annotation: readable by all, to be opened by one TPM.

        Its token names ``challenge_key``.
        """
        named = replace(self, token=self.token.under(challenge_key))
        credential = make_credential(
            self.endorsement_key, self.attestation_key, named.secret(challenge_key), random_bytes=random_bytes
        )
        document = {
            wire.VERSION_KEY: wire.CHALLENGE_VERSION,
            wire.TOKEN_KEY: str(named.token),
            wire.CREDENTIAL_BLOB_KEY: base64.b64encode(credential.id_object).decode("ascii"),
            wire.ENCRYPTED_SECRET_KEY: base64.b64encode(credential.encrypted_secret).decode("ascii"),
            wire.PCR_SELECTION_KEY: str(selection),
        }
        return json.dumps(document, separators=(",", ":"))
