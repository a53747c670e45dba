"""The ByoHost on which a Machine of the provider BYOH runs (cluster-api-provider-bringyourownhost v0.5.0).

A ByoMachine does not name its host. The provider's controller labels a ByoHost with the ByoMachine, and finds the host
by this label (``controllers/infrastructure/byomachine_controller.go``, ``attachByoHost``, ``FetchAttachedByoHost``).
The agent on a host writes its own ByoHost too, so a hostile host can label itself. Its label alone makes it the host of
a ByoMachine that has none yet, for the provider as well. If another host has the label, neither is believed. Nothing
else of a ByoHost is used.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import Final

from attestors.contract import Host, NotThere
from signer.kube.calls import List
from signer.kube.errors import Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import BYO_HOSTS
from signer.model.fields import mapping_of, text_of

BYO_MACHINE: Final = "ByoMachine"
_LABEL: Final = "byoh.infrastructure.cluster.x-k8s.io/byomachine-name"
"""Of a ByoHost: ``<namespace>.<name>`` of its ByoMachine (``apis/infrastructure/v1beta1/byohost_types.go``)."""
_MAXIMUM_LABEL_CHARACTERS: Final = 63
_ENOUGH: Final = 2


async def byo_host_of(client: List, namespace: str, name: str) -> Host | NotThere:
    """The one ByoHost of the namespace that is labelled with the ByoMachine; NotThere if there is none, if there are
    several, or if the grant is missing.

    Raises:
        ApiError: any other error of the management cluster.
    """
    what, label = f"{BYO_MACHINE} {namespace}/{name}", f"{namespace}.{name}"
    if len(label) > _MAXIMUM_LABEL_CHARACTERS:
        return NotThere(f"{what} has no host: its name is too long for label {_LABEL} of ByoHosts")
    try:
        hosts = await _labelled(client, namespace, label)
    except (NotFound, ResourceNotServed):
        return NotThere("the definition of ByoHosts does not exist")
    except Forbidden:
        return NotThere(f"ByoHosts may not be read: the grant to list byohosts in {namespace} is missing")
    if not hosts:
        return NotThere(f"no ByoHost of namespace {namespace} is labelled with {what} (yet)")
    if len(hosts) > 1:
        return NotThere(f"ByoHosts {' and '.join(hosts)} are both labelled with {what}")
    return Host(f"byoh://{hosts[0]}", MappingProxyType({}))


async def _labelled(client: List, namespace: str, label: str) -> tuple[str, ...]:
    """The names of the first ByoHosts with that label."""
    found: list[str] = []
    selector = {"labelSelector": f"{_LABEL}={label}"}
    async with contextlib.aclosing(client.list_pages(BYO_HOSTS.collection(namespace), selector, _ENOUGH)) as pages:
        async for page in pages:
            found += [text_of(mapping_of(item, "metadata"), "name") for item in page["items"]]
            if len(found) >= _ENOUGH:
                break
    return tuple(found[:_ENOUGH])
