"""Extended bootstrap tokens of MachinePools do not outlive the policy."""

from __future__ import annotations

import asyncio

import pytest

from signer.controller.auto_approval.restoration import _StillExtended
from signer.kube.resource_limits import SMALL_BYTES
from tests.unit.signer.controller.auto_approval.restoration_fixtures import (
    BINDINGS,
    FIRST,
    KEY,
    RENEWAL,
    TOKEN,
    TOKENS,
    RestorationHarness,
    harness,
)

__all__ = ["harness"]


@pytest.mark.parametrize("kept", [True, False], ids=["with saved bindings", "with nothing kept"])
async def test_extended_tokens_are_cut_back_before_bindings_are_restored(
    harness: RestorationHarness, kept: bool
) -> None:
    harness.authorize(bootstrapTokens={"machinePools": "Extend"})
    harness.extended_token()
    if kept:
        await harness.remove()
    harness.delete_policy()
    async with harness.running():
        await asyncio.to_thread(
            harness.cluster.client().wait_for, TOKENS, TOKEN, lambda item: "annotations" not in item["metadata"]
        )
        await harness.is_restored()
    writes = [entry.path for entry in harness.api.requests.writes() if TOKEN in entry.path or entry.path == BINDINGS]
    assert writes[0].endswith(TOKEN)
    assert len(writes) == (3 if kept else 1)
    harness.connections.clear()
    await harness.restoration._restore(KEY)
    assert harness.connections == []


async def test_nothing_is_restored_while_a_token_is_extended(harness: RestorationHarness) -> None:
    harness.authorize(bootstrapTokens={"machinePools": "Extend"})
    harness.extended_token()
    await harness.remove()
    harness.delete_policy()
    fault = harness.api.faults.inject(f"PATCH {TOKENS}/{TOKEN}", status=503, times=1000)
    with pytest.raises(_StillExtended, match="are still extended"):
        await harness.restoration._restore(KEY)
    assert fault.hits
    assert not {FIRST, RENEWAL} & harness.bindings().keys()
    assert len(harness.config_maps()) == 1


async def test_a_hostile_api_server_meets_the_bounds_of_all_workload_clusters(harness: RestorationHarness) -> None:
    """A tenant only needs to delete its policy. Here other clusters use the shared memory for large responses."""
    harness.authorize(bootstrapTokens={"machinePools": "Extend"})
    harness.extended_token(description="x" * SMALL_BYTES)
    harness.delete_policy()
    taken, harness.resource_limits.memory.bytes_left = harness.resource_limits.bytes_left, 0
    with pytest.raises(_StillExtended, match="are still extended"):
        await harness.restoration._restore(KEY)
    harness.resource_limits.memory.bytes_left = taken
    await harness.restoration._restore(KEY)


async def test_a_cluster_that_never_extended_tokens_is_not_queried(harness: RestorationHarness) -> None:
    harness.authorize()
    harness.delete_policy()
    await harness.restoration._restore(KEY)
    assert harness.connections == []
