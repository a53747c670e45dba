"""The tables of checks in the attestors' documents: each linked function is called, in this order, for what the row
applies to; and no reason of an attestor is missing."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from attestors.clouds.calls import CloudCalls
from attestors.clouds.google import ComputeEngine, GoogleAccess
from attestors.contract import AttestorSettings, ChallengeIssued, VerifiedIdentity
from attestors.gcp.certificate_service import certificate_service
from attestors.gcp.certificate_source import CertificateSource
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import InstanceLookUp
from attestors.tpm.settings import INTERMEDIATES_SETTING, ROOTS_SETTING, TEMPLATES_SETTING, TPMSettings
from signer.model.reasons import Reason
from tests.documents.attestor_checks import (
    ANSWER,
    CHECKS,
    EVERY,
    FIRST,
    LOOKED_UP,
    PRESIGNED,
    TOKEN,
    Check,
    Function,
    result_of,
)
from tests.documents.attestor_reasons import CONVERTED, FOLDERS, _reasons_in, reasons_of
from tests.integration.aws import test_web_identity_tokens
from tests.integration.aws.fixtures import PluginHarness as AWSHarness
from tests.integration.aws.fixtures import fields, presigned, settings
from tests.support.aws_documents import ACCOUNT
from tests.support.fake_aws import ISSUER_HOST, FakeAWS
from tests.support.fake_google import FakeGoogle
from tests.unit.attestors.gcp.support import INSTANCE, SETTINGS, claims, request, token
from tests.unit.attestors.support import NOW
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fixtures import BINDING, CHIP, PluginHarness

OF_THE_CORE: Final = {
    "tpm": {Reason.MALFORMED_EVIDENCE, Reason.BINDING_MISMATCH, Reason.CHALLENGE_ISSUED},
    "aws": {Reason.MALFORMED_EVIDENCE, Reason.BINDING_MISMATCH},
    "gcp": {Reason.MALFORMED_EVIDENCE, Reason.BINDING_MISMATCH},
}
"""What an attestor raises or returns besides its own reasons."""


@contextmanager
def recorded() -> Iterator[list[CodeType]]:
    """Which functions are called meanwhile, each once, in the order of their first calls."""
    called: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.setdefault(frame.f_code)

    found: list[CodeType] = []
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        found += called


def code_of(function: Function) -> CodeType:
    """What runs when it is called."""
    code: CodeType = inspect.unwrap(getattr(function, "__func__", function)).__code__
    return code


def faults(checks: Sequence[Check], kinds: set[str], called: list[CodeType]) -> list[str]:
    """The rows for such requests whose function was not called, or was called before that of the row above."""
    found, before = [], -1
    for number, check in enumerate(checks, start=1):
        if check.applies_to not in kinds:
            continue
        code = code_of(check.functions[0])
        name = check.functions[0].__qualname__
        if code not in called:
            found.append(f"{number}: {name} is not called")
        elif called.index(code) < before:
            found.append(f"{number}: {name} is called earlier")
        else:
            before = called.index(code)
    return found


def test_a_chips_first_request_and_its_answer(tmp_path: Path) -> None:
    operator: dict[str, Any] = {TEMPLATES_SETTING: [CHIP.key.template.name]}
    for setting, certificate in ((ROOTS_SETTING, root()), (INTERMEDIATES_SETTING, intermediate())):
        (tmp_path / setting).mkdir()
        (tmp_path / setting / "ca.der").write_bytes(certificate)
        operator[setting] = str(tmp_path / setting)
    harness = PluginHarness(TPMSettings.parse(AttestorSettings(operator=operator)))
    with recorded() as called:
        challenged = harness.ask(CHIP.first())
    assert isinstance(challenged, ChallengeIssued)
    assert faults(CHECKS["tpm"], {EVERY, FIRST}, called) == []
    answer = CHIP.answer(challenged.challenge, BINDING)
    with recorded() as called:
        outcome = harness.ask(answer, csr_uid="second")
    assert isinstance(outcome, VerifiedIdentity)
    assert faults(CHECKS["tpm"], {EVERY, ANSWER}, called) == []


@pytest.fixture
async def aws() -> AsyncIterator[AWSHarness]:
    with FakeAWS(clock=lambda: NOW) as cloud:
        calls = CloudCalls(deadline_seconds=5)
        policy = {"requiredTags": {"Name": "worker-1"}}
        yield AWSHarness(
            cloud, calls, settings=settings({"webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"}}, policy)
        )
        calls.close()


async def test_an_instance_of_aws_with_a_presigned_request(aws: AWSHarness) -> None:
    evidence = aws.request(fields(presigned(aws.session)))
    plugin = aws.plugin
    with recorded() as called:
        await plugin.verify_client(evidence)
    assert faults(CHECKS["aws"], {EVERY, PRESIGNED}, called) == []


async def test_an_instance_of_aws_with_a_token(aws: AWSHarness) -> None:
    evidence = aws.request(test_web_identity_tokens.evidence(aws))
    plugin = aws.plugin
    with recorded() as called:
        await plugin.verify_client(evidence)
    assert faults(CHECKS["aws"], {EVERY, TOKEN}, called) == []


async def test_an_instance_of_google(tmp_path: Path) -> None:
    with FakeGoogle() as google:
        google.add(INSTANCE)
        calls = CloudCalls(deadline_seconds=5)
        engine = ComputeEngine(GoogleAccess(google.write_account_key(tmp_path), google.compute_url), calls=calls)
        source = CertificateSource(certificate_service(google.pem_certificates_url, calls=calls))
        plugin = GCPServerPlugin(SETTINGS, lambda: source, InstanceLookUp(lambda: engine))
        asked = request(token(claims(INSTANCE)))
        with recorded() as called:
            outcome = await plugin.verify_client(asked)
        engine.close()
        calls.close()
    assert isinstance(outcome, VerifiedIdentity)
    assert faults(CHECKS["gcp"], {EVERY, LOOKED_UP}, called) == []


def test_a_row_at_the_wrong_place_is_found() -> None:
    """And one whose function is never called."""
    first, second, third, *_ = CHECKS["gcp"]
    called = [code_of(check.functions[0]) for check in (first, second)]
    assert faults((second, first, third), {EVERY}, called) == [
        "2: read_token is called earlier",
        "3: prove_audience is not called",
    ]
    assert faults((first, second), {EVERY}, called) == []
    assert faults((third,), {EVERY}, called) == ["1: prove_audience is not called"]
    assert faults((third,), {LOOKED_UP}, called) == []


@pytest.mark.parametrize("attestor", FOLDERS)
def test_every_reason_of_an_attestor_is_in_a_row_and_no_other(attestor: str) -> None:
    listed = {reason for check in CHECKS[attestor] for reason in check.reasons}
    made = set(reasons_of(attestor)) - CONVERTED.get(attestor, set())
    assert listed == made | {str(reason) for reason in OF_THE_CORE[attestor]}
    assert all(result_of(attestor, reason) for reason in listed)


@pytest.mark.parametrize(
    "check", [check for checks in CHECKS.values() for check in checks], ids=lambda check: check.says
)
def test_a_row_has_every_reason_that_its_functions_give(check: Check) -> None:
    given: set[str] = set()
    for function in check.functions:
        module = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
        given |= {reason for reason, _ in _reasons_in(module)}
    assert given <= set(check.reasons)
