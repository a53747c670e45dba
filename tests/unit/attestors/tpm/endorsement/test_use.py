"""What may pass for an endorsement key certificate, and what may not, however genuine its chain is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.tpm.endorsement import (
    CertificateExpired,
    CertificateNotYetValid,
    CertificateUnreadable,
    EndorsementKeyMismatch,
    NotAnEndorsementCertificate,
    verify_endorsement_certificate,
)
from signer.authority.der import bit_string, encode, integer, sequence
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    ENDORSEMENT,
    NOW,
    Attempt,
    elliptic_key,
    endorsement,
    intermediate,
    root,
    rsa_key,
)

CONSTRAINTS, USAGE, PURPOSE = ENDORSEMENT
TPM_NAME = write.tpm_name(write.name(*write.tpm_attributes("id:53544D20", "ST33", "id:00010200")))
MODEL_NAME = write.tpm_name(write.name(*write.tpm_attributes("id:53544D20", "ST33", "id:00010200")[1:]))
INSTANCE = write.extension(
    "1.3.6.1.4.1.11129.2.1.21", sequence(encode(0x0C, b"zone"), integer(7), encode(0x0C, b"project"), integer(42))
)
ANY_PURPOSE = "2.5.29.37.0"
WEB_SERVER = "1.3.6.1.5.5.7.3.1"


def test_the_ordinary_one_is_accepted() -> None:
    verified = Attempt().verify()
    assert (verified.issuer, verified.root) == ("CN=Test endorsement intermediate", "CN=Test endorsement root")
    assert (verified.serial_number, verified.subject) == (4711, "(empty name)")
    assert verified.public_key == elliptic_key("endorsement").public_key()
    assert (verified.not_before, verified.not_after) == (write.NOT_BEFORE, write.NOT_AFTER)


@pytest.mark.parametrize(
    "extensions",
    [
        (USAGE, INSTANCE),
        (PURPOSE,),
        (CONSTRAINTS, TPM_NAME),
        (USAGE, TPM_NAME, write.purposes(ANY_PURPOSE)),
        (USAGE, write.purposes(WEB_SERVER, write.EK_CERTIFICATE)),
        (CONSTRAINTS, write.key_usage(write.KEY_ENCIPHERMENT), PURPOSE),
        (CONSTRAINTS, write.key_usage(b"\x03\x02\x03\x88"), PURPOSE),
        (*ENDORSEMENT, write.tpm_specification(write.CRITICAL)),
        (*ENDORSEMENT, write.policies(write.CRITICAL)),
        (*ENDORSEMENT, write.extension("2.5.29.18", b"\x30\x00", write.CRITICAL)),
        (*ENDORSEMENT, write.extension("2.5.29.31", b"\x30\x00", write.CRITICAL)),
        (*ENDORSEMENT, write.extension("1.2.3.4", b"anything")),
        (*ENDORSEMENT, write.extension("2.5.29.14", b"\x04\x01\x05", write.CRITICAL)),
        (*ENDORSEMENT, write.extension("2.5.29.35", b"\x30\x00", write.CRITICAL)),
        (*ENDORSEMENT, write.extension("1.3.6.1.5.5.7.1.1", b"\x30\x00", write.CRITICAL)),
        (write.basic_constraints(write.WRITTEN_OUT_FALSE + integer(0)), USAGE, PURPOSE),
        (write.basic_constraints(integer(0)), USAGE, PURPOSE),
    ],
    ids=[
        "a virtual machine only",
        "purpose only",
        "a TPM's name only",
        "any purpose",
        "two purposes",
        "elliptic with keyEncipherment",
        "digitalSignature besides",
        "critical specification",
        "critical policies",
        "critical issuer name",
        "critical distribution points",
        "unknown extension",
        "critical subject key identifier",
        "critical authority key identifier",
        "critical hint",
        "a path length without being an authority",
        "a path length only",
    ],
)
def test_what_genuine_ones_do_is_accepted(extensions: tuple[bytes, ...]) -> None:
    Attempt(endorsement(extensions=extensions)).verify()


@pytest.mark.parametrize(
    ("extensions", "words"),
    [
        ((write.authority_constraints(), USAGE, PURPOSE), "certificate authority"),
        ((CONSTRAINTS, write.key_usage(b"\x03\x02\x02\x0c"), PURPOSE), "certificate authority"),
        ((CONSTRAINTS,), "nothing marks it as"),
        ((), "nothing marks it as"),
        (None, "nothing marks it as"),
        ((USAGE, write.purposes(write.AK_CERTIFICATE)), "attestation key"),
        ((USAGE, write.purposes(write.AK_CERTIFICATE, write.EK_CERTIFICATE)), "attestation key"),
        ((USAGE, write.purposes(write.AK_CERTIFICATE, ANY_PURPOSE)), "attestation key"),
        ((write.key_usage(write.DIGITAL_SIGNATURE), PURPOSE), "attestation key"),
        ((write.key_usage(write.DIGITAL_SIGNATURE),), "attestation key"),
        ((write.key_usage(b"\x03\x02\x04\x10"), PURPOSE), "does not fit an endorsement key"),
        ((write.key_usage(b"\x03\x01\x00"), PURPOSE), "does not fit an endorsement key"),
        ((write.key_usage(b"\x03\x02\x04\x08"), PURPOSE), "does not fit an endorsement key"),
        ((USAGE, write.purposes(WEB_SERVER)), "another purpose"),
        ((USAGE,), "nothing marks it as"),
        ((CONSTRAINTS, write.key_usage(write.KEY_ENCIPHERMENT)), "nothing marks it as"),
        ((USAGE, write.purposes(ANY_PURPOSE)), "nothing marks it as"),
        ((USAGE, MODEL_NAME), "nothing marks it as"),
        ((*ENDORSEMENT, write.extension("1.2.3.4", b"", write.CRITICAL)), "unknown critical extension: 1.2.3.4"),
        (
            (*ENDORSEMENT, write.extension("2.5.29.30", b"\x30\x00", b"\x01\x01\x01")),
            "unknown critical extension: 2.5.29.30",
        ),
    ],
    ids=[
        "an authority",
        "may sign certificates",
        "says nothing",
        "no extension in the list",
        "no extensions",
        "attestation key",
        "attestation key and endorsement key",
        "attestation key and anything",
        "signs only",
        "signs only, no purpose",
        "encrypts data only",
        "no usage at all",
        "a bit among the unused ones",
        "web server",
        "key agreement and no purpose",
        "key encipherment and no purpose",
        "any purpose",
        "a model without a manufacturer",
        "critical and unknown",
        "critical and unknown, TRUE not as DER has it",
    ],
)
def test_something_else_is_refused(extensions: tuple[bytes, ...] | None, words: str) -> None:
    with pytest.raises(NotAnEndorsementCertificate, match=words):
        Attempt(endorsement(extensions=extensions)).verify()


@pytest.mark.parametrize(("certificate", "key"), [(root(), "root"), (intermediate(), "intermediate")])
def test_an_authority_is_no_endorsement_key(certificate: bytes, key: str) -> None:
    with pytest.raises(NotAnEndorsementCertificate, match="certificate authority"):
        Attempt(certificate, key=elliptic_key(key)).verify()


def test_a_version_1_root_is_no_endorsement_key() -> None:
    certificate = root(version=1, extensions=None)
    with pytest.raises(NotAnEndorsementCertificate, match="version 1"):
        Attempt(certificate, key=elliptic_key("root"), roots=[certificate]).verify()


OTHER_USE = "does not fit an endorsement key"
SIGNS_ONLY = "for signing only"
NO_BIT, BOTH_BITS, SIGNS_AND_AGREES, SIGNS_AND_ENCIPHERS = (
    b"\x03\x01\x00",
    b"\x03\x02\x03\x28",
    b"\x03\x02\x03\x88",
    b"\x03\x02\x05\xa0",
)
ENCIPHERS_DATA, SIGNS_CONTENT, DECIPHERS_ONLY = b"\x03\x02\x04\x10", b"\x03\x02\x06\xc0", b"\x03\x03\x07\x00\x80"


@pytest.mark.parametrize(
    ("bits", "elliptic", "rsa_for_endorsement", "rsa_for_anything"),
    [
        (write.KEY_ENCIPHERMENT, "", "", ""),
        (b"\x03\x02\x00\x20", "", "", ""),
        (b"\x03\x03\x07\x20\x80", "", "", ""),
        (BOTH_BITS, "", "", ""),
        (SIGNS_AND_ENCIPHERS, "", "", ""),
        (write.KEY_AGREEMENT, "", "", OTHER_USE),
        (SIGNS_AND_AGREES, "", "", SIGNS_ONLY),
        (write.DIGITAL_SIGNATURE, SIGNS_ONLY, SIGNS_ONLY, SIGNS_ONLY),
        (SIGNS_CONTENT, SIGNS_ONLY, SIGNS_ONLY, SIGNS_ONLY),
        (ENCIPHERS_DATA, OTHER_USE, OTHER_USE, OTHER_USE),
        (DECIPHERS_ONLY, OTHER_USE, OTHER_USE, OTHER_USE),
        (NO_BIT, OTHER_USE, OTHER_USE, OTHER_USE),
    ],
    ids=[
        "keyEncipherment",
        "keyEncipherment, unused bits not counted",
        "keyEncipherment and decipherOnly",
        "keyEncipherment and keyAgreement",
        "keyEncipherment and digitalSignature",
        "keyAgreement",
        "keyAgreement and digitalSignature",
        "digitalSignature",
        "digitalSignature and nonRepudiation",
        "dataEncipherment",
        "decipherOnly",
        "no bit",
    ],
)
def test_which_key_usage_fits_which_key(
    bits: bytes, elliptic: str, rsa_for_endorsement: str, rsa_for_anything: str
) -> None:
    """Each column is the message of the refusal, or empty for acceptance.

    Microsoft Pluton's RSA certificates have keyAgreement alone, and the purpose of endorsement key certificates.
    """
    usage = write.key_usage(bits)
    for purpose in ((PURPOSE,), (write.purposes(ANY_PURPOSE), TPM_NAME), (TPM_NAME,)):
        rsa_words = rsa_for_endorsement if purpose == (PURPOSE,) else rsa_for_anything
        for key, words in ((elliptic_key("endorsement"), elliptic), (rsa_key(), rsa_words)):
            attempt = Attempt(endorsement(key, extensions=(CONSTRAINTS, usage, *purpose)), key=key)
            if words:
                with pytest.raises(NotAnEndorsementCertificate, match=words):
                    attempt.verify()
            else:
                assert attempt.verify().public_key == key.public_key()


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_other_curves_are_accepted(curve: ec.EllipticCurve) -> None:
    key = ec.generate_private_key(curve)
    Attempt(endorsement(key), key=key).verify()


def test_the_key_has_to_be_the_endorsement_key() -> None:
    for other in (elliptic_key("another chip"), rsa_key(), ec.generate_private_key(ec.SECP384R1())):
        with pytest.raises(EndorsementKeyMismatch, match="another key"):
            Attempt(key=other).verify()


def test_the_key_is_shown_by_its_digest() -> None:
    verified = Attempt().verify()
    assert repr(verified).startswith(
        f"VerifiedEndorsementCertificate(public_key_sha256={verified.public_key_sha256!r}, "
    )


def test_the_key_may_be_given_in_der() -> None:
    attempt = Attempt()
    given = write.public_key_information(elliptic_key("endorsement"))
    verified = verify_endorsement_certificate(
        attempt.certificate, endorsement_key=given, authorities=attempt.authorities(), at=NOW
    )
    assert verified.public_key_sha256 == attempt.verify().public_key_sha256


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"no key",
        write.public_key_information(elliptic_key("endorsement")) + b"\x00",
        ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ],
    ids=["empty", "garbage", "bytes after it", "another kind"],
)
def test_a_key_that_cannot_be_read_is_refused(given: bytes) -> None:
    attempt = Attempt()
    with pytest.raises(EndorsementKeyMismatch, match="that the TPM presented"):
        verify_endorsement_certificate(
            attempt.certificate, endorsement_key=given, authorities=attempt.authorities(), at=NOW
        )


def test_the_largest_rsa_key_is_accepted() -> None:
    key = rsa_key("rsa-4096")
    extensions = (write.key_usage(write.KEY_ENCIPHERMENT), PURPOSE)
    Attempt(endorsement(key, extensions=extensions), key=key).verify()


def test_a_small_rsa_key_is_refused() -> None:
    for small in ("rsa-1024", "rsa-2047"):
        with pytest.raises(CertificateUnreadable, match="outside 2048 to 8192 bits"):
            Attempt(endorsement(rsa_key(small)), key=rsa_key(small)).verify()


def test_an_oversize_rsa_key_is_refused_before_anything_is_computed_with_it() -> None:
    algorithm = sequence(b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01", write.NULL)
    for bits, message in ((4104, "more than 4096 bits"), (8193, "INTEGER that is empty or too large|outside 2048")):
        modulus = (1 << (bits - 1)) + 1
        information = sequence(algorithm, bit_string(sequence(integer(modulus), integer(65537))))
        attempt = Attempt(endorsement(key_information=information))
        with pytest.raises((CertificateUnreadable, EndorsementKeyMismatch), match=message):
            verify_endorsement_certificate(
                attempt.certificate, endorsement_key=information, authorities=attempt.authorities(), at=NOW
            )


def test_validity_includes_both_ends_and_nothing_else() -> None:
    start, end = datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    certificate = endorsement(not_before=start, not_after=end)
    second = timedelta(seconds=1)
    for moment in (start, end):
        Attempt(certificate, at=moment).verify()
    with pytest.raises(CertificateNotYetValid, match="not valid before 2025-01-01"):
        Attempt(certificate, at=start - second).verify()
    for accept_expired in (False, True):
        with pytest.raises(CertificateExpired, match="expired on 2027-01-01"):
            Attempt(certificate, at=end + second, accept_expired=accept_expired).verify()


def test_a_time_without_zone_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Attempt(at=NOW.replace(tzinfo=None)).verify()
