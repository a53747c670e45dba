"""Quotes: a TPM's signed word on its platform configuration registers (PCRs), made for this very request.

:func:`verify_quote` is the entry point, the only one. A quote that somebody recorded is judged like this::

    verified = verify_quote(
        ak_public=...,     # TPMT_PUBLIC: what `tpm2_readpublic -f tss` writes, without the two bytes of size in front
        quote=...,         # TPMS_ATTEST: `tpm2_quote -m`
        signature=...,     # TPMT_SIGNATURE: `tpm2_quote -s`
        pcr_values=...,    # the values, one behind the other, in the order of the selection: `tpm2_quote -o -F values`
        selection=PCRSelection.parse("sha256:0,1,7"),
        extra_data=Nonce(b"..."),
    )
    verified.pcrs[PCR(HashAlgorithm.SHA256, 7)]

and one that must belong to a request with ``extra_data=BoundTo(binding, through)``, whose ``verified.proof`` is the
:class:`~attestors.wire.binding.ProvenBinding` that a verified identity needs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar, overload

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from attestors.tpm.attestation_key import AttestationKey
from attestors.tpm.constants import MAXIMUM_EXTRA_DATA_BYTES, SignatureAlgorithm
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.statement import QuoteStatement, decode_quote
from attestors.tpm.structures import CRYPTOGRAPHY_HASHES, RSASignature, Signature, decode_signature
from attestors.wire.binding import Binding, BindingMismatch, ProvenBinding


class QuoteRefused(Exception):
    """The quote is well formed and says, or is, something else than it should; the message says what."""


class InvalidQuoteSignature(QuoteRefused):
    """The attestation key did not sign these bytes in its scheme."""


class OtherPCRSelection(QuoteRefused):
    """Other registers were quoted than were asked for."""


class OtherPCRValues(QuoteRefused):
    """The values that came with the quote are not those that were quoted."""


class PCRNotAllowed(QuoteRefused):
    """A register has a value that the cluster's policy does not allow, or was not quoted although it has a policy."""


@dataclass(frozen=True, slots=True)
class BoundTo:
    """The quote must have been made for one request: ``extraData`` is what ``through`` makes of its binding."""

    binding: Binding
    through: Callable[[bytes], bytes]
    """Gets the binding, returns at least 32 bytes: ``lambda value: sha256(secret + value).digest()``."""


