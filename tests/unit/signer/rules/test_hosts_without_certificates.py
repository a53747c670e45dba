"""Which nodes have no valid host certificate."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from signer.model.host_keys import AttestedHostKeys
from signer.model.record import AttestedNode
from signer.rules.hosts_without_certificates import (
    HostWithoutCertificate,
    WhyNone,
    hosts_without_certificates,
)
from tests.unit.signer.builders import NODE, machine_view, record
from tests.unit.signer.model.test_seal import HOST_KEYS

MACHINE = machine_view()
NOW = HOST_KEYS.attested


def having(ssh: Any = HOST_KEYS) -> AttestedNode:
    return replace(record(MACHINE), ssh=ssh)


def why(*records: AttestedNode, **changes: Any) -> list[HostWithoutCertificate]:
    return list(hosts_without_certificates([replace(MACHINE, **changes)], records, NOW))


def test_a_node_with_a_valid_certificate_is_not_listed() -> None:
    assert why(having()) == []


def test_a_machine_whose_node_has_not_attested() -> None:
    assert why() == [HostWithoutCertificate(MACHINE.name, WhyNone.NOT_ATTESTED)]
    assert why(deleting=True) == []


def test_a_node_that_attested_without_host_keys() -> None:
    assert why(record(MACHINE)) == [HostWithoutCertificate(NODE, WhyNone.NONE_ISSUED)]


def test_a_certificate_that_has_run_out() -> None:
    assert isinstance(HOST_KEYS, AttestedHostKeys)
    assert why(having(replace(HOST_KEYS, not_after=NOW))) == [HostWithoutCertificate(NODE, WhyNone.RUN_OUT)]
    assert why(having(replace(HOST_KEYS, not_after=NOW + timedelta(seconds=1)))) == []


def test_one_valid_certificate_under_any_name_of_the_machine_suffices() -> None:
    assert why(record(MACHINE), replace(having(), node_name="second")) == []
