"""A running embedded API for each test that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from signer.testing.api import EmbeddedAPI
from tests.support.raw_client import RawClient


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI(seed_kubeadm=True) as running:
        yield running


@pytest.fixture
def admin(api: EmbeddedAPI) -> Iterator[RawClient]:
    with RawClient(api.connection()) as client:
        yield client
