from __future__ import annotations

import base64
import hashlib
import hmac
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from keyed_mac import plugin
from keyed_mac.controller import KeyedMACServerPlugin
from keyed_mac.keys import compute_mac, derive_machine_key, time_of, time_text
from keyed_mac.node import KeyedMACAgentPlugin

from attestors.contract import (
    AttestationRequest,
    Attestor,
    AttestorSettings,
    Denied,
    EvidenceUnavailable,
    GatherRequest,
    InvalidSettings,
    NotProvableYet,
    Outcome,
    Plausible,
    VerifiedIdentity,
)
from attestors.wire.binding import Binding, BindingMismatch, CACertHash
from attestors.wire.evidence import Evidence, MalformedEvidence
from attestors.wire.names import Purpose
from tests.unit.attestors.support import (
    CLUSTER,
    PATIENT,
    PROVIDER_ID,
    attestation_request,
    binding_for,
    evidence_of,
)

MASTER_KEY = bytes(range(32))
NOW = "2026-03-01T12:00:00Z"
MACHINE_KEY = derive_machine_key(MASTER_KEY, PROVIDER_ID)
OTHER_PROVIDER_ID = "example://rack-7/machine-13"


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def server_plugin(master_key: bytes = MASTER_KEY) -> KeyedMACServerPlugin:
    server = plugin.server_plugin(AttestorSettings(operator={"masterKey": base64_of(master_key)}))
    assert isinstance(server, KeyedMACServerPlugin)
    return server


def agent_plugin(machine_key: bytes = MACHINE_KEY, provider_id: str = PROVIDER_ID) -> KeyedMACAgentPlugin:
    agent = plugin.agent_plugin({"machine-key": base64_of(machine_key), "provider-id": provider_id})
    assert isinstance(agent, KeyedMACAgentPlugin)
    return agent


def gather(
    binding: Binding | None = None,
    plugin: KeyedMACAgentPlugin | None = None,
    *,
    version: str = "v1",
    challenge: str = "",
) -> Evidence:
    request = GatherRequest(binding or binding_for(), CLUSTER.text, version, Purpose.CLIENT, challenge)
    return (plugin or agent_plugin()).gather(request)


async def verify(request: AttestationRequest, plugin: KeyedMACServerPlugin | None = None) -> VerifiedIdentity:
    """The identity that the evidence proves at the time when it was made."""
    outcome = await (plugin or server_plugin()).verify_client(request)
    assert isinstance(outcome, VerifiedIdentity)
    return outcome


def at_present(given: Evidence | None = None, **changes: Any) -> AttestationRequest:
    """A request with evidence of now."""
    return attestation_request(given or gather(), now=datetime.now(UTC), **changes)


class TestKeys:
    def test_the_machine_key_is_what_the_description_says(self) -> None:
        """By hand: another derivation would lock out every machine that has its key already."""
        content = b"keyed-mac machine key v1" + b"\0\0\0\0\0\0\0\x1b" + b"example://rack-7/machine-12"
        assert hmac.new(MASTER_KEY, content, hashlib.sha256).digest() == MACHINE_KEY

    @PATIENT
    @given(st.text(max_size=30), st.text(max_size=30))
    def test_machines_have_different_keys(self, one: str, two: str) -> None:
        keys = {derive_machine_key(MASTER_KEY, text) for text in (one, two)}
        assert len(keys) == len({one, two})

    @pytest.mark.parametrize("length", [0, 31, 33])
    def test_a_master_key_of_another_length_is_refused(self, length: int) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            derive_machine_key(bytes(length), PROVIDER_ID)


