"""Figures and names that stand in the text are those of the code."""

from __future__ import annotations

import math
import re
from datetime import timedelta

import pytest

from attestors.tpm import challenge, constants, operator_files, presented_keys, settings, source_settings, wire
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES
from attestors.tpm.endorsement_key_sources import SourceName, listing
from attestors.tpm.node.device import DEFAULT_DEVICES
from attestors.tpm.node.settings import SETTINGS as NODE_SETTINGS
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES
from attestors.wire import evidence, names
from authenticator import configuration as node_configuration
from authenticator import stored_credential
from authenticator.flow import certificates, own_addresses
from authenticator.model import attempt, pair, plan
from authenticator.store import store
from signer import cli
from signer.authority.profiles import BACKDATE, MINIMUM_DURATION
from signer.cli import preflight
from signer.cli import run as run_command
from signer.controller import run, workload_access
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.diagnostics import health
from signer.controller.replicas import shards
from signer.controller.requests import pending
from signer.controller.requests import reporter as reporter
from signer.controller.status import infrastructure_status
from signer.controller.telemetry import recorder
from signer.decision import attestation, authority_source
from signer.decision import builtin_serving as builtin_serving
from signer.kube import client, watch, workqueue
from signer.model import auto_approval as auto_approval
from signer.model import (
    bootstrap_token,
    certificate_request,
    cluster,
    lease,
    node_attested,
    policy,
    record,
    reservation,
    seal,
    shard,
)
from signer.model.lease import JITTER_FACTOR, ElectionTimes
from signer.rules import bootstrap_token as bootstrap_token_rules
from signer.rules import shape
from signer.store import caches as inventory
from signer.store import controller_key, unreadable_log
from signer.store import garbage_collection as garbage_collector
from signer.store import removed_bindings as removed_bindings
from tests.documents.markdown import OPERATING_GUIDE, ROOT

REGION_CERTIFICATES = ROOT / "attestors/aws/document/region_certificates"
_MIB = 1024 * 1024
_LIFETIME_HOURS = policy.DEFAULT_CERTIFICATE_DURATION // timedelta(hours=1)
_CHALLENGE_MINUTES = challenge.LIFETIME.seconds // 60
_LONGEST_LOOK_MINUTES = math.ceil(reconciler.RECHECK_SECONDS * (1 + reconciler.JITTER) / 60)
WORDS = {3: "three", 4: "four", 5: "five", 7: "seven", 8: "eight", 10: "ten"}

