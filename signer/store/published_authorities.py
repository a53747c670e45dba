"""``status.certificateAuthorities`` of a NodeAttestationPolicy: the CAs of its cluster, for the other replicas.

The hashes are public. The seal keeps a writer of a policy's status from claiming another Cluster's CA, which would have
that Cluster's nodes wait.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.authority_sharing import AuthorityHashes
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, text_of
from signer.model.seal import Authentic, ControllerKeys, KeyUse, Seals, joined

FIELD: Final = "certificateAuthorities"
MAXIMUM_HASHES: Final = 64
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MAXIMUM_SEAL_CHARACTERS: Final = 128


@dataclass(frozen=True, slots=True)
class PublishedAuthorities:
    """What a policy's status says, well formed and not verified."""

    policy_uid: str
    hashes: AuthorityHashes
    seal: str

    def is_sealed(self, cluster: ClusterKey, keys: ControllerKeys) -> bool:
        """Whether the controller sealed it for that policy."""
        verified = _seals(keys).verify(self.seal, lambda: _content(cluster, self.policy_uid, self.hashes))
        return isinstance(verified, Authentic)


NOTHING_PUBLISHED: Final = PublishedAuthorities("", AuthorityHashes(), "")


def read_published_authorities(manifest: Mapping[str, Any]) -> PublishedAuthorities:
    """The field of a policy; what is malformed counts as not there."""
    field = mapping_of(mapping_of(manifest, "status"), FIELD)
    seal = text_of(field, "seal")
    keys, issuers = _hashes(field.get("keys")), _hashes(field.get("issuers"))
    if not keys or len(seal) > _MAXIMUM_SEAL_CHARACTERS:
        return NOTHING_PUBLISHED
    return PublishedAuthorities(
        text_of(mapping_of(manifest, "metadata"), "uid"), AuthorityHashes(keys, issuers - keys), seal
    )


def _hashes(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > MAXIMUM_HASHES:
        return frozenset()
    return frozenset(one for one in value if isinstance(one, str) and _HASH.fullmatch(one))


def authorities_to_publish(
    cluster: ClusterKey, policy_uid: str, hashes: AuthorityHashes, keys: ControllerKeys
) -> dict[str, Any]:
    """The field for that policy's status. It is the same for the same CAs and key."""
    shown = AuthorityHashes(hashes.keys, frozenset(sorted(hashes.issuers)[:MAXIMUM_HASHES]))
    return {
        "keys": sorted(shown.keys),
        "issuers": sorted(shown.issuers),
        "seal": _seals(keys).seal(_content(cluster, policy_uid, shown)),
    }


def _seals(keys: ControllerKeys) -> Seals:
    return Seals(keys, KeyUse.AUTHORITIES)


def _content(cluster: ClusterKey, policy_uid: str, hashes: AuthorityHashes) -> str:
    return joined(
        cluster.namespace,
        cluster.name,
        policy_uid,
        str(len(hashes.keys)),
        *sorted(hashes.keys),
        *sorted(hashes.issuers),
    )
