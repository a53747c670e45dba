"""The host in a provider ID, for infrastructure providers whose hosts outlive their Machines.

Metal3's provider ID is ``metal3://<namespace>/<BareMetalHost>/<Metal3Machine>``: its last part changes with each
Machine on the same host (cluster-api-provider-metal3, ``baremetal/metal3machine_manager.go``). BYOH's is
``byoh://<ByoHost>/<suffix>`` (cluster-api-provider-bringyourownhost,
``controllers/infrastructure/byomachine_controller.go``).
"""

from __future__ import annotations

import re
from typing import Final

from attestors.contract import Host

_HOST: Final = re.compile(r"(metal3://[^/]+/[^/]+|byoh://[^/]+)(?:/[^/]+)?")
"""``metal3://<UID>``, the older form, has no host name and is left as it is."""


def host_of(provider_id: str) -> str:
    """The part of a provider ID that names the host; the whole provider ID for every other provider."""
    found = _HOST.fullmatch(provider_id)
    return provider_id if found is None else found[1]


def is_on_host(provider_id: str, host: Host) -> bool:
    """Whether the provider ID is that of a Machine on the host."""
    return host_of(provider_id) == host.reference
