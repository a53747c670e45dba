"""``node-attestation-controller explain CSR``: why a request was, or would be, decided as it is."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from signer.audit.errors import NotRedacted
from signer.authority import load_authority_certificates
from signer.cli.arguments import (
    WrongUse,
    add_configuration,
    add_kubeconfig,
    cluster_key,
    configuration_of,
    not_installed,
    require_installed,
)
from signer.cli.explain_output import as_json, show
from signer.cli.output import print_as_json, print_for_people
from signer.cli.remedies import remedy_of
from signer.configuration import operator_settings
from signer.controller.named_cluster import NoSuchCluster, require_cluster
from signer.controller.workload_access import WorkloadAccessRefused, workload_connection
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
from signer.kube.management import management_connection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of
from signer.model.kubernetes_time import parse_time
from signer.store.cluster_api import discover_cluster_api

if TYPE_CHECKING:
    from signer.cli.arguments import Commands

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
}
_ANSWERED: Final = frozenset({Verdict.APPROVE, Verdict.CHALLENGE, Verdict.DENY, Verdict.FAIL})
_AT_ONCE: Final = timedelta(minutes=1)
"""A controller that runs answers sooner, however many ask."""
_KIND: Final = "CertificateSigningRequest"
NO_SETTINGS: Final = (
    "Every attestor counts as allowed here, and none has settings of the operator: if the controller has a "
    "configuration file, give it with --config, or run this in its Pod, where the file and what it names are."
)

# As long as its csrcleaner does (kubernetes ``pkg/controller/certificates/cleaner``).
_WHERE_IT_IS: Final = (
    ": `kubectl get csr` in the workload cluster lists those that do, `kubectl describe machine` names those of a "
    "Machine. That cluster deletes an answered one after an hour, others after a day: Events, the controller's log and "
    "the audit log keep what became of it"
)


class ExplainFailed(Exception):
    """It cannot be explained; the message says why."""


def add_explain(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="why a CSR was, or would be, approved or denied, or waits: every check, and what it compared",
        description="Runs the controller's checks over one CSR and changes nothing. Exit code 0: it would be approved "
        "or challenged; 4: denied; 5: it waits; 6: it is left alone, or is not for this controller.",
    )
    parser.set_defaults(command=_explain)
    parser.add_argument("csr", metavar="CSR", help="name of the CSR in the workload cluster, a file with it, or -")
    parser.add_argument("--cluster", metavar="NAMESPACE/NAME", help="the Cluster that it was posted in")
    add_kubeconfig(parser)
    add_configuration(parser)
    parser.add_argument(
        "--objects",
        type=Path,
        metavar="FILE|FOLDER",
        help="judge offline, by a recording or by manifests, and ask nobody",
    )
    parser.add_argument(
        "--at",
        metavar="TIME",
        type=_time,
        help="judge as at that time, such as 2026-01-02T03:04:05Z (default: now, or when it was recorded)",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what it was judged by, without secrets")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is logged on the way")


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
    if options.output == "json":
        print_as_json(as_json(explained))
    else:
        print_for_people(lambda console: show(explained, console))
    return _EXIT_CODES[explained.verdict]


async def _live(options: argparse.Namespace) -> Explanation:
    if options.cluster is None:
        raise WrongUse("--cluster NAMESPACE/NAME says which Cluster the CSR was posted in")
    key = _named_cluster(options)
    configuration = configuration_of(options)
    require_installed(configuration.attestors)
    access = await management_connection(options.kubeconfig)
    async with Client(access.connection, token_source=access.token_source) as management:
        await require_cluster(management, (await discover_cluster_api(management)).clusters, key)
        given = _given(options.csr)
        manifest = await _read(management, key, options.csr) if given is None else given
        recorder = Recorder(management)
        source: GetList = management if options.record is None else recorder
        registry = NotingRegistry()
        around = Circumstances(source, configuration, registry, _clock(options.at))
        notes = _notes(manifest) if options.config is not None else (NO_SETTINGS, *_notes(manifest))
        explained, dry_run_result = await explain(manifest, key, around, notes)
        if given is None and options.at is None:
            explained = replace(explained, notes=(*explained.notes, *_unanswered(explained)))
        if options.record is not None:
            documents = recorder.documents(manifest, explained, dry_run_result, around, registry.noted)
            _write(options.record, as_yaml(documents))
        return explained


def _unanswered(explained: Explanation) -> tuple[str, ...]:
    """What the checks cannot tell: that it should have its answer by now."""
    try:
        waits = explained.at - parse_time(explained.request.created)
    except ValueError:
        return ()
    if explained.standing.conditions or explained.verdict not in _ANSWERED or waits < _AT_ONCE:
        return ()
    return (
        f"It has been there since {explained.request.created} without an answer. See whether the controller runs, and "
        "what its log and the Events of the Machine or the Cluster say: what it has to write may be refused, as with "
        "422 where the definitions are of another version.",
    )


async def _offline(options: argparse.Namespace) -> Explanation:
    if options.record is not None:
        raise WrongUse("--record writes a recording of a live cluster: leave out --objects")
    configuration = configuration_of(options)
    recorded = RecordedObjects(manifests_in(options.objects), configuration.namespace)
    header = recorded.header
    manifest = _given(options.csr) or _the_named(recorded, options.csr)
    configuration = replace(configuration, namespace=header.controller_namespace)
    notes = ["Judged offline: AttestedNodes are believed as recorded, and nobody was asked.", *_notes(manifest)]
    key = _named_cluster(options) if options.cluster is not None else _recorded_cluster(recorded)
    if header.insecure_allowed and not configuration.insecure_enabled:
        allowed = frozenset({key.namespace})
        configuration = replace(configuration, insecure_enabled=True, insecure_namespaces=allowed)
    if header.provider_id_oids and options.provider_id_oids is None:
        configuration = replace(configuration, provider_id_oids=header.provider_id_oids)
    notes += not_installed(configuration.attestors)
    configured = configuration.attestors
    missing = sorted(name for name in header.with_settings if not operator_settings(configured, name, key.namespace))
    if missing:
        notes.append(f"The operator had settings for {', '.join(missing)}, which are not recorded: give --config.")
    if header.redacted:
        notes.append(f"Not recorded, because they let their holder act: {', '.join(header.redacted)} of the evidence.")
    around = Circumstances(
        recorded,
        configuration,
        OfflineRegistry(header.answers),
        _clock(options.at or header.recorded),
        load_authority_certificates,
    )
    return (await explain(manifest, key, around, tuple(notes)))[0]


def _named_cluster(options: argparse.Namespace) -> ClusterKey:
    return cluster_key(options.cluster, default_namespace=options.namespace or "default")


def _recorded_cluster(recorded: RecordedObjects) -> ClusterKey:
    if recorded.header.cluster is not None:
        return recorded.header.cluster
    clusters = recorded.clusters()
    if len(clusters) != 1:
        raise WrongUse(f"--objects holds {len(clusters)} Clusters: say with --cluster which one is meant")
    return clusters[0]


def _the_named(recorded: RecordedObjects, name: str) -> Mapping[str, Any]:
    for manifest in recorded.requests:
        if manifest["metadata"].get("name") == name:
            return manifest
    raise WrongUse(f"--objects holds no CertificateSigningRequest {printable(name)}")


def _clock(at: datetime | None) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) if at is None else at


def _notes(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    if mapping_of(manifest, "metadata").get("uid"):
        return ()
    return ("It has no UID: it was never posted, or that was left out of the file.",)


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


def _given(csr: str) -> Mapping[str, Any] | None:
    """The CSR that stands in a file or on standard input; None where ``csr`` is a name."""
    if csr == "-":
        return _the_request(manifests_of(sys.stdin.buffer.read(), "standard input"), "standard input")
    return _the_request(manifests_in(Path(csr)), csr) if _is_file(csr) or "/" in csr else None


def _is_file(csr: str) -> bool:
    try:
        return Path(csr).is_file()
    except OSError:  # no file has a name that long
        return False


def _the_request(manifests: tuple[dict[str, Any], ...], name: str) -> Mapping[str, Any]:
    found = [one for one in manifests if one.get("kind") == _KIND]
    if len(found) != 1:
        raise UnreadableManifests(f"{name} holds {len(found)} CertificateSigningRequests, not one")
    return found[0]


async def _read(management: Client, key: ClusterKey, name: str) -> Mapping[str, Any]:
    try:
        path = CERTIFICATE_SIGNING_REQUESTS.object(name)
    except ValueError as error:
        raise WrongUse(f"CSR: {error}") from error
    async with Client(await workload_connection(management, key)) as workload:
        try:
            return await workload.get(path)
        except NotFound:
            raise ExplainFailed(f"CSR {name} of Cluster {key} does not exist{_WHERE_IT_IS}") from None
        except Forbidden as error:
            granted = (
                f"grant that to whom Secret {key.namespace}/{key.name}-kubeconfig names (docs/operating.md, Grants)"
            )
            raise ExplainFailed(f"CSR {name} of Cluster {key}: {error}: {granted}") from error
        except ApiError as error:
            raise ExplainFailed(f"CSR {name} of Cluster {key}: {error}") from error
