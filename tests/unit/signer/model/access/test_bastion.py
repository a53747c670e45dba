from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from signer.model.access import (
    BastionStatus,
    BastionTarget,
    Endpoint,
    GrantReference,
    InvalidBastion,
    NoEndpoint,
    parse_bastion,
)
from signer.model.access.bastion import BastionCondition, parse_bastion_status, principal_of
from tests.support.access_objects import AUTHORITY_KEY, GRANT_UID, bastion_object


def test_bastion() -> None:
    bastion = parse_bastion(bastion_object(settings={"subnet": "public"}))
    assert bastion.grant == GrantReference("repair", GRANT_UID)
    assert (bastion.provider, bastion.settings) == ("local", {"subnet": "public"})
    assert bastion.ingress == (ip_network("198.51.100.7/32"),)
    assert bastion.user_authorities == (AUTHORITY_KEY,)
    assert bastion.principal == principal_of(GRANT_UID) == f"bastion@{GRANT_UID}"
    assert bastion.targets == (BastionTarget((ip_address("10.0.0.5"),), 22),)
    assert bastion.not_after == datetime(2026, 11, 27, 22, tzinfo=UTC)
    assert bastion.status == BastionStatus()
    assert bastion.status.ingress == NoEndpoint()


def test_status() -> None:
    status = {
        "observedGeneration": 2,
        "ingress": {"ip": "203.0.113.9", "port": 2222},
        "hostKeys": [AUTHORITY_KEY],
        "egress": ["10.0.0.9/32"],
        "conditions": [
            {"type": "Other", "status": "False"},
            {"type": "BastionReady", "status": "True", "reason": "SuccessfullyReconciled", "message": "it answers"},
        ],
    }
    found = parse_bastion_status({"status": status})
    assert found == BastionStatus(
        2,
        Endpoint("203.0.113.9", "", 2222),
        (AUTHORITY_KEY,),
        (ip_network("10.0.0.9/32"),),
        BastionCondition("True", "SuccessfullyReconciled", "it answers"),
    )
    named = {"ingress": {"hostname": "b.example.org", "port": 22}}
    assert parse_bastion_status({"status": named}).ingress == Endpoint("", "b.example.org", 22)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"provider": "None"}, "spec.provider"),
        ({"principal": "bastion@other"}, "spec.principal"),
        ({"principal": "root"}, "spec.principal"),
        ({"userAuthorities": []}, "spec.userAuthorities"),
        ({"userAuthorities": [f"cert-authority {AUTHORITY_KEY}"]}, "spec.userAuthorities[0]"),
        ({"userAuthorities": [f"{AUTHORITY_KEY} x"]}, "spec.userAuthorities[0]"),
        ({"targets": []}, "spec.targets"),
        ({"targets": [{"addresses": [], "port": 22}]}, "spec.targets[0].addresses"),
        ({"targets": [{"addresses": ["10.0.0.5\n"], "port": 22}]}, "spec.targets[0].addresses[0]"),
        ({"targets": [{"addresses": ["*"], "port": 22}]}, "spec.targets[0].addresses[0]"),
        ({"targets": [{"addresses": ["fe80::1%eth0"], "port": 22}]}, "spec.targets[0].addresses[0]"),
        ({"targets": [{"addresses": ["::ffff:10.0.0.5"], "port": 22}]}, "spec.targets[0].addresses[0]"),
        ({"targets": [{"addresses": ["10.0.0.5"], "port": 0}]}, "spec.targets[0].port"),
        ({"targets": [{"addresses": ["10.0.0.5"], "port": True}]}, "spec.targets[0].port"),
        ({"notAfter": None}, "spec.notAfter"),
        ({"settings": []}, "spec.settings"),
        ({"shell": True}, "spec"),
    ],
)
def test_invalid(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidBastion) as caught:
        parse_bastion(bastion_object(**spec))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"ingress": {"port": 22}}, "status.ingress.ip"),
        ({"ingress": {"ip": "203.0.113.9"}}, "status.ingress.port"),
        ({"ingress": {"hostname": "-oProxyCommand=id", "port": 22}}, "status.ingress.hostname"),
        ({"hostKeys": ["x"]}, "status.hostKeys[0]"),
        ({"egress": ["10.0.0.9"]}, "status.egress[0]"),
        ({"egress": ["0.0.0.0/0"]}, "status.egress[0]"),
        ({"conditions": [{"type": "BastionReady", "status": "yes"}]}, "status.conditions[0].status"),
        (
            {"conditions": [{"type": "BastionReady", "status": "True", "message": "\x1b"}]},
            "status.conditions[0].message",
        ),
    ],
)
def test_invalid_status(status: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidBastion) as caught:
        parse_bastion({**bastion_object(), "status": status})
    assert caught.value.field == field
