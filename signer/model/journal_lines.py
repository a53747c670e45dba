"""The lines that hold a record's certificates in the object, one JSON object each.

A line is a single string, because the API server parses, prunes, validates and copies every field of a list of objects.
For 16 entries that would cost four times as much as the rest of the record.

A line has the fields of one of two forms: a certificate that the controller signs (:class:`JournalEntry`), or one that
it approved for another signer (:class:`BuiltinApproval`). Unknown kinds are allowed, unknown fields are not.
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
"""Positive, at most 20 octets (RFC 5280 section 4.1.2.2), in canonical form."""
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
"""Cached lines of each form. Each write of a record repeats its older entries, and the watch returns all of them."""


@functools.lru_cache(maxsize=_LINES)
def entry_line(entry: JournalEntry) -> str:
    """The line of a certificate that the controller signs. Different entries have different lines."""
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
    """The line of a certificate that another signer signs. Different approvals have different lines."""
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
        KeyError, TypeError, ValueError: a field is missing, unknown or malformed.
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
        raise ValueError("a line does not have exactly the fields of either form")
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
        KeyError, TypeError, ValueError: it is missing, or not a time in Kubernetes' format.
    """
    return parse_time(required_text(parent, key))


@functools.lru_cache(maxsize=_LINES)
def _shared(text: str) -> str:
    """One object for equal texts. The entries of a Cluster or node share such texts, a quarter of their size."""
    return text


def _object(line: str) -> Mapping[str, str]:
    if "\n" in line:
        raise ValueError("a line contains a line break")
    try:
        content: dict[str, str] = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError("a line is not a JSON object of strings") from error
    return content
