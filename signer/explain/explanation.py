"""An explanation of a CSR: its current conditions, the result of each check, the decision and the next commands."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.contract import ExplainsReasons, ReasonExplanation
from attestors.registry import AttestorFailed, AttestorUnavailable, Registry, attestor_code
from attestors.wire.names import BuiltinSigner, SignerName, parse_signer_name
from signer.controller.requests.bounded_request import UnusableRequest, bounded
from signer.explain.annotated_key import AnnotatedKey, annotated_key
from signer.explain.builtin_client import PAGE, left_to_others
from signer.explain.current_conditions import (
    Answered,
    CurrentConditions,
    NotAnswered,
    as_posted,
    current_conditions_of,
)
from signer.explain.dry_run import Circumstances, DryRunResult, judge
from signer.explain.findings import Finding
from signer.explain.next_commands import Named, next_commands
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, MachineView
from signer.model.decision import (
    Approve,
    ApproveOnly,
    Challenge,
    Decision,
    Defer,
    Deny,
    Fail,
    Ignore,
    LeftAlone,
    Refused,
    printable,
)
from signer.model.documentation import page_url, reason_url
from signer.model.fields import mapping_of, text_of
from signer.model.host_keys import NOT_ASKED, HostCertificates
from signer.model.reasons import EXPLANATIONS, Reason
from signer.model.signing_request import BuiltinCSRHeader, Malformed, NotOurs, SigningRequest
from signer.rules.checks import APPROVED_BEFORE
from signer.rules.request import claimed_provider_id
from signer.store.controller_key import MISSING_KEY_REMEDY, SECRET_NAME

NOT_POSTED: Final = "not-posted"
"""Replaces the UID of a CSR that has none."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)]*)\)")
_OURS: Final[Mapping[str, ReasonExplanation]] = {str(reason): found for reason, found in EXPLANATIONS.items()}
_ATTESTORS_OWN: Final = ReasonExplanation(
    "The attestor has decided, by a reason of its own.",
    "The message names the problem; the attestor's documentation says more.",
)


class Verdict(enum.Enum):
    """What the controller would do with the request at that time."""

    APPROVE = "approve"
    CHALLENGE = "challenge"
    DENY = "deny"
    FAIL = "fail"
    """Another party approved the request, and the controller would not sign it."""
    WAIT = "wait"
    LEAVE_ALONE = "leave alone"
    """The policy leaves such requests alone."""
    NOT_OURS = "not ours"
    NOT_KNOWN = "not known"
    """The request's attestor is not installed here, so that it is not known what the controller decides."""


_NOT_DECIDED: Final = frozenset({Verdict.NOT_OURS, Verdict.NOT_KNOWN})


@dataclass(frozen=True, slots=True)
class Request:
    """The explained request, as the workload cluster claims it; all texts are printable."""

    name: str
    signer_name: str
    requester: str
    created: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that the command shows about one request."""

    cluster: ClusterKey
    request: Request
    at: datetime
    """The time as of which it was decided."""
    current: CurrentConditions
    """The conditions that it has already."""
    answered: Answered | NotAnswered
    """How it was decided, if it is; the verdict is then that on a new request with the same content."""
    findings: tuple[Finding, ...]
    verdict: Verdict
    reason: str
    message: str
    cause: str
    remedy: str
    documentation: str
    """Address of the page that says more, such as on the reason; empty if there is none."""
    retry_after: timedelta | None
    """When the controller retries a waiting request, unless an event comes first. None: by the queue's backoff."""
    host_certificates: HostCertificates
    """What the host keys of sshd in the request would get with the kubelet's certificate; they are not signed."""
    intended: tuple[str, ...]
    """What the controller would write to the management cluster while deciding."""
    commands: tuple[str, ...]
    notes: tuple[str, ...]