PROTOCOL = (
    f"`{attempt._NAME_PREFIX}` and the first {attempt._NAME_CHARACTERS} hexadecimal digits",
    f"`{attempt._NAME_CONTEXT.decode()}`",
    f"`{names.CLIENT_SIGNER_PREFIX}<provider>`",
    f"`{names.SERVING_SIGNER_PREFIX}<provider>`",
    f"`{names.CERTIFICATE_REQUEST_LABEL}` first",
    f"`{names.ATTESTATION_PROVIDER_LABEL}`",
    f"`{names.ATTESTATION_DATA_LABEL}`",
    f"`{names.ATTESTATION_DATA_LABEL_ALIAS}` is read as the same label",
    f"OID {names.PROVIDER_ID_OID}",
    f"at most {names.MAXIMUM_PROVIDER_ID_CHARACTERS} characters",
    f"At most {names.MAXIMUM_REQUEST_BYTES // 1024} KiB before base64",
    f"reads and writes `{names.EVIDENCE_VERSION}`",
    f"`{evidence.VERSION_KEY}` | first",
    f"`{evidence.CA_CERT_HASH_KEY}` | second",
    f"more than {evidence.MAXIMUM_FIELDS} keys",
    f"`{names.CHALLENGE_ANNOTATION}`",
    f"`{names.SUPPORTED_VERSIONS_ANNOTATION}`",
    f"`{names.ENDORSEMENT_KEY_ANNOTATION}`",
    f"`{reservation.CONTESTED_ANNOTATION}`",
    f"Bounds: {certificate_request.MAXIMUM_EXTENSIONS} extensions, {certificate_request.MAXIMUM_ALTERNATIVE_NAMES} "
    f"alternative names, {certificate_request.MAXIMUM_SUBJECT_ATTRIBUTES} subject attributes",
    f"RSA of {shape.MINIMUM_RSA_BITS} to {shape.MAXIMUM_RSA_BITS} bits",
    f"{WORDS[BACKDATE.seconds // 60]} minutes before the decision",
    f"`spec.expirationSeconds` below {MINIMUM_DURATION.seconds} is denied",
    f"less than {WORDS[MINIMUM_DURATION.seconds // 60]} minutes left",
    f"annotation `{names.ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}`",
    f"its challenges are good for {WORDS[_CHALLENGE_MINUTES]} minutes",
    f"annotation `{bootstrap_token.EXTENDED_UNTIL_ANNOTATION}`",
    f"annotation `{auto_approval.RESTORING_ANNOTATION}`",
    f"label `{removed_bindings.SAVED_LABEL}`",
    f"condition `{node_attested.NODE_ATTESTED}`",
)
INTERNALS = (
    f"the newest {record.JOURNAL_ENTRIES}",
    f"the last {record.BUILTIN_APPROVALS} approved built-in serving requests",
    f"until {WORDS[record.HELD_AFTER_END.seconds // 60]} minutes after `lastNotAfter`",
    f"the last {record.BUILTIN_APPROVALS} approvals are kept",
    f"With more than {workqueue.CROWD} of one requester waiting",
    f"Garbage collection runs every {WORDS[int(garbage_collector.ROUND_SECONDS) // 60]} minutes",
    f"when its message changes (at most {reporter.MESSAGES_PER_REASON} times)",
    f"exponential backoff of at most {workqueue.DEFAULT_BACKOFF.maximum_seconds / 60:.0f} minutes",
    f"A list page of more than {workload_access.MAXIMUM_BODY_BYTES // _MIB} MiB",
    f"A list beyond {client.LIST_BYTES_PER_BODY * workload_access.MAXIMUM_BODY_BYTES // _MIB} MiB is not read",
    f"{pending.MAXIMUM_REQUESTS:,} waiting requests and {pending.MAXIMUM_BYTES // _MIB} MiB of them, packed",
)
THREAT_MODEL = (
    f"{names.MAXIMUM_REQUEST_BYTES // 1024} KiB, {names.MAXIMUM_CERTIFICATE_REQUEST_BYTES // 1024} KiB of it for the "
    "PKCS#10 request, and bounds on every count",
    f"{WORDS[policy.DEFAULT_CERTIFICATE_DURATION.days]} days by default",
    f"With more than {workqueue.CROWD} of one requester waiting",
    f"servers before 1.30 for {WORDS[_LONGEST_LOOK_MINUTES]} minutes after `kubeadm upgrade apply`",
    f"it is good for {WORDS[_CHALLENGE_MINUTES]} minutes, and for its own key",
    f"{unreadable_log.LOG_BURST} log lines at once, then one in {unreadable_log.LOG_INTERVAL_SECONDS:.0f} seconds",
)
OPERATING = (
    f"it is cut back to {bootstrap_token_rules.SHORTEN_TO.seconds // 60} minutes",
    f"work in progress has {WORDS[int(run.DRAIN_SECONDS)]} seconds to finish",
    f"| {cli.EXIT_FAILED} | failed while running | | {cli.EXIT_USAGE} | wrong usage",
    f"{WORDS[int(authority_source.FAILURE_KEPT_SECONDS)]} seconds after a failure",
    f"every {WORDS[int(recorder.REPEAT_SECONDS) // 60]} minutes",
    f"within {attestation._ATTESTATION_SECONDS:.0f} seconds",
    f"| {preflight.EXIT_NOT_READY} | `preflight` found",
    f"| {run_command.EXIT_LEADERSHIP_LOST} | [leadership lost]",
    f"re-checks every {reconciler.RECHECK_SECONDS / 60:.0f} minutes (±{reconciler.JITTER * 100:.0f} %)",
    f"repeats within {WORDS[int(reconciler.MINIMUM_PAUSE_SECONDS + reconciler.RETRY_BACKOFF.base_seconds)]} seconds",
    f"{bootstrap_token_rules.EXTEND_TO // timedelta(hours=1)} hours ahead whenever less than "
    f"{bootstrap_token_rules.EXTEND_BELOW // timedelta(hours=1)} are left",
    f"annotation `{bootstrap_token.EXTENDED_UNTIL_ANNOTATION}`",
    f"cut back to {bootstrap_token_rules.SHORTEN_TO.seconds // 60} minutes",
    f"--selector {removed_bindings.SAVED_LABEL}",
    f"Secret `{controller_key.SECRET_NAME}` in the controller's namespace, {seal.KEY_BYTES} bytes",
    f"The controller reads it every {WORDS[int(controller_key.READ_INTERVAL_SECONDS) // 60]} minutes",
    f"conditionType: {node_attested.NODE_ATTESTED}",
    f"`status.{infrastructure_status.CLIENT_SIGNER_FIELD}`",
    f"`status.{infrastructure_status.SERVING_SIGNER_FIELD}`",
    f"checks reservations every {WORDS[int(garbage_collector.ROUND_SECONDS) // 60]} minutes",
    f"which renews at {plan.AGENT_SHARE * 100:.0f} % at the latest | {_LIFETIME_HOURS * plan.AGENT_SHARE:.1f} hours",
    f"renews at {100 // pair.RENEWAL_DIVISOR} % | {_LIFETIME_HOURS / pair.RENEWAL_DIVISOR:.1f} hours",
)
NODE = (
    f"more than {100 // pair.RENEWAL_DIVISOR} % of its life left",
    f"The agent renews at {plan.AGENT_SHARE * 100:.0f} to {(plan.AGENT_SHARE + plan.AGENT_SPREAD) * 100:.0f} %",
    f"up to `timeoutSeconds` ({node_configuration.DEFAULT_TIMEOUT_SECONDS:.0f})",
    f"longer than {certificates.RENEWAL_TIMEOUT_SECONDS:.0f} seconds",
    f"asks again after {pair.RETRY_SECONDS}",
    f"replaces it after {WORDS[int(own_addresses.MOVED_AFTER_SECONDS) // 60]} minutes",
    f"`{stored_credential.DEFAULT_CONFIGURATION_FILE}`",
    f"`{stored_credential.DEFAULT_STORE}`",
    f"`{stored_credential.CLIENT_PAIR_FILE}`",
    f"`{stored_credential.BOOTSTRAP_FILE}`",
    f"`{store.SERVING_PAIR_FILE}`",
    f"`{stored_credential.CLUSTER_FILE}`",
    *(f"`{key}`" for key in sorted(node_configuration._FILE_KEYS - {"apiVersion", "kind"})),
)
TPM = (
    f"`{names.ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}`, on the Machine or on its InfraMachine",
    f"within the last {_CHALLENGE_MINUTES} minutes, and",
    f"It is good for {_CHALLENGE_MINUTES} minutes",
    *(f"| `{setting}` |" for setting in sorted(settings._OPERATOR_SETTINGS) + list(NODE_SETTINGS)),
    *(f"| `{setting}` |" for setting in sorted(settings._POLICY_SETTINGS)),
    *(f"`{source.value}`" for source in SourceName),
    f"`[{', '.join(name.value for name in source_settings._DEFAULT)}]`",
    f"At most {listing.MAXIMUM_CHARACTERS} characters and {listing.MAXIMUM_LINES} lines",
    f"`{names.ENDORSEMENT_KEY_ANNOTATION}`",
    f"`{names.ENDORSEMENT_KEY_SOURCE_ANNOTATION}`",
    f"`{names.CHIP_ANNOTATION}` of the approved request holds the name, `chip:sha256:…`, or `{names.CHIP_NOT_NAMED}`",
    f"(`{min(presented_keys.DEFAULT_TEMPLATES)}`), for which",
    f"`{settings._DEFAULT_SELECTION}` are quoted",
    f"and number (0 to {constants.PCR_COUNT - 1}), and has 1 to {settings._MAXIMUM_DIGESTS} allowed values",
    f"A folder or file holds at most {operator_files.MAXIMUM_BYTES // _MIB} MiB, a folder at most "
    f"{operator_files.MAXIMUM_FILES} files",
    f"at most {cluster._MAXIMUM_ANNOTATION_CHARACTERS} characters in all",
    f"Default: `{DEFAULT_DEVICES[0]}`, else `{DEFAULT_DEVICES[1]}`",
    *(f"| `{choice.name}` | {choice.title} | `{choice.certificate_index:#010x}` |" for choice in ENDORSEMENT_CHOICES),
    f"| `{wire.ENDORSEMENT_PUBLIC_FIELD}` | both | {wire.MAXIMUM_PUBLIC_BYTES} |",
    f"| `{wire.ATTESTATION_PUBLIC_FIELD}` | both | {wire.MAXIMUM_PUBLIC_BYTES} |",
    f"| `{wire.ENDORSEMENT_CERTIFICATE_FIELD}` | both, where there is one | {wire.MAXIMUM_CERTIFICATE_BYTES} |",
    f"| `{wire.ENDORSEMENT_CHAIN_FIELD}` | both, where there is one | {wire.MAXIMUM_CHAIN_BYTES} |",
    f"| `{wire.CHALLENGE_TOKEN_FIELD}` | answer | {wire.MAXIMUM_TOKEN_CHARACTERS} characters |",
    f"| `{wire.QUOTE_FIELD}` | answer | {wire.MAXIMUM_QUOTE_BYTES} |",
    f"| `{wire.QUOTE_SIGNATURE_FIELD}` | answer | {wire.MAXIMUM_SIGNATURE_BYTES} |",
    f"| `{wire.PCR_VALUES_FIELD}` | answer | {wire.MAXIMUM_PCR_VALUES_BYTES} |",
    f"| `{wire.VERSION_KEY}` | `{wire.CHALLENGE_VERSION}` |",
    *(
        f"| `{key}` |"
        for key in (wire.TOKEN_KEY, wire.CREDENTIAL_BLOB_KEY, wire.ENCRYPTED_SECRET_KEY, wire.PCR_SELECTION_KEY)
    ),
)
COMPATIBILITY = (
    f"by templates {', '.join(template.title for template in ENDORSEMENT_TEMPLATES)}",
    f"Regions whose certificate is shipped: {len(list(REGION_CERTIFICATES.glob('*.pem')))}",
)
_TIMES = ElectionTimes()
HIGH_AVAILABILITY = (
    f"`{lease.DEFAULT_LEASE_NAME}` in the controller's namespace",
    f"| `--leader-elect-lease-duration` | {_TIMES.lease_duration.seconds}s |",
    f"| `--leader-elect-renew-deadline` | {_TIMES.renew_deadline.seconds}s |",
    f"| `--leader-elect-retry-period` | {_TIMES.retry_period.seconds}s |",
    f"{JITTER_FACTOR} of them must fit into the deadline",
    f"finishes what is under way ({WORDS[int(run.DRAIN_SECONDS)]} seconds)",
    f"After {_TIMES.renew_deadline.seconds} seconds it ends with exit code {run_command.EXIT_LEADERSHIP_LOST}",
    f"`/readyz` says `{health.State.STANDING_BY.value}` with status 200",
    f"label `{cluster.WATCH_FILTER_LABEL}: VALUE`",
    f"at most {shard.MAXIMUM_SHARDS}. Shards are the unit that moves",
    f"`{shard.SHARDS_OF_LABEL}: {lease.DEFAULT_LEASE_NAME}`",
    f"| `{shard.shard_lease(lease.DEFAULT_LEASE_NAME, 0)}` and so on |",
    f"| `{shard.replica_lease(lease.DEFAULT_LEASE_NAME, '').rpartition('-')[0]}-…`, one of each replica |",
    f"finish what is under way ({WORDS[int(shards.HAND_OVER_SECONDS)]} seconds)",
    f"says `{health.State.OTHER_SHARDS.value}`",
)
WRITING = (f"It has {attestation._ATTESTATION_SECONDS:.0f} seconds", "At most 1024 characters, no secret")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (document, words)
        for document, figures in (
            ("protocol", PROTOCOL),
            ("internals", INTERNALS),
            ("threat-model", THREAT_MODEL),
            ("operating", OPERATING),
            ("writing-an-attestor", WRITING),
            ("node", NODE),
            ("compatibility", COMPATIBILITY),
            ("tpm", TPM),
            ("high-availability", HIGH_AVAILABILITY),
        )
        for words in figures
    ],
)
def test_the_document_says_what_the_code_does(document: str, words: str) -> None:
    pages = OPERATING_GUIDE if document == "operating" else (ROOT / f"docs/{document}.md",)
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert words in " ".join(text.split())


