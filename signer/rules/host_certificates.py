"""Which host keys of a request get certificates, for which names and for how long. Pure.

Nothing here costs the kubelet its certificate: what is refused is the host certificates, with a reason of their own.
The names are the controller's alone, as a request has no field to ask in: node name, ``<node>.<cluster>.<namespace>``,
and those names and addresses of the Machine that a serving certificate might hold (:mod:`signer.rules.serving`).
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from attestors.contract import Security
from attestors.wire.names import Purpose
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import HostPrincipal, parse_host_principal
from attestors.wire.ssh_host_keys import HostKeysRefused, decode, trust_version_in, verify
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import BACKDATE_SECONDS
from signer.model.addresses import Address, HostName
from signer.model.decision import Deferred, Refused, printable
from signer.model.host_keys import (
    NO_FORMER,
    AttestedHostKey,
    AttestedHostKeys,
    FormerHostCertificates,
    HostCertificateReason,
    NoFormerHostCertificates,
)
from signer.model.record import AttestedNode
from signer.model.serving_facts import ServingFacts
from signer.model.ssh_access import SSHSettings
from signer.rules.machine import MachineFacts, NoRecord, is_being_deleted
from signer.rules.serving import alternative_names_are_the_machines

MAXIMUM_NAMES: Final = 32
MAXIMUM_NAME_BYTES: Final = 2048
"""Of all principals of one certificate. Three certificates must fit into one text."""
_NOT_PROVEN: Final = frozenset({SSHReason.WRONG_NAMESPACE, SSHReason.SIGNED_BY_ANOTHER_KEY, SSHReason.BAD_SIGNATURE})


class HostKeysNotCertified(Exception):
    """The request gets no host certificates."""

    def __init__(self, reason: HostCertificateReason, message: str) -> None:
        super().__init__(printable(f"{reason}: {message}"))
        self.reason = reason
        self.message = printable(message)


@dataclass(frozen=True, slots=True)
class ProvenHostKeys:
    """The host keys of a request, each proven to be the requester's."""

    trust_version: int
    keys: tuple[str, ...]
    """``type base64``."""


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names and addresses that the node's host certificates may have."""

    dns_names: tuple[str, ...]
    ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]


@dataclass(frozen=True, slots=True)
class HostNameFacts:
    """What is known of :func:`host_names`, as of the names of a serving request."""

    conflicting_names: frozenset[str]
    serving: ServingFacts


class _AskedNames:
    """Names as a serving request would have them: :class:`~signer.rules.serving.AlternativeNameFacts`."""

    __slots__ = (
        "cluster",
        "conflicting_names",
        "dns_names",
        "ip_addresses",
        "machine",
        "node_name",
        "policy",
        "proven",
        "serving",
    )
    purpose: Final = Purpose.SERVING

    def __init__(
        self,
        facts: MachineFacts,
        names: HostNameFacts,
        dns_names: tuple[str, ...],
        ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...],
    ) -> None:
        self.node_name, self.cluster, self.policy = facts.node_name, facts.cluster, facts.policy
        self.machine, self.proven = facts.machine, facts.proven
        self.conflicting_names, self.serving = names.conflicting_names, _known_so_far(names.serving)
        self.dns_names, self.ip_addresses = dns_names, ip_addresses

    def only(self, name: str | ipaddress.IPv4Address | ipaddress.IPv6Address) -> _AskedNames:
        """The same for one name or address."""
        one = copy(self)
        one.dns_names, one.ip_addresses = ((name,), ()) if isinstance(name, str) else ((), (name,))
        return one


def _known_so_far(serving: ServingFacts) -> ServingFacts:
    """Names are left out by those of the control plane that are known. To wait, as serving requests do, would leave all
    of them out until the next renewal; and no client of the API server trusts an authority of hosts.
    """
    return replace(serving, control_plane_unknown="") if serving.control_plane_unknown else serving


@dataclass(frozen=True, slots=True)
class HostAuthorityFacts:
    """The authority that signs."""

    public_key: str
    """``type base64``."""
    fingerprint: str
    trusted: tuple[str, ...]
    """All authorities of users and hosts that nodes and clients trust, ``type base64``."""
    nonce_key: str


