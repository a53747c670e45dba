"""Writes the ``AttestedNode`` object of a record, and parses it strictly.

The object holds the record's certificates as lines, one JSON object each. A line is a single string, because the API
server parses, prunes, validates and copies every field of a list of objects. For 16 entries that would cost four times
as much as the rest of the record.

A line has the fields of one of two forms: a certificate that the controller signs (:class:`JournalEntry`), or one that
it approved for another signer (:class:`BuiltinApproval`). Unknown kinds are allowed, unknown fields are not.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import msgspec

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time, required_text, required_time
from signer.model.host_keys import NO_HOST_KEYS, NoHostKeys, host_keys_object, parse_host_keys
from signer.model.record import AttestedIdentity, AttestedNode, BuiltinApproval, JournalEntry, MachineKey, check_kind

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


PACKED_FROM: Final = 5
"""Minimum number of entries to compress. Shorter journals take little memory, and young nodes make most requests."""
_UNPACKED: Final = 256
"""Number of journals in the cache of decompressed ones: one decision reads its record several times."""
_FASTEST: Final = 1
"""zlib's level: half of an entry is digests, which no level compresses."""


class PackedJournal(Sequence[JournalEntry]):
    """The entries of a long journal, newest last. It equals a tuple of the same entries.

    The entries are compressed, because a fleet has many records and most are rarely read. A record with 16 entries
    takes 12 KiB as objects and 5 KiB with the entries compressed. A node has so many after some months of renewals. For
    10,000 such nodes, compression saves 70 MiB.
    """

    __slots__ = ("_count", "_packed")

    def __init__(self, lines: Sequence[str]) -> None:
        """``lines`` are valid lines of entries: see :func:`~signer.model.record_object.parse_line`."""
        self._count = len(lines)
        self._packed = zlib.compress("\n".join(lines).encode("utf-8"), _FASTEST)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> JournalEntry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[JournalEntry, ...]: ...

    def __getitem__(self, index: int | slice) -> JournalEntry | tuple[JournalEntry, ...]:
        return _unpacked(self._packed)[index]

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(_unpacked(self._packed))

    def __reversed__(self) -> Iterator[JournalEntry]:
        return reversed(_unpacked(self._packed))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedJournal):
            return self._packed == other._packed or _unpacked(self._packed) == _unpacked(other._packed)
        return _unpacked(self._packed) == other

    def __hash__(self) -> int:
        return hash(_unpacked(self._packed))

    def __repr__(self) -> str:
        return repr(_unpacked(self._packed))


def kept_journal(lines: Sequence[str], entries: tuple[JournalEntry, ...]) -> Sequence[JournalEntry]:
    """The form in which to keep ``entries``, which were read from ``lines``: compressed if they are many."""
    return entries if len(entries) < PACKED_FROM else PackedJournal(lines)


@functools.lru_cache(maxsize=_UNPACKED)
def _unpacked(packed: bytes) -> tuple[JournalEntry, ...]:
    lines = zlib.decompress(packed).decode("utf-8").split("\n")
    return tuple([entry for entry in map(parse_line, lines) if isinstance(entry, JournalEntry)])


SHOWN: Final = "Machine"
"""``spec.providerIDSource``: the Machine shows the provider ID."""
CLAIM: Final = "Claim"
"""``spec.providerIDSource``: only the node's requests name the provider ID; the Machine shows none yet."""


class InvalidRecord(ValueError):
    """The object is not an AttestedNode that the controller wrote. It does not count."""


def record_spec(record: AttestedNode) -> dict[str, Any]:
    """The object's ``spec`` without its seal. ``spec`` has everything, because ``clusterctl move`` drops status."""
    machine = record.machine
    return {
        "clusterName": machine.cluster.name,
        "machineRef": {"kind": machine.kind, "name": machine.name, "uid": record.machine_uid},
        "providerID": machine.provider_id,
        "providerIDSource": CLAIM if machine.is_claimed else SHOWN,
        "nodeName": record.node_name,
        "attestor": record.identity.provider,
        "security": record.identity.security.value,
        "identity": record.identity.identity,
        "firstAttestationTime": format_time(record.first_attestation),
        "lastAttestationTime": format_time(record.last_attestation),
        "lastNotAfter": format_time(record.last_not_after),
        "droppedNotAfter": format_time(record.dropped_not_after),
        "certificates": [
            *(entry_line(entry) for entry in record.journal),
            *(approval_line(approval) for approval in record.builtin_approvals),
        ],
        **({"ssh": host_keys_object(record.ssh)} if not isinstance(record.ssh, NoHostKeys) else {}),
    }


def parse_record(manifest: Mapping[str, Any]) -> AttestedNode:
    """Read an AttestedNode.

    Raises:
        InvalidRecord: a field is missing or malformed, or the object's name does not match its content.
    """
    try:
        metadata, spec = manifest["metadata"], manifest["spec"]
        reference = spec["machineRef"]
        journal, builtin_approvals = _certificates(spec)
        cluster = ClusterKey(required_text(metadata, "namespace"), required_text(spec, "clusterName"))
        machine_uid = required_text(reference, "uid")
        record = AttestedNode(
            machine=MachineKey(
                cluster,
                required_text(reference, "kind"),
                required_text(reference, "name"),
                required_text(spec, "providerID"),
                machine_uid if _is_claimed(spec) else "",
            ),
            machine_uid=machine_uid,
            node_name=required_text(spec, "nodeName"),
            identity=AttestedIdentity(
                required_text(spec, "attestor"), required_text(spec, "identity"), Security(spec["security"])
            ),
            first_attestation=required_time(spec, "firstAttestationTime"),
            last_attestation=required_time(spec, "lastAttestationTime"),
            last_not_after=required_time(spec, "lastNotAfter"),
            journal=journal,
            builtin_approvals=builtin_approvals,
            dropped_not_after=required_time(spec, "droppedNotAfter"),
            ssh=parse_host_keys(spec["ssh"]) if "ssh" in spec else NO_HOST_KEYS,
            seal=required_text(spec, "seal"),
            resource_version=required_text(metadata, "resourceVersion"),
            uid=required_text(metadata, "uid"),
        )
        name = required_text(metadata, "name")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRecord(f"not an AttestedNode of ours: {type(error).__name__}") from error
    if record.name != name:
        raise InvalidRecord("the object's name does not match its content")
    return record


def _is_claimed(spec: Mapping[str, Any]) -> bool:
    """Whether the provider ID is only claimed. Records that were written before this field existed have none."""
    source = spec.get("providerIDSource", SHOWN)
    if source not in (SHOWN, CLAIM):
        raise ValueError("providerIDSource is unknown")
    return bool(source == CLAIM)


def _certificates(spec: Mapping[str, Any]) -> tuple[Sequence[JournalEntry], tuple[BuiltinApproval, ...]]:
    """Parse the lines: first those of the controller's own certificates, then those of built-in approvals."""
    lines = spec["certificates"]
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise TypeError("certificates is not a list of strings")
    read = [parse_line(line) for line in lines]
    entries = tuple([one for one in read if isinstance(one, JournalEntry)])
    approvals = tuple([one for one in read[len(entries) :] if isinstance(one, BuiltinApproval)])
    if len(entries) + len(approvals) != len(read):
        raise ValueError("the lines are in the wrong order")
    return kept_journal(lines[: len(entries)], entries), approvals
