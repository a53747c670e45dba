"""How much of the gateway one address takes, before its login and after it."""

from __future__ import annotations

import pytest

from signer.gateway.limits import Connections, Limits, Place, TooMany, drop_probability

LIMITS = Limits(drop_from=10, drop_rate=0.3, logins=20, logins_per_address=4, connections=6, connections_per_address=3)


@pytest.mark.parametrize(
    ("waiting", "expected"), [(0, 0.0), (9, 0.0), (10, 0.3), (15, 0.65), (19, 0.93), (20, 1.0), (1000, 1.0)]
)
def test_the_more_wait_the_more_are_dropped(waiting: int, expected: float) -> None:
    """As sshd with MaxStartups 10:30:20."""
    assert drop_probability(waiting, LIMITS) == pytest.approx(expected)


def connections(drawn: float = 0.999) -> Connections:
    """``drawn`` is the number that chance gives: with the default, only what is certain happens."""
    return Connections(LIMITS, lambda: drawn)


def flood(of: Connections, addresses: int) -> int:
    """As many connections as each address gets, of ten tries."""
    opened = 0
    for number in range(addresses):
        for _ in range(10):
            try:
                of.opened(f"198.51.100.{number}")
                opened += 1
            except TooMany:
                pass
    return opened


def test_a_flood_of_few_addresses_takes_only_their_own_places() -> None:
    of = connections(drawn=0.0)
    assert flood(of, 2) == 8
    with pytest.raises(TooMany, match="your address"):
        of.opened("198.51.100.0")
    assert isinstance(of.opened("192.0.2.1"), Place)


def test_a_flood_of_many_addresses_is_bounded_and_locks_nobody_out_for_good() -> None:
    of = connections()
    assert flood(of, 30) == LIMITS.logins
    with pytest.raises(TooMany, match="try again"):
        of.opened("192.0.2.1")
    lucky, unlucky = connections(drawn=0.31), connections(drawn=0.29)
    for one in (lucky, unlucky):
        flood(one, 2)
        one.opened("203.0.113.1")
        one._waiting["203.0.113.2"] = 1
    assert isinstance(lucky.opened("192.0.2.1"), Place)
    with pytest.raises(TooMany, match="try again"):
        unlucky.opened("192.0.2.1")


def test_a_full_waiting_room_ends_nobody_who_is_logged_in_and_keeps_nobody_from_it() -> None:
    of = connections()
    mine = of.opened("192.0.2.1")
    flood(of, 30)
    mine.logged_in()
    assert of.count == LIMITS.logins
    mine.closed()
    assert of.count == LIMITS.logins - 1


def test_those_that_are_logged_in_are_bounded_by_address_and_at_all() -> None:
    of = connections()
    for number, address in enumerate(["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.2"]):
        of.opened(address).logged_in()
        assert of.count == number + 1
    fourth = connections()
    for _ in range(3):
        fourth.opened("192.0.2.1").logged_in()
    place = fourth.opened("192.0.2.1")
    with pytest.raises(TooMany, match="close some"):
        place.logged_in()
    place.closed()
    assert fourth.count == 3
    last = of.opened("192.0.2.3")
    with pytest.raises(TooMany, match="as many connections as it takes"):
        last.logged_in()
    last.closed()
    assert of.count == 6


def test_a_closed_connection_gives_its_place_back() -> None:
    of = connections()
    for _ in range(100):
        waiting = of.opened("192.0.2.1")
        waiting.closed()
        place = of.opened("192.0.2.1")
        place.logged_in()
        place.closed()
    assert of.count == 0
    assert not of._waiting
    assert not of._logged_in
