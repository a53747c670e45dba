"""``node-attestation-controller explain CSR``: explain the decision on a request."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from attestors.registry import Registry
from signer.audit.errors import NotRedacted
from signer.authority import load_authority_certificates
from signer.cli.arguments import (
    WrongUse,
    add_configuration,
    add_management_cluster,
    cluster_key,
    configuration_of,
    not_installed,
    require_installed,
)
from signer.cli.explain_output import as_json, show
from signer.cli.management import management_access
from signer.cli.output import add_output, print_result
from signer.cli.remedies import remedy_of
from signer.configuration import Configuration, every_attestor, operator_settings
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.controller.workload_access import WorkloadAccessRefused, workload_connection
from signer.decision.reported_services import try_to_read_reported_services
from signer.explain.dry_run import Circumstances
from signer.explain.explanation import Explanation, Verdict, explain
from signer.explain.manifests import UnreadableManifests, manifests_in, manifests_of
from signer.explain.offline import OfflineRegistry
from signer.explain.record import Recorder, as_yaml
from signer.explain.recorded_calls import NotingRegistry
from signer.explain.recorded_objects import RecordedObjects, UnusableRecording
from signer.kube.calls import GetList
from signer.kube.client import Client
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.model.decision import printable
from signer.model.fields import mapping_of, parse_time
from signer.model.service_networks import NOT_REPORTED, ReportedServices
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
_ANSWERED: Final = frozenset({Verdict.APPROVE, Verdict.CHALLENGE, Verdict.DENY, Verdict.FAIL})
_ANSWER_EXPECTED_WITHIN: Final = timedelta(minutes=1)
"""A running controller answers sooner, even under load."""
_KIND: Final = "CertificateSigningRequest"
NO_SETTINGS: Final = (
    "Without --config, this command allows every installed attestor and knows no operator settings. Give the "
    "controller's configuration file with --config, or run this command in the controller's Pod."
)

# The times are those of the csrcleaner (kubernetes ``pkg/controller/certificates/cleaner``).
_FIND_CSRS: Final = (
    ": `kubectl get csr` in the workload cluster lists the CSRs that exist, `kubectl describe machine` names those of "
    "a Machine. The workload cluster deletes a decided CSR after an hour and any other after a day; Events, the "
    "controller's log and the audit log keep the decision"
)


class ExplainFailed(CommandFailed):
    """The request cannot be explained; the message says why."""


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Runs the controller's checks on one CSR and changes nothing. Exit code 0: it would be approved "
        "or challenged; 4: it would be denied; 5: it waits; 6: the policy leaves it alone, or it is not "
        "for this controller."
    )
    parser.set_defaults(command=_explain)
    parser.add_argument("csr", metavar="CSR", help="name of the CSR in the workload cluster, a file, or - for stdin")
    parser.add_argument("--cluster", metavar="NAMESPACE/NAME", help="the Cluster in which the CSR was posted")
    add_management_cluster(parser)
    add_configuration(parser)
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="FILE|FOLDER",
        help="work offline, from a recording or from manifests",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        type=_time,
        help="decide as of this time, such as 2026-01-02T03:04:05Z (default: now, or the time of the recording)",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write a recording of the inputs, without secrets")
    add_output(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="show log messages")


def _explain(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO if options.verbose else logging.CRITICAL, stream=sys.stderr)
    try:
        explained = asyncio.run(_live(options) if options.objects is None else _offline(options))
    except (UnreadableManifests, UnusableRecording) as error:
        raise WrongUse(str(error)) from error
    except NotRedacted as error:
        raise ExplainFailed(f"--record: {error}") from error
    except NoSuchCluster as error:
        raise ExplainFailed(str(error)) from error
    except (WorkloadAccessRefused, TlsMaterialRefused) as error:
        raise ExplainFailed(f"Cluster {options.cluster}: {error}{remedy_of(error.__cause__)}") from error
    print_result(options.output, lambda: as_json(explained), lambda console: show(explained, console))
    return _EXIT_CODES[explained.verdict]


async def _live(options: argparse.Namespace) -> Explanation:
    if options.cluster is None:
        raise WrongUse("give the Cluster in which the CSR was posted: --cluster NAMESPACE/NAME")
    key = _named_cluster(options)
    registry = NotingRegistry()
    configuration = _configuration(options, registry)
    require_installed(configuration.attestors)
    access = await management_access(options)
    async with Client(access.connection, token_source=access.token_source) as management:
        await require_cluster(management, (await discover_cluster_api(management)).clusters, key)
        from_file = _request_from_file(options.csr)
        manifest, reported = (
            await _read(management, key, options.csr)
            if from_file is None
            else (from_file, await _reported_services(management, key))
        )
        recorder = Recorder(management)
        source: GetList = management if options.record is None else recorder
        around = Circumstances(source, configuration, registry, _clock(options.at), reported_services=reported)
        notes = _notes(manifest) if options.config is not None else (NO_SETTINGS, *_notes(manifest))
        explained, dry_run_result = await explain(manifest, key, around, notes)
        if from_file is None and options.at is None:
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
    if explained.current.conditions or explained.verdict not in _ANSWERED or waits < _ANSWER_EXPECTED_WITHIN:
        return ()
    return (
        f"The request has waited since {explained.request.created} without an answer. Check that the controller runs, "
        "and read its log and the Events of the Machine or the Cluster: an API server may refuse its writes, for "
        "example with 422 if the CustomResourceDefinitions are of another version.",
    )


async def _offline(options: argparse.Namespace) -> Explanation:
    if options.record is not None:
        raise WrongUse("--record needs a live cluster: leave out --objects")
    recorded = RecordedObjects(manifests_in(options.objects), options.controller_namespace)
    header = recorded.header
    registry = OfflineRegistry(header.answers)
    configuration = _configuration(options, registry)
    manifest = _request_from_file(options.csr) or _recorded_request(recorded, options.csr)
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


def _notes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    if mapping_of(manifest, "metadata").get("uid"):
        return ()
    return ("The request has no UID: it was never posted, or the file omits the UID.",)


def _time(text: str) -> datetime:
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExplainFailed(f"--record: {path}: {error.strerror or type(error).__name__}") from error


def _request_from_file(csr: str) -> Mapping[str, Any] | None:
    """The CSR in a file or on standard input; None if ``csr`` is a name."""
    if csr == "-":
        return _single_request(manifests_of(sys.stdin.buffer.read(), "standard input"), "standard input")
    return _single_request(manifests_in(Path(csr)), csr) if _is_file(csr) or "/" in csr else None


def _is_file(csr: str) -> bool:
    try:
        return Path(csr).is_file()
    except OSError:  # the name is too long for a file
        return False


def _single_request(manifests: tuple[dict[str, Any], ...], name: str) -> Mapping[str, Any]:
    found = [one for one in manifests if one.get("kind") == _KIND]
    if len(found) != 1:
        raise UnreadableManifests(f"{name} holds {len(found)} CertificateSigningRequests, not one")
    return found[0]


async def _read(management: Client, key: ClusterKey, name: str) -> tuple[Mapping[str, Any], ReportedServices]:
    try:
        path = CERTIFICATE_SIGNING_REQUESTS.object(name)
    except ValueError as error:
        raise WrongUse(f"CSR: {error}") from error
    async with Client(await workload_connection(management, key)) as workload:
        try:
            return await workload.get(path), await try_to_read_reported_services(workload)
        except NotFound:
            raise ExplainFailed(f"CSR {name} of Cluster {key} does not exist{_FIND_CSRS}") from None
        except Forbidden as error:
            remedy = (
                f"grant that to the user of Secret {key.namespace}/{key.name}-kubeconfig (docs/operating.md, Grants)"
            )
            raise ExplainFailed(f"CSR {name} of Cluster {key}: {error}: {remedy}") from error
        except ApiError as error:
            raise ExplainFailed(f"CSR {name} of Cluster {key}: {error}") from error


async def _reported_services(management: Client, key: ClusterKey) -> ReportedServices:
    """The workload cluster's report. A request from a file is explained without it if the cluster cannot be reached."""
    try:
        async with Client(await workload_connection(management, key)) as workload:
            return await try_to_read_reported_services(workload)
    except (WorkloadAccessRefused, TlsMaterialRefused, ApiError):
        return NOT_REPORTED
