"""The server plugin: each check lets an honest machine pass, and stops an attack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import (
    AnswerForm,
    AssertedIdentity,
    AttestationRequest,
    ChallengeIssued,
    Denied,
    InvalidOutcome,
    NotProvableYet,
    Plausible,
    VerifiedIdentity,
)
from attestors.contract.composite import (
    CompositeIdentity,
    MalformedCompositeIdentity,
    attestors_of_identity,
)
from attestors.wire.binding import Binding, BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import CHIP_ANNOTATION, ENDORSEMENT_KEY_ANNOTATION, Purpose
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls
from tests.unit.attestors.composite.support import (
    BINDING,
    MACHINE,
    answer,
    ask,
    ask_scripted,
    at_once,
    challenge,
    chip_fields,
    mac_fields,
    request,
    scripted,
    server_plugin,
)
from tests.unit.attestors.support import PATIENT, PROVIDER_ID, binding_for
from tests.unit.attestors.tpm.fixtures import CHIP, OTHER, machine_of

NODES_NEXT_KEY = binding_for(provider="composite", key=ec.generate_private_key(ec.SECP256R1()))


def proven(outcome: object) -> VerifiedIdentity:
    assert isinstance(outcome, VerifiedIdentity), outcome
    return outcome


# An honest machine


def test_both_parts_prove_one_machine() -> None:
    outcome = proven(ask(answer()))
    assert (outcome.provider_id, outcome.binding.value) == (PROVIDER_ID, BINDING.value)
    identities = CompositeIdentity.parse(outcome.identity).parts
    assert list(identities) == ["keyed-mac", "tpm"]
    assert identities["keyed-mac"].startswith("keyed-mac:")
    assert outcome.annotations[ENDORSEMENT_KEY_ANNOTATION] == CHIP.fingerprint
    assert CHIP_ANNOTATION in outcome.annotations
    assert server_plugin().pre_filter(request(answer())) == Plausible()


def test_a_serving_certificate_is_proven_alike() -> None:
    serving = binding_for(provider="composite", purpose=Purpose.SERVING)
    fields = answer(binding=serving)
    assert proven(at_once(server_plugin().verify_serving(request(fields, binding=serving)))).provider_id == PROVIDER_ID


def test_the_chip_is_reserved_whatever_stands_beside_it() -> None:
    """With another key beside it, the chip would have another joined identity, and could be a second Machine."""
    outcome = proven(ask(answer()))
    assert outcome.hardware_identity == CompositeIdentity.parse(outcome.identity).parts["tpm"]
    assert outcome.hardware == ""


# Evidence of one request, of every part


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda fields: {k: v for k, v in fields.items() if k.startswith("tpm.")}, id="part-missing"),
        pytest.param(lambda fields: {k: v for k, v in fields.items() if k.startswith("keyed")}, id="chip-missing"),
        pytest.param(lambda fields: {**fields, "gcp.identityToken": "x"}, id="part-too-many"),
        pytest.param(lambda fields: {**fields, "keyed-mac.extra": "x"}, id="part-repeated"),
        pytest.param(lambda fields: dict(sorted(fields.items(), reverse=True)), id="not-sorted"),
        pytest.param(lambda fields: {"mac": "x", **fields}, id="field-of-no-part"),
        pytest.param(lambda fields: {f"composite.{k}": v for k, v in fields.items()}, id="nested"),
        pytest.param(lambda fields: {}, id="empty"),
    ],
)
def test_exactly_the_configured_parts(change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    fields = change(answer())
    with pytest.raises(MalformedEvidence, match="the evidence must be that of keyed-mac, then tpm"):
        ask(fields)
    with pytest.raises(MalformedEvidence, match="the evidence must be that of keyed-mac, then tpm"):
        server_plugin().pre_filter(request(fields))


def test_the_fields_of_a_part_are_its_attestors_own() -> None:
    with pytest.raises(MalformedEvidence, match="tpm: 1 unknown fields"):
        ask({**answer(), "tpm.extra": "x"})


@pytest.mark.parametrize(
    "binding",
    [
        pytest.param(NODES_NEXT_KEY, id="another-request"),
        pytest.param(binding_for(provider="keyed-mac"), id="a-request-to-that-attestor-alone"),
    ],
)
def test_a_part_copied_from_another_request(binding: Binding) -> None:
    with pytest.raises(BindingMismatch, match="keyed-mac: "):
        ask({**answer(), **mac_fields(binding)})


def test_an_answer_copied_from_another_request() -> None:
    """The chip of the same machine answered for its next key."""
    copied = CHIP.answer(challenge(binding=NODES_NEXT_KEY), NODES_NEXT_KEY)
    with pytest.raises(BindingMismatch, match="tpm: "):
        ask({**mac_fields(), **chip_fields(copied)})


def test_a_part_that_proves_another_binding_than_the_requests() -> None:
    """A defect of a part must not become a success of the whole."""
    other = NODES_NEXT_KEY.prove(NODES_NEXT_KEY.value)
    server = scripted(cloud=identity("c"), key=VerifiedIdentity(PROVIDER_ID, "k", other))
    with pytest.raises(BindingMismatch, match="key: the evidence was made for another request"):
        ask_scripted(server)


# Parts of different machines


def test_a_chip_of_another_machine() -> None:
    """Its holder relays the challenge to a genuine chip that is in another machine."""
    with_other = machine_of(OTHER.fingerprint)
    fields = {**mac_fields(), **chip_fields(OTHER.answer(challenge(OTHER, machine=with_other), BINDING))}
    assert isinstance(ask(fields, machine=with_other), VerifiedIdentity)
    outcome = ask(fields, machine=MACHINE)
    assert isinstance(outcome, Denied)
    assert (outcome.reason, outcome.message.partition(":")[0]) == ("EndorsementKeyMismatch", "tpm")
    assert server_plugin().pre_filter(request(fields)) == outcome


def test_a_key_of_another_machine() -> None:
    with pytest.raises(BindingMismatch, match="keyed-mac: "):
        ask({**answer(), **mac_fields(provider_id="example://rack-7/machine-13")})


def test_parts_that_prove_different_machines() -> None:
    outcome = ask_scripted(scripted(cloud=identity("c"), key=identity("k", provider_id="example://rack-7/machine-13")))
    assert isinstance(outcome, Denied)
    assert outcome.reason == "AttestorsProveDifferentMachines"
    assert "key proves example://rack-7/machine-13" in outcome.message


# Every part decides


DENIAL, WAITING = Denied("Wrong", "why"), NotProvableYet("Later", "why", timedelta(seconds=30))


def identity(name: str, provider_id: str = PROVIDER_ID, **stated: Any) -> VerifiedIdentity:
    return VerifiedIdentity(provider_id, name, BINDING.prove(BINDING.value), **stated)


@pytest.mark.parametrize("other", [identity("c"), WAITING])
@pytest.mark.parametrize("first", [True, False])
def test_one_that_denies_denies_the_request(other: Any, first: bool) -> None:
    outcome = ask_scripted(scripted(**({"a": DENIAL, "b": other} if first else {"a": other, "b": DENIAL})))
    assert outcome == Denied("Wrong", f"{'a' if first else 'b'}: why")


@pytest.mark.parametrize("first", [True, False])
def test_one_that_cannot_decide_lets_the_request_wait(first: bool) -> None:
    good = identity("c")
    outcome = ask_scripted(scripted(**({"a": WAITING, "b": good} if first else {"a": good, "b": WAITING})))
    assert outcome == NotProvableYet("Later", f"{'a' if first else 'b'}: why", timedelta(seconds=30))


def test_no_challenge_before_the_other_parts_are_proven() -> None:
    assert isinstance(ask_scripted(scripted(chip=ChallengeIssued("c"), cloud=WAITING)), NotProvableYet)
    assert isinstance(ask_scripted(scripted(chip=ChallengeIssued("c"), cloud=DENIAL)), Denied)
    assert isinstance(ask_scripted(scripted(chip=ChallengeIssued("c"), cloud=identity("c"))), ChallengeIssued)


@pytest.mark.parametrize(
    "wrong", [ChallengeIssued("c"), AssertedIdentity(PROVIDER_ID, "c"), None, "VerifiedIdentity", Plausible()]
)
def test_what_no_part_may_return(wrong: Any) -> None:
    """A challenge of a part that has none, an assertion, and anything that is no outcome."""
    with pytest.raises(InvalidOutcome, match="cloud returned"):
        ask_scripted(scripted(chip=identity("c"), cloud=wrong))


def test_a_long_message_stays_within_the_contract() -> None:
    outcome = ask_scripted(scripted(a=Denied("Wrong", "x" * 512), b=identity("b")))
    assert isinstance(outcome, Denied)
    assert len(outcome.message) <= 512


# What the parts state


STATED: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("node_names", ("one", "two"), ("two", "three")),
    ("dns_names", ("one", "two"), ("two", "three")),
    ("ip_addresses", tuple(map(ip_address, ("10.0.0.1", "10.0.0.2"))), (ip_address("10.0.0.2"),)),
]


@pytest.mark.parametrize(("field", "one", "other"), STATED)
def test_names_and_addresses(field: str, one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    def joined(a: tuple[Any, ...], b: tuple[Any, ...]) -> object:
        stated: list[dict[str, Any]] = [{field: a}, {field: b}]
        outcome = ask_scripted(scripted(a=identity("a", **stated[0]), b=identity("b", **stated[1])))
        return getattr(outcome, field, outcome)

    assert joined(one, other) == (one[1],)
    assert joined(one, ()) == one
    assert joined((), ()) == ()
    waits = joined(one[:1], other)
    assert isinstance(waits, NotProvableYet), "nothing in common must not let the Machine decide"
    assert waits.reason == "AttestorsDisagree"


KEY = "attestation.cluster.x-k8s.io/x"


def test_annotations() -> None:
    def joined(**annotations: dict[str, str]) -> object:
        parts = {name: identity(name, annotations=one) for name, one in annotations.items()}
        outcome = ask_scripted(scripted(**parts))
        return outcome.annotations if isinstance(outcome, VerifiedIdentity) else outcome

    assert joined(a={KEY: "1"}, b={f"{KEY}y": "2"}) == {KEY: "1", f"{KEY}y": "2"}
    assert joined(a={KEY: "1"}, b={KEY: "1"}) == {KEY: "1"}
    waits = joined(a={KEY: "1"}, b={KEY: "2"})
    assert isinstance(waits, NotProvableYet)
    assert waits.reason == "AttestorsDisagree"


def test_hardware() -> None:
    def joined(**named: str) -> tuple[str, str]:
        parts = {name: identity(f"id-{name}", hardware=one) for name, one in named.items()}
        outcome = proven(ask_scripted(scripted(**parts)))
        return outcome.hardware, outcome.hardware_identity

    assert joined(chip="a chip", cloud="") == ("a chip", "id-chip")
    assert joined(chip="", cloud="") == ("", "id-chip")
    assert joined(cloud="", key="") == ("", "")
    assert joined(cloud="a machine", key="") == ("a machine", "")
    assert joined(chip="", cloud="a machine") == ("a machine", "id-chip")
    with pytest.raises(InvalidOutcome, match="two parts"):
        joined(chip="a chip", cloud="a machine")


# What is recorded of the Machine


def test_each_part_is_told_its_own_recorded_identity() -> None:
    told: dict[str, AttestationRequest] = {}

    def noting(name: str) -> Callable[[AttestationRequest], VerifiedIdentity]:
        def note(of_part: AttestationRequest) -> VerifiedIdentity:
            told[name] = of_part
            return identity(name)

        return note

    server = scripted(cloud=noting("cloud"), key=noting("key"))
    recorded = str(CompositeIdentity({"cloud": "c", "key": "k"}))
    assert isinstance(ask({"cloud.x": "y", "key.x": "y"}, server, recorded=recorded), VerifiedIdentity)
    machines: dict[str, Any] = {name: one.machine for name, one in told.items()}
    assert {name: machine.recorded.identity for name, machine in machines.items()} == {"cloud": "c", "key": "k"}
    assert all(one.binding is BINDING for one in told.values())
    assert dict(told["key"].evidence.fields) == {"x": "y"}


def test_a_machine_that_other_parts_attested() -> None:
    """A part that were told of no record could trust another chip on first use."""
    recorded = str(CompositeIdentity({"gcp": "g", "tpm": "t"}))
    outcome = ask(answer(), recorded=recorded)
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "AttestorsChanged"
    assert server_plugin().pre_filter(request(answer(), recorded=recorded)) == Plausible()


# Audit log


def test_parts_that_ask_the_same_question() -> None:
    """Each gets its own answer, in the controller and in a replay."""

    def asking(name: str) -> Callable[[AttestationRequest], VerifiedIdentity]:
        form: AnswerForm[str] = AnswerForm(str, str)
        return lambda of_part: identity(of_part.recorded_calls.look("which", lambda: name, form))

    server, recorder = scripted(cloud=asking("c"), key=asking("k")), CallRecorder()
    fields = {"cloud.x": "y", "key.x": "y"}
    logged = ask(fields, server, calls=recorder)
    assert [one["question"] for one in recorder.recorded] == ["cloud: which", "key: which"]
    reversed_calls = ReplayedCalls(tuple(reversed(recorder.recorded)))
    assert ask(fields, server, calls=reversed_calls) == logged


def test_calls_of_parts_replay() -> None:
    """Without the controller's keys."""
    fields = answer()
    recorder = CallRecorder()
    logged = ask(fields, calls=recorder)
    assert {one["question"].partition(":")[0] for one in recorder.recorded} == {"tpm"}
    assert ask(fields, calls=ReplayedCalls(recorder.recorded)) == logged


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"a": "b"}', '{"b":"1","a":"2"}', '{"a":"1","a":"2"}', '{"a":1}'])
def test_another_text_of_the_same_identity(text: str) -> None:
    """Each set of identities has one text, or one machine could be reserved twice."""
    with pytest.raises(MalformedCompositeIdentity):
        CompositeIdentity.parse(text)
    assert attestors_of_identity("composite", text) == {"composite"}


@PATIENT
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.text(max_size=30))
def test_identities_are_read_back_or_refused(parts: dict[str, str], text: str) -> None:
    assert CompositeIdentity.parse(str(CompositeIdentity(parts))).parts == parts
    with contextlib.suppress(ValueError):
        assert str(CompositeIdentity.parse(text)) == text
