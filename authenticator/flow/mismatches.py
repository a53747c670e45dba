"""The stored client certificate compared with the configuration, the kubelet's kubeconfig and client-go's cluster."""

from __future__ import annotations

from attestors.wire.names import Purpose
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.model.cluster import Cluster
from authenticator.model.failures import InvalidConfiguration
from authenticator.model.mismatch import Issued, Mismatch, Property, Wanted, mismatches
from authenticator.model.pair import Pair
from authenticator.store.store import Store


def stored_mismatches(
    configuration: Configuration, store: Store, named_cluster: Cluster | None = None
) -> tuple[Mismatch, ...]:
    """In which properties the stored certificate is not what is configured; empty without one.

    ``named_cluster`` is the cluster according to client-go. Makes no call, and does not load the attestor.

    Raises:
        StoreUnusable: the store is unreadable.
    """
    pair = store.pair(Purpose.CLIENT)
    if pair is None:
        return ()
    known = store.known_cluster()
    issued = Issued(known.cluster, known.provider, known.provider_id) if known is not None else None
    cluster = named_cluster or cluster_of_own_kubeconfig(configuration.kubeconfig)
    return mismatches(pair, issued, _wanted(configuration, cluster))


def require_own_name(configuration: Configuration, pair: Pair) -> None:
    """Require that a renewal is for the certificate's own name: the controller would deny any other for good.

    Raises:
        InvalidConfiguration: it is not.
    """
    for mismatch in mismatches(pair, None, _wanted(configuration, None)):
        if mismatch.property is Property.NODE_NAME:
            raise InvalidConfiguration(
                f"a certificate of node {mismatch.stored} is not renewed as {mismatch.configured}: `status` says more"
            )


def _wanted(configuration: Configuration, cluster: Cluster | None) -> Wanted:
    return Wanted(
        configuration.node_name,
        configuration.provider,
        configuration.stated_provider_id,
        cluster,
        str(configuration.bootstrap_kubeconfig),
    )
