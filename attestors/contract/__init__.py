"""The plugin contract: what an attestor implements, and the outcomes it may return.

An attestor says *which machine* the evidence proves. It does not choose the Machine object, the node name or the
certificate: the core does that from the outcome, so no attestor can forget it (the Cluster API proposal's
``MachineName``, moved). The proposal's ``VerifyClientAttestationData`` and ``VerifyServingAttestationData`` are
:meth:`ServerPlugin.verify_client` and :meth:`ServerPlugin.verify_serving`.

A success is a :class:`VerifiedIdentity`, which needs a :class:`~attestors.wire.binding.ProvenBinding`: no attestor can
skip the comparison.
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
    AgentPlugin,
    AttestationRequest,
    Attestor,
    AttestorDescription,
    EvidenceUnavailable,
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

__all__ = [
    "UNRECORDED",
    "AnswerForm",
    "AnswerNotRecorded",
    "AssertedIdentity",
    "AttestationRequest",
    "Attestor",
    "AttestorDescription",
    "AttestorSettings",
    "Auditable",
    "ChallengeIssued",
    "ClaimedMachine",
    "CloudCall",
    "CloudCallObserver",
    "CloudCallOutcome",
    "RecordedCalls",
    "ServerPlugin",
    "Denied",
    "Document",
    "DocumentKind",
    "EvidenceUnavailable",
    "GatherRequest",
    "IPAddress",
    "ExplainsReasons",
    "InvalidOutcome",
    "InvalidSettings",
    "JSONValue",
    "MachineRole",
    "ManagementCluster",
    "NoChallengeKeys",
    "NoClaimedMachine",
    "NoManagementCluster",
    "NoRecordedIdentity",
    "NodeCredential",
    "AgentPlugin",
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
    "TokenNotTraceableNow",
    "TokenOfMachine",
    "Unrecorded",
    "VerifiedIdentity",
    "cloud_called",
    "digest_of",
    "no_challenge_keys",
    "observing_cloud_calls",
]
