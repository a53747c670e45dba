"""A record at each step, and the facts of a cluster that is exactly as that step wants it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, NotMade, Role, RotatedAuthority
from signer.rotation.desired import LINK_LIFETIME
from signer.rotation.facts import (
    Absent,
    Acceptance,
    AuthenticationFacts,
    AuthorityFacts,
    CanarySigner,
    ControlPlaneMachine,
    Facts,
    Held,
    HeldPair,
    KubeconfigFacts,
    Link,
    NodeFacts,
    Publication,
    RenewalFacts,
    RootCAFacts,
    ServerFacts,
    ServersFacts,
    SignedByKnown,
    SigningFacts,
    TrustFacts,
)
from signer.rotation.phases import BACK, STEPS_OF, Phase, SigningPairs, Step
from signer.rotation.record import Moment, NotYet, RotationRecord
from tests.unit.signer.rotation.model_world import START, first_record, reference

OLD, NEW = Role.OLD, Role.NEW
NOT_HELD: Final = NotYet()
NOW: Final = START + timedelta(days=3)
"""Every wait of a rotation that began at START is over."""
_PHASES: Final = (Phase.PREPARING, Phase.PREPARED, Phase.COMPLETING, Phase.ROLLING_BACK)
DIGEST: Final = {role: reference(role).digest for role in Role}
HASH: Final = {role: reference(role).public_key_hash for role in Role}


def record_at(
    step: Step,
    *,
    kinds: tuple[AuthorityKind, ...] = tuple(AuthorityKind),
    held_at: Step | NotYet = NOT_HELD,
    made: bool = True,
    **changes: Any,
) -> RotationRecord:
    """The record of a rotation that works on that step since START."""
    (phase, *_) = (phase for phase in _PHASES if step in STEPS_OF[phase])
    times = dict.fromkeys((Moment.STARTED, Moment.STEP, Moment.TRUST_WRITTEN), START)
    if step in BACK or step.is_at_least(Step.SERVERS_PRESENT):
        times[Moment.SWITCHED] = START
    if step is Step.CONTROLLER_MANAGERS_SIGN:
        changes = {"signing_pairs": SigningPairs.SPLIT, **changes}
        times[Moment.CONTROLLER_MANAGERS] = START
    return replace(
        first_record(kinds),
        phase=changes.pop("phase", phase),
        step=step,
        held_at=held_at,
        authorities=tuple(
            RotatedAuthority(
                kind,
                reference(OLD, kind),
                reference(NEW, kind) if made and step is not Step.NEW_AUTHORITY else NotMade(),
            )
            for kind in kinds
        ),
        times=MappingProxyType({**times, **changes.pop("times", {})}),
        **changes,
    )


def pair(role: Role, kind: AuthorityKind = AuthorityKind.CLUSTER, *also: Role) -> HeldPair:
    """The pair of that role, with further certificates behind it."""
    return HeldPair(tuple(reference(one, kind) for one in (role, *also)), reference(role, kind))


def server(presents: Presented, old: bool = True, new: bool = True, name: str = "control-plane-1") -> ServerFacts:
    """What one API server does."""
    answers = [Acceptance.ACCEPTED if accepts else Acceptance.REFUSED for accepts in (old, new)]
    return ServerFacts(name, presents, *answers)


def node(name: str = "worker-1", *, evidence: Role = OLD, client: Role = OLD, serving: Role = OLD) -> NodeFacts:
    """A node by its newest attestation."""
    return NodeFacts(name, name, HASH[evidence], HASH[client], HASH[serving], is_all=True)


_NODE_OF: Final[Mapping[str, NodeFacts]] = {
    "old": node(), "clients": node(evidence=NEW, client=NEW), "new": node(evidence=NEW, client=NEW, serving=NEW),
}  # fmt: skip


def facts_at(step: Step, **changes: Any) -> Facts:
    """Facts of a cluster that has done all that the step wants."""
    made = step is not Step.NEW_AUTHORITY
    is_back = step in BACK
    trusts = is_back or step.is_at_least(Step.PUBLISH_TRUST)
    switched = not is_back and step.is_at_least(Step.SWITCH)
    presents_new = not is_back and step.is_at_least(Step.SERVERS_PRESENT)
    dropped = not is_back and step.is_at_least(Step.DROP_OLD)
    withdrawn = step in (Step.WITHDRAW_TRUST, Step.DISCARD_NEW)
    signs = NEW if switched else OLD
    nodes = "old"
    if not is_back and step.is_at_least(Step.SIGN_CLIENTS):
        nodes = "new" if step.is_at_least(Step.SIGN_SERVING) else "clients"
    client, served = (DIGEST[OLD], DIGEST[NEW]), (DIGEST[NEW], DIGEST[OLD])
    if dropped:
        client = served = (DIGEST[NEW],)  # type: ignore[assignment]
    elif withdrawn or not trusts:
        client = served = (DIGEST[OLD],)  # type: ignore[assignment]
    elif is_back:
        served = client
    link = Link.OLD_WITH_NEW if trusts and not switched and not withdrawn else Link.NONE
    accepts_new = trusts and not withdrawn
    presented = Presented.NEW if presents_new else (Presented.OLD_LINKED if accepts_new else Presented.OLD)
    kubeconfig = (client[::-1] if switched else client), SignedByKnown(DIGEST[signs])
    facts = Facts(
        now=NOW,
        paused=False,
        authorities={
            kind: AuthorityFacts(
                _secret(kind, signs, bundle=trusts and not withdrawn, dropped=dropped), _pairs(kind, step)
            )
            for kind in AuthorityKind
        },
        trust=TrustFacts(client, served, link, _link_end(link)) if trusts else Absent(),
        kubeconfig=KubeconfigFacts(*kubeconfig),
        cluster_info=served,
        authentication=AuthenticationFacts((DIGEST[NEW],) if dropped else client, ()),
        root_ca=RootCAFacts(4, (), ()),
        servers=ServersFacts((server(presented, not dropped, accepts_new),), {}, NOW),
        old_refused_since=START,
        control_plane=(ControlPlaneMachine("control-plane-1", START + timedelta(hours=1), True, NOW),),
        workers_joining={},
        nodes=(_NODE_OF[nodes],),
        unattested=(),
        renewal=RenewalFacts((), ""),
        signing=_signing(step, is_back=is_back),
        canary=CanarySigner.NEW,
        published_keys={"control-plane-1": Publication.PUBLISHED},
    )
    assert made or not trusts
    return replace(facts, **changes)


def _link_end(link: Link) -> datetime | Absent:
    return Absent() if link is Link.NONE else START + LINK_LIFETIME


def _signing(step: Step, *, is_back: bool) -> SigningFacts:
    client = NEW if not is_back and step.is_at_least(Step.CONTROLLER_MANAGERS_SIGN) else OLD
    return SigningFacts(DIGEST[client], DIGEST[NEW if not is_back and step.is_at_least(Step.SWITCH) else OLD])


def _secret(kind: AuthorityKind, signs: Role, *, bundle: bool, dropped: bool) -> HeldPair:
    single = kind is AuthorityKind.CLUSTER or (dropped and kind is not AuthorityKind.SERVICE_ACCOUNT) or not bundle
    other = OLD if signs is NEW else NEW
    return pair(signs, kind) if single else pair(signs, kind, other)


def _pairs(kind: AuthorityKind, step: Step) -> dict[Role, Held]:
    return {role: pair(role, kind) for role in Role}


def with_servers(facts: Facts, *servers: ServerFacts, unseen: Mapping[str, str] | None = None) -> Facts:
    """The facts with other API servers."""
    return replace(facts, servers=ServersFacts(servers, unseen or {}, NOW))


def with_secret(facts: Facts, kind: AuthorityKind, secret: Held) -> Facts:
    """The facts with something else in the Secret of an authority."""
    own = replace(facts.authorities[kind], secret=secret)
    return replace(facts, authorities={**facts.authorities, kind: own})


def with_pair(facts: Facts, kind: AuthorityKind, role: Role, held: Held) -> Facts:
    """The facts with something else where the rotation keeps a pair."""
    own = facts.authorities[kind]
    kept = replace(own, pairs={**own.pairs, role: held})
    return replace(facts, authorities={**facts.authorities, kind: kept})


def with_machine(facts: Facts, *, created: datetime = NOW, joined: bool = True, started: Any = NOW) -> Facts:
    """The facts with another Machine of the control plane."""
    return replace(facts, control_plane=(ControlPlaneMachine("control-plane-1", created, joined, started),))


def without(record: RotationRecord, moment: Moment) -> RotationRecord:
    """The record before that moment came."""
    return replace(record, times={one: at for one, at in record.times.items() if one != moment})
