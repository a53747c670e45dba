"""Prints an explanation as a table or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from signer.cli.machine_output import machine_as_json
from signer.explain.current_conditions import Answer, Answered, NotAnswered
from signer.explain.explanation import Explanation, Verdict
from signer.explain.findings import Finding, Outcome
from signer.explain.no_request import NoRequest
from signer.model.fields import format_time
from signer.model.host_keys import HostCertificates, HostCertificatesIssued, HostCertificatesRefused, NotAsked

_HEAD_WIDTH: Final = len("Expected")
_MARKS: Final = {
    Outcome.PASSED: Text("✓", style="green"),
    Outcome.STOPPED: Text("✗", style="bold red"),
    Outcome.NOT_REACHED: Text("\N{EN DASH}", style="dim"),
}
_VERDICTS: Final = {
    Verdict.APPROVE: ("would be approved", "green"),
    Verdict.CHALLENGE: ("would be challenged; every check so far passed", "green"),
    Verdict.DENY: ("would be denied", "bold red"),
    Verdict.FAIL: ("would be marked as failed: another party approved it, and it would not be signed", "bold red"),
    Verdict.WAIT: ("waits", "yellow"),
    Verdict.LEAVE_ALONE: ("is left alone by the policy", "yellow"),
    Verdict.NOT_OURS: ("is not for this controller", "yellow"),
    Verdict.NOT_KNOWN: ("has an attestor that is not installed here", "yellow"),
}

_ANSWERS: Final = {
    Answer.APPROVED: ("was approved", "green"),
    Answer.CHALLENGED: ("was challenged", "green"),
    Answer.DENIED: ("was denied", "bold red"),
    Answer.FAILED: ("was marked as failed", "bold red"),
}
_DONE: Final = frozenset({Answer.APPROVED, Answer.CHALLENGED})


def as_json(explained: Explanation) -> dict[str, Any]:
    """The whole explanation as JSON. Fields are only ever added."""
    return {
        "cluster": str(explained.cluster),
        "request": {
            "name": explained.request.name,
            "signerName": explained.request.signer_name,
            "requester": explained.request.requester,
            "created": explained.request.created,
        },
        "decidedAt": format_time(explained.at),
        "standing": {
            "conditions": [
                {"type": one.type, "reason": one.reason, "message": one.message} for one in explained.current.conditions
            ],
            "certificate": explained.current.has_certificate,
        },
        "answered": _answered(explained.answered),
        "checks": [_finding(one) for one in explained.findings],
        "verdict": explained.verdict.value,
        "reason": explained.reason,
        "message": explained.message,
        "cause": explained.cause,
        "remedy": explained.remedy,
        "documentation": explained.documentation,
        "retryAfterSeconds": None if explained.retry_after is None else explained.retry_after.total_seconds(),
        "hostCertificates": _host_certificates(explained.host_certificates),
        "wouldWrite": list(explained.intended),
        "commands": list(explained.commands),
        "notes": list(explained.notes),
    }


def _answered(found: Answered | NotAnswered) -> dict[str, str] | None:
    """None if the request is not decided."""
    if isinstance(found, NotAnswered):
        return None
    return {"answer": found.answer.value, "reason": found.reason, "message": found.message}


def _host_certificates(found: HostCertificates) -> dict[str, Any] | None:
    """None if the request asks for none."""
    match found:
        case NotAsked():
            return None
        case HostCertificatesRefused(reason, message):
            return {"answer": "refused", "reason": reason.value, "message": message}
        case HostCertificatesIssued(recorded):
            return {
                "answer": "issued",
                "hostKeys": [one.fingerprint for one in recorded.host_keys],
                "principals": list(recorded.principals),
                "notAfter": format_time(recorded.not_after),
                "authority": recorded.authority,
            }


def _host_certificates_text(found: HostCertificates) -> str:
    match found:
        case NotAsked():
            return ""
        case HostCertificatesRefused(reason, message):
            return f"no host certificates ({reason.value}): {message}"
        case HostCertificatesIssued(recorded):
            keys = ", ".join(one.fingerprint for one in recorded.host_keys)
            return (
                f"host certificates for {keys}, with names {', '.join(recorded.principals)}, until "
                f"{format_time(recorded.not_after)}"
            )


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "number": one.number,
        "name": one.name,
        "says": one.says,
        "outcome": one.outcome.value,
        "found": one.comparison.found,
        "expected": one.comparison.expected,
        "reason": one.reason,
        "message": one.message,
    }


def show(explained: Explanation, console: Console, *, every_check: bool = False) -> None:
    """Print the explanation as text: the verdict and the check that stopped the request, then what else is known.

    ``every_check`` also prints the table of all checks and steps.
    """
    _show_headline(explained, console)
    stopped = [one for one in explained.findings if one.outcome is Outcome.STOPPED]
    for one in stopped:
        number = f" {one.number}" if one.number else ""
        _paragraph(console, "Check", Text.assemble(_MARKS[one.outcome], f"{number} {one.says}"))
        _paragraph(console, "Found", one.comparison.found)
        _paragraph(console, "Expected", one.comparison.expected)
    _paragraph(console, "What", explained.message)
    _show_remedy(explained, console)
    if explained.documentation:  # unwrapped, so that a terminal can open it
        console.print(Text.assemble(("See".ljust(_HEAD_WIDTH + 1), "bold"), explained.documentation), soft_wrap=True)
    if explained.retry_after is not None and isinstance(explained.answered, NotAnswered):
        _paragraph(
            console, "Retry", f"after {explained.retry_after}, or as soon as an object that it waits for changes"
        )
    _paragraph(console, "SSH", _host_certificates_text(explained.host_certificates))
    for written in explained.intended:
        _paragraph(console, "Would", written)
    for note in explained.notes:
        _paragraph(console, "Note", note)
    _show_request(explained, console)
    if explained.findings and every_check:
        console.print(_table(explained))
    elif explained.findings:
        console.print(Text(f"\n{_counted(explained.findings)}; --all lists them.", style="dim"))
    if explained.commands:
        console.print(Text("\nNext commands:"))
        for command in explained.commands:
            console.print(Text(f"  {command}"), soft_wrap=True)


def _show_headline(explained: Explanation, console: Console) -> None:
    """Print what the request is or was decided to be; of a decided one also what a dry run says now."""
    verdict, style = _VERDICTS[explained.verdict]
    says = f"{verdict}{_in_parentheses(explained.reason)}"
    answered, shown = explained.answered, says
    if isinstance(answered, Answered):
        text, style = _ANSWERS[answered.answer]
        shown = f"{text}{_in_parentheses(answered.reason)}"
    name = explained.request.name or "without a name"
    console.print(Text.assemble("CSR ", (name, "bold"), f" of Cluster {explained.cluster} ", (shown, style)))
    if isinstance(answered, Answered):
        _show_status(explained, console)
        _paragraph(console, "Now", f"a new request with the same content {says}")


def _in_parentheses(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _show_remedy(explained: Explanation, console: Console) -> None:
    """Print why, and what to do. For a request that was approved, nothing that a dry run says now is to be mended."""
    answered = explained.answered
    is_ours = explained.verdict not in (Verdict.NOT_OURS, Verdict.NOT_KNOWN)
    if is_ours and isinstance(answered, Answered) and answered.answer in _DONE:
        _paragraph(console, "Remedy", f"Nothing to do: this request {_ANSWERS[answered.answer][0]}.")
        return
    _paragraph(console, "Why", explained.cause)
    _paragraph(console, "Remedy", explained.remedy)


def _show_status(explained: Explanation, console: Console) -> None:
    """Print the current conditions."""
    for one in explained.current.conditions:
        _paragraph(console, "Status", f"{one.type} ({one.reason}): {one.message}")
    if explained.current.has_certificate:
        _paragraph(console, "Status", "The certificate has been issued.")


def _show_request(explained: Explanation, console: Console) -> None:
    """Print who requested what and when, and the current conditions of a request that is not decided."""
    request = explained.request
    signer, requester = request.signer_name or "no signer", request.requester or "an unknown user"
    console.print()
    _paragraph(console, "Signer", signer)
    _paragraph(console, "From", f"{requester}, {request.created or 'undated'}")
    _paragraph(console, "As of", format_time(explained.at))
    if isinstance(explained.answered, NotAnswered):
        _show_status(explained, console)


def _counted(findings: Sequence[Finding]) -> str:
    count = Counter(one.outcome for one in findings)
    rest = f", {count[Outcome.NOT_REACHED]} were not reached" if count[Outcome.NOT_REACHED] else ""
    return f"{count[Outcome.PASSED]} of {len(findings)} checks and steps passed{rest}"


def no_request_as_json(found: NoRequest) -> dict[str, Any]:
    """What is known of a Machine or node without a request, as JSON."""
    return {
        "cluster": str(found.cluster),
        "subject": found.subject,
        "request": None,
        "decidedAt": format_time(found.at),
        "message": " ".join(found.says),
        "machines": [machine_as_json(one) for one in found.machines],
        "commands": list(found.commands),
    }


def show_no_request(found: NoRequest, console: Console) -> None:
    """Print what is known of a Machine or node without a request."""
    for sentence in found.says:
        console.print(Text(sentence))
    console.print(Text("\nNext commands:"))
    for command in found.commands:
        console.print(Text(f"  {command}"), soft_wrap=True)


def _table(explained: Explanation) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right", style="dim")
    table.add_column("")
    table.add_column("Requirement", overflow="fold", ratio=3)
    table.add_column("Found", overflow="fold", ratio=4)
    table.add_column("Expected", overflow="fold", ratio=4)
    for one in explained.findings:
        style = {Outcome.STOPPED: "red", Outcome.NOT_REACHED: "dim"}.get(one.outcome, "")
        table.add_row(
            str(one.number or ""),
            _MARKS[one.outcome],
            Text(one.says, style=style),
            Text(one.comparison.found, style=style),
            Text(one.comparison.expected, style=style),
        )
    return table


def _paragraph(console: Console, head: str, text: str | Text) -> None:
    if text:
        grid = Table.grid(padding=(0, 1))
        grid.add_column(min_width=_HEAD_WIDTH, style="bold")
        grid.add_column(overflow="fold")
        grid.add_row(escape(head), text if isinstance(text, Text) else Text(text))
        console.print(grid)
