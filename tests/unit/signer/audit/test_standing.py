"""The replay of an attestor's answer about the identity of a record."""

from __future__ import annotations

import json
from functools import partial

import pytest

from attestors.contract import Denied, NotProvableYet, Standing, StillAllowed
from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID
from signer.audit.comparison import Differs, Reproduced, ReproducedInPart, compare
from signer.audit.decision_inputs import DecisionInputs
from signer.audit.decision_line import DecisionLine, LoggedDecision, logged_request, read_decision_line
from signer.audit.replay_attestors import ReplayAttestors
from signer.configuration import operator_settings
from signer.model.decision import Decision, Deferred, Refused
from tests.support.attestors import RegistryWith
from tests.unit.signer.builders import CLUSTER, builtin_serving_manifest, builtin_serving_request
from tests.unit.signer.controller.support import NOW
from tests.unit.signer.decision.builtin_serving_fixtures import RecordedTPM, World


def asking(attestor: RecordedTPM) -> ReplayAttestors:
    return ReplayAttestors(RegistryWith(attestor), partial(operator_settings, {}))


async def _builtin_line(world: World) -> DecisionLine:
    """A decision as it is logged and read again."""
    decision_inputs, manifest = DecisionInputs(), builtin_serving_manifest()
    parsed = builtin_serving_request(manifest)
    decision: Decision
    try:
        decision = await world.builtin_serving.decide(parsed, decision_inputs)
    except Deferred as error:
        decision = error.defer
    except Refused as error:
        decision = error.deny
    request = logged_request(manifest, parsed, Registry([]), (PROVIDER_ID_OID,))
    line = DecisionLine(str(CLUSTER), NOW, request, decision_inputs.without_seals(), LoggedDecision.of(decision))
    return read_decision_line(json.loads(line.encode()))


STANDINGS: list[tuple[Standing, tuple[str, str]]] = [
    (StillAllowed(), ("ApproveOnly", "Attested")),
    (Denied("EndorsementKeyDenied", "on the deny list"), ("Deny", "EndorsementKeyDenied")),
    (NotProvableYet("OperatorFileUnusable", "no list"), ("Defer", "OperatorFileUnusable")),
]


@pytest.mark.parametrize(("standing", "expected"), STANDINGS, ids=["allowed", "denied", "waits"])
async def test_a_recorded_identity_that_the_attestor_is_asked_about_again(
    standing: Standing, expected: tuple[str, str]
) -> None:
    world = World()
    world.attestor.standing = standing
    line = await _builtin_line(world)
    assert (line.decision.kind, line.decision.reason) == expected
    assert isinstance(await compare(line, asking(world.attestor)), Reproduced)
    for other, _ in STANDINGS:
        if other != standing:
            world.attestor.standing = other
            found = await compare(line, asking(world.attestor))
            assert isinstance(found, Differs)
            assert "about the recorded identity" in found.why
    world.attestor.standing = OSError("a defect of the plugin")
    found = await compare(line, asking(world.attestor))
    assert found == ReproducedInPart(("the attestor's answer about the recorded identity: it fails with OSError",))


async def test_a_forged_answer_about_a_recorded_identity() -> None:
    world = World()
    world.attestor.standing = Denied("EndorsementKeyDenied", "on the deny list")
    denied = await _builtin_line(world)
    for kind, reason in (("Allowed", ""), ("VerifiedIdentity", ""), ("Denied", "no reason")):
        fields = json.loads(denied.encode())
        fields["decision_inputs"]["builtin"]["standing"]["answer"] |= {"kind": kind, "reason": reason}
        found = await compare(read_decision_line(fields), asking(world.attestor))
        assert isinstance(found, Differs)
        assert "the answer about the recorded identity" in found.why


async def test_a_line_of_a_controller_that_did_not_ask_the_attestor() -> None:
    world = World()
    fields = json.loads((await _builtin_line(world)).encode())
    del fields["decision_inputs"]["builtin"]["standing"]
    world.attestor.standing = Denied("EndorsementKeyDenied", "on the deny list")
    assert isinstance(await compare(read_decision_line(fields), asking(world.attestor)), Reproduced)
