"""What the scene has seen, and whether it is as expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.demo.ssh.ending import Seen

PERSON: Final = "node-access:alice"
"""In whose name the gateway does everything in the workload cluster."""
ENDED: Final = "the access grant has ended"
MORAL: Final = "Stock ssh reaches the container, and the cluster knows who it was."


def login(code: int, output: str, pod: str, user_id: str) -> Seen:
    """A person ran ``id`` and ``hostname`` in a container of ``pod``."""
    entered = code == 0 and f"uid={user_id}" in output and pod in output.splitlines()
    return Seen("Login", entered, "stock ssh, in the Deployment's Pod" if entered else f"exit code {code}")


def copied(code: int, sent: bytes, found: bytes) -> Seen:
    """A file was copied; ``found`` is what the container has."""
    same = code == 0 and sent == found
    return Seen("File", same, "stock scp, the same bytes" if same else f"exit code {code}, {len(found)} bytes")


def forwarded(answer: bytes, page: bytes) -> Seen:
    """What a forwarded port of the Pod answered."""
    good = answer == page
    return Seen("Port", good, "the Pod's web server answers" if good else f"{len(answer)} other bytes")


def other_container(code: int, output: str, secret: str) -> Seen:
    """A person tried another container of the same Pod; ``secret`` is what it would print."""
    refused = code == 255 and secret not in output and "Received disconnect" in output
    return Seen("Other container", refused, "refused by the gateway" if refused else f"exit code {code}")


def named(events: Sequence[Mapping[str, Any]]) -> Seen:
    """The audit events of the workload cluster about what the gateway did."""
    wrong = [one for one in events if (one.get("impersonatedUser") or {}).get("username") != PERSON]
    kinds = {(one.get("objectRef") or {}).get("subresource") for one in events}
    good = not wrong and {"exec", "portforward"} <= kinds
    found = f"{len(events)} events of its own audit log name {PERSON}"
    return Seen("Who it was", good, found if good else f"{len(wrong)} of {len(events)} events name another")


def revoked(code: int, output: str, *, left: bool) -> Seen:
    """A session whose grant was deleted; ``left`` says whether its processes go on in the container."""
    ended = code == 255 and ENDED in output and not left
    reason = "its processes go on" if left else f"exit code {code}, without the message"
    return Seen("Revoked grant", ended, "the session ends, with its processes" if ended else reason)
