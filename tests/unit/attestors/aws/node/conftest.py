"""A metadata service for each test, and little patience."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attestors.aws.node import deadline as timeout
from tests.support.fake_instance_metadata import FakeInstanceMetadata


@pytest.fixture
def metadata() -> Iterator[FakeInstanceMetadata]:
    """What an instance in eu-west-1 is told."""
    with FakeInstanceMetadata() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _little_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeout, "FIRST_DELAY_SECONDS", 0.001)
    monkeypatch.setattr(timeout, "LONGEST_DELAY_SECONDS", 0.002)
