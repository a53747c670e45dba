from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256

from attestors.tpm import constants as tpm
from attestors.tpm.attestation_key import AttestationKey, UnsuitableKey
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.quote import (
    BoundTo,
    InvalidQuoteSignature,
    Nonce,
    _check_signature,
    verify_quote,
)
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.structures import PublicArea, RSASignature, Scheme, Signature
from attestors.wire.binding import Binding, BindingMismatch, ProvenBinding
from tests.unit.attestors.tpm.support import (
    AK_ATTRIBUTES,
    CLOCK,
    ECDSA,
    EXTRA_DATA,
    RSAPSS,
    RSASSA,
    SELECTION,
    Evidence,
    attestation_area,
    ecc_key,
    evidence_of,
    rsa_key,
    sign,
    statement_of,
    value_of,
    values_of,
)

PCR_7 = PCR(HashAlgorithm.SHA256, 7)


def scheme_of(algorithm: SignatureAlgorithm, hash_algorithm: HashAlgorithm) -> Scheme:
    return Scheme(algorithm, hash_algorithm)


class TestWhatIsAccepted:
    def test_says_what_was_quoted(self) -> None:
        verified = evidence_of().verify()
        assert verified.pcrs == {pcr: value_of(pcr) for pcr in SELECTION.registers()}
        assert verified.statement.clock_info == CLOCK
        assert verified.statement.firmware_version == 0x2019102300163636
        assert verified.attestation_key.public == attestation_area()
        assert verified.proof == Nonce(EXTRA_DATA)

    @pytest.mark.parametrize("hash_algorithm", list(HashAlgorithm))
    @pytest.mark.parametrize("algorithm", [SignatureAlgorithm.RSASSA, SignatureAlgorithm.RSAPSS])
    def test_rsa(self, algorithm: SignatureAlgorithm, hash_algorithm: HashAlgorithm) -> None:
        evidence_of(rsa_key(), Scheme(algorithm, hash_algorithm)).verify()

    @pytest.mark.parametrize("hash_algorithm", list(HashAlgorithm))
    @pytest.mark.parametrize("curve", list(Curve))
    def test_ecdsa(self, curve: Curve, hash_algorithm: HashAlgorithm) -> None:
        evidence_of(ecc_key(curve), Scheme(SignatureAlgorithm.ECDSA, hash_algorithm)).verify()

    def test_rsa_of_4096_bits(self) -> None:
        evidence_of(rsa_key("rsa-4096")).verify()

    def test_pss_with_the_longest_salt(self) -> None:
        """What older TPMs sign with; newer ones take a salt of the digest's size."""
        quote = statement_of().encode()
        pss = padding.PSS(padding.MGF1(SHA256()), padding.PSS.MAX_LENGTH)
        signature = Signature(RSAPSS, RSASignature(rsa_key().sign(quote, pss, SHA256())))
        area = attestation_area(scheme=RSAPSS)
        Evidence(area.encode(), quote, signature.encode(), values_of(SELECTION)).verify()

    @pytest.mark.parametrize("text", ["sha384:0,23", "sha256:7+sha384:7", "sha384:7+sha256:0,7", "sha512:16"])
    def test_other_banks_with_the_signatures_hash(self, text: str) -> None:
        """The digest over the values is of the signature's hash, whatever the bank's is."""
        selection = PCRSelection.parse(text)
        pcrs = evidence_of(selection=selection).verify(selection).pcrs
        assert pcrs == {pcr: value_of(pcr) for pcr in selection.registers()}

    @pytest.mark.parametrize("size", [1, 20, 32, 64, 66])
    def test_nonces_of_any_size(self, size: int) -> None:
        nonce = bytes(range(1, size + 1))
        quote = replace(statement_of(), extra_data=nonce).encode()
        evidence = replace(evidence_of(), quote=quote, signature=sign(rsa_key(), RSASSA, quote).encode())
        assert evidence.verify(extra_data=nonce).proof == Nonce(nonce)

    def test_an_unsafe_clock_is_no_fault(self) -> None:
        unsafe = replace(statement_of(), clock_info=replace(CLOCK, safe=False)).encode()
        assert evidence_of(mangle=lambda _: unsafe).verify().statement.clock_info.safe is False

    def test_what_was_verified_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            evidence_of().verify().pcrs[PCR_7] = bytes(32)  # type: ignore[index]


