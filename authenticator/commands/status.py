"""``status``: the stored certificates, their validity, and the next step. Changes nothing and makes no call."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509

from attestors.standard_output import standard_output
from attestors.wire.names import Purpose
from attestors.wire.statement import PinnedController
from authenticator.commands.arguments import add_common, configuration_of, report
from authenticator.commands.ssh_status import SSHStatus
from authenticator.configuration import Configuration
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation
from authenticator.flow.mismatches import stored_mismatches
from authenticator.flow.other_ways_in import read_node
from authenticator.model.answer import printable
from authenticator.model.attempt import Attempt, Step, times
from authenticator.model.certificate import is_of_node
from authenticator.model.chain import issuer_of, name_of
from authenticator.model.failures import ExitCode, InvalidConfiguration, NoEvidence
from authenticator.model.mismatch import Mismatch
from authenticator.model.other_ways_in import other_ways_in
from authenticator.model.pair import Pair
from authenticator.model.plan import Expired, Join, KeepStill, Next, Nothing, Renew, Use, clock_behind, next_step
from authenticator.model.renewal_state import RenewalState
from authenticator.model.trust_state import Direction, Pin, TrustState, pair_digest
from authenticator.model.unix_time import time_text
from authenticator.store.store import Store

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands

_GREEN: Final = "32"
_YELLOW: Final = "33"
_RED: Final = "31"
_DAY: Final = 86400
NODE: Final = Path("/")
"""Where this node's files are; tests have another."""
_MAXIMUM_NAME_CHARACTERS: Final = 1024
"""Longer names are truncated, and control characters removed: an API server wrote them, and root reads them."""


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "status",
        help="show the stored certificates, their validity, and the next step",
        description="Shows what is stored. Exit code 0 with a valid client certificate, 8 without; 2 if the "
        "attestor cannot be loaded, because nothing is renewed then; 12 if the certificate is for another node name, "
        "provider ID, signer or cluster than is configured.",
    )
    add_common(command)
    command.add_argument("--output", choices=("text", "json"), default="text", help="(default: %(default)s)")
    command.set_defaults(command=run)


@dataclass(frozen=True, slots=True)
class StoredCertificate:
    """One certificate as ``status`` shows it."""

    file: str
    subject: str
    issuer: str
    serial_number: str
    not_before: int
    not_after: int
    names: tuple[str, ...]

    def left(self, now: int) -> int:
        """Remaining seconds."""
        return self.not_after - now


def run(options: argparse.Namespace) -> ExitCode:
    """Print the status.

    Raises:
        StoreUnusable: the store is unreadable, or writable by other users: then nothing is read from it.
    """
    configuration = configuration_of(options)
    store = Store(configuration.store)
    store.check_folder()
    now = Clock().now()
    client = store.pair(Purpose.CLIENT)
    certificates = {
        purpose: _stored(store, purpose, pair) for purpose in Purpose if (pair := store.pair(purpose)) is not None
    }
    attempts = {purpose: _open_attempt(store, purpose) for purpose in Purpose}
    renews, problem = _attestor(configuration)
    planned = next_step(
        client,
        store.bootstrap(),
        attempts[Purpose.CLIENT],
        renews=renews,
        now=now,
        asker=configuration.asker,
    )
    ssh = [] if configuration.ssh is None else [SSHStatus.of(configuration.ssh, store, now)]
    ways_in = other_ways_in(read_node(NODE)) if ssh else ()
    differing = stored_mismatches(configuration, store)
    for mismatch in differing:
        report(str(mismatch))
    if options.output == "json":
        document = _document(configuration, problem, store, certificates, attempts, planned, now)
        document["mismatches"] = [_mismatch_document(mismatch) for mismatch in differing]
        for found in ssh:
            document["ssh"] = found.document()
            document["otherWaysIn"] = list(ways_in)
        lines = [json.dumps(document, indent=2)]
    else:
        paint = _painter()
        shown = _lines(configuration, problem, store, certificates, attempts, planned, now)
        # Above the next step, which is the last line.
        shown[-1:-1] = [(line.text, _GREEN if line.is_good else _YELLOW) for found in ssh for line in found.lines()]
        shown[-1:-1] = [(f"other way in {one}", _YELLOW) for one in ways_in]
        shown[-1:-1] = [
            (f"mismatch     {one.property.value}: stored {one.stored}, configured {one.configured}", _RED)
            for one in differing
        ]
        lines = [paint(*line) if isinstance(line, tuple) else line for line in shown]
    with standard_output():
        print("\n".join(lines))
    if problem:
        return ExitCode.CONFIGURATION
    if client is None or now >= client.not_after:
        return ExitCode.NO_CREDENTIAL
    return ExitCode.MISMATCH if differing else ExitCode.DONE


def _mismatch_document(mismatch: Mismatch) -> dict[str, str]:
    return {
        "property": mismatch.property.value,
        "stored": mismatch.stored,
        "configured": mismatch.configured,
        "message": mismatch.advice,
    }


