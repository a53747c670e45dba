"""The operator's and the policy's settings: each part has its own, and a policy changes no part."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from attestors.composite import CompositeAttestor
from attestors.contract import AttestorDescription, AttestorSettings, Freshness, InvalidSettings, Security
from attestors.registry import Registry
from tests.support.attestors import RegistryWith
from tests.unit.attestors.composite.support import MASTER_KEY_TEXT, PARTS, operator, refused, server_plugin
from tests.unit.attestors.tpm.fixtures import KEYS

MAC = {"masterKey": MASTER_KEY_TEXT}


class NamedAttestor:
    """An attestor of that description, whose server plugin is what the test wants."""

    def __init__(self, name: str, *, plugin: object = None, **described: Any) -> None:
        given = {"security": Security.SECURE, "evidence_versions": ("v1",), "freshness": Freshness.TIMESTAMP}
        self.description = AttestorDescription(name, **{**given, **described})
        self.given: list[AttestorSettings] = []
        self._plugin = plugin

    def server_plugin(self, settings: AttestorSettings) -> Any:
        """See the contract."""
        self.given.append(settings)
        return self._plugin or server_plugin()

    def agent_plugin(self, settings: Mapping[str, str]) -> Any:
        """No test asks."""
        raise AssertionError


class AuditableAttestor(NamedAttestor):
    """One whose decisions can be replayed."""

    def redacted_fields(self, evidence: Any) -> Any:
        """See the contract."""
        return evidence.fields


def of(*attestors: Any, parts: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None) -> Any:
    given = parts or {attestor.description.provider: {} for attestor in attestors}
    composite = CompositeAttestor(lambda: RegistryWith(*attestors))
    return composite.server_plugin(AttestorSettings({"attestors": given}, policy or {}, lambda: KEYS))


def test_parts_are_sorted_and_have_their_own_settings() -> None:
    one, other = AuditableAttestor("zebra"), AuditableAttestor("ant")
    made = of(one, other, parts={"zebra": {"a": 1}, "ant": {"b": 2}}, policy={"ant": {"c": 3}})
    assert [part.name for part in made.parts] == ["ant", "zebra"]
    assert [(dict(given.operator), dict(given.policy)) for given in (*one.given, *other.given)] == [
        ({"a": 1}, {}),
        ({"b": 2}, {"c": 3}),
    ]


def test_no_two_attestors_share_a_challenge_key() -> None:
    one, other = AuditableAttestor("zebra"), AuditableAttestor("ant")
    of(one, other)
    keys = [key for given in (*one.given, *other.given) for key in given.challenge_keys()]
    assert len({*keys, *KEYS}) == 6
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "has the setting attestors and no other"),
        ({**operator(), "more": 1}, "has the setting attestors and no other"),
        ({"attestors": ["tpm", "gcp"]}, "attestors must map each attestor to its settings"),
        ({"attestors": {"tpm": None, "keyed-mac": MAC}}, "attestors must map each attestor to its settings"),
        (operator(tpm=PARTS["tpm"]), "attestors must name 2 or 3 attestors"),
        (operator(a={}, b={}, c={}, d={}), "attestors must name 2 or 3 attestors"),
        (operator(tpm={}, insecure={}), "insecure cannot be a part of the composite attestor: remove it"),
        (operator(tpm={}, composite=operator()), "composite cannot be a part of the composite attestor"),
        (operator(tpm={}, TPM={}), "a provider name is"),
        ({"attestors": {1: {}, "tpm": {}}}, "a provider name is"),
        (operator(**{"keyed-mac": MAC, "elsewhere": {}}), "attestor 'elsewhere' is not installed"),
        (operator(**{"keyed-mac": {}, "tpm": PARTS["tpm"]}), "keyed-mac: the keyed-mac attestor needs masterKey"),
    ],
)
def test_operator_settings_that_are_refused(given: Any, message: str) -> None:
    assert message in refused(given)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"attestors": {"tpm": {}}}, "a policy's settings of the composite attestor are objects by keyed-mac, tpm"),
        ({"tpm": []}, "a policy's settings of the composite attestor are objects by keyed-mac, tpm"),
        ({"keyed-mac": {"masterKey": MASTER_KEY_TEXT}}, "keyed-mac: a policy cannot configure the keyed-mac attestor"),
        ({"tpm": {"allowTrustOnFirstUse": True}}, "tpm: a policy's settings of the TPM attestor have no"),
    ],
)
def test_a_policy_widens_nothing(policy: Any, message: str) -> None:
    assert message in refused(operator(), policy)


CHALLENGING = {"freshness": Freshness.CHALLENGE}


@pytest.mark.parametrize(
    ("attestors", "message"),
    [
        ((AuditableAttestor("a", **CHALLENGING), AuditableAttestor("b", **CHALLENGING)), "two .* issue challenges"),
        (
            tuple(AuditableAttestor(name, attests_without_provider_id=True) for name in "ab"),
            "two of the attestors identify hardware",
        ),
        ((AuditableAttestor("a"), NamedAttestor("b")), "b has no redacted_fields"),
        ((AuditableAttestor("a"), AuditableAttestor("b", evidence_versions=("v2",))), "b does not read evidence v1"),
        ((AuditableAttestor("a"), AuditableAttestor("b", plugin=object())), "server plugin of b has no pre_filter"),
    ],
)
def test_attestors_that_cannot_be_parts_of_one_request(attestors: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        of(*attestors)


def test_one_part_may_challenge_and_identify_hardware() -> None:
    one = AuditableAttestor("a", freshness=Freshness.CHALLENGE, attests_without_provider_id=True)
    parts = of(one, AuditableAttestor("b")).parts
    assert [(part.challenges, part.names_hardware) for part in parts] == [(True, True), (False, False)]


class WithoutLibraries(AuditableAttestor):
    """Its extra is not installed."""

    def server_plugin(self, settings: AttestorSettings) -> Any:
        """See the contract."""
        raise ImportError("no module", name="absent")


def test_a_library_that_is_missing() -> None:
    class Installed(RegistryWith):
        def load(self, provider: str) -> Any:
            return WithoutLibraries("tpm") if provider == "tpm" else super().load(provider)

    composite = CompositeAttestor(Installed)
    with pytest.raises(InvalidSettings, match=re.escape("attestor 'tpm' needs absent, which is not installed")):
        composite.server_plugin(AttestorSettings(operator()))


def test_it_is_installed() -> None:
    assert isinstance(Registry().load("composite"), CompositeAttestor)
