"""A cluster's attestors: made once per policy, and broken ones say what to do."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from attestors.contract import AttestorDescription, AttestorSettings, Freshness, InvalidSettings, Security
from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP
from signer.configuration import Configuration, OperatorAttestor
from signer.decision.attestor_set import AttestorSet
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy, parse_policy
from signer.model.reasons import Reason
from tests.unit.signer.controller.support import FakeServerPlugin, good, registry


def challenge_keys(provider: str) -> tuple[bytes, ...]:
    return (f"new {provider}".encode(), f"old {provider}".encode())


def attestors(*names: str, operator: dict[str, Any] | None = None, policy: dict[str, Any] | None = None) -> AttestorSet:
    authorized = [{"name": name, **({"settings": policy} if policy else {})} for name in names]
    parsed = parse_policy(
        {"metadata": {"namespace": "ns", "name": "c"}, "spec": {"authorizedAttestors": authorized}}, NO_FLOOR
    )
    return AttestorSet(parsed, naming(*names, settings=operator or {}), registry(), challenge_keys)


def naming(*names: str, **fields: Any) -> Configuration:
    return Configuration("own", attestors={name: OperatorAttestor(**fields) for name in names})


def test_settings_of_both_sources_arrive_apart() -> None:
    ready = attestors("good", operator={"key": "operator's"}, policy={"key": "tenant's"}).ready("good")
    assert isinstance(ready.server_plugin, FakeServerPlugin)
    assert ready.server_plugin.settings.operator == {"key": "operator's"}
    assert ready.server_plugin.settings.policy == {"key": "tenant's"}
    assert ready.description.provider == "good"


class _Consuming:
    """Takes out what it knows and refuses the rest, in the very objects that it is given, however deep."""

    description = AttestorDescription("consuming", Security.SECURE, ("v1",), Freshness.TIMESTAMP)

    def server_plugin(self, settings: AttestorSettings) -> Any:
        for given in (settings.operator, settings.policy):
            assert isinstance(given, dict)
            if given.pop("key", None) is None or given.pop("inner", {}).pop("list", []).pop() != "entry" or given:
                raise InvalidSettings("key is missing")
        return FakeServerPlugin(settings)

    def agent_plugin(self, context: Any) -> Any:
        raise NotImplementedError


consuming = _Consuming()


def consumed() -> dict[str, Any]:
    return {"key": "a key", "inner": {"list": ["entry"]}}


def test_each_half_has_settings_of_its_own() -> None:
    """One tenant's half takes nothing from another's, nor from what it is made with again or the audit log says."""
    installed = Registry([EntryPoint("consuming", f"{__name__}:consuming", ENTRY_POINT_GROUP)])
    configuration = Configuration("own", attestors={"consuming": OperatorAttestor(settings=consumed())})
    spec = {"authorizedAttestors": [{"name": "consuming", "settings": consumed()}]}
    policies = [
        parse_policy({"metadata": {"namespace": name, "name": "c"}, "spec": spec}, NO_FLOOR) for name in ("a", "b")
    ]
    for policy in (*policies, policies[0]):
        assert AttestorSet(policy, configuration, installed, challenge_keys).broken() == ()
    assert configuration.attestor("consuming").settings == consumed()
    assert all(policy.authorized("consuming").settings == consumed() for policy in policies)


class _Halved:
    """Type checkers do not see all attestors: its server plugin is whatever a test says."""

    def __init__(self, plugin: object) -> None:
        self.description = AttestorDescription("halved", Security.SECURE, ("v1",), Freshness.TIMESTAMP)
        self._plugin = plugin

    def server_plugin(self, settings: AttestorSettings) -> Any:
        return self._plugin

    def agent_plugin(self, context: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("methods", "missing"),
    [
        ((), "pre_filter"),
        (("pre_filter",), "verify_client"),
        (("pre_filter", "verify_client"), "verify_serving"),
        (("pre_filter", "verify_client", "verify_serving"), ""),
    ],
)
def test_a_half_that_lacks_a_method_is_told_of_before_a_node_asks(
    methods: tuple[str, ...], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = type("Half", (), {method: lambda self, request: None for method in methods})()
    monkeypatch.setitem(globals(), "halved", _Halved(plugin))
    installed = Registry([EntryPoint("halved", f"{__name__}:halved", ENTRY_POINT_GROUP)])
    broken = AttestorSet(parsed("halved"), naming("halved"), installed, challenge_keys).broken()
    says = [f"attestor halved: its server plugin has no {missing}"] if missing else []
    assert [one.message for one in broken] == says


class _Whole:
    def pre_filter(self, request: Any) -> None: ...

    async def verify_client(self, request: Any) -> None: ...

    async def verify_serving(self, request: Any) -> None: ...


class _AsyncPreFilter(_Whole):
    async def pre_filter(self, request: Any) -> None: ...  # type: ignore[override]


@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        (_Whole, "is a class, and must be an object of it"),
        (_AsyncPreFilter(), "has an async pre_filter, and must have a plain one"),
        (_Whole(), ""),
    ],
)
def test_a_half_that_cannot_be_asked_is_told_of_before_a_node_asks(
    plugin: object, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "halved", _Halved(plugin))
    installed = Registry([EntryPoint("halved", f"{__name__}:halved", ENTRY_POINT_GROUP)])
    broken = AttestorSet(parsed("halved"), naming("halved"), installed, challenge_keys).broken()
    assert [one.message for one in broken] == ([f"attestor halved: its server plugin {says}"] if says else [])


def test_half_is_made_once() -> None:
    before, chosen = good.plugins_made, attestors("good")
    assert chosen.ready("good") is chosen.ready("good")
    assert good.plugins_made == before + 1


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("bare", "needs tpm2_pytss, which is not installed"),
        ("absent", "no_such_module_here:plugin names no module that exists"),
        ("picky", "settings of attestor picky: endorsementAuthorities must be a folder"),
        ("unheard-of", "is not installed"),
        ("liar", "somebody-else"),
        ("exiting", "attestor exiting failed with SystemExit; see the log"),
    ],
)
def test_broken_ones_are_waited_for_and_say_why(provider: str, expected: str) -> None:
    chosen = attestors(provider, "good")
    for _ in range(2):
        with pytest.raises(Deferred) as deferred:
            chosen.ready(provider)
        assert deferred.value.defer.reason == "AttestorUnavailable"
        assert expected in deferred.value.defer.message
    assert [one.provider for one in chosen.broken()] == [provider]
    assert expected in chosen.broken()[0].message
    chosen.ready("good")


def test_nothing_is_broken() -> None:
    assert attestors("good", "other").broken() == ()


def test_description_of_any_installed_attestor() -> None:
    """Asked before the policy is looked at: an attestor that is not authorized is denied, not deferred."""
    assert attestors("good").description("other").provider == "other"


@pytest.mark.parametrize("provider", ["unheard-of", "absent", "liar"])
def test_description_that_cannot_be_had(provider: str) -> None:
    with pytest.raises(Deferred) as deferred:
        attestors("good").description(provider)
    assert deferred.value.defer.reason == "AttestorUnavailable"


def test_attestor_that_the_policy_does_not_name_is_never_asked() -> None:
    chosen = AttestorSet(parsed("other"), naming("other", "good"), registry(), challenge_keys)
    with pytest.raises(KeyError):
        chosen.ready("good")


def parsed(provider: str) -> Policy:
    spec = {"authorizedAttestors": [{"name": provider}]}
    return parse_policy({"metadata": {"namespace": "ns", "name": "c"}, "spec": spec}, NO_FLOOR)


@pytest.mark.parametrize(
    ("provider", "configuration", "expected"),
    [
        (
            "good",
            {"attestors": {"good": OperatorAttestor(frozenset({"elsewhere"}))}},
            "does not allow attestor good in namespace ns: .* attestors.good.namespaces",
        ),
        ("good", {}, "does not allow attestor good in namespace ns: .* configuration file, in attestors.good,"),
        ("insecure", {}, "does not allow it in namespace ns: .* --insecure-attestor-namespaces"),
        ("insecure", {"insecure_enabled": True}, "does not allow it in namespace ns: .* --enable-insecure-attestor"),
    ],
)
def test_what_the_operator_does_not_allow_is_not_even_prepared(
    provider: str, configuration: dict[str, Any], expected: str
) -> None:
    """Its half would be made with the operator's secrets, and be handed requests to pre-filter."""
    before = good.plugins_made
    chosen = AttestorSet(parsed(provider), Configuration(namespace="own", **configuration), registry(), challenge_keys)
    with pytest.raises(Deferred) as deferred:
        chosen.ready(provider)
    assert re.search(expected, deferred.value.defer.message)
    assert [one.forbidden for one in chosen.broken()] == [True]
    assert good.plugins_made == before


