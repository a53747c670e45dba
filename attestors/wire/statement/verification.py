"""The node's rules: which statements it accepts, given what it trusts now.

A statement about trust counts if all of this holds:

1. it is about the node's cluster, valid now, and its sequence is greater than that of the last accepted one;
2. every certificate of its bundle is a valid CA;
3. a CA that the node trusts now has signed it;
4. every CA of the bundle that the node does not trust yet has signed it (proof of possession);
5. if the node has pinned controller keys, one of them has signed it. So a thief with a CA's key cannot appoint the next
   CA.

A statement about the controller's keys counts if rules 1 and 3 hold and each listed key has signed. If it changes the
pinned keys or the Cluster's UID, a pinned key must have signed too. The CA's signature prevents the owner of the
workload cluster's API from planting keys at a node that has none.

A statement about renewals counts if rules 1, 3 and 5 hold, and the node has pinned a key: it makes every node of a
cluster ask for a certificate. So does one about SSH, whose revocation list must be of the same version: it says whose
certificates open the node.

Signatures of other keys are ignored. A signature of a key that matters must verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature

from attestors.wire import pem
from attestors.wire.node_access import Trust
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.krl import RevocationList, parse_revocation_list
from attestors.wire.statement.authorities import Authority, BadAuthority, parse_authority, parse_bundle
from attestors.wire.statement.client_renewal import ClientRenewal
from attestors.wire.statement.cluster_trust import ClusterTrust
from attestors.wire.statement.controller_keys import ControllerPublicKeys
from attestors.wire.statement.envelope import ClusterIdentity, SignedStatement, Statement, signed_input
from attestors.wire.statement.errors import StatementReason, StatementRefused
from attestors.wire.statement.node_access_trust import NodeAccessTrust
from attestors.wire.statement.signatures import VerificationKey, verify

CLOCK_SKEW_SECONDS: Final = 300
"""How far the node's clock may be behind the controller's."""

_Reason = StatementReason


@dataclass(frozen=True, slots=True)
class PinnedController:
    """The controller's keys that this node pinned, and the cluster that it belongs to."""

    cluster: ClusterIdentity
    keys: ControllerPublicKeys
    sequence: int


@dataclass(frozen=True, slots=True)
class NotPinned:
    """The node joined under a controller that handed out no keys."""


Pin: TypeAlias = PinnedController | NotPinned


