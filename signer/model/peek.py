"""A glance at a CSR while thousands may be waiting: what it claims to be, and nothing else of it is read.

It puts requests in order, and decides nothing: whoever claims in a glance what his request does not hold only chooses
where it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attestors.wire import pem, provider_id
from attestors.wire.names import MAXIMUM_REQUEST_BYTES, PROVIDER_ID_OID, SignerName
from attestors.wire.provider_id import InvalidProviderID
from attestors.wire.request import MalformedRequestBlocks
from signer.model.certificate_request import MalformedCertificateRequest, peek_provider_id
from signer.model.csr_header import signer_of
from signer.model.signing_request import request_bytes

NO_CLAIM: Final = ""
"""Of what is not ours, claims nothing, or cannot be read so far: it is denied, or left alone, when its turn comes."""


def peek_claimed_provider_id(
    manifest: Mapping[str, Any], providers: frozenset[str], provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)
) -> str:
    """The provider ID that a CSR to one of our signers claims, or :data:`NO_CLAIM`.

    It is that of :func:`~signer.model.signing_request.parse_signing_request`, of whatever that can read.
    """
    if not isinstance(signer_of(manifest, providers), SignerName):
        return NO_CLAIM
    try:
        block = pem.first(request_bytes(manifest["spec"].get("request")), maximum_bytes=MAXIMUM_REQUEST_BYTES)
        value = peek_provider_id(block.content, provider_id_oids)
        return provider_id.decode(value) if value else NO_CLAIM
    except (MalformedRequestBlocks, pem.MalformedPEM, MalformedCertificateRequest, InvalidProviderID):
        return NO_CLAIM
