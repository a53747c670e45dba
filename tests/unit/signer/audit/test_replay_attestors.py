"""Halves to judge again are made as the controller makes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from attestors.contract import AttestorDescription, AttestorSettings, Freshness, InvalidSettings, Security
from attestors.registry import Registry
from attestors.wire.evidence import Evidence
from attestors.wire.names import ENTRY_POINT_GROUP
from signer.audit.replay_attestors import NotAsked, ReplayAttestors
from signer.configuration import OperatorAttestor, operator_settings
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy, parse_policy


class _Consuming:
    """Takes out what it knows, in the very objects that it is given."""

    description = AttestorDescription("consuming", Security.SECURE, ("v1",), Freshness.TIMESTAMP)

    def server_plugin(self, settings: AttestorSettings) -> Any:
        assert isinstance(settings.operator, dict)
        assert isinstance(settings.policy, dict)
        if settings.operator.pop("keys", {}).pop("master", None) is None:
            raise InvalidSettings("keys.master is missing")
        settings.policy.clear()
        return object()

    def agent_plugin(self, context: Any) -> Any:
        raise NotImplementedError

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        return evidence.fields


consuming = _Consuming()


def policy(role: str, namespace: str = "ns") -> Policy:
    authorized = [{"name": "consuming", "settings": {"role": role}}]
    return parse_policy(
        {"metadata": {"namespace": namespace, "name": "c"}, "spec": {"authorizedAttestors": authorized}}, NO_FLOOR
    )


def plugins(operator: Mapping[str, Any], **by_namespace: Mapping[str, Any]) -> ReplayAttestors:
    registry = Registry([EntryPoint("consuming", f"{__name__}:consuming", ENTRY_POINT_GROUP)])
    configured = OperatorAttestor(settings=operator, settings_by_namespace=by_namespace)
    return ReplayAttestors(registry, partial(operator_settings, {"consuming": configured}))


def test_each_policys_half_has_settings_of_its_own() -> None:
    made, policies = plugins({"keys": {"master": "k"}}), [policy("worker"), policy("control plane")]
    first, second = (made.of("consuming", one) for one in policies)
    assert not isinstance(first, NotAsked)
    assert not isinstance(second, NotAsked)
    assert first is not second
    assert made.of("consuming", policies[0]) is first
    assert policies[0].authorized("consuming").settings == {"role": "worker"}


def test_a_namespaces_own_settings_are_not_anothers() -> None:
    made = plugins({}, trusted={"keys": {"master": "k"}})
    elsewhere, trusted = (made.of("consuming", policy("worker", namespace)) for namespace in ("ns", "trusted"))
    assert elsewhere == NotAsked("settings of attestor consuming: keys.master is missing; see --config")
    assert not isinstance(trusted, NotAsked)


@pytest.mark.parametrize("failure", [KeyError("secret"), SystemExit(0)])
def test_an_attestor_that_fails_ends_no_verification(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 0 it would say that all was verified."""

    def fails(self: object, settings: object) -> Any:
        raise failure

    monkeypatch.setattr(_Consuming, "server_plugin", fails)
    found = plugins({}).of("consuming", policy("worker"))
    assert found == NotAsked(f"attestor consuming fails with {type(failure).__name__}")


def test_settings_that_are_missing_are_said() -> None:
    found = plugins({}).of("consuming", policy("worker"))
    assert found == NotAsked("settings of attestor consuming: keys.master is missing; see --config")
