"""The parts of documents that are made from the source, between ``<!-- generated: … -->`` and ``<!-- end -->``.

What stands behind ``generated:`` is a section's name and its arguments; :data:`SECTIONS` has them all.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from attestors.contract import ExplainsReasons, ReasonExplanation
from attestors.registry import Registry
from attestors.wire.names import CERTIFICATE_REQUEST_LABEL, EVIDENCE_VERSION
from authenticator import commands as authenticator_commands
from authenticator.model.failures import EXPLANATIONS as EXIT_CODES
from authenticator.model.failures import ExitCode
from signer import cli
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.bastions.metrics import BastionMetrics
from signer.controller.telemetry.log_fields import LOG_FIELDS
from signer.controller.telemetry.metrics import DescribedMetric, Metrics
from signer.crds import custom_resource_definitions
from signer.gateway.metrics import GatewayMetrics
from signer.model.reasons import EXPLANATIONS, Reason
from signer.model.signing_request import SigningRequest, parse_signing_request
from signer.rotation.phases import SigningPairs
from signer.rules.checks import BUILTIN_PLAN, REQUEST_PLAN
from signer.rules.plan import Check, Plan
from tests.documents import (
    audit_example,
    explain_example,
    grant_calls,
    preflight_example,
    providers,
    rotation,
    rotation_example,
)
from tests.documents.attestor_checks import CHECKS, link_of, result_of
from tests.documents.attestor_reasons import CONVERTED, FOLDERS, WAITS, reasons_of
from tests.documents.markdown import ROOT
from tests.documents.performance import figures, measured
from tests.documents.reason_table import PLACES, retry
from tests.support.helm import CHART
from tests.support.yaml_documents import safe_load

_MARKED: Final = re.compile(
    r"(?P<begin><!-- generated: (?P<arguments>[^\n]+?) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
_LANGUAGES: Final = {".py": "python", ".toml": "toml", ".yaml": "yaml"}
_CONTEXT: Final = b"node-attestation binding v1"


class UnknownSection(ValueError):
    """A document asks for a part that nobody makes."""


def render(document: str) -> str:
    """The document's text with its generated parts as they should be.

    Raises:
        UnknownSection: for a part of another name.
    """
    return _MARKED.sub(lambda match: match["begin"] + _section(match["arguments"]) + match["end"], document)


def _section(arguments: str) -> str:
    name, *rest = arguments.split()
    if name not in SECTIONS:
        raise UnknownSection(f"no generated section is called {name}")
    return "\n" + SECTIONS[name](*rest).rstrip("\n") + "\n\n"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def reasons() -> str:
    """A heading for every reason of the core, to which Events link."""
    return "\n\n".join(
        _reason(
            reason,
            PLACES[reason].result,
            EXPLANATIONS[reason],
            whose=PLACES[reason].whose,
        )
        for reason in Reason
    )


def _reason(reason: str, result: str, explained: ReasonExplanation, *, by: Sequence[str] = (), whose: str = "") -> str:
    first = f"Result: {result}"
    if by:
        first += ", by " + ", ".join(f"`{name}`" for name in by)
    if whose:
        first += f". Look first at {whose}"
    return "\n".join(
        (
            f"### {reason}",
            "",
            f"{first}.",
            "",
            f"- **Meaning:** {explained.cause}",
            f"- **What to do:** {explained.remedy}",
            f"- **Retry:** {retry(reason, result)}",
        )
    )


def attestor_reasons() -> str:
    """A heading for every reason of the attestors that come with the project, and that the core does not have."""
    registry = Registry()
    own = {name: reasons_of(name) for name in FOLDERS}
    parts = []
    for reason in sorted({reason for made in own.values() for reason in made} - set(Reason)):
        makers = [name for name in FOLDERS if reason in own[name] and reason not in CONVERTED.get(name, ())]
        by_result = _by_result(reason, makers, own)
        if len(by_result) != 1:
            raise ValueError(f"{reason} has another result with each attestor, and one heading")
        [(result, names)] = by_result.items()
        parts.append(_reason(reason, result, _explanations(registry, names[0])[reason], by=names))
    return "\n\n".join(parts)


def _by_result(reason: str, names: Sequence[str], own: Mapping[str, Mapping[str, set[str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        (result,) = own[name][reason]
        found.setdefault(result, []).append(name)
    return found


def _explanations(registry: Registry, provider: str) -> Mapping[str, ReasonExplanation]:
    attestor = registry.load(provider)
    assert isinstance(attestor, ExplainsReasons)
    return {**{str(reason): found for reason, found in EXPLANATIONS.items()}, **attestor.explanations()}


def checks() -> str:
    """Every check and step in the order in which they run, with the function that makes a check."""
    return _checks(REQUEST_PLAN)


def builtin_checks() -> str:
    """The same of a request to the built-in serving signer."""
    return _checks(BUILTIN_PLAN)


def attestor_checks(attestor: str) -> str:
    """The checks of an attestor that comes with the project, in their order."""
    rows = []
    for number, check in enumerate(CHECKS[attestor], start=1):
        otherwise = []
        for reason in check.reasons:
            result = result_of(attestor, reason)
            waits = " (waits)" if result == WAITS else ""
            otherwise.append(f"[`{reason}`](troubleshooting.md#{reason.lower()}){waits}")
        rows.append(
            (str(number), check.applies_to, check.says, link_of(check.functions[0]), ", ".join(otherwise)),
        )
    return _table(("", "applies to", "what must hold", "function", "otherwise"), rows)


def _checks(plan: Plan[Any]) -> str:
    rows = []
    for number, one in plan.numbered():
        if isinstance(one, Check):
            file = one.run.__module__.rpartition(".")[2]
            rows.append((str(number), one.says, f"[`{one.name}`](../signer/rules/{file}.py)"))
        else:
            rows.append(("", one.says, f"step `{one.name}`"))
    return _table(("", "what must hold", "function"), rows)


def flags(command: str, action: str = "") -> str:
    """The arguments of a command of ``node-attestation-controller``, or of one of its actions, from its parser."""
    parser = parser_of(command)
    return _flags_of(_command_of(parser, action) if action else parser)


def _flags_of(parser: argparse.ArgumentParser) -> str:
    rows: list[tuple[str, str]] = []
    for action in parser._actions:
        if action.dest == "help":
            continue
        if not action.option_strings:
            rows.append((f"`{action.metavar}`", action.help or ""))
            continue
        value = (
            "" if action.nargs == 0 else f" {action.metavar or '|'.join(action.choices or ()) or action.dest.upper()}"
        )
        meaning = (action.help or "").replace("%(default)s", str(action.default))
        rows.append((", ".join(f"`{flag}{value}`" for flag in action.option_strings), meaning))
    return _table(("flag", "meaning"), rows)


def node_flags(command: str) -> str:
    """The arguments of a command of ``kubelet-authenticator``, from its parser."""
    return _flags_of(_command_of(authenticator_commands.parser(), command))


def exit_codes() -> str:
    """Every exit code of ``kubelet-authenticator``, with its cause and cure."""
    rows = ((str(int(code)), EXIT_CODES[code].meaning, EXIT_CODES[code].remedy) for code in ExitCode)
    return _table(("exit code", "cause", "remedy"), rows)


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command of ``node-attestation-controller``."""
    return _command_of(cli._parser(), command)


