"""Each invariant holds a write that the plan would never make."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, Role
from signer.rotation.desired import (
    NEW_FIRST,
    NEW_ONLY,
    OLD_FIRST,
    OLD_ONLY,
    DeleteKey,
    KeepPair,
    PruneAuthentication,
    SecretContents,
    Write,
    WriteAuthority,
    WriteClusterInfo,
    WriteKubeconfig,
    WritePins,
    WriteTrust,
)
from signer.rotation.facts import Absent, Facts, HeldCertificate, Link, NotObserved, Publication
from signer.rotation.invariants import InvariantBroken, require_step, require_write
from signer.rotation.phases import BACK, FORWARD, Phase, Step
from tests.unit.signer.rotation.model_world import reference
from tests.unit.signer.rotation.situations import (
    HASH,
    NEW,
    OLD,
    facts_at,
    node,
    pair,
    record_at,
    server,
    with_machine,
    with_pair,
    with_secret,
    with_servers,
)

CA, ETCD = AuthorityKind.CLUSTER, AuthorityKind.ETCD
UNKNOWN = NotObserved("timeout")
SWITCH_CA = WriteAuthority(CA, SecretContents(NEW_ONLY, NEW))
SWITCH_ETCD = WriteAuthority(ETCD, SecretContents(NEW_FIRST, NEW))
ETCD_DROPS = WriteAuthority(ETCD, SecretContents(NEW_ONLY, NEW))
RESTORE_CA = WriteAuthority(CA, SecretContents(OLD_ONLY, OLD))
PUBLISH = WriteTrust(OLD_FIRST, NEW_FIRST, Link.OLD_WITH_NEW)
DROP = WriteTrust(NEW_ONLY, NEW_ONLY, Link.NONE)
WITHDRAW = WriteTrust(OLD_ONLY, OLD_ONLY, Link.NONE)


def require(write: Write, step: Step, facts: Facts | None = None, *, made: bool = True) -> None:
    require_write(write, record_at(step, made=made), facts or facts_at(step))


def broken(number: str, write: Write, step: Step, facts: Facts | None = None, *, made: bool = True) -> None:
    with pytest.raises(InvariantBroken) as raised:
        require(write, step, facts, made=made)
    assert str(raised.value).startswith(f"{number}: "), raised.value


PREPARED_SERVER = server(Presented.OLD_LINKED)


@pytest.mark.parametrize(
    ("write", "step"),
    [
        (KeepPair(CA, NEW), Step.NEW_AUTHORITY),
        (PUBLISH, Step.PUBLISH_TRUST),
        (WriteClusterInfo(NEW_FIRST), Step.PUBLISH_TRUST),
        (WriteKubeconfig(OLD_FIRST, OLD), Step.PUBLISH_TRUST),
        (WritePins("pool", NEW_FIRST), Step.PUBLISH_TRUST),
        (SWITCH_CA, Step.SWITCH),
        (SWITCH_ETCD, Step.SWITCH),
        (WriteKubeconfig(NEW_FIRST, NEW), Step.SWITCH),
        (DROP, Step.DROP_OLD),
        (ETCD_DROPS, Step.DROP_OLD),
        (WriteClusterInfo(NEW_ONLY), Step.DROP_OLD),
        (WriteKubeconfig(NEW_ONLY, NEW), Step.DROP_OLD),
        (PruneAuthentication(), Step.PRUNE),
        (DeleteKey(CA, OLD), Step.FORGET),
        (RESTORE_CA, Step.RESTORE_OLD),
        (WITHDRAW, Step.WITHDRAW_TRUST),
        (DeleteKey(CA, NEW), Step.DISCARD_NEW),
    ],
)
def test_the_plans_own_writes_break_none(write: Write, step: Step) -> None:
    require(write, step)


def test_i1_the_first_certificate_is_the_keys() -> None:
    broken("I1", WriteAuthority(ETCD, SecretContents(OLD_FIRST, NEW)), Step.SWITCH)
    broken("I1", WriteAuthority(CA, SecretContents(OLD_ONLY, NEW)), Step.SWITCH)


def test_i1_no_bundle_in_the_secret_of_the_clusters_ca() -> None:
    broken("I1", WriteAuthority(CA, SecretContents(NEW_FIRST, NEW)), Step.SWITCH)


@pytest.mark.parametrize(
    "write",
    [SWITCH_CA, PUBLISH, WriteKubeconfig(OLD_FIRST, OLD), WriteClusterInfo(NEW_FIRST), WritePins("pool", NEW_FIRST)],
)
def test_i4_nothing_names_a_ca_that_the_record_does_not_seal(write: Write) -> None:
    broken("I4", write, Step.RESTORE_OLD, made=False)


@pytest.mark.parametrize("role", Role)
def test_i4_no_secret_is_overwritten_whose_pair_is_not_kept(role: Role) -> None:
    facts = facts_at(Step.SWITCH)
    for held in (Absent(), HeldCertificate(reference(role)), pair(NEW if role is OLD else OLD)):
        broken("I4", SWITCH_CA, Step.SWITCH, with_pair(facts, CA, role, held))
    require(SWITCH_CA, Step.SWITCH, with_pair(facts, ETCD, role, Absent()))


SIGNS_NEW = [SWITCH_CA, SWITCH_ETCD, WriteKubeconfig(NEW_FIRST, NEW)]


@pytest.mark.parametrize("write", SIGNS_NEW)
def test_i2_nothing_is_by_the_new_ca_before_every_server_accepts_it(write: Write) -> None:
    facts = facts_at(Step.SWITCH)
    broken("I2", write, Step.SWITCH, with_servers(facts, server(Presented.OLD_LINKED, new=False)))
    broken("I2", write, Step.SWITCH, with_servers(facts, PREPARED_SERVER, unseen={"b": "away"}))
    broken("I2", write, Step.SWITCH, with_servers(facts))
    broken("I2", write, Step.SWITCH, replace(facts, servers=UNKNOWN))


def test_i2_no_key_signs_tokens_before_every_server_publishes_it() -> None:
    write, facts = WriteAuthority(AuthorityKind.SERVICE_ACCOUNT, SecretContents(NEW_FIRST, NEW)), facts_at(Step.SWITCH)
    require(write, Step.SWITCH)
    require(write, Step.SWITCH, replace(facts, published_keys={"a": Publication.NOT_SERVED}))
    lacking: tuple[dict[str, Publication | NotObserved] | NotObserved, ...] = (
        {"a": Publication.PUBLISHED, "b": Publication.MISSING},
        {"a": Publication.PUBLISHED, "b": Publication.NOT_SERVED},
        {"a": Publication.PUBLISHED, "b": UNKNOWN},
        {},
        UNKNOWN,
    )
    for found in lacking:
        broken("I2", write, Step.SWITCH, replace(facts, published_keys=found))
    back = WriteAuthority(AuthorityKind.SERVICE_ACCOUNT, SecretContents(OLD_FIRST, OLD))
    require(back, Step.RESTORE_OLD, replace(facts_at(Step.RESTORE_OLD), published_keys=UNKNOWN))


@pytest.mark.parametrize("presented", Presented)
@pytest.mark.parametrize(("write", "step"), [(SWITCH_CA, Step.SWITCH), (RESTORE_CA, Step.RESTORE_OLD)])
def test_i7_a_machine_that_is_made_now_accepts_every_server(write: Write, step: Step, presented: Presented) -> None:
    accepted: dict[Write, tuple[Presented, ...]] = {
        SWITCH_CA: (Presented.OLD_LINKED, Presented.NEW, Presented.NEW_LINKED),
        RESTORE_CA: (Presented.OLD, Presented.OLD_LINKED, Presented.NEW_LINKED),
    }
    facts = with_servers(facts_at(step), server(presented))
    if presented in accepted[write]:
        require(write, step, facts)
    else:
        broken("I7", write, step, facts)


@pytest.mark.parametrize(("write", "step"), [(SWITCH_CA, Step.SWITCH), (RESTORE_CA, Step.RESTORE_OLD)])
def test_i7_machines_join_before_the_secret_changes(write: Write, step: Step) -> None:
    broken("I7", write, step, with_machine(facts_at(step), joined=False))


@pytest.mark.parametrize(("only", "presented"), [(OLD_ONLY, Presented.NEW), (NEW_ONLY, Presented.OLD)])
def test_i7_clients_accept_every_server(only: Any, presented: Presented) -> None:
    facts = with_servers(facts_at(Step.PUBLISH_TRUST), server(presented))
    for write in (WriteKubeconfig(only, OLD), WriteClusterInfo(only), WritePins("pool", only)):
        broken("I7", write, Step.PUBLISH_TRUST, facts)
        broken("I7", write, Step.PUBLISH_TRUST, replace(facts, servers=UNKNOWN))
    for both in (OLD_FIRST, NEW_FIRST):
        for write in (WriteKubeconfig(both, OLD), WriteClusterInfo(both), WritePins("pool", both)):
            require(write, Step.PUBLISH_TRUST, facts)
            require(write, Step.PUBLISH_TRUST, replace(facts, servers=UNKNOWN))


DROPS = [DROP, WriteTrust(NEW_ONLY, NEW_FIRST, Link.NONE), WriteTrust(NEW_FIRST, NEW_ONLY, Link.NONE), ETCD_DROPS]


@pytest.mark.parametrize("write", DROPS)
def test_i3_the_old_ca_is_not_dropped_while_a_server_presents_it(write: Write) -> None:
    facts = facts_at(Step.DROP_OLD)
    for presented in (Presented.OLD, Presented.OLD_LINKED, Presented.FOREIGN):
        broken("I3", write, Step.DROP_OLD, with_servers(facts, server(presented)))
    broken("I3", write, Step.DROP_OLD, with_machine(facts, joined=False))
    broken("I2", write, Step.DROP_OLD, with_servers(facts, server(Presented.NEW), unseen={"b": "away"}))


WITHDRAWS = [WITHDRAW, WriteTrust(OLD_ONLY, OLD_FIRST, Link.NONE), WriteTrust(OLD_FIRST, OLD_ONLY, Link.NONE)]


@pytest.mark.parametrize("write", WITHDRAWS)
def test_i3_the_new_ca_is_not_withdrawn_while_it_is_used(write: Write) -> None:
    facts = facts_at(Step.WITHDRAW_TRUST)
    for presented in (Presented.NEW, Presented.NEW_LINKED):
        broken("I3", write, Step.WITHDRAW_TRUST, with_servers(facts, server(presented)))
    own = node()
    for used in (replace(own, client=HASH[NEW]), replace(own, serving=HASH[NEW])):
        broken("I3", write, Step.WITHDRAW_TRUST, replace(facts, nodes=(own, used)))


@pytest.mark.parametrize(("old", "new"), [(True, True), (False, False), (True, False)])
def test_i3_nothing_is_pruned_before_every_server_refuses_the_old_ca(old: bool, new: bool) -> None:
    facts = facts_at(Step.PRUNE)
    broken("I3", PruneAuthentication(), Step.PRUNE, with_servers(facts, server(Presented.NEW, old, new)))
    broken("I2", PruneAuthentication(), Step.PRUNE, replace(facts, servers=UNKNOWN))


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("role", Role)
def test_i6_keys_are_deleted_last(role: Role, step: Step) -> None:
    facts = with_secret(facts_at(step), CA, pair(NEW if role is OLD else OLD))
    last = Step.FORGET if role is OLD else Step.DISCARD_NEW
    if step is last:
        require(DeleteKey(ETCD, role), step, facts)
    else:
        broken("I6", DeleteKey(ETCD, role), step, facts)


@pytest.mark.parametrize(("role", "step"), [(OLD, Step.FORGET), (NEW, Step.DISCARD_NEW)])
def test_i6_the_authority_that_stays_is_in_place(role: Role, step: Step) -> None:
    facts = facts_at(step)
    for held in (pair(role), Absent()):
        broken("I6", DeleteKey(CA, role), step, with_secret(facts, CA, held))


# Steps


def test_i2_entering_a_step_that_signs_needs_every_servers_acceptance() -> None:
    for before, after in ((Step.SERVERS_TRUST, Step.SIGN_CLIENTS), (Step.SERVERS_PRESENT, Step.SIGN_SERVING)):
        records = record_at(after), record_at(before)
        require_step(*records, facts_at(before))
        if after is Step.SIGN_CLIENTS:
            refuses = with_servers(facts_at(before), server(Presented.OLD_LINKED, new=False))
            with pytest.raises(InvariantBroken, match=r"^I2"):
                require_step(*records, refuses)
    both = record_at(Step.SIGN_SERVING), record_at(Step.NEW_AUTHORITY)
    with pytest.raises(InvariantBroken, match=r"^I2"):
        require_step(*both, with_servers(facts_at(Step.SERVERS_PRESENT), server(Presented.NEW, new=False)))


def test_i3_entering_the_end_of_the_old_ca_needs_that_no_server_presents_it() -> None:
    records = record_at(Step.RETIRE_OLD), record_at(Step.SIGN_SERVING)
    require_step(*records, facts_at(Step.SIGN_SERVING))
    with pytest.raises(InvariantBroken, match=r"^I3"):
        require_step(*records, with_servers(facts_at(Step.SIGN_SERVING), server(Presented.OLD_LINKED)))


@pytest.mark.parametrize("step", FORWARD)
def test_i4_no_step_after_the_first_without_the_new_authorities(step: Step) -> None:
    records = record_at(step, made=False), record_at(Step.NEW_AUTHORITY)
    if step is Step.NEW_AUTHORITY:
        require_step(*records, facts_at(step))
    else:
        with pytest.raises(InvariantBroken, match=r"^I4"):
            require_step(*records, facts_at(step))


def test_steps_that_sign_nothing_new_need_nothing() -> None:
    nothing = replace(facts_at(Step.ACCEPT), servers=UNKNOWN)
    require_step(record_at(Step.ACCEPT), record_at(Step.NEW_AUTHORITY), nothing)
    over = record_at(Step.FORGET, phase=Phase.COMPLETED)
    require_step(over, record_at(Step.FORGET), nothing)
    require_step(record_at(Step.NODES_TRUST), record_at(Step.SIGN_CLIENTS), nothing)
    for step in BACK:
        require_step(record_at(step, made=False), record_at(Step.NEW_AUTHORITY), nothing)
