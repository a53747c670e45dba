"""What a decision looks at of a tenant's thousands of Machines, and again before it counts; all else of admission is
tested with an API server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from attestors.contract import MachineMatch, Security
from signer.audit.decision_inputs import DecisionInputs
from signer.decision.attestation import Claim
from signer.decision.cached_facts import ServingFactsSource
from signer.decision.reserve_and_journal import ReserveAndJournal
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.bootstrap_token import TokenAsks, TokenOwner, TracedTo, Untraceable
from signer.model.cluster import ClusterKey, MachineView
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, nothing_reported
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey
from signer.model.seal import ControllerKeys
from signer.model.service_networks import ServicesReport
from signer.model.serving_networks import NO_NETWORKS
from signer.rules.machine import MachineFacts, MachineGone
from signer.rules.shape import node_name_of
from signer.store.caches import MOST_MATCHING, Caches
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.records import RecordChanged
from tests.unit.signer.builders import (
    TPM,
    attested_identity,
    machine_facts,
    machine_view,
    policy,
    record,
    signing_request,
)
from tests.unit.signer.outcomes import deferred

KEY = ClusterKey("team-a", "prod")


def machine(name: str, *, node_ref: str = "", deleting: bool = False) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": KEY.namespace,
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            **({"deletionTimestamp": "2026-03-01T12:00:00Z"} if deleting else {}),
        },
        "spec": {"clusterName": KEY.name, "providerID": "test:///one"},
        "status": {
            "addresses": [{"type": "Hostname", "address": "node"}],
            **({"nodeRef": {"name": node_ref}} if node_ref else {}),
        },
    }


def test_of_thousands_a_few_say_as_much_as_all() -> None:
    """Each would be in the line of the audit log, which is bounded, and cost all clusters time."""
    caches = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed()), own_namespace="here", floors=NO_FLOORS
    )
    going = [machine(f"a{number}", deleting=True) for number in range(20)]
    called_so = [machine(f"m{number}") for number in range(20)]
    for manifest in (*going, *called_so, machine("z", node_ref="node")):
        caches.machines.applied(manifest)
    assert len(caches.matching(KEY, "test:///one")) == MOST_MATCHING
    reserve_and_journal = cast("ReserveAndJournal", SimpleNamespace(_caches=caches, _key=KEY))
    others = ReserveAndJournal._others_called(reserve_and_journal, machine_view(name="m0", cluster=KEY), "node", False)
    assert [other.name for other in others[:2]] == ["z", "a0"], "whose node it is, and then the others"
    assert len(others) == 8
    assert any(other.deleting for other in others), "its node may still drain"


def test_a_derived_name_is_also_of_the_machines_with_its_host() -> None:
    caches = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed()), own_namespace="here", floors=NO_FLOORS
    )
    for manifest in (machine("m1"), machine("m2"), machine("node.lab.example")):
        caches.machines.applied(manifest)
    reserve_and_journal = cast("ReserveAndJournal", SimpleNamespace(_caches=caches, _key=KEY))
    for derived, names in ((True, ["m2", "node.lab.example"]), (False, [])):
        own = machine_view(name="m1", cluster=KEY)
        others = ReserveAndJournal._others_called(reserve_and_journal, own, "node.corp.example", derived)
        assert [other.name for other in others] == names


def test_a_derived_name_is_also_of_the_instances_with_its_host() -> None:
    """A MachinePool's instance may have the name by source ProviderID and the same domain."""
    version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
    caches = Caches(version, own_namespace="here", floors=NO_FLOORS)
    metadata = {"namespace": KEY.namespace, "name": "pool", "uid": "pool", "resourceVersion": "1"}
    spec = {"clusterName": KEY.name, "providerIDList": ["docker:////node"]}
    caches.machine_pools.applied({"metadata": metadata, "spec": spec})
    own = machine_view(name="m1", cluster=KEY)
    reserve_and_journal = cast("ReserveAndJournal", SimpleNamespace(_caches=caches, _key=KEY))
    for derived, names in ((True, ["docker:////node"]), (False, [])):
        others = ReserveAndJournal._others_called(reserve_and_journal, own, "node.corp.example", derived)
        assert [other.provider_id for other in others] == names
    request = cast("Any", SimpleNamespace(dns_names=("Node.corp.example", "other.corp.example"), ip_addresses=()))
    facts = ServingFactsSource(caches, NO_NETWORKS, ServicesReport(), nothing_reported(), DEFAULT_RESERVED_NAMES).facts(
        policy(nodeNames={"domains": ["corp.example"]}), own, request
    )
    assert facts.names_of_shared_hosts == {"node.corp.example"}


