from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import (
    ClaimedMachine,
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    OtherToken,
    RecordedIdentity,
    RequesterCredential,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from attestors.tpm.endorsement_key_sources import (
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    NoInformation,
    SourceName,
    SourceUnavailable,
    TrustOnFirstUse,
)
from tests.unit.attestors.tpm.endorsement_key_sources.support import (
    CHIP,
    NOT_VERIFIED,
    OTHER,
    at_once,
    certificate_of,
    machine,
    request,
)

VERIFIED = certificate_of(CHIP)
RECORDED = RecordedIdentity(f"tpm:{CHIP.fingerprint}")
OWNED = KeyConfirmed(SourceName.TRUST_ON_FIRST_USE)
CREDENTIALS: list[RequesterCredential] = [
    NodeCredential(),
    TokenOfMachine(),
    OtherToken("it is a pool's"),
    TokenNotTraceableNow("the watch is down"),
]


def ask(
    claimed: ClaimedMachine | NoClaimedMachine | None = None,
    credential: RequesterCredential | None = None,
    certificate: CertificateState = VERIFIED,
) -> Any:
    asked = request(claimed or machine(), credential=credential or TokenOfMachine())
    return at_once(TrustOnFirstUse().ask(asked, CHIP.key, certificate))


def test_the_first_with_the_machines_own_token() -> None:
    assert ask() == OWNED


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda credential: type(credential).__name__)
def test_the_recorded_one_however_it_asks(credential: RequesterCredential) -> None:
    assert ask(machine(recorded=RECORDED), credential) == OWNED


@pytest.mark.parametrize("credential", CREDENTIALS, ids=lambda credential: type(credential).__name__)
@pytest.mark.parametrize("identity", [f"tpm:{OTHER.fingerprint}", CHIP.fingerprint, "", "tpm:"], ids=range(4))
def test_another_one_than_was_recorded(credential: RequesterCredential, identity: str) -> None:
    """Also with the Machine's own token."""
    found = ask(machine(recorded=RecordedIdentity(identity)), credential)
    assert found == KeyContradicted("Machine worker-1 first came with another TPM")


@pytest.mark.parametrize("recorded", [False, True], ids=["new", "recorded"])
@pytest.mark.parametrize("role", [MachineRole.CONTROL_PLANE, MachineRole.POOL_MEMBER], ids=lambda role: role.value)
def test_never_for_others_than_workers(role: MachineRole, recorded: bool) -> None:
    claimed = machine(role=role, recorded=RECORDED) if recorded else machine(role=role)
    found = ask(claimed)
    assert isinstance(found, NoInformation)
    assert f"worker-1 is a {role.value}" in found.message


@pytest.mark.parametrize("recorded", [False, True], ids=["new", "recorded"])
def test_never_without_a_verified_certificate(recorded: bool) -> None:
    """A program could be the first."""
    claimed = machine(recorded=RECORDED) if recorded else machine()
    found = ask(claimed, certificate=NOT_VERIFIED)
    assert isinstance(found, NoInformation)
    assert "a verified endorsement certificate" in found.message


def test_never_without_a_machine() -> None:
    found = ask(NoClaimedMachine())
    assert isinstance(found, NoInformation)
    assert "needs a Machine" in found.message


def test_a_token_that_was_made_for_others() -> None:
    found = ask(credential=OtherToken("it was made for Machine worker-2"))
    assert isinstance(found, NoInformation)
    assert "needs the Machine's own bootstrap token: it was made for Machine worker-2" in found.message


def test_a_node_certificate_is_no_first_use() -> None:
    found = ask(credential=NodeCredential())
    assert isinstance(found, NoInformation)
    assert "no TPM is recorded of Machine worker-1" in found.message


def test_a_token_that_cannot_be_traced_now_is_waited_for() -> None:
    with pytest.raises(SourceUnavailable, match="the watch is down"):
        ask(credential=TokenNotTraceableNow("the watch is down"))
