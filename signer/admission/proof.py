"""Proves by dry run that the API server applies a policy.

A stored policy proves nothing: each API server reads it seconds later, and an expression that fails to compile refuses
everything. So the proof has two requests that store nothing: the policy must refuse the one and pass the other. The
proof speaks for the API server that answered, at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.admission.discovery import NotServed, served_admission
from signer.admission.policy import AdmissionPolicy, DryRunVerb, Proof
from signer.kube.calls import DryRun, GetDryRun
from signer.kube.errors import ApiError, Forbidden, Invalid

_DRY_RUN: Final = {"dryRun": "All"}
_TRUNCATED: Final = "…"
"""Last character of a message that the client shortened."""


@dataclass(frozen=True, slots=True)
class Proven:
    """The policy refused the one request, and the other passed."""


@dataclass(frozen=True, slots=True)
class NotProven:
    """The API server does not apply the policy, not yet, or not only this one; the message says what it answered."""

    message: str


async def prove(policy: AdmissionPolicy, proof: Proof, path: str, client: GetDryRun) -> Proven | NotProven | NotServed:
    """Send both dry runs to ``path``: of a collection to create in, or of an object to patch.

    Raises:
        ValueError: the proof's message is none of the policy's.
    """
    if proof.message not in policy.messages:
        raise ValueError("the proof expects a message that the policy does not have")
    try:
        served = await served_admission(client)
        if isinstance(served, NotServed):
            return served
    except ApiError as error:
        return NotProven(f"the API server does not say whether it serves admission policies: {error}")
    try:
        await _send(proof.verb, path, proof.refused, client)
    except (Forbidden, Invalid) as error:
        if not _is_refusal(error.message, policy.name, proof.message):
            return NotProven(f"something else refused what admission policy {policy.name} should refuse: {error}")
    except ApiError as error:
        return NotProven(f"the request that admission policy {policy.name} should refuse failed: {error}")
    else:
        return NotProven(f"admission policy {policy.name} did not refuse what it should refuse")
    try:
        await _send(proof.verb, path, proof.accepted, client)
    except ApiError as error:
        return NotProven(f"the request that admission policy {policy.name} should pass failed: {error}")
    return Proven()


async def _send(verb: DryRunVerb, path: str, body: Mapping[str, Any], client: DryRun) -> None:
    match verb:
        case DryRunVerb.CREATE:
            await client.create(path, dict(body), _DRY_RUN)
        case DryRunVerb.PATCH:
            await client.patch(path, dict(body), params=_DRY_RUN)


def _is_refusal(text: str, name: str, message: str) -> bool:
    """Whether ``text`` says that the policy ``name`` refused the request with ``message``, as far as it goes.

    apiserver ``pkg/admission/plugin/policy/validating/dispatcher.go`` words it.
    """
    said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: "
    _, found, after = text.partition(said)
    if not found:
        return False
    return after == message or (after.endswith(_TRUNCATED) and message.startswith(after.removesuffix(_TRUNCATED)))
