"""The bootstrap credential: copied when first seen, because kubeadm deletes its file before attestation can end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attestors.wire.names import Purpose
from authenticator.configuration import Configuration
from authenticator.model.attempt import Attempt
from authenticator.model.certificate import is_of_node
from authenticator.model.cluster import Bootstrap, Cluster
from authenticator.model.failures import ExitCode, InvalidConfiguration
from authenticator.model.kubeconfig import (
    MAXIMUM_KUBECONFIG_BYTES,
    UnusableKubeconfig,
    cluster_of_kubeconfig,
    parse_bootstrap,
    runs_this_program,
)
from authenticator.store.files import read_bounded
from authenticator.store.store import Store


def read_bootstrap_kubeconfig(path: Path) -> Bootstrap | None:
    """The content of the bootstrap kubeconfig; None if there is none.

    Raises:
        InvalidConfiguration: it exists and is unusable.
    """
    try:
        data = read_bounded(path, MAXIMUM_KUBECONFIG_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidConfiguration(f"bootstrap kubeconfig {path}: {error.strerror}") from None
    try:
        return parse_bootstrap(data, _beside(path))
    except UnusableKubeconfig as error:
        raise InvalidConfiguration(f"bootstrap kubeconfig {path}: {error}") from None


def _beside(path: Path) -> Callable[[str], bytes]:
    """Reads what a kubeconfig names: relative paths begin at its own folder."""
    return lambda named: read_bounded(path.parent / named, MAXIMUM_KUBECONFIG_BYTES)


def import_bootstrap(configuration: Configuration, store: Store, *, now: int) -> None:
    """Copy a newly supplied bootstrap credential into the store. The caller holds the bootstrap lock.

    A credential that was already used is not copied. Neither is any while the certificate is good: valid, of the same
    cluster, in this node's name, and accepted by the API server. Certificates of another cluster (after a reset), of
    another name, and refused ones are set aside.

    Raises:
        InvalidConfiguration: the bootstrap kubeconfig is unusable.
        StoreUnusable: the store cannot be read or written.
    """
    supplied = read_bootstrap_kubeconfig(configuration.bootstrap_kubeconfig)
    if supplied is None:
        return
    known = store.known_cluster()
    elsewhere = known is not None and is_elsewhere(store, known.cluster, supplied.cluster)
    if known is not None and known.used == supplied.digest and not elsewhere:
        return
    if store.bootstrap() == supplied:
        return
    pair = store.pair(Purpose.CLIENT)
    pause = store.attempt(Purpose.CLIENT).pause
    renamed = pair is not None and not is_of_node(pair, configuration.node_name)
    refused = pair is not None and pause is not None and pause.exit_code is ExitCode.REFUSED
    if elsewhere:
        store.forget_trust()
    if elsewhere or renamed or refused:
        for purpose in Purpose:
            store.set_aside(purpose)
            store.save_attempt(purpose, Attempt())
    elif pair is not None and now < pair.not_after:
        return
    store.save_bootstrap(supplied)


def is_elsewhere(store: Store, known: Cluster, supplied: Cluster) -> bool:
    """Whether ``supplied`` is another cluster than ``known``: it has no CA in common, and none that this node trusted.

    A bootstrap kubeconfig that lies there since before a rotation names the former CA only.

    Raises:
        StoreUnusable: the state of the trust is unreadable.
    """
    if known.shares_authority_with(supplied):
        return False
    return not store.trust_state().covers(supplied.authority_hashes)


def cluster_of_own_kubeconfig(path: Path) -> Cluster | None:
    """The cluster in the kubeconfig that this program wrote; None if it wrote none, or the file is unreadable."""
    try:
        data = read_bounded(path, MAXIMUM_KUBECONFIG_BYTES)
        return cluster_of_kubeconfig(data, _beside(path)) if runs_this_program(data) else None
    except (OSError, UnusableKubeconfig):
        return None
