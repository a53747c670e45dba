from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.access.admission import messages
from signer.access.admission.judge import NeedsRights, Right, creator_patch, judge
from signer.access.admission.review import (
    Allowed,
    InvalidReview,
    Kind,
    NoObject,
    Refused,
    answer,
    parse_review,
    patching_answer,
)
from signer.admission.policy import Operation, RefusalReason
from signer.model.access.targets import MAXIMUM_LOGINS
from tests.support.access_requests import ALICE, CASES, CONTROLLERS


def recorded(name: str) -> dict[str, Any]:
    (case,) = (case for case in CASES if case.name == name)
    return case.review


def parsed(review: object) -> Any:
    return parse_review(json.dumps(review).encode())


def test_a_review() -> None:
    review = parsed(recorded("create"))
    request = review.request
    assert review.uid == recorded("create")["request"]["uid"]
    assert (request.operation, request.kind, request.is_on_status) == (Operation.CREATE, Kind.GRANT, False)
    assert (request.namespace, request.name, request.old) == ("default", "create", NoObject())
    assert (request.user.username, request.user.uid) == (ALICE, "")
    assert request.user.groups == {"team-a", "system:authenticated"}
    assert parsed(recorded("bastion-status")).request.is_on_status


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"apiVersion": "admission.k8s.io/v1beta1"}']
)
def test_what_is_no_review(body: bytes) -> None:
    with pytest.raises(InvalidReview):
        parse_review(body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("operation", "DELETE"),
        ("operation", "CONNECT"),
        ("operation", []),
        ("resource", {"group": "apps", "resource": "accessgrants"}),
        ("resource", {"group": "access.cluster.x-k8s.io", "resource": "pods"}),
        ("uid", ""),
        ("userInfo", {"username": ""}),
        ("userInfo", None),
        ("object", None),
        ("oldObject", {}),
    ],
)
def test_what_is_no_review_of_ours(field: str, value: object) -> None:
    review = recorded("create")
    review["request"][field] = value
    with pytest.raises(InvalidReview):
        parsed(review)


def test_an_update_has_an_old_object() -> None:
    review = recorded("ingress-by-creator")
    review["request"]["oldObject"] = None
    with pytest.raises(InvalidReview):
        parsed(review)


def test_answers() -> None:
    said = answer("u", Refused("no", RefusalReason.FORBIDDEN))
    assert said["response"] == {
        "uid": "u",
        "allowed": False,
        "status": {"message": "no", "reason": "Forbidden", "code": 403},
    }
    assert answer("u", Allowed())["response"] == {"uid": "u", "allowed": True}
    patch = patching_answer("u", ({"op": "add", "path": "/a", "value": "ü"},))["response"]
    assert (patch["allowed"], patch["patchType"]) == (True, "JSONPatch")
    assert json.loads(base64.b64decode(patch["patch"])) == [{"op": "add", "path": "/a", "value": "ü"}]


def test_the_creator_is_filled_in() -> None:
    review = recorded("create-in-foreign-name")
    review["request"]["object"]["metadata"]["annotations"] = {"a": "b"}
    review["request"]["userInfo"]["uid"] = "u-2"
    annotations, creator = creator_patch(parsed(review).request)
    assert annotations == {
        "op": "add",
        "path": "/metadata/annotations",
        "value": {"a": "b", "access.cluster.x-k8s.io/created-by": "bob"},
    }
    assert creator == {
        "op": "add",
        "path": "/spec/createdBy",
        "value": {"username": "bob", "uid": "u-2", "groups": ["system:authenticated", "team-a", "team-b"]},
    }
    assert creator_patch(parsed(recorded("ingress-by-creator")).request) == ()
    assert creator_patch(parsed(recorded("make-bastion")).request) == ()
    assert len(creator_patch(parsed(recorded("approve")).request)) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ingress": [{"ipBlock": {"cidr": "198.51.100.7/24"}}]}, "spec.ingress[0].ipBlock.cidr must be a network"),
        ({"bastion": "aws", "ingress": []}, "spec.ingress must name the networks"),
        ({"target": {"nodes": ["a"], "allNodes": {}}}, "spec.target must have exactly one of"),
        ({"sshPublicKey": "ssh-ed25519 AAAA"}, "spec.sshPublicKey is no public key"),
        ({"duration": "169h"}, "spec.duration must be between"),
    ],
)
def test_what_only_a_parser_says(change: dict[str, Any], says: str) -> None:
    review = recorded("create")
    review["request"]["object"]["spec"] |= change
    request = parsed(review).request
    found = judge(request, CONTROLLERS)
    assert isinstance(found, Refused)
    assert found.message.startswith(says)
    assert found.reason is RefusalReason.INVALID


def test_an_old_object_that_is_invalid_today_may_be_finished() -> None:
    review = recorded("finalizer-removed-by-controller")
    for each in ("object", "oldObject"):
        review["request"][each]["spec"]["sshPublicKey"] = "none"
    assert judge(parsed(review).request, CONTROLLERS) == Allowed()


def test_a_name_that_the_api_server_makes_up() -> None:
    review = recorded("create")
    review["request"]["name"] = ""
    metadata = review["request"]["object"]["metadata"]
    metadata["generateName"] = "repair-"
    del metadata["name"]
    request = parsed(review).request
    assert isinstance(judge(request, CONTROLLERS), NeedsRights)


def test_rights_are_asked_only_where_they_matter() -> None:
    def asked(name: str) -> tuple[Right, ...]:
        judgement = judge(parsed(recorded(name)).request, CONTROLLERS)
        return tuple(need.right for need in judgement.needs) if isinstance(judgement, NeedsRights) else ()

    assert asked("create") == (Right("logins", "root", "use"),)
    assert asked("create-for-a-container") == (Right("logins", "container", "use"),)
    assert len(asked("create-for-eight-logins")) == 8
    assert asked("unsuspend-by-other") == (Right("accessgrants", "unsuspend-by-other", "unsuspend"),)
    assert asked("finish-bastion-by-user") == (Right("bastions", "finish-bastion-by-user", "finalize"),)
    assert asked("finalizer-removed-by-verb") == (Right("accessgrants", "finalizer-removed-by-verb", "finalize"),)
    for name in ("ingress-by-other", "suspend-by-other", "grant-status-by-creator", "approve", "bastion-status"):
        assert asked(name) == ()


def test_more_logins_than_a_grant_may_have_ask_for_no_rights() -> None:
    review = recorded("create")
    review["request"]["object"]["spec"]["logins"] = ["root"] * 1000
    request = parsed(review).request
    assert isinstance(judge(request, CONTROLLERS), Refused)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PLACES = st.sampled_from(["metadata", "spec", "status"])
PARTS = st.sampled_from(["annotations", "finalizers", "createdBy", "ingress", "logins", "target", "suspend", "bastion"])


@given(st.sampled_from(CASES), PLACES, PARTS, JSON, st.booleans())
def test_hostile_objects(case: Any, place: str, part: str, value: object, is_whole: bool) -> None:
    """Whatever users write, the answer is a judgement."""
    review = copy.deepcopy(case.review)
    changed = review["request"]["object"]
    if is_whole:
        changed[place] = value
    elif isinstance(changed.get(place), dict):
        changed[place][part] = value
    request = parsed(review).request
    judgement = judge(request, CONTROLLERS)
    assert isinstance(judgement, Allowed | Refused | NeedsRights)
    assert not isinstance(judgement, NeedsRights) or 1 <= len(judgement.needs) <= MAXIMUM_LOGINS
    creator_patch(request)


def test_messages_name_no_value() -> None:
    assert len(set(messages.LOGIN_MESSAGES)) == 8
