"""``node-attestation-controller audit``: verify audit logs, and show the decision behind one certificate."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attestors.registry import Registry
from attestors.wire.names import SignerName, parse_signer_name
from signer.audit.access_line import EndLine, IssuanceLine
from signer.audit.authenticity import Evidence
from signer.audit.comparison import Comparison, Differs, Reproduced, ReproducedInPart
from signer.audit.decision_inputs import NotReached
from signer.audit.decision_line import DecisionLine, NoEntry
from signer.audit.findings import Broken, MacsChecked, MacsNotChecked, NoHeads, Noticed, Place
from signer.audit.replay_attestors import ReplayAttestors
from signer.audit.verification import (
    Finding,
    ReplayedDecision,
    VerifiedAccess,
    access_lines,
    decisions,
    files_in_order,
    is_bad,
    verify,
)
from signer.cli.audit_evidence import read_evidence
from signer.cli.configuration import not_installed
from signer.cli.output import print_result
from signer.cli.plain_output import print_to_stderr
from signer.configuration import InvalidConfiguration, operator_settings, read_attestors
from signer.model.decision import printable
from signer.model.fields import format_time, text_of
from signer.model.requested_node import requested_node_names

EXIT_BAD: Final = 1
_SHOWN_ROWS: Final = 1000
_WORDS: Final[Mapping[type[Comparison], tuple[str, str]]] = {
    Reproduced: ("same", "green"),
    ReproducedInPart: ("same, in part", "yellow"),
    Differs: ("DIFFERS", "red"),
}


# verify


def run_verify(options: argparse.Namespace) -> int:
    """Run ``audit verify`` with its parsed arguments."""
    configured = read_attestors(options.config) if options.config is not None else {}
    for message in not_installed(configured):  # no error: the log may be that of another installation
        print_to_stderr(message)
    plugins = ReplayAttestors(Registry(), partial(operator_settings, configured))
    findings = _findings(options, plugins, read_evidence(options))
    print_result(options.output, lambda: findings_as_json(findings), lambda console: show_findings(findings, console))
    return EXIT_BAD if any(map(is_bad, findings)) else 0


def _findings(options: argparse.Namespace, plugins: ReplayAttestors, evidence: Evidence) -> list[Finding]:
    async def collect() -> list[Finding]:
        return [finding async for finding in verify(files_in_order(options.files), plugins, evidence)]

    try:
        return asyncio.run(collect())
    except OSError as error:
        raise InvalidConfiguration(f"{error.filename}: {error.strerror}") from error


def findings_as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as JSON."""
    return {
        "good": not any(map(is_bad, findings)),
        "decisions": [_judged_as_json(one) for one in findings if isinstance(one, ReplayedDecision)],
        "access": [
            {"file": one.place.file, "line": one.place.line, "cluster": one.cluster, "keyID": one.key_id}
            for one in findings
            if isinstance(one, VerifiedAccess)
        ],
        "broken": [_remark(one.place, one.why) for one in findings if isinstance(one, Broken)],
        "noticed": [_remark(one.place, one.what) for one in findings if isinstance(one, Noticed)],
        "macs": [_macs_as_json(one) for one in findings if isinstance(one, MacsChecked | MacsNotChecked)][-1],
    }


def _macs_as_json(one: MacsChecked | MacsNotChecked) -> dict[str, Any]:
    if isinstance(one, MacsNotChecked):
        return {"checked": False, "linesWithMAC": one.with_mac, "linesWithoutMAC": one.without_mac}
    checked = {"checked": True, "authenticLines": one.lines, "headsChecked": not isinstance(one.heads, NoHeads)}
    return checked if isinstance(one.heads, NoHeads) else {**checked, "publishedChains": one.heads}


def _judged_as_json(one: ReplayedDecision) -> dict[str, Any]:
    comparison = one.comparison
    result: dict[str, Any] = {
        "file": one.place.file,
        "line": one.place.line,
        "cluster": one.cluster,
        "csr": one.csr,
        "decision": one.decision,
        "reason": one.reason,
        "result": type(comparison).__name__,
    }
    if isinstance(comparison, ReproducedInPart):
        result["takenFromTheLog"] = list(comparison.taken)
    if isinstance(comparison, Differs):
        result["why"] = comparison.why
    return result