def proven_host_keys(value: bytes, subject_public_key_info: bytes) -> ProvenHostKeys:
    """Parse the extension, and verify each proof over the CSR's SubjectPublicKeyInfo.

    Raises:
        HostKeysNotCertified: ``HostKeysMalformed`` or ``HostKeyNotProven``.
    """
    try:
        claim = decode(value)
        keys = verify(claim, subject_public_key_info)
    except HostKeysRefused as refused:
        unproven = refused.reason in _NOT_PROVEN
        reason = HostCertificateReason.HOST_KEY_NOT_PROVEN if unproven else HostCertificateReason.HOST_KEYS_MALFORMED
        raise HostKeysNotCertified(reason, str(refused)) from None
    return ProvenHostKeys(claim.trust_version, tuple(map(key_line, keys)))


def reported_trust_version(value: bytes) -> int:
    """The version of the trust that an attested request names, whose host keys are refused. 0, which a rotation takes
    for the trust of none, where it cannot be read.
    """
    try:
        return trust_version_in(value)
    except HostKeysRefused:
        return 0


def former_certificates(facts: MachineFacts, authority: str) -> FormerHostCertificates | NoFormerHostCertificates:
    """What the node may present until it can read a certificate by ``authority``, a fingerprint.

    It may have got any certificate that its record ever named. The record of another identity is of another machine.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest != facts.identity.digest:
        return NO_FORMER
    ssh = record.ssh
    if not isinstance(ssh, AttestedHostKeys):
        return NO_FORMER
    if ssh.authority == authority:
        return ssh.former
    before = (ssh.former.not_after,) if isinstance(ssh.former, FormerHostCertificates) else ()
    return FormerHostCertificates(ssh.authority, max((ssh.not_after, *before)))


def require_certifiable(
    proven: ProvenHostKeys, facts: MachineFacts, holders: tuple[AttestedNode, ...], authority: HostAuthorityFacts
) -> None:
    """The keys are this node's alone, as an attestor proved. ``holders`` are the records with one of the keys.

    A record has its host keys for as long as it has its node name. The same identity may have them under another name:
    it is the same machine.

    Raises:
        HostKeysNotCertified: ``AttestorNotSecure``, ``HostKeyIsAuthority`` or ``HostKeyInUse``.
    """
    if facts.identity.security is not Security.SECURE:
        raise HostKeysNotCertified(
            HostCertificateReason.ATTESTOR_NOT_SECURE,
            f"attestor {facts.identity.provider} only asserts which machine this is, so clients could not rely on a "
            "host certificate",
        )
    if set(proven.keys) & {authority.public_key, *authority.trusted}:
        raise HostKeysNotCertified(
            HostCertificateReason.HOST_KEY_IS_AUTHORITY, "a host key is one of the cluster's SSH authorities"
        )
    for holder in holders:
        own = holder.identity.digest == facts.identity.digest
        if not own and facts.now < holder.held_until:
            raise HostKeysNotCertified(
                HostCertificateReason.HOST_KEY_IN_USE,
                f"{_shown_for(facts, holder)} has the same host key: make a host key on each machine, and keep none in "
                "images",
            )


def _shown_for(facts: MachineFacts, holder: AttestedNode) -> str:
    """The holder as the Event names it. The tenant reads that; the operator reads AttestedNodes and the audit log."""
    if holder.machine.cluster.namespace == facts.machine.cluster.namespace:
        return f"node {holder.node_name} of {holder.machine.cluster}"
    return "a node of another namespace, in whose AttestedNode the operator finds the key,"


def host_names(facts: MachineFacts) -> HostNames:
    """The names to find out about: those of the Machine, and two that another node's could be."""
    readings = [own.reading for own in facts.machine.addresses]
    names = [one.text for one in readings if isinstance(one, HostName)]
    addresses = [one.text for one in readings if isinstance(one, Address)]
    if facts.proven is not None:
        names += facts.proven.dns_names
        addresses += map(str, facts.proven.ip_addresses)
    names += [_name_with_cluster(facts), *_shorter_name(facts)]
    return HostNames(
        tuple(dict.fromkeys(name.lower() for name in names)),
        tuple(dict.fromkeys(map(_address, addresses))),
    )


