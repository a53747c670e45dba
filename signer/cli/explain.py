"""``node-attestation-controller explain``: explain the decision on a request, by its name or by Machine or node."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from attestors.registry import Registry
from signer.audit.errors import NotRedacted
from signer.authority import load_authority_certificates
from signer.cli.arguments import WrongUse, cluster_key
from signer.cli.configuration import configuration_of, not_installed, require_installed
from signer.cli.explain_output import as_json, no_request_as_json, show, show_no_request
from signer.cli.explain_selection import ExplainFailed, request_from_file, select, subject_of
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.cli.remedies import remedy_of
from signer.configuration import Configuration, every_attestor, operator_settings
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.controller.workload_access import NOT_READABLE, WorkloadAccessRefused
from signer.explain.current_conditions import Answer, Answered
from signer.explain.dry_run import Circumstances
from signer.explain.explanation import Explanation, Verdict, explain
from signer.explain.manifests import UnreadableManifests, manifests_in
from signer.explain.no_request import NoRequest
from signer.explain.offline import OfflineRegistry
from signer.explain.record import Recorder, as_yaml
from signer.explain.recorded_calls import NotingRegistry
from signer.explain.recorded_objects import RecordedObjects, UnusableRecording
from signer.explain.subject import NamedRequest, Subject
from signer.kube.calls import GetList
from signer.kube.client import Client
from signer.kube.errors import Forbidden
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of, parse_time
from signer.store.cluster_api import discover_cluster_api

EXIT_DENIED: Final = 4
EXIT_WAITS: Final = 5
EXIT_NOT_DECIDED: Final = 6
_EXIT_CODES: Final = {
    Verdict.APPROVE: 0,
    Verdict.CHALLENGE: 0,
    Verdict.DENY: EXIT_DENIED,
    Verdict.FAIL: EXIT_DENIED,
    Verdict.WAIT: EXIT_WAITS,
    Verdict.LEAVE_ALONE: EXIT_NOT_DECIDED,
    Verdict.NOT_OURS: EXIT_NOT_DECIDED,
    Verdict.NOT_KNOWN: EXIT_NOT_DECIDED,
}
_ANSWER_EXIT_CODES: Final = {
    Answer.APPROVED: 0,
    Answer.CHALLENGED: 0,
    Answer.DENIED: EXIT_DENIED,
    Answer.FAILED: EXIT_DENIED,
}
"""Of a request that is decided: what was decided counts, and not what a dry run says now."""
_ANSWER_EXPECTED: Final = frozenset({Verdict.APPROVE, Verdict.CHALLENGE, Verdict.DENY, Verdict.FAIL})
_ANSWER_EXPECTED_WITHIN: Final = timedelta(minutes=1)
"""A running controller answers sooner, even under load."""
NO_SETTINGS: Final = (
    "Without --config, this command allows every installed attestor and knows no operator settings. Give the "
    "controller's configuration file with --config, or run this command in the controller's Pod."
)


def run_explain(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, stream=sys.stderr)
    subject = subject_of(options.csr)
    try:
        found = asyncio.run(_live(options, subject) if options.objects is None else _offline(options, subject))
    except (UnreadableManifests, UnusableRecording) as error:
        raise WrongUse(str(error)) from error
    except NotRedacted as error:
        raise ExplainFailed(f"--record: {error}") from error
    except NoSuchCluster as error:
        raise ExplainFailed(str(error)) from error
    except (WorkloadAccessRefused, TlsMaterialRefused) as error:
        failed = f"Cluster {options.cluster}: {error}{remedy_of(error.__cause__)}"
        raise ExplainFailed(
            _with_a_file(failed, subject) if isinstance(error.__cause__, Forbidden) else failed
        ) from error
    if isinstance(found, NoRequest):
        print_result(options.output, lambda: no_request_as_json(found), lambda console: show_no_request(found, console))
        return EXIT_NOT_DECIDED
    print_result(options.output, lambda: as_json(found), lambda console: show(found, console, every_check=options.all))
    answered = found.answered
    return _ANSWER_EXIT_CODES[answered.answer] if isinstance(answered, Answered) else _EXIT_CODES[found.verdict]


async def _live(options: argparse.Namespace, subject: Subject) -> Explanation | NoRequest:
    if options.cluster is None:
        raise WrongUse("give the Cluster in which the CSR was posted: --cluster NAMESPACE/NAME")
    key = _named_cluster(options)
    registry = NotingRegistry()
    configuration = _configuration(options, registry)
    require_installed(configuration.attestors)
    access = await management_access(options)
    async with Client(access.connection, token_source=access.token_source) as management:
        version = await discover_cluster_api(management)
        await require_cluster(management, version.clusters, key)
        around = Circumstances(management, configuration, registry, _clock(options.at))
        selected = await select(subject, management, version, key, around)
        if isinstance(selected, NoRequest):
            if options.record is not None:
                raise ExplainFailed(f"--record: {selected.subject} has no request to record")
            return selected
        manifest = selected.manifest
        recorder = Recorder(management)
        source: GetList = management if options.record is None else recorder
        around = replace(around, source=source, reported_services=selected.reported_services)
        settings = () if options.config is not None else (NO_SETTINGS,)
        explained, dry_run_result = await explain(
            manifest, key, around, (*settings, *_notes(manifest), *selected.notes)
        )
        if selected.is_live and options.at is None:
            explained = replace(explained, notes=(*explained.notes, *_overdue(explained)))
        if options.record is not None:
            documents = recorder.documents(manifest, explained, dry_run_result, around, registry.noted)
            _write(options.record, as_yaml(documents))
        return explained


def _configuration(options: argparse.Namespace, registry: Registry) -> Configuration:
    """The controller's configuration; without ``--config``, it names every attestor that is installed."""
    configuration = configuration_of(options)
    if options.config is not None:
        return configuration
    return replace(configuration, attestors=every_attestor(registry.providers))


