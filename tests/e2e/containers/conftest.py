"""One node with real containers for all tests of this folder, which run one after the other (tests/conftest.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.cluster import ContainerCluster, running_kubelet


@pytest.fixture(scope="package")
def container_cluster() -> Iterator[ContainerCluster]:
    """Each test makes Pods of its own. If something of the node is left in the end, the last test fails.

    It ends with the folder's last test, not with the run: a node that waits takes a twentieth of a core.
    """
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_kubelet())
        except MissingPart as missing:
            skip_or_fail(missing)
        yield cluster
        cluster.check_running()
