from __future__ import annotations

from dataclasses import replace

import pytest

from attestors.contract import AssertedIdentity
from signer.model.reasons import Reason
from signer.rules.checks import IDENTITY_CHECKS
from signer.rules.request import IdentityFacts
from tests.unit.signer.builders import INSECURE, PROVIDER_ID, TPM, request_binding, verified
from tests.unit.signer.outcomes import all_of, deferred, refused

judge = all_of(IDENTITY_CHECKS)
PROVEN = IdentityFacts(PROVIDER_ID, request_binding(), TPM, verified())
ASSERTED = IdentityFacts(PROVIDER_ID, request_binding(), INSECURE, AssertedIdentity(PROVIDER_ID, "x"))


@pytest.mark.parametrize("facts", [PROVEN, ASSERTED])
def test_honest(facts: IdentityFacts) -> None:
    judge(facts)


def test_a_secure_attestor_may_not_assert() -> None:
    defer = deferred(judge, replace(ASSERTED, attestor=TPM))
    assert defer.reason == Reason.INTERNAL_ERROR
    assert defer.message == "attestor tpm declares itself secure and returned AssertedIdentity"


def test_an_insecure_attestor_may_not_verify() -> None:
    assert deferred(judge, replace(PROVEN, attestor=INSECURE)).reason == Reason.INTERNAL_ERROR


def test_evidence_for_another_request() -> None:
    other = request_binding(2)
    facts = replace(PROVEN, identity=verified(binding=other.prove(other.value)))
    assert refused(judge, facts).reason == Reason.BINDING_MISMATCH


@pytest.mark.parametrize("claimed", ["", PROVIDER_ID.upper(), PROVIDER_ID + "1", PROVIDER_ID[:-1], "aws:///a/i-2"])
@pytest.mark.parametrize("facts", [PROVEN, ASSERTED])
def test_claim_that_is_not_proven(facts: IdentityFacts, claimed: str) -> None:
    deny = refused(judge, replace(facts, claimed_provider_id=claimed))
    assert deny.reason == Reason.PROVIDER_ID_MISMATCH
    assert claimed in deny.message