class TestKey:
    """Step 1."""

    @pytest.mark.parametrize("name", ["RESTRICTED", "FIXED_TPM", "FIXED_PARENT", "SENSITIVE_DATA_ORIGIN"])
    def test_a_key_that_may_sign_anything_is_refused(self, name: str) -> None:
        area = attestation_area(attributes=AK_ATTRIBUTES & ~ObjectAttribute[name])
        with pytest.raises(UnsuitableKey, match="must have"):
            evidence_of(area=area).verify()

    def test_an_oversize_modulus_is_refused(self) -> None:
        area = attestation_area().encode()
        start = area.index(bytes.fromhex("0800 00000000 0100"))
        oversize = area[:start] + bytes.fromhex("2000 00000000 0400") + b"\xff" * 1024
        with pytest.raises(MalformedStructure, match="larger than 1024 bytes"):
            replace(evidence_of(), ak_public=oversize).verify()
        with pytest.raises(MalformedStructure, match="not 8192"):
            replace(evidence_of(), ak_public=oversize[:1000]).verify()

    def test_bytes_behind_the_key_are_refused(self) -> None:
        evidence = evidence_of()
        with pytest.raises(MalformedStructure, match="TPMT_PUBLIC: has bytes after"):
            replace(evidence, ak_public=evidence.ak_public + b"\0").verify()

    def test_the_size_in_front_is_not_part_of_the_key(self) -> None:
        public = evidence_of().ak_public
        with pytest.raises(MalformedStructure):
            replace(evidence_of(), ak_public=len(public).to_bytes(2, "big") + public).verify()


class TestSignature:
    """Step 2."""

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(evidence_of(ecc_key(), ECDSA), id="ecc"),
            pytest.param(evidence_of(rsa_key("rsa-4096")), id="rsa"),
        ],
    )
    def test_another_keys_quote_is_refused(self, other: Evidence) -> None:
        with pytest.raises(InvalidQuoteSignature):
            replace(other, ak_public=evidence_of().ak_public).verify()
        with pytest.raises(InvalidQuoteSignature):
            replace(evidence_of(), ak_public=other.ak_public).verify()

    def test_another_key_of_the_same_type_is_refused(self) -> None:
        mine, other = (evidence_of(ecc_key(number=number), ECDSA) for number in (1, 2))
        with pytest.raises(InvalidQuoteSignature, match="did not sign"):
            replace(mine, ak_public=other.ak_public).verify()

    @pytest.mark.parametrize("scheme", [RSASSA, RSAPSS])
    def test_every_byte_is_signed(self, scheme: Scheme) -> None:
        evidence = evidence_of(scheme=scheme)
        for position in range(len(evidence.quote)):
            quote = bytearray(evidence.quote)
            quote[position] ^= 1
            with pytest.raises(InvalidQuoteSignature):
                replace(evidence, quote=bytes(quote)).verify()

    def test_the_key_is_checked_before_the_statement(self) -> None:
        """An attacker's statement is not even looked at."""
        with pytest.raises(InvalidQuoteSignature):
            replace(evidence_of(), quote=b"no TPM made this").verify()

    @pytest.mark.parametrize(
        ("of_the_key", "of_the_signature"),
        [
            pytest.param(RSAPSS, RSASSA, id="padding"),
            pytest.param(RSASSA, RSAPSS, id="other-padding"),
            pytest.param(scheme_of(SignatureAlgorithm.RSASSA, HashAlgorithm.SHA512), RSASSA, id="hash"),
        ],
    )
    def test_another_scheme_than_the_keys_is_refused(self, of_the_key: Scheme, of_the_signature: Scheme) -> None:
        """A restricted key signs in its own scheme only; the signature itself is good."""
        area = attestation_area(scheme=of_the_key)
        with pytest.raises(InvalidQuoteSignature, match="scheme or hash"):
            evidence_of(scheme=of_the_signature, area=area).verify()

    @pytest.mark.parametrize(
        ("area", "signature"),
        [
            pytest.param(attestation_area(ecc_key(), RSASSA), sign(rsa_key(), RSASSA, b"quote"), id="rsa-by-ecc"),
            pytest.param(attestation_area(rsa_key(), ECDSA), sign(ecc_key(), ECDSA, b"quote"), id="ecc-by-rsa"),
        ],
    )
    def test_a_signature_of_another_type_than_the_key_is_refused(self, area: PublicArea, signature: Signature) -> None:
        """Keys that no decoder lets through: their scheme is not one of their type."""
        with pytest.raises(InvalidQuoteSignature, match="another type"):
            _check_signature(AttestationKey(area), signature, b"quote")

    def test_sha1_is_refused(self) -> None:
        evidence = evidence_of()
        with pytest.raises(MalformedStructure, match="TPMT_SIGNATURE: hash uses SHA-1"):
            replace(evidence, signature=evidence.signature.replace(b"\0\x14\0\x0b", b"\0\x14\0\x04", 1)).verify()
        with pytest.raises(MalformedStructure, match="TPMT_PUBLIC: scheme uses SHA-1"):
            replace(evidence, ak_public=evidence.ak_public.replace(b"\0\x14\0\x0b", b"\0\x14\0\x04", 1)).verify()

    @pytest.mark.parametrize("evidence", [evidence_of(), evidence_of(ecc_key(), ECDSA)], ids=["rsa", "ecc"])
    def test_bytes_behind_it_are_refused(self, evidence: Evidence) -> None:
        with pytest.raises(MalformedStructure, match="TPMT_SIGNATURE: has bytes after"):
            replace(evidence, signature=evidence.signature + b"\0").verify()

    @pytest.mark.parametrize(
        "signature",
        [
            pytest.param(bytes.fromhex("0018 000b 0000 0000"), id="empty"),
            pytest.param(bytes.fromhex("0018 000b 0001 00 0001 00"), id="zeros"),
            pytest.param(bytes.fromhex("0018 000b 0001 01 0001 01"), id="ones"),
        ],
    )
    def test_a_signature_that_says_nothing_is_refused(self, signature: bytes) -> None:
        with pytest.raises(InvalidQuoteSignature):
            replace(evidence_of(ecc_key(), ECDSA), signature=signature).verify()

    def test_an_empty_rsa_signature_is_refused(self) -> None:
        with pytest.raises(InvalidQuoteSignature):
            replace(evidence_of(), signature=bytes.fromhex("0014 000b 0000")).verify()