def _attestor(configuration: Configuration) -> tuple[bool, str]:
    """Whether the attestor renews, and why it cannot be loaded: the stored state is shown in any case."""
    try:
        return Attestation.of(configuration).description.renews, ""
    except (InvalidConfiguration, NoEvidence) as error:
        return True, str(error)


def _open_attempt(store: Store, purpose: Purpose) -> Attempt:
    """The attempt, without a request whose certificate is already stored: a crash prevented its removal."""
    attempt, pair = store.attempt(purpose), store.pair(purpose)
    if attempt.pending is not None and pair is not None and attempt.pending.key == pair.key:
        return Attempt(pause=attempt.pause)
    return attempt


def _stored(store: Store, purpose: Purpose, pair: Pair) -> StoredCertificate:
    certificate = x509.load_pem_x509_certificate(pair.certificate.encode("ascii"))
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = (
            *alternatives.get_values_for_type(x509.DNSName),
            *(str(address) for address in alternatives.get_values_for_type(x509.IPAddress)),
        )
    except x509.ExtensionNotFound:
        names = ()
    return StoredCertificate(
        file=str(store.pair_file(purpose)),
        subject=printable(name_of(certificate).rfc4514_string(), _MAXIMUM_NAME_CHARACTERS),
        issuer=printable(issuer_of(certificate).rfc4514_string(), _MAXIMUM_NAME_CHARACTERS),
        serial_number=f"{certificate.serial_number:x}",
        not_before=pair.not_before,
        not_after=pair.not_after,
        names=tuple(printable(name, _MAXIMUM_NAME_CHARACTERS) for name in names),
    )


def _describe_step(planned: Next, configuration: Configuration, now: int) -> str:
    if isinstance(planned, (Use, Renew)) and not is_of_node(planned.pair, configuration.node_name):
        end = planned.pair.not_after
        return f"expire at {time_text(end)}, in {_span(end - now)}: under another node name, it is not renewed"
    if isinstance(planned, Use):
        what = "renew" if planned.until < planned.pair.not_after else "expire"
        return f"{what} at {time_text(planned.until)}, in {_span(planned.until - now)}"
    if isinstance(planned, Renew):
        return "renew now: the kubelet's next call or the agent does it"
    if isinstance(planned, Join):
        return f"request the first certificate from {planned.bootstrap.cluster.server}"
    if isinstance(planned, KeepStill):
        return f"pause until {time_text(planned.pause.until)}, then retry"
    if os.path.exists(configuration.bootstrap_kubeconfig):
        return f"import {configuration.bootstrap_kubeconfig}, unless its token was used before"
    why = "the certificate expired" if isinstance(planned, Expired) else "there is no credential"
    return f"{why}: supply a new bootstrap kubeconfig as {configuration.bootstrap_kubeconfig}"


def _lines(
    configuration: Configuration,
    problem: str,
    store: Store,
    certificates: dict[Purpose, StoredCertificate],
    attempts: dict[Purpose, Attempt],
    planned: Next,
    now: int,
) -> list[str | tuple[str, str]]:
    lines: list[str | tuple[str, str]] = [
        f"node         {configuration.node_name}",
        f"attestor     {configuration.provider}",
        *([(f"unusable     {problem}", _RED)] if problem else []),
        f"store        {store.folder}",
    ]
    known = store.known_cluster()
    if known is not None:
        lines.append(f"cluster      {known.cluster.server}")
    for purpose in Purpose:
        certificate = certificates.get(purpose)
        if certificate is None:
            if purpose is Purpose.CLIENT:
                lines.append(("client       no certificate", _RED))
            continue
        lines += [
            _lifetime(purpose, certificate, now),
            f"             {certificate.subject}",
            f"             serial {certificate.serial_number}, issued by {certificate.issuer}",
        ]
        if certificate.names:
            lines.append(f"             for {', '.join(certificate.names)}")
    for purpose, attempt in attempts.items():
        if attempt.pending is not None:
            step = "answer to a challenge" if attempt.pending.step is Step.ANSWER else "request"
            lines.append((f"pending      {purpose.value} {step} {attempt.pending.name}", _YELLOW))
        if attempt.pause is not None:
            lines.append(
                (f"refused      {purpose.value}, {times(attempt.pause.failures)}: {attempt.pause.message}", _RED)
            )
    lines += _trust_lines(store.trust_state(), store.pin())
    lines += _renewal_lines(store.renewal_state(), store.pair(Purpose.CLIENT))
    if store.bootstrap() is not None:
        lines.append(("bootstrap    credential stored, until the first certificate replaces it", _YELLOW))
    lines.append(f"next         {_describe_step(planned, configuration, now)}")
    return lines


