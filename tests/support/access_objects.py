"""AccessGrants, AccessApprovals and Bastions as an API server gives them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

USER_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIABzOXEYoD5OAMXqr1ENdFQAftansBNh/h6l9rDHmPgD"
AUTHORITY_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPjHUyfKmhKPaLC7D8u6oh1z9UIgXVy2Pj29E940gSaA"
GRANT_UID: Final = "7b1a2f9e-58a4-4ad1-9a55-0d6fdf9a3c11"
CREATED: Final = "2026-11-27T14:00:00Z"
ALICE: Final[Mapping[str, Any]] = {"username": "alice", "uid": "u-1", "groups": ["system:authenticated", "team-a"]}
BOB: Final[Mapping[str, Any]] = {"username": "bob", "uid": "u-2", "groups": ["system:authenticated", "team-a"]}
API_VERSION: Final = "access.cluster.x-k8s.io/v1alpha1"


def metadata(name: str, uid: str, **more: Any) -> dict[str, Any]:
    """``metadata`` with what an API server always sets."""
    return {
        "namespace": "team-a",
        "name": name,
        "uid": uid,
        "resourceVersion": "17",
        "generation": 1,
        "creationTimestamp": CREATED,
        **more,
    }


def grant_object(name: str = "repair", /, *, creator: Mapping[str, Any] = ALICE, **spec: Any) -> dict[str, Any]:
    """A grant to worker-1 of the cluster production. A field of ``spec`` that is None is left out."""
    full = {
        "clusterRef": {"name": "production"},
        "target": {"nodes": ["worker-1"]},
        "sshPublicKey": USER_KEY,
        "createdBy": copy.deepcopy(dict(creator)),
        **spec,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "AccessGrant",
        "metadata": metadata(name, GRANT_UID),
        "spec": {field: value for field, value in full.items() if value is not None},
    }


def approval_object(
    name: str = "yes", /, *, digest: str = "0" * 64, creator: Mapping[str, Any] = BOB, **spec: Any
) -> dict[str, Any]:
    """Bob's approval of the grant ``repair``."""
    full = {
        "grantRef": {"name": "repair", "uid": GRANT_UID},
        "decision": "Approve",
        "specDigest": digest,
        "createdBy": copy.deepcopy(dict(creator)),
        **spec,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "AccessApproval",
        "metadata": metadata(name, "0c0f3c0e-7d6a-4bb0-8a66-ff8a1b6a7d02"),
        "spec": {field: value for field, value in full.items() if value is not None},
    }


def bastion_object(name: str = "repair", /, **spec: Any) -> dict[str, Any]:
    """The bastion of the grant ``repair``."""
    full = {
        "grantRef": {"name": "repair", "uid": GRANT_UID},
        "clusterRef": {"name": "production"},
        "provider": "local",
        "ingress": [{"ipBlock": {"cidr": "198.51.100.7/32"}}],
        "userAuthorities": [AUTHORITY_KEY],
        "principal": f"bastion@{GRANT_UID}",
        "targets": [{"addresses": ["10.0.0.5"], "port": 22}],
        "notAfter": "2026-11-27T22:00:00Z",
        **spec,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Bastion",
        "metadata": metadata(name, "5d1c2b6a-3a0e-4f4a-a9b1-5a1b8c0d9e03"),
        "spec": {field: value for field, value in full.items() if value is not None},
    }
