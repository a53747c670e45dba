"""``AttestedNode`` as the object that holds it: written, and read strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.fields import required_text
from signer.model.journal_lines import (
    approval_line,
    entry_line,
    parse_approval,
    parse_approval_line,
    parse_entry,
    required_time,
)
from signer.model.kubernetes_time import format_time
from signer.model.packed_journal import read_journal
from signer.model.record import AttestedIdentity, AttestedNode, BuiltinApproval, JournalEntry, MachineKey


class InvalidRecord(ValueError):
    """The object is no AttestedNode that we wrote; it reserves and approves nothing."""


def record_spec(record: AttestedNode) -> dict[str, Any]:
    """The object's ``spec`` but for its seal; everything is in it, because ``clusterctl move`` drops status."""
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
        "journalLines": [entry_line(entry) for entry in record.journal],
        "stockApprovalLines": [approval_line(approval) for approval in record.builtin_approvals],
    }


def parse_record(manifest: Mapping[str, Any]) -> AttestedNode:
    """Read an AttestedNode.

    Raises:
        InvalidRecord: a field is missing or of another form, or the name is not the one its content gives.
    """
    try:
        metadata, spec = manifest["metadata"], manifest["spec"]
        reference = spec["machineRef"]
        journal, builtin_approvals = _allowed(spec)
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
            seal=required_text(spec, "seal"),
            resource_version=required_text(metadata, "resourceVersion"),
            uid=required_text(metadata, "uid"),
        )
        name = required_text(metadata, "name")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRecord(f"not an AttestedNode of ours: {type(error).__name__}") from error
    if record.name != name:
        raise InvalidRecord("the object's name is not the one its content gives")
    return record


def _allowed(spec: Mapping[str, Any]) -> tuple[Sequence[JournalEntry], tuple[BuiltinApproval, ...]]:
    """Journal and built-in approvals: as lines, or as the objects that 0.1.0 wrote; never some of both."""
    if "journalLines" not in spec and "stockApprovalLines" not in spec:
        entries, approvals = _list(spec, "journal"), _list(spec, "stockApprovals")
        lines = [entry_line(parse_entry(entry)) for entry in entries]
        return read_journal(lines), tuple(parse_approval(one) for one in approvals)
    if "journal" in spec or "stockApprovals" in spec:
        raise ValueError("lines and objects")
    approvals = _lines(spec, "stockApprovalLines")
    return read_journal(_lines(spec, "journalLines")), tuple(parse_approval_line(line) for line in approvals)


def _lines(spec: Mapping[str, Any], key: str) -> list[str]:
    lines = _list(spec, key)
    for line in lines:
        if not isinstance(line, str):
            raise TypeError(f"{key} holds something else than text")
    return lines


def _list(spec: Mapping[str, Any], key: str) -> list[Any]:
    value = spec[key]
    if not isinstance(value, list):
        raise TypeError(f"{key} is no list")
    return value
