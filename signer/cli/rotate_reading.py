"""Reads what the management cluster says of a rotation."""

from __future__ import annotations

from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.rotation.view import View, rotation_view


class NoPolicy(Exception):
    """The Cluster has no NodeAttestationPolicy."""


async def read_policy(management: Get, key: ClusterKey) -> JsonObject:
    """The Cluster's policy.

    Raises:
        NoPolicy: there is none.
        ApiError: it cannot be read.
    """
    try:
        return await management.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace))
    except NotFound:
        raise NoPolicy(
            f"Cluster {key} has no NodeAttestationPolicy, which rotations are ordered by: is that its name?"
        ) from None


async def read_rotation(management: Get, key: ClusterKey) -> JsonObject:
    """The Cluster's CertificateAuthorityRotation; empty if there is none, or the caller may not read it.

    Raises:
        ApiError: the management cluster cannot be asked.
    """
    try:
        return await management.get(CERTIFICATE_AUTHORITY_ROTATIONS.object(key.name, key.namespace))
    except (NotFound, Forbidden, ResourceNotServed):
        return {}


async def read_view(management: Get, key: ClusterKey) -> View:
    """What the management cluster says of the rotation now.

    Raises:
        NoPolicy, ApiError: see :func:`read_policy`.
    """
    policy = await read_policy(management, key)
    return rotation_view(key, policy, await read_rotation(management, key))