def host_principals(facts: MachineFacts, names: HostNameFacts) -> tuple[str, ...]:
    """What the node's host certificates name: the node's name first.

    Raises:
        HostKeysNotCertified: ``HostNameTaken``.
    """
    shorter = _shorter_name(facts)
    if not names.conflicting_names.isdisjoint(shorter):
        raise HostKeysNotCertified(
            HostCertificateReason.HOST_NAME_TAKEN,
            f"node {shorter[0]} of the cluster has the name {facts.node_name} too, with cluster and namespace",
        )
    wanted: list[str] = [facts.node_name]
    with_cluster = _name_with_cluster(facts)
    if with_cluster not in names.conflicting_names and _is_a_principal(with_cluster):
        wanted.append(with_cluster)
    candidates = host_names(facts)
    # Names with cluster and namespace are nodes' alone. A Machine's own may come from inside of it, as its hostname.
    of_cluster = _with_cluster(facts, "")
    own = tuple(
        one for one in candidates.dns_names if one not in (facts.node_name, *shorter) and not one.endswith(of_cluster)
    )
    asked = _AskedNames(facts, names, own, candidates.ip_addresses)
    every = (*own, *candidates.ip_addresses)
    if _are_the_machines(asked):  # nearly always
        wanted += filter(_is_a_principal, map(str, every))
    else:
        wanted += [str(one) for one in every if _is_the_machines(asked, one)]
    return tuple(_within_limits(dict.fromkeys(wanted)))


def principal_of(name: str) -> HostPrincipal:
    """The principal of one of :func:`host_principals`.

    Raises:
        SSHRefused: it can be none.
    """
    return parse_host_principal(name)


def host_certificate_end(facts: MachineFacts, settings: SSHSettings) -> datetime:
    """When host certificates that are issued now end.

    While the Machine is being deleted, they end with the kubelet's.
    """
    duration: timedelta = settings.host_certificate_duration
    if is_being_deleted(facts):
        duration = min(duration, facts.policy.deleting_duration)
    return facts.now.replace(microsecond=0) + duration


def planned_host_keys(
    proven: ProvenHostKeys,
    serial_numbers: tuple[int, ...],
    facts: MachineFacts,
    names: HostNameFacts,
    holders: tuple[AttestedNode, ...],
    authority: HostAuthorityFacts,
    settings: SSHSettings,
) -> AttestedHostKeys:
    """The journal entry of the certificates to issue.

    Raises:
        HostKeysNotCertified: none may be issued.
    """
    require_certifiable(proven, facts, holders, authority)
    now = facts.now.replace(microsecond=0)
    return AttestedHostKeys(
        trust_version=proven.trust_version,
        attested=now,
        host_keys=tuple(AttestedHostKey(key, serial) for key, serial in zip(proven.keys, serial_numbers, strict=True)),
        principals=host_principals(facts, names),
        not_before=now - timedelta(seconds=BACKDATE_SECONDS),
        not_after=host_certificate_end(facts, settings),
        authority=authority.fingerprint,
        nonce_key=authority.nonce_key,
        former=former_certificates(facts, authority.fingerprint),
    )


def key_id_of(namespace: str, cluster: str, node_name: str) -> KeyID:
    """The key id of all host certificates of a node: one line of a revocation list names them all.

    Raises:
        SSHRefused: it is too long.
    """
    return KeyID.of("host", namespace, cluster, node_name)


# The names of one Machine are found out about, judged and planned.
@functools.lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


def _name_with_cluster(facts: MachineFacts) -> str:
    return _with_cluster(facts, facts.node_name)


def _with_cluster(facts: MachineFacts, name: str) -> str:
    key = facts.machine.cluster
    return f"{name}.{key.name}.{key.namespace}"


def _shorter_name(facts: MachineFacts) -> tuple[str, ...]:
    """The node whose name with cluster and namespace would be this node's name; empty if there can be none."""
    key = facts.machine.cluster
    shorter = facts.node_name.removesuffix(f".{key.name}.{key.namespace}")
    return (shorter,) if shorter != facts.node_name and shorter else ()


def _is_the_machines(asked: _AskedNames, name: str | ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a serving certificate might hold the name now. One that is not known yet is left out until it is."""
    return _are_the_machines(asked.only(name)) and _is_a_principal(str(name))


def _are_the_machines(asked: _AskedNames) -> bool:
    try:
        alternative_names_are_the_machines(asked)
    except (Refused, Deferred):
        return False
    return True


def _is_a_principal(name: str) -> bool:
    try:
        principal_of(name)
    except SSHRefused:  # longer than DNS names are
        return False
    return True


def _within_limits(names: dict[str, None]) -> Iterator[str]:
    """The first names, as many as the limits allow; at least the node's own."""
    total = 0
    for number, name in enumerate(names):
        total += len(name)
        if number and (number >= MAXIMUM_NAMES or total > MAXIMUM_NAME_BYTES):
            return
        yield name
