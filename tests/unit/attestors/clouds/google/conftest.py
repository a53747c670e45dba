from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from attestors.clouds.google import ComputeEngine, GoogleAccess
from tests.support.fake_google import FakeGoogle
from tests.unit.attestors.clouds.google.support import asking


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as running:
        yield running


@pytest.fixture
def access(google: FakeGoogle, tmp_path: Path) -> GoogleAccess:
    """With the key of the controller's service account."""
    return GoogleAccess(credentials_file=google.write_account_key(tmp_path), compute_url=google.compute_url)


@pytest.fixture
def compute(access: GoogleAccess) -> Iterator[ComputeEngine]:
    with asking(access) as engine:
        yield engine
