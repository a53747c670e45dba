"""Writes a canary to the audit log before it is used."""

from __future__ import annotations

import logging
from datetime import datetime

from signer.audit.canary_line import CanaryLine
from signer.audit.lines import CanaryContent
from signer.audit.log import AuditLog
from signer.authority.canary_certificate import CanaryCertificate
from signer.kube.connection import ClusterConnection
from signer.model.cluster import ClusterKey

_LOG = logging.getLogger(__name__)


async def journal_canary(
    canary: CanaryCertificate,
    server: ClusterConnection,
    ca_cert_hash: str,
    key: ClusterKey,
    audit_log: AuditLog,
    now: datetime,
) -> None:
    """Write it to the audit log.

    Raises:
        AuditLogUnavailable: it is not in the log, so it must not be used.
    """
    line = CanaryLine(
        cluster=str(key),
        time=now,
        server=server.server,
        user=canary.user,
        serial_number=f"{canary.serial_number:x}",
        not_after=canary.not_after,
        ca_cert_hash=ca_cert_hash,
        certificate_digest=canary.digest,
    )
    await audit_log.append(CanaryContent(line.encode()))
    _LOG.info(
        "issued a canary",
        extra={
            "cluster": str(key),
            "requester": canary.user,
            "serialNumber": f"{canary.serial_number:x}",
            "notAfter": canary.not_after.isoformat(),
            "caCertHash": ca_cert_hash,
        },
    )
