"""The command that explains a request, for messages that people read where they do not see the request itself."""

from __future__ import annotations

import shlex
from typing import Final

from signer.model.cluster import ClusterKey
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS, printable
from signer.model.fields import MAXIMUM_NAME_CHARACTERS

_PROGRAM: Final = "node-attestation-controller explain"
_MARK: Final = " (CSR "
_MAXIMUM_HINT: Final = 768


def explain_command(csr: str, cluster: ClusterKey) -> str:
    """As it is typed; what a requester put into the CSR's name is quoted, and no option."""
    name = shlex.quote(_shown(csr))
    if csr.startswith("-"):
        return f"{_PROGRAM} --cluster {cluster} -- {name}"
    return f"{_PROGRAM} {name} --cluster {cluster}"


def explain_hint(csr: str, cluster: ClusterKey, documentation: str) -> str:
    """The end of a message: the request, the command that explains it, and the link to its reason's documentation.

    A long name of the request leaves no room for the command; the link always fits.
    """
    link = f"; see {documentation})"
    hint = f"{_MARK}{_shown(csr)}: {explain_command(csr, cluster)}{link}"
    return hint if len(hint) <= _MAXIMUM_HINT else f"{_MARK}{_shown(csr)}{link}"


def with_hint(message: str, hint: str) -> str:
    """Both, within the bound of a message; the hint is never cut."""
    return message[: MAXIMUM_MESSAGE_CHARACTERS - len(hint)] + hint


def without_hint(text: str) -> str:
    """The message alone."""
    return text.partition(_MARK)[0]


def _shown(csr: str) -> str:
    return printable(csr)[:MAXIMUM_NAME_CHARACTERS]
