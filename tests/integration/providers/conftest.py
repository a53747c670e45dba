"""One management cluster and one controller for all worlds of a module."""

from __future__ import annotations

import pytest

from tests.integration.fixtures import Harness, keyed_mac
from tests.integration.tpm.whose import OperatorFolder
from tests.support.byoh import define_byoh
from tests.support.metal3 import define_metal3


@pytest.fixture(scope="module")
def worlds(shared_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """A running controller with the attestors keyed-mac and tpm."""
    define_metal3(shared_harness.management)
    define_byoh(shared_harness.management)
    shared_harness.run(attestors={**keyed_mac(), **OperatorFolder(tmp_path_factory.mktemp("operator")).attestors})
    return shared_harness
