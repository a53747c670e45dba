"""The ``explain`` command for a request, for messages on objects other than the request."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final, TypeAlias

from signer.model.cluster import ClusterKey
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, printable
from signer.model.fields import MAXIMUM_NAME_CHARACTERS

_PROGRAM: Final = "node-attestation-controller explain"
_MARK: Final = " (CSR "
_MAXIMUM_HINT: Final = 768


@dataclass(frozen=True, slots=True)
class ControllerDeployment:
    """The Deployment that runs the controller; its Pods have the settings that ``explain`` needs."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NoControllerDeployment:
    """The controller runs in no Deployment that it knows of."""


RunsIn: TypeAlias = ControllerDeployment | NoControllerDeployment


def explain_command(csr: str, cluster: ClusterKey, runs_in: RunsIn) -> str:
    """The command line. The CSR's name, which the requester chose, is quoted and cannot act as an option."""
    name = shlex.quote(_shown(csr))
    program = _PROGRAM
    if isinstance(runs_in, ControllerDeployment):
        program = f"kubectl exec -n {runs_in.namespace} deploy/{runs_in.name} -- {_PROGRAM}"
    if csr.startswith("-"):
        return f"{program} --cluster {cluster} -- {name}"
    return f"{program} {name} --cluster {cluster}"


def explain_hint(csr: str, cluster: ClusterKey, documentation: str, runs_in: RunsIn) -> str:
    """The end of a message: the request, the ``explain`` command, and the link to the reason's documentation.

    The command is omitted if the request's name is too long; the link always fits.
    """
    link = f"; see {documentation})"
    hint = f"{_MARK}{_shown(csr)}: {explain_command(csr, cluster, runs_in)}{link}"
    return hint if len(hint) <= _MAXIMUM_HINT else f"{_MARK}{_shown(csr)}{link}"


def with_hint(message: str, hint: str) -> str:
    """Message and hint within ``MAXIMUM_MESSAGE_CHARACTERS``. Only the message is truncated."""
    return message[: MAXIMUM_MESSAGE_CHARACTERS - len(hint)] + hint


def without_hint(text: str) -> str:
    """The message without its hint."""
    return text.partition(_MARK)[0]


def _shown(csr: str) -> str:
    return printable(csr)[:MAXIMUM_NAME_CHARACTERS]
