"""A version that the controller does not read is followed by the newest that both know, for the same key."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from attestors.contract import AttestorDescription, Freshness, GatherRequest, Security
from attestors.wire import request as request_format
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION, Purpose
from authenticator.configuration import Configuration
from authenticator.flow import evidence as flow_evidence
from authenticator.flow.evidence import Attestation
from authenticator.model.failures import Denied, ExitCode, Failure, NoEvidence
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import ClusterAdmin, Manifest, Node, asking, created, evidence_of, key_of

pytestmark = pytest.mark.slow
"""All together take many seconds, each a fraction of one."""

PROVIDER: Final = "versatile"


class VersatileAgentPlugin:
    """Writes every version."""

    def provider_id(self) -> str:
        """It is always configured."""
        raise NotImplementedError

    def gather(self, request: GatherRequest) -> Evidence:
        """The binding; it is of that version."""
        fields = {"binding": request.binding.value.hex(), "challenge": request.challenge}
        return Evidence(request.evidence_version, CACertHash(request.cluster), MappingProxyType(fields))


def writing(*versions: str) -> Callable[[Configuration], Attestation]:
    """An attestor that writes these versions."""
    description = AttestorDescription(PROVIDER, Security.SECURE, versions, Freshness.TIMESTAMP)
    return lambda configuration: Attestation(
        description, VersatileAgentPlugin(), configuration.provider_id, configuration.provider_id_oid
    )


@pytest.fixture
def node(tmp_path: Path, api: EmbeddedAPI, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node that writes v1, v2 and v3."""
    monkeypatch.setattr(flow_evidence, "ENVELOPE_VERSIONS", ("v1", "v2", "v3"))
    node = Node.new(tmp_path, api, load_attestation=writing("v1", "v2", "v3"), changes={"provider": PROVIDER})
    node.supply_bootstrap()
    return node


def unsupported(admin: ClusterAdmin, *supported: str) -> Callable[[Manifest], None]:
    """Denies a request for its version."""
    return lambda found: admin.decide(
        found, "Denied", "UnsupportedVersion", annotations={SUPPORTED_VERSIONS_ANNOTATION: ",".join(supported)}
    )


def version_of(found: Manifest) -> str:
    """Of its evidence."""
    version: str = json.loads(evidence_of(found))["version"]
    return version


def provider_of(found: Manifest) -> tuple[str, str]:
    """What a request says of its attestor, twice."""
    blocks = request_format.decode(base64.b64decode(found["spec"]["request"]))
    return blocks.provider, found["spec"]["signerName"].rpartition("kubelet-")[2]


def exchange(
    node: Node, admin: ClusterAdmin, *decisions: Callable[[Manifest], object]
) -> tuple[Failure | None, list[Manifest]]:
    """How a join ends on which these decisions are made one after the other, and the requests."""
    found = []
    with asking(node.certificates().client) as answer:
        for decide in decisions:
            found.append(admin.next())
            decide(found[-1])
        failure = answer.exception()
    assert failure is None or isinstance(failure, Failure)
    return failure, found


@pytest.mark.parametrize(
    ("supported", "chosen"), [(("v1",), "v1"), (("v1", "v2"), "v2"), (("v2", "v1"), "v2"), (("v2", "v9"), "v2")]
)
def test_the_newest_version_that_both_know_is_filed_for_the_same_key(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, supported: tuple[str, ...], chosen: str
) -> None:
    failure, (first, second) = exchange(node, admin, unsupported(admin, *supported), admin.grant)
    assert failure is None
    assert (version_of(first), version_of(second)) == ("v3", chosen)
    assert key_of(first) == key_of(second)
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert len(created(api)) == 2
    assert node.store.pair(Purpose.CLIENT) is not None


def test_it_is_never_filed_with_another_attestor(admin: ClusterAdmin, node: Node) -> None:
    """Whoever controls the API server could else talk a node into one that proves less."""
    _, found = exchange(node, admin, unsupported(admin, "v1"), admin.grant)
    assert {provider_of(one) for one in found} == {(PROVIDER, PROVIDER)}


def test_no_version_is_tried_twice(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    failure, found = exchange(node, admin, *[unsupported(admin, "v1", "v2", "v3")] * 3)
    assert isinstance(failure, Denied)
    assert [version_of(one) for one in found] == ["v3", "v2", "v1"]
    assert len({json.dumps(str(key_of(one))) for one in found}) == 1
    assert len(created(api)) == 3


@pytest.mark.parametrize("supported", [("v4", "v5"), ("v3",), ("V1",), ("",), ("\x1b[31m", "x" * 5000)])
def test_without_a_common_version_the_message_says_which_to_upgrade(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, supported: tuple[str, ...]
) -> None:
    failure, _ = exchange(node, admin, unsupported(admin, *supported))
    assert failure is not None
    assert failure.exit_code == ExitCode.DENIED
    if supported != ("",):  # which is no annotation at all
        assert f"from attestor {PROVIDER}, this node writes v1, v2, v3: upgrade the older" in str(failure)
    assert len(str(failure)) < 500
    assert str(failure).isprintable()
    assert len(created(api)) == 1


def test_without_the_annotation_it_is_a_denial(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    failure, _ = exchange(node, admin, lambda found: admin.decide(found, "Denied", "UnsupportedVersion", "not v3"))
    assert "UnsupportedVersion: not v3" in str(failure)
    assert len(created(api)) == 1


def test_the_annotation_beside_another_reason_says_nothing(api: EmbeddedAPI, admin: ClusterAdmin, node: Node) -> None:
    annotations: Mapping[str, str] = {SUPPORTED_VERSIONS_ANNOTATION: "v1"}
    failure, _ = exchange(
        node, admin, lambda found: admin.decide(found, "Denied", "BindingMismatch", annotations=annotations)
    )
    assert "BindingMismatch" in str(failure)
    assert len(created(api)) == 1


def test_an_older_version_may_be_challenged(admin: ClusterAdmin, node: Node) -> None:
    def challenge(found: Manifest) -> None:
        admin.decide(found, "Denied", "ChallengeIssued", annotations={CHALLENGE_ANNOTATION: "nonce"})

    failure, found = exchange(node, admin, unsupported(admin, "v2"), challenge, admin.grant)
    assert failure is None
    assert [version_of(one) for one in found] == ["v3", "v2", "v2"]
    assert len({one["metadata"]["name"] for one in found}) == 3
    assert json.loads(evidence_of(found[2]))["challenge"] == "nonce"


def test_the_next_join_begins_with_the_newest_version_again(admin: ClusterAdmin, node: Node) -> None:
    exchange(node, admin, unsupported(admin, "v1"), lambda found: admin.decide(found, "Denied", "NodeNameMismatch"))
    node.time.pass_by(60)
    _, (found,) = exchange(node, admin, admin.grant)
    assert version_of(found) == "v3"


def test_an_attestor_that_is_newer_than_this_program_says_so(api: EmbeddedAPI, tmp_path: Path) -> None:
    node = Node.new(tmp_path, api, load_attestation=writing("v7"), changes={"provider": PROVIDER})
    node.supply_bootstrap()
    with pytest.raises(NoEvidence, match="upgrade"):
        node.certificates().client()
    assert len(created(api)) == 0


def test_a_request_of_a_version_that_is_no_longer_written_is_not_waited_for(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, nobody_decides: object
) -> None:
    """The program was downgraded between two runs."""
    with pytest.raises(Failure):
        node.certificates().client()
    admin.next()
    node.load_attestation = writing("v1")
    with pytest.raises(Failure):
        node.certificates().client()
    assert version_of(admin.next()) == "v1"
    assert len(created(api)) == 2
