"""The plugin contract: the protocols that an attestor implements, and the outcomes that it may return.

An attestor says *which machine* the evidence proves. The core derives the Machine object, the node name and the
certificate from that outcome, so an attestor cannot get them wrong (this moves the Cluster API proposal's
``MachineName`` into the core). The proposal's ``VerifyClientAttestationData`` and ``VerifyServingAttestationData`` are
:meth:`ServerPlugin.verify_client` and :meth:`ServerPlugin.verify_serving`.

A success is a :class:`VerifiedIdentity`. It needs a :class:`~attestors.wire.binding.ProvenBinding`, so no attestor can
skip the comparison of the binding.
Only an attestor that declares itself :attr:`Security.INSECURE` may return :class:`AssertedIdentity`.
"""

from __future__ import annotations

from attestors.contract.cloud_calls import (
    CloudCall,
    CloudCallObserver,
    CloudCallOutcome,
    cloud_called,
    observing_cloud_calls,
)
from attestors.contract.explanations import ExplainsReasons, ReasonExplanation
from attestors.contract.facts import (
    ClaimedMachine,
    Document,
    DocumentKind,
    Host,
    MachineMatch,
    MachineRole,
    ManagementCluster,
    NoClaimedMachine,
    NodeCredential,
    NoManagementCluster,
    NoRecordedIdentity,
    NotThere,
    OtherToken,
    RecordedIdentity,
    RequesterCredential,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from attestors.contract.operator_settings import ChecksOperatorSettings, SettingsFinding
from attestors.contract.outcome import (
    AssertedIdentity,
    ChallengeIssued,
    Denied,
    InvalidOutcome,
    IPAddress,
    NotProvableYet,
    Outcome,
    Plausible,
    PreFiltered,
    VerifiedIdentity,
)
from attestors.contract.plugins import (
    INSECURE_PROVIDER,
    AgentPlugin,
    AttestationRequest,
    Attestor,
    AttestorDescription,
    EvidenceUnavailable,
    Freshness,
    GatherRequest,
    Security,
    ServerPlugin,
)
from attestors.contract.recorded_calls import (
    UNRECORDED,
    AnswerForm,
    AnswerNotRecorded,
    Auditable,
    JSONValue,
    RecordedCalls,
    Unrecorded,
    digest_of,
)
from attestors.contract.settings import (
    AttestorSettings,
    InvalidSettings,
    NoChallengeKeys,
    no_challenge_keys,
)
from attestors.contract.shown_keys import ShownKey, ShowsKeys
from attestors.contract.standing import AttestedBefore, DeniesIdentities, Standing, StillAllowed
from attestors.contract.termination import (
    FormerInstance,
    InstanceExists,
    InstanceGone,
    InstanceTerminationProver,
    Termination,
    TerminationNotProvable,
)

__all__ = [
    "INSECURE_PROVIDER",
    "UNRECORDED",
    "AnswerForm",
    "AnswerNotRecorded",
    "AssertedIdentity",
    "AttestationRequest",
    "AttestedBefore",
    "Attestor",
    "AttestorDescription",
    "AttestorSettings",
    "Auditable",
    "ChallengeIssued",
    "ChecksOperatorSettings",
    "ClaimedMachine",
    "CloudCall",
    "CloudCallObserver",
    "CloudCallOutcome",
    "RecordedCalls",
    "ServerPlugin",
    "SettingsFinding",
    "Denied",
    "DeniesIdentities",
    "Document",
    "DocumentKind",
    "EvidenceUnavailable",
    "FormerInstance",
    "Freshness",
    "GatherRequest",
    "Host",
    "IPAddress",
    "ExplainsReasons",
    "InstanceExists",
    "InstanceGone",
    "InstanceTerminationProver",
    "InvalidOutcome",
    "InvalidSettings",
    "JSONValue",
    "MachineMatch",
    "MachineRole",
    "ManagementCluster",
    "NoChallengeKeys",
    "NoClaimedMachine",
    "NoManagementCluster",
    "NoRecordedIdentity",
    "NodeCredential",
    "AgentPlugin",
    "ShownKey",
    "ShowsKeys",
    "NotProvableYet",
    "NotThere",
    "OtherToken",
    "Outcome",
    "Plausible",
    "ReasonExplanation",
    "RecordedIdentity",
    "RequesterCredential",
    "PreFiltered",
    "Security",
    "Standing",
    "StillAllowed",
    "Termination",
    "TerminationNotProvable",
    "TokenNotTraceableNow",
    "TokenOfMachine",
    "Unrecorded",
    "VerifiedIdentity",
    "cloud_called",
    "digest_of",
    "no_challenge_keys",
    "observing_cloud_calls",
]