def _remark(place: Place, text: str) -> dict[str, Any]:
    return {"file": place.file, "line": place.line, "text": text}


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print a table of the decisions, then the faults in the order of the log."""
    judged = [one for one in findings if isinstance(one, ReplayedDecision)]
    if judged:
        console.print(_table_of(judged))
    if len(judged) > _SHOWN_ROWS:
        console.print(f"... and {len(judged) - _SHOWN_ROWS} more; --output json lists them all")
    taken = Counter(text for one in judged for text in _taken(one.comparison))
    if taken:
        console.print(Text("Taken from the log, not replayed:", style="yellow"))
        for text, count in taken.most_common():
            console.print(Text(f"  {count} x {printable(text)}"))
    for one in findings:
        if isinstance(one, Noticed):
            console.print(Text(f"note: {one.place}: {one.what}", style="yellow"))
    bad = [one for one in findings if isinstance(one, Broken | ReplayedDecision) and is_bad(one)]
    for one in bad:
        console.print(Text(f"{one.place}: {_why(one)}", style="red"))
    if bad:
        good = sum(not is_bad(one) for one in judged)
        text = f"FAILED: {len(bad)} found, listed above; {good} decisions replayed with the same result."
        console.print(Text(text, style="bold red"))
    else:
        in_part = sum(isinstance(one.comparison, ReproducedInPart) for one in judged)
        text = f"The chain is intact; {len(judged)} decisions replayed with the same result"
        console.print(Text(f"{text}, {in_part} of them in part." if in_part else f"{text}.", style="green"))
        access = sum(isinstance(one, VerifiedAccess) for one in findings)
        if access:
            console.print(Text(f"{access} lines of access grants are what they say.", style="green"))
    for one in findings:
        if isinstance(one, MacsChecked | MacsNotChecked):
            console.print(_macs(one))


def _macs(one: MacsChecked | MacsNotChecked) -> Text:
    if isinstance(one, MacsNotChecked):
        why = f"{one.without_mac} lines have none, and no controller key was given for {one.with_mac}"
        return Text(f"MACs were not checked: {why}. Only the chain was; see --management-cluster.", style="yellow")
    text = f"{one.lines} lines have a right MAC"
    if isinstance(one.heads, NoHeads):
        return Text(f"{text}. No published heads were given: a cut end would not be found.", style="yellow")
    reached = (
        "its chain reaches its published head" if one.heads == 1 else f"{one.heads} chains reach their published heads"
    )
    return Text(f"{text}; {reached}.", style="green")


def _taken(comparison: Comparison) -> Iterable[str]:
    return comparison.taken if isinstance(comparison, ReproducedInPart) else ()


def _why(finding: Finding) -> str:
    if isinstance(finding, ReplayedDecision):
        return (
            f"CSR {printable(finding.csr)}: {finding.comparison.why if isinstance(finding.comparison, Differs) else ''}"
        )
    return finding.why if isinstance(finding, Broken) else ""


def _table_of(judged: Sequence[ReplayedDecision]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("line", "cluster", "CSR", "decision", "reason", "replayed"):
        table.add_column(column, overflow="fold")
    for one in judged[:_SHOWN_ROWS]:
        word, style = _WORDS[type(one.comparison)]
        texts = (str(one.place), one.cluster, one.csr, one.decision, one.reason)
        table.add_row(*(Text(printable(text)) for text in texts), Text(word, style=style))
    return table


# show


def run_show(options: argparse.Namespace) -> int:
    """Run ``audit show`` with its parsed arguments."""
    if options.key_id is not None:
        return _show_access(options)
    found: list[tuple[Place, DecisionLine]] = []
    unreadable = 0
    try:
        for one in decisions(files_in_order(options.files)):
            if isinstance(one, Broken):
                unreadable += 1
            elif _is_selected(one[1], options):
                found.append(one)
    except OSError as error:
        raise InvalidConfiguration(f"{error.filename}: {error.strerror}") from error
    _tell_unreadable(unreadable)
    print_result(
        options.output,
        lambda: _with_places(found),
        lambda console: show_described(found, console),
    )
    return 0 if found else EXIT_BAD


def _with_places(
    found: Sequence[tuple[Place, DecisionLine]] | Sequence[tuple[Place, IssuanceLine | EndLine]],
) -> list[dict[str, Any]]:
    return [{"place": str(place), **json.loads(line.encode())} for place, line in found]


def _tell_unreadable(count: int) -> None:
    if count:
        print_to_stderr(f"Unreadable lines: {count}. `audit verify` lists them.")


def _show_access(options: argparse.Namespace) -> int:
    found: list[tuple[Place, IssuanceLine | EndLine]] = []
    unreadable = 0
    try:
        for one in access_lines(files_in_order(options.files)):
            if isinstance(one, Broken):
                unreadable += 1
            elif one[1].key_id == options.key_id:
                found.append(one)
    except OSError as error:
        raise InvalidConfiguration(f"{error.filename}: {error.strerror}") from error
    _tell_unreadable(unreadable)
    print_result(
        options.output,
        lambda: _with_places(found),
        lambda console: show_access(found, console),
    )
    return 0 if found else EXIT_BAD


def show_access(found: Sequence[tuple[Place, IssuanceLine | EndLine]], console: Console) -> None:
    """Print each issuance and end of a grant."""
    if not found:
        console.print("These files hold no certificate with that key id.")
    for place, line in found:
        _print_described(place, _described_access(line), console)


def _described_access(line: IssuanceLine | EndLine) -> Iterable[tuple[str, str]]:
    yield "time", line.time.isoformat()
    yield "cluster", line.cluster
    yield "key id", line.key_id
    if isinstance(line, EndLine):
        yield "ended", f"{line.cause}: {line.message}" if line.message else line.cause
        yield "serial numbers", ", ".join(map(str, line.serial_numbers))
        return
    yield "person", line.creator.username
    yield "groups", ", ".join(sorted(line.creator.groups))
    yield "reason", line.reason
    yield "ticket", line.ticket
    yield "approved by", ", ".join(one.username for one in line.approvals)
    yield "key", line.key_fingerprint
    yield "valid", f"{format_time(line.issued)} to {format_time(line.not_after)}"
    for one in line.certificates:
        sources = f" from {', '.join(map(str, one.source_addresses))}" if one.source_addresses else ""
        yield f"hop {one.hop.value}", f"serial {one.serial_number}, {', '.join(one.principals)}{sources}"
    if line.access.command:
        yield "forced command", line.access.command


def _is_selected(line: DecisionLine, options: argparse.Namespace) -> bool:
    entry = line.decision.entry
    if options.csr is not None:
        return bool(line.request.name == options.csr)
    if options.node is not None:
        return concerns_node(line, options.node)
    return not isinstance(entry, NoEntry) and bool(entry.serial_number == options.serial)


def concerns_node(line: DecisionLine, node: str) -> bool:
    """Whether the decision is about a node: of its certificate, of a request in its name, or of its Machine.

    A Machine without a Node goes by its own name, which most nodes have.
    """
    matched = line.decision_inputs.matched
    of_machines = () if isinstance(matched, NotReached) else (one.node_ref or one.name for one in matched)
    return node in (line.decision.node_name, *of_machines, *_requested_nodes(line))


def _requested_nodes(line: DecisionLine) -> frozenset[str]:
    """The nodes in whose name the request speaks."""
    signer = parse_signer_name(text_of(line.request.spec, "signerName"))
    # Offline, where the attestor need not be installed.
    providers = frozenset({signer.provider} if isinstance(signer, SignerName) else ())
    oids = tuple(filter(None, line.request.provider_id_oid.split(",")))
    return requested_node_names(line.request.manifest(), providers, oids)


def show_described(found: Sequence[tuple[Place, DecisionLine]], console: Console) -> None:
    """Print each decision with the facts behind it."""
    if not found:
        console.print("These files hold no such decision.")
    for place, line in found:
        _print_described(place, _described(place, line), console)


def _print_described(place: Place, described: Iterable[tuple[str, str]], console: Console) -> None:
    table = Table(title=Text(str(place)), title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in described:
        table.add_row(name, Text(printable(value)))
    console.print(table)


def _described(place: Place, line: DecisionLine) -> Iterable[tuple[str, str]]:
    """Names and values of one decision, in the order in which the controller established them."""
    request, decision_inputs, decision = line.request, line.decision_inputs, line.decision
    yield "place", str(place)
    yield "time", line.time.isoformat()
    yield "cluster", line.cluster
    yield "request", f"{request.name} ({request.uid})"
    yield "requester", str(request.spec.get("username", ""))
    yield "signer", str(request.spec.get("signerName", ""))
    yield "asks for node", ", ".join(sorted(_requested_nodes(line)))
    if not isinstance(decision_inputs.snapshot, NotReached):
        policy = decision_inputs.snapshot.policy
        yield "policy", f"{policy.cluster}, generation {policy.generation}, {policy.mode.value}"
    if not isinstance(decision_inputs.claim, NotReached):
        yield (
            "bootstrap token",
            " ".join((decision_inputs.claim.asks.kind, *map(str, decision_inputs.claim.asks.owners))),
        )
    if not isinstance(decision_inputs.answer, NotReached):
        answer = decision_inputs.answer.answer
        yield "attestor", f"{answer.kind} {answer.reason or answer.identity}".strip()
        for recorded_call in decision_inputs.answer.recorded_calls:
            answer_text = recorded_call.get("answer", f"failed: {recorded_call.get('failed')}")
            yield "recorded call", f"{recorded_call.get('question')}: {json.dumps(answer_text)[:200]}"
    if not isinstance(decision_inputs.matched, NotReached):
        yield "machine", ", ".join(map(str, decision_inputs.matched))
    yield "decision", f"{decision.kind} {decision.reason}"
    if decision.message:
        yield "message", decision.message
    if not isinstance(decision.entry, NoEntry):
        entry = decision.entry
        yield "node", decision.node_name
        yield "serial number", f"{entry.serial_number:x}"
        yield "valid", f"{format_time(entry.not_before)} to {format_time(entry.not_after)}"
        yield "certificate", f"sha256:{entry.certificate_digest}"
        yield "CA", entry.ca_cert_hash
