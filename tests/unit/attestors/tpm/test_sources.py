"""The server plugin asks others whose chip it is, and looks at the operator's files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from attestors.contract import (
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    DocumentKind,
    NotProvableYet,
    OtherToken,
    Plausible,
    RecordedIdentity,
    TokenNotTraceableNow,
    TokenOfMachine,
    VerifiedIdentity,
)
from attestors.tpm.challenge import LIFETIME
from attestors.tpm.operator_files import OperatorFileUnusable
from attestors.tpm.settings import TPMSettings
from attestors.tpm.source_settings import INVENTORY_SETTING, SOURCES_SETTING, FirstUse, OperatorAllows, parse_sources
from attestors.tpm.trust import OperatorTrust, Trust
from attestors.wire.binding import BindingMismatch
from attestors.wire.names import Purpose
from tests.unit.attestors.support import (
    NOW,
    PROVIDER_ID,
    binding_for,
)
from tests.unit.attestors.tpm.endorsement_key_sources.support import Cluster, annotated, listed
from tests.unit.attestors.tpm.fixtures import (
    BINDING,
    CHIP,
    DESK,
    MAKER,
    NO_SETTINGS,
    OTHER,
    FixedTrust,
    NobodyMayAsk,
    PluginHarness,
    machine_of,
    no_keys,
)
from tests.unit.attestors.tpm.support import ecc_key


class Forbidden:
    """Trust that must not be asked for as of now."""

    def current(self) -> Trust:
        raise NobodyMayAsk

    def last(self) -> Trust:
        return Trust()


class Unusable:
    """Files of the operator that cannot be used."""

    def current(self) -> Trust:
        raise OperatorFileUnusable("deniedEndorsementKeysFile: /list: No such file or directory")

    def last(self) -> Trust:
        return self.current()


def sources_of(*names: str, trust: OperatorTrust | None = None) -> TPMSettings:
    """The settings of a policy with these sources, as the operator allows all of them."""
    policy: dict[str, Any] = {SOURCES_SETTING: list(names)}
    if "Inventory" in names:
        policy[INVENTORY_SETTING] = {"kind": "ConfigMap", "name": "inventory"}
    sources = parse_sources(policy, OperatorAllows(FirstUse.ALLOWED))
    return replace(NO_SETTINGS, sources=sources, trust=trust or FixedTrust(Trust(MAKER)))


NAMELESS: Final = ClaimedMachine("worker-1", {})
LISTED: Final = listed(f"{PROVIDER_ID} {CHIP.fingerprint}")
MISLISTED: Final = listed(f"{PROVIDER_ID} {OTHER.fingerprint}")
BYO_ID: Final = "byoh://host-1/x7mz5a"
HOST_LISTED: Final = listed(f"byoh://host-1 {CHIP.fingerprint}")
INVENTORY: Final = PluginHarness(sources_of("Inventory"), NAMELESS, cluster=LISTED)
FIRST_USE: Final = PluginHarness(
    sources_of("MachineAnnotation", "TrustOnFirstUse"), NAMELESS, credential=TokenOfMachine()
)


class TestSources:
    """Step 6, where others are asked."""

    @pytest.mark.parametrize(
        ("harness", "source"),
        [
            pytest.param(DESK, "MachineAnnotation", id="machine"),
            pytest.param(
                DESK.but(machine=NAMELESS, cluster=Cluster(annotated(CHIP.fingerprint))),
                "InfrastructureMachineAnnotation",
                id="infrastructure-machine",
            ),
            pytest.param(INVENTORY, "Inventory", id="inventory"),
            pytest.param(FIRST_USE, "TrustOnFirstUse", id="first-use"),
        ],
    )
    @pytest.mark.parametrize("purpose", list(Purpose), ids=lambda purpose: purpose.name)
    def test_the_resolved_key_is_annotated(self, harness: PluginHarness, source: str, purpose: Purpose) -> None:
        harness = harness.but(purpose=purpose)
        outcome = harness.ask(CHIP.answer(harness.challenge(), BINDING))
        assert isinstance(outcome, VerifiedIdentity)
        assert outcome.annotations == {
            "cluster-x-k8s-io/tpm-endorsement-key": CHIP.fingerprint,
            "attestation.cluster.x-k8s.io/tpm-endorsement-key-source": source,
            "attestation.cluster.x-k8s.io/tpm-chip": "NotNamed",
        }

    @pytest.mark.parametrize("purpose", list(Purpose), ids=lambda purpose: purpose.name)
    @pytest.mark.parametrize(
        ("harness", "names"),
        [
            pytest.param(INVENTORY.but(cluster=HOST_LISTED, provider_id=BYO_ID), ("host-1",), id="inventory"),
            pytest.param(DESK.but(provider_id=BYO_ID), (), id="machine"),
            pytest.param(
                DESK.but(machine=NAMELESS, cluster=Cluster(annotated(CHIP.fingerprint)), provider_id=BYO_ID),
                (),
                id="infrastructure-machine",
            ),
            pytest.param(FIRST_USE.but(provider_id=BYO_ID), (), id="first-use"),
            pytest.param(INVENTORY, (), id="provider-id-without-host"),
        ],
    )
    def test_node_name_of_the_host(self, harness: PluginHarness, names: tuple[str, ...], purpose: Purpose) -> None:
        """Proven only by a source that names the host's chip."""
        harness = harness.but(purpose=purpose)
        outcome = harness.ask(CHIP.answer(harness.challenge(), BINDING))
        assert isinstance(outcome, VerifiedIdentity)
        assert outcome.node_names == names

    @pytest.mark.parametrize(
        "harness",
        [
            pytest.param(DESK.but(machine=NAMELESS, cluster=Cluster(annotated(OTHER.fingerprint))), id="infra"),
            pytest.param(INVENTORY.but(cluster=MISLISTED), id="inventory"),
            pytest.param(
                FIRST_USE.but(machine=ClaimedMachine("worker-1", {}, recorded=RecordedIdentity("tpm:another"))),
                id="first-use",
            ),
        ],
    )
    def test_another_machines_chip_is_refused(self, harness: PluginHarness) -> None:
        """Also with an answer that was under way."""
        answer = CHIP.answer(INVENTORY.challenge(), BINDING)
        for fields in (CHIP.first(), answer):
            reason, message = harness.denial(fields)
            assert reason == "EndorsementKeyMismatch"
            assert message.endswith(f"TPM than {CHIP.fingerprint}")
            assert OTHER.fingerprint not in message

    def test_the_first_that_says_anything_decides(self) -> None:
        cluster = replace(MISLISTED, infrastructure=annotated(CHIP.fingerprint))
        preferring = PluginHarness(
            sources_of("InfrastructureMachineAnnotation", "Inventory"), NAMELESS, cluster=cluster
        )
        assert isinstance(preferring.ask(CHIP.first()), ChallengeIssued)
        other = preferring.but(settings=sources_of("Inventory", "InfrastructureMachineAnnotation"))
        assert other.denial(CHIP.first())[0] == "EndorsementKeyMismatch"

    @pytest.mark.parametrize("name", ["Inventory", "InfrastructureMachineAnnotation"])
    def test_an_outage_is_no_reason_to_ask_the_next(self, name: str) -> None:
        document = (DocumentKind.CONFIG_MAP, "inventory")
        cluster = Cluster(ConnectionError(), {document: ConnectionError()})
        harness = FIRST_USE.but(settings=sources_of(name, "TrustOnFirstUse"), cluster=cluster)
        for fields in (CHIP.first(), CHIP.answer(FIRST_USE.challenge(), BINDING)):
            with pytest.raises(ConnectionError):
                harness.ask(fields)

    def test_a_token_that_cannot_be_traced_now_is_waited_for(self) -> None:
        outcome = FIRST_USE.but(credential=TokenNotTraceableNow("the watch is down")).ask(CHIP.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementKeySourceUnavailable"
        assert "the watch is down" in outcome.message

    def test_a_first_use_without_a_verified_certificate_is_none(self) -> None:
        harness = FIRST_USE.but(settings=sources_of("TrustOnFirstUse", trust=FixedTrust()))
        outcome = harness.ask(CHIP.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementKeyUnknown"

    def test_the_message_says_what_each_source_lacks(self) -> None:
        names = ("MachineAnnotation", "InfrastructureMachineAnnotation", "Inventory", "TrustOnFirstUse")
        machine = ClaimedMachine("m" * 253, {})
        harness = PluginHarness(
            sources_of(*names), machine, cluster=listed(""), credential=OtherToken("it is a pool's")
        )
        outcome = harness.ask(CHIP.first())
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "EndorsementKeyUnknown"
        for part in ("Machine mmm", "the InfraMachine of", "ConfigMap inventory has no line", "a first use needs"):
            assert part in outcome.message
        assert outcome.message.endswith(f"; the request shows {CHIP.fingerprint}")
        assert len(outcome.message) <= 500

    def test_no_source_is_asked_about_bad_evidence(self) -> None:
        answer = CHIP.answer(INVENTORY.challenge(), BINDING)
        cluster = replace(LISTED, asked=[])
        harness = INVENTORY.but(cluster=cluster)
        assert harness.denial(CHIP.but(certificate=OTHER.certificate).first())[0] == "EndorsementCertificateRefused"
        assert harness.denial(CHIP.answer(INVENTORY.challenge(), BINDING, values=b"x"))[0] == "QuoteRefused"
        assert harness.but(now=NOW + LIFETIME).denial(answer)[0] == "ChallengeExpired"
        with pytest.raises(BindingMismatch):
            harness.ask(answer, binding_for(provider="tpm", key=ecc_key(number=99)))
        assert isinstance(harness.ask(CHIP.first(), csr_uid="a b"), Denied)
        machines = harness.but(
            settings=sources_of("MachineAnnotation", "Inventory"), machine=machine_of(OTHER.fingerprint)
        )
        assert machines.denial(CHIP.first())[0] == "EndorsementKeyMismatch"
        assert cluster.asked == []
        assert isinstance(harness.ask(answer), VerifiedIdentity)
        assert cluster.asked == ["ConfigMap inventory"]


class TestOperatorFiles:
    def test_all_requests_wait_while_files_are_unusable(self) -> None:
        harness = DESK.but(settings=replace(NO_SETTINGS, trust=Unusable()), keys=no_keys)
        for fields in (CHIP.first(), CHIP.answer(DESK.challenge(), BINDING), OTHER.first()):
            outcome = harness.ask(fields)
            assert isinstance(outcome, NotProvableYet)
            assert outcome.reason == "OperatorFileUnusable"
            assert outcome.message == "deniedEndorsementKeysFile: /list: No such file or directory"

    def test_what_they_say_now_counts(self) -> None:
        """And not what they said when somebody looked last."""

        class DeniedMeanwhile(FixedTrust):
            def current(self) -> Trust:
                return Trust(denied=frozenset({CHIP.fingerprint}))

        harness = DESK.but(settings=replace(NO_SETTINGS, trust=DeniedMeanwhile()))
        assert harness.pre_filter(CHIP.first()) == Plausible()
        for fields in (CHIP.first(), CHIP.answer(DESK.challenge(), BINDING)):
            assert harness.denial(fields)[0] == "EndorsementKeyDenied"

    def test_screening_touches_none(self) -> None:
        assert DESK.but(settings=replace(NO_SETTINGS, trust=Forbidden())).pre_filter(CHIP.first()) == Plausible()

    def test_screening_guesses_without_them(self) -> None:
        assert DESK.but(settings=replace(NO_SETTINGS, trust=Unusable())).pre_filter(CHIP.first()) == Plausible()


class TestPreFilter:
    def test_no_call_is_made(self) -> None:
        cluster = Cluster(annotated(OTHER.fingerprint))
        assert DESK.but(machine=NAMELESS, cluster=cluster).pre_filter(CHIP.first()) == Plausible()
        assert INVENTORY.but(cluster=replace(MISLISTED, asked=cluster.asked)).pre_filter(CHIP.first()) == Plausible()
        assert cluster.asked == []

    def test_the_machine_counts_where_it_is_the_first(self) -> None:
        mismatched = DESK.but(machine=machine_of(OTHER.fingerprint))
        assert isinstance(mismatched.pre_filter(CHIP.first()), Denied)
        later = mismatched.but(settings=sources_of("Inventory", "MachineAnnotation"))
        assert later.pre_filter(CHIP.first()) == Plausible()
