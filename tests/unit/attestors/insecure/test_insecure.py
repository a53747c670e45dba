from __future__ import annotations

import pytest

from attestors.contract import (
    AssertedIdentity,
    AttestorSettings,
    Denied,
    EvidenceUnavailable,
    GatherRequest,
    InvalidSettings,
    Plausible,
    Security,
)
from attestors.insecure import plugin
from attestors.wire import evidence
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from tests.unit.attestors.support import CLUSTER, PROVIDER_ID, attestation_request, binding_for, evidence_of


def test_says_that_it_proves_nothing() -> None:
    assert plugin.description.security is Security.INSECURE
    assert not plugin.description.renews
    assert not plugin.description.serves


async def test_believes_the_claim_without_calling_it_verified() -> None:
    outcome = await plugin.server_plugin(AttestorSettings()).verify_client(attestation_request(evidence_of({})))
    assert isinstance(outcome, AssertedIdentity)
    assert outcome.provider_id == PROVIDER_ID


async def test_a_claim_counts_within_its_own_cluster_only() -> None:
    """Else a claim in one tenant's cluster could reserve the identity of another's machine."""
    outcome = await plugin.server_plugin(AttestorSettings()).verify_client(attestation_request(evidence_of({})))
    assert isinstance(outcome, AssertedIdentity)
    assert outcome.identity == f"team-a/workload/{PROVIDER_ID}"


async def test_refuses_evidence_that_it_does_not_understand() -> None:
    with pytest.raises(MalformedEvidence):
        await plugin.server_plugin(AttestorSettings()).verify_client(attestation_request(evidence_of({"mac": "a"})))


def test_all_that_can_be_read_is_plausible() -> None:
    server = plugin.server_plugin(AttestorSettings())
    assert server.pre_filter(attestation_request(evidence_of({}))) == Plausible()
    with pytest.raises(MalformedEvidence):
        server.pre_filter(attestation_request(evidence_of({"mac": "a"})))


async def test_refuses_to_serve() -> None:
    outcome = await plugin.server_plugin(AttestorSettings()).verify_serving(attestation_request(evidence_of({})))
    assert isinstance(outcome, Denied)
    assert outcome.reason == "ServingNotSupported"


@pytest.mark.parametrize("settings", [AttestorSettings(operator={"a": 1}), AttestorSettings(policy={"a": 1})])
def test_the_server_plugin_has_no_settings(settings: AttestorSettings) -> None:
    with pytest.raises(InvalidSettings, match="has no settings"):
        plugin.server_plugin(settings)


class TestAgentPlugin:
    def test_writes_an_empty_envelope(self) -> None:
        agent = plugin.agent_plugin({"provider-id": PROVIDER_ID})
        gathered = agent.gather(GatherRequest(binding_for(), CLUSTER.text, "v1", Purpose.CLIENT, ""))
        assert evidence.decode(evidence.encode(gathered)) == evidence_of({})

    def test_knows_the_configured_provider_id(self) -> None:
        assert plugin.agent_plugin({"provider-id": PROVIDER_ID}).provider_id() == PROVIDER_ID

    @pytest.mark.parametrize("settings", [{}, {"provider-id": ""}, {"provider-id": "node 1 "}])
    def test_says_what_to_set(self, settings: dict[str, str]) -> None:
        with pytest.raises(EvidenceUnavailable, match="set provider-id"):
            plugin.agent_plugin(settings).provider_id()

    def test_refuses_a_setting_that_it_does_not_have(self) -> None:
        with pytest.raises(InvalidSettings, match="no setting 'provider_id', only 'provider-id'"):
            plugin.agent_plugin({"provider_id": PROVIDER_ID})