class TestStatement:
    """Step 3. Each of these is signed by the attestation key, as no TPM would."""

    @pytest.mark.parametrize(
        ("mangle", "fault"),
        [
            pytest.param(lambda quote: b"\xff\x54\x43\x48" + quote[4:], "no TPM made this", id="magic"),
            pytest.param(lambda quote: quote[:4] + b"\x80\x17" + quote[6:], "not a quote", id="certify"),
            pytest.param(lambda quote: quote + b"\0", "bytes after its end", id="trailing-byte"),
            pytest.param(lambda quote: quote + quote, "bytes after its end", id="twice"),
            pytest.param(lambda quote: quote[:-1], "ends inside pcrDigest", id="cut"),
            pytest.param(lambda quote: quote.replace(b"\0\x0b\x03", b"\0\x04\x03"), "SHA-1", id="sha1-bank"),
        ],
    )
    def test_anything_but_a_quote_is_refused(self, mangle: Callable[[bytes], bytes], fault: str) -> None:
        with pytest.raises(MalformedStructure, match=f"TPMS_ATTEST: .*{fault}"):
            evidence_of(mangle=mangle).verify()


def digest_with(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda value: hashlib.sha256(secret + value).digest()


class TestExtraData:
    """Step 4."""

    BINDING = Binding(b"b" * 32)

    def verify(self, evidence: Evidence, binding: Binding, through: Callable[[bytes], bytes]) -> Any:
        return verify_quote(
            ak_public=evidence.ak_public,
            quote=evidence.quote,
            signature=evidence.signature,
            pcr_values=evidence.pcr_values,
            selection=SELECTION,
            extra_data=BoundTo(binding, through),
        )

    def bound(self, secret: bytes) -> Evidence:
        extra_data = digest_with(secret)(self.BINDING.value)
        return evidence_of(mangle=lambda quote: quote.replace(EXTRA_DATA, extra_data))

    def test_proves_the_binding(self) -> None:
        verified = self.verify(self.bound(b"secret"), self.BINDING, digest_with(b"secret"))
        assert type(verified.proof) is ProvenBinding
        assert verified.proof.value == self.BINDING.value

    def test_another_secret_is_refused(self) -> None:
        with pytest.raises(BindingMismatch):
            self.verify(self.bound(b"secret"), self.BINDING, digest_with(b"other"))

    def test_another_binding_is_refused(self) -> None:
        with pytest.raises(BindingMismatch):
            self.verify(self.bound(b"secret"), Binding(b"c" * 32), digest_with(b"secret"))

    def test_nothing_meets_no_expectation(self) -> None:
        evidence = evidence_of(mangle=lambda quote: quote.replace(b"\0\x20" + EXTRA_DATA, b"\0\0"))
        with pytest.raises(BindingMismatch):
            self.verify(evidence, self.BINDING, lambda value: b"")

    @pytest.mark.parametrize("nonce", [b"x", EXTRA_DATA[:-1], EXTRA_DATA + b"\0", EXTRA_DATA[::-1]])
    def test_another_nonce_is_refused(self, nonce: bytes) -> None:
        with pytest.raises(BindingMismatch, match="another nonce"):
            evidence_of().verify(extra_data=nonce)

    @pytest.mark.parametrize("nonce", [b"", b"x" * 67])
    def test_a_nonce_that_no_quote_can_hold_is_refused(self, nonce: bytes) -> None:
        with pytest.raises(ValueError, match="1 to 66 bytes"):
            Nonce(nonce)


@pytest.mark.parametrize(
    ("part", "maximum"),
    [
        ("ak_public", tpm.MAXIMUM_PUBLIC_BYTES),
        ("signature", tpm.MAXIMUM_SIGNATURE_BYTES),
        ("quote", tpm.MAXIMUM_ATTEST_BYTES),
    ],
)
def test_each_part_is_bounded(part: str, maximum: int) -> None:
    evidence = evidence_of(mangle=lambda quote: quote.ljust(maximum + 1, b"\0") if part == "quote" else quote)
    if part != "quote":
        evidence = replace(evidence, **{part: getattr(evidence, part).ljust(maximum + 1, b"\0")})
    with pytest.raises(MalformedStructure, match=f"larger than {maximum} bytes"):
        evidence.verify()
