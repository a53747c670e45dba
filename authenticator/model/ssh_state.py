"""What this node keeps about SSH: the trust that it accepted last, so that no older one replaces it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from attestors.wire.node_access import Trust
from attestors.wire.ssh_host_keys import LARGEST_TRUST_VERSION

_FORMAT: Final = 1


class UnreadableSSHState(ValueError):
    """The file does not have this program's format."""


@dataclass(frozen=True, slots=True)
class SSHRejection:
    """Why the last text was not accepted."""

    reason: str
    message: str
    at: int
    """Unix time."""


@dataclass(frozen=True, slots=True)
class SSHState:
    """The content of the file."""

    trust_version: int = 0
    """0: no text was accepted."""
    trust_digest: str = ""
    """Of the accepted authorities: the same version never stands for others."""
    rejection: SSHRejection | None = None
    unanswered_at: int = 0
    """Unix time of the last certificate without a text behind it; 0 if the last one had a text."""
    is_of_former_cluster: bool = False
    """The node left the cluster that sshd's files are of; they are to be withdrawn."""


def digest_of(trust: Trust) -> str:
    """A digest of the authorities and of what each is for, whatever their order."""
    kinds = (trust.user_authorities, trust.break_glass_authorities, trust.host_authorities)
    listed = [sorted(key.blob.hex() for key in keys) for keys in kinds]
    return hashlib.sha256(json.dumps(listed).encode("ascii")).hexdigest()


def encode_ssh_state(state: SSHState) -> str:
    """The content of the file."""
    return json.dumps({"format": _FORMAT} | asdict(state), indent=1) + "\n"


def decode_ssh_state(text: str) -> SSHState:
    """Parse the content of the file.

    Raises:
        UnreadableSSHState: it does not have the format of :func:`encode_ssh_state`.
    """
    try:
        document = json.loads(text)
        if document.pop("format") != _FORMAT:
            raise UnreadableSSHState("another version of this program wrote it")
        rejection = document.pop("rejection")
        state = SSHState(rejection=None if rejection is None else SSHRejection(**rejection), **document)
        _require_types(state)
    except UnreadableSSHState:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableSSHState("damaged") from None
    return state


def _require_types(state: SSHState) -> None:
    expected: list[tuple[Any, type]] = [
        (state.trust_version, int),
        (state.trust_digest, str),
        (state.unanswered_at, int),
        (state.is_of_former_cluster, bool),
    ]
    if state.rejection is not None:
        expected += [(state.rejection.reason, str), (state.rejection.message, str), (state.rejection.at, int)]
    if any(type(value) is not kind for value, kind in expected):
        raise UnreadableSSHState("damaged")
    if not 0 <= state.trust_version <= LARGEST_TRUST_VERSION:
        raise UnreadableSSHState("damaged")
