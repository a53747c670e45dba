"""A server plugin, one Machine with one chip, and what the cluster says of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from attestors.contract import (
    AttestationRequest,
    AttestorSettings,
    ChallengeIssued,
    ClaimedMachine,
    Denied,
    ManagementCluster,
    NoClaimedMachine,
    NodeCredential,
    NoManagementCluster,
    Outcome,
    PreFiltered,
    RequesterCredential,
)
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.controller import TPMServerPlugin
from attestors.tpm.endorsement import load_endorsement_authorities
from attestors.tpm.selection import PCR
from attestors.tpm.settings import TPMSettings
from attestors.tpm.trust import Trust
from attestors.wire.binding import Binding
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, Purpose
from tests.unit.attestors.support import (
    NOW,
    PROVIDER_ID,
    attestation_request,
    binding_for,
    evidence_of,
)
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fake_tpm import (
    FakeTPM,
)


@dataclass(frozen=True, slots=True)
class FixedTrust:
    """Trust that no file changes."""

    trust: Trust = field(default_factory=Trust)

    def current(self) -> Trust:
        """Always the same."""
        return self.trust

    def last(self) -> Trust:
        """Always the same."""
        return self.trust


KEYS: Final = (b"n" * 32, b"p" * 32)
"""The newest challenge key, and the one before it."""
CHIP: Final = FakeTPM.new().certified()
OTHER: Final = FakeTPM.new(2).certified()
BINDING: Final = binding_for(provider="tpm")
PCR_7: Final = PCR(HashAlgorithm.SHA256, 7)
ANY_KEYS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "allowUncertifiedEndorsementKeys": True,
        "endorsementKeyTemplates": [template.name for template in ENDORSEMENT_TEMPLATES],
    }
)
"""The operator's settings that accept each endorsement key that a source names."""
NO_SETTINGS: Final = TPMSettings.parse(AttestorSettings(ANY_KEYS))
"""No setting that narrows."""
MAKER: Final = load_endorsement_authorities(roots=[root()], intermediates=[intermediate()])
AUTHORITIES: Final = replace(NO_SETTINGS, trust=FixedTrust(Trust(MAKER)))


class NobodyMayAsk(AssertionError):
    """The challenge keys were asked for too early."""


def no_keys() -> tuple[bytes, ...]:
    raise NobodyMayAsk


def machine_of(said: str, name: str = "worker-1") -> ClaimedMachine:
    return ClaimedMachine(name, MappingProxyType({ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said}))


WORKER: Final = machine_of(CHIP.fingerprint)


@dataclass(frozen=True)
class PluginHarness:
    """A server plugin, and one Machine."""

    settings: TPMSettings = NO_SETTINGS
    machine: ClaimedMachine | NoClaimedMachine = WORKER
    keys: Callable[[], tuple[bytes, ...]] = lambda: KEYS
    now: datetime = NOW
    purpose: Purpose = Purpose.CLIENT
    cluster: ManagementCluster = field(default_factory=NoManagementCluster)
    credential: RequesterCredential = field(default_factory=NodeCredential)
    provider_id: str = PROVIDER_ID
    cluster_uid: str = "0f0c2b1e-1111-4c0a-9b46-0f6a3f0f7a22"

    @property
    def plugin(self) -> TPMServerPlugin:
        return TPMServerPlugin(self.settings, self.keys)

    def but(self, **changes: Any) -> PluginHarness:
        return replace(self, **changes)

    def request(
        self, fields: Mapping[str, str], binding: Binding = BINDING, csr_uid: str = "first"
    ) -> AttestationRequest:
        made = attestation_request(evidence_of(fields), binding=binding, provider_id=self.provider_id)
        return replace(
            made,
            now=self.now,
            csr_uid=csr_uid,
            cluster_uid=self.cluster_uid,
            machine=self.machine,
            credential=self.credential,
            management=self.cluster,
        )

    def ask(self, fields: Mapping[str, str], binding: Binding = BINDING, csr_uid: str = "first") -> Outcome:
        request = self.request(fields, binding, csr_uid)
        asked = self.plugin.verify_client if self.purpose is Purpose.CLIENT else self.plugin.verify_serving
        return at_once(asked(request))

    def pre_filter(self, fields: Mapping[str, str], binding: Binding = BINDING) -> PreFiltered:
        return self.but(keys=no_keys).plugin.pre_filter(self.request(fields, binding))

    def challenge(self, chip: FakeTPM = CHIP, binding: Binding = BINDING, csr_uid: str = "first") -> str:
        outcome = self.ask(chip.first(), binding, csr_uid)
        assert isinstance(outcome, ChallengeIssued), outcome
        return outcome.challenge

    def denial(self, fields: Mapping[str, str], binding: Binding = BINDING) -> tuple[str, str]:
        outcome = self.ask(fields, binding, "second")
        assert isinstance(outcome, Denied), outcome
        return outcome.reason, outcome.message


def at_once(judging: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Nothing here waits for anybody."""
    try:
        judging.send(None)
    except StopIteration as done:
        outcome: Outcome = done.value
        return outcome
    raise AssertionError("it waits")


DESK: Final = PluginHarness()
CERTIFIED: Final = DESK.but(settings=AUTHORITIES)
