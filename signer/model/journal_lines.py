"""The certificates of a record as the lines that hold them in the object, one JSON object each.

To an API server a list of objects costs what all their fields cost: of each one it parses, prunes, validates and
copies every value. With 16 entries that is four times what the rest of the record takes. A line is one value.

A line has the fields of one of two forms: a certificate that the controller signs (:class:`JournalEntry`), or one that
it approved for another signer (:class:`BuiltinApproval`). The kind may be one that this version does not know; a field
may not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from signer.model.certificate_kind import check_kind
from signer.model.fields import required_text
from signer.model.kubernetes_time import format_time, parse_time
from signer.model.record import BuiltinApproval, JournalEntry

_SERIAL_NUMBER: Final = re.compile(r"[1-9a-f][0-9a-f]{0,39}")
"""Positive, at most 20 octets (RFC 5280 section 4.1.2.2), written in one way only."""
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(dict[str, str])
_APPROVAL_KEYS: Final = frozenset(
    {"kind", "csrName", "csrUID", "specDigest", "publicKeyDigest", "createdTime", "decidedTime"}
)
_ENTRY_KEYS: Final = _APPROVAL_KEYS | {
    "signerName", "requester", "serialNumber", "notBefore", "notAfter",
    "caCertHash", "evidenceCaCertHash", "certificateDigest",
}  # fmt: skip
_LINES: Final = 1024
"""Kept of each form: older entries are written again with each new one, and all of them come back through the watch."""


@functools.lru_cache(maxsize=_LINES)
def entry_line(entry: JournalEntry) -> str:
    """The line of a certificate that the controller signs; two entries that differ have two lines."""
    return _ENCODER.encode(
        {
            "kind": entry.kind,
            "csrName": entry.csr_name,
            "csrUID": entry.csr_uid,
            "specDigest": entry.spec_digest,
            "signerName": entry.signer_name,
            "requester": entry.requester,
            "serialNumber": f"{entry.serial_number:x}",
            "notBefore": format_time(entry.not_before),
            "notAfter": format_time(entry.not_after),
            "caCertHash": entry.ca_cert_hash,
            "evidenceCaCertHash": entry.evidence_ca_cert_hash,
            "certificateDigest": entry.certificate_digest,
            "publicKeyDigest": entry.public_key_digest,
            "createdTime": format_time(entry.created),
            "decidedTime": format_time(entry.decided),
        }
    ).decode("utf-8")


@functools.lru_cache(maxsize=_LINES)
def approval_line(approval: BuiltinApproval) -> str:
    """The line of a certificate that another signer makes; two approvals that differ have two lines."""
    return _ENCODER.encode(
        {
            "kind": approval.kind,
            "csrName": approval.csr_name,
            "csrUID": approval.csr_uid,
            "specDigest": approval.spec_digest,
            "publicKeyDigest": approval.public_key_digest,
            "createdTime": format_time(approval.created),
            "decidedTime": format_time(approval.decided),
        }
    ).decode("utf-8")


@functools.lru_cache(maxsize=_LINES)
def parse_line(line: str) -> JournalEntry | BuiltinApproval:
    """Read what :func:`entry_line` or :func:`approval_line` wrote.

    Raises:
        KeyError, TypeError, ValueError: a field is missing, unknown or of another form.
    """
    content = _object(line)
    if content.keys() == _APPROVAL_KEYS:
        return BuiltinApproval(
            kind=_shared(check_kind(required_text(content, "kind"))),
            csr_name=required_text(content, "csrName"),
            csr_uid=required_text(content, "csrUID"),
            spec_digest=required_text(content, "specDigest"),
            public_key_digest=required_text(content, "publicKeyDigest"),
            created=required_time(content, "createdTime"),
            decided=required_time(content, "decidedTime"),
        )
    if content.keys() != _ENTRY_KEYS:
        raise ValueError("a line has not exactly the fields of either form")
    serial_number = required_text(content, "serialNumber")
    if not _SERIAL_NUMBER.fullmatch(serial_number):
        raise ValueError("serialNumber is not hexadecimal")
    return JournalEntry(
        kind=_shared(check_kind(required_text(content, "kind"))),
        csr_name=required_text(content, "csrName"),
        csr_uid=required_text(content, "csrUID"),
        spec_digest=required_text(content, "specDigest"),
        signer_name=_shared(required_text(content, "signerName")),
        requester=_shared(required_text(content, "requester")),
        serial_number=int(serial_number, 16),
        not_before=required_time(content, "notBefore"),
        not_after=required_time(content, "notAfter"),
        ca_cert_hash=_shared(required_text(content, "caCertHash")),
        evidence_ca_cert_hash=_shared(required_text(content, "evidenceCaCertHash")),
        certificate_digest=required_text(content, "certificateDigest"),
        public_key_digest=required_text(content, "publicKeyDigest"),
        created=required_time(content, "createdTime"),
        decided=required_time(content, "decidedTime"),
    )


def required_time(parent: Mapping[str, Any], key: str) -> datetime:
    """The time at ``key``.

    Raises:
        KeyError, TypeError, ValueError: missing, or no time as Kubernetes writes it.
    """
    return parse_time(required_text(parent, key))


@functools.lru_cache(maxsize=_LINES)
def _shared(text: str) -> str:
    """One and the same object for what most entries of a Cluster, or of a node, have in common: a quarter of them."""
    return text


def _object(line: str) -> Mapping[str, str]:
    if "\n" in line:
        raise ValueError("a line is more than one")
    try:
        content: dict[str, str] = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("a line is no object of texts") from error
    return content
