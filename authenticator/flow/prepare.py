"""What must be there before the kubelet starts: the bootstrap credential's copy, and the exec kubeconfig.

kubeadm starts the kubelet right after it wrote the bootstrap kubeconfig, and an image cannot carry the kubeconfig: it
knows neither server nor CA, and ``kubeadm init`` refuses one that it did not write.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import read_bootstrap_kubeconfig, take_in
from authenticator.flow.clock import Clock
from authenticator.model.failures import InvalidConfiguration
from authenticator.model.kubeconfig import MAXIMUM_KUBECONFIG_BYTES, exec_kubeconfig, runs_this_program
from authenticator.store.files import read_bounded, write_atomically
from authenticator.store.store import Store


class Prepared(enum.Enum):
    """What was done."""

    NO_BOOTSTRAP_KUBECONFIG = "no bootstrap kubeconfig: nothing to do"
    WRITTEN = "wrote the kubeconfig"
    AS_IT_WAS = "the kubeconfig is as it should be"
    NOT_OURS = "left the kubeconfig alone, which somebody else wrote"


@dataclass(frozen=True, slots=True)
class ExecStanza:
    """How the kubelet is to run this program."""

    command: str
    arguments: Sequence[str]
    api_version: str


def prepare(configuration: Configuration, store: Store, stanza: ExecStanza, clock: Clock) -> Prepared:
    """Take in the bootstrap credential and write the kubeconfig, where there is a bootstrap kubeconfig.

    Raises:
        Failure: the bootstrap kubeconfig cannot be used, or something cannot be written.
    """
    supplied = read_bootstrap_kubeconfig(configuration.bootstrap_kubeconfig)
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
