"""What an attestor is configured with, by whom, and the keys for its challenges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class InvalidSettings(ValueError):
    """An attestor's settings are wrong; the message names the setting and what it should be."""


class NoChallengeKeys(Exception):
    """There are no keys for challenges here: settings that were made without a controller."""


def no_challenge_keys() -> tuple[bytes, ...]:
    """The keys of settings that were made without a controller.

    Raises:
        NoChallengeKeys: always.
    """
    raise NoChallengeKeys("challenges need the controller's keys, and these settings have none")


@dataclass(frozen=True, slots=True)
class AttestorSettings:
    """Settings for one attestor in one cluster, from two sources of different trust.

    ``operator`` comes from the controller's own configuration and may hold secrets; ``policy`` comes from the cluster's
    NodeAttestationPolicy, which a tenant writes. An attestor must not let the latter widen the former. Each half has
    copies of its own.
    """

    operator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Mapping[str, Any] = field(default_factory=dict)
    challenge_keys: Callable[[], tuple[bytes, ...]] = field(default=no_challenge_keys, repr=False, compare=False)
    """Keys of 32 bytes for this attestor's challenges, the newest first: what a challenge needs to be remembered by
    nobody, good after a restart and on another replica. To be asked for each time: keys are rotated. It raises where
    there are none at the moment, which makes the request wait."""
