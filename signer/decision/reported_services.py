"""Reads from a workload cluster which networks its Services have. See :mod:`signer.model.service_networks`."""

from __future__ import annotations

from collections.abc import Mapping

from signer.kube.calls import Get
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import SERVICE_CIDRS, SERVICES
from signer.model.fields import items_of
from signer.model.service_networks import (
    NOT_REPORTED,
    ReportedServices,
    reported_by_kubernetes_service,
    reported_by_service_cidrs,
)


async def read_reported_services(client: Get) -> ReportedServices:
    """The ServiceCIDRs, or Service ``default/kubernetes`` if the API server serves none or does not let them be read.

    Nothing is reported if neither may be read.

    Raises:
        ApiError: any other error of the workload cluster.
    """
    for resource in SERVICE_CIDRS:
        try:
            listed = await client.get(resource.collection())
        except (NotFound, ResourceNotServed, Forbidden):
            continue
        reported = reported_by_service_cidrs(item for item in items_of(listed, "items") if isinstance(item, Mapping))
        if reported != NOT_REPORTED:
            return reported
    try:
        service = await client.get(SERVICES.object("kubernetes", "default"))
    except (NotFound, Forbidden):
        return NOT_REPORTED
    return reported_by_kubernetes_service(service)


async def try_to_read_reported_services(client: Get) -> ReportedServices:
    """The same for a command that has one attempt: nothing is reported if the workload cluster fails."""
    try:
        return await read_reported_services(client)
    except ApiError:
        return NOT_REPORTED
