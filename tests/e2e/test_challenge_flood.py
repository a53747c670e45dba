"""A flood of TPM challenges on the real kube-apiserver: honest machines join through it, and memory stays bounded.

How much slower they join is measured by ``make bench``: it is a matter of what else the machine does.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.bench.challenge_flood import MAXIMUM_GROWTH, REQUESTS, Flood, measure_challenge_flood
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow]

FEWER = 2_000
"""Thousands, so that they wait; the issue's 10,000 are for ``make bench``."""
SWAY: Final = 4 * 1024 * 1024
"""Bytes by which the allocator may make two runs differ: 11 to 13 MiB were seen."""


@pytest.mark.parametrize("flood", [Flood.ONE_CHIP, Flood.MANY_CHIPS_NO_MACHINE], ids=lambda flood: flood.name.lower())
def test_honest_machines_join_and_memory_is_bounded(flood: Flood) -> None:
    try:
        control_plane = ControlPlane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with control_plane:
        control_plane.seed_kubeadm()
        flooded = measure_challenge_flood(control_plane, flood, FEWER)
    # Each join that did not end with a certificate has failed the measurement.
    assert flooded.grown <= SWAY + MAXIMUM_GROWTH * FEWER / REQUESTS, flooded
    assert set(flooded.reasons) <= {"ChallengeIssued", ""}, flooded
