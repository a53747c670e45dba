"""The example of ``rotate status``: a rotation in its second phase, by the model of a cluster."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console

from signer.cli.rotate_output import show_status
from signer.rotation.operations import Operation
from signer.rotation.plan import Wait, carry_out
from signer.rotation.view import RotationView
from tests.unit.signer.rotation.model_world import ModelWorld
from tests.unit.signer.rotation.test_view import passes, view_of

WIDTH: Final = 80


def view() -> RotationView:
    """One of three API servers presents the new CA's certificate."""
    world = ModelWorld()
    passes(world)
    world.wait(3600)
    world.record = carry_out(world.order(Operation.COMPLETE, 2), world.record, world.facts(), stalled=False)
    while not isinstance(world.step(), Wait):
        pass
    world.roll_one()
    return view_of(world)


def printed() -> str:
    """On a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=True, color_system=None, highlight=False)
    shown = view()
    assert isinstance(shown.step_since, datetime)
    show_status(shown, console, shown.step_since + timedelta(minutes=12))
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())