def test_every_name_of_ours_on_objects_is_in_the_protocol() -> None:
    name = re.compile(r'"(?:\{ANNOTATION_PREFIX\}|attestation\.cluster\.x-k8s\.io)/([a-z-]+)"')
    files = [
        file for part in ("attestors", "signer") for file in (ROOT / part).rglob("*.py") if "testing" not in file.parts
    ]
    found = {one for file in files for one in name.findall(file.read_text(encoding="utf-8"))}
    assert len(found) > 8
    table = (
        (ROOT / "docs/protocol.md").read_text(encoding="utf-8").partition("## Names on objects")[2].partition("## ")[0]
    )
    assert {one for one in found if f"`{names.ANNOTATION_PREFIX}/{one}`" not in table} == set()


def test_a_year_is_the_default_of_insecure_certificates() -> None:
    assert policy.DEFAULT_INSECURE_CERTIFICATE_DURATION.days == 365


def test_a_minute_is_how_long_a_secret_is_kept() -> None:
    assert authority_source.KEPT_SECONDS == 60


def test_a_minute_is_how_long_the_management_cluster_may_be_out_of_touch() -> None:
    """As the explanation of ``ManagementClusterUnreachable`` says."""
    assert inventory.OUT_OF_TOUCH_SECONDS == 60
    assert client.WATCH_IDLE_SECONDS == 120  # "two"
    assert watch.LIST_AFTER_SILENCE_SECONDS == 25


def test_an_hour_is_how_long_an_approval_is_kept() -> None:
    """``a ninth approval within an hour``, in docs/internals.md."""
    assert timedelta(hours=1) == builtin_serving.SETTLED_REQUESTS_ARE_KEPT


def test_the_node_has_a_choice_for_each_template_that_the_controller_accepts() -> None:
    """``docs/tpm.md`` has one list for both."""
    assert [choice.title for choice in ENDORSEMENT_CHOICES] == [template.title for template in ENDORSEMENT_TEMPLATES]
