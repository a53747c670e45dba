"""A challenge is answered with a second request for the same key, once; then the node starts anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.names import CHALLENGE_ANNOTATION, Purpose
from authenticator.model.attempt import Attempt, Step
from authenticator.model.failures import Denied, ExitCode, Failure
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import (
    ClusterAdmin,
    Manifest,
    Node,
    Timepiece,
    asking,
    created,
    evidence_of,
    key_of,
)
from tests.support import challenge_attestor
from tests.support.challenge_attestor import ANSWER_FIELD, NEW_VERSION, PROVIDER, answer_to


@pytest.fixture
def node(tmp_path: Path, api: EmbeddedAPI) -> Node:
    """A node of the attestor that answers challenges."""
    node = Node.new(tmp_path, api, load_attestation=challenge_attestor.load, changes={"provider": PROVIDER})
    node.supply_bootstrap()
    return node


def challenge(admin: ClusterAdmin, text: str = "a nonce") -> Callable[[Manifest], None]:
    """Challenges a request."""
    return lambda found: admin.decide(found, "Denied", "ChallengeIssued", annotations={CHALLENGE_ANNOTATION: text})


def failure_of(
    node: Node, *decisions: tuple[ClusterAdmin, Callable[[Manifest], None]]
) -> tuple[Failure, list[Manifest]]:
    """How a join ends on which these decisions are made one after the other, and the requests."""
    found = []
    with asking(node.certificates().client) as answer:
        for admin, decide in decisions:
            found.append(admin.next())
            decide(found[-1])
        failure = answer.exception()
    assert isinstance(failure, Failure)
    return failure, found


def test_a_challenge_is_answered_with_a_second_request_for_the_same_key(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    with asking(node.certificates().client) as answer:
        first = admin.next()
        challenge(admin)(first)
        second = admin.next()
        certificate = admin.grant(second)
        use = answer.result()
    assert key_of(first) == key_of(second)
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert ANSWER_FIELD not in json.loads(evidence_of(first))
    assert json.loads(evidence_of(second))[ANSWER_FIELD] == answer_to("a nonce")
    assert json.loads(evidence_of(second))["version"] == NEW_VERSION
    assert use.pair.certificate == certificate.decode()
    assert len(created(api)) == 2
    assert node.store.attempt(Purpose.CLIENT) == Attempt()


def test_an_undecided_answer_is_waited_for_by_the_next_run(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    with pytest.raises(Failure):
        node.certificates().client()
    challenge(admin)(admin.next())
    for _ in range(2):
        with pytest.raises(Failure) as caught:
            node.certificates().client()
        assert caught.value.exit_code == ExitCode.PENDING
    pending = node.store.attempt(Purpose.CLIENT).pending
    assert pending is not None
    assert pending.step is Step.ANSWER
    admin.grant(admin.next())
    node.certificates().client()
    assert len(created(api)) == 2


def test_a_challenge_to_an_answer_ends_the_exchange(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    """Else a hostile controller could have a machine sign for ever."""
    failure, found = failure_of(node, (admin, challenge(admin)), (admin, challenge(admin, "another")))
    assert isinstance(failure, Denied)
    assert "challenged again" in str(failure)
    assert len(created(api)) == 2
    node.time.pass_by(60)
    with asking(node.certificates().client) as answer:
        third = admin.next()
        admin.grant(third)
        answer.result()
    assert key_of(third) != key_of(found[0])


def test_an_answer_that_waited_for_too_long_starts_anew_at_once_with_another_key(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """For its node name as an example, which may take an hour: no pause grows meanwhile, and none is left then."""
    node.timeout = 3600.0
    with asking(node.certificates().client) as answer:
        first = admin.next()
        for _ in range(3):
            challenge(admin)(first)
            waiting = admin.next()
            assert key_of(waiting) == key_of(first)
            node.time.pass_by(300)
            admin.decide(waiting, "Denied", "ChallengeExpired", "the challenge was good until 5 minutes ago")
            first = admin.next()
            assert ANSWER_FIELD not in json.loads(evidence_of(first))
            assert key_of(first) != key_of(waiting)
        admin.grant(first)
        answer.result()
    assert len(created(api)) == 7
    assert node.store.attempt(Purpose.CLIENT) == Attempt()


OF_ANOTHER: Final = "ChallengeOfAnotherCluster"


def test_a_cluster_that_is_created_again_has_the_node_start_anew_at_once(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    with asking(node.certificates().client) as answer:
        first = admin.next()
        challenge(admin)(first)
        admin.decide(admin.next(), "Denied", OF_ANOTHER, "the challenge was made for another Cluster")
        again = admin.next()
        assert ANSWER_FIELD not in json.loads(evidence_of(again))
        assert key_of(again) != key_of(first)
        admin.grant(again)
        answer.result()
    assert len(created(api)) == 3


def test_a_cluster_that_seems_to_be_created_again_and_again_is_met_with_a_pause(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """Two controllers that have the same Cluster under two UIDs would keep the node busy."""

    def refuse(found: Manifest) -> None:
        admin.decide(found, "Denied", OF_ANOTHER, "the challenge was made for another Cluster")

    steps = [(admin, challenge(admin)), (admin, refuse)] * 2
    failure, _ = failure_of(node, *steps)
    assert failure.exit_code == ExitCode.DENIED
    assert "twice: do two controllers serve this cluster?" in str(failure)
    assert len(created(api)) == 4


def test_a_denied_answer_starts_anew_with_another_key_behind_a_pause(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    def refuse(found: Manifest) -> None:
        admin.decide(found, "Denied", "ChallengeFromTheFuture", "a clock was ahead")

    failure, found = failure_of(node, (admin, challenge(admin)), (admin, refuse))
    assert failure.exit_code == ExitCode.DENIED
    assert "ChallengeFromTheFuture: a clock was ahead" in str(failure)
    with pytest.raises(Denied, match="no retry before"):
        node.certificates().client()
    assert len(created(api)) == 2
    node.time.pass_by(60)
    with asking(node.certificates().client) as answer:
        third = admin.next()
        admin.grant(third)
        answer.result()
    assert key_of(third) != key_of(found[0])
    assert ANSWER_FIELD not in json.loads(evidence_of(third))


@pytest.mark.parametrize("annotations", [{}, {CHALLENGE_ANNOTATION: ""}, {CHALLENGE_ANNOTATION: "x" * 16385}])
def test_a_challenge_that_cannot_be_read_is_a_denial(
    admin: ClusterAdmin, node: Node, annotations: dict[str, str]
) -> None:
    failure, _ = failure_of(
        node, (admin, lambda found: admin.decide(found, "Denied", "ChallengeIssued", annotations=annotations))
    )
    assert isinstance(failure, Denied)
    assert "ChallengeIssued" in str(failure)


def test_a_challenge_beside_another_reason_is_not_answered(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    failure, _ = failure_of(
        node,
        (
            admin,
            lambda found: admin.decide(found, "Denied", "BindingMismatch", annotations={CHALLENGE_ANNOTATION: "n"}),
        ),
    )
    assert "BindingMismatch" in str(failure)
    assert len(created(api)) == 1


def test_an_attestor_that_answers_no_challenges_says_so(admin: ClusterAdmin, api: EmbeddedAPI, tmp_path: Path) -> None:
    node = Node.new(tmp_path, api)  # of the keyed-mac attestor
    node.supply_bootstrap()
    failure, _ = failure_of(node, (admin, challenge(admin)))
    assert failure.exit_code == ExitCode.NO_EVIDENCE
    assert "answers no challenges" in str(failure)


def test_the_challenge_is_not_printed(admin: ClusterAdmin, node: Node) -> None:
    failure_of(node, (admin, challenge(admin, "secret-nonce")), (admin, challenge(admin, "secret-nonce")))
    assert "secret-nonce" not in "".join(node.reports)
    assert "challenge" in "".join(node.reports)
