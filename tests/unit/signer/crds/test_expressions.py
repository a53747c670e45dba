"""The definition with CEL rules equals the plain one plus the rules, which name existing fields."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from signer.crds import custom_resource_definitions
from signer.crds.expressions import (
    POLICY_FILE,
    POLICY_RULES,
    ValidationRule,
    policy_definition_text,
    policy_definition_with_rules,
)
from signer.model.access_policy import MAXIMUM_CERTIFICATE, MAXIMUM_LIFETIME, MINIMUM_CERTIFICATE, MINIMUM_LIFETIME
from signer.model.durations import parse_duration
from signer.model.policy import MAXIMUM_CERTIFICATE_DURATION, MINIMUM_CERTIFICATE_DURATION
from signer.model.ssh_access import MAXIMUM_ROTATION_PERIOD, MINIMUM_ROTATION_PERIOD
from signer.testing.api import EmbeddedAPI
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cel import RuleEvaluator
from tests.support.yaml_documents import safe_load

RULES_KEY = "x-kubernetes-validations"
OVERLAY = Path(__file__).parents[4] / "deploy" / "crds-cel" / POLICY_FILE
rules = pytest.mark.parametrize("rule", POLICY_RULES, ids=lambda rule: ".".join(rule.path) or "spec")


def without_rules(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_rules(item) for key, item in value.items() if key != RULES_KEY}
    return [without_rules(item) for item in value] if isinstance(value, list) else value


def spec_schema() -> dict[str, Any]:
    (version,) = policy_definition_with_rules()["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def test_the_overlay_is_the_plain_definition_plus_the_rules() -> None:
    plain = safe_load(custom_resource_definitions()[0])
    assert RULES_KEY not in custom_resource_definitions()[0]
    assert without_rules(policy_definition_with_rules()) == plain
    assert safe_load(policy_definition_text()) == policy_definition_with_rules()


def test_the_copy_in_deploy_is_current() -> None:
    assert OVERLAY.read_text(encoding="utf-8") == policy_definition_text(), "run make generate"
    assert [path.name for path in OVERLAY.parent.glob("*.yaml")] == [POLICY_FILE]


@rules
def test_each_rule_is_at_its_field(rule: ValidationRule) -> None:
    schema = spec_schema()
    for name in rule.path:
        schema = schema["properties"][name]
    assert {"rule": rule.rule, "message": rule.message} in schema[RULES_KEY]


@rules
def test_each_rule_names_existing_fields(rule: ValidationRule) -> None:
    """Detects a renamed field, which CEL reads as absent, and works without an evaluator."""
    for path in re.findall(r"self((?:\.[a-zA-Z]+)*)\b", rule.rule):
        schema = spec_schema()
        for name in (*rule.path, *filter(None, path.split("."))):
            if name == "exists":
                break
            schema = schema["properties"][name]
    assert rule.rule.count("(") == rule.rule.count(")")
    assert rule.rule.count("'") % 2 == 0


@rules
def test_each_message_fits_on_a_terminal(rule: ValidationRule) -> None:
    assert 0 < len(rule.message) <= 200
    assert rule.message.isprintable()
    assert not rule.message.endswith(".")


def test_the_range_of_durations_is_the_controllers_own() -> None:
    ranges = {tuple(re.findall(r"duration\('(\w+)'\)", rule.rule)) for rule in POLICY_RULES if "duration" in rule.rule}
    bounds = (MINIMUM_CERTIFICATE_DURATION, MAXIMUM_CERTIFICATE_DURATION)
    found = {tuple(map(parse_duration, bound)) for bound in ranges}
    period = (MINIMUM_ROTATION_PERIOD, MAXIMUM_ROTATION_PERIOD)
    grants = {(MINIMUM_LIFETIME, MAXIMUM_LIFETIME), (MINIMUM_CERTIFICATE, MAXIMUM_CERTIFICATE)}
    assert found == {bounds, (timedelta(), *bounds), period, *grants}, "deletingDuration may be zero"
    durations = {rule.path for rule in POLICY_RULES if "duration(" in rule.rule}
    certificates = {("certificates", name) for name in spec_schema()["properties"]["certificates"]["properties"]}
    access = {("ssh", "access", name) for name in ("maxLifetime", "timeToLive", "certificateDuration")}
    assert durations == {*certificates, *access, ("ssh", "hostCertificateDuration"), ("ssh", "rotationPeriod")}


@pytest.fixture(scope="module")
def evaluator() -> RuleEvaluator:
    try:
        return RuleEvaluator()
    except MissingPart as missing:
        skip_or_fail(missing)


TPM, INSECURE = {"name": "tpm"}, {"name": "insecure"}


@pytest.mark.parametrize(
    ("spec", "broken"),
    [
        ({"authorizedAttestors": [INSECURE]}, ()),
        ({"mode": "Observe", "authorizedAttestors": [INSECURE]}, ()),
        ({"mode": "Enforce", "authorizedAttestors": [INSECURE, TPM]}, ()),
        ({"mode": "Enforce", "authorizedAttestors": [INSECURE]}, ("spec",)),
        ({"nodeClientAuthority": "Separate"}, ()),
        ({"nodeClientAuthority": "Separate", "certificateAuthorities": {"client": "ca", "serving": "ca"}}, ()),
        ({"nodeClientAuthority": "Shared", "certificateAuthorities": {"client": "cca", "serving": "ca"}}, ()),
        ({"certificateAuthorities": {"client": "cca", "serving": "ca"}}, ()),
        ({"nodeClientAuthority": "Separate", "certificateAuthorities": {"client": "cca", "serving": "ca"}}, ("spec",)),
        ({"nodeClientAuthority": "Separate", "certificateAuthorities": {"client": "ca", "serving": "b"}}, ("spec",)),
        ({"certificates": {"clientDuration": "1h", "servingDuration": "8784h", "insecureDuration": "90m"}}, ()),
        ({"ssh": {}}, ()),
        ({"ssh": {"hostCertificateDuration": "1h", "rotationPeriod": "24h"}}, ()),
        ({"ssh": {"hostCertificateDuration": "8784h", "rotationPeriod": "87840h"}}, ()),
        ({"ssh": {"access": {"maxLifetime": "168h", "timeToLive": "1m", "certificateDuration": "1h"}}}, ()),
        ({"ssh": {"access": {"maxLifetime": "169h"}}}, ("maxLifetime",)),
        ({"ssh": {"access": {"timeToLive": "59s"}}}, ("timeToLive",)),
        ({"ssh": {"access": {"certificateDuration": "61m"}}}, ("certificateDuration",)),
        ({"ssh": {"hostCertificateDuration": "59m"}}, ("hostCertificateDuration",)),
        ({"ssh": {"hostCertificateDuration": "8785h"}}, ("hostCertificateDuration",)),
        ({"ssh": {"rotationPeriod": "23h"}}, ("rotationPeriod",)),
        ({"ssh": {"rotationPeriod": "87841h"}}, ("rotationPeriod",)),
        ({"certificates": {"clientDuration": "59m"}}, ("clientDuration",)),
        ({"certificates": {"servingDuration": "8784h1s"}}, ("servingDuration",)),
        ({"certificates": {"insecureDuration": "0h", "deletingDuration": "0h"}}, ("insecureDuration",)),
        ({"certificates": {"deletingDuration": "59m"}}, ("deletingDuration",)),
        ({"certificates": {"deletingDuration": "8785h"}}, ("deletingDuration",)),
    ],
)
def test_what_the_rules_refuse(evaluator: RuleEvaluator, spec: dict[str, Any], broken: tuple[str, ...]) -> None:
    """An API server from 1.25 does the same: tests/e2e/test_refused_at_the_api.py."""
    found = []
    for rule in POLICY_RULES:
        value: Any = {"authorizedAttestors": [TPM], **spec}
        for name in rule.path:
            value = value.get(name, {})
        if value != {} and not evaluator.holds(rule.rule, value):  # absent fields are not validated
            found.append(rule.path[-1] if rule.path else "spec")
    assert tuple(found) == broken


def test_an_api_server_installs_it() -> None:
    with EmbeddedAPI() as api:
        api.install_crds([OVERLAY])
