"""Which version of validating admission policies an API server serves, if any."""

from __future__ import annotations

from dataclasses import dataclass

from signer.admission.manifests import AdmissionVersion
from signer.kube.calls import Get
from signer.kube.discovery import served_plurals
from signer.kube.errors import ResourceNotServed


@dataclass(frozen=True, slots=True)
class NotServed:
    """The API server serves no validating admission policies, as before Kubernetes 1.30 by default."""


async def served_admission(client: Get) -> AdmissionVersion | NotServed:
    """The best served version.

    Raises:
        ApiError: the API server cannot be asked.
    """
    for version in AdmissionVersion:
        try:
            plurals = await served_plurals(client, version.policies.group, version.value)
        except ResourceNotServed:
            continue
        if {version.policies.plural, version.bindings.plural} <= plurals:
            return version
    return NotServed()
