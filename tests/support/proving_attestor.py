"""The keyed-mac attestor, with proof of terminations: a test says which instances its cloud has."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from keyed_mac import KeyedMACAttestor
from keyed_mac.controller import KeyedMACServerPlugin, server_plugin_from

from attestors.contract import (
    AnswerForm,
    AttestorDescription,
    AttestorSettings,
    FormerInstance,
    Freshness,
    InstanceExists,
    InstanceGone,
    Security,
    Termination,
    TerminationNotProvable,
)
from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP

PROVIDER: Final = "keyed-mac"
_STATE: Final[AnswerForm[str]] = AnswerForm(str, str)


@dataclass
class Cloud:
    """The states of instances by provider ID, and the questions."""

    states: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def state(self, provider_id: str) -> str:
        """The state; ``unknown`` for an instance that no test put there. One that is ``broken`` fails."""
        self.asked.append(provider_id)
        state = self.states.get(provider_id, "unknown")
        if state == "broken":
            raise OSError("a defect of the plugin")
        return state


CLOUD: Final = Cloud()


@dataclass(frozen=True, slots=True)
class ProvingServerPlugin(KeyedMACServerPlugin):
    """Implements :class:`attestors.contract.InstanceTerminationProver` too."""

    async def termination_of(self, former: FormerInstance) -> Termination:
        """What the cloud says."""
        state = await former.recorded_calls.ask("cloud", lambda: CLOUD.state(former.provider_id), _STATE)
        if state == "terminated":
            return InstanceGone()
        if state == "unknown":
            return TerminationNotProvable("the cloud does not know it")
        return InstanceExists(f"it is {state}")


class ProvingAttestor(KeyedMACAttestor):
    """Implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(PROVIDER, Security.SECURE, ("v1",), Freshness.TIMESTAMP)

    def server_plugin(self, settings: AttestorSettings) -> ProvingServerPlugin:
        """A plugin that asks the cloud."""
        return ProvingServerPlugin(server_plugin_from(settings).master_key)


plugin: Final = ProvingAttestor()


def registry() -> Registry:
    """The installed attestors, with this one in place of keyed-mac."""
    own = importlib.metadata.EntryPoint(PROVIDER, f"{__name__}:plugin", ENTRY_POINT_GROUP)
    installed: Mapping[str, importlib.metadata.EntryPoint] = {
        point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    }
    return Registry([own, *(point for name, point in installed.items() if name != PROVIDER)])
