"""A fake AWS for each test, and threads for calls to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from attestors.clouds.calls import CloudCalls
from tests.integration.aws.fixtures import PluginHarness
from tests.support.fake_aws import FakeAWS
from tests.unit.attestors.support import NOW


@pytest.fixture
def aws() -> Iterator[FakeAWS]:
    """It is always now."""
    with FakeAWS(clock=lambda: NOW) as cloud:
        yield cloud


@pytest.fixture
def calls() -> Iterator[CloudCalls]:
    """Threads that end with the test."""
    threads = CloudCalls(deadline_seconds=5)
    yield threads
    threads.close()


@pytest.fixture
def harness(aws: FakeAWS, calls: CloudCalls) -> PluginHarness:
    """Where requests are judged."""
    return PluginHarness(aws, calls)
