"""What this node keeps about the trust bundle that is in force: no older one may replace it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from authenticator.model.ssh_state import SSHRejection

_FORMAT: Final = 1


class UnreadableBundleState(ValueError):
    """The file does not have this program's format."""


@dataclass(frozen=True, slots=True)
class BundleState:
    """The content of the file."""

    sequence: int = 0
    """Of the accepted bundle; 0 for none."""
    is_in_place: bool = False
    """Whether sshd's files were once as it has them."""
    digest: str = ""
    """Of its content: the same sequence never stands for another one."""
    trust_version: int = 0
    revocations: int = 0
    """Entries of the revocation list."""
    not_after: int = 0
    """Unix time until which the controller answers for it."""
    rejection: SSHRejection | None = None
    """Why the published one does not count; None if it does."""
    restored: str = ""
    """The files that were not as the bundle has them, and were restored; empty if none ever was."""
    restored_at: int = 0
    """Unix time."""
    renew_below: int = 0
    """The node attests anew if it has reported only lower versions of the trust; 0: it need not. It is kept once sshd's
    files are as the bundle has them: a request before that would report the former version."""
    renew_due: int = 0
    """Unix time from which it does."""
    renew_spread: int = 0
    """Seconds within which all nodes do."""
    later_sequence: int = 0
    """Of a later bundle, of which the revocations alone count, as its trust is older than this node's; 0 for none."""
    later_digest: str = ""
    """Of its content."""
    later_revocations: str = ""
    """SHA-256 of the list in force: what it revokes, and what was revoked before. Nothing is taken back by a bundle of
    which this node does not accept the whole."""

    @property
    def newest(self) -> int:
        """The sequence of the last bundle that counts, if only for its revocations: none before it does again."""
        return max(self.sequence, self.later_sequence)

    def wants_renewal(self, reported: int, now: int) -> bool:
        """Whether the node attests anew now that has reported that version of the trust."""
        waits = 0 < self.renew_due - now <= self.renew_spread  # not longer, if this node's clock was ahead
        return reported < self.renew_below and not waits


def encode_bundle_state(state: BundleState) -> str:
    """The content of the file."""
    return json.dumps({"format": _FORMAT} | asdict(state), indent=1) + "\n"


def decode_bundle_state(text: str) -> BundleState:
    """Parse the content of the file.

    Raises:
        UnreadableBundleState: it does not have the format of :func:`encode_bundle_state`.
    """
    try:
        document = json.loads(text)
        if document.pop("format") != _FORMAT:
            raise UnreadableBundleState("another version of this program wrote it")
        rejection = document.pop("rejection")
        state = BundleState(rejection=None if rejection is None else SSHRejection(**rejection), **document)
        _require_types(state)
    except UnreadableBundleState:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UnreadableBundleState("damaged") from None
    return state


def _require_types(state: BundleState) -> None:
    numbers: tuple[Any, ...] = (
        state.sequence,
        state.trust_version,
        state.revocations,
        state.not_after,
        state.restored_at,
        state.renew_below,
        state.renew_due,
        state.renew_spread,
        state.later_sequence,
    )
    texts: tuple[Any, ...] = (state.digest, state.restored, state.later_digest, state.later_revocations)
    if state.rejection is not None:
        numbers += (state.rejection.at,)
        texts += (state.rejection.reason, state.rejection.message)
    if type(state.is_in_place) is not bool:
        raise UnreadableBundleState("damaged")
    if any(type(one) is not int or one < 0 for one in numbers) or any(type(one) is not str for one in texts):
        raise UnreadableBundleState("damaged")
