"""Evidence that ran out while its request waited: the node asks again by itself, at once, and no pause grows."""

from __future__ import annotations

import pytest

from attestors.wire.names import Purpose
from authenticator.model.attempt import Attempt
from authenticator.model.failures import Denied, ExitCode, Failure, StillPending
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

pytestmark = pytest.mark.slow

MESSAGE = "the caller identity request expired 9 seconds ago: the node must make a new one"


def expire(admin: ClusterAdmin, found: Manifest) -> None:
    """What an attestor says of evidence that was good, and waited for too long."""
    admin.decide(found, "Denied", "EvidenceExpired", MESSAGE)


def test_it_is_asked_again_at_once_with_a_new_key_and_new_evidence(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.supply_bootstrap()
    node.timeout = 3600.0
    with asking(node.certificates().client) as answer:
        first = admin.next()
        node.time.pass_by(360)
        expire(admin, first)
        second = admin.next()
        admin.grant(second)
        assert answer.result().pair.key
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert key_of(first) != key_of(second)
    assert evidence_of(first) != evidence_of(second)
    assert node.store.attempt(Purpose.CLIENT) == Attempt()
    assert len(created(api)) == 2
    assert any("waited longer than its evidence is valid; requesting" in report for report in node.reports)


def test_evidence_that_is_expired_when_it_is_made_is_a_denial_with_a_pause(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    """A clock that is wrong, or an API server that says so for ever, does not have a node ask without end."""
    node.supply_bootstrap()
    with admin.deciding(lambda found: expire(admin, found)):
        for run, pause in enumerate((60, 120), start=1):
            with pytest.raises(Denied, match=r"EvidenceExpired.*clock"):
                node.certificates().client()
            assert len(created(api)) == run
            with pytest.raises(Denied, match="no retry before"):
                node.certificates().client()
            assert len(created(api)) == run
            remembered = node.store.attempt(Purpose.CLIENT).pause
            assert remembered is not None
            assert remembered.until == node.time.now + pause
            node.time.pass_by(pause)


def test_a_machine_that_gets_its_provider_id_after_half_an_hour_joins_without_a_pause(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: Timepiece
) -> None:
    """Each request waits until its evidence has run out, and the next one is there in the same run."""
    node.supply_bootstrap()
    for _ in range(6):
        with pytest.raises(StillPending):
            node.certificates().client()
        expire(admin, admin.next())
    with pytest.raises(StillPending):
        node.certificates().client()
    assert node.store.attempt(Purpose.CLIENT).pause is None
    admin.grant(admin.next())
    assert node.certificates().client().pair.key
    assert len(created(api)) == 7


def test_in_one_long_run_it_may_run_out_more_than_once(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    node.supply_bootstrap()
    node.timeout = 3600.0
    with asking(node.certificates().client) as answer:
        for _ in range(3):
            found = admin.next()
            node.time.pass_by(360)
            expire(admin, found)
        admin.grant(admin.next())
        assert answer.result().pair.key
    assert len(created(api)) == 4


def test_a_failed_request_is_no_expired_one(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    """The controller fails what somebody else approved: that is not asked for again at once, whatever the reason."""
    node.supply_bootstrap()
    with asking(node.certificates().client) as answer:
        found = admin.next()
        admin.decide(found, "Failed", "EvidenceExpired", MESSAGE)
        failure = answer.exception()
    assert isinstance(failure, Failure)
    assert failure.exit_code == ExitCode.DENIED
    assert len(created(api)) == 1
