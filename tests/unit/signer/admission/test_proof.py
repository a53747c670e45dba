"""What proves that a policy is applied; tests/e2e/test_admission_policies.py does it at a real API server."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import pytest

from signer.admission.discovery import NotServed
from signer.admission.policy import DryRunVerb
from signer.admission.proof import NotProven, Proven, prove
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import (
    ApiError,
    Cause,
    Forbidden,
    Invalid,
    ServerError,
    Unreachable,
    error_for_status,
)
from tests.unit.signer.admission.policies import MESSAGE, POLICY, PROOF
from tests.unit.signer.admission.test_discovery import BOTH, OLDER, Discovery

PATH: Final = "/apis/example.org/v1/namespaces/default/things"
REFUSAL: Final = f"ValidatingAdmissionPolicy 'colours' with binding 'colours' denied request: {MESSAGE}"
AS_EXPECTED: Final = Invalid(f'things.example.org "a" is forbidden: {REFUSAL}', status=422)


class Server(Discovery):
    """Answers dry runs by colour, and records the calls."""

    def __init__(self, blue: ApiError | None, red: ApiError | None, *, plurals: tuple[str, ...] = BOTH) -> None:
        super().__init__({"v1": plurals})
        self._answers = {"blue": blue, "red": red}
        self.calls: list[tuple[str, str, Parameters | None]] = []

    def _answer(self, body: JsonObject) -> JsonObject:
        error = self._answers[body["colour"]]
        if error is not None:
            raise error
        return body

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        self.calls.append(("create", path, params))
        return self._answer(body)

    async def patch(
        self, path: str, patch: JsonObject, content_type: str = "merge", params: Parameters | None = None
    ) -> JsonObject:
        self.calls.append(("patch", path, params))
        return self._answer(patch)


@pytest.mark.parametrize("verb", DryRunVerb)
async def test_both_answers_prove_it(verb: DryRunVerb) -> None:
    server = Server(AS_EXPECTED, None)
    assert await prove(POLICY, dataclasses.replace(PROOF, verb=verb), PATH, server) == Proven()
    assert server.calls == [(verb.value, PATH, {"dryRun": "All"})] * 2


@pytest.mark.parametrize("name", ["a", "a." * 50, "a." * 65])
async def test_a_refusal_that_the_client_shortened_counts_if_it_fits(name: str) -> None:
    message = f'things.example.org "{name}" is forbidden: {REFUSAL}'
    blue = error_for_status(422, reason="Invalid", message=message)
    assert (MESSAGE in blue.message) is (name != "a." * 65)
    assert await prove(POLICY, PROOF, PATH, Server(blue, None)) == Proven()


@pytest.mark.parametrize(
    ("blue", "red", "says"),
    [
        (None, None, "did not refuse"),
        (AS_EXPECTED, AS_EXPECTED, "should pass failed"),
        (AS_EXPECTED, Forbidden("no", status=403), "should pass failed"),
        (AS_EXPECTED, ServerError("no", status=500), "should pass failed"),
        (Forbidden('things.example.org is forbidden: User "a" cannot create', status=403), None, "something else"),
        (Invalid(f"a webhook: {MESSAGE}", status=422), None, "something else"),
        (Invalid(REFUSAL.replace("colours", "other"), status=422), None, "something else"),
        (Invalid(REFUSAL.replace("binding 'colours'", "binding 'other'"), status=422), None, "something else"),
        (Invalid(REFUSAL.replace(MESSAGE, "name a colour"), status=422), None, "something else"),
        (Invalid(REFUSAL.replace(MESSAGE, MESSAGE[:10]), status=422), None, "something else"),
        (Invalid(f"{REFUSAL} or not", status=422), None, "something else"),
        (Invalid(f"{'a' * 200} {REFUSAL}", status=422), None, "something else"),
        (ServerError(REFUSAL, status=500), None, "should refuse failed"),
        (Unreachable("no", cause=Cause.REFUSED), None, "should refuse failed"),
    ],
)
async def test_anything_else_proves_nothing(blue: ApiError | None, red: ApiError | None, says: str) -> None:
    answer = await prove(POLICY, PROOF, PATH, Server(blue, red))
    assert isinstance(answer, NotProven)
    assert says in answer.message


async def test_a_server_without_admission_policies() -> None:
    server = Server(AS_EXPECTED, None, plurals=OLDER)
    assert await prove(POLICY, PROOF, PATH, server) == NotServed()
    assert server.calls == []


async def test_a_server_that_does_not_say_what_it_serves() -> None:
    class Silent(Server):
        async def get(self, path: str) -> dict[str, Any]:
            raise Unreachable("no", cause=Cause.TIMEOUT)

    answer = await prove(POLICY, PROOF, PATH, Silent(AS_EXPECTED, None))
    assert isinstance(answer, NotProven)
    assert "does not say" in answer.message


async def test_a_message_of_no_validation_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="message"):
        await prove(POLICY, dataclasses.replace(PROOF, message="other"), PATH, Server(None, None))
