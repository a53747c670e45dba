"""What kubectl prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import pytest

from signer.testing.api import tables
from signer.testing.api.tables import age, json_path, wants_table


class Stopped(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Stopped:
        return cls(2026, 1, 31, 12, tzinfo=tz)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5s"), (119, "119s"), (130, "2m10s"), (180, "3m"), (3600, "60m"), (3 * 3600, "3h"), (3 * 86400, "3d")],
)
def test_age(monkeypatch: pytest.MonkeyPatch, seconds: int, text: str) -> None:
    monkeypatch.setattr(tables, "datetime", Stopped)
    moment = Stopped.now(UTC) - timedelta(seconds=seconds)
    assert age(moment.isoformat()) == text


def test_age_of_nothing() -> None:
    assert age(None) == "<unknown>"


def test_json_path() -> None:
    value = {"a": {"b.c/d": 1}, "list": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}
    assert json_path(value, r".a['b.c/d']") == [1]
    assert json_path(value, r".a.b\.c/d") == [1]
    assert json_path(value, '.list[?(@.type=="Ready")].status') == ["True"]
    assert json_path(value, ".list[*].status") == ["True", "False"]
    assert json_path(value, ".list[1].type") == ["X"]
    assert json_path(value, ".none.b") == []
    assert json_path(value, "...") == []


def test_accept() -> None:
    assert wants_table("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    assert not wants_table("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
    assert not wants_table("application/json")
