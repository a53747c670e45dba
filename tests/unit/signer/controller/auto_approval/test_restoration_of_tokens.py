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
    House,
    house,
)

__all__ = ["house"]


@pytest.mark.parametrize("kept", [True, False], ids=["with saved bindings", "with nothing kept"])
async def test_extended_tokens_are_cut_back_before_bindings_are_restored(house: House, kept: bool) -> None:
    house.authorize(bootstrapTokens={"machinePools": "Extend"})
    house.extended_token()
    if kept:
        await house.remove()
    house.delete_policy()
    async with house.running():
        await asyncio.to_thread(
            house.cluster.client().wait_for, TOKENS, TOKEN, lambda item: "annotations" not in item["metadata"]
        )
        await house.is_restored()
    writes = [entry.path for entry in house.api.requests.writes() if TOKEN in entry.path or entry.path == BINDINGS]
    assert writes[0].endswith(TOKEN)
    assert len(writes) == (3 if kept else 1)
    house.connections.clear()
    await house.restoration._restore(KEY)
    assert house.connections == []


async def test_nothing_is_restored_while_a_token_is_extended(house: House) -> None:
    house.authorize(bootstrapTokens={"machinePools": "Extend"})
    house.extended_token()
    await house.remove()
    house.delete_policy()
    fault = house.api.faults.inject(f"PATCH {TOKENS}/{TOKEN}", status=503, times=1000)
    with pytest.raises(_StillExtended, match="are still extended"):
        await house.restoration._restore(KEY)
    assert fault.hits
    assert not {FIRST, RENEWAL} & house.bindings().keys()
    assert len(house.config_maps()) == 1


async def test_a_hostile_api_server_meets_the_bounds_of_all_workload_clusters(house: House) -> None:
    """A tenant only needs to delete its policy. Here other clusters use the shared memory for large responses."""
    house.authorize(bootstrapTokens={"machinePools": "Extend"})
    house.extended_token(description="x" * SMALL_BYTES)
    house.delete_policy()
    taken, house.resource_limits.bytes_left = house.resource_limits.bytes_left, 0
    with pytest.raises(_StillExtended, match="are still extended"):
        await house.restoration._restore(KEY)
    house.resource_limits.bytes_left = taken
    await house.restoration._restore(KEY)


async def test_a_cluster_that_never_extended_tokens_is_not_queried(house: House) -> None:
    house.authorize()
    house.delete_policy()
    await house.restoration._restore(KEY)
    assert house.connections == []
