"""The envelope: a statement and its signatures, as canonical JSON.

::

    {"version":"v1",
     "statement":{"kind":…,"cluster":{"namespace":…,"name":…,"uid":…},"sequence":…,"notBefore":…,"notAfter":…,"payload":{…}},
     "signatures":[{"key":"sha256:…","signature":"<base64>"},…]}

Keys have this order, and there is no white space: the decoder encodes again what it read, and refuses any other text.
So each statement has one text, and that text is signed.

A signature names its key by SHA-256 of the SubjectPublicKeyInfo. There is no field for the algorithm: the key's kind
determines it (:mod:`.signatures`).
"""

from __future__ import annotations

import base64
import binascii
import enum
import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from attestors.wire.binding import CACertHash, InvalidCACertHash
from attestors.wire.statement.client_renewal import ClientRenewal
from attestors.wire.statement.cluster_trust import ClusterTrust
from attestors.wire.statement.controller_keys import ControllerPublicKeys
from attestors.wire.statement.errors import MalformedStatement, UnsupportedStatement
from attestors.wire.statement.node_access_trust import NodeAccessTrust
from attestors.wire.statement.strict_json import (
    canonical,
    expect_keys,
    list_of,
    load,
    number_of,
    object_of,
    text_of,
)

MAXIMUM_STATEMENT_BYTES: Final = 192 * 1024
MAXIMUM_NODE_ACCESS_TRUST_BYTES: Final = 1000 * 1024
"""Of a statement of that kind, which has a ConfigMap for itself."""

_VERSION: Final = "v1"
_CONTEXT: Final = b"node-attestation statement v1"
_MAXIMUM_SIGNATURES: Final = 16
_MAXIMUM_SIGNATURE_BYTES: Final = 512
"""RSA-4096."""
_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_WORD: Final = re.compile(r"[A-Za-z0-9]{1,40}")


class Kind(enum.Enum):
    """What a statement is about."""

    CLUSTER_TRUST = "ClusterTrust"
    CONTROLLER_KEYS = "ControllerKeys"
    CLIENT_RENEWAL = "ClientRenewal"
    NODE_ACCESS_TRUST = "NodeAccessTrust"


Payload: TypeAlias = ClusterTrust | ControllerPublicKeys | ClientRenewal | NodeAccessTrust

_KINDS: Final[Mapping[type[Payload], Kind]] = {
    ClusterTrust: Kind.CLUSTER_TRUST,
    ControllerPublicKeys: Kind.CONTROLLER_KEYS,
    ClientRenewal: Kind.CLIENT_RENEWAL,
    NodeAccessTrust: Kind.NODE_ACCESS_TRUST,
}
_PARSERS: Final[Mapping[Kind, Callable[[dict[str, Any]], Payload]]] = {
    Kind.CLUSTER_TRUST: ClusterTrust.parse,
    Kind.CONTROLLER_KEYS: ControllerPublicKeys.parse,
    Kind.CLIENT_RENEWAL: ClientRenewal.parse,
    Kind.NODE_ACCESS_TRUST: NodeAccessTrust.parse,
}


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A workload cluster: its Cluster object in the management cluster.

    Raises:
        MalformedStatement: a field is not of its form.
    """

    namespace: str
    name: str
    uid: str
    """``clusterctl move`` gives the Cluster another one, so nodes learn a new one with the controller's keys."""

    def __post_init__(self) -> None:
        text_of(self.namespace, "cluster.namespace", _DNS_NAME)
        text_of(self.name, "cluster.name", _DNS_NAME)
        text_of(self.uid, "cluster.uid", _UID)

    def document(self) -> dict[str, str]:
        """The JSON form."""
        return {"namespace": self.namespace, "name": self.name, "uid": self.uid}

    @classmethod
    def parse(cls, value: object) -> ClusterIdentity:
        """Parse the JSON form.

        Raises:
            MalformedStatement: anything else.
        """
        found = object_of(value, "cluster")
        expect_keys(found, "cluster", "namespace", "name", "uid")
        return cls(found["namespace"], found["name"], found["uid"])


