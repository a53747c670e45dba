from __future__ import annotations

import pytest

from signer.controller.diagnostics.source_rates import MAXIMUM_SOURCES, Rate, SourceRates, TooMuch


class Clock:
    """Goes as far as the test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_address_costs_no_more_than_its_rate() -> None:
    clock = Clock()
    rates = SourceRates(Rate(per_second=2.0, burst=4.0), clock)
    for _ in range(4):
        rates.charge("a", 1.0)
    with pytest.raises(TooMuch):
        rates.charge("a", 1.0)
    clock.now = 0.5
    rates.charge("a", 1.0)
    with pytest.raises(TooMuch):
        rates.charge("a", 1.0)
    clock.now = 1000.0
    for _ in range(4):
        rates.charge("a", 1.0)
    with pytest.raises(TooMuch):
        rates.charge("a", 1.0)


def test_no_address_uses_up_what_another_may_cost() -> None:
    rates = SourceRates(Rate(per_second=1.0, burst=1.0), Clock())
    rates.charge("a", 1.0)
    with pytest.raises(TooMuch):
        rates.charge("a", 1.0)
    rates.charge("b", 1.0)


def test_what_costs_more_than_the_burst_waits_for_a_full_bucket() -> None:
    clock = Clock()
    rates = SourceRates(Rate(per_second=1.0, burst=4.0), clock)
    rates.charge("a", 100.0)
    clock.now = 3.9
    with pytest.raises(TooMuch):
        rates.charge("a", 100.0)
    clock.now = 4.0
    rates.charge("a", 100.0)


def test_addresses_are_not_remembered_for_ever() -> None:
    rates = SourceRates(Rate(per_second=1.0, burst=1.0), Clock())
    for number in range(MAXIMUM_SOURCES + 5):
        rates.charge(str(number), 1.0)
    assert len(rates._buckets) == MAXIMUM_SOURCES
    rates.charge("0", 1.0)
