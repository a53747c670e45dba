"""The auto-approval of a workload cluster: what Enforce removes, verifies, only reports, and restores."""

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
    RemovalHarness,
    answer_yes_to,
    api,
    harness,
)

__all__ = ["api", "harness"]


# Enforce


async def test_enforce_removes_kubeadms_bindings_and_verifies_it(harness: RemovalHarness) -> None:
    before = harness.bindings()
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (True, "Removed")
    assert before.keys() - harness.bindings().keys() == {FIRST, RENEWAL}
    assert await harness.kept() == [FIRST, RENEWAL]
    assert harness.api.requests.matching(f"POST {REVIEWS}")
    harness.api.requests.clear()
    assert (await harness.reconcile()).met is True
    assert harness.writes() == []


async def test_leaving_enforce_restores_the_original_bindings(harness: RemovalHarness) -> None:
    harness.bind("mine", f"{BUILTIN}nodeclient", ("Group", "system:bootstrappers:a"), labels={"team": "c"})
    harness.api.patch("clusterrolebindings", FIRST, {"metadata": {"annotations": {"note": "d"}}})
    before = harness.bindings()
    assert (await harness.reconcile()).met is True
    assert "mine" not in harness.bindings()
    condition = await harness.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "Observing")
    assert harness.bindings() == before
    assert await harness.removed.saved(harness.owner.key) == NothingSaved()


async def test_what_was_granted_to_others_than_nodes_and_tokens_is_left_to_a_person(harness: RemovalHarness) -> None:
    harness.bind("mine", f"{BUILTIN}nodeclient", ("Group", "system:nodes"), ("ServiceAccount", "b"))
    await harness.reconcile()
    condition = await harness.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert "ClusterRoleBinding mine: it grants automatic approval to ServiceAccount" in condition.message
    assert "restore it by hand" in condition.message
    assert {FIRST, RENEWAL} < harness.bindings().keys()
    assert await harness.kept() == ["mine"]


async def test_renewal_waits_for_the_machines_that_need_it(harness: RemovalHarness) -> None:
    machines = tuple(f"machine-{number}" for number in range(20))
    condition = await harness.reconcile(unattested=machines)
    assert (condition.met, condition.reason) == (False, "WaitingForAttestation")
    assert "machine-0, machine-1," in condition.message
    assert "and 12 more" in condition.message
    assert FIRST not in harness.bindings()
    assert RENEWAL in harness.bindings()
    assert (await harness.reconcile()).met is True
    assert RENEWAL not in harness.bindings()


async def test_a_binding_for_both_subresources_is_kept_with_renewal(harness: RemovalHarness) -> None:
    """The reason is not ``WaitingForAttestation``: meanwhile the binding gives tokens first certificates."""
    harness.role("both", "certificatesigningrequests/nodeclient", "certificatesigningrequests/selfnodeclient")
    harness.bind("both", "both", ("Group", "system:nodes"), ("Group", "system:bootstrappers"))
    condition = await harness.reconcile(unattested=("machine-1",))
    assert "both" in harness.bindings()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding both of ClusterRole both grants first certificates and renewal" in condition.message
    assert "to Group system:nodes, Group system:bootstrappers, and is left while renewal is" in condition.message
    assert "until these Machines are attested: machine-1" in condition.message
    assert "still in effect" not in condition.message
    harness.api.faults.inject(f"DELETE {BINDINGS}/both", status=503)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending"), "it waits for nobody any more"
    assert (await harness.reconcile()).met is True
    assert "both" not in harness.bindings()


@pytest.mark.parametrize(
    ("subresources", "intent"),
    [(("selfnodeclient",), Intent.EXTEND), (("nodeclient", "selfnodeclient"), Intent.CUT_BACK)],
)
async def test_tokens_are_extended_while_only_renewal_is_kept(
    harness: RemovalHarness, subresources: tuple[str, ...], intent: Intent
) -> None:
    """A token that can get any node's certificate is worse when it lives for a day instead of minutes."""
    harness.role("left", *(f"certificatesigningrequests/{auto_approval}" for auto_approval in subresources))
    harness.bind("left", "left", ("Group", "system:nodes"), ("Group", "system:bootstrappers"))
    condition = await harness.reconcile(unattested=("machine-1",))
    assert "left" in harness.bindings()
    extending = policy(mode="Enforce", bootstrapTokens={"machinePools": "Extend"})
    assert intent_of(extending, cluster_view(), condition) is intent


