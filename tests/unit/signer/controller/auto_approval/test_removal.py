"""The auto-approval of a workload cluster: what Enforce removes, what proves it, what is only reported, what comes
back."""

from __future__ import annotations

from typing import Any

import pytest

from signer.controller.auto_approval.pool_tokens import Intent, intent_of
from signer.store.removed_bindings import NothingSaved
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.controller.auto_approval.removal_fixtures import (
    BINDINGS,
    BUILTIN,
    FIRST,
    RENEWAL,
    REVIEWS,
    House,
    answer_yes_to,
    api,
    house,
)

__all__ = ["api", "house"]


# Enforce


async def test_enforce_removes_kubeadms_bindings_and_proves_it(house: House) -> None:
    before = house.bindings()
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (True, "Removed")
    assert before.keys() - house.bindings().keys() == {FIRST, RENEWAL}
    assert await house.kept() == [FIRST, RENEWAL]
    assert house.api.requests.matching(f"POST {REVIEWS}")
    house.api.requests.clear()
    assert (await house.reconcile()).met is True
    assert house.writes() == []


async def test_leaving_enforce_gives_back_exactly_what_was_there(house: House) -> None:
    house.bind("mine", f"{BUILTIN}nodeclient", ("Group", "a"), ("ServiceAccount", "b"), labels={"team": "c"})
    house.api.patch("clusterrolebindings", FIRST, {"metadata": {"annotations": {"note": "d"}}})
    before = house.bindings()
    assert (await house.reconcile()).met is True
    assert "mine" not in house.bindings()
    condition = await house.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "Observing")
    assert house.bindings() == before
    assert await house.removed.kept(house.owner.key) == NothingSaved()


async def test_renewal_waits_for_the_machines_that_need_it(house: House) -> None:
    machines = tuple(f"machine-{number}" for number in range(20))
    condition = await house.reconcile(unattested=machines)
    assert (condition.met, condition.reason) == (False, "WaitingForAttestation")
    assert "machine-0, machine-1," in condition.message
    assert "and 12 more" in condition.message
    assert FIRST not in house.bindings()
    assert RENEWAL in house.bindings()
    assert (await house.reconcile()).met is True
    assert RENEWAL not in house.bindings()


async def test_one_role_for_both_doors_waits_for_both(house: House) -> None:
    """And is not said to wait for attestation alone: by it tokens get first certificates all the while."""
    house.role("both", "certificatesigningrequests/nodeclient", "certificatesigningrequests/selfnodeclient")
    house.bind("both", "both", ("Group", "system:nodes"), ("Group", "system:bootstrappers"))
    condition = await house.reconcile(unattested=("machine-1",))
    assert "both" in house.bindings()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding both of ClusterRole both grants first certificates and renewal" in condition.message
    assert "to Group system:nodes, Group system:bootstrappers, and is left while renewal is" in condition.message
    assert "until these Machines are attested: machine-1" in condition.message
    assert "still in effect" not in condition.message
    house.api.faults.inject(f"DELETE {BINDINGS}/both", status=503)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending"), "it waits for nobody any more"
    assert (await house.reconcile()).met is True
    assert "both" not in house.bindings()


@pytest.mark.parametrize(
    ("subresources", "intent"),
    [(("selfnodeclient",), Intent.EXTEND), (("nodeclient", "selfnodeclient"), Intent.CUT_BACK)],
)
async def test_tokens_live_long_where_renewal_alone_is_left_open(
    house: House, subresources: tuple[str, ...], intent: Intent
) -> None:
    """A token that lives for a day and gets any node's certificate is worse than one of minutes that does."""
    house.role("left", *(f"certificatesigningrequests/{auto_approval}" for auto_approval in subresources))
    house.bind("left", "left", ("Group", "system:nodes"), ("Group", "system:bootstrappers"))
    condition = await house.reconcile(unattested=("machine-1",))
    assert "left" in house.bindings()
    extending = policy(mode="Enforce", bootstrapTokens={"machinePools": "Extend"})
    assert intent_of(extending, cluster_view(), condition) is intent


async def test_renewal_that_is_shut_already_is_not_opened_for_those_who_need_it(house: House) -> None:
    await house.reconcile()
    condition = await house.reconcile(unattested=("machine-1",))
    assert condition.met is True
    assert "machine-1" in condition.message
    assert RENEWAL not in house.bindings()


async def test_what_kubeadm_upgrade_brings_back_is_removed_again(house: House) -> None:
    before = house.bindings()
    await house.reconcile()
    house.api.seed_kubeadm()
    assert FIRST in house.bindings()
    assert (await house.reconcile()).met is True
    assert FIRST not in house.bindings()
    await house.reconcile("Observe")
    assert house.bindings() == before


# Attacks


