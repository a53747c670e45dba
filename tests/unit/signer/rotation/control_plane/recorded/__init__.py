"""Objects of Cluster API and of a workload cluster, as their API servers return them."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from tests.support.yaml_documents import safe_load

KUBEADM = ("kubeadm-control-plane-v1beta1", "kubeadm-control-plane-v1beta2")


def recorded(name: str) -> dict[str, Any]:
    """A copy of a recorded object."""
    return copy.deepcopy(_loaded(name))


@functools.cache
def _loaded(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
    return manifest
