"""Statements behind a certificate, as explanatory text (RFC 7468 section 5.2).

The API server allows text around the CERTIFICATE blocks of ``status.certificate``, and refuses blocks of other labels
(``validateCertificate`` in ``pkg/apis/certificates/validation/validation.go``). PEM readers skip such text, so programs
that know no statements ignore it.
"""

from __future__ import annotations

from typing import Final

from attestors.wire.statement.envelope import MAXIMUM_STATEMENT_BYTES, SignedStatement, encode
from attestors.wire.statement.errors import MalformedStatement

_PREFIX: Final = b"node-attestation statement: "
_MAXIMUM_STATEMENTS: Final = 4
_DASHES: Final = b"-----"


def as_explanatory_text(signed: SignedStatement) -> bytes:
    """One line, to be appended to PEM that ends with a line end.

    Raises:
        MalformedStatement: it holds what PEM readers could take for the beginning of a block.
    """
    text = encode(signed)
    if _DASHES in text:
        raise MalformedStatement("a statement with PEM in it cannot be explanatory text")
    return _PREFIX + text + b"\n"


def statements_in(certificate: bytes) -> tuple[bytes, ...]:
    """The texts of the statements around a certificate, undecoded; at most a few, and none that is too long."""
    found = (line.removeprefix(_PREFIX) for line in certificate.split(b"\n") if line.startswith(_PREFIX))
    return tuple(text for text in found if len(text) <= MAXIMUM_STATEMENT_BYTES)[:_MAXIMUM_STATEMENTS]