def test_a_misspelt_attestor_is_not_installed_rather_than_not_allowed() -> None:
    """The configuration cannot name it: the policy is what to correct."""
    (broken,) = AttestorSet(parsed("unheard-of"), naming("good"), registry(), challenge_keys).broken()
    assert "is not installed" in broken.message
    assert not broken.forbidden


def test_what_the_operator_allows_is_prepared() -> None:
    allowed = Configuration(namespace="own", insecure_enabled=True, insecure_namespaces=frozenset({"ns"}))
    chosen = AttestorSet(parsed("insecure"), allowed, registry(), challenge_keys)
    assert chosen.ready("insecure").description.provider == "insecure"


def test_each_gets_its_own_challenge_keys() -> None:
    chosen = attestors("good", "other")
    for provider in ("good", "other"):
        plugin = chosen.ready(provider).server_plugin
        assert isinstance(plugin, FakeServerPlugin)
        assert plugin.settings.challenge_keys() == (f"new {provider}".encode(), f"old {provider}".encode())


def test_challenge_keys_are_asked_for_each_time() -> None:
    """They are rotated, and there may be none at the moment: that is no reason to make the attestor anew."""
    now: list[tuple[bytes, ...]] = []

    def keys(provider: str) -> tuple[bytes, ...]:
        if not now:
            raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "not yet")
        return now[-1]

    plugin = AttestorSet(parsed("good"), naming("good"), registry(), keys).ready("good").server_plugin
    assert isinstance(plugin, FakeServerPlugin)
    with pytest.raises(Deferred, match="not yet"):
        plugin.settings.challenge_keys()
    for current in ((b"1",), (b"2", b"1")):
        now.append(current)
        assert plugin.settings.challenge_keys() == current


def test_challenge_keys_are_shown_nowhere() -> None:
    plugin = attestors("good").ready("good").server_plugin
    assert isinstance(plugin, FakeServerPlugin)
    assert "challenge" not in repr(plugin.settings)
