"""The CEL of the policies of mode Enforce; tests/e2e/test_builtin_requests_refused.py compares a real API server."""

from __future__ import annotations

from typing import Any, Final

import pytest

from signer.controller.auto_approval.refusal_policies import (
    APPROVERS,
    CLIENT_SIGNERS,
    NODES,
    PROOF_GROUP_ANNOTATION,
    TOKENS,
    RefusalPolicy,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import Evaluator, NotMatched

CLIENT, OTHER_CLIENT = CLIENT_SIGNERS
TOKEN: Final = {"username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers", "system:authenticated"]}
NODE: Final = {"username": "system:node:node-1", "groups": ["system:nodes", "system:authenticated"]}
PERSON: Final = {"username": "jane", "groups": ["system:authenticated"]}
APPROVER: Final = {"username": APPROVERS[0], "groups": ["system:serviceaccounts"]}


@pytest.fixture(scope="module", params=[TOKENS, NODES], ids=["tokens", "nodes"])
def refusing(request: pytest.FixtureRequest) -> tuple[RefusalPolicy, Evaluator]:
    one: RefusalPolicy = request.param
    try:
        return one, Evaluator(one.policy)
    except MissingPart as missing:
        skip_or_fail(missing)


def creation(user: dict[str, Any], signer: str = CLIENT, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "a"} if annotations is None else {"name": "a", "annotations": annotations}
    made = {"metadata": metadata, "spec": {"signerName": signer, **user}}
    return {"request": {"operation": "CREATE", "object": made, "oldObject": None, "userInfo": user}}


def approval(user: dict[str, Any], approver: dict[str, Any], signer: str = CLIENT) -> dict[str, Any]:
    made = {"metadata": {"name": "a"}, "spec": {"signerName": signer, **user}}
    return {"request": {"operation": "UPDATE", "object": made, "oldObject": made, "userInfo": approver}}


def verdict(refusing: tuple[RefusalPolicy, Evaluator], review: dict[str, Any]) -> str:
    found = refusing[1].refusals(review, ())
    if isinstance(found, NotMatched):
        return "not looked at"
    return "refused" if found else "passes"


def expected(refusing: tuple[RefusalPolicy, Evaluator], user: dict[str, Any]) -> str:
    """A policy refuses its own and nobody else."""
    return "refused" if refusing[0].group in user["groups"] else "passes"


@pytest.mark.parametrize("user", [TOKEN, NODE, PERSON], ids=["token", "node", "person"])
@pytest.mark.parametrize("signer", CLIENT_SIGNERS)
def test_creations(refusing: tuple[RefusalPolicy, Evaluator], user: dict[str, Any], signer: str) -> None:
    assert verdict(refusing, creation(user, signer)) == expected(refusing, user)
    assert verdict(refusing, creation({**user, "groups": []}, signer)) == expected(refusing, user), "by name"
    assert verdict(refusing, creation({**user, "username": "any"}, signer)) == expected(refusing, user), "by group"


@pytest.mark.parametrize("user", [TOKEN, NODE], ids=["token", "node"])
@pytest.mark.parametrize(
    "signer",
    [
        "kubernetes.io/kubelet-serving",
        "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        "cluster.x-k8s.io/kubelet-serving-tpm",
        "example.org/anything",
    ],
)
def test_other_signers(refusing: tuple[RefusalPolicy, Evaluator], user: dict[str, Any], signer: str) -> None:
    assert verdict(refusing, creation(user, signer)) == "not looked at"
    assert verdict(refusing, approval(user, APPROVER, signer)) == "not looked at"


@pytest.mark.parametrize("user", [TOKEN, NODE, PERSON], ids=["token", "node", "person"])
def test_approvals_of_what_is_pending(refusing: tuple[RefusalPolicy, Evaluator], user: dict[str, Any]) -> None:
    for name in APPROVERS:
        assert verdict(refusing, approval(user, {**APPROVER, "username": name})) == expected(refusing, user)
    assert verdict(refusing, approval(user, PERSON)) == "passes"


def test_the_annotation_only_adds_refusals(refusing: tuple[RefusalPolicy, Evaluator]) -> None:
    group = refusing[0].group
    assert verdict(refusing, creation(PERSON, annotations={PROOF_GROUP_ANNOTATION: group})) == "refused"
    for value in ("", "system:masters", "system:authenticated"):
        annotations = {PROOF_GROUP_ANNOTATION: value}
        for user in (TOKEN, NODE, PERSON):
            assert verdict(refusing, creation(user, annotations=annotations)) == expected(refusing, user)


def test_the_proofs_requests(refusing: tuple[RefusalPolicy, Evaluator]) -> None:
    proof = refusing[0].proof
    for body, says in ((proof.refused, "refused"), (proof.accepted, "passes")):
        request = {"operation": "CREATE", "object": body, "oldObject": None, "userInfo": PERSON}
        assert verdict(refusing, {"request": request}) == says
