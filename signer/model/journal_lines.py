"""Entries of a record's journal as the lines that hold them, one JSON object each.

To an API server a list of objects costs what all their fields cost: of each one it parses, prunes, validates and
copies every value. With 16 entries that is four times what the rest of the record takes. A line is one value.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from signer.model.fields import required_text
from signer.model.kubernetes_time import format_time, parse_time
from signer.model.record import BuiltinApproval, JournalEntry

_SERIAL_NUMBER: Final = re.compile(r"[1-9a-f][0-9a-f]{0,39}")
"""Positive, at most 20 octets (RFC 5280 section 4.1.2.2), written in one way only."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_APPROVAL_KEYS: Final = frozenset({"csrName", "csrUID", "specDigest", "decidedTime"})
_ENTRY_KEYS: Final = _APPROVAL_KEYS | {
    "signerName", "requester", "serialNumber", "notBefore", "notAfter",
    "caCertHash", "certificateDigest", "publicKeyDigest", "createdTime",
}  # fmt: skip
_LINES: Final = 1024
"""Kept of each kind: older entries are written again with each new one, and all of them come back through the watch."""


@functools.lru_cache(maxsize=_LINES)
def entry_line(entry: JournalEntry) -> str:
    """One entry of ``spec.journalLines``."""
    return _ENCODER.encode(
        {
            "csrName": entry.csr_name,
            "csrUID": entry.csr_uid,
            "specDigest": entry.spec_digest,
            "signerName": entry.signer_name,
            "requester": entry.requester,
            "serialNumber": f"{entry.serial_number:x}",
            "notBefore": format_time(entry.not_before),
            "notAfter": format_time(entry.not_after),
            "caCertHash": entry.ca_cert_hash,
            "certificateDigest": entry.certificate_digest,
            "publicKeyDigest": entry.public_key_digest,
            "createdTime": format_time(entry.created),
            "decidedTime": format_time(entry.decided),
        }
    )


@functools.lru_cache(maxsize=_LINES)
def approval_line(approval: BuiltinApproval) -> str:
    """One entry of ``spec.stockApprovalLines``."""
    return _ENCODER.encode(
        {
            "csrName": approval.csr_name,
            "csrUID": approval.csr_uid,
            "specDigest": approval.spec_digest,
            "decidedTime": format_time(approval.decided),
        }
    )


@functools.lru_cache(maxsize=_LINES)
def parse_entry_line(line: str) -> JournalEntry:
    """Read what :func:`entry_line` wrote.

    Raises:
        KeyError, TypeError, ValueError: a field is missing, unknown or of another form.
    """
    return parse_entry(_object(line, _ENTRY_KEYS))


@functools.lru_cache(maxsize=_LINES)
def parse_approval_line(line: str) -> BuiltinApproval:
    """Read what :func:`approval_line` wrote.

    Raises:
        KeyError, TypeError, ValueError: a field is missing, unknown or of another form.
    """
    return parse_approval(_object(line, _APPROVAL_KEYS))


def parse_entry(entry: Mapping[str, Any]) -> JournalEntry:
    """Read the object in a line, or in ``spec.journal``, where 0.1.0 had them.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or of another form.
    """
    serial_number = required_text(entry, "serialNumber")
    if not _SERIAL_NUMBER.fullmatch(serial_number):
        raise ValueError("serialNumber is not hexadecimal")
    return JournalEntry(
        csr_name=required_text(entry, "csrName"),
        csr_uid=required_text(entry, "csrUID"),
        spec_digest=required_text(entry, "specDigest"),
        signer_name=_shared(required_text(entry, "signerName")),
        requester=_shared(required_text(entry, "requester")),
        serial_number=int(serial_number, 16),
        not_before=required_time(entry, "notBefore"),
        not_after=required_time(entry, "notAfter"),
        ca_cert_hash=_shared(required_text(entry, "caCertHash")),
        certificate_digest=required_text(entry, "certificateDigest"),
        public_key_digest=required_text(entry, "publicKeyDigest"),
        created=required_time(entry, "createdTime"),
        decided=required_time(entry, "decidedTime"),
    )


def parse_approval(approval: Mapping[str, Any]) -> BuiltinApproval:
    """Read the object in a line, or in ``spec.stockApprovals``, where 0.1.0 had them.

    Raises:
        KeyError, TypeError, ValueError: a field is missing or of another form.
    """
    return BuiltinApproval(
        csr_name=required_text(approval, "csrName"),
        csr_uid=required_text(approval, "csrUID"),
        spec_digest=required_text(approval, "specDigest"),
        decided=required_time(approval, "decidedTime"),
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


def _object(line: str, keys: frozenset[str]) -> Mapping[str, Any]:
    if "\n" in line:
        raise ValueError("a line is more than one")
    try:
        content = json.loads(line)
    except RecursionError as error:
        raise ValueError("a line is nested too deeply") from error
    if not isinstance(content, dict) or content.keys() != keys:
        raise ValueError("a line is no object with exactly these fields")
    return content
