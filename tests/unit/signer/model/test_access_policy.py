from __future__ import annotations

import json
from datetime import timedelta
from ipaddress import ip_network
from typing import Any

import pytest

from signer.audit import values
from signer.model.access_policy import (
    NO_ACCESS,
    AccessRules,
    BastionRules,
    InvalidAccessRules,
    MinimumPrefixLengths,
    NoAccess,
    parse_access_rules,
)
from signer.model.floors import NO_FLOOR
from signer.model.policy import InvalidPolicy, Policy, parse_policy
from signer.model.ssh_access import SSHSettings

DEFAULT = AccessRules(timedelta(hours=24), timedelta(hours=1), timedelta(hours=1))


def rules(**stated: Any) -> AccessRules:
    found = parse_access_rules(stated)
    assert isinstance(found, AccessRules)
    return found


def policy(ssh: dict[str, Any]) -> Policy:
    return parse_policy({"metadata": {"namespace": "team-a", "name": "prod"}, "spec": {"ssh": ssh}}, NO_FLOOR)


def test_absent_means_no_grants() -> None:
    found = policy({}).ssh
    assert isinstance(found, SSHSettings)
    assert found.access == NO_ACCESS == parse_access_rules(None)


def test_defaults() -> None:
    found = policy({"access": {}}).ssh
    assert isinstance(found, SSHSettings)
    assert found.access == DEFAULT == rules()
    assert (DEFAULT.approvals, DEFAULT.node_port, DEFAULT.bastion) == (0, 22, BastionRules("None", {}))
    assert MinimumPrefixLengths(24, 48) == DEFAULT.minimum_prefixes


def test_everything_that_a_policy_may_say() -> None:
    found = rules(
        maxLifetime="168h",
        timeToLive="15m",
        certificateDuration="5m",
        approvals=2,
        reasonPattern=".{10,}",
        ticketPattern="OPS-[0-9]+",
        minimumPrefixLength={"ipv4": 32, "ipv6": 64},
        bastion={"provider": "aws", "settings": {"instanceType": "t3.nano"}},
        nodePort=2222,
    )
    assert found == AccessRules(
        timedelta(hours=168),
        timedelta(minutes=15),
        timedelta(minutes=5),
        2,
        ".{10,}",
        "OPS-[0-9]+",
        MinimumPrefixLengths(32, 64),
        BastionRules("aws", {"instanceType": "t3.nano"}),
        2222,
    )


def test_patterns_cover_the_whole_text() -> None:
    found = rules(reasonPattern=".{10,}", ticketPattern="OPS-[0-9]+")
    assert found.allows_reason("0123456789")
    assert not found.allows_reason("short")
    assert found.allows_ticket("OPS-17")
    assert not found.allows_ticket("OPS-17 and more")
    assert rules().allows_reason("")
    assert rules().allows_ticket("")


def test_minimum_prefix_lengths() -> None:
    prefixes = rules().minimum_prefixes
    assert prefixes.allows(ip_network("198.51.100.0/24"))
    assert not prefixes.allows(ip_network("198.51.100.0/23"))
    assert prefixes.allows(ip_network("2001:db8::/48"))
    assert not prefixes.allows(ip_network("2001:db8::/47"))


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"maxLifetime": "169h"}, ".maxLifetime must be between"),
        ({"maxLifetime": "59s"}, ".maxLifetime must be between"),
        ({"maxLifetime": 24}, ".maxLifetime: a duration"),
        ({"timeToLive": "0s"}, ".timeToLive must be between"),
        ({"certificateDuration": "61m"}, ".certificateDuration must be between 1m and 1h"),
        ({"certificateDuration": "59s"}, ".certificateDuration must be between"),
        ({"approvals": 9}, ".approvals must be a whole number from 0 to 8"),
        ({"approvals": -1}, ".approvals must be"),
        ({"approvals": True}, ".approvals must be"),
        ({"reasonPattern": "("}, ".reasonPattern ends too early"),
        ({"ticketPattern": "x" * 257}, ".ticketPattern must be a pattern of at most 256"),
        ({"ticketPattern": 7}, ".ticketPattern must be a pattern"),
        ({"minimumPrefixLength": {"ipv4": 7}}, ".minimumPrefixLength.ipv4 must be a whole number from 8 to 32"),
        ({"minimumPrefixLength": {"ipv6": 129}}, ".minimumPrefixLength.ipv6 must be a whole number from 16 to 128"),
        ({"minimumPrefixLength": 24}, ".minimumPrefixLength must be an object"),
        ({"bastion": {"provider": "AWS"}}, ".bastion.provider must be None or"),
        ({"bastion": {"settings": []}}, ".bastion.settings must be an object"),
        ({"bastion": {"settings": {"x": "y" * 4096}}}, ".bastion.settings must have at most 4096 bytes"),
        ({"bastion": "aws"}, ".bastion must be an object"),
        ({"nodePort": 0}, ".nodePort must be a whole number from 1 to 65535"),
        ([], " must be an object"),
    ],
)
def test_invalid(stated: Any, message: str) -> None:
    with pytest.raises(InvalidAccessRules) as caught:
        parse_access_rules(stated)
    assert str(caught.value).startswith(message)
    with pytest.raises(InvalidPolicy, match=r"^spec\.ssh\.access"):
        policy({"access": stated})


@pytest.mark.parametrize(
    "access", [NO_ACCESS, DEFAULT, rules(bastion={"provider": "aws", "settings": {"a": {"b": 1}}})]
)
def test_audit_lines_hold_it(access: AccessRules | NoAccess) -> None:
    line = values.write(access)
    assert values.read(AccessRules | NoAccess, json.loads(line), "line") == access


def test_audit_lines_without_it_stay_readable() -> None:
    ssh = policy({}).ssh
    line = json.loads(values.write(ssh))
    del line["access"]
    assert values.read(SSHSettings, line, "line") == ssh