def _trust_lines(state: TrustState, pin: Pin) -> list[str | tuple[str, str]]:
    lines: list[str | tuple[str, str]] = []
    if state.sequence:
        lines.append(f"trust        statement {state.sequence} is in force")
    if state.change is not None:
        where = "restoring the former CAs" if state.change.direction is Direction.BACK else "restarting the kubelet"
        lines.append((f"trust        statement {state.change.sequence}: {where}", _YELLOW))
    if state.rejection is not None:
        found = state.rejection
        lines.append((f"trust        TrustRejected since {time_text(found.at)}: {found.reason}: {found.message}", _RED))
    if isinstance(pin, PinnedController):
        lines.append(f"controller   {len(pin.keys.keys)} pinned key{'s' if len(pin.keys.keys) > 1 else ''}")
    return lines


def _asked(state: RenewalState, pair: Pair | None) -> bool:
    """Whether the controller has asked for a renewal of the certificate that is still there."""
    return pair is not None and pair_digest(pair) == state.certificate


def _renewal_lines(state: RenewalState, pair: Pair | None) -> list[str | tuple[str, str]]:
    if not _asked(state, pair):
        return []
    text = f"renewal      asked for by statement {state.sequence}: the client certificate, at {time_text(state.due)}"
    return [(text, _YELLOW)]


def _renewal_document(state: RenewalState, pair: Pair | None) -> dict[str, Any] | None:
    return {"sequence": state.sequence, "due": time_text(state.due)} if _asked(state, pair) else None


def _trust_document(state: TrustState, pin: Pin) -> dict[str, Any]:
    rejection = state.rejection
    return {
        "sequence": state.sequence,
        "changing": state.change is not None,
        "rejected": None
        if rejection is None
        else {
            "condition": "TrustRejected",
            "reason": rejection.reason,
            "message": rejection.message,
            "sequence": rejection.sequence,
            "since": time_text(rejection.at),
            "times": rejection.failures,
            "notBefore": time_text(rejection.until),
        },
        "pinnedControllerKeys": sorted(pin.keys.by_hash()) if isinstance(pin, PinnedController) else [],
    }


def _lifetime(purpose: Purpose, certificate: StoredCertificate, now: int) -> tuple[str, str]:
    left = certificate.left(now)
    if left <= 0:
        return f"{purpose.value:<12} expired at {time_text(certificate.not_after)}, {_span(-left)} ago", _RED
    behind = clock_behind(certificate.not_before, now)
    if behind:
        return f"{purpose.value:<12} {behind}", _RED
    share = 100 * left // max(certificate.not_after - certificate.not_before, 1)
    until = time_text(certificate.not_after)
    text = f"{purpose.value:<12} valid until {until}, {_span(left)} ({share} % of its life) left"
    return text, _GREEN if share > 20 else _YELLOW


def _document(
    configuration: Configuration,
    problem: str,
    store: Store,
    certificates: dict[Purpose, StoredCertificate],
    attempts: dict[Purpose, Attempt],
    planned: Next,
    now: int,
) -> dict[str, Any]:
    known = store.known_cluster()
    return {
        "nodeName": configuration.node_name,
        "provider": configuration.provider,
        "providerProblem": problem,
        "store": str(store.folder),
        "server": known.cluster.server if known is not None else "",
        "certificates": {
            purpose.value: {
                "file": certificate.file,
                "subject": certificate.subject,
                "issuer": certificate.issuer,
                "serialNumber": certificate.serial_number,
                "notBefore": time_text(certificate.not_before),
                "notAfter": time_text(certificate.not_after),
                "secondsLeft": max(certificate.left(now), 0),
                "names": list(certificate.names),
            }
            for purpose, certificate in certificates.items()
        },
        "underWay": {
            purpose.value: {
                "name": attempt.pending.name,
                "step": attempt.pending.step.value,
                "evidenceVersion": attempt.pending.evidence_version,
                "sent": attempt.pending.sent.value,
            }
            for purpose, attempt in attempts.items()
            if attempt.pending is not None
        },
        "refused": {
            purpose.value: {
                "message": attempt.pause.message,
                "times": attempt.pause.failures,
                "notBefore": time_text(attempt.pause.until),
                "exitCode": int(attempt.pause.exit_code),
            }
            for purpose, attempt in attempts.items()
            if attempt.pause is not None
        },
        "trust": _trust_document(store.trust_state(), store.pin()),
        "clientRenewal": _renewal_document(store.renewal_state(), store.pair(Purpose.CLIENT)),
        "bootstrapCredential": store.bootstrap() is not None,
        "next": {"step": _NEXT_NAMES[type(planned)], "message": _describe_step(planned, configuration, now)},
    }


_NEXT_NAMES: Final[dict[type, str]] = {
    Use: "Use",
    Renew: "Renew",
    Join: "Join",
    KeepStill: "KeepStill",
    Expired: "Expired",
    Nothing: "Nothing",
}


def _painter() -> Any:
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return lambda text, colour: f"\033[{colour}m{text}\033[0m" if coloured else text


def _span(seconds: int) -> str:
    if seconds >= 2 * _DAY:
        return f"{seconds // _DAY} days"
    if seconds >= 7200:
        return f"{seconds // 3600} hours"
    return f"{seconds // 60} minutes" if seconds >= 120 else f"{seconds} s"
