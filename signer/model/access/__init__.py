"""AccessGrant, AccessApproval and Bastion (``access.cluster.x-k8s.io/v1alpha1``) as immutable values.

People write these objects, and the API server may run without our validation: every parser is strict, and bounds sizes.
"""

from __future__ import annotations

from attestors.wire.ssh.container_names import Container, Pod, Workload, WorkloadKind
from signer.model.access.approval import AccessApproval, Decision, parse_access_approval
from signer.model.access.bastion import Bastion, BastionStatus, BastionTarget, Endpoint, NoEndpoint, parse_bastion
from signer.model.access.creator import Creator, CreatorNotStated, StatedCreator
from signer.model.access.digest import digest_of_spec
from signer.model.access.errors import InvalidAccessApproval, InvalidAccessGrant, InvalidAccessObject, InvalidBastion
from signer.model.access.grant import (
    AccessGrant,
    AsPolicySays,
    BastionChoice,
    BastionOf,
    NoBastion,
    Permissions,
    parse_access_grant,
    spec_digest,
)
from signer.model.access.metadata import (
    API_GROUP,
    API_VERSION,
    DeletedAt,
    GrantReference,
    NotDeleted,
    ObjectMetadata,
)
from signer.model.access.networks import parse_cidr
from signer.model.access.targets import (
    CONTAINER_LOGIN,
    AllNodes,
    GrantTarget,
    Nodes,
    NodeTarget,
)

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "CONTAINER_LOGIN",
    "AccessApproval",
    "AccessGrant",
    "AllNodes",
    "AsPolicySays",
    "Bastion",
    "BastionChoice",
    "BastionOf",
    "BastionStatus",
    "BastionTarget",
    "Container",
    "Creator",
    "CreatorNotStated",
    "Decision",
    "DeletedAt",
    "Endpoint",
    "GrantReference",
    "GrantTarget",
    "InvalidAccessApproval",
    "InvalidAccessGrant",
    "InvalidAccessObject",
    "InvalidBastion",
    "NoBastion",
    "NoEndpoint",
    "NodeTarget",
    "Nodes",
    "NotDeleted",
    "ObjectMetadata",
    "Permissions",
    "Pod",
    "StatedCreator",
    "Workload",
    "WorkloadKind",
    "digest_of_spec",
    "parse_access_approval",
    "parse_access_grant",
    "parse_bastion",
    "parse_cidr",
    "spec_digest",
]
