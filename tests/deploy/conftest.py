"""Fixtures of the tests of ``deploy/node``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from signer.testing.certificates import new_cluster_certificate_authority
from tests.deploy.machine import Machine, new_machine

NewMachine = Callable[..., Machine]


@pytest.fixture(scope="session")
def cluster_ca() -> bytes:
    """The CA certificate that kubeadm's discovery finds."""
    return new_cluster_certificate_authority().certificate


@pytest.fixture
def machine_from_image(tmp_path: Path, cluster_ca: bytes) -> NewMachine:
    """Create a machine that has never joined."""

    def make(*, programs: str = "/usr/local/bin") -> Machine:
        return new_machine(tmp_path / "root", cluster_ca, programs=programs)

    return make
