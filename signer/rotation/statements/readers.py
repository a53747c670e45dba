"""The grant by which nodes read a statement: a Role on one ConfigMap, for group ``system:nodes``."""

from __future__ import annotations

import contextlib
from typing import Final

from attestors.wire.names import NODES_GROUP
from attestors.wire.statement.names import STATEMENT_NAMESPACE
from signer.kube.calls import GetCreate
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, NotFound
from signer.kube.resources import ROLE_BINDINGS, ROLES

_GROUP: Final = "rbac.authorization.k8s.io"


async def ensure_readers(client: GetCreate, config_map: str) -> None:
    """Create the grant unless it exists. What somebody made of it is left alone.

    Role and binding have the ConfigMap's name, as in ``deploy/rbac/workload-rotation.yaml`` and ``workload-ssh.yaml``.

    Raises:
        ApiError: it cannot be read or created; Forbidden for a kubeconfig that is no administrator's.
    """
    for resource, body in ((ROLES, _role(config_map)), (ROLE_BINDINGS, _binding(config_map))):
        try:
            await client.get(resource.object(config_map, STATEMENT_NAMESPACE))
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await client.create(resource.collection(STATEMENT_NAMESPACE), body)


def _role(config_map: str) -> JsonObject:
    return {
        "apiVersion": ROLES.api_version,
        "kind": "Role",
        "metadata": {"name": config_map, "namespace": STATEMENT_NAMESPACE},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [config_map], "verbs": ["get"]}],
    }


def _binding(config_map: str) -> JsonObject:
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": {"name": config_map, "namespace": STATEMENT_NAMESPACE},
        "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": config_map},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": NODES_GROUP}],
    }
