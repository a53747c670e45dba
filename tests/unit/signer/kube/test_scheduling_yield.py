"""Other tasks run after each slice of CPU time, and not before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from signer.kube import scheduling as cooperative_yield
from signer.kube.scheduling import SLICE_SECONDS, CooperativeYield


async def test_other_tasks_run_when_a_slice_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = 0.0
    monkeypatch.setattr(cooperative_yield, "time", SimpleNamespace(thread_time=lambda: spent))
    turns: list[int] = []
    after_each: list[int] = []
    work = CooperativeYield()
    for step in range(7):
        asyncio.get_running_loop().call_soon(turns.append, step)
        spent += SLICE_SECONDS / 2.5
        await work.leave_turn()
        after_each.append(len(turns))
    assert after_each == [0, 0, 3, 3, 3, 6, 6]