class TestVerification:
    async def test_the_agent_plugin_convinces_the_server_plugin(self) -> None:
        expected = binding_for()
        outcome = await verify(at_present(gather()))
        assert outcome == VerifiedIdentity(
            provider_id=PROVIDER_ID,
            identity="keyed-mac:" + hashlib.sha256(MACHINE_KEY).hexdigest(),
            binding=expected.prove(expected.value),
        )

    async def test_serving_requests_are_verified_alike_and_names_are_left_to_the_machine(self) -> None:
        serving = binding_for(purpose=Purpose.SERVING)
        outcome = await server_plugin().verify_serving(at_present(gather(serving), binding=serving))
        assert isinstance(outcome, VerifiedIdentity)
        assert outcome.binding.value == serving.value
        assert (outcome.node_names, outcome.dns_names, outcome.ip_addresses) == ((), (), ())

    async def test_the_identity_stays_and_differs_between_machines(self) -> None:
        """One that changed would look like another machine; a shared one would let two machines be the same."""
        other = agent_plugin(derive_machine_key(MASTER_KEY, OTHER_PROVIDER_ID), OTHER_PROVIDER_ID)
        again = binding_for(key=ec.generate_private_key(ec.SECP256R1()))
        identities = [
            (await verify(at_present(gather()))).identity,
            (await verify(at_present(gather(again), binding=again))).identity,
            (await verify(at_present(gather(plugin=other), provider_id=OTHER_PROVIDER_ID))).identity,
        ]
        assert identities[0] == identities[1] != identities[2]

    @pytest.mark.parametrize(
        "made_for",
        [
            pytest.param(binding_for(key=ec.generate_private_key(ec.SECP256R1())), id="another-key"),
            pytest.param(binding_for(cluster=CACertHash("sha256:" + "1f" * 32)), id="another-cluster"),
            pytest.param(binding_for(purpose=Purpose.SERVING), id="another-purpose"),
            pytest.param(binding_for(provider="tpm"), id="another-attestor"),
        ],
    )
    @pytest.mark.parametrize("method", ["verify_client", "verify_serving"])
    async def test_copied_evidence_is_refused(self, made_for: Binding, method: str) -> None:
        with pytest.raises(BindingMismatch):
            await getattr(server_plugin(), method)(at_present(gather(made_for)))

    @pytest.mark.parametrize("purpose", Purpose)
    def test_screening_finds_it_plausible(self, purpose: Purpose) -> None:
        expected = binding_for(purpose=purpose)
        assert server_plugin().pre_filter(at_present(gather(expected), binding=expected)) == Plausible()

    def test_screening_refuses_what_verification_refuses(self) -> None:
        for request, refusal in (
            (at_present(gather(binding_for(provider="tpm"))), BindingMismatch),
            (at_present(gather(), provider_id=OTHER_PROVIDER_ID), BindingMismatch),
            (at_present(evidence_of({"mac": base64_of(bytes(32)), "madeAt": NOW})), BindingMismatch),
            (at_present(evidence_of({})), MalformedEvidence),
        ):
            with pytest.raises(refusal):
                server_plugin().pre_filter(request)

    async def test_a_machine_cannot_be_another(self) -> None:
        """A root user on one machine has its key, and claims to be the next machine."""
        with pytest.raises(BindingMismatch):
            await verify(at_present(gather(), provider_id=OTHER_PROVIDER_ID))

    async def test_another_operators_master_key_verifies_nothing(self) -> None:
        with pytest.raises(BindingMismatch):
            await verify(at_present(gather()), server_plugin(bytes(32)))

    @pytest.mark.parametrize(
        "mac",
        [binding_for().value, bytes(32), MACHINE_KEY, b"\0", bytes(31)],
        ids=["the binding", "zeros", "the key", "one byte", "a byte less"],
    )
    async def test_no_other_mac_verifies(self, mac: bytes) -> None:
        with pytest.raises(BindingMismatch):
            await verify(at_present(evidence_of({"mac": base64_of(mac), "madeAt": NOW})))

    @pytest.mark.parametrize(
        "fields",
        [
            pytest.param({}, id="no-mac"),
            pytest.param({"madeAt": NOW}, id="no-mac-but-a-time"),
            pytest.param({"mac": gather().fields["mac"]}, id="no-time"),
            pytest.param({"mac": "", "madeAt": NOW}, id="empty-mac"),
            pytest.param({"mac": "?" * 44, "madeAt": NOW}, id="not-base64"),
            pytest.param({"mac": base64_of(bytes(33)), "madeAt": NOW}, id="long-mac"),
            pytest.param({**gather().fields, "extra": "x"}, id="unknown-field"),
            pytest.param({"Mac": gather().fields["mac"], "madeAt": NOW}, id="other-name"),
        ],
    )
    async def test_other_evidence_is_malformed(self, fields: dict[str, str]) -> None:
        with pytest.raises(MalformedEvidence):
            await verify(at_present(evidence_of(fields)))


