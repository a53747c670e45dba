"""What must be there before the kubelet starts: the bootstrap credential's copy, and the exec kubeconfig.

kubeadm starts the kubelet right after it wrote the bootstrap kubeconfig, and an image cannot carry the kubeconfig: it
knows neither server nor CA, and ``kubeadm init`` refuses one that it did not write.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from attestors.wire.names import Purpose
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig, read_bootstrap_kubeconfig, take_in
from authenticator.flow.clock import Clock
from authenticator.model.failures import InvalidConfiguration, StoreUnusable
from authenticator.model.kubeconfig import MAXIMUM_KUBECONFIG_BYTES, exec_kubeconfig, runs_this_program
from authenticator.store.files import read_bounded, write_atomically
from authenticator.store.store import Store


class Prepared(enum.Enum):
    """What was done."""

    NO_BOOTSTRAP_KUBECONFIG = "no bootstrap kubeconfig: nothing to do"
    WRITTEN = "wrote the kubeconfig"
    AS_IT_WAS = "the kubeconfig is as it should be"
    NOT_OURS = "left the kubeconfig alone, which somebody else wrote"


class NotNeeded(InvalidConfiguration):
    """The bootstrap kubeconfig cannot be used; the kubelet's is there, and a valid certificate."""


@dataclass(frozen=True, slots=True)
class ExecStanza:
    """How the kubelet is to run this program."""

    command: str
    arguments: Sequence[str]
    api_version: str


def prepare(configuration: Configuration, store: Store, stanza: ExecStanza, clock: Clock) -> Prepared:
    """Take in the bootstrap credential and write the kubeconfig, where there is a bootstrap kubeconfig.

    Raises:
        NotNeeded: the bootstrap kubeconfig cannot be used, and the kubelet can do without it.
        Failure: the bootstrap kubeconfig cannot be used, or something cannot be written.
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
        take_in(configuration, store, now=clock.now())
        wanted = exec_kubeconfig(
            supplied.cluster, command=stanza.command, arguments=stanza.arguments, api_version=stanza.api_version
        )
        path = configuration.kubeconfig
        try:
            try:
                present = read_bounded(path, MAXIMUM_KUBECONFIG_BYTES)
            except FileNotFoundError:
                present = b""
            if present == wanted.encode("ascii"):
                return Prepared.AS_IT_WAS
            if present and not runs_this_program(present):
                return Prepared.NOT_OURS
            write_atomically(path, wanted)
        except OSError as error:
            raise InvalidConfiguration(f"kubeconfig {path}: {error.strerror}") from error
    return Prepared.WRITTEN


def _is_prepared(configuration: Configuration, store: Store, *, now: int) -> bool:
    """Whether the kubelet has all that it needs to start."""
    if cluster_of_own_kubeconfig(configuration.kubeconfig) is None:
        return False
    try:
        store.look()
        pair = store.pair(Purpose.CLIENT)
    except StoreUnusable:
        return False
    return pair is not None and now < pair.not_after
