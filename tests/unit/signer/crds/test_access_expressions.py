"""The definitions of access with CEL rules equal the plain ones plus the rules, and the rules say what they should."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from signer.crds import ACCESS_CRD_FILES, access_definitions
from signer.crds.access_expressions import (
    APPROVALS,
    BASTIONS,
    GRANTS,
    RULES,
    access_definition_texts,
)
from signer.crds.expressions import ITEMS, ValidationRule
from tests.support.access_objects import approval_object, bastion_object, grant_object
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import RuleEvaluator
from tests.support.yaml_documents import safe_load
from tests.unit.signer.crds.test_expressions import RULES_KEY, without_rules

DEPLOY: Final = Path(__file__).parents[4] / "deploy"
CONTAINER: Final = {"namespace": "shop", "pod": "web-0", "container": "nginx"}


def test_the_overlays_are_the_plain_definitions_plus_the_rules() -> None:
    plain = dict(zip(ACCESS_CRD_FILES, access_definitions(), strict=True))
    assert set(RULES) == set(plain)
    for name, text in access_definition_texts().items():
        assert RULES_KEY not in plain[name]
        assert without_rules(safe_load(text)) == safe_load(plain[name])


def test_the_copies_in_deploy_are_current() -> None:
    plain = dict(zip(ACCESS_CRD_FILES, access_definitions(), strict=True))
    for folder, texts in (("crds-access", plain), ("crds-access-cel", access_definition_texts())):
        found = {path.name: path.read_text(encoding="utf-8") for path in (DEPLOY / folder).iterdir()}
        assert found == texts, "run make generate"


@pytest.mark.parametrize("file", RULES)
def test_each_message_fits_on_a_terminal(file: str) -> None:
    messages = [rule.message for rule in RULES[file]]
    assert all(0 < len(message) <= 200 and message.isprintable() for message in messages)


@pytest.fixture(scope="module")
def evaluator() -> RuleEvaluator:
    try:
        return RuleEvaluator()
    except MissingPart as missing:
        skip_or_fail(missing)


def broken(
    evaluator: RuleEvaluator, file: str, spec: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> set[str]:
    """The messages of the rules that do not hold; those about changes only where there is an old spec."""
    return {
        rule.message
        for rule in RULES[file]
        if ("oldSelf" not in rule.rule or old is not None)
        and not all(evaluator.holds(rule.rule, value, old) for value in values_at(rule, spec))
    }


def values_at(rule: ValidationRule, spec: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = [spec]
    for name in rule.path:
        if name == ITEMS:
            found = [item for value in found for item in value]
        else:
            found = [value[name] for value in found if name in value]
    return found


def ingress(*cidrs: str) -> list[Any]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, ""),
        ({"logins": ["root", "admin"], "duration": "8h", "bastion": "None"}, ""),
        ({"target": {"container": CONTAINER}}, ""),
        ({"target": {"container": CONTAINER}, "logins": []}, ""),
        ({"target": {"allNodes": {}}}, ""),
        ({"bastion": "aws", "ingress": ingress("198.51.100.7/32")}, ""),
        ({"ingress": ingress("198.51.100.0/24", "10.0.0.0/8", "2001:db8::/64", "0.0.0.0/8", "255.255.255.255/32")}, ""),
        ({"logins": []}, "logins must name 1 to 8 logins of nodes"),
        ({"target": {"container": CONTAINER}, "logins": ["root"]}, "logins must name 1 to 8 logins of nodes"),
        ({"bastion": "aws"}, "ingress must name the networks"),
        ({"bastion": "aws", "ingress": []}, "ingress must name the networks"),
        ({"target": {}}, "must have exactly one of nodes"),
        ({"target": {"nodes": ["a"], "allNodes": {}}}, "must have exactly one of nodes"),
        ({"duration": "59s"}, "must be from 1m to 168h"),
        ({"duration": "169h"}, "must be from 1m to 168h"),
        ({"ingress": ingress("198.51.100.7/31")}, "must have no host bits"),
        ({"ingress": ingress("198.51.100.0/22")}, ""),
        ({"ingress": ingress("198.51.101.0/23")}, "must have no host bits"),
        ({"ingress": ingress("10.0.0.1/8")}, "must have no host bits"),
        ({"ingress": ingress("198.51.100.7/32", "198.51.100.7/32")}, "must name each network once"),
    ],
)
def test_grants(evaluator: RuleEvaluator, spec: dict[str, Any], says: str) -> None:
    found = broken(evaluator, GRANTS, grant_object(**spec)["spec"])
    assert [message for message in found if not message.startswith(says)] == []
    assert bool(found) == bool(says)


FULL: Final = grant_object(
    logins=["root"], duration="8h", permissions={"pty": True}, reason="r", ticket="t", bastion="None"
)["spec"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clusterRef", {"name": "other"}),
        ("target", {"allNodes": {}}),
        ("logins", ["admin"]),
        ("sshPublicKey", "ssh-ed25519 AAAA"),
        ("duration", "9h"),
        ("permissions", {"pty": False}),
        ("reason", "other"),
        ("ticket", "other"),
        ("createdBy", {"username": "bob"}),
        ("bastion", "aws"),
    ],
)
def test_what_never_changes_in_a_grant(evaluator: RuleEvaluator, field: str, value: object) -> None:
    assert broken(evaluator, GRANTS, FULL, FULL) == set()
    changed = {**copy.deepcopy(FULL), field: value, "ingress": ingress("198.51.100.7/32")}
    (message,) = broken(evaluator, GRANTS, changed, FULL)
    assert message.startswith(f"{field} never changes")
    if field not in ("clusterRef", "target", "sshPublicKey"):
        without = {name: of for name, of in FULL.items() if name != field}
        (message,) = broken(evaluator, GRANTS, without, FULL)
        assert message.startswith(f"{field} never changes")
        assert broken(evaluator, GRANTS, FULL, without) == {message}


def test_what_may_change_in_a_grant(evaluator: RuleEvaluator) -> None:
    changed = {**FULL, "suspend": True, "ingress": ingress("198.51.100.7/32")}
    assert broken(evaluator, GRANTS, changed, FULL) == set()


def test_an_approval_never_changes(evaluator: RuleEvaluator) -> None:
    spec = approval_object()["spec"]
    assert broken(evaluator, APPROVALS, spec, spec) == set()
    assert broken(evaluator, APPROVALS, {**spec, "decision": "Deny"}, spec) != set()


def test_bastions(evaluator: RuleEvaluator) -> None:
    spec = bastion_object()["spec"]
    changed = {**spec, "ingress": ingress("203.0.113.0/28"), "userAuthorities": ["ssh-ed25519 B"], "notAfter": "later"}
    assert broken(evaluator, BASTIONS, changed, spec) == set()
    for field, value in {
        "grantRef": {**spec["grantRef"], "name": "other"},
        "clusterRef": {"name": "other"},
        "provider": "aws",
        "targets": [],
    }.items():
        (message,) = broken(evaluator, BASTIONS, {**spec, field: value}, spec)
        assert message.startswith(f"{field} never changes")
    assert len(broken(evaluator, BASTIONS, {**spec, "principal": "bastion@other"})) == 1
    assert len(broken(evaluator, BASTIONS, {**spec, "principal": "bastion@other"}, spec)) == 2
