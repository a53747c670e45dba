"""Cluster API's own CustomResourceDefinitions, which this project does not distribute."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "NODE_ATTESTATION_CAPI_CRDS"


def cluster_api_crds() -> Path | None:
    """The folder of the variable, for ``ManagementCluster``; None to use this project's reduced definitions."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None
