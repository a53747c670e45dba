"""The host of a Machine: which provider IDs name it, and which sources name its chip."""

from __future__ import annotations

import pytest

from attestors.contract import DocumentKind, Host, MachineMatch, NoClaimedMachine, NotThere
from attestors.tpm.endorsement_key_sources import (
    Inventory,
    KeyConfirmed,
    KeyContradicted,
    NoInformation,
    SourceName,
    SourcesInOrder,
    TrustOnFirstUse,
    Unclear,
    Undetermined,
)
from attestors.tpm.endorsement_key_sources.host import host_of, proven_node_names
from attestors.tpm.endorsement_key_sources.host_annotation import HostAnnotation
from tests.unit.attestors.tpm.endorsement_key_sources.support import (
    CHIP,
    NOT_VERIFIED,
    OTHER,
    Cluster,
    annotated,
    at_once,
    listed,
    machine,
    request,
)

HOST = "metal3://metal3/node-0"
CLAIMED = f"{HOST}/pool-second"
BYO_HOST = "byoh://host-1"
OWN = CHIP.fingerprint
OTHERS = OTHER.fingerprint
INVENTORY = Inventory(DocumentKind.CONFIG_MAP, "inventory")
BY_TOKEN = machine(match=MachineMatch.BOOTSTRAP_TOKEN)


@pytest.mark.parametrize(
    ("provider_id", "host"),
    [
        (CLAIMED, HOST),
        (HOST, HOST),
        ("byoh://host-1/x7mz5a", "byoh://host-1"),
        ("metal3://d668eb95-5df6-4c10-a01a-fc69f4299fc6", "metal3://d668eb95-5df6-4c10-a01a-fc69f4299fc6"),
        ("metal3://a/b/c/d", "metal3://a/b/c/d"),
        ("metal3:///node-0/x", "metal3:///node-0/x"),
        ("aws:///eu-west-1a/i-1", "aws:///eu-west-1a/i-1"),
    ],
)
def test_host_in_a_provider_id(provider_id: str, host: str) -> None:
    assert host_of(provider_id) == host


@pytest.mark.parametrize("line", [HOST, f"{HOST}/pool-first", CLAIMED])
def test_one_line_is_right_for_all_machines_of_a_host(line: str) -> None:
    cluster = listed(f"{line} {OWN}\n")
    asked = request(machine(), cluster, provider_id=CLAIMED)
    assert at_once(INVENTORY.ask(asked, CHIP.key, NOT_VERIFIED)) == KeyConfirmed(SourceName.INVENTORY)


def test_lines_of_one_host_must_not_contradict_each_other() -> None:
    cluster = listed(f"{HOST}/pool-first {OTHERS}\n{HOST}/pool-second {OWN}\n")
    asked = request(machine(), cluster, provider_id=CLAIMED)
    assert isinstance(at_once(INVENTORY.ask(asked, CHIP.key, NOT_VERIFIED)), Unclear)


@pytest.mark.parametrize("line", [f"{HOST}/pool-first", f"{HOST}/pool-first, {CHIP.fingerprint}"])
def test_line_that_cannot_be_read_concerns_the_host(line: str) -> None:
    asked = request(machine(), listed(f"{line}\n"), provider_id=CLAIMED)
    assert isinstance(at_once(INVENTORY.ask(asked, CHIP.key, NOT_VERIFIED)), Unclear)


class TestMachineWithoutProviderID:
    """Nothing links the claimed provider ID to the Machine: only its host does."""

    @pytest.mark.parametrize(
        ("host", "claimed", "answer"),
        [
            (Host(HOST, {}), CLAIMED, KeyConfirmed),
            (Host("metal3://metal3/node-1", {}), CLAIMED, Unclear),
            (NotThere("no grant"), CLAIMED, Unclear),
        ],
    )
    def test_inventory(self, host: Host | NotThere, claimed: str, answer: type) -> None:
        cluster = listed(f"{HOST} {OWN}\n")
        cluster.on_host = host
        asked = request(BY_TOKEN, cluster, provider_id=claimed)
        assert isinstance(at_once(INVENTORY.ask(asked, CHIP.key, NOT_VERIFIED)), answer)

    @pytest.mark.parametrize(
        ("host", "answer"),
        [
            (Host(HOST, annotated(OWN)), KeyConfirmed),
            (Host(HOST, annotated(OTHERS)), KeyContradicted),
            (Host(HOST, {}), NoInformation),
            (Host("metal3://metal3/node-1", annotated(OWN)), Unclear),
            (NotThere("no grant"), Unclear),
        ],
    )
    def test_annotation_of_the_host(self, host: Host | NotThere, answer: type) -> None:
        asked = request(BY_TOKEN, Cluster(on_host=host), provider_id=CLAIMED)
        assert isinstance(at_once(HostAnnotation().ask(asked, CHIP.key, NOT_VERIFIED)), answer)

    def test_host_that_writes_its_own_object_names_no_chip(self) -> None:
        """The agent on a BYOH host writes its ByoHost."""
        cluster = Cluster(on_host=Host(BYO_HOST, annotated(OWN)))
        asked = request(BY_TOKEN, cluster, provider_id=f"{BYO_HOST}/x")
        answer = at_once(HostAnnotation().ask(asked, CHIP.key, NOT_VERIFIED))
        assert isinstance(answer, NoInformation)
        assert "writes its own object" in answer.message

    @pytest.mark.parametrize(
        ("claimed", "answer"),
        [
            (f"{BYO_HOST}/x", KeyConfirmed),
            ("byoh://host-2/x", Unclear),
            ("byoh://HOST-1/x", Unclear),
            (f"byoh://host-2/{BYO_HOST}/x", Unclear),
        ],
    )
    def test_inventory_of_byoh(self, claimed: str, answer: type) -> None:
        cluster = listed(f"{BYO_HOST} {OWN}\n")
        cluster.on_host = Host(BYO_HOST, {})
        asked = request(BY_TOKEN, cluster, provider_id=claimed)
        assert isinstance(at_once(INVENTORY.ask(asked, CHIP.key, NOT_VERIFIED)), answer)

    def test_first_use_is_not_asked(self) -> None:
        asked = request(BY_TOKEN, provider_id=CLAIMED)
        answer = at_once(SourcesInOrder((TrustOnFirstUse(),)).ask(asked, CHIP.key, NOT_VERIFIED))
        assert isinstance(answer, Undetermined)
        assert "does not count" in answer.within(500)


@pytest.mark.parametrize(
    ("provider_id", "names"),
    [
        ("byoh://host-1/x7mz5a", ("host-1",)),
        ("byoh://host-1.corp.example/x", ("host-1.corp.example",)),
        ("byoh://host-2/byoh://host-1/x", ()),
        ("xbyoh://host-1/x", ()),
        ("byoh:///x", ()),
        (CLAIMED, ()),
        ("metal3://d668eb95-5df6-4c10-a01a-fc69f4299fc6", ()),
        ("aws:///eu-west-1a/i-1", ()),
    ],
)
def test_only_a_source_that_names_the_host_proves_its_name(provider_id: str, names: tuple[str, ...]) -> None:
    for source in SourceName:
        assert proven_node_names(source, provider_id) == (names if source is SourceName.INVENTORY else ())


def test_without_a_machine_there_is_no_host() -> None:
    asked = request(NoClaimedMachine())
    assert isinstance(at_once(HostAnnotation().ask(asked, CHIP.key, NOT_VERIFIED)), NoInformation)
