"""Google Cloud, as far as attestors ask it: Compute Engine, with the operator's credentials, read-only.

Importing it needs no library of Google's; :func:`compute_engine` does (extra ``gcp``).
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
