"""Whether the host certificates of a logged decision are those that its inputs give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from cryptography import x509

from attestors.wire.ssh.certificate import CertificateKind, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line
from signer.audit.decision_inputs import HostKeysStage, NotReached
from signer.audit.decision_line import DecisionLine
from signer.audit.errors import Inconsistent
from signer.model.host_keys import AttestedHostKeys, HostCertificateReason, NoHostKeys
from signer.model.record import AttestedNode
from signer.model.signing_request import SigningRequest
from signer.model.ssh_access import SSHSettings
from signer.rules.host_certificates import (
    HostAuthorityFacts,
    HostKeysNotCertified,
    HostNameFacts,
    ProvenHostKeys,
    key_id_of,
    planned_host_keys,
    proven_host_keys,
)
from signer.rules.machine import MachineFacts

_AFTER_THE_PLAN = frozenset(
    {
        HostCertificateReason.AUTHORITIES_NOT_AVAILABLE,
        HostCertificateReason.NOT_JOURNALED,
        HostCertificateReason.SIGNING_FAILED,
    }
)
"""The authority may go, fail, or be another one than the journal names, once the record is written."""


def require_planned(line: DecisionLine, request: SigningRequest, facts: MachineFacts) -> None:
    """New host certificates are what the facts plan, or were refused for the reason that the facts give.

    Raises:
        Inconsistent: they are not.
    """
    logged, stage = line.decision, line.decision_inputs.host_keys
    if isinstance(stage, NotReached):
        if logged.host_certificates or logged.host_certificates_refused:
            raise Inconsistent("there is an answer to host keys, and the decision did not look at any")
        return
    try:
        planned = _planned(line, request, facts, stage)
    except HostKeysNotCertified as refused:
        if logged.host_certificates or logged.host_certificates_refused != refused.reason:
            raise Inconsistent(f"host certificates would be refused with {refused}") from None
        return
    if not logged.host_certificates and logged.host_certificates_refused in _AFTER_THE_PLAN:
        return
    if planned != logged.host_keys:
        raise Inconsistent("the host certificates are not those that keys, names, policy and time give")
    _require_certificates(line, planned, facts.node_name)


def require_as_recorded(line: DecisionLine, request: SigningRequest, record: AttestedNode) -> None:
    """Host certificates that are published again are those of the record, for the host keys of the request.

    Raises:
        Inconsistent: they are not.
    """
    logged, recorded = line.decision, record.ssh
    if not logged.host_certificates:
        return
    if not isinstance(recorded, AttestedHostKeys) or logged.host_keys != recorded:
        raise Inconsistent("the record holds no such host certificates")
    if not any(recorded.has(frozenset(one.keys)) for one in _any_proven(request)):
        raise Inconsistent("the host certificates are not for the host keys of the request")
    _require_certificates(line, recorded, record.node_name)


def _planned(
    line: DecisionLine, request: SigningRequest, facts: MachineFacts, stage: HostKeysStage
) -> AttestedHostKeys:
    settings, authority = facts.policy.ssh, stage.authority
    if not isinstance(settings, SSHSettings):
        raise Inconsistent("there is an answer to host keys, and the policy does not turn SSH on")
    if isinstance(authority, NotReached):
        raise HostKeysNotCertified(HostCertificateReason.AUTHORITIES_NOT_AVAILABLE, stage.unavailable)
    proven = _proven(request, lambda oid: oid == stage.host_keys_oid)
    if len(proven) != 1:
        raise Inconsistent("there is an answer to host keys, and the request holds none")
    return _planned_for(proven[0](), line, facts, stage, authority, settings)


def _planned_for(
    proven: ProvenHostKeys,
    line: DecisionLine,
    facts: MachineFacts,
    stage: HostKeysStage,
    authority: HostAuthorityFacts,
    settings: SSHSettings,
) -> AttestedHostKeys:
    names, logged = stage.names, line.decision.host_keys
    if not isinstance(names, HostNameFacts):
        raise Inconsistent("the host keys are proven, and the names were not looked at")
    serials = () if isinstance(logged, NoHostKeys) else tuple(one.serial_number for one in logged.host_keys)
    if len(serials) != len(proven.keys):
        serials = tuple(0 for _ in proven.keys)
    return planned_host_keys(proven, serials, facts, names, stage.holders, authority, settings)


def _proven(request: SigningRequest, is_ours: Callable[[str], bool]) -> list[Callable[[], ProvenHostKeys]]:
    asked = request.certificate_request
    return [
        lambda value=extension.value.value: proven_host_keys(value, asked.subject_public_key_info)  # type: ignore[misc]
        for extension in asked.library.extensions
        if is_ours(extension.oid.dotted_string) and isinstance(extension.value, x509.UnrecognizedExtension)
    ]


def _any_proven(request: SigningRequest) -> list[ProvenHostKeys]:
    """The host keys in any extension that holds them: a line of a repetition does not name the OID."""
    found = []
    for read in _proven(request, lambda oid: True):
        try:
            found.append(read())
        except HostKeysNotCertified:
            continue
    return found


def _require_certificates(line: DecisionLine, recorded: AttestedHostKeys, node_name: str) -> None:
    certificates = [_read(text) for text in line.decision.host_certificates]
    if len(certificates) != len(recorded.host_keys):
        raise Inconsistent("there is not one host certificate for each host key")
    namespace, _, cluster = line.cluster.partition("/")
    for signed, one in zip(certificates, recorded.host_keys, strict=True):
        made = signed.certificate
        same = (
            made.kind is CertificateKind.HOST
            and key_line(made.public_key) == one.public_key
            and made.serial == one.serial_number
            and made.key_id == str(key_id_of(namespace, cluster, node_name))
            and tuple(map(str, made.principals)) == recorded.principals
            and datetime.fromtimestamp(made.valid_after, UTC) == recorded.not_before
            and datetime.fromtimestamp(made.valid_before, UTC) == recorded.not_after
            and made.authority.fingerprint == recorded.authority
        )
        if not same:
            raise Inconsistent(f"a host certificate is not the one of the journal: {one.fingerprint}")


def _read(line: str) -> SignedCertificate:
    try:
        signed = parse_certificate_line(line)
        signed.verify()
    except SSHRefused as refused:
        raise Inconsistent(f"a host certificate is not one: {refused}") from refused
    return signed
