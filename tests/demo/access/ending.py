"""What the scene has seen, and whether it is as expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from signer.access.record import Cause
from tests.demo.ssh.ending import Seen

LATEST_SECONDS: Final = 5.0
"""A grant may outlive its expiration by so much on a busy machine. Without load it is less than two seconds."""
HEARTBEAT_MISSING: Final = Cause.HEARTBEAT_MISSING.value
MORAL: Final = "Each person has their own way in, and it ends with them."
_QUESTIONS: Final = ("authenticity of host", "(yes/no", "[y/N]", "assword:", "passphrase")


@dataclass(frozen=True, slots=True)
class Lapse:
    """What was there when a grant had lapsed, and what it left."""

    cause: str
    """The audit log's."""
    late: float
    """Seconds from its expiration to the last thing of it that went."""
    left: tuple[str, ...] = ()
    """What went not at all: the grant, sshd, port, session."""
    session_code: int = 255
    others: bool = True
    """Whether the other person's grant is still ready."""


def login(code: int, output: str, node: str) -> Seen:
    """A person asked for a grant and logged in, in one command."""
    asked = [one for one in _QUESTIONS if one in output]
    accepted = code == 0 and node in output.splitlines() and not asked
    return Seen("Alice's login", accepted, "through her bastion, asked nothing" if accepted else _code(code, asked))


def foreign_ingress(code: int, output: str, message: str, *, changed: bool) -> Seen:
    """Somebody else changed whom a bastion lets in."""
    refused = code != 0 and message in output and not changed
    return Seen("Alice's ingress", refused, "the server refuses Bob's change" if refused else _changed(code, changed))


def foreign_name(creator: str, person: str) -> Seen:
    """A grant that ``person`` asked for in another name; ``creator`` is whose it is, empty if it was refused."""
    good = creator in ("", person)
    found = "the server writes who he is: Bob's grant" if creator else "refused by the server"
    return Seen("Alice's name", good, found if good else f"the server takes it for {creator}")


def foreign_bastion(own: str, other: str) -> Seen:
    """What a person's key and certificates got from the own bastion and from the other person's."""
    refused = "SSH-2.0-" in own and "Permission denied" in other and "SSH-2.0-" not in other
    return Seen("Bob's bastion", refused, "sshd refuses Alice's certificates" if refused else "NOT closed to Alice")


def lapsed(found: Lapse) -> Seen:
    """A grant without heartbeats."""
    if found.left:
        return Seen("No heartbeat", False, f"left: {', '.join(found.left)}")
    if not found.others:
        return Seen("No heartbeat", False, "Alice's grant ended, too")
    if found.cause != HEARTBEAT_MISSING:
        return Seen("No heartbeat", False, f"the grant ended for another reason: {found.cause}")
    good = found.session_code != 0 and 0 <= found.late <= LATEST_SECONDS
    return Seen("No heartbeat", good, f"all of Bob's way in was gone {found.late:.1f} s after its time")


def audited(person: str, creator: str, key_id: str, logged: str) -> Seen:
    """``creator`` and ``key_id`` are the audit line's, and ``logged`` is what sshd logged of that person's login."""
    good = creator == person and key_id.endswith(f"/{person}") and f"ID {key_id} " in logged
    return Seen(f"Who {person} was", good, "audit line and sshd's log agree" if good else "audit and sshd differ")


def _code(code: int, asked: Sequence[str]) -> str:
    return f"asked {asked[0]}" if asked else f"exit code {code}"


def _changed(code: int, changed: bool) -> str:
    return "the ingress changed" if changed else f"exit code {code}, with another message"
