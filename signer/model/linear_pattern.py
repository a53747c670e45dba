"""Patterns of tenants, matched in time linear in the text.

Python's ``re`` backtracks: a pattern such as ``(a+)+b`` takes hours for thirty characters. These patterns are matched
by simulation of an automaton (Thompson 1968), as RE2 does. They are the part of RE2's syntax that has no assertions:
alternatives, groups, classes, ``.``, ``\\d \\w \\s`` and their opposites, escaped punctuation, and
``* + ? {m} {m,} {m,n}``.
A pattern always covers the whole text; ``^`` may stand at its begin and ``$`` at its end.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, TypeAlias

MAXIMUM_PATTERN: Final = 256
MAXIMUM_REPEAT: Final = 256
_MAXIMUM_NESTING: Final = 16
_MAXIMUM_STEPS: Final = 2000
"""Of the compiler, so also of the automaton's states."""
_MAXIMUM_MOVES: Final = 20_000
"""Remembered moves of one pattern."""
_LAST: Final = 0x10FFFF
_DIGITS: Final = ((48, 57),)
_WORDS: Final = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: Final = ((9, 10), (12, 13), (32, 32))
_PUNCTUATION: Final = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class InvalidPattern(ValueError):
    """The pattern is invalid. The message ends a sentence that begins with its field."""


_Ranges: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _One:
    """One character in these ranges."""

    ranges: _Ranges


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Either:
    options: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    item: _Node
    minimum: int
    maximum: int
    """-1: without end."""


_Node: TypeAlias = _One | _Sequence | _Either | _Repeat


@dataclass(frozen=True, slots=True)
class _Character:
    ranges: _Ranges
    after: int


@dataclass(frozen=True, slots=True)
class _Split:
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class _Accept:
    """The pattern's end."""


_State: TypeAlias = _Character | _Split | _Accept


def check_pattern(pattern: str) -> str:
    """The pattern, if it is one.

    Raises:
        InvalidPattern: its syntax is not of this module, or it is too long or too large.
    """
    _compiled(pattern)
    return pattern


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern covers the whole text.

    Raises:
        InvalidPattern: see :func:`check_pattern`.
    """
    return _compiled(pattern).covers(text)


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> _Automaton:
    if len(pattern) > MAXIMUM_PATTERN:
        raise InvalidPattern(f"must have at most {MAXIMUM_PATTERN} characters")
    return _Automaton(_Parser(pattern).parse())


class _Parser:
    """Recursive descent; groups nest at most ``_MAXIMUM_NESTING`` deep."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern.removeprefix("^")
        if self._text.endswith("$") and not self._text.endswith("\\$"):
            self._text = self._text[:-1]
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._either()
        if self._at < len(self._text):
            raise InvalidPattern("has a ')' without '('")
        return node

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise InvalidPattern("ends too early")
        self._at += 1
        return found

    def _either(self) -> _Node:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else _Either(tuple(options))

    def _sequence(self) -> _Node:
        items: list[_Node] = []
        while self._peek() not in ("", "|", ")"):
            items.append(self._repeated(self._atom()))
        return _Sequence(tuple(items))

    def _repeated(self, item: _Node) -> _Node:
        times = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}.get(self._peek())
        if times is not None:
            self._at += 1
        elif self._peek() == "{":
            times = self._times()
        else:
            return item
        if self._peek() in ("*", "+", "?", "{"):
            raise InvalidPattern("repeats a repetition: put it into a group")
        return _Repeat(item, *times)

    def _times(self) -> tuple[int, int]:
        end = self._text.find("}", self._at)
        first, comma, last = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(first) or (last and not _is_number(last)):
            raise InvalidPattern("must write a repetition as {m}, {m,} or {m,n}, and other braces as \\{ and \\}")
        self._at = end + 1
        minimum = int(first)
        maximum = int(last) if last else (-1 if comma else minimum)
        if minimum > MAXIMUM_REPEAT or maximum > MAXIMUM_REPEAT or -1 < maximum < minimum:
            raise InvalidPattern(f"must repeat from fewer to more times, at most {MAXIMUM_REPEAT}")
        return minimum, maximum

    def _atom(self) -> _Node:
        found = self._next()
        if found == "(":
            return self._group()
        if found == "[":
            return _One(self._class())
        if found == ".":
            return _One(((0, 9), (11, _LAST)))
        if found == "\\":
            return _One(self._escape())
        if found in "*+?{}]^$":
            raise InvalidPattern(f"must not have {found!r} there; a backslash before it makes it a character")
        return _One(((ord(found), ord(found)),))

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > _MAXIMUM_NESTING:
            raise InvalidPattern("nests groups too deeply")
        if self._peek() == "?":
            if self._text[self._at : self._at + 2] != "?:":
                raise InvalidPattern("must not have a group that begins with '?', but for '(?:'")
            self._at += 2
        node = self._either()
        if self._next() != ")":  # pragma: no cover: _either stops at ')' and at the end only
            raise InvalidPattern("has a '(' without ')'")
        self._depth -= 1
        return node

    def _escape(self) -> _Ranges:
        found = self._next()
        kinds = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
        if found.lower() in kinds:
            ranges = kinds[found.lower()]
            return ranges if found.islower() else _others(ranges)
        if found not in _PUNCTUATION:
            raise InvalidPattern("must not have a backslash before other than punctuation, d, w, s, D, W or S")
        return ((ord(found), ord(found)),)

    def _class(self) -> _Ranges:
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (found := self._next()) != "]":
            if found == "[":
                raise InvalidPattern("must write '[' in a class as \\[")
            low = self._escape() if found == "\\" else ((ord(found), ord(found)),)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                found = self._next()
                high = self._escape() if found == "\\" else ((ord(found), ord(found)),)
                if len(low) != 1 or len(high) != 1 or low[0][0] > high[0][1]:
                    raise InvalidPattern("has a range in a class whose end is before its begin")
                low = ((low[0][0], high[0][1]),)
            ranges.extend(low)
        if not ranges:
            raise InvalidPattern("has an empty class")
        return _others(tuple(ranges)) if negated else tuple(ranges)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 3