class Harness:
    """What a decision is made by, as it is at this moment."""

    def __init__(self) -> None:
        self.machine: Any = machine_view()
        self.recorded: tuple[AttestedNode, ...] = ()
        self.holders: tuple[str, ...] = ()
        self.is_reserved = True
        self.is_gone = False
        self.is_changed = False
        caches = SimpleNamespace(
            machine=lambda key: self.machine,
            records_of=lambda machine: self.recorded,
            holders=lambda provider_id, machine: self.holders,
        )
        live_reads = SimpleNamespace(is_gone=self._is_gone)
        reservations = SimpleNamespace(cached=lambda pair: self.is_reserved, live_reads=live_reads)
        snapshots = SimpleNamespace(require_unchanged=self._require_unchanged)
        records = SimpleNamespace(require_still_listed=lambda key: None)
        self.reserve_and_journal = ReserveAndJournal(
            KEY,
            *cast("Any", (snapshots, caches, reservations, records, None)),
            serving=ServingFactsSource(
                cast("Any", caches), NO_NETWORKS, ServicesReport(), nothing_reported(), DEFAULT_RESERVED_NAMES
            ),
            host_certificates=cast("Any", None),
        )

    async def _is_gone(self, machine: MachineKey) -> bool:
        return self.is_gone

    def _require_unchanged(self, snapshot: object) -> None:
        if self.is_changed:
            raise RecordChanged("the Cluster")

    def look_again(self, facts: MachineFacts) -> None:
        self.reserve_and_journal._require_still(cast("Any", None), facts)


INSECURE = replace(attested_identity(), security=Security.INSECURE)


def _take_pair(harness: Harness) -> None:
    harness.is_reserved = False


def _change_machine(harness: Harness) -> None:
    harness.machine = replace(harness.machine, deleting=True)


def _lose_machine(harness: Harness) -> None:
    harness.machine = MachineGone()


def _change_cluster(harness: Harness) -> None:
    harness.is_changed = True


@pytest.mark.parametrize("identity", [attested_identity(), INSECURE], ids=["secure", "insecure"])
@pytest.mark.parametrize("change", [_change_machine, _lose_machine, _change_cluster])
def test_what_has_changed_is_judged_again(change: Callable[[Harness], None], identity: Any) -> None:
    harness, facts = Harness(), machine_facts(identity=identity)
    harness.look_again(facts)
    change(harness)
    with pytest.raises(RecordChanged):
        harness.look_again(facts)


def test_who_was_displaced_is_judged_again() -> None:
    """A secure attestor's pair is never displaced, and the cache may be behind what was just reserved."""
    harness = Harness()
    _take_pair(harness)
    harness.look_again(machine_facts())
    with pytest.raises(RecordChanged):
        harness.look_again(machine_facts(identity=INSECURE))


def test_another_machine_took_the_claimed_provider_id_meanwhile() -> None:
    harness = Harness()
    harness.machine = machine_view(provider_id="").claiming("metal3://team-a/node-0/prod-md-0")
    facts = machine_facts(machine=harness.machine)
    harness.look_again(facts)
    harness.holders = ("Machine team-a/other",)
    assert deferred(harness.look_again, facts).reason is Reason.PROVIDER_ID_TAKEN
    harness.machine = machine_view()
    harness.look_again(machine_facts())  # what a Machine shows is no claim


