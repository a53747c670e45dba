"""What ``tls.key`` may hold, beyond what the tests of the whole CA say: hostile and damaged numbers."""

from __future__ import annotations

import base64
import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import pytest
from cryptography.exceptions import InternalError
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key
from hypothesis import given
from hypothesis import strategies as st

from signer.authority import CertificateAuthorityUnavailable, der
from signer.authority import CertificateAuthorityUnavailableReason as Reason
from signer.authority.private_key import read_private_key, require_supported_public_key, sign, verify
from tests.unit.signer.authority.support import ec_key, pem_key, rsa_key

MODULE = "signer.authority.private_key"
RSA_ENCRYPTION = "1.2.840.113549.1.1.1"
NULL = der.encode(0x05, b"")


@dataclass(frozen=True)
class Numbers:
    """RSAPrivateKey (RFC 8017 A.1.2), in its order."""

    version: int
    n: int
    e: int
    d: int
    p: int
    q: int
    d_p: int
    d_q: int
    q_inverse: int

    def pkcs1(self, *further: bytes) -> bytes:
        return der.sequence(*(der.integer(number) for number in astuple(self)), *further)


def numbers(key: rsa.RSAPrivateKey) -> Numbers:
    own = key.private_numbers()
    public = own.public_numbers
    return Numbers(0, public.n, public.e, own.d, own.p, own.q, own.dmp1, own.dmq1, own.iqmp)


def consistent(p: int, q: int, e: int = 65537) -> Numbers:
    """Numbers that fit each other as far as they can when p and q need not be prime."""
    d = pow(e, -1, math.lcm(p - 1, q - 1))
    return Numbers(0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))


def pkcs8(identifier: str, parameters: bytes, key: bytes) -> bytes:
    return der.sequence(
        der.integer(0), der.sequence(der.object_identifier(identifier), parameters), der.octet_string(key)
    )


def armour(content: bytes, label: str = "PRIVATE KEY") -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n".encode()


def refused(content: bytes, reason: Reason) -> None:
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        read_private_key(armour(content))
    assert caught.value.reason is reason, caught.value
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def both_forms(key: bytes) -> tuple[bytes, bytes]:
    return key, pkcs8(RSA_ENCRYPTION, NULL, key)


def refused_unseen(monkeypatch: pytest.MonkeyPatch, key: bytes, reason: Reason) -> None:
    """Refused, as PKCS#1 and PKCS#8, without a call of the library."""
    calls: list[object] = []
    monkeypatch.setattr(f"{MODULE}.load_der_private_key", lambda *args, **_: calls.append(args))
    for content in both_forms(key):
        refused(content, reason)
    assert calls == []


GOOD = numbers(rsa_key())