def _others(ranges: _Ranges) -> _Ranges:
    found, begin = [], 0
    for low, high in sorted(ranges):
        if low > begin:
            found.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*found, (begin, _LAST)) if begin <= _LAST else tuple(found)


class _Automaton:
    """The states that are possible after each character; moves are remembered."""

    def __init__(self, node: _Node) -> None:
        self._states: list[_State] = [_Accept()]
        self._steps = 0
        self._begin = self._closure({self._compile(node, 0)})
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def covers(self, text: str) -> bool:
        current = self._begin
        for character in text:
            known = self._moves.get((current, character))
            if known is None:
                known = self._move(current, ord(character))
                if len(self._moves) < _MAXIMUM_MOVES:
                    self._moves[current, character] = known
            current = known
        return 0 in current

    def _move(self, current: frozenset[int], point: int) -> frozenset[int]:
        after = set()
        for index in current:
            state = self._states[index]
            if isinstance(state, _Character) and any(low <= point <= high for low, high in state.ranges):
                after.add(state.after)
        return self._closure(after)

    def _closure(self, indexes: set[int]) -> frozenset[int]:
        """What is reached without a character. Splits themselves are left out."""
        seen: set[int] = set()
        waiting = list(indexes)
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            state = self._states[index]
            if isinstance(state, _Split):
                waiting += (state.first, state.second)
        return frozenset(index for index in seen if not isinstance(self._states[index], _Split))

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _compile(self, node: _Node, after: int) -> int:
        """Add the states of ``node``, after which the automaton is in state ``after``; return the first."""
        self._steps += 1
        if self._steps > _MAXIMUM_STEPS:
            raise InvalidPattern("is too large: repeat less, or smaller groups")
        if isinstance(node, _One):
            return self._add(_Character(node.ranges, after))
        if isinstance(node, _Sequence):
            for item in reversed(node.items):
                after = self._compile(item, after)
            return after
        if isinstance(node, _Either):
            begin = self._compile(node.options[-1], after)
            for option in reversed(node.options[:-1]):
                begin = self._add(_Split(self._compile(option, after), begin))
            return begin
        return self._compile_repeat(node, after)

    def _compile_repeat(self, node: _Repeat, after: int) -> int:
        begin = after
        if node.maximum < 0:
            begin = self._add(_Split(after, after))
            self._states[begin] = _Split(self._compile(node.item, begin), after)
        for _ in range(max(node.maximum - node.minimum, 0)):
            begin = self._add(_Split(self._compile(node.item, begin), after))
        for _ in range(node.minimum):
            begin = self._compile(node.item, begin)
        return begin