class TestFreshness:
    """The MAC covers the time: nothing but the time of its making decides how long evidence can be presented."""

    @staticmethod
    async def verified(seconds_later: float) -> Outcome:
        evidence = gather()
        made_at = time_of(evidence.fields["madeAt"])
        request = attestation_request(evidence, now=made_at + timedelta(seconds=seconds_later))
        outcome = await server_plugin().verify_client(request)
        pre_filtered = server_plugin().pre_filter(request)
        assert pre_filtered == (outcome if isinstance(outcome, Denied) else Plausible())
        return outcome

    @pytest.mark.parametrize("seconds", [-120, 0, 900])
    async def test_evidence_is_good_for_a_quarter_of_an_hour(self, seconds: int) -> None:
        assert isinstance(await self.verified(seconds), VerifiedIdentity)

    @pytest.mark.parametrize("seconds", [901, 86_400])
    async def test_older_evidence_is_denied_and_the_node_makes_new_evidence(self, seconds: int) -> None:
        outcome = await self.verified(seconds)
        assert isinstance(outcome, Denied)
        assert (outcome.reason, f"{seconds} seconds ago" in outcome.message) == ("EvidenceExpired", True)

    @pytest.mark.parametrize("seconds", [-121, -86_400])
    async def test_evidence_from_the_future_waits(self, seconds: int) -> None:
        outcome = await self.verified(seconds)
        assert isinstance(outcome, NotProvableYet)
        assert (outcome.reason, f"{-seconds} seconds from now" in outcome.message) == ("EvidenceNotYetValid", True)

    async def test_old_evidence_with_a_new_time_is_refused(self) -> None:
        """The thief copies evidence, and writes another time into it."""
        renewed = {**gather().fields, "madeAt": NOW}
        with pytest.raises(BindingMismatch):
            await verify(attestation_request(evidence_of(renewed), now=time_of(NOW)))

    async def test_undated_evidence_needs_the_operators_consent(self) -> None:
        mac = compute_mac(MACHINE_KEY, binding_for().value, "")
        request = at_present(evidence_of({"mac": base64_of(mac)}))
        with pytest.raises(MalformedEvidence, match="madeAt is missing"):
            await verify(request)
        assert isinstance(
            await verify(request, KeyedMACServerPlugin(MASTER_KEY, accepts_undated=True)), VerifiedIdentity
        )

    async def test_the_consent_does_not_make_dated_evidence_last(self) -> None:
        request = attestation_request(gather(), now=datetime.now(UTC) + timedelta(days=1))
        outcome = await KeyedMACServerPlugin(MASTER_KEY, accepts_undated=True).verify_client(request)
        assert isinstance(outcome, Denied)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "now",
            "2026-03-01",
            "2026-03-01T12:00:00",
            "2026-03-01T12:00:00+00:00",
            "2026-03-01 12:00:00Z",
            "2026-3-1T12:00:00Z",
            "2026-03-01T12:00:00.5Z",
            " 2026-03-01T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-03-01T12:00:60Z",
            "\u0662026-03-01T12:00:00Z",
        ],
    )
    def test_a_time_has_one_form(self, text: str) -> None:
        with pytest.raises(MalformedEvidence, match="madeAt must be a time such as"):
            time_of(text)

    @given(st.datetimes(min_value=datetime(1000, 1, 1), timezones=st.just(UTC)))
    def test_every_time_can_be_read_again(self, moment: datetime) -> None:
        assert time_of(time_text(moment)) == moment.replace(microsecond=0)


