"""Tenants choose, by policies and Machines, only among what the operator allows, and take nothing from others."""

from __future__ import annotations

import base64
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, Final

import pytest
from keyed_mac.keys import derive_machine_key

from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP, Purpose, SignerName
from signer.configuration import OperatorAttestor
from signer.controller.run import ControllerOptions
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_readable, keyed_mac, node_of, pending, provider_id

pytestmark = pytest.mark.slow

TENANTS_KEY: Final = bytes(reversed(range(32)))
VICTIM: Final = "victim"
FORBIDDEN: Final = "tests.support.forbidden_attestor"


def allowed_in(*namespaces: str) -> dict[str, OperatorAttestor]:
    return {"keyed-mac": replace(keyed_mac()["keyed-mac"], namespaces=frozenset(namespaces))}


def settings(**given: Any) -> dict[str, Any]:
    return {"authorizedAttestors": [{"name": "keyed-mac", "settings": given}]}


def set_policy(harness: Harness, cluster: WorldCluster, spec: dict[str, Any]) -> None:
    """Write the policy's spec as the tenant may."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": spec})


def nothing_is_recorded(harness: Harness, *clusters: WorldCluster) -> bool:
    return harness.reservations() == [] and not any(harness.records(cluster) for cluster in clusters)


# Policies


def test_an_attestor_of_other_namespaces_cannot_be_authorized(harness: Harness) -> None:
    inside, outside = harness.cluster("inside", namespace="team-a"), harness.cluster("outside", namespace="team-b")
    harness.run(attestors=allowed_in("team-a"))
    shown = harness.wait_for_condition(outside, "AttestorsConfigured", "False")
    assert shown["reason"] == "AttestorNotAllowed"
    assert harness.wait_for_condition(outside, "Ready", "False")["reason"] == "AttestorNotAllowed"
    outside.add_machine("m-out", provider_id=provider_id("m-out"))
    outside.submit_with_token(node_of(outside, "m-out").client_request("m-out-1"))
    denied = outside.wait_until_decided("m-out-1")
    assert (denied.condition, denied.reason) == ("Denied", "AttestorNotAuthorized")
    assert_readable(denied.message)
    assert nothing_is_recorded(harness, inside, outside)
    harness.wait_for_condition(inside, "Ready", "True")
    harness.join(inside)


def test_a_settings_name_that_would_not_fit_does_not_hide_the_conditions(harness: Harness) -> None:
    """An attestor repeats it, and no API server keeps a message of more than 32768 characters."""
    cluster = harness.cluster()
    harness.run(attestors={**keyed_mac(), "aws": OperatorAttestor()})
    harness.wait_for_condition(cluster, "Ready", "True")
    set_policy(
        harness, cluster, {"authorizedAttestors": [{"name": "aws", "settings": {"\u001b[31m" + "x" * 40_000: 1}}]}
    )
    shown = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert shown["reason"] == "AttestorUnavailable"
    assert_readable(shown["message"])
    assert "\u001b" not in shown["message"]


def test_a_policys_settings_do_not_become_the_operators(harness: Harness) -> None:
    """With a master key of the tenant's own, the tenant could vouch for any machine."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    set_policy(harness, cluster, settings(masterKey=base64.b64encode(TENANTS_KEY).decode("ascii")))
    harness.run()
    shown = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert shown["reason"] == "AttestorUnavailable"
    assert_readable(shown["message"], base64.b64encode(TENANTS_KEY).decode("ascii"))
    forger = node_of(cluster, "m").but(settings=_settings_under(TENANTS_KEY, "m"))
    cluster.submit_with_token(forger.client_request("forged"))
    harness.wait_for_event("AttestorUnavailable", "m")
    pending(cluster, "forged")
    assert nothing_is_recorded(harness, cluster)


