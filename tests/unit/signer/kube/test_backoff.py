from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube.backoff import Backoff


@given(
    base=st.floats(0.001, 10),
    factor=st.floats(1, 1000),
    jitter=st.floats(0, 1),
    attempt=st.integers(0, 10_000),
    seed=st.integers(),
)
def test_delays_stay_within_their_bounds(base: float, factor: float, jitter: float, attempt: int, seed: int) -> None:
    backoff = Backoff(base, base * factor, jitter)
    ceiling = min(base * 2.0 ** min(attempt, 100), base * factor)
    delay = backoff.delay(attempt, Random(seed))
    assert ceiling * (1 - jitter) * 0.999 <= delay <= ceiling


@pytest.mark.parametrize(
    ("base", "maximum", "jitter"), [(0, 1, 0.5), (2, 1, 0.5), (1, 2, 1.1), (1, 2, -0.1), (-1, 1, 0)]
)
def test_invalid_parameters_are_refused(base: float, maximum: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="base_seconds"):
        Backoff(base, maximum, jitter)
