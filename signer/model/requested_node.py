"""The nodes in whose name a CSR speaks, to find the requests of a node. They are claims, and decide nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attestors.wire.names import NODE_USER_PREFIX
from signer.model.fields import mapping_of, text_of
from signer.model.signing_request import BuiltinServingRequest, SigningRequest, parse_signing_request


def requested_node_names(
    manifest: Mapping[str, Any], providers: frozenset[str], provider_id_oids: tuple[str, ...]
) -> frozenset[str]:
    """The node names in the subject of a CSR, and that of the node that posted it, whatever its conditions are.

    Of a CSR to another signer, or one that cannot be read, it is that of the node that posted it.
    """
    parsed = parse_signing_request({**manifest, "status": {}}, providers, provider_id_oids)
    users = [text_of(mapping_of(manifest, "spec"), "username")]
    if isinstance(parsed, SigningRequest | BuiltinServingRequest):
        users += [attribute.value for names in parsed.certificate_request.subject for attribute in names]
    return frozenset(user.removeprefix(NODE_USER_PREFIX) for user in users if user.startswith(NODE_USER_PREFIX))
