"""Secret ``<cluster>-signing``: what kube-controller-manager signs with, where the template has split pairs. Pure.

It is a Secret of its own because it holds keys. Secret ``<cluster>-trust`` has certificates alone, and may be shown to
all who look for the cluster's CAs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from signer.kube.client import JsonObject
from signer.rotation.authorities import AuthorityKind
from signer.rotation.facts import Absent, HeldPair, SigningFacts, Unusable
from signer.rotation.secrets import CERTIFICATE_KEY, PRIVATE_KEY, Pair, decoded, encoded, read_secret

CLIENT: Final = "client"
SERVING: Final = "serving"


def read_signing(manifest: JsonObject) -> SigningFacts | Absent | Unusable:
    """Read the Secret; an empty ``manifest`` is none."""
    if not manifest:
        return Absent()
    try:
        data = decoded(manifest)
    except ValueError as error:
        return Unusable(str(error))
    found = {}
    for purpose in (CLIENT, SERVING):
        pair = _pair(data, purpose)
        if isinstance(pair, Unusable):
            return pair
        found[purpose] = pair
    return SigningFacts(found[CLIENT], found[SERVING])


def _pair(data: Mapping[str, bytes], purpose: str) -> str | Unusable:
    """The digest of one pair. kube-controller-manager exits when it reads two certificates."""
    alone = {
        CERTIFICATE_KEY: data.get(f"{purpose}.crt", b""),
        PRIVATE_KEY: data.get(f"{purpose}.key", b""),
    }
    held = read_secret(AuthorityKind.CLUSTER, {"data": encoded(alone)}).held
    if not isinstance(held, HeldPair) or len(held.certificates) != 1:
        why = held.message if isinstance(held, Unusable) else "it must be one certificate with its key"
        return Unusable(f"{purpose}.crt and {purpose}.key: {why}")
    return held.signs.digest


def signing_data(client: Pair, serving: Pair) -> dict[str, bytes]:
    """``data``, not encoded."""
    return {
        f"{CLIENT}.crt": client.certificate,
        f"{CLIENT}.key": client.key,
        f"{SERVING}.crt": serving.certificate,
        f"{SERVING}.key": serving.key,
    }
