"""The host in a provider ID, for infrastructure providers whose hosts outlive their Machines.

Metal3's provider ID is ``metal3://<namespace>/<BareMetalHost>/<Metal3Machine>``: its last part changes with each
Machine on the same host (cluster-api-provider-metal3, ``baremetal/metal3machine_manager.go``). BYOH's is
``byoh://<ByoHost>/<suffix>`` (cluster-api-provider-bringyourownhost v0.5.0,
``controllers/infrastructure/byomachine_controller.go``).
"""

from __future__ import annotations

import re
from typing import Final

from attestors.contract import Host
from attestors.tpm.endorsement_key_sources.answer import SourceName

_HOST: Final = re.compile(r"(?P<host>metal3://[^/]+/[^/]+|byoh://(?P<node>[^/]+))(?:/[^/]+)?")
"""``metal3://<UID>``, the older form, has no host name and is left as it is."""
_NAME_NODES: Final = frozenset({SourceName.INVENTORY})
"""Sources that name the host of a key. The annotations name the key of one Machine or of an object that is not the
host, and the host of a provider ID is then only claimed."""


def host_of(provider_id: str) -> str:
    """The part of a provider ID that names the host; the whole provider ID for every other provider."""
    found = _HOST.fullmatch(provider_id)
    return provider_id if found is None else found["host"]


def is_on_host(provider_id: str, host: Host) -> bool:
    """Whether the provider ID is that of a Machine on the host."""
    return host_of(provider_id) == host.reference


def writes_its_own_object(host: Host) -> bool:
    """Whether the host itself writes its object, so that the object cannot say which TPM the host has.

    The agent on a BYOH host creates and updates its ByoHost (BYOH v0.5.0, ``config/rbac/byohost_editor_role.yaml``).
    """
    return host.reference.startswith("byoh://")


def proven_node_names(source: SourceName, provider_id: str) -> tuple[str, ...]:
    """The node name that is proven once ``source`` has confirmed the key for the provider ID; empty if none is.

    BYOH requires that the Node is called like its ByoHost (``setNodeProviderID``). A Metal3 host gives its node no
    name.
    """
    found = _HOST.fullmatch(provider_id)
    if source not in _NAME_NODES or found is None or found["node"] is None:
        return ()
    return (found["node"],)
