"""Runs the short form of the soak test."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from tests.soak.soak import Plan, soak
from tests.support.binaries import MissingPart, skip_or_fail

pytestmark = [pytest.mark.real, pytest.mark.slow]

SEED_VARIABLE: Final = "NODE_ATTESTATION_SEED"
"""Set it to repeat a run; a failed test prints its seed."""


def test_faults_for_a_short_while() -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"{SEED_VARIABLE}={seed}")
    try:
        outcome = soak(Plan.short(seed), print)
    except MissingPart as missing:
        skip_or_fail(missing)
    assert outcome.problems == []
    assert outcome.joins > 0
    assert outcome.impostors_denied > 0
    assert len(outcome.disruptions) >= 4, outcome.disruptions
    divisions = outcome.controllers.divisions
    assert set(divisions) == {"leader election", "4 shards"}
    if "4 shards" in (divisions[0], divisions[-1]):  # a division in the middle may be too short for a change
        assert outcome.controllers.shard_changes > 0
    assert outcome.disruptions["Cluster added"] == outcome.disruptions["Cluster deleted"] > 0
    assert outcome.faults, "no request met a fault"