async def explain(
    manifest: Mapping[str, Any], key: ClusterKey, around: Circumstances, notes: tuple[str, ...] = ()
) -> tuple[Explanation, DryRunResult]:
    """Explain a CSR of the cluster ``key``, whether decided already or not.

    Raises:
        ApiError: the objects that decisions depend on cannot be listed.
    """
    at, current = around.now(), current_conditions_of(manifest)
    manifest = {**manifest, "metadata": {"uid": NOT_POSTED, **mapping_of(manifest, "metadata")}}
    settled = current.is_settled
    dry_run_result = await judge(as_posted(manifest) if settled else manifest, key, around)
    if not settled and isinstance(dry_run_result.decided_request.decision, Ignore) and current.conditions:
        settled = True  # the controller ignores every approved request to a built-in signer
        dry_run_result = await judge(as_posted(manifest), key, around)
    if settled:
        notes = (*notes, "The request is decided. The checks show what a request with the same content would get now.")
    if dry_run_result.makes_key:
        secret = f"Secret {around.configuration.namespace}/{SECRET_NAME}"
        notes = (*notes, f"{secret} does not exist, so no AttestedNode counts: {MISSING_KEY_REMEDY}.")
    answered = current.answered if settled else NotAnswered()
    return _explained(manifest, key, around, at, dry_run_result, current, answered, notes), dry_run_result


