from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.model.attempt import Attempt
from authenticator.model.pair import Pair, parse_pair
from authenticator.model.plan import (
    AGENT_SHARE,
    AGENT_SPREAD,
    PLUGIN_SHARE,
    Expired,
    Join,
    KeepStill,
    Next,
    Nothing,
    Renew,
    Use,
    clock_behind,
    expiration,
    next_step,
    renewal_time,
)
from tests.unit.attestors.support import PATIENT
from tests.unit.authenticator.builders import bootstrap, pair, pause

PAIR = Pair("", "", 1000, 2000)
BOOTSTRAP = bootstrap()
QUIET = Attempt()


def step(
    now: int,
    pair: Pair | None = PAIR,
    *,
    supplied: bool = False,
    attempt: Attempt = QUIET,
    renews: bool = True,
    **options: Any,
) -> Next:
    return next_step(pair, BOOTSTRAP if supplied else None, attempt, renews=renews, now=now, **options)


def paused(until: int, credential: str = "") -> Attempt:
    return Attempt(pause=pause(until=until, credential=credential))


def test_the_plugin_renews_at_a_fifth_and_the_agent_before() -> None:
    assert (PLUGIN_SHARE, AGENT_SHARE, AGENT_SPREAD) == (0.2, 0.3, 0.05)
    assert renewal_time(PAIR, PLUGIN_SHARE) == 1800
    # SHA-256 of nothing begins with e3b0c442: 0.889 of the 50 seconds before 1700.
    assert renewal_time(PAIR, AGENT_SHARE) == 1656
    assert renewal_time(Pair("", "", 0, 10**12), AGENT_SHARE) == 655_529_200_263


def test_the_agents_of_nodes_that_joined_together_do_not_renew_together() -> None:
    pairs = [pair(serial_number=number) for number in range(1, 201)]
    (validity,) = {(one.not_before, one.not_after) for one in pairs}
    life = validity[1] - validity[0]
    left = sorted((one.not_after - renewal_time(one, AGENT_SHARE)) / life for one in pairs)
    assert left[0] >= 0.3 - 1 / life
    assert left[-1] <= 0.35
    assert left[-1] - left[0] >= 0.03
    assert max(later - sooner for sooner, later in pairwise(left)) < 0.005
    assert {renewal_time(one, PLUGIN_SHARE) for one in pairs} == {pairs[0].renewal}


def test_the_agent_finds_the_same_moment_when_it_reads_it_again() -> None:
    one = pair()
    assert renewal_time(one, AGENT_SHARE) == renewal_time(parse_pair(one.encode()), AGENT_SHARE)


@PATIENT
@given(st.integers(-(10**9), 10**9), st.integers(1, 10**9))
def test_the_plugin_renews_when_the_printing_path_stops_to_print(not_before: int, lifetime: int) -> None:
    """To the second: else a kubelet could be sent back and forth between the two."""
    pair = Pair("", "", not_before, not_before + lifetime)
    assert renewal_time(pair, PLUGIN_SHARE) == pair.renewal


@pytest.mark.parametrize("supplied", [False, True], ids=["alone", "with-a-token"])
def test_a_fresh_certificate_is_used_until_a_fifth_is_left(supplied: bool) -> None:
    for now in (999, 1000, 1500, 1799):
        assert step(now, supplied=supplied) == Use(PAIR, 1800, overdue="")
    assert step(1800, supplied=supplied) == Renew(PAIR)
    assert step(1999, supplied=supplied) == Renew(PAIR)


def test_the_agent_uses_it_until_its_own_share() -> None:
    assert step(1655, share=AGENT_SHARE) == Use(PAIR, 1656)
    assert step(1656, share=AGENT_SHARE) == Renew(PAIR)


def test_what_cannot_be_renewed_is_used_until_it_runs_out() -> None:
    assert step(1799, renews=False) == Use(PAIR, 1800)
    assert step(1800, renews=False) == Use(PAIR, 2000)
    assert step(1999, renews=False) == Use(PAIR, 2000)
    assert step(2000, renews=False) == Expired(2000)


def test_after_a_refused_renewal_it_is_used_until_the_pause_ends() -> None:
    why = pause().message
    assert step(1850, attempt=paused(1900)) == Use(PAIR, 1900, why)
    assert step(1899, attempt=paused(1900)) == Use(PAIR, 1900, why)
    assert step(1900, attempt=paused(1900)) == Renew(PAIR)


