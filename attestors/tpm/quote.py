"""Quotes: a TPM's signed statement about its platform configuration registers (PCRs), made for one request.

:func:`verify_quote` is the only entry point. To verify a recorded quote::

    verified = verify_quote(
        ak_public=...,     # TPMT_PUBLIC: what `tpm2_readpublic -f tss` writes, without the two bytes of size in front
        quote=...,         # TPMS_ATTEST: `tpm2_quote -m`
        signature=...,     # TPMT_SIGNATURE: `tpm2_quote -s`
        pcr_values=...,    # the concatenated values in the order of the selection: `tpm2_quote -o -F values`
        selection=PCRSelection.parse("sha256:0,1,7"),
        extra_data=Nonce(b"..."),
    )
    verified.pcrs[PCR(HashAlgorithm.SHA256, 7)]

For a quote that must belong to a request, pass ``extra_data=BoundTo(binding, through)``. Its ``verified.proof`` is the
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
    """The quote is well formed but not acceptable; the message says why."""


class InvalidQuoteSignature(QuoteRefused):
    """The attestation key did not sign these bytes in its scheme."""


class OtherPCRSelection(QuoteRefused):
    """The quote covers other registers than requested."""


class OtherPCRValues(QuoteRefused):
    """The values sent with the quote are not the quoted ones."""


class PCRNotAllowed(QuoteRefused):
    """A register has a value that the cluster's policy does not allow, or the policy names it and it was not quoted."""


@dataclass(frozen=True, slots=True)
class BoundTo:
    """The quote must be made for one request: ``extraData`` equals ``through(binding)``."""

    binding: Binding
    through: Callable[[bytes], bytes]
    """Maps the binding to at least 32 bytes: ``lambda value: sha256(secret + value).digest()``."""


@dataclass(frozen=True, slots=True)
class Nonce:
    """``extraData`` must equal this value: for a quote outside any request. It proves no binding."""

    value: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.value) <= MAXIMUM_EXTRA_DATA_BYTES:
            raise ValueError(f"a nonce has 1 to {MAXIMUM_EXTRA_DATA_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class PCRPolicy:
    """Allowed values of registers; a register that is not named may have any."""

    allowed: Mapping[PCR, frozenset[bytes]]

    def __post_init__(self) -> None:
        for pcr, digests in self.allowed.items():
            size = pcr.bank.digest_bytes
            if not digests or any(len(digest) != size for digest in digests):
                raise ValueError(f"the policy for PCR {pcr} must name at least one digest, each of {size} bytes")
        object.__setattr__(self, "allowed", MappingProxyType(dict(self.allowed)))


ANY_PCR_VALUES: Final = PCRPolicy(MappingProxyType({}))
"""The cluster has no PCR policy."""

Proof_co = TypeVar("Proof_co", bound=ProvenBinding | Nonce, covariant=True)


@dataclass(frozen=True, slots=True)
class VerifiedQuote(Generic[Proof_co]):
    """The TPM that holds ``attestation_key`` made this statement, for ``proof``."""

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
    """Verify a quote from untrusted bytes. It does not establish whose TPM made it.

    The steps run in this order; each relies on those before it:

    1. ``ak_public`` is exactly one TPMT_PUBLIC, of a key that signs only TPM-generated data.
    2. ``signature`` is exactly one TPMT_SIGNATURE in that key's own scheme and hash, and verifies over the bytes of
       ``quote`` as received.
    3. ``quote`` is exactly one TPMS_ATTEST: generated by a TPM, a quote, with nothing after it.
    4. Its ``extraData`` is what ``extra_data`` demands, compared in constant time.
    5. Its signed selection equals ``selection``.
    6. ``pcr_values`` holds one value for each selected register, and nothing else; their hash, with the signature's
       hash algorithm, is its ``pcrDigest``.
    7. Each register that ``pcr_policy`` names was quoted, with a value that the policy allows.

    Raises:
        MalformedStructure: step 1, 2 or 3; the bytes are not the expected structure.
        UnsuitableKey: step 1; the key may not be an attestation key.
        BindingMismatch: step 4.
        QuoteRefused: step 2, 5, 6 or 7; each has its own subclass.
    """
    # 1. The key.
    attestation_key = AttestationKey.decode(ak_public)

    # 2. The signature, over the received bytes.
    signed = decode_signature(signature)
    _check_signature(attestation_key, signed, quote)

    # 3. The statement. It is not parsed before its signature is verified.
    statement = decode_quote(quote)

    # 4. The request that it was made for.
    proof = _prove_extra_data(extra_data, statement.extra_data)

    # 5. The registers, from the signed selection only.
    if statement.selection != selection:
        raise OtherPCRSelection(f"the quote covers {statement.selection}, but {selection} was requested")

    # 6. Their values.
    pcrs = _cut_values(statement.selection, pcr_values)
    digest = hashlib.new(signed.scheme.hash.text, pcr_values).digest()
    if not hmac.compare_digest(digest, statement.pcr_digest):
        raise OtherPCRValues("the PCR values do not hash to the quoted digest")

    # 7. The cluster's policy.
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
    # TPMs use different salt lengths: the longest that fits, or the digest's size.
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
