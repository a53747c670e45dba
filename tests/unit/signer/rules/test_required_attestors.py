from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.contract import Security
from attestors.contract.composite import CompositeIdentity
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.policy import AuthorizedAttestor, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity
from signer.rules.checks import BUILTIN_SERVING_CHECKS, MACHINE_CHECKS, run_checks
from tests.unit.signer.builders import machine_facts, machine_view, policy
from tests.unit.signer.outcomes import deferred, refused
from tests.unit.signer.rules.test_builtin_serving import facts as builtin_facts

TPM, GCP = AnyOf(frozenset({"tpm"})), AnyOf(frozenset({"gcp", "aws"}))


def requiring(control_plane: AnyOf, workers: AnyOf) -> Policy:
    return replace(policy(), required_attestors=RequiredAttestors(control_plane, workers))


def judge(facts: Any) -> None:
    run_checks(MACHINE_CHECKS, facts)


def judge_builtin(facts: Any) -> None:
    run_checks(BUILTIN_SERVING_CHECKS, facts)


@pytest.mark.parametrize("control_plane", [True, False])
def test_evidence_of_an_attestor_that_the_role_does_not_accept(control_plane: bool) -> None:
    """A policy's author may authorize it beside the required one: a stolen token then needs the weaker evidence."""
    machine = machine_view(control_plane=control_plane)
    accepting, other = (TPM, GCP) if control_plane else (GCP, TPM)
    judge(
        machine_facts(machine=machine, policy=requiring(accepting, other) if control_plane else requiring(other, TPM))
    )
    denied = refused(
        judge, machine_facts(machine=machine, policy=requiring(*(GCP, TPM) if control_plane else (TPM, GCP)))
    )
    assert denied.reason == Reason.ATTESTOR_NOT_AUTHORIZED
    assert "accepts aws or gcp for" in denied.message
    assert "and not tpm" in denied.message
    assert "floors in the controller's configuration file" in denied.message


BOTH = AnyOf(frozenset({"composite"}), frozenset({"gcp", "tpm"}))


def proved_by(*parts: str) -> AttestedIdentity:
    return AttestedIdentity(
        "composite", str(CompositeIdentity({name: f"id-{name}" for name in parts})), Security.SECURE
    )


@pytest.mark.parametrize(
    ("identity", "shown"),
    [
        (proved_by("tpm", "aws"), "composite with aws and tpm"),
        (AttestedIdentity("tpm", "id-tpm", Security.SECURE), "tpm"),
        (AttestedIdentity("composite", "no parts", Security.SECURE), "composite"),
    ],
)
def test_all_of_several_attestors(identity: AttestedIdentity, shown: str) -> None:
    """The identity says which attestors proved it: the composite attestor may have asked others at that time."""
    required = requiring(BOTH, BOTH)
    authorized = replace(required, authorized_attestors=(AuthorizedAttestor("composite"), AuthorizedAttestor("tpm")))
    judge(machine_facts(policy=authorized, identity=proved_by("tpm", "gcp", "aws")))
    denied = refused(judge, machine_facts(policy=authorized, identity=identity))
    assert denied.reason == Reason.ATTESTOR_NOT_AUTHORIZED
    assert "accepts composite with gcp and tpm for" in denied.message
    assert f"and not {shown}:" in denied.message
    good = builtin_facts(policy=authorized)
    judge_builtin(replace(good, record=replace(good.record, identity=proved_by("tpm", "gcp"))))
    waits = deferred(judge_builtin, replace(good, record=replace(good.record, identity=identity)))
    assert (waits.reason, f"and not {shown}:" in waits.message) == (Reason.NODE_NOT_ATTESTED, True)


def test_a_renewal_needs_the_attestor_too() -> None:
    """Otherwise a floor would hold for new nodes alone."""
    judge_builtin(builtin_facts(policy=requiring(GCP, TPM)))
    waits = deferred(judge_builtin, builtin_facts(policy=requiring(TPM, GCP)))
    assert waits.reason == Reason.NODE_NOT_ATTESTED
    assert "and not tpm" in waits.message