@pytest.mark.parametrize(
    "subjects",
    [
        [("Group", "system:bootstrappers")],
        [("Group", "system:authenticated")],
        [("Group", "system:unauthenticated")],
        [("User", "system:bootstrap:abcdef")],
        [("User", "nobody"), ("Group", "system:bootstrappers:kubeadm:default-node-token")],
        [("ServiceAccount", "robot")],
    ],
)
@pytest.mark.parametrize("auto_approval", ["nodeclient", "selfnodeclient"])
async def test_a_binding_under_another_name(house: House, auto_approval: str, subjects: list[tuple[str, str]]) -> None:
    house.role("innocent", f"certificatesigningrequests/{auto_approval}", verbs=("*",))
    house.bind("second", "innocent", *subjects)
    assert (await house.reconcile()).met is True
    assert "second" not in house.bindings()
    assert "second" in await house.kept()


@pytest.mark.parametrize(
    "subject",
    [
        ("Group", "system:authenticated"),
        ("Group", "system:bootstrappers:edge"),
        ("User", "system:bootstrap:abcdef"),
        ("User", "alice"),
        ("ServiceAccount", "robot"),
    ],
)
@pytest.mark.parametrize(
    "role",
    [
        {"resources": ("*",)},
        {"resources": ("*/nodeclient",)},
        {"resources": ("certificatesigningrequests/nodeclient", "certificatesigningrequests")},
        {"resources": ("certificatesigningrequests/nodeclient",), "aggregationRule": {}},
    ],
)
async def test_what_grants_more_is_named_and_left(house: House, role: dict[str, Any], subject: tuple[str, str]) -> None:
    house.role("wide", *role["resources"], **{k: v for k, v in role.items() if k != "resources"})
    house.bind("other", "wide", subject)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding other of ClusterRole wide" in condition.message
    assert subject[1] in condition.message
    assert "other" in house.bindings()
    assert await house.kept() == [FIRST, RENEWAL]


@pytest.mark.parametrize(
    ("subject", "is_open"),
    [
        (("ServiceAccount", "robot"), False),
        (("User", "alice"), False),
        (("Group", "platform-team"), False),
        (("User", "system:bootstrap:abcdef"), True),
        (("User", "system:node:one"), True),
        (("Group", "system:bootstrappers"), True),
        (("Group", "system:nodes"), True),
        (("Group", "system:authenticated"), True),
    ],
)
async def test_an_administrator_needs_no_auto_approval(house: House, subject: tuple[str, str], is_open: bool) -> None:
    """But whoever joins, and may do everything, is the widest auto-approval of all."""
    house.bind("administrators", "cluster-admin", subject)
    condition = await house.reconcile()
    assert condition.met is not is_open
    assert "administrators" in house.bindings()


async def test_a_binding_whose_name_cannot_be_addressed(house: House) -> None:
    house.bind("a\nb", f"{BUILTIN}nodeclient", ("Group", "system:nodes"))
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding a\\nb" in condition.message


async def test_a_role_that_was_deleted_is_back_with_the_next_start(house: House) -> None:
    house.api.delete("clusterroles", f"{BUILTIN}nodeclient")
    assert (await house.reconcile()).met is True
    assert FIRST not in house.bindings()


async def test_groups_of_tokens_in_the_cluster_are_asked_about(house: House) -> None:
    house.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:edge", *call)
    assert (await house.reconcile()).met is True
    house.token("system:bootstrappers:edge,system:bootstrappers:other")
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByAuthorizer")
    assert "system:bootstrappers:edge" in condition.message
    assert "by the\\nwebhook" in condition.message
    assert "0123456789abcdef" not in condition.message


async def test_groups_of_tokens_that_were_seen_in_requests_are_asked_about(house: House) -> None:
    house.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:edge", *call)
    seen = frozenset({frozenset({"system:bootstrappers", "system:bootstrappers:edge", "system:authenticated"})})
    assert (await house.reconcile(tokens=seen)).reason == "GrantedByAuthorizer"


async def test_a_grant_without_any_binding_is_found(house: House) -> None:
    house.client.intercept = lambda *call: answer_yes_to("system:nodes", *call)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByAuthorizer")
    assert "Group system:nodes" in condition.message


# Hands off


async def test_observe_touches_nothing(house: House) -> None:
    condition = await house.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "Observing")
    assert house.writes() == []
    assert FIRST in house.bindings()


@pytest.mark.parametrize("field", ["paused", "deleting"])
async def test_a_paused_cluster_is_not_touched(house: House, field: str) -> None:
    condition = await house.reconcile(cluster=cluster_view(**{field: True}))
    assert (condition.met, condition.reason) == (False, "Paused")
    assert house.writes() == []
    await house.reconcile()
    house.api.requests.clear()
    assert (await house.reconcile(cluster=cluster_view(**{field: True}))).met is True
    assert (await house.reconcile("Observe", cluster=cluster_view(**{field: True}))).reason == "Observing"
    assert house.writes() == []
    assert await house.kept() == [FIRST, RENEWAL]
