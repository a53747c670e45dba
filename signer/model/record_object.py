"""Writes the ``AttestedNode`` object of a record, and parses it strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.fields import required_text
from signer.model.journal_lines import approval_line, entry_line, parse_line, required_time
from signer.model.kubernetes_time import format_time
from signer.model.packed_journal import kept_journal
from signer.model.record import AttestedIdentity, AttestedNode, BuiltinApproval, JournalEntry, MachineKey


class InvalidRecord(ValueError):
    """The object is not an AttestedNode that the controller wrote. It does not count."""


def record_spec(record: AttestedNode) -> dict[str, Any]:
    """The object's ``spec`` without its seal. ``spec`` has everything, because ``clusterctl move`` drops status."""
    machine = record.machine
    return {
        "clusterName": machine.cluster.name,
        "machineRef": {"kind": machine.kind, "name": machine.name, "uid": record.machine_uid},
        "providerID": machine.provider_id,
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
        record = AttestedNode(
            machine=MachineKey(
                cluster,
                required_text(reference, "kind"),
                required_text(reference, "name"),
                required_text(spec, "providerID"),
            ),
            machine_uid=required_text(reference, "uid"),
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
