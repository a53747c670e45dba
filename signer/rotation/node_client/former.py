"""The former node-client authority: Secret ``<cluster>-node-client-ca-old``, from an order until long after its end.

It has the former pair until every API server refuses it, and its certificate alone from then on. An annotation says
which order replaced it, and whether nodes are waited for. The controller seals both together: nobody else can have an
authority dropped, or a node not waited for.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from attestors.wire.names import ANNOTATION_PREFIX
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterView
from signer.model.fields import mapping_of, text_of
from signer.model.seal import Authentic, ControllerKeys, Generation, KeyUse, Seals, joined
from signer.rotation.authorities import AuthorityKind, AuthorityReference
from signer.rotation.facts import Absent, HeldCertificate, HeldPair, Unusable
from signer.rotation.secrets import (
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    SEAL_ANNOTATION,
    NoPair,
    Pair,
    published_manifest,
    read_secret,
)

FORMER_SUFFIX: Final = "node-client-ca-old"
RETIREMENT_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/node-client-retirement"
_KEYS: Final = frozenset({"order", "since", "nodes"})


class NodesGate(enum.Enum):
    """Whether the former authority stays accepted while nodes have its certificates."""

    WAITED_FOR = "WaitedFor"
    SKIPPED = "Skipped"
    """A person ordered that: nodes that still have its certificates are refused, and must join again."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """What a person ordered."""

    order: str
    """The last order that was carried out: the same one is never carried out twice."""
    since: datetime
    """Of the first order, to the second. Also the sequence of what nodes are told."""
    nodes: NodesGate = NodesGate.WAITED_FOR

    def __post_init__(self) -> None:
        assert not self.since.microsecond


@dataclass(frozen=True, slots=True)
class Retiring:
    """It has its key still, and some API server may accept it."""

    authority: AuthorityReference
    retirement: Retirement


@dataclass(frozen=True, slots=True)
class Retired:
    """No API server accepts it. Its key was deleted."""

    authority: AuthorityReference
    retirement: Retirement


Former: TypeAlias = Retiring | Retired | Unusable | Absent


@dataclass(frozen=True, slots=True)
class ReadFormer:
    """What the Secret holds, the pair, and the version that was read."""

    former: Former
    pair: Pair | NoPair = field(default_factory=NoPair)
    manifest: JsonObject = field(default_factory=dict, repr=False)
    """Empty if there is none."""
    sealed_with: Generation = Generation.CURRENT


def read_former(manifest: JsonObject, keys: ControllerKeys) -> ReadFormer:
    """Read the Secret, empty if there is none. One that this controller did not seal is Unusable."""
    if not manifest:
        return ReadFormer(Absent())
    read = read_secret(AuthorityKind.CLUSTER, manifest)
    if isinstance(read.held, HeldPair):
        reference = read.held.signs
    elif isinstance(read.held, HeldCertificate):
        reference = read.held.certificate
    else:
        message = read.held.message if isinstance(read.held, Unusable) else "it is empty"
        return ReadFormer(Unusable(message), manifest=manifest)
    metadata = mapping_of(manifest, "metadata")
    annotations = mapping_of(metadata, "annotations")
    text = text_of(annotations, RETIREMENT_ANNOTATION)
    name, namespace = text_of(metadata, "name"), text_of(metadata, "namespace")
    verified = Seals(keys, KeyUse.ROTATION_PAIR).verify(
        text_of(annotations, SEAL_ANNOTATION), lambda: _content(name, namespace, reference, text)
    )
    if not isinstance(verified, Authentic):
        message = f"this controller did not put it there: {verified.fault.value}"
        return ReadFormer(Unusable(message), manifest=manifest)
    kind = Retiring if isinstance(read.held, HeldPair) else Retired
    return ReadFormer(kind(reference, _retirement(text)), read.pair, manifest, verified.generation)


def former_manifest(
    before: JsonObject,
    former: Retiring | Retired,
    data: Mapping[str, bytes],
    cluster: ClusterView,
    owner_version: str,
    keys: ControllerKeys,
) -> JsonObject:
    """The Secret with that content, to be created, or to replace ``before`` at exactly that version."""
    fresh = published_manifest(FORMER_SUFFIX, cluster, owner_version, data)
    kept = {**before, "data": fresh["data"]} if before else fresh
    text = _text(former.retirement)
    metadata: Mapping[str, Any] = kept["metadata"]
    seal = Seals(keys, KeyUse.ROTATION_PAIR).seal(
        _content(str(metadata["name"]), cluster.key.namespace, former.authority, text)
    )
    own = {RETIREMENT_ANNOTATION: text, SEAL_ANNOTATION: seal}
    annotations = {**mapping_of(metadata, "annotations"), **own}
    return {**kept, "metadata": {**metadata, "annotations": annotations}}


def with_key(pair: Pair) -> dict[str, bytes]:
    """``data`` of the Secret while API servers may accept the authority."""
    return {CERTIFICATE_KEY: pair.certificate, PRIVATE_KEY: pair.key}


def without_key(pair: Pair) -> dict[str, bytes]:
    """``data`` of the Secret from then on."""
    return {CERTIFICATE_KEY: pair.certificate}


def skipping_nodes(former: Retiring, order: str) -> Retiring:
    """The same, and nodes are waited for no longer."""
    return replace(former, retirement=replace(former.retirement, order=order, nodes=NodesGate.SKIPPED))


def _text(retirement: Retirement) -> str:
    return json.dumps(
        {
            "order": retirement.order,
            "since": int(retirement.since.timestamp()),
            "nodes": retirement.nodes.value,
        }
    )


def _retirement(text: str) -> Retirement:
    """What this controller wrote: the seal was verified."""
    found = json.loads(text)
    assert set(found) == _KEYS
    return Retirement(found["order"], datetime.fromtimestamp(found["since"], UTC), NodesGate(found["nodes"]))


def _content(name: str, namespace: str, reference: AuthorityReference, retirement: str) -> str:
    """Another number of parts than in the seal of a pair, and their lengths: neither seal counts as the other."""
    return joined(namespace, name, reference.digest, reference.public_key_hash, retirement)


__all__ = [
    "FORMER_SUFFIX",
    "RETIREMENT_ANNOTATION",
    "Former",
    "NodesGate",
    "ReadFormer",
    "Retired",
    "Retirement",
    "Retiring",
    "former_manifest",
    "read_former",
    "skipping_nodes",
    "with_key",
    "without_key",
]