@dataclass(frozen=True, slots=True)
class Nonce:
    """``extraData`` must be exactly this: for a quote that belongs to no request of ours. It proves no binding."""

    value: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.value) <= MAXIMUM_EXTRA_DATA_BYTES:
            raise ValueError(f"a nonce has 1 to {MAXIMUM_EXTRA_DATA_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class PCRPolicy:
    """Which values registers may have; one that is not named may have any."""

    allowed: Mapping[PCR, frozenset[bytes]]

    def __post_init__(self) -> None:
        for pcr, digests in self.allowed.items():
            size = pcr.bank.digest_bytes
            if not digests or any(len(digest) != size for digest in digests):
                raise ValueError(f"the policy for PCR {pcr} must name at least one digest, each of {size} bytes")
        object.__setattr__(self, "allowed", MappingProxyType(dict(self.allowed)))


ANY_PCR_VALUES: Final = PCRPolicy(MappingProxyType({}))
"""The cluster has no policy for PCRs."""

Proof_co = TypeVar("Proof_co", bound=ProvenBinding | Nonce, covariant=True)


@dataclass(frozen=True, slots=True)
class VerifiedQuote(Generic[Proof_co]):
    """The TPM that holds ``attestation_key`` says this, and said it for ``proof``."""

    attestation_key: AttestationKey
    statement: QuoteStatement
    pcrs: Mapping[PCR, bytes]
    proof: Proof_co


@overload
def verify_quote(
    *,
    ak_public: bytes,
    quote: bytes,
    signature: bytes,
    pcr_values: bytes,
    selection: PCRSelection,
    extra_data: BoundTo,
    pcr_policy: PCRPolicy = ...,
) -> VerifiedQuote[ProvenBinding]: ...


@overload
def verify_quote(
    *,
    ak_public: bytes,
    quote: bytes,
    signature: bytes,
    pcr_values: bytes,
    selection: PCRSelection,
    extra_data: Nonce,
    pcr_policy: PCRPolicy = ...,
) -> VerifiedQuote[Nonce]: ...


def verify_quote(
    *,
    ak_public: bytes,
    quote: bytes,
    signature: bytes,
    pcr_values: bytes,
    selection: PCRSelection,
    extra_data: BoundTo | Nonce,
    pcr_policy: PCRPolicy = ANY_PCR_VALUES,
) -> VerifiedQuote[ProvenBinding | Nonce]:
    """Judge a quote, from untrusted bytes to what the TPM said. Whose TPM it is, is not judged here.

    In this order, each step with what the steps before it established:

    1. ``ak_public`` is exactly one TPMT_PUBLIC, and of a key that signs only what its TPM made.
    2. ``signature`` is exactly one TPMT_SIGNATURE in that key's own scheme and hash, and verifies over the bytes of
       ``quote`` as they came.
    3. ``quote`` is exactly one TPMS_ATTEST: made by a TPM, a quote, nothing behind it.
    4. Its ``extraData`` is what ``extra_data`` demands, compared in constant time.
    5. The selection in it, which is signed, is ``selection``.
    6. ``pcr_values`` holds one value for each selected register, and nothing else; together they hash, with the
       signature's hash algorithm, to the ``pcrDigest`` in it.
    7. Each register that ``pcr_policy`` names was quoted, with a value that the policy allows.

    Raises:
        MalformedStructure: step 1, 2 or 3; bytes that are not the structure that they should be.
        UnsuitableKey: step 1; the key may not be an attestation key.
        BindingMismatch: step 4.
        QuoteRefused: step 2, 5, 6 or 7; each has a class of its own.
    """
    # 1. The key.
    attestation_key = AttestationKey.decode(ak_public)

    # 2. The signature, over the very bytes.
    signed = decode_signature(signature)
    _check_signature(attestation_key, signed, quote)

    # 3. The statement: nothing of it was looked at before.
    statement = decode_quote(quote)

    # 4. For whom it was made.
    proof = _prove_extra_data(extra_data, statement.extra_data)

    # 5. Which registers: what is signed, never what came beside it.
    if statement.selection != selection:
        raise OtherPCRSelection(f"the quote is of {statement.selection}, and {selection} was asked for")

    # 6. Their values.
    pcrs = _cut_values(statement.selection, pcr_values)
    digest = hashlib.new(signed.scheme.hash.text, pcr_values).digest()
    if not hmac.compare_digest(digest, statement.pcr_digest):
        raise OtherPCRValues("the PCR values do not hash to the quoted digest")

    # 7. What the cluster allows.
    _check_policy(pcr_policy, pcrs)
    return VerifiedQuote(attestation_key, statement, pcrs, proof)


def _check_signature(attestation_key: AttestationKey, signature: Signature, signed: bytes) -> None:
    if signature.scheme != attestation_key.scheme:
        raise InvalidQuoteSignature("the signature is of another scheme or hash than the attestation key's")
    digest = CRYPTOGRAPHY_HASHES[signature.scheme.hash]
    key, value = attestation_key.key, signature.value
    try:
        if isinstance(key, rsa.RSAPublicKey) and isinstance(value, RSASignature):
            key.verify(value.octets, signed, _rsa_padding(signature), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and not isinstance(value, RSASignature):
            r, s = int.from_bytes(value.r, "big"), int.from_bytes(value.s, "big")
            key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        else:
            raise InvalidQuoteSignature("the signature is of another type than the attestation key")
    except InvalidSignature:
        raise InvalidQuoteSignature("the attestation key did not sign this quote") from None


def _rsa_padding(signature: Signature) -> padding.PKCS1v15 | padding.PSS:
    if signature.scheme.algorithm is SignatureAlgorithm.RSASSA:
        return padding.PKCS1v15()
    # TPMs differ in how long a salt they take: the longest that fits, or the digest's size.
    return padding.PSS(padding.MGF1(CRYPTOGRAPHY_HASHES[signature.scheme.hash]), padding.PSS.AUTO)


def _prove_extra_data(expected: BoundTo | Nonce, committed: bytes) -> ProvenBinding | Nonce:
    if isinstance(expected, BoundTo):
        return expected.binding.prove(committed, through=expected.through)
    if not hmac.compare_digest(expected.value, committed):
        raise BindingMismatch("the quote was made for another nonce")
    return expected


def _cut_values(selection: PCRSelection, values: bytes) -> Mapping[PCR, bytes]:
    pcrs: dict[PCR, bytes] = {}
    position = 0
    for pcr in selection.registers():
        pcrs[pcr] = values[position : position + pcr.bank.digest_bytes]
        position += pcr.bank.digest_bytes
    if position != len(values):
        raise OtherPCRValues(f"the values of {selection} have {position} bytes, and {len(values)} came with the quote")
    return MappingProxyType(pcrs)


def _check_policy(policy: PCRPolicy, pcrs: Mapping[PCR, bytes]) -> None:
    for pcr, allowed in policy.allowed.items():
        if pcr not in pcrs:
            raise PCRNotAllowed(f"the cluster's policy names PCR {pcr}, which was not quoted")
        if pcrs[pcr] not in allowed:
            raise PCRNotAllowed(f"PCR {pcr} has a value that the cluster's policy does not allow")
