"""Cluster API's own CustomResourceDefinitions, which are not ours to carry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "NODE_ATTESTATION_CAPI_CRDS"


def cluster_api_crds() -> Path | None:
    """The folder that the variable names, for ``ManagementCluster``; without it reduced ones of ours do."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None