def _command_of(program: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    for action in program._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser: argparse.ArgumentParser = action.choices[command]
            return parser
    raise UnknownSection("the command line has no subcommands")


def preflight() -> str:
    """What the program prints of a cluster that is not ready."""
    return f"```text\n{preflight_example.printed()}```\n"


def explanation(*words: str) -> str:
    """What ``explain`` prints of a recorded request; with ``all``, of ``explain --all``."""
    return f"```text\n{explain_example.explained(every_check='all' in words)}```\n"


def fleet() -> str:
    """What ``status`` prints of a small fleet."""
    return f"```text\n{explain_example.fleet()}```\n"


def machines() -> str:
    """What ``status CLUSTER`` prints."""
    return f"```text\n{explain_example.by_machine()}```\n"


def rotation_status() -> str:
    """What ``rotate status`` prints while API servers are replaced."""
    return f"```text\n{rotation_example.printed()}```\n"


def metrics() -> str:
    """Every metric by the name that Prometheus sees."""
    return _metrics(Metrics().described())


def bastion_metrics() -> str:
    """The same of the bastion controller."""
    return _metrics(BastionMetrics().described())


def gateway_metrics() -> str:
    """The same of the gateway."""
    return _metrics(GatewayMetrics().described())


def _metrics(described: Iterable[DescribedMetric]) -> str:
    rows = ((f"`{one.name}`", one.type, ", ".join(one.labels), one.documentation) for one in described)
    return _table(("metric", "type", "labels", "what it says"), rows)


def log_fields() -> str:
    """Every field of a log line."""
    return _table(("field", "what it says"), ((f"`{field}`", meaning) for field, meaning in LOG_FIELDS.items()))


def policy() -> str:
    """The fields of a NodeAttestationPolicy, from its CustomResourceDefinition."""
    definition = safe_load(custom_resource_definitions()[0])
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows: list[tuple[str, str, str]] = []
    _fields("spec", schema, rows)
    return _table(("field", "values (default)", "meaning"), rows)


def chart_values() -> str:
    """The values of the Helm chart, from its schema, with their defaults."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows: list[tuple[str, str, str]] = []
    _values("", schema, defaults, rows)
    return _table(("value", "default", "meaning"), rows)


def grant_calls_table() -> str:
    """Every rule of the roles in the management cluster, with the calls that need it."""
    return _table(("role", "resource", "verbs", "call"), grant_calls.rows())


def _values(above: str, schema: dict[str, Any], defaults: dict[str, Any], rows: list[tuple[str, str, str]]) -> None:
    for name, field in schema["properties"].items():
        if name not in defaults:
            continue
        if "properties" in field:
            _values(f"{above}{name}.", field, defaults[name], rows)
        else:
            rows.append((f"`{above}{name}`", f"`{json.dumps(defaults[name])}`", field["description"]))


def _fields(path: str, schema: dict[str, Any], rows: list[tuple[str, str, str]]) -> None:
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if field["type"] == "array":
            here, inner = f"{here}[]", field["items"]
        else:
            inner = field
        values = ", ".join(f"`{value}`" for value in field.get("enum", ())) or field["type"]
        default = field.get("default")
        shown = f" (`{default}`)" if isinstance(default, str) else ""
        rows.append((f"`{here}`", values + shown, field.get("description", "")))
        _fields(here, inner, rows)


def audit_verify(*words: str) -> str:
    """What ``audit verify`` prints of the recorded log; with ``without-config``, of the same without ``--config``."""
    return f"```text\n{audit_example.verified(with_config='without-config' not in words)}```\n"


def audit_show() -> str:
    """What ``audit show`` prints of its certificate."""
    return f"```text\n{audit_example.shown()}```\n"


def binding() -> str:
    """The worked example: the recorded client request, its five inputs, and what they hash to."""
    recording = json.loads((ROOT / "fixtures/requests/v1/client.json").read_text(encoding="utf-8"))
    stored = recording["certificateSigningRequest"]
    request = parse_signing_request(stored, frozenset({"keyed-mac"}))
    if not isinstance(request, SigningRequest):
        raise TypeError("the recorded request cannot be read")
    authority = parse_ca_certificate(ssl.PEM_cert_to_DER_cert(recording["clusterCACertificate"]))
    inputs = (
        ("context", _CONTEXT),
        ("evidence version", EVIDENCE_VERSION.encode()),
        ("cluster", authority.public_key_hash.encode()),
        ("signer name", stored["spec"]["signerName"].encode()),
        ("key (DER)", request.certificate_request.subject_public_key_info),
    )
    lines = []
    for name, content in inputs:
        shown = content.decode() if content.isascii() and content.decode().isprintable() else content.hex()
        lines.append(f"{name:17} {len(content).to_bytes(8, 'big').hex()}  {shown}")
    lines.append(f"{'SHA-256 of all':17} {recording['binding']}")
    return "```text\n" + "\n".join(lines) + "\n```\n"


def evidence_form() -> str:
    """The evidence of the recorded client request, and the labels of its blocks."""
    recording = json.loads((ROOT / "fixtures/requests/v1/client.json").read_text(encoding="utf-8"))
    text = base64.b64decode(recording["certificateSigningRequest"]["spec"]["request"]).decode("ascii")
    lines = text.splitlines()
    if lines[0] != f"-----BEGIN {CERTIFICATE_REQUEST_LABEL}-----":
        raise ValueError("the recorded request does not begin with a certificate request")
    evidence = "".join(line for line in lines[lines.index(lines[-1].replace("END", "BEGIN")) + 1 : -1])
    shown = json.loads(base64.b64decode(evidence))
    return f"```text\n{text}```\n\n```json\n{json.dumps(shown, indent=2)}\n```\n"


def quote(path: str, shown: str) -> str:
    """A file of the project as it stands, under the name that a reader gives it."""
    file = ROOT / path
    return f"`{shown}`:\n\n```{_LANGUAGES[file.suffix]}\n{file.read_text(encoding='utf-8').rstrip()}\n```\n"


def infrastructure_worlds() -> str:
    """The worlds of the infrastructure providers in the tests."""
    return _table(providers.INFRASTRUCTURE_HEADING, providers.infrastructure_worlds())


def control_plane_worlds() -> str:
    """The worlds of the control plane providers in the tests."""
    return _table(providers.CONTROL_PLANE_HEADING, providers.control_plane_worlds())


def rotation_steps() -> str:
    """Every step of a rotation."""
    heading = ("", "step", "phase", "what it does", "first rotation: can be taken back", "later rotations")
    return _table(heading, rotation.steps())


def rotation_secrets() -> str:
    """What a rotation writes, by step."""
    heading = (
        *("while the step is", "`<cluster>-ca`", "`<cluster>-etcd`, `-proxy`", "`<cluster>-sa`"),
        *("`client-ca.crt`", "`server-ca.crt`, `cluster-info`, pins", "`link.crt`", "`<cluster>-kubeconfig`"),
    )
    return _table(heading, rotation.secrets())


def rotation_signers() -> str:
    """What the controller signs with during a rotation."""
    heading = ("while the step is", "signs client certificates", "signs serving certificates", "evidence may name")
    return _table(heading, rotation.signers())


def rotation_split_template() -> str:
    """What split signing pairs need besides."""
    return _table(("field below `kubeadmConfigSpec`", "must have"), rotation.template_lines(SigningPairs.SPLIT))


def rotation_split_signers() -> str:
    """What kube-controller-managers sign with that start at a step, with split pairs."""
    heading = ("while the step is", "`client.crt`, `client.key`", "`serving.crt`, `serving.key`")
    return _table(heading, rotation.split_signers())


def rotation_template() -> str:
    """What the template of a control plane must have."""
    return _table(("field below `kubeadmConfigSpec`", "must have"), rotation.template_lines())


def rotation_kinds() -> str:
    """Kinds of control planes."""
    return _table(("control plane", "rotated", "why not, and what to do"), rotation.kinds())


def rotation_times() -> str:
    """How long a rotation takes, computed."""
    return _table(("part", *(f"{fleet:,} nodes" for fleet in rotation.FLEETS)), rotation.times())


SECTIONS: Final[dict[str, Callable[..., str]]] = {
    section.__name__: section
    for section in (
        reasons,
        attestor_reasons,
        checks,
        builtin_checks,
        attestor_checks,
        flags,
        node_flags,
        exit_codes,
        metrics,
        bastion_metrics,
        gateway_metrics,
        log_fields,
        policy,
        chart_values,
        grant_calls_table,
        preflight,
        audit_verify,
        audit_show,
        explanation,
        fleet,
        machines,
        rotation_status,
        binding,
        evidence_form,
        quote,
        figures,
        measured,
        infrastructure_worlds,
        control_plane_worlds,
        rotation_steps,
        rotation_secrets,
        rotation_signers,
        rotation_split_signers,
        rotation_split_template,
        rotation_template,
        rotation_kinds,
        rotation_times,
    )
}
"""The sections by name; each returns Markdown."""
