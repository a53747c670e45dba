"""``ClusterTrust``: the CAs that a node must trust, and when each node may restart its kubelet for that.

The order of the CAs matters: the kubelet's first CA is the one that its evidence names.

The turns bound how many kubelets restart at once. Unix time is cut into turns of ``turn_seconds``. The statement's
turns repeat, with one more at the end for the nodes that it does not list. A turn lists its nodes by digests of their
names. So the bound holds exactly; hashing nodes into slots would only hold it on average.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.wire.statement.errors import MalformedStatement
from attestors.wire.statement.strict_json import expect_keys, list_of, number_of, text_of

MAXIMUM_SHARE: Final = 10
"""At most one in that many of the listed nodes, or one node, has the same turn."""
MINIMUM_TURN_SECONDS: Final = 120
MAXIMUM_TURN_SECONDS: Final = 3600

_MAXIMUM_NODES: Final = 8000
_MAXIMUM_BUNDLE_CHARACTERS: Final = 32 * 1024
_DIGEST_CHARACTERS: Final = 8
_ROTATION: Final = re.compile(r"[a-z2-7]{8}")
_BUNDLE: Final = re.compile(rf"[ -~\n]{{1,{_MAXIMUM_BUNDLE_CHARACTERS}}}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{_DIGEST_CHARACTERS}}}")


def node_digest(node_name: str) -> str:
    """The node in a list of turns: the beginning of SHA-256, in hexadecimal."""
    return hashlib.sha256(node_name.encode("utf-8")).hexdigest()[:_DIGEST_CHARACTERS]


@dataclass(frozen=True, slots=True)
class ClusterTrust:
    """The trust of a cluster's nodes.

    Raises:
        MalformedStatement: a field is out of bounds, or a turn has more nodes than may restart at once.
    """

    rotation: str
    """The identifier of the rotation that causes it."""
    bundle: str = field(repr=False)
    """The CA certificates, PEM. Parsed only by the verifier, which knows the time."""
    turns: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    """:func:`node_digest` of the nodes of each turn."""
    turn_seconds: int = MINIMUM_TURN_SECONDS

    def __post_init__(self) -> None:
        text_of(self.rotation, "rotation", _ROTATION)
        text_of(self.bundle, "bundle", _BUNDLE)
        number_of(self.turn_seconds, "turnSeconds", minimum=MINIMUM_TURN_SECONDS, maximum=MAXIMUM_TURN_SECONDS)
        listed = [digest for turn in self.turns for digest in turn]
        if len(listed) > _MAXIMUM_NODES:
            raise MalformedStatement(f"turns list more than {_MAXIMUM_NODES} nodes")
        for digest in listed:
            text_of(digest, "a node in turns", _DIGEST)
        together = max(1, len(listed) // MAXIMUM_SHARE)
        if any(not 0 < len(turn) <= together for turn in self.turns):
            raise MalformedStatement(f"a turn has no node, or more than {together}")

    @property
    def bundle_sha256(self) -> str:
        """SHA-256 of the bundle's text, in hexadecimal."""
        return hashlib.sha256(self.bundle.encode("ascii")).hexdigest()

    def next_turn(self, node_name: str, now: int) -> tuple[int, int]:
        """Beginning and end (Unix time) of the node's turn that is running at ``now``, or else of its next one."""
        digest = node_digest(node_name)
        place = next((place for place, turn in enumerate(self.turns) if digest in turn), len(self.turns))
        count = len(self.turns) + 1
        current = now // self.turn_seconds
        chosen = current + (place - current) % count
        return chosen * self.turn_seconds, (chosen + 1) * self.turn_seconds

    def document(self) -> dict[str, Any]:
        """The payload's JSON form."""
        return {
            "rotation": self.rotation,
            "bundle": self.bundle,
            "bundleSHA256": self.bundle_sha256,
            "turns": [list(turn) for turn in self.turns],
            "turnSeconds": self.turn_seconds,
        }

    @classmethod
    def parse(cls, payload: dict[str, Any]) -> ClusterTrust:
        """Parse the JSON form.

        Raises:
            MalformedStatement: anything else.
        """
        expect_keys(payload, "payload", "rotation", "bundle", "bundleSHA256", "turns", "turnSeconds")
        turns = list_of(payload["turns"], "turns", maximum=_MAXIMUM_NODES)
        trust = cls(
            rotation=text_of(payload["rotation"], "rotation", _ROTATION),
            bundle=text_of(payload["bundle"], "bundle", _BUNDLE),
            turns=tuple(tuple(list_of(turn, "a turn", maximum=_MAXIMUM_NODES)) for turn in turns),
            turn_seconds=number_of(payload["turnSeconds"], "turnSeconds"),
        )
        if text_of(payload["bundleSHA256"], "bundleSHA256", _SHA256) != trust.bundle_sha256:
            raise MalformedStatement("bundleSHA256 is not the digest of bundle")
        return trust