@pytest.mark.parametrize("bits", [2048, 3072, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_honest_rsa(bits: int, form: PrivateFormat) -> None:
    key = rsa_key(bits)
    read = read_private_key(pem_key(key, form))
    assert isinstance(read, rsa.RSAPrivateKey)
    assert read.private_numbers() == key.private_numbers()


@pytest.mark.parametrize("exponent", [3, 65537])
def test_public_exponents_of_old_and_new_tools(exponent: int) -> None:
    key = rsa.generate_private_key(exponent, 2048)
    assert read_private_key(pem_key(key)).public_key() == key.public_key()


def test_a_private_exponent_reduced_by_either_function() -> None:
    """FIPS 186-5 reduces by lcm(p-1, q-1), RFC 8017 allows (p-1)(q-1) as well."""
    d = pow(GOOD.e, -1, (GOOD.p - 1) * (GOOD.q - 1))
    for form in (GOOD, replace(GOOD, d=d), replace(GOOD, d=d % math.lcm(GOOD.p - 1, GOOD.q - 1))):
        assert read_private_key(armour(form.pkcs1())).public_key() == rsa_key().public_key()


def test_primes_in_either_order() -> None:
    for pair in ((GOOD.p, GOOD.q), (GOOD.q, GOOD.p)):
        assert read_private_key(armour(consistent(*pair).pkcs1())).public_key() == rsa_key().public_key()


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_honest_ecdsa(curve: ec.EllipticCurve, form: PrivateFormat) -> None:
    key = ec.generate_private_key(curve)
    assert read_private_key(pem_key(key, form)).public_key() == key.public_key()


BIG = 2**2047 + 9
OTHER_ALGORITHMS = {
    "DH": ("1.2.840.113549.1.3.1", der.sequence(der.integer(BIG), der.integer(2))),
    "DH of 8,000 bits": ("1.2.840.113549.1.3.1", der.sequence(der.integer(2**8000 - 9), der.integer(2))),
    "X9.42 DH": ("1.2.840.10046.2.1", der.sequence(*(der.integer(number) for number in (BIG, 2, 2**255 + 95)))),
    "DSA": ("1.2.840.10040.4.1", der.sequence(*(der.integer(number) for number in (BIG, 2**255 + 95, 2)))),
    "RSASSA-PSS": ("1.2.840.113549.1.1.10", b""),
    "X25519": ("1.3.101.110", b""),
    "Ed25519": ("1.3.101.112", b""),
    "Ed448": ("1.3.101.113", b""),
    "unheard of": ("1.2.3.4", NULL),
}


@pytest.mark.parametrize("name", OTHER_ALGORITHMS)
def test_other_algorithms_never_reach_the_library(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    calls: list[object] = []
    monkeypatch.setattr(f"{MODULE}.load_der_private_key", lambda *args, **_: calls.append(args))
    refused(pkcs8(*OTHER_ALGORITHMS[name], der.integer(12345)), Reason.KEY_UNSUPPORTED)
    assert calls == []


@pytest.mark.parametrize(
    "error", [InternalError("x", []), ValueError(), UserWarning(), RuntimeError(), OverflowError()]
)
@pytest.mark.parametrize("function", ["load_der_private_key", "sign", "verify"])
def test_whatever_the_library_fails_with(monkeypatch: pytest.MonkeyPatch, function: str, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"{MODULE}.{function}", fail)
    refused(ec_key().private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), Reason.KEY_INVALID)


def test_primes_are_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    """That holds the GIL for 40 to 200 ms a key."""
    seen: list[Any] = []

    def load(content: bytes, **options: object) -> object:
        seen.append(options)
        return rsa_key()

    monkeypatch.setattr(f"{MODULE}.load_der_private_key", load)
    read_private_key(pem_key(rsa_key()))
    assert seen == [{"password": None, "unsafe_skip_rsa_key_validation": True}]


@pytest.mark.parametrize(
    "changes",
    [
        {"n": 2**12000 + 1},
        {"n": 2**4096 + 1},
        {"e": 2**8000 + 1},
        {"e": 2**31 + 1},
        {"e": 65536},
        {"e": 1},
        {"e": 0},
        {"p": 2**2048 + 1},
        {"q": 2**4096 + 1},
        {"version": 1},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_unsupported_numbers(monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]) -> None:
    refused_unseen(monkeypatch, replace(GOOD, **changes).pkcs1(), Reason.KEY_UNSUPPORTED)


def test_multi_prime(monkeypatch: pytest.MonkeyPatch) -> None:
    third = der.sequence(der.sequence(der.integer(3), der.integer(1), der.integer(1)))
    refused_unseen(monkeypatch, replace(GOOD, version=1).pkcs1(third), Reason.KEY_UNSUPPORTED)
    refused_unseen(monkeypatch, GOOD.pkcs1(third), Reason.KEY_INVALID)


def test_a_short_modulus(monkeypatch: pytest.MonkeyPatch) -> None:
    refused_unseen(monkeypatch, numbers(rsa_key(1024)).pkcs1(), Reason.KEY_WEAK)


@pytest.mark.parametrize(
    "changed",
    [
        replace(GOOD, version=2),
        replace(GOOD, n=GOOD.n + 2),
        replace(GOOD, e=3),
        replace(GOOD, d=GOOD.d + 2),
        replace(GOOD, d=0),
        replace(GOOD, d=-GOOD.d),
        replace(GOOD, d=GOOD.d + GOOD.n * math.lcm(GOOD.p - 1, GOOD.q - 1)),
        replace(GOOD, p=GOOD.q),
        replace(GOOD, p=GOOD.p + 2),
        replace(GOOD, p=1, q=GOOD.n >> 1025),
        replace(GOOD, p=0),
        replace(GOOD, p=-GOOD.p, q=-GOOD.q),
        replace(GOOD, n=GOOD.p**2 * 4, q=GOOD.p * 4),
        replace(GOOD, n=(GOOD.p - 1) * 2 * GOOD.q, p=(GOOD.p - 1) * 2),
        replace(GOOD, n=GOOD.p * (GOOD.q - 1) * 2, q=(GOOD.q - 1) * 2),
        replace(GOOD, n=(2**1024 - 1) ** 2, p=2**1024 - 1, q=2**1024 - 1),
        replace(GOOD, d_p=GOOD.d_p + GOOD.p - 1),
        replace(GOOD, d_p=0),
        replace(GOOD, d_q=GOOD.d_q + 2),
        replace(GOOD, q_inverse=GOOD.q_inverse + GOOD.p),
        replace(GOOD, q_inverse=0),
        replace(GOOD, p=GOOD.q, q=GOOD.p),
        # All else fits: the library would take long over them, or not look.
        consistent(GOOD.p + 1, GOOD.q),
        consistent(GOOD.p, GOOD.q + 1),
        replace(GOOD, d=GOOD.d + (GOOD.p - 1)),
        replace(GOOD, d=GOOD.d + (GOOD.q - 1)),
    ],
)
def test_numbers_that_do_not_fit(monkeypatch: pytest.MonkeyPatch, changed: Numbers) -> None:
    refused_unseen(monkeypatch, changed.pkcs1(), Reason.KEY_INVALID)


def test_the_same_is_signed_to_the_same_bytes() -> None:
    """What was journaled, and not published before a crash, is made again."""
    for key in (rsa_key(), ec_key()):
        assert sign(key, b"data") == sign(key, b"data")


COMPOSITE = 2**1024 - 1


@pytest.mark.parametrize("swapped", [False, True])
def test_composite_factors_are_found_by_signing(swapped: bool) -> None:
    """All their numbers fit, and the library takes them unless it validates; nothing that they sign verifies."""
    p, q = (GOOD.q, COMPOSITE) if swapped else (COMPOSITE, GOOD.q)
    for content in both_forms(consistent(p, q).pkcs1()):
        load_der_private_key(content, None, unsafe_skip_rsa_key_validation=True)
        refused(content, Reason.KEY_INVALID)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x30\x00",
        der.sequence(der.integer(0)),
        der.sequence(der.integer(0), der.integer(0)),
        der.sequence(der.integer(0), der.sequence(), der.octet_string(b"")),
        der.sequence(der.integer(0), der.sequence(NULL), der.octet_string(b"")),
        der.sequence(der.integer(0), der.octet_string(b"")),
        pkcs8(RSA_ENCRYPTION, NULL, b""),
        pkcs8(RSA_ENCRYPTION, NULL, b"\x30\x00"),
        pkcs8(RSA_ENCRYPTION, NULL, GOOD.pkcs1() + b"\x00"),
        pkcs8("1.2.840.10045.2.1", NULL, b""),
        GOOD.pkcs1() + b"\x00",
        GOOD.pkcs1(der.integer(0)),
        der.sequence(der.integer(0), *[der.encode(der.Tag.INTEGER, b"")] * 8),
        der.sequence(der.integer(0), *[der.octet_string(b"\x01")] * 8),
        der.sequence(*[der.integer(number) for number in astuple(GOOD)[:-1]], der.encode(2, b"\x00\x01")),
    ],
)
def test_structures_that_are_no_key(content: bytes) -> None:
    refused(content, Reason.KEY_INVALID)


def test_an_encrypted_key_under_the_label_of_a_plain_one() -> None:
    content = der.sequence(der.sequence(der.object_identifier("1.2.840.113549.1.5.13"), NULL), der.octet_string(b"x"))
    refused(content, Reason.KEY_ENCRYPTED)


def test_a_public_exponent_that_no_go_program_verifies_with() -> None:
    largest = rsa.RSAPublicNumbers(2**31 - 1, GOOD.n).public_key()
    assert require_supported_public_key(largest, "tls.crt") is largest
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        require_supported_public_key(rsa.RSAPublicNumbers(2**31 + 1, GOOD.n).public_key(), "tls.crt")
    assert caught.value.reason is Reason.KEY_UNSUPPORTED


def _only_a_key_or_the_error(text: bytes) -> None:
    try:
        key = read_private_key(text)
    except CertificateAuthorityUnavailable:
        return
    verify(key.public_key(), sign(key, b"data"), b"data")


_NATURALS = st.integers(-3, 2**31) | st.builds(
    lambda bits, offset: 2**bits + offset, st.sampled_from([1023, 1024, 2047, 2048, 4095, 4096]), st.integers(-9, 9)
)


@given(
    changes=st.dictionaries(
        st.sampled_from(["version", "n", "e", "d", "p", "q", "d_p", "d_q", "q_inverse"]),
        _NATURALS | st.sampled_from(astuple(GOOD)),
        max_size=4,
    ),
    increments=st.dictionaries(st.sampled_from(["n", "d", "p", "q", "q_inverse"]), st.integers(-2, 2), max_size=1),
    wrapped=st.booleans(),
)
def test_changed_numbers_end_in_a_key_or_in_the_error(
    changes: dict[str, int], increments: dict[str, int], wrapped: bool
) -> None:
    changed = replace(GOOD, **changes)
    changed = replace(changed, **{name: getattr(changed, name) + add for name, add in increments.items()})
    _only_a_key_or_the_error(armour(both_forms(changed.pkcs1())[wrapped]))


@given(p=st.integers(2**1023, 2**1024), q=st.integers(2**1023, 2**1024), e=st.sampled_from([3, 17, 65537]))
def test_fitting_numbers_of_any_factors_end_in_a_key_or_in_the_error(p: int, q: int, e: int) -> None:
    """They pass every check of the numbers; signing must neither hang nor take the process down."""
    p, q = p | 1, q | 1
    if math.gcd(p, q) == 1 and math.gcd((p - 1) * (q - 1), e) == 1:
        _only_a_key_or_the_error(armour(consistent(p, q, e).pkcs1()))


@given(
    position=st.integers(0, len(GOOD.pkcs1()) + 25),
    octet=st.integers(0, 255),
    cut=st.integers(0, 3),
    wrapped=st.booleans(),
)
def test_changed_octets_end_in_a_key_or_in_the_error(position: int, octet: int, cut: int, wrapped: bool) -> None:
    content = both_forms(GOOD.pkcs1())[wrapped]
    changed = content[:position] + bytes([octet]) + content[position + 1 :]
    _only_a_key_or_the_error(armour(changed[: len(changed) - cut]))
