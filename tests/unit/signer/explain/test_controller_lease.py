from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from signer.explain.controller_lease import (
    HOLDERS_CLOCK,
    OWN_CLOCK,
    LeaseExpired,
    LeaseNotKnown,
    LeaseRenewed,
    judge_lease,
    read_controller_lease,
)
from signer.kube.errors import ApiError, Forbidden, NotFound, ServerError
from signer.kube.server_clock import NoServerTime, ServerTime, ServerTimeAnswer
from signer.model.lease import ElectionTimes, InvalidLease, new_lease, taken

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HELD = taken("replica-1", ElectionTimes(), NOW)
DURATION = ElectionTimes().lease_duration


class Management:
    """A management cluster with that time and that Lease."""

    def __init__(self, server: ServerTimeAnswer, answer: dict[str, Any] | ApiError | None = None) -> None:
        self.server = server
        self.answer = answer

    @property
    def clock(self) -> Any:
        return self

    def now(self) -> ServerTimeAnswer:
        return self.server

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/system/leases/controller"
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer or {}


def judged(server: ServerTimeAnswer, now: datetime) -> LeaseRenewed | LeaseExpired:
    return judge_lease(cast("Any", Management(server)), "Lease a/b", HELD, now)


@pytest.mark.parametrize(
    ("after", "expected"),
    [(timedelta(0), LeaseRenewed), (HOLDERS_CLOCK, LeaseRenewed), (HOLDERS_CLOCK + timedelta(seconds=1), LeaseExpired)],
)
def test_the_api_servers_clock_counts(after: timedelta, expected: type) -> None:
    """However wrong this machine's own is."""
    for own in (NOW - timedelta(days=1), NOW + timedelta(days=1)):
        assert isinstance(judged(ServerTime(NOW + DURATION + after, 0.0), own), expected)


@pytest.mark.parametrize(
    ("after", "expected"), [(OWN_CLOCK, LeaseRenewed), (OWN_CLOCK + timedelta(seconds=1), LeaseExpired)]
)
def test_without_a_time_of_the_api_server_its_own_counts(after: timedelta, expected: type) -> None:
    assert isinstance(judged(NoServerTime(), NOW + DURATION + after), expected)


@pytest.mark.parametrize("time", ["", "yesterday", "2026-13-02T03:04:05.000000Z", "2026-01-02T03:04:05"])
def test_a_lease_that_does_not_say_when(time: str) -> None:
    with pytest.raises(InvalidLease, match=r"spec\.renewTime"):
        judge_lease(cast("Any", Management(NoServerTime())), "Lease a/b", replace(HELD, renew_time=time), NOW)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (NotFound("none", status=404), ""),
        (Forbidden("no", status=403), "not readable here: Lease system/controller; whether a controller runs"),
        (ServerError("no", status=500), "Lease system/controller cannot be read, so whether a controller runs"),
        ({"metadata": {}}, "Lease system/controller cannot be read, so whether a controller runs"),
    ],
    ids=["no Lease", "forbidden", "fails", "malformed"],
)
async def test_what_says_nothing_about_a_controller(answer: Any, message: str) -> None:
    management = cast("Any", Management(NoServerTime(), answer))
    found = await read_controller_lease(management, "system", "controller", NOW + timedelta(days=1))
    assert isinstance(found, LeaseNotKnown)
    assert found.message.startswith(message)
    assert bool(found.message) == bool(message)


async def test_a_lease_that_nobody_renews() -> None:
    lease = new_lease("controller", "system", HELD)
    lease["metadata"]["resourceVersion"] = "1"
    management = cast("Any", Management(NoServerTime(), lease))
    found = await read_controller_lease(management, "system", "controller", NOW + timedelta(minutes=2))
    assert found == LeaseExpired(
        "no controller has renewed Lease system/controller since 2026-01-02 03:04:05 UTC: conditions are as it last "
        "wrote them. If no replica elects a leader by this Lease any more, delete it"
    )
