"""Google Cloud for attestors: Compute Engine, read-only, with the operator's credentials.

Importing this package needs no Google library; :func:`compute_engine` does (extra ``gcp``).
"""

from __future__ import annotations

from attestors.clouds.google.answers import EncryptionKey, Instance, NoKey, ShieldedInstanceIdentity
from attestors.clouds.google.compute import ComputeEngine, compute_engine
from attestors.clouds.google.provider_id import (
    GCEProviderID,
    InvalidGCEName,
    InvalidGCEProviderID,
    check_instance_id,
    check_instance_name,
    check_project,
    check_zone,
)
from attestors.clouds.google.settings import GoogleAccess, parse_projects

__all__ = [
    "ComputeEngine",
    "EncryptionKey",
    "GCEProviderID",
    "GoogleAccess",
    "Instance",
    "InvalidGCEName",
    "InvalidGCEProviderID",
    "NoKey",
    "ShieldedInstanceIdentity",
    "check_instance_id",
    "check_instance_name",
    "check_project",
    "check_zone",
    "compute_engine",
    "parse_projects",
]
