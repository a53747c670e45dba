"""Requests for objects of access, and what the admission policies and the webhook say to each.

``python -m tests.support.record_access_reviews`` records the AdmissionReview of each from a real kube-apiserver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from signer.access.admission import messages
from signer.access.admission.policies import Controllers
from signer.admission.policy import RefusalReason
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS, Resource
from signer.model.access.bastion import FINALIZER as BASTION_FINALIZER
from signer.model.access.grant import CREATED_BY_ANNOTATION, FINALIZER, HEARTBEAT_ANNOTATION, OPERATION_ANNOTATION
from tests.support.access_objects import AUTHORITY_KEY, approval_object, bastion_object, grant_object
from tests.support.cel import Grant
from tests.support.raw_client import RawClient

REVIEWS: Final = Path(__file__).parents[2] / "fixtures" / "admission" / "access"
NAMESPACE: Final = "default"
GRANT_CONTROLLER: Final = "system:serviceaccount:node-access:grants"
BASTION_CONTROLLER: Final = "system:serviceaccount:node-access:bastions"
CONTROLLERS: Final = Controllers(GRANT_CONTROLLER, BASTION_CONTROLLER)
ALICE: Final = "alice"
"""May use the logins root and admin, and containers."""
BOB: Final = "bob"
"""May do with grants what alice may, but use the login root only."""
CAROL: Final = "carol"
"""May use eight logins."""
CAROLS: Final = tuple(f"user{number}" for number in range(8))
ERIN: Final = "erin"
"""Has the verbs ``unsuspend`` and ``finalize``, too."""
GROUPS: Final[Mapping[str, Sequence[str]]] = {ALICE: ("team-a",), BOB: ("team-a", "team-b"), CAROL: (), ERIN: ()}
_AUTHENTICATED: Final = "system:authenticated"
LOGINS: Final[Mapping[str, Sequence[str]]] = {ALICE: ("root", "admin", "container"), BOB: ("root",), CAROL: CAROLS}
VERBS: Final = ("get", "list", "create", "update", "patch", "delete")
ADDITIONAL_VERBS: Final[Mapping[str, Sequence[str]]] = {ERIN: ("unsuspend", "finalize")}


def me(user: str) -> dict[str, Any]:
    """``spec.createdBy`` of what that user creates."""
    return {"username": user, "groups": [*GROUPS[user], _AUTHENTICATED]}


@dataclass(frozen=True, slots=True)
class Case:
    """One request: a creation, or a merge patch of an object that exists."""

    name: str
    user: str
    resource: Resource
    object: Mapping[str, Any]
    """What is created, or was there before."""
    change: Mapping[str, Any] | None = None
    """The merge patch; None for a creation."""
    says: str | None = None
    """Message of the refusal; None if the request passes."""
    on_status: bool = False

    @property
    def manifest(self) -> dict[str, Any]:
        """The object, named as the case."""
        metadata = {name: of for name, of in self.object["metadata"].items() if name in ("annotations", "finalizers")}
        return {**self.object, "metadata": {**metadata, "name": self.name, "namespace": NAMESPACE}}

    @property
    def review(self) -> dict[str, Any]:
        """The recorded AdmissionReview."""
        review: dict[str, Any] = json.loads((REVIEWS / f"{self.name}.json").read_text(encoding="utf-8"))
        return review

    @property
    def grants(self) -> frozenset[Grant]:
        """What the user may do that the policies ask for."""
        group = ACCESS_GRANTS.group
        return frozenset(
            {
                *(Grant(self.user, group, "logins", NAMESPACE, one, "use") for one in LOGINS.get(self.user, ())),
                *(
                    Grant(self.user, group, self.resource.plural, NAMESPACE, self.name, verb)
                    for verb in ADDITIONAL_VERBS.get(self.user, ())
                ),
            }
        )

    @property
    def reason(self) -> RefusalReason:
        """Of the refusal."""
        invalid = self.says is not None and "never changes" in self.says
        return RefusalReason.INVALID if invalid else RefusalReason.FORBIDDEN

    def send(self, client: RawClient) -> Any:
        """Send the request; the answer of the API server."""
        if self.change is None:
            return client.post(self.resource.collection(NAMESPACE), self.manifest)
        path = self.resource.object(self.name, NAMESPACE, "status" if self.on_status else None)
        return client.patch(path, dict(self.change))


def _by(user: str, *, finalizers: Sequence[str] = (), annotations: Mapping[str, str] | None = None, **spec: Any) -> Any:
    manifest = grant_object(creator=me(user), **spec)
    manifest["metadata"] = {"annotations": dict(annotations or {}), "finalizers": list(finalizers)}
    return manifest


def _creates(name: str, user: str, says: str | None = None, *, claims: Any = ..., **spec: Any) -> Case:
    manifest = _by(user, **spec)
    if claims is not ...:
        manifest["spec"]["createdBy"] = claims
    if claims is None:
        del manifest["spec"]["createdBy"]
    return Case(name, user, ACCESS_GRANTS, manifest, says=says)


def _changes(name: str, user: str, change: Mapping[str, Any], says: str | None = None, **of_alice: Any) -> Case:
    return Case(name, user, ACCESS_GRANTS, _by(ALICE, **of_alice), change, says)


def _ingress(*cidrs: str) -> list[Any]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


KEEPALIVE: Final = {"metadata": {"annotations": {OPERATION_ANNOTATION: "keepalive"}}}
NO_KEEPALIVE: Final = {"metadata": {"annotations": {OPERATION_ANNOTATION: None}}}
HEARTBEAT: Final = {"metadata": {"annotations": {HEARTBEAT_ANNOTATION: "2026-11-27T15:00:00Z"}}}
HOME: Final = {"spec": {"ingress": _ingress("203.0.113.9/32")}}
FULL: Final[Mapping[str, Any]] = {
    "logins": ["root"],
    "duration": "8h",
    "permissions": {"pty": True, "portForwarding": False},
    "reason": "disk full",
    "ticket": "OPS-17",
    "bastion": "None",
}
_CONTAINER: Final = {"container": {"namespace": "shop", "pod": "web-0", "container": "nginx"}}
_OTHERS: Final[Mapping[str, Any]] = {
    "clusterRef": {"name": "other"},
    "target": {"nodes": ["worker-2"]},
    "logins": ["root", "admin"],
    "sshPublicKey": AUTHORITY_KEY,
    "duration": "9h",
    "permissions": {"portForwarding": True},
    "reason": "other",
    "ticket": "OPS-18",
    "createdBy": {"username": BOB},
}

GRANT_CASES: Final = (
    _creates("create", ALICE),
    _creates("create-with-annotation", ALICE, annotations={CREATED_BY_ANNOTATION: ALICE}),
    _creates(
        "create-in-foreign-annotation", ALICE, messages.ANOTHER_ANNOTATION, annotations={CREATED_BY_ANNOTATION: BOB}
    ),
    _creates("create-in-foreign-name", BOB, messages.NOT_YOUR_NAME, claims={**me(BOB), "username": ALICE}),
    _creates("create-without-creator", BOB, messages.NOT_YOUR_NAME, claims=None),
    _creates("create-with-uid", BOB, messages.NOT_YOUR_UID, claims={**me(BOB), "uid": "u-1"}),
    _creates("create-with-another-group", BOB, messages.NOT_YOUR_GROUPS, claims={**me(BOB), "groups": ["admins"]}),
    _creates(
        "create-with-one-group-more",
        BOB,
        messages.NOT_YOUR_GROUPS,
        claims={**me(BOB), "groups": [*me(BOB)["groups"], "system:masters"]},
    ),
    _creates(
        "create-with-one-group-less", BOB, messages.NOT_YOUR_GROUPS, claims={**me(BOB), "groups": me(BOB)["groups"][1:]}
    ),
    _creates("create-without-groups", BOB, messages.NOT_YOUR_GROUPS, claims={"username": BOB}),
    _creates("create-with-keepalive", ALICE, annotations=KEEPALIVE["metadata"]["annotations"]),
    _creates("create-for-other-logins", ALICE, logins=["root", "admin"]),
    _creates("create-for-a-login-without-right", BOB, messages.LOGIN_MESSAGES[1], logins=["root", "admin"]),
    _creates("create-without-any-right", ERIN, messages.LOGIN_MESSAGES[0]),
    _creates("create-for-a-container", ALICE, target=_CONTAINER),
    _creates("create-for-a-container-without-right", BOB, messages.LOGIN_MESSAGES[0], target=_CONTAINER),
    *(
        _creates(
            f"create-without-right-to-login-{index}",
            CAROL,
            messages.LOGIN_MESSAGES[index],
            logins=[*CAROLS[:index], "nobody"],
        )
        for index in range(8)
    ),
    _creates("create-for-eight-logins", CAROL, logins=list(CAROLS)),
    _changes("ingress-by-creator", ALICE, HOME),
    _changes("ingress-by-other", BOB, HOME, messages.FOREIGN_INGRESS),
    _changes(
        "ingress-removed-by-other",
        BOB,
        {"spec": {"ingress": None}},
        messages.FOREIGN_INGRESS,
        ingress=_ingress("198.51.100.7/32"),
    ),
    _changes("ingress-by-controller", GRANT_CONTROLLER, HOME, messages.FOREIGN_INGRESS),
    _changes("keepalive-by-creator", ALICE, KEEPALIVE),
    _changes("keepalive-by-other", BOB, KEEPALIVE, messages.FOREIGN_KEEPALIVE),
    _changes("keepalive-by-controller", GRANT_CONTROLLER, KEEPALIVE, messages.FOREIGN_KEEPALIVE),
    _changes(
        "keepalive-removed-by-controller",
        GRANT_CONTROLLER,
        NO_KEEPALIVE,
        annotations=KEEPALIVE["metadata"]["annotations"],
    ),
    _changes(
        "keepalive-removed-by-other",
        BOB,
        NO_KEEPALIVE,
        messages.FOREIGN_KEEPALIVE,
        annotations=KEEPALIVE["metadata"]["annotations"],
    ),
    _changes("heartbeat-by-creator", ALICE, HEARTBEAT),
    _changes("heartbeat-by-other", BOB, HEARTBEAT, messages.FOREIGN_HEARTBEAT),
    _changes("heartbeat-by-controller", GRANT_CONTROLLER, HEARTBEAT, messages.FOREIGN_HEARTBEAT),
    _changes("suspend-by-other", BOB, {"spec": {"suspend": True}}),
    _changes("unsuspend-by-creator", ALICE, {"spec": {"suspend": False}}, suspend=True),
    _changes("unsuspend-by-other", BOB, {"spec": {"suspend": None}}, messages.FOREIGN_UNSUSPEND, suspend=True),
    _changes("unsuspend-by-verb", ERIN, {"spec": {"suspend": False}}, suspend=True),
    _changes("label-by-other", BOB, {"metadata": {"labels": {"a": "b"}}}),
    _changes(
        "annotation-by-other",
        BOB,
        {"metadata": {"annotations": {CREATED_BY_ANNOTATION: BOB}}},
        messages.ANOTHER_ANNOTATION,
    ),
    _changes("finalizer-by-controller", GRANT_CONTROLLER, {"metadata": {"finalizers": [FINALIZER]}}),
    _changes(
        "finalizer-removed-by-controller", GRANT_CONTROLLER, {"metadata": {"finalizers": None}}, finalizers=[FINALIZER]
    ),
    _changes(
        "finalizer-removed-by-creator",
        ALICE,
        {"metadata": {"finalizers": None}},
        messages.NOT_FINISHED,
        finalizers=[FINALIZER],
    ),
    _changes("finalizer-removed-by-verb", ERIN, {"metadata": {"finalizers": None}}, finalizers=[FINALIZER]),
    _changes(
        "other-finalizer-removed",
        BOB,
        {"metadata": {"finalizers": [FINALIZER]}},
        finalizers=[FINALIZER, "example.org/x"],
    ),
    *(
        _changes(f"{field.lower()}-by-creator", ALICE, {"spec": {field: value}}, messages.changed(field), **FULL)
        for field, value in _OTHERS.items()
    ),
    *(
        _changes(f"{field.lower()}-removed", ALICE, {"spec": {field: None}}, messages.changed(field), **FULL)
        for field in ("logins", "duration", "permissions", "reason", "ticket", "createdBy")
    ),
    _changes("reason-added", ALICE, {"spec": {"reason": "because"}}, messages.changed("reason")),
    _changes("bastion-added", ALICE, {"spec": {"bastion": "None"}}, messages.changed("bastion")),
    _changes(
        "bastion-by-creator",
        ALICE,
        {"spec": {"bastion": "aws", **HOME["spec"]}},
        messages.changed("bastion"),
        **FULL,
    ),
    _changes("bastion-removed", ALICE, {"spec": {"bastion": None}}, messages.changed("bastion"), **FULL),
    Case(
        "grant-status-by-creator",
        ALICE,
        ACCESS_GRANTS,
        _by(ALICE),
        {"status": {"expirationTimestamp": "2027-01-01T00:00:00Z"}},
        messages.STATUS_OF_GRANTS,
        on_status=True,
    ),
    Case(
        "grant-status-by-bastions",
        BASTION_CONTROLLER,
        ACCESS_GRANTS,
        _by(ALICE),
        {"status": {"observedGeneration": 1}},
        messages.STATUS_OF_GRANTS,
        on_status=True,
    ),
    Case(
        "grant-status-by-controller",
        GRANT_CONTROLLER,
        ACCESS_GRANTS,
        _by(ALICE),
        {"status": {"observedGeneration": 1}},
        on_status=True,
    ),
)


def _approval(name: str, user: str, says: str | None = None, change: Any = None, **spec: Any) -> Case:
    manifest = approval_object(creator=me(user), **spec)
    manifest["metadata"] = {}
    return Case(name, user, ACCESS_APPROVALS, manifest, change, says)


APPROVAL_CASES: Final = (
    _approval("approve", BOB),
    _approval("approve-in-foreign-name", BOB, messages.NOT_YOUR_NAME, createdBy={**me(BOB), "username": ERIN}),
    _approval("approve-without-name", BOB, messages.NOT_YOUR_NAME, createdBy=None),
    _approval("approve-in-foreign-uid", BOB, messages.NOT_YOUR_UID, createdBy={**me(BOB), "uid": "u-9"}),
    _approval("approve-in-foreign-group", BOB, messages.NOT_YOUR_GROUPS, createdBy={**me(BOB), "groups": ["admins"]}),
    _approval("change-approval", BOB, messages.APPROVAL_CHANGED, {"spec": {"decision": "Deny"}}),
    _approval("change-digest", BOB, messages.APPROVAL_CHANGED, {"spec": {"specDigest": "1" * 64}}),
    _approval("change-approver", BOB, messages.APPROVAL_CHANGED, {"spec": {"createdBy": {"username": ERIN}}}),
    _approval("label-approval", BOB, None, {"metadata": {"labels": {"a": "b"}}}),
    _approval(
        "annotate-approval",
        BOB,
        messages.ANOTHER_ANNOTATION,
        {"metadata": {"annotations": {CREATED_BY_ANNOTATION: ERIN}}},
    ),
)


def _bastion(name: str, user: str, says: str | None = None, change: Any = None, *, on_status: bool = False) -> Case:
    manifest = bastion_object()
    manifest["metadata"] = {"finalizers": [BASTION_FINALIZER]} if change and "metadata" in change else {}
    return Case(name, user, BASTIONS, manifest, change, says, on_status)


_WIDER: Final = {"spec": {"ingress": _ingress("203.0.113.0/24")}}
_NO_FINALIZER: Final = {"metadata": {"finalizers": None}}
_ADDRESS: Final = {"status": {"ingress": {"ip": "203.0.113.9", "port": 22}}}
BASTION_CASES: Final = (
    _bastion("make-bastion", GRANT_CONTROLLER),
    _bastion("make-bastion-by-user", ALICE, messages.BASTION_MADE),
    _bastion("make-bastion-by-bastions", BASTION_CONTROLLER, messages.BASTION_MADE),
    _bastion("widen-bastion", GRANT_CONTROLLER, None, _WIDER),
    _bastion("widen-bastion-by-user", ALICE, messages.BASTION_CHANGED, _WIDER),
    _bastion("widen-bastion-by-bastions", BASTION_CONTROLLER, messages.BASTION_CHANGED, _WIDER),
    _bastion("finish-bastion", BASTION_CONTROLLER, None, _NO_FINALIZER),
    _bastion("finish-bastion-by-user", ALICE, messages.BASTION_NOT_FINISHED, _NO_FINALIZER),
    _bastion("finish-bastion-by-grants", GRANT_CONTROLLER, messages.BASTION_NOT_FINISHED, _NO_FINALIZER),
    _bastion("finish-bastion-by-verb", ERIN, None, _NO_FINALIZER),
    _bastion("bastion-status", BASTION_CONTROLLER, None, _ADDRESS, on_status=True),
    _bastion("bastion-status-by-user", ALICE, messages.STATUS_OF_BASTIONS, _ADDRESS, on_status=True),
    _bastion("bastion-status-by-grants", GRANT_CONTROLLER, messages.STATUS_OF_BASTIONS, _ADDRESS, on_status=True),
)
CASES: Final = (*GRANT_CASES, *APPROVAL_CASES, *BASTION_CASES)
