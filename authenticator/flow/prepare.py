"""Prepares what the kubelet needs to start: the copy of the bootstrap credential, and the exec kubeconfig.

kubeadm starts the kubelet right after it wrote the bootstrap kubeconfig. An image cannot contain the kubeconfig: it
knows neither server nor CA, and ``kubeadm init`` refuses a kubeconfig that it did not write.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attestors.wire.names import Purpose
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig, import_bootstrap, read_bootstrap_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.model.cluster import Cluster, InvalidCluster
from authenticator.model.exec_credential import INFO_VARIABLE
from authenticator.model.failures import InvalidConfiguration, StoreUnusable
from authenticator.model.kubeconfig import (
    MAXIMUM_EXEC_INFO_BYTES,
    MAXIMUM_KUBECONFIG_BYTES,
    exec_info_bytes,
    exec_kubeconfig,
    runs_this_program,
)
from authenticator.store.files import read_bounded, write_atomically
from authenticator.store.store import Store


class Prepared(enum.Enum):
    """The result."""

    NO_BOOTSTRAP_KUBECONFIG = "no bootstrap kubeconfig: nothing to do"
    WRITTEN = "wrote the kubeconfig"
    AS_IT_WAS = "the kubeconfig is up to date"
    NOT_OURS = "left the kubeconfig alone, which another program wrote"


class NotNeeded(InvalidConfiguration):
    """The bootstrap kubeconfig is unusable, but the kubelet's kubeconfig and a valid certificate exist."""


@dataclass(frozen=True, slots=True)
class ExecStanza:
    """How the kubelet runs this program."""

    command: str
    arguments: Sequence[str]
    api_version: str


def prepare(configuration: Configuration, store: Store, stanza: ExecStanza, clock: Clock) -> Prepared:
    """If there is a bootstrap kubeconfig, copy its credential and write the kubelet's kubeconfig.

    Raises:
        NotNeeded: the bootstrap kubeconfig is unusable, and the kubelet does not need it.
        Failure: the bootstrap kubeconfig is unusable, or a file cannot be written.
    """
    try:
        supplied = read_bootstrap_kubeconfig(configuration.bootstrap_kubeconfig)
    except InvalidConfiguration as unusable:
        if _is_prepared(configuration, store, now=clock.now()):
            raise NotNeeded(str(unusable)) from None
        raise
    if supplied is None:
        return Prepared.NO_BOOTSTRAP_KUBECONFIG
    store.open()
    with store.bootstrap_lock():
        import_bootstrap(configuration, store, now=clock.now())
        cluster = _with_present_authority(store, supplied.cluster)
        wanted = exec_kubeconfig(
            cluster,
            authority_file=os.path.abspath(store.authority_file),
            command=stanza.command,
            arguments=stanza.arguments,
            api_version=stanza.api_version,
        )
        path = configuration.kubeconfig
        try:
            present = _content(path)
            if present and not runs_this_program(present):
                return Prepared.NOT_OURS
            # The CA first: the kubeconfig must never name a file that is not there.
            changed = store.save_authority(cluster.certificate_authority)
            if present == wanted.encode("ascii"):
                return Prepared.WRITTEN if changed else Prepared.AS_IT_WAS
            write_atomically(path, wanted)
        except OSError as error:
            raise InvalidConfiguration(f"kubeconfig {path}: {error.strerror}") from error
    return Prepared.WRITTEN


def _with_present_authority(store: Store, supplied: Cluster) -> Cluster:
    """The cluster with the CAs of the last statement, if one is in force: the bootstrap kubeconfig may be older."""
    state = store.trust_state()
    if not (state.is_managed and state.covers(supplied.authority_hashes)):
        return supplied
    try:
        return Cluster(supplied.server, store.authority(), supplied.tls_server_name)
    except InvalidCluster:  # the file is lost
        return supplied


def _content(path: Path) -> bytes:
    try:
        return read_bounded(path, MAXIMUM_KUBECONFIG_BYTES)
    except FileNotFoundError:
        return b""


def too_large_for_cluster_info(configuration: Configuration, api_version: str) -> str:
    """Why client-go does not tell the plugin of the cluster, with the sizes; empty if it does."""
    cluster = cluster_of_own_kubeconfig(configuration.kubeconfig)
    size = exec_info_bytes(cluster, api_version) if cluster is not None else 0
    if size <= MAXIMUM_EXEC_INFO_BYTES:
        return ""
    return (
        f"the cluster's CA certificates would take {size} bytes in {INFO_VARIABLE}, and Linux takes "
        f"{MAXIMUM_EXEC_INFO_BYTES} in one string of the environment: provideClusterInfo is false, and `credential` "
        "reads the cluster from the kubeconfig"
    )


def _is_prepared(configuration: Configuration, store: Store, *, now: int) -> bool:
    """Whether the kubelet has everything that it needs to start."""
    if cluster_of_own_kubeconfig(configuration.kubeconfig) is None:
        return False
    try:
        store.check_folder()
        pair = store.pair(Purpose.CLIENT)
    except StoreUnusable:
        return False
    return pair is not None and now < pair.not_after
