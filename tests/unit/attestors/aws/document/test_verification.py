"""Documents that AWS signed, and every way to make one look so."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from ipaddress import ip_address
from types import MappingProxyType

import pytest

from attestors.aws.document import (
    IdentityDocumentMalformed,
    RegionCertificateMissing,
    RegionCertificates,
    SignatureRefused,
    verify_identity_document,
)
from tests.support import aws_documents as aws
from tests.support.aws_documents import OTHER_REGION, REGION, authority, certificates, document, signer_info, tlv

_AWS = authority(REGION)
_ATTACKER = authority("an attacker")


def refused(pkcs7: bytes, error: type[Exception], match: str, pins: RegionCertificates | None = None) -> None:
    with pytest.raises(error, match=match):
        verify_identity_document(pkcs7, pins or certificates())


def signed(content: bytes, *signers: bytes, streamed: bool = True, **other: object) -> bytes:
    segments = aws.streamed_content(content) if streamed else tlv(0x04, content)
    return aws.signed_data(*signers, content=segments, streamed=streamed, **other)  # type: ignore[arg-type]


def test_the_document_that_was_signed() -> None:
    verified = verify_identity_document(aws.sign(document()), certificates())
    assert verified.account_id == aws.ACCOUNT
    assert verified.instance_id == aws.INSTANCE
    assert verified.region.name == REGION
    assert verified.region.partition.name == "aws"
    assert verified.availability_zone == "eu-west-1a"
    assert verified.image_id == "ami-0123456789abcdef0"
    assert verified.instance_type == "m7i.large"
    assert verified.pending_time == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)
    assert verified.private_ip == ip_address("10.0.1.17")
    assert verified.version == "2017-09-30"
    assert verified.provider_id == f"aws:///eu-west-1a/{aws.INSTANCE}"


_CONTENT = document()


@pytest.mark.parametrize(
    "pkcs7",
    [
        pytest.param(signed(_CONTENT, signer_info(_AWS, _CONTENT), streamed=False), id="DER throughout"),
        pytest.param(
            aws.signed_data(signer_info(_AWS, _CONTENT), content=aws.streamed_content(_CONTENT, 16)),
            id="in many segments",
        ),
        pytest.param(
            aws.signed_data(signer_info(_AWS, _CONTENT), content=tlv(0x04, _CONTENT)), id="indefinite around one string"
        ),
        pytest.param(
            signed(_CONTENT, signer_info(_AWS, _CONTENT, signature_algorithm=aws.RSA_ENCRYPTION)), id="rsaEncryption"
        ),
        pytest.param(
            signed(
                _CONTENT,
                signer_info(_AWS, _CONTENT, digest_algorithm=bytes.fromhex("300d06096086480165030402010500")),
            ),
            id="NULL parameters",
        ),
        pytest.param(signed(_CONTENT, signer_info(_AWS, _CONTENT, attributes=None)), id="without signed attributes"),
        pytest.param(
            signed(
                _CONTENT,
                signer_info(
                    _AWS,
                    _CONTENT,
                    attributes=[aws.content_type_attribute(), aws.message_digest_attribute(_CONTENT)],
                ),
            ),
            id="with the two attributes that must be",
        ),
        pytest.param(
            signed(
                _CONTENT,
                signer_info(
                    _AWS,
                    _CONTENT,
                    attributes=[
                        *aws.attributes_for(_CONTENT),
                        *(aws.attribute(tlv(0x06, bytes([0x2A, number])), tlv(0x05)) for number in range(12)),
                    ],
                ),
            ),
            id="with as many attributes as there may be",
        ),
        pytest.param(
            signed(_CONTENT, signer_info(_AWS, _CONTENT), between=tlv(0xA0, _AWS.der)), id="its own certificate inside"
        ),
        pytest.param(
            signed(_CONTENT, signer_info(_AWS, _CONTENT), between=tlv(0xA0, b"\x00\xff") + tlv(0xA1, b"junk")),
            id="certificates and lists are not read at all",
        ),
    ],
)
def test_forms_in_which_signers_write_it(pkcs7: bytes) -> None:
    assert verify_identity_document(pkcs7, certificates()).instance_id == aws.INSTANCE


class TestWhoSigned:
    def test_certificate_of_another_region(self) -> None:
        pkcs7 = aws.sign(document(), authority(OTHER_REGION))
        refused(pkcs7, SignatureRefused, "not signed with the certificate of eu-west-1$")

    def test_key_of_another_region_under_this_regions_name(self) -> None:
        content = document()
        other = authority(OTHER_REGION)
        info = signer_info(other, content, identifier=_AWS.issuer_and_serial_number)
        refused(signed(content, info), SignatureRefused, "does not verify with the key of eu-west-1$")

    def test_document_moved_to_another_region(self) -> None:
        """The Region in the content chooses the key, so it cannot be changed without changing who must sign."""
        refused(aws.sign(document(region=OTHER_REGION)), SignatureRefused, "not signed with the certificate of eu-cent")

    def test_region_without_a_certificate(self) -> None:
        pkcs7 = aws.sign(document(region="ap-southeast-6"))
        refused(pkcs7, RegionCertificateMissing, "the AWS Region ap-southeast-6: the operator can add")

    @pytest.mark.parametrize("kind", [0xA0, 0xA1])
    def test_certificate_of_an_attacker_inside(self, kind: int) -> None:
        content = document()
        info = signer_info(_ATTACKER, content)
        pkcs7 = signed(content, info, between=tlv(kind, _ATTACKER.der))
        refused(pkcs7, SignatureRefused, "not signed with the certificate of eu-west-1$")

    def test_certificate_of_an_attacker_with_the_name_and_number_of_awss(self) -> None:
        content = document()
        twin = authority("a twin", serial_number=_AWS.certificate.serial_number)
        assert twin.issuer_and_serial_number == _AWS.issuer_and_serial_number
        pkcs7 = signed(content, signer_info(twin, content), between=tlv(0xA0, twin.der))
        refused(pkcs7, SignatureRefused, "does not verify with the key of eu-west-1$")

    def test_while_aws_changes_a_certificate_both_are_good(self) -> None:
        old, new = authority(REGION), authority("the next one")
        pins = RegionCertificates(MappingProxyType({REGION: (old.pinned, new.pinned)}))
        for signer in (old, new):
            assert verify_identity_document(aws.sign(document(), signer), pins).instance_id == aws.INSTANCE

    def test_two_signers(self) -> None:
        content = document()
        for signers in ((_AWS, _ATTACKER), (_ATTACKER, _AWS), (_AWS, _AWS)):
            pkcs7 = signed(content, *(signer_info(signer, content) for signer in signers))
            refused(pkcs7, IdentityDocumentMalformed, "has 2 signers instead of one")

    def test_no_signer(self) -> None:
        refused(signed(document()), IdentityDocumentMalformed, "has 0 signers instead of one")

    def test_signer_named_by_key_identifier(self) -> None:
        content = document()
        info = signer_info(_AWS, content, identifier=tlv(0x80, b"key"), version=b"\x02\x01\x03")
        refused(signed(content, info), IdentityDocumentMalformed, "another version than 1")
        info = signer_info(_AWS, content, identifier=tlv(0x80, b"key"))
        refused(signed(content, info), IdentityDocumentMalformed, "where issuerAndSerialNumber is expected")


class TestWhatWasSigned:
    def test_content_exchanged_under_the_signature(self) -> None:
        info = signer_info(_AWS, document())
        for exchanged in (document(instanceId="i-0fedcba9876543210"), document() + b" "):
            refused(signed(exchanged, info), SignatureRefused, "differs from the signed content")

    def test_content_exchanged_where_there_are_no_signed_attributes(self) -> None:
        info = signer_info(_AWS, document(), attributes=None)
        refused(signed(document(instanceId="i-0fedcba9876543210"), info), SignatureRefused, "does not verify")

    def test_content_and_digest_exchanged_under_the_signature(self) -> None:
        genuine, forged = document(), document(instanceId="i-0fedcba9876543210")
        attributes = aws.attributes_for(genuine)
        signature = _AWS.signature(tlv(0x31, *attributes))
        pkcs7 = signed(genuine, signer_info(_AWS, genuine, signature=signature))
        assert verify_identity_document(pkcs7, certificates()).instance_id == aws.INSTANCE
        refused(signed(forged, signer_info(_AWS, forged, signature=signature)), SignatureRefused, "does not verify")

    def test_signed_attributes_shown_as_the_content(self) -> None:
        """Without its attributes, the signature of a genuine document is one over their encoding."""
        attributes = aws.attributes_for(document())
        signature = _AWS.signature(tlv(0x31, *attributes))
        content = tlv(0x31, *attributes)
        pkcs7 = signed(content, signer_info(_AWS, content, attributes=None, signature=signature))
        refused(pkcs7, IdentityDocumentMalformed, "is not UTF-8 JSON")

    def test_detached_content(self) -> None:
        pkcs7 = aws.signed_data(signer_info(_AWS, document()), content=None)
        refused(pkcs7, IdentityDocumentMalformed, "has no content: the document must be inside")

    def test_signature_of_nothing(self) -> None:
        refused(signed(document(), signer_info(_AWS, document(), signature=b"")), SignatureRefused, "does not verify")

    @pytest.mark.parametrize(
        ("attributes", "match"),
        [
            ([aws.message_digest_attribute(_CONTENT)], "no signed attribute that marks its content as plain data"),
            (
                [aws.content_type_attribute(aws.ENVELOPED_DATA), aws.message_digest_attribute(_CONTENT)],
                "no signed attribute that marks its content as plain data",
            ),
            (
                [aws.attribute(aws.CONTENT_TYPE), aws.message_digest_attribute(_CONTENT)],
                "no signed attribute that marks its content as plain data",
            ),
            (
                [aws.attribute(aws.CONTENT_TYPE, aws.DATA, aws.DATA), aws.message_digest_attribute(_CONTENT)],
                "has bytes after its end",
            ),
            ([aws.content_type_attribute()], "no signed attribute with the digest of its content"),
            (
                [
                    aws.content_type_attribute(),
                    aws.message_digest_attribute(_CONTENT),
                    aws.message_digest_attribute(b""),
                ],
                "has a signed attribute twice",
            ),
            (
                [aws.content_type_attribute(), *2 * [aws.message_digest_attribute(_CONTENT)]],
                "has a signed attribute twice",
            ),
            (
                [*2 * [aws.content_type_attribute()], aws.message_digest_attribute(_CONTENT)],
                "has a signed attribute twice",
            ),
            (
                [
                    aws.content_type_attribute(),
                    *2 * [aws.signing_time_attribute()],
                    aws.message_digest_attribute(_CONTENT),
                ],
                "has a signed attribute twice",
            ),
            (
                [
                    aws.content_type_attribute(),
                    aws.attribute(aws.MESSAGE_DIGEST, *2 * [tlv(0x04, hashlib.sha256(_CONTENT).digest())]),
                ],
                "has bytes after its end",
            ),
            ([aws.content_type_attribute(), aws.attribute(aws.MESSAGE_DIGEST)], "ends where its value is expected"),
            (
                [aws.content_type_attribute(), aws.attribute(aws.MESSAGE_DIGEST, tlv(0x04, b""))],
                "has a digest that is not SHA-256's",
            ),
            (
                [
                    aws.content_type_attribute(),
                    aws.attribute(aws.MESSAGE_DIGEST, tlv(0x04, hashlib.sha1(_CONTENT).digest())),  # noqa: S324
                ],
                "has a digest that is not SHA-256's",
            ),
            (
                [
                    aws.content_type_attribute(),
                    aws.message_digest_attribute(_CONTENT),
                    *(aws.attribute(tlv(0x06, bytes([0x2A, number])), b"") for number in range(15)),
                ],
                "or too many of them",
            ),
            (
                [tlv(0x30, aws.CONTENT_TYPE, tlv(0x31, aws.DATA), b"\x05\x00"), aws.message_digest_attribute(_CONTENT)],
                "has bytes after its end",
            ),
            (
                [aws.content_type_attribute(), aws.message_digest_attribute(_CONTENT) + b"\x05\x00"],
                "where one of its values is expected",
            ),
        ],
        ids=[
            "no content type",
            "another content type",
            "content type without a value",
            "content type with two values",
            "no digest",
            "two digests",
            "the same digest twice",
            "content type twice",
            "signing time twice",
            "digest with two values",
            "digest without a value",
            "empty digest",
            "SHA-1's digest",
            "too many",
            "something else in one",
            "something else behind them",
        ],
    )
    def test_signed_attributes(self, attributes: list[bytes], match: str) -> None:
        """All of these are signed, with AWS's key."""
        info = signer_info(_AWS, _CONTENT, attributes=attributes)
        refused(signed(_CONTENT, info), IdentityDocumentMalformed, match)

    @pytest.mark.parametrize(
        "attribute",
        [
            aws.algorithm_protection_attribute(digest=aws.SHA1),
            aws.algorithm_protection_attribute(signature=aws.SHA1_WITH_RSA),
            aws.attribute(aws.ALGORITHM_PROTECTION, tlv(0x30, aws.SHA256)),
            aws.attribute(aws.ALGORITHM_PROTECTION, tlv(0x30, aws.SHA256, b"\xa2" + aws.SHA256_WITH_RSA[1:])),
            aws.attribute(
                aws.ALGORITHM_PROTECTION, tlv(0x30, aws.SHA256, b"\xa1" + aws.SHA256_WITH_RSA[1:], b"\x05\x00")
            ),
        ],
        ids=["another hash", "another signature", "no signature", "a MAC", "something behind it"],
    )
    def test_protected_algorithms_are_others(self, attribute: bytes) -> None:
        attributes = [aws.content_type_attribute(), attribute, aws.message_digest_attribute(_CONTENT)]
        info = signer_info(_AWS, _CONTENT, attributes=attributes)
        with pytest.raises(IdentityDocumentMalformed):
            verify_identity_document(signed(_CONTENT, info), certificates())

    @pytest.mark.parametrize("unsigned", [tlv(0xA1, aws.signing_time_attribute()), tlv(0xA1)])
    def test_unsigned_attributes(self, unsigned: bytes) -> None:
        info = signer_info(_AWS, document(), unsigned=unsigned)
        refused(signed(document(), info), IdentityDocumentMalformed, "has unsigned attributes")