def _explained(
    manifest: Mapping[str, Any],
    key: ClusterKey,
    around: Circumstances,
    at: datetime,
    dry_run_result: DryRunResult,
    current: CurrentConditions,
    answered: Answered | NotAnswered,
    notes: tuple[str, ...],
) -> Explanation:
    parsed, decision = dry_run_result.decided_request.parsed, dry_run_result.decided_request.decision
    if isinstance(decision, Fail) and decision.reason == Reason.APPROVED_BY_OTHERS:
        dry_run_result.findings.refused_afterwards(APPROVED_BEFORE, decision.reason, decision.message)
    metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
    request = Request(
        *(printable(text) for text in (text_of(metadata, "name"), text_of(spec, "signerName"))),
        *(printable(text) for text in (text_of(spec, "username"), text_of(metadata, "creationTimestamp"))),
    )
    verdict, reason, message = _decided(decision, request.signer_name, around.registry.providers)
    is_builtin = not isinstance(parsed, NotOurs) and isinstance(parsed.header, BuiltinCSRHeader)
    signer = NotOurs() if isinstance(parsed, NotOurs) else parsed.header.signer
    provider = signer.provider if isinstance(signer, SignerName) else ""
    cause, remedy = _explanation_of(reason, verdict, provider, around.registry)
    unheeded = _unheeded(manifest, key, around, dry_run_result)
    documentation = reason_url(reason, provider) if reason else ""
    if isinstance(unheeded, Unheeded):
        verdict, reason, message, cause, remedy = Verdict.NOT_OURS, "", unheeded.message, "", unheeded.remedy
        documentation = unheeded.documentation
    named = Named(key, around.configuration.namespace, request.name, _claimed(dry_run_result, key))
    commands = () if verdict in _NOT_DECIDED else next_commands(reason, named)
    annotated = annotated_key(reason, message, key, named.machine)
    if isinstance(annotated, AnnotatedKey):
        notes, commands = (*notes, annotated.note), annotated.commands
    return Explanation(
        cluster=key,
        request=request,
        at=at,
        current=current,
        answered=answered,
        findings=() if verdict in _NOT_DECIDED else dry_run_result.findings.in_order(is_builtin),
        verdict=verdict,
        reason=reason,
        message=message,
        cause=cause,
        remedy=remedy,
        documentation=documentation,
        retry_after=decision.retry_after if isinstance(decision, Defer) else None,
        host_certificates=decision.host_certificates if isinstance(decision, Approve) else NOT_ASKED,
        intended=dry_run_result.intended,
        commands=commands,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class Heeded:
    """The controller would decide the request."""


@dataclass(frozen=True, slots=True)
class Unheeded:
    """The controller would not get to deciding the request; the message says why."""

    message: str
    remedy: str
    documentation: str = ""
    """Address of the page that says more, if there is one."""


def _unheeded(
    manifest: Mapping[str, Any], key: ClusterKey, around: Circumstances, dry_run_result: DryRunResult
) -> Heeded | Unheeded:
    """Whether anything other than a check keeps the request from being decided."""
    only, served = around.configuration.watch_namespace, around.configuration.watch_filter
    if only is not None and only != key.namespace:
        return Unheeded(
            f"Cluster {key} is not served: --namespace is {only}",
            "Use the --namespace of the controller that serves it, or omit the flag.",
        )
    cluster = dry_run_result.caches.clusters.get(key.namespace, key.name)
    if cluster is not None and not served.selects(cluster):
        return Unheeded(
            printable(f"Cluster {key} is not served: label {WATCH_FILTER_LABEL} is not {served.value}"),
            "Use the --watch-filter of the controller that serves it.",
        )
    try:
        bounded({"spec": {}, **as_posted(manifest)})
    except UnusableRequest as error:
        return Unheeded(
            printable(f"it is ignored: {error}"),
            "No API server stores such a request, or no node needs one this large.",
        )
    spec = mapping_of(manifest, "spec")
    if text_of(spec, "signerName") == BuiltinSigner.KUBELET_CLIENT.value:
        left = left_to_others(key, dry_run_result.caches, text_of(spec, "username"))
        return Unheeded(left.message, left.remedy, page_url(PAGE))
    return Heeded()


def _decided(decision: Decision, signer_name: str, providers: frozenset[str]) -> tuple[Verdict, str, str]:
    match decision:
        case Approve() | ApproveOnly():
            return Verdict.APPROVE, str(decision.reason), decision.message
        case Challenge():
            return Verdict.CHALLENGE, str(Reason.CHALLENGE_ISSUED), "the node has to answer a challenge"
        case Deny():
            return Verdict.DENY, printable(str(decision.reason)), decision.message
        case Fail():
            return Verdict.FAIL, printable(str(decision.reason)), decision.message
        case Defer():
            return Verdict.WAIT, printable(str(decision.reason)), decision.message
        case LeftAlone(instead_of):
            would = _decided(instead_of, signer_name, providers)
            return Verdict.LEAVE_ALONE, would[1], f"left alone by the policy; otherwise {would[0].value}: {would[2]}"
        case Ignore():
            if missing := _not_installed(signer_name, providers):
                message = f"signer {signer_name} is that of attestor {missing}, which is not installed here"
                return Verdict.NOT_KNOWN, "", message
            installed = ", ".join(sorted(providers))
            message = (
                f"signer {signer_name or '(none)'} is neither that of an installed attestor ({installed}) nor a "
                "built-in kubelet signer"
            )
            return Verdict.NOT_OURS, "", message


def _not_installed(signer_name: str, providers: frozenset[str]) -> str:
    """The attestor of a signer that is none of ``providers``; empty if the signer is no attestor's."""
    signer = parse_signer_name(signer_name)
    return signer.provider if isinstance(signer, SignerName) and signer.provider not in providers else ""


def _explanation_of(reason: str, verdict: Verdict, provider: str, registry: Registry) -> tuple[str, str]:
    if verdict is Verdict.NOT_OURS:
        return "", "Nothing to do: another signer decides it."
    if verdict is Verdict.NOT_KNOWN:
        return "", "Explain it where that attestor is installed, as in the controller's Pod."
    found = _explanations_of(provider, registry).get(reason, _ATTESTORS_OWN)
    return _plain(found.cause), _plain(found.remedy)


def _explanations_of(provider: str, registry: Registry) -> Mapping[str, ReasonExplanation]:
    """The attestor's explanations, if it has any, and the controller's. A fault in the attestor's is ignored."""
    try:
        with attestor_code(AttestorUnavailable):
            attestor = registry.load(provider)
            given: Mapping[str, object] = attestor.explanations() if isinstance(attestor, ExplainsReasons) else {}
            own = {reason: one for reason, one in given.items() if isinstance(one, ReasonExplanation)}
    except (AttestorUnavailable, AttestorFailed):
        return _OURS
    return {**own, **_OURS}


def _plain(markdown: str) -> str:
    """Markdown as plain text: without code marks, and with the targets of links in parentheses."""
    return _LINK.sub(r"\1 (docs/\2)", markdown).replace("`", "")


def _claimed(dry_run_result: DryRunResult, key: ClusterKey) -> MachineView | None:
    parsed = dry_run_result.decided_request.parsed
    if isinstance(parsed, Malformed) or not isinstance(parsed, SigningRequest):
        return None
    try:
        machines = dry_run_result.caches.matching(key, claimed_provider_id(parsed))
    except Refused:
        return None
    return machines[0] if len(machines) == 1 else None
