"""The grant by which nodes read the trust bundle: a Role on one ConfigMap, for group ``system:nodes``."""

from __future__ import annotations

import contextlib
from typing import Final

from attestors.wire.names import NODES_GROUP
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_NAMESPACE
from signer.kube.calls import GetCreate
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, NotFound
from signer.kube.resources import ROLE_BINDINGS, ROLES

READERS: Final = "node-access-trust"
"""Name of the Role and of its binding, as in ``deploy/rbac/workload-ssh.yaml``."""
_GROUP: Final = "rbac.authorization.k8s.io"
_METADATA: Final = {"name": READERS, "namespace": STATEMENT_NAMESPACE}
_ROLE: Final[JsonObject] = {
    "apiVersion": ROLES.api_version,
    "kind": "Role",
    "metadata": _METADATA,
    "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NODE_ACCESS_CONFIG_MAP], "verbs": ["get"]}
    ],
}
_BINDING: Final[JsonObject] = {
    "apiVersion": ROLE_BINDINGS.api_version,
    "kind": "RoleBinding",
    "metadata": _METADATA,
    "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": READERS},
    "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": NODES_GROUP}],
}


async def ensure_readers(client: GetCreate) -> None:
    """Create the grant unless it exists. What somebody made of it is left alone.

    Raises:
        ApiError: it cannot be read or created; Forbidden for a kubeconfig that is no administrator's.
    """
    for resource, body in ((ROLES, _ROLE), (ROLE_BINDINGS, _BINDING)):
        try:
            await client.get(resource.object(READERS, STATEMENT_NAMESPACE))
        except NotFound:
            with contextlib.suppress(AlreadyExists):
                await client.create(resource.collection(STATEMENT_NAMESPACE), body)