class TestSettings:
    @pytest.mark.parametrize(
        "operator",
        [
            pytest.param({}, id="none"),
            pytest.param({"masterkey": base64_of(MASTER_KEY)}, id="misspelt"),
            pytest.param({"masterKey": base64_of(MASTER_KEY), "more": 1}, id="another-setting"),
            pytest.param({"masterKey": ""}, id="empty"),
            pytest.param({"masterKey": None}, id="null"),
            pytest.param({"masterKey": MASTER_KEY}, id="bytes"),
            pytest.param({"masterKey": base64_of(bytes(31))}, id="short"),
            pytest.param({"masterKey": base64_of(bytes(33))}, id="long"),
            pytest.param({"masterKey": MASTER_KEY.hex()}, id="hexadecimal"),
            pytest.param({"masterKey": "\u00e9" * 44}, id="not-ascii"),
            pytest.param({"masterKey": base64_of(MASTER_KEY) + "\n"}, id="newline"),
            pytest.param({"acceptUndatedEvidence": True}, id="consent-alone"),
        ],
    )
    def test_wrong_operator_settings_are_refused(self, operator: dict[str, Any]) -> None:
        with pytest.raises(InvalidSettings, match="masterKey"):
            plugin.server_plugin(AttestorSettings(operator=operator))

    @pytest.mark.parametrize("consent", ["true", "false", 1, None])
    def test_a_consent_is_no_text(self, consent: object) -> None:
        """The text "false" would be taken for a yes."""
        operator = {"masterKey": base64_of(MASTER_KEY), "acceptUndatedEvidence": consent}
        with pytest.raises(InvalidSettings, match="acceptUndatedEvidence must be true or false"):
            plugin.server_plugin(AttestorSettings(operator=operator))

    def test_a_policy_cannot_bring_a_key(self) -> None:
        """A tenant writes the policy, and could then vouch for any machine."""
        key = {"masterKey": base64_of(bytes(32))}
        for operator in ({}, {"masterKey": base64_of(MASTER_KEY)}):
            with pytest.raises(InvalidSettings, match="a policy cannot configure"):
                plugin.server_plugin(AttestorSettings(operator=operator, policy=key))

    @pytest.mark.parametrize(
        "settings",
        [
            pytest.param({}, id="none"),
            pytest.param({"machine-key": base64_of(MACHINE_KEY)}, id="no-provider-id"),
            pytest.param({"provider-id": PROVIDER_ID}, id="no-key"),
            pytest.param({"machine-key": "", "provider-id": PROVIDER_ID}, id="empty-key"),
            pytest.param({"machine-key": base64_of(bytes(16)), "provider-id": PROVIDER_ID}, id="short-key"),
            pytest.param({"machine-key": base64_of(MACHINE_KEY), "provider-id": ""}, id="empty-provider-id"),
            pytest.param({"machine-key": base64_of(MACHINE_KEY), "provider-id": "node"}, id="no-provider-id-at-all"),
            pytest.param(
                {"machine-key": base64_of(MACHINE_KEY), "provider-id": PROVIDER_ID, "master-key": "x"}, id="another"
            ),
        ],
    )
    def test_wrong_node_settings_are_refused(self, settings: dict[str, str]) -> None:
        with pytest.raises(InvalidSettings, match=r"machine-key|provider-id"):
            plugin.agent_plugin(settings)

    def test_keys_are_neither_shown_nor_quoted(self) -> None:
        assert repr(MASTER_KEY) not in repr(server_plugin())
        assert repr(MACHINE_KEY) not in repr(agent_plugin())
        with pytest.raises(InvalidSettings) as refused:
            plugin.server_plugin(AttestorSettings(operator={"masterKey": "hunter2"}))
        assert "hunter2" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__


class TestAgentPlugin:
    def test_knows_the_configured_provider_id(self) -> None:
        assert agent_plugin().provider_id() == PROVIDER_ID

    def test_does_not_write_a_version_that_it_does_not_know(self) -> None:
        with pytest.raises(EvidenceUnavailable, match="v1 only"):
            gather(version="v2")

    def test_does_not_answer_a_challenge_it_cannot_have_got(self) -> None:
        with pytest.raises(EvidenceUnavailable, match="challenges"):
            gather(challenge="x")


def test_is_an_attestor() -> None:
    attestor: Attestor = plugin
    assert attestor.description.provider == "keyed-mac"
    assert attestor.description.renews
    assert attestor.description.serves


def test_is_light_to_import() -> None:
    """The halves are imported when they are asked for: a node never loads the controller's."""
    program = "import sys, keyed_mac; print([m for m in sys.modules if m.startswith('keyed_mac.')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (result.stdout, result.stderr) == ("[]\n", "")
