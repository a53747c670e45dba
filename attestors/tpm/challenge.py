"""Challenges that need no stored state.

The controller does not store its challenges: a flood of first requests would fill its memory, and the answer may reach
another replica, or the same one after a restart. It therefore derives the secret that the TPM must recover::

    token  = "2.<UID of the first CSR>-<identifier of the Cluster>-<identifier of the challenge key>.<expiry>"
    secret = HMAC-SHA256(challenge key, "tpm challenge v2", token, UID of the Cluster, EK name, AK name, binding)

The binding covers the requested key, the cluster's CA and the signer. Clusters may share a CA; the UID of the Cluster
tells them apart. Tokens of version 1, without "2.", the Cluster's identifier and that UID in the secret, are verified
still: recorded requests have them, and the controller gives out no secret for one.

Each part is prefixed with its length; the expiry is in Unix time. The token goes to the node in clear and comes back
with the answer. An answer with a changed token, or for another key, cluster, signer, EK or AK, needs another secret.
Only the TPM with that EK and that AK can decrypt the credential that carries the secret (TPM 2.0 Library Part 1,
section 24).

The key's identifier reveals nothing about the key. It lets a replica that does not hold the key, yet or any more,
tell an answer that must wait from a wrong one. The Cluster's identifier is a hash of its UID. With it, the controller
recognizes an answer that was under way while its Cluster was created again; the node then starts again.

An answer is good until the token expires. It commits to the request's key, and the core issues one certificate for one
key, so a copied answer yields no second certificate.
"""

from __future__ import annotations

import base64
import hashlib
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
"""A TPM answers within a second; the rest covers the node's second request. Far below any certificate's lifetime."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""Tolerated clock difference between two replicas."""

_CONTEXTS: Final = {1: b"tpm challenge v1", 2: b"tpm challenge v2"}
_VERSION: Final = 2
_KEY_CONTEXT: Final = b"tpm challenge key identifier v1"
_CLUSTER_CONTEXT: Final = b"tpm challenge cluster identifier v1"
_IDENTIFIER_CHARACTERS: Final = 16
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,128}")
_TOKEN: Final = re.compile(
    r"(?:(?P<first>[0-9A-Za-z-]{1,128})|2\.(?P<second>[0-9A-Za-z-]{1,128})-(?P<cluster>[0-9a-f]{16}))"
    r"-(?P<key>[0-9a-f]{16})\.(?P<expiry>[1-9][0-9]{0,11})"
)


def key_identifier(challenge_key: bytes) -> str:
    """The identifier of a challenge key in a token."""
    return hmac.digest(challenge_key, _KEY_CONTEXT, "sha256").hex()[:_IDENTIFIER_CHARACTERS]


def cluster_identifier(cluster_uid: str) -> str:
    """The identifier of a Cluster in a token, from its UID."""
    return hashlib.sha256(_CLUSTER_CONTEXT + cluster_uid.encode("utf-8")).hexdigest()[:_IDENTIFIER_CHARACTERS]


class InvalidToken(ValueError):
    """The token is malformed."""


class ChallengeExpired(Exception):
    """The answer arrived, or was verified, after the token expired."""


class ChallengeOfAnotherCluster(Exception):
    """The challenge was made for another Cluster object than the one that gets the answer."""


class ChallengeFromTheFuture(Exception):
    """The challenge was made while the clock of a replica was ahead."""


@dataclass(frozen=True, slots=True)
class Token:
    """The part of a challenge that the answer returns in clear."""

    csr_uid: str
    expiry: int
    """Unix time."""
    cluster_identifier: str
    """Identifier of the Cluster; empty in tokens of version 1."""
    key_identifier: str = ""
    """Identifier of the challenge key; empty until a key is chosen."""

    @property
    def version(self) -> int:
        """The version of the token's form, and of the secret."""
        return _VERSION if self.cluster_identifier else 1

    def __str__(self) -> str:
        version = f"{_VERSION}." if self.cluster_identifier else ""
        cluster = f"-{self.cluster_identifier}" if self.cluster_identifier else ""
        key = f"-{self.key_identifier}" if self.key_identifier else ""
        return f"{version}{self.csr_uid}{cluster}{key}.{self.expiry}"

    def under(self, challenge_key: bytes) -> Token:
        """The token with the identifier of that challenge key."""
        return replace(self, key_identifier=key_identifier(challenge_key))

    @classmethod
    def issue(cls, csr_uid: str, cluster_uid: str, now: datetime) -> Token:
        """Create the token of a new challenge.

        Raises:
            InvalidToken: the UID is not one that API servers assign.
        """
        if not _UID.fullmatch(csr_uid):
            raise InvalidToken("the request's UID is of no form that an API server gives")
        return cls(csr_uid, int((now + LIFETIME).timestamp()), cluster_identifier(cluster_uid))

    @classmethod
    def parse(cls, text: str) -> Token:
        """Parse a token.

        Raises:
            InvalidToken: it is malformed.
        """
        found = _TOKEN.fullmatch(text)
        if found is None:
            raise InvalidToken("the challenge token does not have the form that the controller issues")
        return cls(found["first"] or found["second"], int(found["expiry"]), found["cluster"] or "", found["key"])

    def require_valid(self, now: datetime) -> None:
        """Check that the token is valid at ``now``.

        Raises:
            ChallengeExpired: the token has expired.
            ChallengeFromTheFuture: the token expires so late that it could be answered in advance.
        """
        # Compared as numbers: a node may send an expiry beyond the range of datetime.
        if now.timestamp() >= self.expiry:
            expiry = datetime.fromtimestamp(self.expiry, UTC)
            raise ChallengeExpired(
                f"the challenge was good until {expiry:%Y-%m-%dT%H:%M:%SZ}; the node starts again with a new key"
            )
        if self.expiry - now.timestamp() > (LIFETIME + CLOCKS_APART).total_seconds():
            raise ChallengeFromTheFuture(
                "the challenge was made by a controller whose clock was ahead; the node starts again with a new key"
            )

    def require_cluster(self, cluster_uid: str) -> None:
        """Check that the challenge was made for that Cluster, as far as the token says it; the secret proves it.

        Raises:
            ChallengeOfAnotherCluster: the token names another one.
        """
        if self.cluster_identifier and self.cluster_identifier != cluster_identifier(cluster_uid):
            raise ChallengeOfAnotherCluster(
                "the challenge was made for another Cluster, or before this one was created again; the node starts "
                "again with a new key"
            )

    def expires_in(self, now: datetime) -> timedelta:
        """Remaining validity of a valid token."""
        return timedelta(seconds=self.expiry - now.timestamp())


@dataclass(frozen=True, slots=True)
class ChallengeInputs:
    """The inputs of a challenge; its secret depends on all of them."""

    token: Token
    endorsement_key: EndorsementKey
    attestation_key: AttestationKey
    binding: Binding
    cluster_uid: str

    def secret(self, challenge_key: bytes) -> bytes:
        """The secret of this challenge under one of the controller's challenge keys."""
        message = bytearray()
        cluster = () if self.token.version == 1 else (self.cluster_uid.encode("utf-8"),)
        for part in (
            _CONTEXTS[self.token.version],
            str(self.token).encode("ascii"),
            *cluster,
            self.endorsement_key.name,
            self.attestation_key.name,
            self.binding.value,
        ):
            message += len(part).to_bytes(8, "big") + part
        return hmac.digest(challenge_key, bytes(message), "sha256")

    def text(self, challenge_key: bytes, selection: PCRSelection, *, random_bytes: Callable[[int], bytes]) -> str:
        """The JSON text for the annotation. Everybody can read it; only one TPM can recover the secret.

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
