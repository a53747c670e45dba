"""What persons may do now: reviews at the management API server of the rights to logins.

The virtual resource ``logins`` (group ``access.cluster.x-k8s.io``) has no objects: RBAC gives the verb ``use`` or
``approve`` on a login by its name. Reviews name the sealed creator, and are asked again all the time: a person without
the right loses the session.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from signer.access.right_answers import Allowed, Denied, RightAnswer, RightUnknown, Verb
from signer.kube.calls import Create
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import SUBJECT_ACCESS_REVIEWS
from signer.model.access import API_GROUP, Creator
from signer.model.fields import mapping_of

REVIEW_SECONDS: Final = 240.0
"""Between two reviews of one right. A minute is left for other attempts before the right counts as lost."""
_REMEMBERED: Final = 16384


@dataclass(frozen=True, slots=True)
class _Question:
    namespace: str
    person: Creator
    verb: Verb
    login: str


@dataclass(slots=True)
class _Known:
    answered_at: float
    answer: Allowed | Denied | None


class Rights:
    """Asks, and remembers answers for a while. All grants of a process share one."""

    def __init__(self, client: Create, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._known: OrderedDict[_Question, _Known] = OrderedDict()

    async def of(
        self, namespace: str, person: Creator, verb: Verb, logins: Sequence[str], *, maximum_age: float
    ) -> RightAnswer:
        """Whether the person has the right to all of these logins in that namespace, by answers that are at most
        ``maximum_age`` seconds old.
        """
        unknown: list[RightUnknown] = []
        for login in logins:
            match await self._one(_Question(namespace, person, verb, login), maximum_age):
                case Denied() as denied:
                    return denied
                case RightUnknown() as one:
                    unknown.append(one)
                case Allowed():
                    pass
        return max(unknown, key=lambda one: one.seconds) if unknown else Allowed()

    async def _one(self, question: _Question, maximum_age: float) -> RightAnswer:
        now = self._monotonic()
        known = self._known.get(question)
        if known is not None and known.answer is not None and now - known.answered_at <= maximum_age:
            return known.answer
        answer = await self._ask(question)
        if isinstance(answer, str):
            if known is None:
                known = _Known(now, None)
            self._remember(question, known)
            return RightUnknown(answer, self._monotonic() - known.answered_at)
        self._remember(question, _Known(now, answer))
        return answer

    async def _ask(self, question: _Question) -> Allowed | Denied | str:
        """A text says why there is no answer."""
        try:
            review = await self._client.create(SUBJECT_ACCESS_REVIEWS.collection(), _review(question))
        except ApiError as error:
            return f"the API server reviews no rights: {error}"
        status = mapping_of(review, "status")
        if status.get("allowed") is True and status.get("denied") is not True:
            return Allowed()
        if status.get("evaluationError") and status.get("denied") is not True:
            return "the API server could not evaluate every rule"
        return Denied(f"no right to {question.verb.value} login {question.login}")

    def _remember(self, question: _Question, known: _Known) -> None:
        self._known[question] = known
        self._known.move_to_end(question)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)


def _review(question: _Question) -> JsonObject:
    person = question.person
    spec: JsonObject = {
        "user": person.username,
        "groups": sorted(person.groups),
        "resourceAttributes": {
            "group": API_GROUP,
            "resource": "logins",
            "verb": question.verb.value,
            "name": question.login,
            "namespace": question.namespace,
        },
    }
    if person.uid:
        spec["uid"] = person.uid
    return {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}


__all__ = ["REVIEW_SECONDS", "Rights"]