@dataclass(frozen=True, slots=True)
class AcceptedTrust:
    """Trust that the node may act on. Only :func:`accept_trust` makes one."""

    cluster: ClusterIdentity
    sequence: int
    trust: ClusterTrust
    authorities: tuple[Authority, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AcceptedNodeAccessTrust:
    """What sshd may act on. Only :func:`accept_node_access_trust` makes one."""

    sequence: int
    not_after: int
    """Unix time."""
    trust: Trust
    revocation_list: bytes = field(repr=False)
    revocations: RevocationList = field(repr=False)
    """The same, parsed."""
    renew_below: int
    """A node that has reported only lower versions of the trust attests now; 0: none does."""
    renew_spread_seconds: int
    """Within which these nodes attest."""


def authorities_in(certificates: Iterable[bytes]) -> tuple[Authority, ...]:
    """The CAs that a node trusts now, from the DER certificates in its files.

    Certificates that could not sign a statement are left out: client-go trusts what it finds in the file, but such a
    certificate can appoint no CA.
    """
    found: list[Authority] = []
    for der in certificates:
        try:
            found.append(parse_authority(der))
        except BadAuthority:
            continue
    return tuple(found)


def accept_trust(
    signed: SignedStatement, *, trusted: tuple[Authority, ...], pin: Pin, last_sequence: int, now: int
) -> AcceptedTrust:
    """The trust that a statement gives this node.

    ``trusted`` are the CAs that the node trusts now, ``last_sequence`` that of the last accepted statement, or 0, and
    ``now`` the Unix time.

    Raises:
        StatementRefused: a rule does not hold.
    """
    statement = signed.statement
    if not isinstance(statement.payload, ClusterTrust):
        raise StatementRefused(_Reason.WRONG_KIND, f"it is of kind {statement.kind.value}")
    if isinstance(pin, PinnedController) and statement.cluster != pin.cluster:
        raise StatementRefused(_Reason.WRONG_CLUSTER, "it is about another cluster than this node's")
    _require_newer(statement, last_sequence)
    _require_valid(statement, now)
    authorities = _bundle(statement.payload, now)
    _require_trusted_signature(signed, trusted, now)
    known = {authority.key_hash for authority in trusted}
    for authority in authorities:
        if authority.key_hash not in known and not _signed_by(signed, authority.key_hash.text, authority.key):
            raise StatementRefused(
                _Reason.NOT_SIGNED_BY_NEW_CA, f"the new CA {authority.key_hash.text} has not signed it"
            )
    if isinstance(pin, PinnedController):
        _require_controller_signature(signed, pin.keys)
    return AcceptedTrust(statement.cluster, statement.sequence, statement.payload, authorities)


def accept_controller_keys(
    signed: SignedStatement, *, trusted: tuple[Authority, ...], pin: Pin, now: int
) -> PinnedController:
    """What the node has pinned after this statement; ``pin`` itself if it says the same.

    Raises:
        StatementRefused: a rule does not hold; the pin stays.
    """
    statement = signed.statement
    if not isinstance(statement.payload, ControllerPublicKeys):
        raise StatementRefused(_Reason.WRONG_KIND, f"it is of kind {statement.kind.value}")
    if isinstance(pin, PinnedController):
        # The UID may change: `clusterctl move` creates the Cluster anew.
        if (statement.cluster.namespace, statement.cluster.name) != (pin.cluster.namespace, pin.cluster.name):
            raise StatementRefused(_Reason.WRONG_CLUSTER, "it is about another cluster than this node's")
        if (statement.cluster, statement.payload) == (pin.cluster, pin.keys):
            return pin
        _require_newer(statement, pin.sequence)
    _require_valid(statement, now)
    _require_trusted_signature(signed, trusted, now)
    for name, key in statement.payload.by_hash().items():
        if not _signed_by(signed, name, key):
            raise StatementRefused(
                _Reason.NOT_SIGNED_BY_NEW_CONTROLLER_KEY, f"the controller key {name} has not signed it"
            )
    if isinstance(pin, PinnedController):
        _require_controller_signature(signed, pin.keys)
    return PinnedController(statement.cluster, statement.payload, statement.sequence)


def accept_client_renewal(
    signed: SignedStatement, *, trusted: tuple[Authority, ...], pin: Pin, last_sequence: int, now: int
) -> ClientRenewal:
    """The renewal that a statement asks of this node; the arguments are as for :func:`accept_trust`.

    Raises:
        StatementRefused: a rule does not hold.
    """
    statement = signed.statement
    if not isinstance(statement.payload, ClientRenewal):
        raise StatementRefused(_Reason.WRONG_KIND, f"it is of kind {statement.kind.value}")
    _require_controller_and_authority(signed, trusted, pin, last_sequence, now)
    return statement.payload


def accept_node_access_trust(
    signed: SignedStatement, *, trusted: tuple[Authority, ...], pin: Pin, last_sequence: int, now: int
) -> AcceptedNodeAccessTrust:
    """What a statement says to this node about SSH; the arguments are as for :func:`accept_trust`.

    The caller compares the trust's version with that of the trust which is in force.

    Raises:
        StatementRefused: a rule does not hold.
    """
    statement = signed.statement
    payload = statement.payload
    if not isinstance(payload, NodeAccessTrust):
        raise StatementRefused(_Reason.WRONG_KIND, f"it is of kind {statement.kind.value}")
    _require_controller_and_authority(signed, trusted, pin, last_sequence, now)
    try:
        revocations = parse_revocation_list(payload.revocation_list)
    except SSHRefused as refused:
        raise StatementRefused(_Reason.BAD_REVOCATION_LIST, str(refused)) from None
    if revocations.version != statement.sequence:
        raise StatementRefused(
            _Reason.BAD_REVOCATION_LIST,
            f"the list is of version {revocations.version}, and the statement of {statement.sequence}",
        )
    return AcceptedNodeAccessTrust(
        statement.sequence,
        statement.not_after,
        payload.trust,
        payload.revocation_list,
        revocations,
        payload.renew_below,
        payload.renew_spread_seconds,
    )


def bundle_text(accepted: AcceptedTrust) -> str:
    """The bundle in PEM, encoded from the parsed certificates."""
    return "".join(
        pem.encode(pem.Block("CERTIFICATE", authority.der)).decode("ascii") for authority in accepted.authorities
    )


def _require_controller_and_authority(
    signed: SignedStatement, trusted: tuple[Authority, ...], pin: Pin, last_sequence: int, now: int
) -> None:
    """Rules 1, 3 and 5, for kinds that count only with a pinned key."""
    statement = signed.statement
    if not isinstance(pin, PinnedController):
        raise StatementRefused(_Reason.NOT_PINNED, "this node has pinned no controller key")
    if statement.cluster != pin.cluster:
        raise StatementRefused(_Reason.WRONG_CLUSTER, "it is about another cluster than this node's")
    _require_newer(statement, last_sequence)
    _require_valid(statement, now)
    _require_trusted_signature(signed, trusted, now)
    _require_controller_signature(signed, pin.keys)


def _require_newer(statement: Statement, last_sequence: int) -> None:
    if statement.sequence <= last_sequence:
        raise StatementRefused(
            _Reason.REPLAYED, f"its sequence is {statement.sequence}, and {last_sequence} was accepted before"
        )


def _require_valid(statement: Statement, now: int) -> None:
    if now + CLOCK_SKEW_SECONDS < statement.not_before:
        raise StatementRefused(_Reason.NOT_YET_VALID, "it is not valid yet; is this node's clock right?")
    if now >= statement.not_after:
        raise StatementRefused(_Reason.EXPIRED, "it is not valid any more; is this node's clock right?")


def _bundle(trust: ClusterTrust, now: int) -> tuple[Authority, ...]:
    try:
        authorities = parse_bundle(trust.bundle)
    except BadAuthority as error:
        raise StatementRefused(_Reason.BAD_BUNDLE, str(error)) from None
    for authority in authorities:
        if not authority.is_valid(now):
            raise StatementRefused(
                _Reason.BAD_BUNDLE, f"the CA {authority.key_hash.text} is not valid now; is this node's clock right?"
            )
    return authorities


def _require_trusted_signature(signed: SignedStatement, trusted: tuple[Authority, ...], now: int) -> None:
    signers = [
        authority
        for authority in trusted
        if authority.is_valid(now) and _signed_by(signed, authority.key_hash.text, authority.key)
    ]
    if not signers:
        raise StatementRefused(_Reason.NOT_SIGNED_BY_TRUSTED_CA, "no CA that this node trusts has signed it")


def _require_controller_signature(signed: SignedStatement, keys: ControllerPublicKeys) -> None:
    by_hash: Mapping[str, VerificationKey] = keys.by_hash()
    signers = [name for name, key in by_hash.items() if _signed_by(signed, name, key)]
    if not signers:
        raise StatementRefused(
            _Reason.NOT_SIGNED_BY_CONTROLLER, "no controller key that this node pinned has signed it"
        )


def _signed_by(signed: SignedStatement, name: str, key: VerificationKey) -> bool:
    """Whether there is a signature of that key.

    Raises:
        StatementRefused: there is one, and it does not verify.
    """
    for signature in signed.signatures:
        if signature.key.text == name:
            try:
                verify(key, signature.value, signed_input(signed.statement))
            except InvalidSignature:
                raise StatementRefused(_Reason.BAD_SIGNATURE, f"the signature of key {name} is wrong") from None
            return True
    return False
