"""Settings of an attestor, by source, and the keys for its challenges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class InvalidSettings(ValueError):
    """An attestor's settings are wrong; the message names the setting and what it should be."""


class NoChallengeKeys(Exception):
    """These settings were made without a controller and have no challenge keys."""


def no_challenge_keys() -> tuple[bytes, ...]:
    """The default of ``challenge_keys`` for settings that were made without a controller.

    Raises:
        NoChallengeKeys: always.
    """
    raise NoChallengeKeys("challenges need the controller's keys, and these settings have none")


@dataclass(frozen=True, slots=True)
class AttestorSettings:
    """Settings for one attestor in one cluster, from two sources of different trust.

    ``operator`` comes from the controller's own configuration and may hold secrets. ``policy`` comes from the cluster's
    NodeAttestationPolicy, which a tenant writes; it must never widen what ``operator`` allows. Each plugin gets its own
    copies.
    """

    operator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Mapping[str, Any] = field(default_factory=dict)
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(default=no_challenge_keys, repr=False, compare=False)
    """Keys of 32 bytes for this attestor's challenges, newest first. With them a challenge needs no stored state and
    stays valid after a restart and on other replicas. Call it for each use: keys are rotated. It raises if there are
    no keys at the moment, which defers the request."""
