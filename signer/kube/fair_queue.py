"""The order in which keys that are ready are worked on, so that nobody's many keys are in the way of another's few.

What was found plausible goes first, but never alone. Within that, requesters take turns; of one requester, the claimed
provider IDs; of one provider ID, the public keys; and the keys of one flow come as they were added. Where many keys of
one requester wait, those that nobody has looked at yet come before all others: looking is cheap, and only then it is
known which of them deserve a turn. Adding, taking and discarding cost the same however many keys there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from signer.model.flow import Flow, PriorityLevel

Key = TypeVar("Key", bound=Hashable)

CROWD: Final = 64
"""Ready keys of one requester above which whoever takes an unfiltered one must screen it, and put it back."""
LOOKS: Final = 7
"""How many unfiltered keys of crowds may come in a row while others wait: about as dear as a turn of work."""
TURNS_OF_OTHERS: Final = {PriorityLevel.UNFILTERED: 7, PriorityLevel.UNKNOWN_MACHINE: 15, PriorityLevel.REFUSED: 31}
"""How many turns of work in a row may go to better ones while such a key waits; a late denial harms nobody."""


class FairQueue(Generic[Key]):
    """Keys, each in its flow; :meth:`take` gives them out in turn."""

    def __init__(self) -> None:
        self._rounds: dict[PriorityLevel, _Round[Key]] = {priority_level: _Round() for priority_level in PriorityLevel}
        self._crowds: _Round[Key] = _Round()  # of the unfiltered, those whose requesters have many keys
        self._looks = 0
        self._turns_of_others = dict.fromkeys(PriorityLevel, 0)
        self._flows: dict[Key, Flow] = {}
        self._waiting: dict[str, int] = {}  # requester -> keys

    def __len__(self) -> int:
        return len(self._flows)

    def put(self, key: Key, flow: Flow) -> None:
        """``key`` waits in that flow: behind the others in it, unless it is in it already."""
        if key in self._flows:
            if self._flows[key] == flow:
                return
            self.discard(key)
        self._flows[key] = flow
        self._round_of(flow).put(flow.path, key)
        waiting = self._waiting[flow.requester] = self._waiting.get(flow.requester, 0) + 1
        if waiting == CROWD + 1:
            self._rounds[PriorityLevel.UNFILTERED].hand_over(flow.requester, self._crowds)

    def take(self) -> Key:
        """The key whose turn it is; it waits no longer. Raises KeyError where none waits."""
        present = [priority_level for priority_level in PriorityLevel if self._rounds[priority_level]]
        if self._crowds and (self._looks < LOOKS or not present):
            self._looks += 1
            # From both ends in turn: neither who came first nor who has just come waits for all that lie between.
            key = self._crowds.take(from_both_ends=True)
        elif present:
            self._looks = 0
            key = self._rounds[self._whose_turn(present)].take(from_both_ends=False)
        else:
            raise KeyError("no key waits")
        self._forget(key)
        return key

    def discard(self, key: Key) -> None:
        """``key`` waits no longer, if it did."""
        flow = self._flows.get(key)
        if flow is not None:
            self._round_of(flow).discard(flow.path, key)
            self._forget(key)

    def is_crowded(self, requester: str) -> bool:
        """Whether more than ``CROWD`` keys of that requester wait."""
        return self._waiting.get(requester, 0) > CROWD

    def _round_of(self, flow: Flow) -> _Round[Key]:
        if flow.priority_level is PriorityLevel.UNFILTERED and self.is_crowded(flow.requester):
            return self._crowds
        return self._rounds[flow.priority_level]

    def _whose_turn(self, present: list[PriorityLevel]) -> PriorityLevel:
        turn = present[0]
        for priority_level in present[1:]:
            if self._turns_of_others[priority_level] >= TURNS_OF_OTHERS[priority_level]:
                turn = priority_level
                break
        for priority_level in present:
            self._turns_of_others[priority_level] = (
                0 if priority_level is turn else self._turns_of_others[priority_level] + 1
            )
        return turn

    def _forget(self, key: Key) -> None:
        requester = self._flows.pop(key).requester
        waiting = self._waiting[requester] = self._waiting[requester] - 1
        if waiting == CROWD:
            self._crowds.hand_over(requester, self._rounds[PriorityLevel.UNFILTERED])
        elif not waiting:
            del self._waiting[requester]


class _Line(Generic[Key]):
    """The keys of one flow."""

    __slots__ = ("_keys", "_newest_is_next")

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()
        self._newest_is_next = True

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, path: tuple[str, ...], key: Key) -> None:
        self._keys[key] = None

    def take(self, *, from_both_ends: bool) -> Key:
        key, _ = self._keys.popitem(last=from_both_ends and self._newest_is_next)
        if from_both_ends:
            self._newest_is_next = not self._newest_is_next
        return key

    def discard(self, path: tuple[str, ...], key: Key) -> None:
        del self._keys[key]


class _Round(Generic[Key]):
    """Names that take turns; behind each is a line of keys, or the round of the next part of the path."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: OrderedDict[str, _Round[Key] | _Line[Key]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def put(self, path: tuple[str, ...], key: Key) -> None:
        name, rest = path[0], path[1:]
        member = self._members.get(name)
        if member is None:
            member = self._members[name] = _Round() if rest else _Line()
        member.put(rest, key)

    def take(self, *, from_both_ends: bool) -> Key:
        name = next(iter(self._members))
        member = self._members[name]
        key = member.take(from_both_ends=from_both_ends)
        if member:
            self._members.move_to_end(name)
        else:
            del self._members[name]
        return key

    def discard(self, path: tuple[str, ...], key: Key) -> None:
        name = path[0]
        member = self._members[name]
        member.discard(path[1:], key)
        if not member:
            del self._members[name]

    def hand_over(self, name: str, other: _Round[Key]) -> None:
        """What is behind that name, if anything is, takes its turns there."""
        member = self._members.pop(name, None)
        if member is not None:
            other._members[name] = member
