"""What an actor of ``interleavings`` does next, by the answers that it got. Its code runs once for each row of answers,
and the explorer, which comes to the same rows by many schedules, looks up the rest.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.model.decision import Deferred, Refused
from signer.store.event_history import ObservedEvent, Order
from tests.unit.signer.store.scenario import End


@dataclass(frozen=True, slots=True)
class Call:
    """A call to the management API, or a wait for the watch (``expect``)."""

    method: str
    path: str = ""
    body: Any = None
    uid: str | None = None
    resource_version: str | None = None
    """The preconditions of a deletion."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the world answers to a call."""

    told: str
    """What counts of it in a comparison of worlds."""
    value: Any = None
    error: type[ApiError] | None = None

    @property
    def key(self) -> str:
        """Equal for equal answers to the same call."""
        return f"{self.told} {self.value}"

    def take(self) -> Any:
        """As the client returns it. Raises the error that was answered."""
        if self.error is not None:
            raise self.error(self.told)
        return self.value


class _Ask:
    """Yields a call to the scheduler, which sends the answer."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __await__(self) -> Generator[Call, Answer, Any]:
        return (yield self._call).take()


class Client:
    """A management API."""

    async def _ask(self, call: Call) -> Any:
        return await _Ask(call)

    async def get(self, path: str) -> JsonObject:
        return cast("JsonObject", await self._ask(Call("get", path)))

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        return cast("JsonObject", await self._ask(Call("create", path, body)))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        return cast("JsonObject", await self._ask(Call("patch", path, patch)))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        return cast("JsonObject", await self._ask(Call("delete", path, uid=uid, resource_version=resource_version)))


class Following(enum.Enum):
    """What an actor does about its watch between two calls."""

    UNCHANGED = "unchanged"
    BEGINS = "begins"
    ENDS = "ends"


class FollowedWatch:
    """An actor's watch, in place of its cache's :class:`~signer.store.event_history.EventHistories`."""

    def __init__(self, *, works: bool) -> None:
        self._works = works
        self.following = Following.UNCHANGED
        """Since the last call."""

    @contextlib.contextmanager
    def follow(self, keys: Iterable[tuple[str, str]]) -> Iterator[FollowedWatch]:
        self.following = Following.BEGINS
        try:
            yield self
        finally:
            self.following = Following.ENDS

    async def expect(self, expected: Sequence[ObservedEvent], seconds: float) -> Order:
        return await _Ask(Call("expect", body=tuple(expected))) if self._works else Order.OTHERWISE


@dataclass(slots=True, eq=False)
class Moment:
    """Where an actor stands: at a call, or at its end."""

    program: Program
    call: Call | None = None
    end: End = End.RUNNING
    following: Following = Following.UNCHANGED
    """What it did about its watch on the way here."""
    _before: tuple[Moment, Answer] | None = None
    _after: dict[str, Moment] = field(default_factory=dict)
    _live: _Run | None = None
    """The run that has come here, until it goes on."""

    def after(self, answer: Answer) -> Moment:
        """Where the actor stands once its call is answered."""
        key = answer.key
        found = self._after.get(key)
        if found is None:
            run, self._live = self._live or self._run_again(), None
            found = self._after[key] = run.on(Moment(self.program, _before=(self, answer)), answer)
        return found

    def _run_again(self) -> _Run:
        """The actor's code, after all answers that led here: it acts on nothing else."""
        answers: list[Answer] = []
        moment = self
        while moment._before is not None:
            moment, answer = moment._before
            answers.append(answer)
        run = self.program.new_run()
        assert run.repeat(answers[::-1]) == self.call
        return run


class _Run:
    """The actor's code itself."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], watch: FollowedWatch, at_end: End) -> None:
        self._coroutine, self._watch, self._at_end = coroutine, watch, at_end

    def repeat(self, answers: Iterable[Answer]) -> Call:
        """Run on to the call after these answers."""
        call: Call = self._coroutine.send(None)
        for answer in answers:
            call = self._coroutine.send(answer)
        return call

    def on(self, moment: Moment, answer: Answer | None) -> Moment:
        """Run on to ``moment``, which the next call or the end makes."""
        self._watch.following = Following.UNCHANGED
        try:
            moment.call = self._coroutine.send(answer)
            moment._live = self
        except StopIteration:
            moment.end = self._at_end
        except Refused:
            moment.end = End.REFUSED
        except Deferred:
            moment.end = End.DEFERRED
        moment.following = self._watch.following
        return moment


class Program:
    """All that one kind of actor may do."""

    def __init__(self, code: Callable[[Client, FollowedWatch], Coroutine[Any, Any, None]], *, watched: bool, end: End):
        self._code, self._watched, self._end = code, watched, end
        self.first: Final = self.new_run().on(Moment(self), None)

    def new_run(self) -> _Run:
        """The code, from its beginning."""
        watch = FollowedWatch(works=self._watched)
        return _Run(self._code(Client(), watch), watch, self._end)
