"""What makes a policy unusable is in the log, once."""

from __future__ import annotations

import logging

import pytest

from signer.controller.status.condition_log import LOG_BURST, LOG_INTERVAL_SECONDS, ConditionLog
from signer.model.cluster import ClusterKey
from signer.model.condition import (
    ATTESTORS_CONFIGURED,
    AUTO_APPROVAL_REMOVED,
    CERTIFICATE_AUTHORITY_AVAILABLE,
    ConditionType,
    PolicyCondition,
)

KEY = ClusterKey("team-a", "prod")


def condition(
    met: bool | None, message: str = "why", kind: ConditionType = CERTIFICATE_AUTHORITY_AVAILABLE
) -> PolicyCondition:
    return PolicyCondition(kind, met, "Because", message)


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str, str]]:
    return [
        (record.getMessage(), record.__dict__["cluster"], record.__dict__["reason"], record.__dict__["detail"])
        for record in caplog.records
    ]


def test_what_cannot_be_used_is_logged_with_its_cluster(caplog: pytest.LogCaptureFixture) -> None:
    log = ConditionLog(KEY)
    log.found([condition(False, "no folder", ATTESTORS_CONFIGURED), condition(False, "no key")])
    assert logged(caplog) == [
        ("attestors of a policy cannot be used", "team-a/prod", "Because", "no folder"),
        ("the CA of a cluster cannot be used", "team-a/prod", "Because", "no key"),
    ]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_the_same_fault_is_logged_once_until_it_is_repaired(caplog: pytest.LogCaptureFixture) -> None:
    log = ConditionLog(KEY)
    for message, met in (("a", False), ("a", False), ("b", False), ("", True), ("b", False)):
        log.found([condition(met, message)])
    assert [detail for *_, detail in logged(caplog)] == ["a", "b", "b"]


def test_other_conditions_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    log = ConditionLog(KEY)
    log.found([condition(True), condition(None), condition(False, kind=AUTO_APPROVAL_REMOVED)])
    assert logged(caplog) == []


def test_a_tenant_cannot_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = ConditionLog(KEY, lambda: now)
    for number in range(100):
        log.found([condition(False, str(number))])
    assert len(caplog.records) == LOG_BURST
    now += LOG_INTERVAL_SECONDS
    log.found([condition(False, "the last")])
    assert logged(caplog)[-1][-1] == "the last"
