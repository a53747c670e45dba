"""A machine with a key of keyed-mac and a chip, and the composite attestor that asks for both."""

from __future__ import annotations

import base64
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from keyed_mac.keys import compute_mac, derive_machine_key, time_text

from attestors.composite import plugin
from attestors.composite.controller import CompositeServerPlugin
from attestors.composite.parts import Part
from attestors.composite.wire import split_challenge
from attestors.contract import (
    UNRECORDED,
    AttestationRequest,
    AttestorSettings,
    ChallengeIssued,
    ClaimedMachine,
    InvalidSettings,
    NoRecordedIdentity,
    Outcome,
    Plausible,
    PreFiltered,
    RecordedCalls,
    RecordedIdentity,
)
from attestors.wire.binding import Binding
from tests.unit.attestors.support import PROVIDER_ID, attestation_request, binding_for, evidence_of
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.fixtures import ANY_KEYS, CHIP, KEYS, machine_of

MASTER_KEY: Final = bytes(range(32))
MASTER_KEY_TEXT: Final = base64.b64encode(MASTER_KEY).decode("ascii")
PARTS: Final[Mapping[str, Any]] = MappingProxyType({"keyed-mac": {"masterKey": MASTER_KEY_TEXT}, "tpm": dict(ANY_KEYS)})
BINDING: Final = binding_for(provider="composite")
NOW: Final = datetime.now(UTC).replace(microsecond=0)
MACHINE: Final = machine_of(CHIP.fingerprint)


def operator(**parts: Any) -> dict[str, Any]:
    """The operator's settings with these parts; by default keyed-mac and tpm."""
    return {"attestors": parts or dict(PARTS)}


def server_plugin(given: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None) -> Any:
    """The server plugin with these operator's settings."""
    return plugin.server_plugin(AttestorSettings(operator() if given is None else given, policy or {}, lambda: KEYS))


def refused(given: Any, policy: Any = None) -> str:
    """Why these settings are refused."""
    try:
        server_plugin(given, policy)
    except InvalidSettings as error:
        return str(error)
    raise AssertionError("the settings were accepted")


def mac_fields(binding: Binding = BINDING, provider_id: str = PROVIDER_ID) -> dict[str, str]:
    """The evidence of the machine's key."""
    made_at = time_text(NOW)
    mac = compute_mac(derive_machine_key(MASTER_KEY, provider_id), binding.value, made_at)
    return {"keyed-mac.mac": base64.b64encode(mac).decode("ascii"), "keyed-mac.madeAt": made_at}


def chip_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """The evidence of the chip, from its own fields."""
    return {f"tpm.{name}": value for name, value in fields.items()}


def request(
    fields: Mapping[str, str],
    *,
    binding: Binding = BINDING,
    machine: ClaimedMachine = MACHINE,
    recorded: str = "",
    calls: RecordedCalls = UNRECORDED,
) -> AttestationRequest:
    """A request as the core hands it over."""
    made = attestation_request(evidence_of(fields), binding=binding, now=NOW)
    told = replace(machine, recorded=RecordedIdentity(recorded) if recorded else NoRecordedIdentity())
    return replace(made, machine=told, recorded_calls=calls)


def at_once(judging: Coroutine[Any, Any, Outcome]) -> Outcome:
    """No part here waits."""
    try:
        judging.send(None)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome
    raise AssertionError("it waits")


def ask(fields: Mapping[str, str], server: CompositeServerPlugin | None = None, **changes: Any) -> Outcome:
    """The outcome of a request for a client certificate."""
    return at_once((server or server_plugin()).verify_client(request(fields, **changes)))


def challenge(chip: FakeTPM = CHIP, binding: Binding = BINDING, machine: ClaimedMachine = MACHINE) -> str:
    """The chip's own challenge, from a good first request."""
    outcome = ask({**mac_fields(binding), **chip_fields(chip.first())}, binding=binding, machine=machine)
    assert isinstance(outcome, ChallengeIssued), outcome
    part, own = split_challenge(outcome.challenge)
    assert part == "tpm"
    return own


def answer(chip: FakeTPM = CHIP, binding: Binding = BINDING, machine: ClaimedMachine = MACHINE) -> dict[str, str]:
    """The fields of a good second request."""
    return {**mac_fields(binding), **chip_fields(chip.answer(challenge(chip, binding, machine), binding))}


@dataclass(frozen=True)
class ScriptedPlugin:
    """A part that says what a test wants."""

    outcome: Any

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Always plausible."""
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """What the test wants."""
        outcome: Outcome = self.outcome(request) if callable(self.outcome) else self.outcome
        return outcome

    verify_serving = verify_client


def scripted(**outcomes: Any) -> CompositeServerPlugin:
    """The composite attestor with parts that say this; ``chip`` may challenge and names hardware."""
    parts = (Part(name, ScriptedPlugin(one), name == "chip", name == "chip") for name, one in sorted(outcomes.items()))
    return CompositeServerPlugin(tuple(parts))


def ask_scripted(server: CompositeServerPlugin) -> Outcome:
    """Its outcome for evidence with one field of each part."""
    return ask({f"{part.name}.x": "y" for part in server.parts}, server)
