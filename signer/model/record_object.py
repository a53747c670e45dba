"""``AttestedNode`` as the object that holds it: written, and read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.fields import required_text
from signer.model.kubernetes_time import format_time, parse_time
from signer.model.record import AttestedIdentity, AttestedNode, JournalEntry, MachineKey, StockApproval

_SERIAL_NUMBER: Final = re.compile(r"[1-9a-f][0-9a-f]{0,39}")
"""Positive, at most 20 octets (RFC 5280 section 4.1.2.2), written in one way only."""


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
        "journal": [
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
            for entry in record.journal
        ],
        "stockApprovals": [
            {
                "csrName": approval.csr_name,
                "csrUID": approval.csr_uid,
                "specDigest": approval.spec_digest,
                "decidedTime": format_time(approval.decided),
            }
            for approval in record.stock_approvals
        ],
    }


def parse_record(manifest: Mapping[str, Any]) -> AttestedNode:
    """Read an AttestedNode.

    Raises:
        InvalidRecord: a field is missing or of another form, or the name is not the one its content gives.
    """
    try:
        metadata, spec = manifest["metadata"], manifest["spec"]
        reference, journal = spec["machineRef"], spec["journal"]
        stock_approvals = spec["stockApprovals"]
        if not isinstance(journal, list) or not isinstance(stock_approvals, list):
            raise TypeError("journal and stockApprovals are lists")
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
            first_attestation=_required_time(spec, "firstAttestationTime"),
            last_attestation=_required_time(spec, "lastAttestationTime"),
            last_not_after=_required_time(spec, "lastNotAfter"),
            journal=tuple(_parse_entry(entry) for entry in journal),
            stock_approvals=tuple(_parse_stock_approval(approval) for approval in stock_approvals),
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


def _required_time(parent: Mapping[str, Any], key: str) -> datetime:
    return parse_time(required_text(parent, key))


def _parse_entry(entry: Mapping[str, Any]) -> JournalEntry:
    serial_number = required_text(entry, "serialNumber")
    if not _SERIAL_NUMBER.fullmatch(serial_number):
        raise ValueError("serialNumber is not hexadecimal")
    return JournalEntry(
        csr_name=required_text(entry, "csrName"),
        csr_uid=required_text(entry, "csrUID"),
        spec_digest=required_text(entry, "specDigest"),
        signer_name=required_text(entry, "signerName"),
        requester=required_text(entry, "requester"),
        serial_number=int(serial_number, 16),
        not_before=_required_time(entry, "notBefore"),
        not_after=_required_time(entry, "notAfter"),
        ca_cert_hash=required_text(entry, "caCertHash"),
        certificate_digest=required_text(entry, "certificateDigest"),
        public_key_digest=required_text(entry, "publicKeyDigest"),
        created=_required_time(entry, "createdTime"),
        decided=_required_time(entry, "decidedTime"),
    )


def _parse_stock_approval(approval: Mapping[str, Any]) -> StockApproval:
    return StockApproval(
        csr_name=required_text(approval, "csrName"),
        csr_uid=required_text(approval, "csrUID"),
        spec_digest=required_text(approval, "specDigest"),
        decided=_required_time(approval, "decidedTime"),
    )
