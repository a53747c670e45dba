"""``explain --objects`` with AWS's evidence: what is local is judged, STS and EC2 are not asked, and it says so."""

from __future__ import annotations

import pytest

from attestors.aws.controller import AWSControllerHalf
from attestors.aws.services import make_services
from attestors.clouds.calls import CloudCalls
from attestors.contract import NotProvableYet
from attestors.wire.evidence import MalformedEvidence
from signer.explain.offline import NOT_ASKED, _CountedKeys, _OfflineHalf
from tests.integration.aws.desk import Desk, fields, presigned
from tests.support.aws_documents import REGION

pytestmark = pytest.mark.slow


@pytest.fixture
def offline(desk: Desk, calls: CloudCalls) -> _OfflineHalf:
    """The attestor as the controller has it, with AWS's own names to ask."""
    half = AWSControllerHalf(desk.settings, make_services({}, calls=calls))
    return _OfflineHalf(half, _CountedKeys(lambda: ()))


async def test_good_evidence_waits_for_whom_it_would_ask(desk: Desk, offline: _OfflineHalf) -> None:
    request = desk.request(fields(presigned(desk.session)))
    outcome = await offline.verify_client(request)
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == NOT_ASKED
    assert f"not asked: offline (sts.{REGION}.amazonaws.com" in outcome.message


async def test_a_request_for_somebody_elses_server_is_denied_without_asking(desk: Desk, offline: _OfflineHalf) -> None:
    url = presigned(desk.session, host="sts.attacker.example")
    with pytest.raises(MalformedEvidence):
        await offline.verify_client(desk.request(fields(url)))
