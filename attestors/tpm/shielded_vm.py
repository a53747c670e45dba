"""Whose endorsement key it is, as Google says of its Shielded VMs.

Google made the virtual TPM of each instance and knows its endorsement keys. In this order:

1. the provider ID is one of Compute Engine, of a project that the operator allows
2. the instance that has this name now is running, and has a numeric ID
3. the endorsement keys of the instance with that ID: were another machine made under the name meanwhile, there is none
4. the key shown is the one of its kind
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.constant_time import bytes_eq
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from attestors.clouds.cache import SingleFlightCache
from attestors.clouds.errors import CloudObjectMissing
from attestors.clouds.google import GCEProviderID, Instance, InvalidGCEProviderID, ShieldedInstanceIdentity
from attestors.tpm.structures import PublicKey

ANSWER_SECONDS: Final = 5.0
FAILURE_SECONDS: Final = 2.0
_PAUSE: Final = timedelta(seconds=10)
_ANSWER_PAUSE: Final = timedelta(seconds=ANSWER_SECONDS + 1)


@dataclass(frozen=True, slots=True)
class InstancesKey:
    """The key is that of the instance's own virtual TPM."""


@dataclass(frozen=True, slots=True)
class AnotherKey:
    """The instance's virtual TPM has another key of that kind."""

    instance: str
    """Its provider ID."""


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Google has no say in this machine: not of Compute Engine, or of no project that the operator allows."""

    message: str


@dataclass(frozen=True, slots=True)
class NotSaidYet:
    """It is one of Google's, and Google does not say now which key it has. It is nobody else's to say either."""

    message: str
    retry_after: timedelta


ShieldedVirtualMachineAnswer: TypeAlias = InstancesKey | AnotherKey | NotAsked | NotSaidYet


class ShieldedInstances(Protocol):
    """What is asked of Compute Engine (:class:`attestors.clouds.google.ComputeEngine`)."""

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        """``instances.get``."""
        ...

    async def shielded_instance_identity(self, project: str, zone: str, instance_id: str) -> ShieldedInstanceIdentity:
        """``instances.getShieldedInstanceIdentity``."""
        ...


@dataclass(frozen=True, slots=True)
class _Said:
    """What Google said of the instance with a name, in answer to questions that were asked at ``asked``."""

    identity: ShieldedInstanceIdentity
    asked: float


class ShieldedVirtualMachines:
    """Compares endorsement keys with those that Google says the instance has.

    Args:
        compute: who is asked.
        projects: those whose instances may join; the operator's, never a policy's.
        clock: monotonic seconds, for the age of answers.
    """

    def __init__(
        self, compute: ShieldedInstances, projects: frozenset[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._compute = compute
        self._projects = projects
        self._clock = clock
        self._said: SingleFlightCache[GCEProviderID, _Said | NotSaidYet] = SingleFlightCache(
            lifetime_seconds=ANSWER_SECONDS, failure_seconds=FAILURE_SECONDS, clock=clock
        )

    async def ask(self, provider_id: str, key: PublicKey) -> ShieldedVirtualMachineAnswer:
        """Whether the instance with that name has this endorsement key.

        Raises:
            CloudUnavailable: Compute Engine cannot be asked now.
            CloudRefused: it does not let the controller ask.
        """
        try:
            instance = GCEProviderID.parse(provider_id)
        except InvalidGCEProviderID:
            return NotAsked("the provider ID is not one of Google Compute Engine")
        if instance.project not in self._projects:
            return NotAsked("the operator's settings do not allow that Google project")
        begun = self._clock()
        said = await self._said.get(instance, lambda: self._look(instance))
        if isinstance(said, NotSaidYet):
            return said
        shown = _subject_public_key_info(key)
        if any(bytes_eq(shown, known.subject_public_key_info) for known in said.identity.keys):
            return InstancesKey()
        if not any(_kind(key) == _kind_of_encoded(known.subject_public_key_info) for known in said.identity.keys):
            return NotSaidYet(
                f"Google names no endorsement key of that kind for {instance}: have the node use RSA-2048 or P-256",
                _PAUSE,
            )
        if said.asked < begun:
            # A machine made anew under this name a moment ago must not be refused for its predecessor's key.
            return NotSaidYet(f"Google named another endorsement key for {instance} a moment ago", _ANSWER_PAUSE)
        return AnotherKey(str(instance))

    async def _look(self, named: GCEProviderID) -> _Said | NotSaidYet:
        asked = self._clock()
        try:
            instance = await self._compute.instance_now(named.project, named.zone, named.name)
            if instance.name != named.name:
                return NotSaidYet(f"Google answers about another instance than {named}", _PAUSE)
            if not instance.running:
                return NotSaidYet(f"instance {named} is not running: {instance.status}", _PAUSE)
            identity = await self._compute.shielded_instance_identity(named.project, named.zone, instance.instance_id)
        except CloudObjectMissing:
            return NotSaidYet(f"Google knows no instance {named}, or it has just been replaced", _PAUSE)
        if not identity.keys:
            return NotSaidYet(f"instance {named} has no virtual TPM, as far as Google says", _PAUSE)
        return _Said(identity, asked)


def _subject_public_key_info(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _kind(key: PublicKey) -> str:
    return f"rsa{key.key_size}" if isinstance(key, rsa.RSAPublicKey) else key.curve.name


def _kind_of_encoded(subject_public_key_info: bytes) -> str:
    key = load_der_public_key(subject_public_key_info)
    # The answers hold RSA and P-256 keys only; another one is of no kind that anybody shows.
    return _kind(key) if isinstance(key, PublicKey) else ""
