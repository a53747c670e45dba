"""``status`` on terminals of any width: no text is cut off, and no word is broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from signer.cli.status_machines import next_commands
from signer.explain.machines import MachineState, MachineStatus
from signer.model.machine_pool import machine_pool_view
from tests.documents.explain_example import by_machine, fleet, one_cluster

WORDS = ("default/production", "Enforce", "118 of 120", "NodeNameMismatch 3", "BindingMismatch 1", "2035-02-07")


@pytest.mark.parametrize("width", [60, 80, 100, 118, 140])
def test_no_word_is_broken(width: int) -> None:
    shown = fleet(width)
    assert max(map(len, shown.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert [word for word in WORDS if word not in " ".join(shown.split())] == []


def test_a_wide_terminal_shows_one_line_per_cluster() -> None:
    assert [line for line in fleet(140).splitlines() if line.startswith(" default/staging     Observe  True   tpm")]
    assert "Days left <1/<3/<7/more: 0/31/87/0" in " ".join(fleet(80).split())


MACHINES = ("control-plane-0", "Attested", "Overdue", "EndorsementKeyMismatch;", "Starting", "(former)", "23:06Z")


@pytest.mark.parametrize("width", [60, 80, 118, 140])
@pytest.mark.parametrize("wide", [False, True])
def test_machines_on_terminals_of_any_width(width: int, wide: bool) -> None:
    shown = by_machine(width, wide=wide)
    table = shown.partition("Next commands:")[0]
    assert max(map(len, table.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert [word for word in MACHINES if word not in " ".join(shown.split())] == []


def test_piped_output_has_one_line_for_each_machine_and_all_columns_on_demand() -> None:
    (line,) = [line for line in by_machine(10_000).splitlines() if line.startswith(" worker-5 ")]
    assert line.endswith("  Denied EndorsementKeyMismatch; has no AttestedNode that counts")
    (line,) = [line for line in by_machine(10_000, wide=True).splitlines() if line.startswith(" worker-2 ")]
    assert "metal3://worker-2" in line
    assert "2026-11-27T15:54:00Z" in line
    assert "metal3" not in by_machine(10_000)


@pytest.mark.parametrize("wide", [False, True])
def test_a_reason_widens_no_line_of_another_machine(wide: bool) -> None:
    """Nor does it move a field: a reason has several words."""
    lines = [line.rstrip() for line in by_machine(10_000, wide=wide).splitlines() if line.startswith(" worker-1 ")]
    assert [len(line) <= (230 if wide else 100) for line in lines] == [True]
    heads = next(line for line in by_machine(10_000, wide=wide).splitlines() if line.startswith(" Machine "))
    assert heads.split()[-1] == "Reason"


def test_what_needs_attention_stands_first_with_the_command_that_says_more() -> None:
    names = [line.split()[0] for line in by_machine(10_000).splitlines() if "worker-" in line or "control-" in line]
    assert names[:3] == ["worker-4", "worker-5", "control-plane-0"]
    assert "node-attestation-controller explain machine/worker-5 --cluster default/staging" in by_machine(60)


def test_instances_of_a_pool_go_by_their_node() -> None:
    """A pool's instance has no Machine to name; before it has a node, the pool says more. At most three are named."""
    ids = [f"test:///{number}" for number in range(2)]
    pool = machine_pool_view(
        {
            "metadata": {"name": "pool", "namespace": "default"},
            "spec": {"clusterName": "staging", "providerIDList": ids},
        }
    )
    unknown, known = (
        MachineStatus(pool.instance(one), MachineState.UNATTESTED, "has no AttestedNode that counts") for one in ids
    )
    known = replace(known, machine=replace(known.machine, node_ref="node-1"))
    cluster = replace(one_cluster(), machines=(unknown, known, *one_cluster().machines))
    assert list(next_commands(cluster)) == [
        "kubectl describe machinepool --namespace default pool",
        "node-attestation-controller explain node/node-1 --cluster default/staging",
        "node-attestation-controller explain machine/worker-4 --cluster default/staging",
    ]
