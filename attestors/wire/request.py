"""The content of ``spec.request``: the PKCS#10 block, the provider name, the evidence.

The API server parses and verifies only the first block (``ParseCSR`` in ``pkg/apis/certificates/v1/helpers.go``). It
stores the others as they came: unsigned, and readable by every bootstrap token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from attestors.wire import pem
from attestors.wire.names import (
    ATTESTATION_DATA_LABEL,
    ATTESTATION_DATA_LABEL_ALIAS,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    MAXIMUM_REQUEST_BYTES,
    InvalidProviderName,
    check_provider_name,
)

_BLOCKS: Final = 3


class MalformedRequestBlocks(ValueError):
    """``spec.request`` does not consist of the three blocks; the message names the block and the error."""


@dataclass(frozen=True, slots=True)
class RequestBlocks:
    """The three blocks, decoded: PKCS#10 DER, provider name, evidence bytes."""

    certificate_request: bytes
    provider: str
    evidence: bytes = field(repr=False)


def encode(blocks: RequestBlocks) -> bytes:
    """Serialise ``spec.request`` (before the base64 that JSON needs).

    Raises:
        MalformedRequestBlocks: the result would be larger than the controller reads.
    """
    data = b"".join(
        pem.encode(block)
        for block in (
            pem.Block(CERTIFICATE_REQUEST_LABEL, blocks.certificate_request),
            pem.Block(ATTESTATION_PROVIDER_LABEL, blocks.provider.encode("utf-8")),
            pem.Block(ATTESTATION_DATA_LABEL, blocks.evidence),
        )
    )
    if len(data) > MAXIMUM_REQUEST_BYTES:
        raise MalformedRequestBlocks(f"the request is larger than {MAXIMUM_REQUEST_BYTES} bytes")
    return data


def decode(data: bytes) -> RequestBlocks:
    """Parse ``spec.request``: the CSR first, then each attestation block exactly once, and nothing else.

    Raises:
        MalformedRequestBlocks: anything else.
    """
    try:
        blocks = pem.split(data, maximum_bytes=MAXIMUM_REQUEST_BYTES, maximum_blocks=_BLOCKS)
    except pem.MalformedPEM as error:
        raise MalformedRequestBlocks(str(error)) from error
    if blocks[0].label != CERTIFICATE_REQUEST_LABEL:
        raise MalformedRequestBlocks(f"the first block is not {CERTIFICATE_REQUEST_LABEL}")
    attestation: dict[str, bytes] = {}
    for block in blocks[1:]:
        label = ATTESTATION_DATA_LABEL if block.label == ATTESTATION_DATA_LABEL_ALIAS else block.label
        if label not in (ATTESTATION_PROVIDER_LABEL, ATTESTATION_DATA_LABEL):
            raise MalformedRequestBlocks("an unknown block follows the certificate request")
        if label in attestation:
            raise MalformedRequestBlocks(f"more than one {label} block")
        attestation[label] = block.content
    for label in (ATTESTATION_PROVIDER_LABEL, ATTESTATION_DATA_LABEL):
        if label not in attestation:
            raise MalformedRequestBlocks(f"the {label} block is missing")
    try:
        provider = check_provider_name(attestation[ATTESTATION_PROVIDER_LABEL].decode("utf-8"))
    except (UnicodeDecodeError, InvalidProviderName) as error:
        raise MalformedRequestBlocks(f"the {ATTESTATION_PROVIDER_LABEL} block holds no provider name") from error
    return RequestBlocks(blocks[0].content, provider, attestation[ATTESTATION_DATA_LABEL])
