"""Names of Clusters in arguments."""

from __future__ import annotations

from signer.model.cluster import ClusterKey
from signer.model.command_failures import InputRefused
from signer.model.decision import printable
from signer.model.object_names import NAMESPACE, OBJECT_NAME


class WrongUse(InputRefused, ValueError):
    """The arguments are invalid; the message says which."""


def cluster_key(text: str, *, default_namespace: str) -> ClusterKey:
    """Parse NAME or NAMESPACE/NAME.

    Raises:
        WrongUse: ``text`` is neither.
    """
    of, _, name = text.rpartition("/")
    of = of or default_namespace
    if NAMESPACE.fullmatch(of) is None or OBJECT_NAME.fullmatch(name) is None:
        raise WrongUse(f"{printable(text)!r} is not a Cluster name: write NAMESPACE/NAME")
    return ClusterKey(of, name)
