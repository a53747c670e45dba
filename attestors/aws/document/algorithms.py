"""The two algorithms of the ``rsa2048`` document. There is no choice, so no downgrade is possible."""

from __future__ import annotations

from typing import Final

from attestors.aws.document import ber
from attestors.aws.document.ber import Reader

_SHA256: Final = bytes.fromhex("608648016503040201")
"""2.16.840.1.101.3.4.2.1."""
_RSA: Final = frozenset(
    {
        bytes.fromhex("2a864886f70d010101"),  # rsaEncryption, with the signer's digest algorithm (RFC 3370 3.2)
        bytes.fromhex("2a864886f70d01010b"),  # sha256WithRSAEncryption
    }
)


def read_digest_algorithm(reader: Reader) -> None:
    """Parse an AlgorithmIdentifier, which must be SHA-256's.

    Raises:
        IdentityDocumentMalformed: another algorithm.
    """
    if _read(reader, ber.SEQUENCE, "digestAlgorithm") != _SHA256:
        raise reader.malformed("uses another hash than SHA-256")


def read_signature_algorithm(reader: Reader, tag: int = ber.SEQUENCE) -> None:
    """Parse an AlgorithmIdentifier, which must be that of RSA PKCS#1 v1.5.

    Raises:
        IdentityDocumentMalformed: another algorithm.
    """
    if _read(reader, tag, "signatureAlgorithm") not in _RSA:
        raise reader.malformed("is signed with another algorithm than RSA PKCS#1 v1.5 with SHA-256")


def _read(reader: Reader, tag: int, what: str) -> bytes:
    """The identifier. Only NULL is accepted as parameters, which encoders write or omit (RFC 5754 2)."""
    algorithm = Reader(reader.element(tag, what).content, reader.structure)
    identifier = algorithm.identifier(what)
    if algorithm.at(ber.NULL) and algorithm.element(ber.NULL, "parameters").content:
        raise algorithm.malformed(f"has parameters of {what}")
    algorithm.finish()
    return identifier
