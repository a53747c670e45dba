"""Leaving Enforce restores exactly the bindings that were there, on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from signer.kube.resources import CLUSTER_ROLE_BINDINGS, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES
from tests.e2e.auto_approval_fixtures import (
    KUBEADM_BINDINGS,
    NAMESPACE,
    THIEF,
    VICTIM,
    AutoApprovalWorld,
    builtin_client_request,
)
from tests.support import kubeadm
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

SECOND_BINDING: Final = "of-the-operators-own"


@pytest.fixture(scope="module")
def before(auto_approval_world: AutoApprovalWorld) -> dict[str, Any]:
    """Every binding before Enforce: kubeadm's with what an operator added to them, and one under another name."""
    client = auto_approval_world.management.client
    second_subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:bootstrap:abcdef"}
    for name in KUBEADM_BINDINGS:
        found = client.get(CLUSTER_ROLE_BINDINGS.object(name))
        found["metadata"]["labels"] = {"example.com/team": "platform", "empty": ""}
        found["metadata"]["annotations"] = {"example.com/why": "because of\nmany lines, “quoted”"}
        found["subjects"].append(second_subject)
        client.replace(CLUSTER_ROLE_BINDINGS.object(name), found)
    second = kubeadm.cluster_role_binding(SECOND_BINDING, kubeadm.NODECLIENT, "system:bootstrappers")
    client.create(CLUSTER_ROLE_BINDINGS.collection(), second)
    return auto_approval_world.bindings()


@pytest.fixture
def removed(auto_approval_world: AutoApprovalWorld, before: dict[str, Any]) -> AutoApprovalWorld:
    """In Enforce, with every Machine attested; the controller was stopped then."""
    world = auto_approval_world
    assert world.bindings() == before
    with world.controller():
        for machine in (VICTIM, THIEF):
            world.join(machine)
        world.set_mode("Enforce")
        world.wait_for_auto_approval_removed()
    left = set(world.bindings())
    assert set(before) - left == {*KUBEADM_BINDINGS, SECOND_BINDING}
    assert left < set(before)
    return world


def leave_for_observe(world: AutoApprovalWorld) -> None:
    world.set_mode("Observe")


def delete_the_policy(world: AutoApprovalWorld) -> None:
    world.management.client.delete(NODE_ATTESTATION_POLICIES.object(world.cluster.name, NAMESPACE))


@pytest.mark.parametrize("stopped", [False, True], ids=["while the controller runs", "while no controller runs"])
@pytest.mark.parametrize("leave", [leave_for_observe, delete_the_policy])
def test_exactly_what_was_there_is_given_back(
    removed: AutoApprovalWorld, before: dict[str, Any], leave: Callable[[AutoApprovalWorld], None], stopped: bool
) -> None:
    if stopped:
        leave(removed)
    with removed.controller():
        if not stopped:
            removed.wait_for_auto_approval_removed()
            leave(removed)
        wait_until(lambda: set(removed.bindings()) == set(before), "every binding is there again")
        assert removed.bindings() == before
        if leave is delete_the_policy:
            removed.cluster.authorize("keyed-mac")
        removed.wait_for_auto_approval_removed("False", "Observing")
        # What is restored works: the built-in signer serves the token again.
        request = builtin_client_request(removed.name("after"), "n1")
        # An API server hears of a deleted admission policy a moment later.
        wait_until(lambda: removed.post_unless_forbidden(request, removed.as_token_holder()), "it is not refused")
        verdict = removed.cluster.wait_until_decided(request["metadata"]["name"])
        assert (verdict.condition, verdict.reason) == ("Approved", "AutoApproved"), verdict


@pytest.fixture
def older_machine(auto_approval_world: AutoApprovalWorld) -> Iterator[str]:
    """A Machine whose node was there before attestation."""
    auto_approval_world.cluster.add_machine("older", provider_id="test:///older")
    yield "older"
    auto_approval_world.management.client.delete(MACHINES_V1BETA2.object("older", NAMESPACE))


def test_renewal_stays_until_every_machine_is_attested(
    auto_approval_world: AutoApprovalWorld, before: dict[str, Any], older_machine: str
) -> None:
    """The tokens' grants go at once; those by which older nodes renew go when all are attested."""
    world, (tokens, rotation) = auto_approval_world, KUBEADM_BINDINGS
    with world.controller():
        for machine in (VICTIM, THIEF):
            world.join(machine)
        world.set_mode("Enforce")
        said = world.wait_for_auto_approval_removed("False", "WaitingForAttestation")
        assert older_machine in said["message"]
        assert rotation in world.bindings()
        assert not {tokens, SECOND_BINDING} & set(world.bindings())
        world.join(older_machine)
        world.wait_for_auto_approval_removed()
        assert rotation not in world.bindings()
        world.set_mode("Observe")
        wait_until(lambda: set(world.bindings()) == set(before), "every binding is there again")
    assert world.bindings() == before
