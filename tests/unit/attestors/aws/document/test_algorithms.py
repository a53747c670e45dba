"""SHA-256 and RSA PKCS#1 v1.5, wherever an algorithm is named."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import hashes

from attestors.aws.document import IdentityDocumentMalformed, SignatureRefused, verify_identity_document
from tests.support import aws_documents as aws
from tests.support.aws_documents import REGION, authority, certificates, document, signer_info

_AWS = authority(REGION)
_CONTENT = document()


def signed(signer: bytes, digest_algorithms: tuple[bytes, ...] = (aws.SHA256,)) -> bytes:
    content = aws.streamed_content(_CONTENT)
    return aws.signed_data(signer, content=content, digest_algorithms=digest_algorithms)


def refused(pkcs7: bytes, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        verify_identity_document(pkcs7, certificates())


@pytest.mark.parametrize(("digest", "hashed"), [(aws.SHA1, hashes.SHA1()), (aws.MD5, hashes.MD5())])  # noqa: S303
@pytest.mark.parametrize("said_of_the_whole", [True, False])
def test_weak_hash(digest: bytes, hashed: hashes.HashAlgorithm, said_of_the_whole: bool) -> None:
    """Really signed so, by AWS's key."""
    signer = signer_info(
        _AWS, _CONTENT, digest_algorithm=digest, signature_algorithm=aws.RSA_ENCRYPTION, hash_algorithm=hashed
    )
    pkcs7 = signed(signer, (digest,) if said_of_the_whole else (aws.SHA256,))
    refused(pkcs7, IdentityDocumentMalformed, "uses another hash than SHA-256")


def test_weak_signature() -> None:
    weak = hashes.SHA1()  # noqa: S303
    signer = signer_info(_AWS, _CONTENT, signature_algorithm=aws.SHA1_WITH_RSA, hash_algorithm=weak)
    refused(signed(signer), IdentityDocumentMalformed, "another algorithm than RSA PKCS#1 v1.5 with SHA-256")


def test_weak_signature_that_says_it_is_strong() -> None:
    signer = signer_info(_AWS, _CONTENT, hash_algorithm=hashes.SHA1())  # noqa: S303
    refused(signed(signer), SignatureRefused, "does not verify")


@pytest.mark.parametrize(
    ("algorithms", "match"),
    [
        ((), "ends where digestAlgorithm is expected"),
        ((aws.SHA1,), "another hash than SHA-256"),
        ((aws.SHA256, aws.SHA1), "bytes after its end"),
        ((aws.SHA256, aws.SHA256), "bytes after its end"),
    ],
    ids=["none", "another", "a second one", "the same twice"],
)
def test_hashes_of_the_whole(algorithms: tuple[bytes, ...], match: str) -> None:
    refused(signed(signer_info(_AWS, _CONTENT), algorithms), IdentityDocumentMalformed, match)


@pytest.mark.parametrize(
    ("algorithm", "match"),
    [
        ("300e06096086480165030402010501aa", "has parameters of digestAlgorithm"),
        ("300e0609608648016503040201020100", "bytes after its end"),
        ("300f060960864801650304020105000500", "bytes after its end"),
    ],
    ids=["NULL with a content", "a number", "NULL twice"],
)
def test_parameters_of_the_hash(algorithm: str, match: str) -> None:
    signer = signer_info(_AWS, _CONTENT, digest_algorithm=bytes.fromhex(algorithm))
    refused(signed(signer), IdentityDocumentMalformed, match)