def test_no_pause_outlives_the_certificate() -> None:
    assert step(1950, attempt=paused(2020)) == Use(PAIR, 2000, pause().message)


def test_another_configuration_need_not_wait() -> None:
    held = paused(1900, "as worker-1 ")
    assert step(1850, attempt=held, asker="as worker-1 ") == Use(PAIR, 1900, pause().message)
    assert step(1850, attempt=held, asker="as worker-2 ") == Renew(PAIR)


def test_a_pause_of_a_token_is_none_for_a_renewal() -> None:
    assert step(1850, attempt=paused(1900, BOOTSTRAP.digest)) == Renew(PAIR)


@pytest.mark.parametrize("pair", [None, PAIR], ids=["none", "run-out"])
def test_a_token_asks_for_the_first_certificate(pair: Pair | None) -> None:
    assert step(2000, pair, supplied=True) == Join(BOOTSTRAP)
    assert step(2000, pair, supplied=True, renews=False) == Join(BOOTSTRAP)


@pytest.mark.parametrize("pair", [None, PAIR], ids=["none", "run-out"])
def test_a_refused_token_keeps_still_until_the_pause_ends(pair: Pair | None) -> None:
    attempt = paused(2100, BOOTSTRAP.digest)
    assert step(2099, pair, supplied=True, attempt=attempt) == KeepStill(pause(until=2100, credential=BOOTSTRAP.digest))
    assert step(2100, pair, supplied=True, attempt=attempt) == Join(BOOTSTRAP)


def test_another_token_does_not_keep_still() -> None:
    assert step(2099, None, supplied=True, attempt=paused(2100, "d" * 64)) == Join(BOOTSTRAP)
    assert step(2099, None, supplied=True, attempt=paused(2100, "")) == Join(BOOTSTRAP)


def test_without_anything_to_ask_with() -> None:
    assert step(2000, None) == Nothing()
    assert step(2000) == Expired(2000)
    assert step(10**9) == Expired(2000)
    assert step(2050, None, attempt=paused(2100)) == Nothing()
    assert step(2050, attempt=paused(2100)) == Expired(2000)


def test_client_go_asks_again_when_there_is_work_or_after_an_hour() -> None:
    assert expiration(Use(PAIR, 1800), 1500) == 1800
    assert expiration(Use(PAIR, 10_000), 1500) == 1500 + 3600
    assert expiration(Use(PAIR, 5100), 1500) == 5100


def test_the_expiration_is_never_in_the_past() -> None:
    assert expiration(Use(PAIR, 1800), 1800) == 1801
    assert expiration(Use(PAIR, 1800), 5000) == 5001
    assert expiration(Use(PAIR, 1801), 1800) == 1801


@pytest.mark.parametrize("now", [1000, 700, 1001, 10**9])
def test_a_clock_that_may_be_right(now: int) -> None:
    assert clock_behind(1000, now) == ""


@pytest.mark.parametrize("now", [699, 0, -1000])
def test_a_clock_that_is_behind(now: int) -> None:
    assert clock_behind(1000, now) == "not valid before 1970-01-01T00:16:40Z: is this node's clock right?"


@PATIENT
@given(
    st.none() | st.tuples(st.integers(0, 5000), st.integers(1, 5000)),
    st.booleans(),
    st.none() | st.tuples(st.integers(0, 10_000), st.sampled_from(["", BOOTSTRAP.digest, "d"])),
    st.booleans(),
    st.integers(0, 12_000),
    st.sampled_from([PLUGIN_SHARE, AGENT_SHARE]),
)
def test_no_state_is_without_a_sensible_step(
    life: tuple[int, int] | None,
    supplied: bool,
    held: tuple[int, str] | None,
    renews: bool,
    now: int,
    share: float,
) -> None:
    pair = None if life is None else Pair("", "", life[0], life[0] + life[1])
    attempt = QUIET if held is None else paused(*held)
    found = step(now, pair, supplied=supplied, attempt=attempt, renews=renews, share=share)
    valid = pair is not None and now < pair.not_after
    assert isinstance(found, Use | Renew) == valid
    assert isinstance(found, Join | KeepStill) == (supplied and not valid)
    if isinstance(found, Use):
        assert now < found.until <= found.pair.not_after
    if isinstance(found, Renew):
        assert renews
    if isinstance(found, KeepStill):
        assert now < found.pause.until