def test_settings_of_one_namespace_are_not_anothers(harness: Harness) -> None:
    """Under the tenant's own key, which the operator accepts in its namespace alone, no other machine joins."""
    inside, outside = harness.cluster("inside", namespace="team-a"), harness.cluster("outside", namespace="team-b")
    of_team_a = {"team-a": {"masterKey": base64.b64encode(TENANTS_KEY).decode("ascii")}}
    harness.run(attestors={"keyed-mac": replace(keyed_mac()["keyed-mac"], settings_by_namespace=of_team_a)})
    for cluster in (inside, outside):
        cluster.add_machine("m", provider_id=provider_id(f"m-{cluster.name}"))
        node = node_of(cluster, f"m-{cluster.name}").but(
            node_name="m", settings=_settings_under(TENANTS_KEY, f"m-{cluster.name}")
        )
        cluster.submit_with_token(node.client_request("asks"))
    assert inside.wait_until_decided("asks").condition == "Approved"
    assert outside.wait_until_decided("asks").condition == "Denied"
    harness.join(outside)


@pytest.mark.parametrize(
    "spec",
    [
        settings(endpoint="https://sts.evil.example"),
        settings(roleARN="arn:aws:iam::1:role/x"),
        settings(insecure=True),
        settings(endorsementAuthorities="/var/run/secrets"),
    ],
)
def test_settings_that_the_attestor_refuses_from_a_policy(harness: Harness, spec: dict[str, Any]) -> None:
    cluster = harness.cluster()
    set_policy(harness, cluster, spec)
    harness.run()
    assert harness.wait_for_condition(cluster, "AttestorsConfigured", "False")["reason"] == "AttestorUnavailable"


@pytest.mark.parametrize("is_named", [False, True], ids=["not named", "named for others"])
def test_an_attestor_that_is_not_allowed_is_not_loaded(
    harness: Harness, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing it runs its code: never because a policy and a CSR name it. What the operator names is imported at the
    start, to check its settings, and decides nothing for those that may not use it.
    """
    monkeypatch.delitem(sys.modules, FORBIDDEN, raising=False)
    named = {"forbidden": OperatorAttestor(namespaces=frozenset({"team-a"}))} if is_named else {}
    entry_points = [
        EntryPoint("keyed-mac", "keyed_mac:plugin", ENTRY_POINT_GROUP),
        EntryPoint("forbidden", f"{FORBIDDEN}:plugin", ENTRY_POINT_GROUP),
    ]
    cluster = harness.cluster(attestors=("keyed-mac", "forbidden"), namespace="team-b")
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(ControllerOptions(registry=Registry(entry_points)), attestors={**keyed_mac(), **named})
    harness.join(cluster)
    request = node_of(cluster, "m").client_request("asks")
    request["spec"]["signerName"] = str(SignerName(Purpose.CLIENT, "forbidden"))
    cluster.submit_with_token(request)
    denied = cluster.wait_until_decided("asks")
    assert (denied.condition, denied.reason) == ("Denied", "AttestorNotAuthorized")
    harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert (FORBIDDEN in sys.modules) is is_named


def test_insecure_needs_the_operator_whatever_the_policy(harness: Harness) -> None:
    cluster = harness.cluster(attestors=("insecure",), namespace="team-b")
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"team-a"}))
    node = SimulatedNode("m", provider_id("m"), cluster.ca_cert_hash, "insecure")
    cluster.submit_with_token(node.client_request("asserted"))
    denied = cluster.wait_until_decided("asserted")
    assert (denied.condition, denied.reason) == ("Denied", "AttestorNotAuthorized")
    assert nothing_is_recorded(harness, cluster)


def test_an_attestor_that_is_not_installed_has_no_signer(harness: Harness) -> None:
    cluster = harness.cluster(attestors=("unheard-of", "keyed-mac"))
    harness.run()
    shown = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert "unheard-of" in shown["message"]
    harness.join(cluster)


def test_a_policy_says_nothing_of_another_namespaces_cluster(harness: Harness) -> None:
    """The tenant of one namespace writes a policy of the name that another namespace's Cluster has."""
    victim = harness.cluster("prod", namespace="team-a")
    set_policy(harness, victim, {"nodeNames": {"sources": ["MachineName"]}})
    harness.management.ensure_namespace("team-b")
    harness.management.client.create(
        NODE_ATTESTATION_POLICIES.collection("team-b"),
        {
            "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
            "kind": "NodeAttestationPolicy",
            "metadata": {"name": "prod", "namespace": "team-b"},
            "spec": {"authorizedAttestors": [{"name": "insecure"}]},
        },
    )
    victim.add_machine("m", provider_id=provider_id("m"))
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"team-b"}))
    node = SimulatedNode("m", provider_id("m"), victim.ca_cert_hash, "insecure")
    victim.submit_with_token(node.client_request("asserted"))
    assert victim.wait_until_decided("asserted").reason == "AttestorNotAuthorized"
    harness.join(victim)