@dataclass(frozen=True, slots=True)
class Statement:
    """What is signed.

    Raises:
        MalformedStatement: a number is out of bounds.
    """

    cluster: ClusterIdentity
    sequence: int
    """Increases with each statement of the kind about the cluster. At least 1."""
    not_before: int
    """Unix time."""
    not_after: int
    """Unix time. It bounds for how long a withheld statement, which a later one revoked, can still be delivered."""
    payload: Payload

    def __post_init__(self) -> None:
        number_of(self.sequence, "sequence", minimum=1)
        number_of(self.not_before, "notBefore")
        number_of(self.not_after, "notAfter", minimum=self.not_before + 1)

    @property
    def kind(self) -> Kind:
        """The payload's kind."""
        return _KINDS[type(self.payload)]

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": self.kind.value,
            "cluster": self.cluster.document(),
            "sequence": self.sequence,
            "notBefore": self.not_before,
            "notAfter": self.not_after,
            "payload": self.payload.document(),
        }


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of a statement."""

    key: CACertHash
    """SHA-256 of the key's SubjectPublicKeyInfo."""
    value: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement with its signatures, which nothing has verified yet.

    Raises:
        MalformedStatement: no signature, too many, out of order, or two of one key.
    """

    statement: Statement
    signatures: tuple[Signature, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.signatures) <= _MAXIMUM_SIGNATURES:
            raise MalformedStatement(f"a statement has 1 to {_MAXIMUM_SIGNATURES} signatures")
        keys = [signature.key.text for signature in self.signatures]
        if any(one >= other for one, other in itertools.pairwise(keys)):
            raise MalformedStatement("signatures are not sorted by key, or two are of one key")
        if any(not 0 < len(signature.value) <= _MAXIMUM_SIGNATURE_BYTES for signature in self.signatures):
            raise MalformedStatement("a signature is empty or too long")


def signed_input(statement: Statement) -> bytes:
    """The bytes that are signed: context, kind and canonical text, each after its length (8 bytes, big-endian).

    They begin with a zero byte, which no certificate or other DER value that a CA signs does.
    """
    parts = (_CONTEXT, statement.kind.value.encode("ascii"), canonical(statement.document()).encode("ascii"))
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def encode(signed: SignedStatement) -> bytes:
    """The statement's text, one line without a line end.

    Raises:
        MalformedStatement: larger than what a node reads.
    """
    text = canonical(
        {
            "version": _VERSION,
            "statement": signed.statement.document(),
            "signatures": [
                {"key": signature.key.text, "signature": base64.b64encode(signature.value).decode("ascii")}
                for signature in signed.signatures
            ],
        }
    ).encode("ascii")
    is_node_access = signed.statement.kind is Kind.NODE_ACCESS_TRUST
    maximum = MAXIMUM_NODE_ACCESS_TRUST_BYTES if is_node_access else MAXIMUM_STATEMENT_BYTES
    if len(text) > maximum:
        raise MalformedStatement(f"larger than {maximum} bytes")
    return text


def decode(data: bytes, *, maximum_bytes: int = MAXIMUM_STATEMENT_BYTES) -> SignedStatement:
    """Parse a statement's text. No signature is verified. A reader of ``NodeAccessTrust`` allows more bytes.

    Raises:
        MalformedStatement: not exactly what :func:`encode` writes.
        UnsupportedStatement: the version or the kind is unknown.
    """
    found = load(data, maximum_bytes=maximum_bytes)
    version = text_of(found.get("version"), "version", _WORD)
    if version != _VERSION:
        raise UnsupportedStatement(f"statements of version {version} are not known here")
    expect_keys(found, "the statement", "version", "statement", "signatures")
    signatures = list_of(found["signatures"], "signatures", maximum=_MAXIMUM_SIGNATURES)
    signed = SignedStatement(_statement(found["statement"]), tuple(map(_signature, signatures)))
    if encode(signed) != data:
        raise MalformedStatement("the text is not canonical: white space, order, escapes, or a repeated key")
    return signed


def _statement(value: object) -> Statement:
    found = object_of(value, "statement")
    word = text_of(found.get("kind"), "kind", _WORD)
    try:
        kind = Kind(word)
    except ValueError:
        raise UnsupportedStatement(f"statements of kind {word} are not known here") from None
    expect_keys(found, "statement", "kind", "cluster", "sequence", "notBefore", "notAfter", "payload")
    return Statement(
        cluster=ClusterIdentity.parse(found["cluster"]),
        sequence=number_of(found["sequence"], "sequence"),
        not_before=number_of(found["notBefore"], "notBefore"),
        not_after=number_of(found["notAfter"], "notAfter"),
        payload=_PARSERS[kind](object_of(found["payload"], "payload")),
    )


def _signature(value: object) -> Signature:
    found = object_of(value, "a signature")
    expect_keys(found, "a signature", "key", "signature")
    key, text = found["key"], found["signature"]
    if not isinstance(key, str) or not isinstance(text, str):
        raise MalformedStatement("a signature's key and value must be strings")
    try:
        return Signature(CACertHash(key), base64.b64decode(text.encode("ascii"), validate=True))
    except (InvalidCACertHash, binascii.Error, UnicodeEncodeError):
        raise MalformedStatement("a signature's key or value is not of its form") from None
