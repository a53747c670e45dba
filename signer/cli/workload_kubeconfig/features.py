"""The features for which a restricted kubeconfig has rights."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Feature(enum.Enum):
    """What the controller does in the cluster. The value is the name of the flag."""

    ENFORCE = "enforce"
    BOOTSTRAP_TOKENS = "bootstrap-tokens"
    """Its role may read every Secret of kube-system."""
    ROTATION = "rotation"
    ROTATION_SPLIT = "rotation-split"
    SSH = "ssh"
    CONTAINERS = "containers"
    CONTAINERS_TOOLS = "containers-tools"


FEATURES: Final[Mapping[Feature, str]] = {
    Feature.BOOTSTRAP_TOKENS: "also the Secrets of bootstrap tokens: their extra groups, and machinePools: Extend. It "
    "lets the controller read and change every Secret of kube-system",
    Feature.ROTATION: "also for rotations of CAs (--rotate-authorities)",
    Feature.ROTATION_SPLIT: "also for split signing pairs",
    Feature.SSH: "also for the SSH trust bundle (--ssh)",
    Feature.CONTAINERS: "also for SSH into containers (--containers)",
    Feature.CONTAINERS_TOOLS: "also for tools containers (access.toolsImage)",
}
"""Those that have a flag of their own, each with its help."""
