"""Reviews of rights: of the sealed creator, for every login, by answers that are not old; faults are no answers."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.access.right_answers import Allowed, Denied, RightUnknown, Verb
from signer.access.rights import Rights
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Cause, Forbidden, ServerError, Unreachable
from signer.model.access import Creator

ALICE: Final = Creator("alice", "u-1", frozenset({"team-a", "system:authenticated"}))


class Reviews:
    """An API server that answers reviews, and a clock."""

    def __init__(self, *answers: JsonObject | ApiError) -> None:
        self.answers = list(answers)
        self.asked: list[JsonObject] = []
        self.time = 1000.0

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.asked.append(body["spec"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return {"status": answer}

    def monotonic(self) -> float:
        return self.time

    async def ask(self, *logins: str, age: float = 60.0, rights: Rights | None = None) -> Any:
        found = rights if rights is not None else Rights(self, self.monotonic)
        return await found.of("team-a", ALICE, Verb.USE, logins or ("root",), maximum_age=age)


YES: Final[JsonObject] = {"allowed": True}
NO: Final[JsonObject] = {"allowed": False}


async def test_the_review_names_the_creator_and_the_login() -> None:
    reviews = Reviews(YES)
    assert await reviews.ask("admin") == Allowed()
    assert reviews.asked == [
        {
            "user": "alice",
            "uid": "u-1",
            "groups": ["system:authenticated", "team-a"],
            "resourceAttributes": {
                "group": "access.cluster.x-k8s.io",
                "resource": "logins",
                "verb": "use",
                "name": "admin",
                "namespace": "team-a",
            },
        }
    ]


async def test_every_login_needs_the_right() -> None:
    assert isinstance(await Reviews(YES, NO).ask("admin", "root"), Denied)


@pytest.mark.parametrize("status", [{}, NO, {"allowed": True, "denied": True}, {"allowed": "true"}, {"allowed": 1}])
async def test_anything_but_a_clear_yes_is_a_denial(status: JsonObject) -> None:
    assert isinstance(await Reviews(status).ask(), Denied)


async def test_an_evaluation_that_failed_is_no_answer() -> None:
    assert isinstance(await Reviews({"allowed": False, "evaluationError": "no role"}).ask(), RightUnknown)
    assert isinstance(await Reviews({"allowed": False, "denied": True, "evaluationError": "x"}).ask(), Denied)


@pytest.mark.parametrize(
    "error", [ServerError("x", status=500), Forbidden("x", status=403), Unreachable("x", cause=Cause.TIMEOUT)]
)
async def test_a_fault_of_the_api_is_no_answer(error: ApiError) -> None:
    assert isinstance(await Reviews(error).ask(), RightUnknown)


async def test_answers_are_remembered_for_a_while_only() -> None:
    reviews = Reviews(YES, NO)
    rights = Rights(reviews, reviews.monotonic)
    assert await reviews.ask(rights=rights) == Allowed()
    reviews.time += 59
    assert await reviews.ask(rights=rights) == Allowed()
    assert isinstance(await reviews.ask(rights=rights, age=2.0), Denied)
    assert len(reviews.asked) == 2


async def test_without_answers_the_time_since_the_last_one_grows() -> None:
    reviews = Reviews(YES, ServerError("x", status=500))
    rights = Rights(reviews, reviews.monotonic)
    await reviews.ask(rights=rights)
    for after in (61.0, 200.0):
        reviews.time = 1000.0 + after
        assert await reviews.ask(rights=rights) == RightUnknown(
            "the API server reviews no rights: 500 InternalError: x", after
        )


async def test_without_any_answer_the_time_since_the_first_question_grows() -> None:
    reviews = Reviews(ServerError("x", status=500))
    rights = Rights(reviews, reviews.monotonic)
    await reviews.ask(rights=rights)
    reviews.time += 300
    answer = await reviews.ask(rights=rights)
    assert isinstance(answer, RightUnknown)
    assert answer.seconds == 300.0


async def test_persons_with_the_same_name_and_other_groups_are_asked_about_apart() -> None:
    reviews = Reviews(YES, NO)
    rights = Rights(reviews, reviews.monotonic)
    await reviews.ask(rights=rights)
    other = Creator("alice", "u-1", frozenset())
    assert isinstance(await rights.of("team-a", other, Verb.USE, ("root",), maximum_age=60), Denied)