def _overdue(explained: Explanation) -> tuple[str, ...]:
    """A note for a request that should have been answered by now, which the checks cannot tell."""
    try:
        waits = explained.at - parse_time(explained.request.created)
    except ValueError:
        return ()
    if explained.current.conditions or explained.verdict not in _ANSWER_EXPECTED or waits < _ANSWER_EXPECTED_WITHIN:
        return ()
    return (
        f"The request has waited since {explained.request.created} without an answer. Check that the controller runs, "
        "and read its log and the Events of the Machine or the Cluster: an API server may refuse its writes, for "
        "example with 422 if the CustomResourceDefinitions are of another version.",
    )


async def _offline(options: argparse.Namespace, subject: Subject) -> Explanation:
    if options.record is not None:
        raise WrongUse("--record needs a live cluster: leave out --objects")
    if not isinstance(subject, NamedRequest):
        raise WrongUse(f"{options.csr} needs a live cluster: leave out --objects, or give the name of a CSR")
    recorded = RecordedObjects(manifests_in(options.objects), options.controller_namespace)
    header = recorded.header
    registry = OfflineRegistry(header.answers)
    configuration = _configuration(options, registry)
    manifest = request_from_file(options.csr) or _recorded_request(recorded, options.csr)
    configuration = replace(configuration, namespace=header.controller_namespace)
    notes = ["Decided offline: AttestedNodes are trusted as recorded, and no service was called.", *_notes(manifest)]
    key = _named_cluster(options) if options.cluster is not None else _recorded_cluster(recorded)
    if header.insecure_allowed and not configuration.insecure_enabled:
        allowed = frozenset({key.namespace})
        configuration = replace(configuration, insecure_enabled=True, insecure_namespaces=allowed)
    if header.provider_id_oids and options.provider_id_oids is None:
        configuration = replace(configuration, provider_id_oids=header.provider_id_oids)
    if header.host_keys_oids and options.ssh_host_keys_oids is None:
        configuration = replace(configuration, host_keys_oids=header.host_keys_oids)
    notes += not_installed(configuration.attestors) if options.config is not None else []
    configured = configuration.attestors
    missing = sorted(name for name in header.with_settings if not operator_settings(configured, name, key.namespace))
    if missing:
        notes.append(f"The operator had settings for {', '.join(missing)}, which are not recorded: give --config.")
    if header.floors and options.config is None:
        notes.append("The operator had floors for policies, which are not recorded: give --config.")
    if header.redacted:
        notes.append(f"Redacted from the evidence, as credentials: {', '.join(header.redacted)}.")
    around = Circumstances(
        recorded,
        configuration,
        registry,
        _clock(options.at or header.recorded),
        load_authority_certificates,
        header.reported_services,
    )
    return (await explain(manifest, key, around, tuple(notes)))[0]


def _named_cluster(options: argparse.Namespace) -> ClusterKey:
    return cluster_key(options.cluster, default_namespace=options.namespace or "default")


def _recorded_cluster(recorded: RecordedObjects) -> ClusterKey:
    if recorded.header.cluster is not None:
        return recorded.header.cluster
    clusters = recorded.clusters()
    if len(clusters) != 1:
        raise WrongUse(f"--objects holds {len(clusters)} Clusters: choose one with --cluster")
    return clusters[0]


def _recorded_request(recorded: RecordedObjects, name: str) -> Mapping[str, Any]:
    for manifest in recorded.requests:
        if manifest["metadata"].get("name") == name:
            return manifest
    raise WrongUse(f"--objects holds no CertificateSigningRequest {printable(name)}")


def _clock(at: datetime | None) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) if at is None else at


def _with_a_file(failed: str, subject: Subject) -> str:
    """What to do without the right to read the Cluster's kubeconfig."""
    name = shlex.quote(printable(subject.text)) if isinstance(subject, NamedRequest) else "NAME"
    return (
        f"{NOT_READABLE}: {failed}; or save the request with `kubectl get csr {name} --output yaml > csr.yaml` and a "
        "kubeconfig of the workload cluster, and explain the file csr.yaml"
    )


def _notes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    if mapping_of(manifest, "metadata").get("uid"):
        return ()
    return ("The request has no UID: it was never posted, or the file omits the UID.",)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExplainFailed(f"--record: {path}: {error.strerror or type(error).__name__}") from error
