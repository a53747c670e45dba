"""Marks of a bastion's resources in a cloud, as tags or labels, and what they say of resources in a list. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from node_access.bastions.contract import BastionReference, InvalidBastion, OwnedResources

UID_MARK: Final = "access.cluster.x-k8s.io/bastion-uid"
OWNER_MARK: Final = "access.cluster.x-k8s.io/owner"
BASTION_MARK: Final = "access.cluster.x-k8s.io/bastion"
"""``NAMESPACE/NAME``, for people."""
CLUSTER_MARK: Final = "access.cluster.x-k8s.io/cluster"
"""Of the Cluster, for people."""
LONG_AGO: Final = datetime.fromtimestamp(0, UTC)
"""When a resource was made that does not say so readably."""
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Found:
    """One resource with the owner's mark."""

    text: str
    """What it is, for people, such as ``instance i-0123``."""
    bastion: str
    """The value of :data:`BASTION_MARK`, which somebody may have changed."""
    cluster: str
    made_at: datetime


def owned(uid: str, resources: Sequence[Found], now: datetime) -> Iterator[OwnedResources]:
    """The resources with one UID: one answer, or none if the UID is none of ours. Then it is somebody else's."""
    namespace, _, name = resources[0].bastion.partition("/")
    for names in ((namespace, name, resources[0].cluster), (_UNKNOWN, _UNKNOWN, _UNKNOWN)):
        try:
            reference = BastionReference(uid, *names)
        except InvalidBastion:
            continue  # somebody changed the marks, or it is no UID
        age = now - max(one.made_at for one in resources)
        yield OwnedResources(reference, max(timedelta(), age), tuple(one.text for one in resources))
        return
