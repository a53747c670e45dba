from __future__ import annotations

from pathlib import Path

import pytest

from attestors.wire import statement
from attestors.wire.statement import NotPinned, PinnedController, SignedStatement
from authenticator.flow.pinning import pin_controller
from authenticator.model.cluster import Cluster
from authenticator.store.store import PIN_FILE, Store
from tests.support.statements import IDENTITY, NOW, authority, bundle_of, controller, signed, trust_of
from tests.unit.authenticator.builders import SERVER

OLD, THIEF = authority("old"), authority("thief")
CLUSTER = Cluster(SERVER, bundle_of(OLD))
KEYS = signed(controller().public, OLD)
PIN = PinnedController(IDENTITY, controller().public, 1)


class Node:
    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "pki")
        self.store.open()
        self.told: list[str] = []

    def given(self, *texts: bytes | SignedStatement) -> list[str]:
        encoded = tuple(one if isinstance(one, bytes) else statement.encode(one) for one in texts)
        pin_controller(self.store, encoded, CLUSTER, now=NOW, report=self.told.append)
        return self.told


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_an_older_controller_hands_out_nothing(node: Node) -> None:
    assert node.given() == []
    assert node.store.pin() == NotPinned()


def test_the_first_keys_are_pinned(node: Node) -> None:
    assert node.given(KEYS) == []
    assert node.store.pin() == PIN
    assert (node.store.folder / PIN_FILE).stat().st_mode & 0o777 == 0o600


def test_later_versions_and_other_kinds_are_passed_over(node: Node) -> None:
    later = statement.encode(KEYS).replace(b'"version":"v1"', b'"version":"v2"')
    assert node.given(later, signed(trust_of(OLD), OLD), KEYS) == []
    assert node.store.pin() == PIN


def test_a_pin_is_replaced_by_the_word_of_its_key_only(node: Node) -> None:
    node.given(KEYS)
    planted = signed(controller("x").public, OLD, keys=controller("x"), sequence=2)
    assert "NotSignedByController" in node.given(planted)[0]
    assert node.store.pin() == PIN
    both = controller("d", "c")
    node.given(signed(both.public, OLD, keys=both, sequence=2))
    assert node.store.pin() == PinnedController(IDENTITY, both.public, 2)


def test_keys_that_the_cas_of_the_cluster_have_not_signed_are_not_pinned(node: Node) -> None:
    assert "NotSignedByTrustedCA" in node.given(signed(controller("x").public, THIEF, keys=controller("x")))[0]
    assert node.store.pin() == NotPinned()


def test_a_malformed_statement_is_reported(node: Node) -> None:
    assert "not pinned" in node.given(b"{")[0]


def test_a_damaged_pin_is_not_replaced(node: Node) -> None:
    path = node.store.folder / PIN_FILE
    path.write_text("{}")
    assert str(path) in node.given(KEYS)[0]
    assert path.read_text() == "{}"
