"""The product's CustomResourceDefinitions, as YAML beside this module.

``deploy/crds`` holds copies for ``kubectl apply``; a test compares them.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

CRD_FILES: Final = (
    "attestation.cluster.x-k8s.io_nodeattestationpolicies.yaml",
    "attestation.cluster.x-k8s.io_attestednodes.yaml",
    "attestation.cluster.x-k8s.io_identityreservations.yaml",
    "attestation.cluster.x-k8s.io_certificateauthorityrotations.yaml",
)


def custom_resource_definitions() -> tuple[str, ...]:
    """The YAML of every CustomResourceDefinition, in the order of :data:`CRD_FILES`."""
    return tuple(files(__name__).joinpath(name).read_text(encoding="utf-8") for name in CRD_FILES)
