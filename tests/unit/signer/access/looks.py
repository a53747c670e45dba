"""Facts about one grant, with everything right, and what a change of them leads to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import host_key
from signer.access.certificates import access_of, hops_of
from signer.access.creator import Guard, Protected
from signer.access.facts import ClusterHere, Facts, GrantRules, Keepalive
from signer.access.lifetimes import Lifetime
from signer.access.parts import (
    AbsentBastion,
    HopRequest,
    IssuanceFacts,
    Publication,
    ReadyBastion,
    TargetNode,
    TargetsFound,
)
from signer.access.plan import Issue, Step, plan
from signer.access.record import GrantRecord, NoRecord, with_entries
from signer.access.right_answers import Allowed
from signer.access.signing import sign_hops
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.requests import Nonce, Serial
from signer.kube.clocks import ClocksAgree
from signer.model.access import BastionOf, NoBastion, parse_access_approval, parse_access_grant
from signer.model.access.grant import FINALIZER, HEARTBEAT_ANNOTATION
from signer.model.seal import ControllerKeys
from signer.rules.access_certificates import certificate_request
from tests.support.access_objects import AUTHORITY_KEY, approval_object, grant_object
from tests.support.openssh import private_key

CREATED: Final = datetime(2026, 11, 27, 14, 0, tzinfo=UTC)
NOW: Final = CREATED + timedelta(seconds=3)
KEYS: Final = ControllerKeys(b"k" * 32)
AUTHORITY: Final = UserAuthority(cast("Ed25519PrivateKey", private_key("ed25519", 90)))
GUARD: Final = Guard("ValidatingAdmissionPolicy/creators", "p-1", 1, CREATED - timedelta(days=1))
LOCK: Final = Protected((GUARD,), NOW)
OTHER_LOCK: Final = Protected((replace(GUARD, generation=3, changed=CREATED + timedelta(minutes=1)),), NOW)
RULES: Final = GrantRules(timedelta(hours=1), 0, NoBastion())
BASTION_RULES: Final = replace(RULES, bastion=BastionOf("aws"))
INGRESS: Final = [{"ipBlock": {"cidr": "198.51.100.7/32"}}]
TARGETS: Final = TargetsFound((TargetNode("worker-1", ("10.0.0.5",), 22),))
READY_BASTION: Final = ReadyBastion(
    {"ip": "203.0.113.9", "port": 22}, ("203.0.113.9/32",), (host_key(parse_key_line(AUTHORITY_KEY)),)
)


def manifest(*, sealed: bool = True, heartbeat: str = "", **spec: Any) -> dict[str, Any]:
    found = grant_object(**spec)
    metadata = found["metadata"]
    if sealed:
        metadata["finalizers"] = [FINALIZER]
    if heartbeat:
        metadata["annotations"] = {HEARTBEAT_ANNOTATION: heartbeat}
    return found


def facts(*, sealed: bool = True, heartbeat: str = "", spec: dict[str, Any] | None = None, **changes: Any) -> Facts:
    """A look at a new grant that has its finalizer, unless ``sealed`` is false."""
    grant = parse_access_grant(manifest(sealed=sealed, heartbeat=heartbeat, **(spec or {})))
    usual = Facts(
        now=NOW,
        metadata=grant.metadata,
        grant=grant,
        record=NoRecord(),
        is_key_wait_over=False,
        cluster=ClusterHere(),
        rules=RULES,
        lifetime=Lifetime(CREATED, timedelta(hours=8), timedelta(hours=1)),
        lock=LOCK,
        right=Allowed(),
        approvals=(),
        approvers={},
        targets=TARGETS,
        bastion=AbsentBastion(),
        is_bastion_current=True,
        is_bastion_deleting=False,
        authority=AUTHORITY.public_key.fingerprint,
        publication=Publication.PENDING,
        keepalive=Keepalive.NONE,
        clocks=ClocksAgree(),
        asks_suspension=grant.is_suspended,
        stated_cluster=grant.cluster.name,
        stated_creator=grant.created_by,
    )
    return replace(usual, **changes)


def certify(issuance: IssuanceFacts) -> tuple[HopRequest, ...]:
    """Plans certificates as the product does, without the caches."""
    access = access_of(issuance)
    found = []
    for hop in hops_of(issuance):
        request = certificate_request(access, hop, Serial(1), Nonce(bytes(32)), CREATED, issuance.lifetime)
        found.append(
            HopRequest(
                hop.hop,
                request.public_key,
                access.key_id,
                request.principals,
                issuance.lifetime,
                request.critical_options,
                request.extensions,
            )
        )
    return tuple(found)


def step_of(look: Facts) -> Step:
    return plan(look, certify)


def issued(look: Facts) -> GrantRecord:
    """The record after the issuance that the look leads to."""
    step = step_of(look)
    assert isinstance(step.move, Issue), step
    assert isinstance(step.record, GrantRecord)
    hops = sign_hops(step.move.requests, step.move.facts.lifetime, AUTHORITY, KEYS, look.now)
    return with_entries(step.record, [one.entry for one in hops], look.now)


def running(*, spec: dict[str, Any] | None = None, heartbeat: str = "", **changes: Any) -> Facts:
    """The second look at a grant that has certificates."""
    before = {name: changes[name] for name in ("bastion", "rules") if name in changes}
    first = facts(spec=spec, heartbeat=heartbeat, **before)
    return replace(first, **{"record": issued(first), **changes})


def reason(step: Step, kind: str = "Ready") -> str:
    """The reason of that condition."""
    return next(one.reason for one in step.conditions if one.type == kind)


def status(step: Step, kind: str = "Ready") -> str:
    return next(one.status for one in step.conditions if one.type == kind)


def approval(look: Facts, name: str, creator: dict[str, Any], uid: str, **spec: Any) -> Any:
    """An approval of the look's grant, as it is now."""
    found = approval_object(name, digest=look.grant.digest, creator=creator, **spec)  # type: ignore[union-attr]
    found["metadata"]["uid"] = uid
    return parse_access_approval(found)