def test_machine_that_lost_its_provider_id_meanwhile() -> None:
    """The attestor was told that the Machine shows it: what it then accepts may name no Machine."""
    version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed())
    caches = Caches(version, own_namespace="here", floors=NO_FLOORS)
    caches.authentic.use_keys(ControllerKeys(bytes(32)))
    late = machine("m1")
    del late["spec"]["providerID"]
    caches.machines.applied(late)
    view = caches.machines.get(KEY.namespace, "m1")
    assert view is not None
    owner = TokenOwner(KEY.namespace, "Machine", "m1", "m1")
    tokens = SimpleNamespace(asks=lambda key, username: TokenAsks(TracedTo(frozenset({owner}))))
    serving = ServingFactsSource(caches, NO_NETWORKS, ServicesReport(), nothing_reported(), DEFAULT_RESERVED_NAMES)
    parts = (None, caches, SimpleNamespace(live_reads=None), None, tokens)
    judge = ReserveAndJournal(KEY, *cast("Any", parts), serving=serving, host_certificates=cast("Any", None)).match
    chosen = policy(bootstrapTokens={"matchMachines": "WithoutProviderID"})
    snapshot = cast("Any", SimpleNamespace(policy=chosen, decision_inputs=DecisionInputs(), audited=True))
    tpm = replace(TPM, attests_without_provider_id=True)
    told, request = view.claiming("p1"), signing_request()

    def match(how: MachineMatch) -> MachineView:
        claim = Claim(told, how, TokenAsks(Untraceable()), cast("Any", None))
        username, node_name = request.header.username, node_name_of(request)
        return judge(username, node_name, "p1", claim, snapshot, tpm, lambda compared: None)

    assert match(MachineMatch.BOOTSTRAP_TOKEN) == told
    assert deferred(match, MachineMatch.PROVIDER_ID).reason is Reason.RESERVATION_PENDING


def test_of_two_names_that_a_machine_asks_for_at_once_one_waits() -> None:
    harness = Harness()
    first, second = machine_facts(), machine_facts(node_name="second")
    another = machine_facts(machine=machine_view(name="another", provider_id="test:///another"))
    with harness.reserve_and_journal._one_new_name(first):
        with pytest.raises(Deferred, match="is being recorded"), harness.reserve_and_journal._one_new_name(second):
            pass
        with harness.reserve_and_journal._one_new_name(another):
            pass
    with harness.reserve_and_journal._one_new_name(second):
        pass


def test_a_name_that_was_recorded_since_the_names_were_judged_counts() -> None:
    harness = Harness()
    harness.recorded = (record(node_name="first"),)
    with pytest.raises(RecordChanged), harness.reserve_and_journal._one_new_name(machine_facts(node_name="second")):
        pass
    with harness.reserve_and_journal._one_new_name(machine_facts(node_name="second", other_names=harness.recorded)):
        pass


def test_who_takes_over_a_former_nodes_record_is_new_to_its_name() -> None:
    harness = Harness()
    own, formers = machine_facts(record=record()), machine_facts(record=record(identity="ek:former"))
    with harness.reserve_and_journal._one_new_name(machine_facts(node_name="second")):
        with harness.reserve_and_journal._one_new_name(own):
            pass
        with pytest.raises(Deferred), harness.reserve_and_journal._one_new_name(formers):
            pass


async def test_a_former_nodes_machine_is_gone_when_the_api_server_says_so() -> None:
    """And not when the cache alone does, which may be behind."""
    harness = Harness()
    formers = machine_facts(record=record(identity="ek:former"), recorded_machine=MachineGone())
    with pytest.raises(Deferred, match="is not known yet"):
        await harness.reserve_and_journal.require_gone(formers)
    await harness.reserve_and_journal.require_gone(machine_facts())
    await harness.reserve_and_journal.require_gone(machine_facts(record=record(), recorded_machine=MachineGone()))
    await harness.reserve_and_journal.require_gone(replace(formers, recorded_machine=machine_view(name="former")))
    harness.is_gone = True
    await harness.reserve_and_journal.require_gone(formers)
