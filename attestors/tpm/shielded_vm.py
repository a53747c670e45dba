"""Compares an endorsement key with the one that Google reports for a Shielded VM.

Google created the virtual TPM of each instance and knows its endorsement keys. The checks, in this order:

1. the provider ID is one of Compute Engine, in a project that the operator allows
2. the instance that has this name now is running, and has a numeric ID
3. Google returns the endorsement keys of the instance with that ID: if another instance took the name, there is none
4. the presented key equals the one of its kind
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
class KeyMatchesInstance:
    """The key is one of the instance's own virtual TPM."""


@dataclass(frozen=True, slots=True)
class KeyDiffersFromInstance:
    """The instance's virtual TPM has another key of that kind."""

    instance: str
    """Its provider ID."""


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """Google is not asked: the machine is not in Compute Engine, or not in a project that the operator allows."""

    message: str


@dataclass(frozen=True, slots=True)
class NotAnsweredYet:
    """The instance is Google's, and Google does not report its key now. No other source may answer instead."""

    message: str
    retry_after: timedelta


ShieldedVirtualMachineAnswer: TypeAlias = KeyMatchesInstance | KeyDiffersFromInstance | NotApplicable | NotAnsweredYet


class ShieldedInstances(Protocol):
    """The required calls of Compute Engine (:class:`attestors.clouds.google.ComputeEngine`)."""

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        """``instances.get``."""
        ...

    async def shielded_instance_identity(self, project: str, zone: str, instance_id: str) -> ShieldedInstanceIdentity:
        """``instances.getShieldedInstanceIdentity``."""
        ...


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Google's answer for the instance with a name; its calls began at ``asked``."""

    identity: ShieldedInstanceIdentity
    asked: float


class ShieldedVirtualMachines:
    """Compares endorsement keys with those that Google reports for an instance.

    Args:
        compute: the Compute Engine API.
        projects: projects whose instances may join; from the operator, never from a policy.
        clock: monotonic seconds, for the age of answers.
    """

    def __init__(
        self, compute: ShieldedInstances, projects: frozenset[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._compute = compute
        self._projects = projects
        self._clock = clock
        self._answers: SingleFlightCache[GCEProviderID, _Fetched | NotAnsweredYet] = SingleFlightCache(
            lifetime_seconds=ANSWER_SECONDS, failure_seconds=FAILURE_SECONDS, clock=clock
        )

    async def ask(self, provider_id: str, key: PublicKey) -> ShieldedVirtualMachineAnswer:
        """Whether the instance with that name has this endorsement key.

        Raises:
            CloudUnavailable: Compute Engine is unavailable now.
            CloudRefused: Compute Engine rejects the controller's credentials or permissions.
        """
        try:
            instance = GCEProviderID.parse(provider_id)
        except InvalidGCEProviderID:
            return NotApplicable("the provider ID is not one of Google Compute Engine")
        if instance.project not in self._projects:
            return NotApplicable("the operator's settings do not allow that Google project")
        begun = self._clock()
        answer = await self._answers.get(instance, lambda: self._fetch(instance))
        if isinstance(answer, NotAnsweredYet):
            return answer
        shown = _subject_public_key_info(key)
        if any(bytes_eq(shown, known.subject_public_key_info) for known in answer.identity.keys):
            return KeyMatchesInstance()
        if not any(_kind(key) == _kind_of_encoded(known.subject_public_key_info) for known in answer.identity.keys):
            return NotAnsweredYet(
                f"Google names no endorsement key of that kind for {instance}: have the node use RSA-2048 or P-256",
                _PAUSE,
            )
        if answer.asked < begun:
            # The answer is older than the request: an instance recreated under this name has another key by now.
            return NotAnsweredYet(f"Google named another endorsement key for {instance} a moment ago", _ANSWER_PAUSE)
        return KeyDiffersFromInstance(str(instance))

    async def _fetch(self, named: GCEProviderID) -> _Fetched | NotAnsweredYet:
        asked = self._clock()
        try:
            instance = await self._compute.instance_now(named.project, named.zone, named.name)
            if instance.name != named.name:
                return NotAnsweredYet(f"Google answers about another instance than {named}", _PAUSE)
            if not instance.running:
                return NotAnsweredYet(f"instance {named} is not running: {instance.status}", _PAUSE)
            identity = await self._compute.shielded_instance_identity(named.project, named.zone, instance.instance_id)
        except CloudObjectMissing:
            return NotAnsweredYet(f"Google knows no instance {named}, or it has just been replaced", _PAUSE)
        if not identity.keys:
            return NotAnsweredYet(f"instance {named} has no virtual TPM, according to Google", _PAUSE)
        return _Fetched(identity, asked)


def _subject_public_key_info(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _kind(key: PublicKey) -> str:
    return f"rsa{key.key_size}" if isinstance(key, rsa.RSAPublicKey) else key.curve.name


def _kind_of_encoded(subject_public_key_info: bytes) -> str:
    key = load_der_public_key(subject_public_key_info)
    # The answers hold RSA and P-256 keys only; any other key matches no presented key.
    return _kind(key) if isinstance(key, PublicKey) else ""
