"""The trial of the creator lock: what the API server answers decides, and each thing that is amiss by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from signer.access.creator import Lock, NotProtected, Protected, ProtectionUnknown, Unverified
from signer.access.creator_lock import FOREIGN_NAME, CreatorLock, GuardNames
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Forbidden, Invalid, NotFound, ResourceNotServed, ServerError

NAMES: Final = GuardNames(("creators",), "creators.webhook", "createdBy must be you")
REFUSED: Final = (
    "accessgrants.access.cluster.x-k8s.io \"probe\" is forbidden: ValidatingAdmissionPolicy 'creators' with binding "
    "'creators' denied request: createdBy must be you"
)
CREATED: Final = "2026-11-27T12:00:00Z"
NOT_THERE: Final = NotFound("no object", status=404, reason="NotFound")
NOT_SERVED: Final = ResourceNotServed("not served", status=404)


def guard(kind: str, **metadata: Any) -> JsonObject:
    return {
        "kind": kind,
        "metadata": {"name": "creators", "uid": "1", "generation": 1, "creationTimestamp": CREATED, **metadata},
    }


@dataclass
class API:
    """An API server with policies that refuse."""

    created: list[tuple[str, JsonObject, Parameters | None]] = field(default_factory=list)
    refuse: dict[str, ApiError | str] = field(default_factory=dict)
    """By plural: the error, or the name that the answer has."""
    guards: dict[str, JsonObject | ApiError] = field(default_factory=dict)
    reads: int = 0
    time: float = 0.0

    async def get(self, path: str) -> JsonObject:
        self.reads += 1
        kind = path.split("/")[4]
        found = self.guards.get(f"{path.split('/')[3]}/{kind}", self.guards.get(kind, guard(kind)))
        if isinstance(found, ApiError):
            raise found
        return found

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        self.created.append((path, body, params))
        found = self.refuse.get(path.rpartition("/")[2], Forbidden(REFUSED, status=403))
        if isinstance(found, ApiError):
            raise found
        return {**body, "spec": {**body["spec"], "createdBy": {"username": found}}}

    async def patch(self, *arguments: Any, **named: Any) -> JsonObject:
        raise AssertionError("a trial changes nothing")

    def lock(self, *, is_required: bool = True) -> CreatorLock:
        return CreatorLock(
            self,
            NAMES,
            is_required=is_required,
            now=lambda: datetime(2026, 11, 27, 14, tzinfo=UTC),
            monotonic=lambda: self.time,
        )

    async def tried(self) -> Lock:
        return await self.lock().fresh("team-a")


async def test_refused_in_a_foreign_name_is_protected() -> None:
    api = API()
    found = await api.tried()
    assert isinstance(found, Protected)
    assert found.since == datetime(2026, 11, 27, 12, 0, 2, tzinfo=UTC)
    assert [path.rpartition("/")[2] for path, _, _ in api.created] == ["accessgrants", "accessapprovals"]
    assert all(params == {"dryRun": "All"} for _, _, params in api.created), "a trial leaves nothing"
    assert all(body["spec"]["createdBy"]["username"] == FOREIGN_NAME for _, body, _ in api.created)


@pytest.mark.parametrize("plural", ["accessgrants", "accessapprovals"])
async def test_accepted_in_the_foreign_name_is_not(plural: str) -> None:
    assert isinstance(await API(refuse={plural: FOREIGN_NAME}).tried(), NotProtected)


async def test_accepted_in_the_own_name_is_protected() -> None:
    """A mutating policy has filled in who asks."""
    own = "system:serviceaccount:x:controller"
    assert isinstance(await API(refuse={"accessgrants": own, "accessapprovals": own}).tried(), Protected)


@pytest.mark.parametrize(
    "error",
    [
        Forbidden('User "x" cannot create resource "accessgrants"', status=403),
        Invalid("spec.target: Required value", status=422),
        Forbidden("ValidatingAdmissionPolicy 'labels' with binding 'labels' denied request: no owner", status=403),
        Forbidden("ValidatingAdmissionPolicy 'creators' with binding 'mine' denied request: no", status=403),
        Forbidden("ValidatingAdmissionPolicy 'creators' with binding 'creators' denied request: no login", status=403),
        Forbidden('admission webhook "validate.kyverno.svc-fail" denied the request: no owner', status=403),
        ServerError("down", status=500),
        NOT_SERVED,
    ],
)
async def test_a_refusal_for_another_reason_proves_nothing(error: ApiError) -> None:
    assert isinstance(await API(refuse={"accessgrants": error}).tried(), ProtectionUnknown)


async def test_a_webhook_counts_where_no_policies_are_served() -> None:
    refused = Forbidden('admission webhook "creators.x" denied the request: createdBy must be you', status=403)
    api = API(
        refuse={"accessgrants": refused, "accessapprovals": refused},
        guards={
            "validatingadmissionpolicies": NOT_SERVED,
            "validatingwebhookconfigurations": {
                **guard("validatingwebhookconfigurations"),
                "webhooks": [{"name": "creators.x"}],
            },
        },
    )
    found = await api.tried()
    assert isinstance(found, Protected)
    assert [one.name for one in found.guards] == ["validatingwebhookconfigurations/creators"]


async def test_policies_of_v1beta1_count_where_v1_is_not_served() -> None:
    api = API(guards={"v1/validatingadmissionpolicies": NOT_SERVED})
    assert isinstance(await api.tried(), Protected)


@pytest.mark.parametrize("missing", ["validatingadmissionpolicies", "validatingadmissionpolicybindings"])
async def test_a_missing_guard_is_no_protection(missing: str) -> None:
    assert isinstance(await API(guards={missing: NOT_THERE}).tried(), NotProtected)


async def test_without_policies_and_webhook_there_is_no_protection() -> None:
    guards: dict[str, JsonObject | ApiError] = {
        "validatingadmissionpolicies": NOT_SERVED,
        "validatingwebhookconfigurations": NOT_THERE,
    }
    assert isinstance(await API(guards=guards).tried(), NotProtected)


async def test_a_guard_is_as_old_as_its_last_change_but_for_its_status() -> None:
    changed = {"time": "2026-11-27T13:00:00Z"}
    status = {"time": "2026-11-27T13:30:00Z", "subresource": "status"}
    api = API(guards={"validatingadmissionpolicybindings": guard("b", managedFields=[changed, status])})
    found = await api.tried()
    assert isinstance(found, Protected)
    assert found.since - timedelta(seconds=2) == datetime(2026, 11, 27, 13, tzinfo=UTC)


async def test_a_trial_is_made_each_minute() -> None:
    api = API()
    lock = api.lock()
    for seconds, trials in ((0.0, 2), (59.0, 2), (61.0, 4)):
        api.time = seconds
        await lock.fresh("team-a")
        assert len(api.created) == trials
    await lock.fresh("team-b")
    assert len(api.created) == 6, "a binding may select namespaces"


async def test_a_trial_that_fails_is_made_again_and_counts_soon() -> None:
    api = API()
    lock = api.lock()
    assert isinstance(await lock.fresh("team-a"), Protected)
    api.refuse = {"accessgrants": ServerError("down", status=500)}
    api.time = 70.0
    assert isinstance(await lock.fresh("team-a"), Protected)
    assert len(api.created) == 3
    api.time = 91.0
    assert isinstance(await lock.fresh("team-a"), ProtectionUnknown)
    api.refuse = {}
    api.time = 152.0
    assert isinstance(await lock.fresh("team-a"), Protected)


async def test_an_answer_that_changes_counts_at_once() -> None:
    api = API()
    lock = api.lock()
    await lock.fresh("team-a")
    api.refuse = {"accessgrants": FOREIGN_NAME}
    api.time = 60.0
    assert isinstance(await lock.fresh("team-a"), NotProtected)


async def test_unverified_asks_nothing() -> None:
    api = API()
    assert await api.lock(is_required=False).fresh("team-a") == Unverified()
    assert not api.created
    assert not api.reads


async def test_a_trial_since_then_is_made_now() -> None:
    """Also of the guards, which trials share otherwise."""
    api = API()
    lock = api.lock()
    await lock.fresh("team-a")
    api.time = 1.0
    assert isinstance(await lock.fresh("team-a", since=0.0), Protected)
    assert len(api.created) == 2, "the first one began then"
    reads = api.reads
    assert isinstance(await lock.fresh("team-a", since=1.0), Protected)
    assert len(api.created) == 4
    assert api.reads > reads


async def test_a_trial_since_then_that_fails_proves_nothing() -> None:
    api = API()
    lock = api.lock()
    await lock.fresh("team-a")
    api.time = 1.0
    api.refuse = {"accessgrants": ServerError("down", status=500)}
    assert isinstance(await lock.fresh("team-a", since=1.0), ProtectionUnknown)
    assert isinstance(await lock.fresh("team-a"), Protected), "the first one still counts for what was before"
