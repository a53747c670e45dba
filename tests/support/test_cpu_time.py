"""Bounds of CPU time."""

from __future__ import annotations

import gc
import time

import pytest

from tests.support.cpu_time import within_cpu_seconds


def spin() -> None:
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass


def test_what_takes_longer_is_told_by_its_name() -> None:
    with pytest.raises(AssertionError, match=r"^seed-1 took 0\.\d+ s of CPU time; less than 0\.05 s are expected"):
        within_cpu_seconds(0.05, spin, "seed-1")


def test_the_collector_rests_meanwhile_and_the_result_is_returned() -> None:
    assert within_cpu_seconds(10, gc.isenabled) is False
    assert gc.isenabled()


def test_a_failure_of_the_work_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        within_cpu_seconds(10, lambda: 1 // 0)
    assert gc.isenabled()