# Machines


def _settings_under(master_key: bytes, machine: str) -> dict[str, str]:
    key = derive_machine_key(master_key, provider_id(machine))
    return {"provider-id": provider_id(machine), "machine-key": base64.b64encode(key).decode("ascii")}


def test_a_machine_with_a_foreign_provider_id_reserves_nothing(harness: Harness) -> None:
    """The tenant knows the victim's provider ID, and neither its key nor its hardware."""
    tenant = harness.cluster("tenant", namespace="team-b")
    tenant.add_machine("claimed", provider_id=provider_id(VICTIM), addresses=[("Hostname", VICTIM)])
    owner = harness.cluster("owner", namespace="team-a")
    harness.run()
    harness.wait_for_condition(tenant, "Ready", "True")

    forger = SimulatedNode(
        VICTIM, provider_id(VICTIM), tenant.ca_cert_hash, "keyed-mac", _settings_under(TENANTS_KEY, VICTIM)
    )
    tenant.submit_with_token(forger.client_request("forged"))
    assert tenant.wait_until_decided("forged").reason == "BindingMismatch"
    assert nothing_is_recorded(harness, tenant, owner)

    harness.join(owner, VICTIM)
    (record,) = harness.records(owner)
    assert record["spec"]["machineRef"]["name"] == VICTIM
    reserved = {item["spec"]["machineRef"]["namespace"] for item in harness.reservations()}
    assert reserved == {"team-a"}
    assert harness.records(tenant) == []


def test_evidence_seen_elsewhere_reserves_nothing_either(harness: Harness) -> None:
    """Every bootstrap token of the owner's cluster can read evidence; it is bound to that cluster and that key."""
    tenant, owner = harness.cluster("tenant", namespace="team-b"), harness.cluster("owner", namespace="team-a")
    tenant.add_machine("claimed", provider_id=provider_id(VICTIM), addresses=[("Hostname", VICTIM)])
    harness.run()
    honest = node_of(owner, VICTIM)
    copied = honest.but(ca_cert_hash=tenant.ca_cert_hash).client_request("copied", evidence_of=honest.evidence())
    tenant.submit_with_token(copied)
    assert tenant.wait_until_decided("copied").reason == "ClusterMismatch"
    assert nothing_is_recorded(harness, tenant, owner)
    harness.join(owner, VICTIM)


def test_a_machine_that_names_another_namespaces_cluster_is_not_one_of_its_machines(harness: Harness) -> None:
    owner = harness.cluster("prod", namespace="team-a")
    harness.management.ensure_namespace("team-b")
    replace(owner, namespace="team-b").add_machine("planted", provider_id=provider_id(VICTIM))
    harness.run()
    owner.submit_with_token(node_of(owner, VICTIM, "planted").client_request("planted-1"))
    assert provider_id(VICTIM) in harness.wait_for_event("MachineNotFound", "prod", "Cluster", "team-a")
    pending(owner, "planted-1")
    assert nothing_is_recorded(harness, owner)
    harness.join(owner, VICTIM)
