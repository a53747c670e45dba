from __future__ import annotations

import asyncio

import pytest

from signer.store.event_history import GONE, EventHistories, EventHistory, ObservedEvent, Order

FIRST, SECOND, OTHER = ("own", "first"), ("own", "second"), ("own", "other")
CREATED: list[ObservedEvent] = [(FIRST, "1"), (SECOND, "2")]
LONG = 60.0


async def told(*events: ObservedEvent, seconds: float = LONG) -> Order:
    """The result if all events arrive before the wait."""
    event_histories = EventHistories()
    with event_histories.follow([FIRST, SECOND]) as event_history:
        for event in events:
            event_histories.observe(event)
        return await event_history.expect(CREATED, seconds)


async def test_events_received_before_the_wait_count() -> None:
    assert await told(*CREATED) is Order.EXACTLY


async def test_events_of_other_objects_do_not_count() -> None:
    assert await told((OTHER, "7"), CREATED[0], (OTHER, GONE), CREATED[1]) is Order.EXACTLY


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([(FIRST, "1"), (FIRST, "3"), (SECOND, "2")], id="changed between"),
        pytest.param([(FIRST, "1"), (FIRST, GONE), (SECOND, "2")], id="gone between"),
        pytest.param([(FIRST, "1"), (SECOND, "2"), (FIRST, "3")], id="changed after"),
        pytest.param([(SECOND, "2"), (FIRST, "1")], id="the other way round"),
        pytest.param([(FIRST, "0"), (FIRST, "1"), (SECOND, "2")], id="there before"),
        pytest.param([(SECOND, "2")], id="without the first"),
        pytest.param([(FIRST, "1"), (SECOND, "4")], id="another version"),
    ],
)
async def test_any_other_event_is_a_mismatch(events: list[ObservedEvent]) -> None:
    """The wait ends at once."""
    assert await told(*events) is Order.OTHERWISE


async def test_a_list_hides_earlier_events() -> None:
    event_histories = EventHistories()
    with event_histories.follow([FIRST, SECOND]) as event_history:
        event_histories.observe(CREATED[0])
        event_histories.listed()
        event_histories.observe(CREATED[1])
        assert await event_history.expect(CREATED, LONG) is Order.OTHERWISE


async def test_missing_events_are_waited_for() -> None:
    event_histories = EventHistories()
    with event_histories.follow([FIRST, SECOND]) as event_history:
        waiting = asyncio.ensure_future(event_history.expect(CREATED, LONG))
        for event in CREATED:
            await asyncio.sleep(0)
            assert not waiting.done()
            event_histories.observe(event)
        assert await waiting is Order.EXACTLY


@pytest.mark.parametrize("events", [[], CREATED[:1]], ids=["nothing", "half"])
async def test_the_wait_ends_at_its_time_limit(events: list[ObservedEvent]) -> None:
    assert await told(*events, seconds=0.01) is Order.OTHERWISE


async def test_a_cancelled_follower_receives_nothing_more() -> None:
    event_histories = EventHistories()

    async def follows() -> None:
        with event_histories.follow([FIRST, SECOND]) as event_history:
            await event_history.expect(CREATED, LONG)

    task = asyncio.ensure_future(follows())
    await asyncio.sleep(0)
    assert len(event_histories) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(event_histories) == 0


def test_several_follow_the_same_object() -> None:
    event_histories = EventHistories()
    with event_histories.follow([FIRST]) as one, event_histories.follow([FIRST, SECOND]) as another:
        event_histories.observe(CREATED[0])
        assert (_observed(one), _observed(another)) == ([CREATED[0]], [CREATED[0]])
        event_histories.observe(CREATED[1])
        assert (_observed(one), _observed(another)) == ([CREATED[0]], CREATED)
        event_histories.listed()
        assert len(_observed(another)) == 3, "told once"


def _observed(event_history: EventHistory) -> list[ObservedEvent]:
    return event_history._observed