async def test_removed_renewal_is_not_restored_for_unattested_machines(harness: RemovalHarness) -> None:
    await harness.reconcile()
    condition = await harness.reconcile(unattested=("machine-1",))
    assert condition.met is True
    assert "machine-1" in condition.message
    assert RENEWAL not in harness.bindings()


async def test_bindings_that_kubeadm_upgrade_creates_again_are_removed(harness: RemovalHarness) -> None:
    before = harness.bindings()
    await harness.reconcile()
    harness.api.seed_kubeadm()
    assert FIRST in harness.bindings()
    assert (await harness.reconcile()).met is True
    assert FIRST not in harness.bindings()
    await harness.reconcile("Observe")
    assert harness.bindings() == before


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
async def test_a_binding_under_another_name(
    harness: RemovalHarness, auto_approval: str, subjects: list[tuple[str, str]]
) -> None:
    harness.role("innocent", f"certificatesigningrequests/{auto_approval}", verbs=("*",))
    harness.bind("second", "innocent", *subjects)
    assert (await harness.reconcile()).met is True
    assert "second" not in harness.bindings()
    assert "second" in await harness.kept()


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
async def test_a_binding_that_grants_more_is_reported_and_kept(
    harness: RemovalHarness, role: dict[str, Any], subject: tuple[str, str]
) -> None:
    harness.role("wide", *role["resources"], **{k: v for k, v in role.items() if k != "resources"})
    harness.bind("other", "wide", subject)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding other of ClusterRole wide" in condition.message
    assert subject[1] in condition.message
    assert "other" in harness.bindings()
    assert await harness.kept() == [FIRST, RENEWAL]


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
async def test_an_administrator_needs_no_auto_approval(
    harness: RemovalHarness, subject: tuple[str, str], is_open: bool
) -> None:
    """But a joining identity that may do everything has the widest auto-approval of all."""
    harness.bind("administrators", "cluster-admin", subject)
    condition = await harness.reconcile()
    assert condition.met is not is_open
    assert "administrators" in harness.bindings()


async def test_a_binding_whose_name_cannot_be_addressed(harness: RemovalHarness) -> None:
    harness.bind("a\nb", f"{BUILTIN}nodeclient", ("Group", "system:nodes"))
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByOtherBinding")
    assert "ClusterRoleBinding a\\nb" in condition.message


async def test_a_deleted_role_is_restored_at_the_next_start(harness: RemovalHarness) -> None:
    harness.api.delete("clusterroles", f"{BUILTIN}nodeclient")
    assert (await harness.reconcile()).met is True
    assert FIRST not in harness.bindings()


async def test_groups_of_tokens_in_the_cluster_are_reviewed(harness: RemovalHarness) -> None:
    harness.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:edge", *call)
    assert (await harness.reconcile()).met is True
    harness.token("system:bootstrappers:edge,system:bootstrappers:other")
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByAuthorizer")
    assert "system:bootstrappers:edge" in condition.message
    assert "by the\\nwebhook" in condition.message
    assert "0123456789abcdef" not in condition.message


async def test_groups_of_tokens_observed_in_requests_are_reviewed(harness: RemovalHarness) -> None:
    harness.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:edge", *call)
    seen = frozenset({frozenset({"system:bootstrappers", "system:bootstrappers:edge", "system:authenticated"})})
    assert (await harness.reconcile(tokens=seen)).reason == "GrantedByAuthorizer"


async def test_a_grant_without_any_binding_is_found(harness: RemovalHarness) -> None:
    harness.client.intercept = lambda *call: answer_yes_to("system:nodes", *call)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "GrantedByAuthorizer")
    assert "Group system:nodes" in condition.message


# Hands off


async def test_observe_changes_nothing(harness: RemovalHarness) -> None:
    condition = await harness.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "Observing")
    assert harness.writes() == []
    assert FIRST in harness.bindings()


@pytest.mark.parametrize("field", ["paused", "deleting"])
async def test_a_paused_cluster_is_not_changed(harness: RemovalHarness, field: str) -> None:
    condition = await harness.reconcile(cluster=cluster_view(**{field: True}))
    assert (condition.met, condition.reason) == (False, "Paused")
    assert harness.writes() == []
    await harness.reconcile()
    harness.api.requests.clear()
    assert (await harness.reconcile(cluster=cluster_view(**{field: True}))).met is True
    assert (await harness.reconcile("Observe", cluster=cluster_view(**{field: True}))).reason == "Observing"
    assert harness.writes() == []
    assert await harness.kept() == [FIRST, RENEWAL]
