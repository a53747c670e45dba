"""``rotate`` on terminals of any width and without one: no text is cut off, and piped lines are not folded."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from signer.cli.output import WIDTH_WITHOUT_TERMINAL
from signer.cli.rotate_order import Asked, what_happens
from signer.cli.rotate_output import (
    change_line,
    show_status,
    status_as_json,
    status_as_json_line,
)
from signer.cli.rotate_preflight import NotScanned, PreflightFound, Readiness
from signer.cli.rotate_preflight_command import preflight_as_json, show_preflight
from signer.kube.errors import Forbidden
from signer.rotation.leftovers import Holder, Scan
from signer.rotation.operations import Gate, Operation
from signer.rotation.phases import Phase
from signer.rotation.plan import TITLES, Wait, carry_out
from signer.rotation.preflight import Check, Holds, Lacks, NotAsked, NotReadable
from signer.rotation.view import ConditionView, NoRotation, RotationView
from tests.unit.signer.rotation.model_world import KEY, START, ModelWorld
from tests.unit.signer.rotation.test_view import passes, progress, view_of

LINK_ENDS = "2026-02-15T00:00:00Z"
PATCH = "kubectl patch kubeadmcontrolplanes.v1beta2.controlplane.cluster.x-k8s.io blue --patch " + "x" * 400


def printed(show: Callable[[Console], None], width: int, *, terminal: bool = True) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        legacy_windows=False,
    )
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def status(view: RotationView | NoRotation, width: int = 80, *, terminal: bool = True) -> str:
    return printed(lambda console: show_status(view, console, START + timedelta(days=30)), width, terminal=terminal)


def views() -> list[RotationView]:
    """A rotation that waits for servers, one that is prepared, one on the way, and one that is completed."""
    found = []
    world = ModelWorld()
    while not isinstance(world.step(), Wait):
        pass
    found.append(view_of(world))
    passes(world)
    found.append(view_of(world))
    world.wait(3600)
    world.record = carry_out(
        world.order(Operation.COMPLETE, 2, gates=("overlap",)), world.record, world.facts(), stalled=False
    )
    while not isinstance(world.step(), Wait):
        pass
    world.roll_one()
    found.append(view_of(world))
    while world.record.phase is not Phase.COMPLETED:
        if isinstance(world.step(), Wait):
            progress(world)
    return [*found, view_of(world)]


@pytest.mark.parametrize("width", [60, 80, 118])
@pytest.mark.parametrize("view", views(), ids=lambda view: view.phase.value + view.step.value)
def test_every_state_fits_a_terminal(view: RotationView, width: int) -> None:
    shown = status(view, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    words = " ".join(shown.split())
    assert [one.title for one in view.steps if one.title not in words] == []
    assert view.waits_for in words
    assert "\x1b[" not in shown.replace("\x1b[0m", "")


@pytest.mark.parametrize("view", views(), ids=lambda view: view.phase.value + view.step.value)
def test_piped_lines_are_whole(view: RotationView) -> None:
    lines = status(view, WIDTH_WITHOUT_TERMINAL, terminal=False).splitlines()
    if view.waits_for:
        assert f"Waits      {view.waits_for}" in lines
    for authority in view.authorities:
        assert any(line.startswith("Old ") and authority.old in line for line in lines)
    assert len(change_line(view).splitlines()) == 1


@pytest.mark.parametrize("view", views(), ids=lambda view: view.phase.value + view.step.value)
def test_the_json_is_whole(view: RotationView) -> None:
    document = status_as_json(view)
    assert json.loads(status_as_json_line(view)) == document
    assert [one["title"] for one in document["rotation"]["steps"]] == [TITLES[one.step] for one in view.steps]
    assert len(document["rotation"]["authorities"]) == 4


@pytest.mark.parametrize("rotated", [True, False])
def test_the_replacement_of_the_node_client_authority_is_shown(rotated: bool) -> None:
    """It is no rotation, and there may have been none."""
    message = "nodes that use the former one: node-1; former authority: sha256:00, retired"
    found = (ConditionView("NodeClientAuthoritySigns", "True", "NodesRenew", message),)
    view = replace(views()[0], conditions=found) if rotated else NoRotation(KEY, found)
    assert f"Node CA NodesRenew: {message}" in " ".join(status(view).split())
    assert "Node CA" not in status(replace(view, conditions=()))


@pytest.mark.parametrize("view", views(), ids=lambda view: view.phase.value + view.step.value)
def test_the_end_of_the_link_is_shown(view: RotationView) -> None:
    assert "Link " not in status(replace(view, times={}))
    assert "Link       ends at 2026-02-15T00:00:00Z" in status(replace(view, times={"linkNotAfter": LINK_ENDS}))


def test_what_a_person_does_next() -> None:
    waiting, prepared, completing, completed = views()
    assert "Next       nothing: the controller goes on by itself" in status(waiting, terminal=False)
    assert "rotate tenant/blue complete`" in status(prepared, terminal=False)
    assert "Skipped    gate overlap, ordered at " in status(completing, terminal=False)
    assert "Roll back  the nodes' client certificates" in status(completing, terminal=False)
    assert status(completed, terminal=False).endswith("Next       nothing\n")
    assert "rotate tenant/blue preflight`" in status(NoRotation(KEY), terminal=False)
    faulty = NoRotation(KEY, fault="not a rotation of ours")
    assert "Do not delete it" in status(faulty, terminal=False)
    assert change_line(faulty) == "tenant/blue: no rotation: not a rotation of ours"


def preflight(**changes: Any) -> PreflightFound:
    checks = (
        Check("Secret blue-ca holds one certificate", NotReadable(Forbidden("secrets is forbidden", status=403))),
        Check("its machines read the trusted CAs", Lacks("the template is not rotation-ready", f"Run this:\n{PATCH}")),
        Check("a KubeadmControlPlane runs the control plane", Holds()),
    )
    holders = (
        *(Holder("ConfigMap", "team", f"ci-{n}", holds_old=True) for n in range(40)),
        Holder("APIService", "", "v1beta1.metrics.k8s.io", holds_old=False),
    )
    fields = {
        "cluster": KEY,
        "checks": checks,
        "operator": Check("the operator allows it", NotAsked("only the controller knows")),
        "scan": Scan(holders, unread={"Secret": "forbidden"}),
    }
    return PreflightFound(**{**fields, **changes})


@pytest.mark.parametrize("width", [60, 80])
def test_preflight_fits_a_terminal_but_for_the_command(width: int) -> None:
    shown = printed(lambda console: show_preflight(preflight(), console), width)
    assert PATCH in shown.splitlines()
    assert max(len(line) for line in shown.splitlines() if not line.startswith("kubectl")) <= width
    assert "A rotation cannot be started yet." in shown
    assert "and 10 more" in shown


def test_preflight_piped() -> None:
    lines = printed(lambda console: show_preflight(preflight(), console), 140, terminal=False).splitlines()
    assert PATCH in lines
    assert "not readable here: 403 Forbidden: secrets is forbidden: grant that to the user" in "\n".join(lines)
    assert "Note       Secret: not readable here: forbidden" in lines


def test_preflight_says_how_much_it_knows() -> None:
    holds, unread = Check("a", Holds()), Check("b", NotReadable(Forbidden("no")))
    lacks, unasked = Check("c", Lacks("no")), Check("d", NotAsked("no"))
    for checks, expected in (
        ((holds,), Readiness.READY),
        ((holds, unread), Readiness.NOT_KNOWN),
        ((holds, unasked), Readiness.NOT_KNOWN),
        ((unread, lacks), Readiness.NOT_READY),
    ):
        found = preflight(checks=checks, scan=NotScanned("no kubeconfig"))
        assert found.readiness is expected
        document = preflight_as_json(found)
        assert (document["readiness"], document["holders"]) == (expected.value, None)
        assert document["notSearched"] == "no kubeconfig"


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("view", [NoRotation(KEY), *views()], ids=lambda view: type(view).__name__)
def test_a_person_reads_what_happens(view: RotationView | NoRotation, operation: Operation) -> None:
    lines = list(what_happens(view, Asked(operation, frozenset(Gate))))
    assert operation.value in lines[0]
    assert len([line for line in lines if line.startswith("Skips ")]) == len(Gate)
