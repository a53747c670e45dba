"""The product's CustomResourceDefinitions, as YAML beside this module.

``deploy/crds`` and ``deploy/crds-access`` hold copies for ``kubectl apply``; a test compares them.
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

ACCESS_CRD_FILES: Final = (
    "access.cluster.x-k8s.io_accessgrants.yaml",
    "access.cluster.x-k8s.io_accessapprovals.yaml",
    "access.cluster.x-k8s.io_bastions.yaml",
)
"""Needed only where a controller runs with ``--access``."""


def custom_resource_definitions() -> tuple[str, ...]:
    """The YAML of every CustomResourceDefinition but those of access, in the order of :data:`CRD_FILES`."""
    return _texts(CRD_FILES)


def access_definitions() -> tuple[str, ...]:
    """The YAML of the CustomResourceDefinitions of access, in the order of :data:`ACCESS_CRD_FILES`."""
    return _texts(ACCESS_CRD_FILES)


def _texts(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(files(__name__).joinpath(name).read_text(encoding="utf-8") for name in names)
