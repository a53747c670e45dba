"""What the agent makes of a statement that client certificates are to be renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from attestors.wire.names import Purpose
from attestors.wire.statement import ClientRenewal, ClusterIdentity
from authenticator.flow.client_renewal import RenewalStep, authority_of
from authenticator.flow.clock import Clock
from authenticator.model.pair import Pair, parse_pair
from authenticator.model.renewal_state import RenewalState, decode_renewal, encode_renewal
from authenticator.model.trust_state import pair_digest
from authenticator.store.store import RENEWAL_FILE
from tests.support.certificates import CertificateAuthority
from tests.support.statements import IDENTITY, NOW, controller, signed, trust_of
from tests.unit.authenticator.builders import NODE
from tests.unit.authenticator.flow.trust_fixtures import OLD, TrustNode

FORMER, PRESENT = (CertificateAuthority.like_cluster_api() for _ in range(2))


def pair_by(authority: CertificateAuthority) -> Pair:
    certificate, key = authority.issue_client(f"system:node:{NODE}", ["system:nodes"])
    pem = load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return parse_pair(certificate.decode() + pem.decode())


FORMER_PAIR, PRESENT_PAIR = pair_by(FORMER), pair_by(PRESENT)
RENEWAL = ClientRenewal(authority_of(FORMER_PAIR), NOW + 300, 600)


class RenewalNode:
    """A node that joined under the cluster's CA, pinned the controller's keys, and has a certificate of the former."""

    def __init__(self, folder: Path) -> None:
        self.node = TrustNode(folder)
        self.node.time = float(NOW)
        self.store = self.node.store
        self.store.save_pair(Purpose.CLIENT, FORMER_PAIR)
        self.step = self.new_process()

    def new_process(self) -> RenewalStep:
        clock = Clock(wall=lambda: self.node.time, monotonic=lambda: self.node.time, sleep=self.node.pass_by)
        return RenewalStep(self.node.configuration, self.store, clock, self.node.told.append, lambda *_: self.node.api)

    def given(self, payload: Any = RENEWAL, *signers: Any, **how: Any) -> None:
        """Publish it, and look."""
        found = signed(payload, *(signers or (OLD,)), **how)
        self.node.publish_renewal(found)
        self.look()

    def look(self) -> float:
        self.node.pass_by(60)
        return self.step.turn()

    def is_due(self) -> bool:
        return self.store.renewal_state().is_due(self.store.pair(Purpose.CLIENT), int(self.node.time))

    @property
    def told(self) -> str:
        return self.node.told[-1] if self.node.told else ""


@pytest.fixture
def node(tmp_path: Path) -> RenewalNode:
    return RenewalNode(tmp_path / "node")


def test_a_certificate_of_that_authority_is_renewed_once_in_its_time(node: RenewalNode) -> None:
    node.given(sequence=7)
    due = RENEWAL.due(NODE)
    assert node.store.renewal_state() == RenewalState(7, pair_digest(FORMER_PAIR), due)
    assert f"in {due - int(node.node.time)} s" in node.told
    assert not node.is_due()
    node.node.time = float(due - 10)
    assert node.step.turn() <= 10, "it wakes in time"
    node.node.time = float(due)
    assert node.is_due()
    node.step = node.new_process()
    node.look()
    assert len(node.node.told) == 1, "once for each statement, also after a restart"

    node.store.save_pair(Purpose.CLIENT, pair_by(FORMER))
    assert not node.is_due(), "even if the renewed one is by the same authority"


def test_a_certificate_of_another_authority_is_not(node: RenewalNode) -> None:
    node.store.save_pair(Purpose.CLIENT, PRESENT_PAIR)
    node.given(sequence=7)
    assert node.store.renewal_state() == RenewalState(7)
    node.node.time += 3600
    assert not node.is_due()


def test_a_node_that_comes_late_renews_at_once(node: RenewalNode) -> None:
    node.node.time = float(NOW + 80_000)
    node.given()
    assert node.is_due()


def test_without_a_statement_there_is_nothing_to_do(node: RenewalNode) -> None:
    assert node.look() == 60
    assert node.store.renewal_state() == RenewalState()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"keys": controller("x")}, "NotSignedByController"),
        ({"cluster": ClusterIdentity(IDENTITY.namespace, "other", IDENTITY.uid)}, "WrongCluster"),
        ({"sequence": 2}, "Replayed"),
        ({"not_before": NOW + 9000, "not_after": NOW + 99000}, "NotYetValid"),
        ({"not_after": NOW + 1}, "Expired"),
    ],
)
def test_what_does_not_count_is_reported_once(node: RenewalNode, how: dict[str, Any], why: str) -> None:
    node.store.save_renewal_state(RenewalState(3))
    node.given(**{"sequence": 9, **how})
    assert why in node.told
    count = len(node.node.told)
    node.look()
    assert len(node.node.told) == count
    assert node.store.renewal_state() == RenewalState(3)
    assert not node.is_due()


def test_another_kind_in_its_place_does_not_count(node: RenewalNode) -> None:
    """Nor does a renewal in the place of the statement about trust."""
    node.given(trust_of(OLD), OLD)
    assert "WrongKind" in node.told
    node.node.publish(signed(RENEWAL, OLD, not_before=int(node.node.time)))
    node.node.run()
    assert node.node.reason == "WrongKind"


def test_a_node_without_a_pin_ignores_it(node: RenewalNode) -> None:
    node.store.forget_trust()
    node.given()
    assert "NotPinned" in node.told
    assert not node.is_due()


@pytest.mark.parametrize("text", [b"", b"{}", b"x" * 300_000, b'{"version":"v2","statement":{"kind":"X"}}'])
def test_other_texts_do_nothing(node: RenewalNode, text: bytes) -> None:
    node.node.api.renewals = text
    node.look()
    assert node.store.renewal_state() == RenewalState()


def test_the_node_joins_another_cluster(node: RenewalNode) -> None:
    node.given()
    node.store.forget_trust()
    assert not (node.store.folder / RENEWAL_FILE).exists()


def test_the_state_survives() -> None:
    state = RenewalState(7, "ab" * 32, NOW)
    assert decode_renewal(encode_renewal(state)) == state


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"format":2,"sequence":1,"certificate":"","due":1}', "[" * 100_000]
    + [
        f'{{"format":1,"sequence":{sequence},"certificate":{certificate},"due":{due}}}'
        for sequence, certificate, due in (("true", '""', "1"), ("-1", '""', "1"), ("1", "1", "1"), ("1", '""', '"1"'))
    ],
)
def test_a_damaged_state_counts_as_none(node: RenewalNode, text: str) -> None:
    """It must not stop the renewal of certificates."""
    (node.store.folder / RENEWAL_FILE).write_text(text)
    assert node.store.renewal_state() == RenewalState()
    node.given()
    assert node.store.renewal_state().certificate == pair_digest(FORMER_PAIR)
