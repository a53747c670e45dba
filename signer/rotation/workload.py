"""What a workload cluster says about the trust that it publishes. Its answers can only hold a rotation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from signer.kube.calls import Get, GetList
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.rotation.bundles import UnreadableBundle, bundle_of, digest_of, digests_in, read_bundle
from signer.rotation.facts import Absent, AuthenticationFacts, Bundle, NotObserved, RootCAFacts
from signer.rotation.kubeconfigs import cluster_info_authorities

CLUSTER_INFO: Final = CONFIG_MAPS.object("cluster-info", "kube-public")
AUTHENTICATION: Final = CONFIG_MAPS.object("extension-apiserver-authentication", "kube-system")
CLIENT_CA_FIELD: Final = "client-ca-file"
REQUEST_HEADER_FIELD: Final = "requestheader-client-ca-file"
_ROOT_CA: Final = "kube-root-ca.crt"
_MAXIMUM_NAMESPACES: Final = 20_000
_MAXIMUM_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """What was read in one pass, and the objects that are to be written at exactly this version."""

    cluster_info: Bundle | Absent | NotObserved
    authentication: AuthenticationFacts | NotObserved
    root_ca: RootCAFacts | NotObserved
    cluster_info_object: JsonObject = field(default_factory=dict, repr=False)
    authentication_object: JsonObject = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TwoDigests:
    """Old and new CA."""

    old: str
    new: str


async def read_workload(client: GetList, digests: TwoDigests) -> WorkloadFacts:
    """Read all of it. What cannot be read is NotObserved."""
    info, info_object = await _cluster_info(client)
    authentication, authentication_object = await read_authentication(client)
    root_ca = await _root_ca(client, digests)
    return WorkloadFacts(info, authentication, root_ca, info_object, authentication_object)


def unreachable(message: str) -> WorkloadFacts:
    """There is no connection."""
    nothing = NotObserved(message)
    return WorkloadFacts(nothing, nothing, nothing)


async def _cluster_info(client: GetList) -> tuple[Bundle | Absent | NotObserved, JsonObject]:
    try:
        found = await client.get(CLUSTER_INFO)
    except NotFound:
        return Absent(), {}  # by choice: workers join by other means than kubeadm's tokens
    except ApiError as error:
        return NotObserved(printable(str(error))), {}
    return cluster_info_authorities(found), found


async def read_authentication(client: Get) -> tuple[AuthenticationFacts | NotObserved, JsonObject]:
    """ConfigMap ``extension-apiserver-authentication``, and the object to be written at exactly this version."""
    try:
        found = await client.get(AUTHENTICATION)
    except NotFound:
        return AuthenticationFacts((), ()), {}
    except ApiError as error:
        return NotObserved(printable(str(error))), {}
    data = mapping_of(found, "data")
    client_ca, request_header = (
        digests_in(text_of(data, name).encode("utf-8")) for name in (CLIENT_CA_FIELD, REQUEST_HEADER_FIELD)
    )
    for bundle in (client_ca, request_header):
        if isinstance(bundle, UnreadableBundle):
            return NotObserved(bundle.message), found
    assert not isinstance(client_ca, UnreadableBundle)
    assert not isinstance(request_header, UnreadableBundle)
    return AuthenticationFacts(client_ca, request_header), found


def pruned(before: JsonObject, digests: AbstractSet[str]) -> JsonObject:
    """ConfigMap ``extension-apiserver-authentication`` without those CAs."""
    data = dict(mapping_of(before, "data"))
    for name in (CLIENT_CA_FIELD, REQUEST_HEADER_FIELD):
        found = read_bundle(str(data.get(name) or "").encode("utf-8"))
        if isinstance(found, tuple) and found:
            data[name] = bundle_of(*(der for der in found if digest_of(der) not in digests)).decode("ascii")
    return {**before, "data": data}


async def _root_ca(client: GetList, digests: TwoDigests) -> RootCAFacts | NotObserved:
    count, without_new, with_old = 0, set[str](), set[str]()
    pages = client.list_pages(
        CONFIG_MAPS.collection(), {"fieldSelector": f"metadata.name={_ROOT_CA}"}, maximum_bytes=_MAXIMUM_BYTES
    )
    try:
        async with contextlib.aclosing(pages):
            async for page in pages:
                for item in page["items"]:
                    count += 1
                    namespace, held = _root_bundle(item)
                    if digests.new not in held:
                        without_new.add(namespace)
                    if digests.old in held:
                        with_old.add(namespace)
                if count > _MAXIMUM_NAMESPACES:
                    return NotObserved(f"the workload cluster has more than {_MAXIMUM_NAMESPACES} namespaces")
    except ApiError as error:
        return NotObserved(printable(str(error)))
    return RootCAFacts(count, tuple(sorted(without_new)), tuple(sorted(with_old)))


def _root_bundle(item: Mapping[str, Any]) -> tuple[str, Bundle]:
    """Namespace and digests; an unreadable bundle has none."""
    held = digests_in(text_of(mapping_of(item, "data"), "ca.crt").encode("utf-8"))
    namespace = printable(text_of(mapping_of(item, "metadata"), "namespace"))
    return namespace, () if isinstance(held, UnreadableBundle) else held
