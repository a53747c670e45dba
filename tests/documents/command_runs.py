"""What becomes of each command in the documents: the test that runs it, or the reason why none does.

:data:`TABLE` is read from the top, and the first entry that fits a command counts. ``test_command_runs`` checks that
each command has an entry, that each entry has a command, and that the tests are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeAlias

from tests.documents.markdown import ROOT


@dataclass(frozen=True, slots=True)
class RunBy:
    """A test runs the command as it stands, or does with the same file or arguments what it does."""

    test: str
    """Path and function, as pytest writes them."""


@dataclass(frozen=True, slots=True)
class NotRun:
    """No test runs it."""

    reason: str


Handling: TypeAlias = RunBy | NotRun


@dataclass(frozen=True, slots=True)
class Entry:
    """Commands of some documents that begin with some words."""

    document: str
    """Path from the root, ``*`` for any part of it."""
    words: str
    handling: Handling

    def fits(self, document: Path, command: Sequence[str]) -> bool:
        """Whether it is about this command."""
        begin = self.words.split()
        return fnmatch(str(document.relative_to(ROOT)), self.document) and list(command[: len(begin)]) == begin


_QUICK_START: Final = "docs/quickstart-kind.md"
_NO_KIND: Final = NotRun("kind, its node images and clusterctl are not at hand where the tests run")
_OPERATORS: Final = "tests/documents/test_operators_commands.py"
_READ: Final = RunBy("tests/documents/test_quickstart.py::test_what_reads_is_understood_by_kubectl")
_CLIENT: Final = "tests/integration/test_access_client.py"
_TRIED: Final = RunBy("tests/documents/test_quickstart.py::test_the_quick_start")

TABLE: Final = (
    Entry(
        "docs/node-access.md",
        "python -m node_access.client.archive",
        RunBy("tests/integration/test_client_installation.py::test_the_zipapp_needs_cryptography_alone"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access doctor",
        RunBy(f"{_CLIENT}::test_the_doctor_finds_what_is_missing"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access ssh",
        RunBy(f"{_CLIENT}::test_ssh_asks_for_a_grant_runs_a_command_and_revokes_it"),
    ),
    Entry("docs/node-access.md", "node-access scp", RunBy(f"{_CLIENT}::test_scp_copies_both_ways")),
    Entry(
        "docs/node-access.md", "node-access forward", RunBy(f"{_CLIENT}::test_forward_reaches_what_the_node_reaches")
    ),
    Entry(
        "docs/node-access.md",
        "node-access agent",
        RunBy(f"{_CLIENT}::test_the_heartbeat_renews_prolongs_and_ends_by_itself"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access patch-ingress",
        RunBy(f"{_CLIENT}::test_the_address_is_changed_by_its_creator"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access grant approve",
        RunBy(f"{_CLIENT}::test_an_approval_is_of_the_spec_as_it_was_shown"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access grant create",
        RunBy(f"{_CLIENT}::test_a_stock_ssh_works_through_the_one_line"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access grant",
        RunBy(f"{_CLIENT}::test_grants_are_listed_shown_extended_and_revoked"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access known-hosts",
        RunBy(f"{_CLIENT}::test_grants_are_listed_shown_extended_and_revoked"),
    ),
    Entry(
        "docs/node-access.md",
        "node-access config",
        RunBy(f"{_CLIENT}::test_a_stock_ssh_works_through_the_one_line"),
    ),
    Entry("docs/node-access.md", "ssh", RunBy(f"{_CLIENT}::test_a_stock_ssh_works_through_the_one_line")),
    Entry("docs/node-access.md", "rsync", RunBy(f"{_CLIENT}::test_stock_rsync_copies_both_ways")),
    Entry("*", "make", NotRun("the build itself, which runs the tests, or measures")),
    Entry(
        "*", "pip install", NotRun("asks a package registry; the Makefile installs the same extras before the tests")
    ),
    Entry(
        "deploy/node/README.md",
        "kubectl apply",
        RunBy("tests/deploy/test_cluster_api.py::test_it_is_accepted_as_it_is"),
    ),
    Entry(
        "docs/aws.md",
        "python -m attestors.aws.document",
        RunBy("tests/documents/test_aws.py::test_recorded_documents_verify"),
    ),
    Entry(
        "docs/rotation.md",
        "openssl",
        RunBy("tests/documents/test_rotation.py::test_the_command_prints_the_hash_that_a_rotation_shows"),
    ),
    Entry(
        "docs/rotation.md",
        "node-attestation-controller rotate production confirm",
        RunBy("tests/integration/test_rotate.py::test_a_rotation_whose_controller_key_is_lost_is_confirmed"),
    ),
    Entry("docs/gcp.md", "gcloud", NotRun("needs a project at Google Cloud")),
    Entry(
        "docs/*",
        "node-attestation-controller workload-kubeconfig",
        RunBy("tests/integration/test_workload_kubeconfig.py::test_what_is_made"),
    ),
    Entry(
        "docs/operating.md",
        "node-attestation-controller check",
        RunBy("tests/integration/test_check.py::test_nothing_is_wrong"),
    ),
    Entry(
        "docs/operating.md",
        "kubectl exec",
        NotRun("an image of the controller has to run for it; what it runs is test_check.py's"),
    ),
    Entry(
        "docs/enforce.md",
        "node-attestation-controller preflight",
        RunBy("tests/integration/test_preflight.py::test_a_cluster_that_is_ready"),
    ),
    Entry(
        "docs/enforce.md",
        "kubectl get configmap NAME",
        RunBy(f"{_OPERATORS}::test_what_was_removed_under_a_former_ca_is_given_back"),
    ),
    Entry(
        "docs/enforce.md",
        "kubectl create",
        RunBy(f"{_OPERATORS}::test_what_was_removed_under_a_former_ca_is_given_back"),
    ),
    Entry("docs/enforce.md", "kubectl get", _READ),
    Entry(
        "docs/node.md",
        "kubelet-authenticator agent",
        RunBy("tests/integration/authenticator/test_agent.py::test_it_keeps_both_certificates_fresh_for_days"),
    ),
    Entry(
        "docs/node.md",
        "kubelet-authenticator",
        RunBy("tests/documents/test_quickstart.py::test_the_nodes_own_commands"),
    ),
    Entry(
        "docs/tpm.md",
        "kubelet-authenticator tpm fingerprint",
        RunBy("tests/integration/tpm/test_fingerprint_command.py::test_the_key_that_evidence_shows"),
    ),
    Entry(
        "docs/operating.md",
        "node-attestation-controller crds",
        RunBy("tests/unit/signer/test_cli.py::test_crds_prints_the_files_of_deploy"),
    ),
    Entry(
        "docs/operating.md",
        "node-attestation-controller completion",
        RunBy("tests/unit/signer/test_cli_completion.py::test_bash_gets_the_words_that_fit"),
    ),
    Entry(
        "docs/operating.md",
        "node-attestation-controller run",
        RunBy("tests/e2e/test_hostile_objects.py::test_a_policy_nested_without_end_does_not_stop_the_controller"),
    ),
    Entry(
        "docs/operating.md",
        "kubectl apply -f -",
        RunBy("tests/documents/test_deploy.py::test_the_definitions_are_those_that_the_program_prints"),
    ),
    Entry(
        "docs/operating.md",
        "kubectl apply -f deploy/rbac/management.yaml",
        RunBy("tests/documents/test_grants.py::test_the_controller_needs_exactly_these_grants"),
    ),
    Entry(
        "docs/operating.md",
        "kubectl apply -f deploy/crds-cel",
        RunBy("tests/e2e/test_refused_at_the_api.py::test_a_policy_that_only_a_rule_refuses"),
    ),
    Entry(
        "docs/operating.md",
        "kubectl apply",
        RunBy("tests/documents/test_deploy.py::test_a_policy_is_accepted_and_can_be_followed"),
    ),
    Entry(
        "docs/rotation.md",
        "kubectl delete",
        NotRun("admission policies need Kubernetes 1.30; signer.admission removes them in tests"),
    ),
    Entry("docs/recovering.md", "kubectl delete", RunBy(f"{_OPERATORS}::test_record_and_reservations_are_deleted")),
    Entry(
        "docs/recovering.md",
        "kubectl patch secret node-attestation-controller-key --namespace node-attestation-system --type merge",
        RunBy(f"{_OPERATORS}::test_a_copy_of_the_key_becomes_the_previous_one"),
    ),
    Entry("docs/recovering.md", "kubectl patch secret", RunBy(f"{_OPERATORS}::test_the_controller_key_is_rotated")),
    Entry(
        "docs/recovering.md",
        "kubectl apply",
        RunBy(f"{_OPERATORS}::test_key_and_removed_grants_are_copied_before_a_move"),
    ),
    Entry("docs/recovering.md", "kubectl get", _READ),
    Entry(
        "docs/rotation.md",
        "kubectl",
        RunBy("tests/documents/test_rotation.py::test_the_commands_are_run_by_the_real_kubectl"),
    ),
    Entry(
        "docs/tpm.md",
        "kubectl annotate",
        RunBy("tests/documents/test_tpm.py::test_the_annotation_is_written_by_the_real_kubectl"),
    ),
    Entry("docs/tpm.md", "kubectl describe", _READ),
    Entry(
        "docs/tpm.md",
        "python -m attestors.tpm endorsement",
        RunBy("tests/documents/test_tpm.py::test_a_recorded_certificate_is_judged"),
    ),
    Entry(
        "docs/tpm.md",
        "python -m attestors.tpm quote",
        RunBy("tests/documents/test_tpm.py::test_the_commands_make_a_quote_that_verifies"),
    ),
    Entry(
        "docs/tpm.md",
        "tpm2_createak",
        RunBy("tests/documents/test_tpm.py::test_the_commands_make_a_quote_that_verifies"),
    ),
    Entry(
        "docs/tpm.md",
        "tpm2_quote",
        RunBy("tests/documents/test_tpm.py::test_the_commands_make_a_quote_that_verifies"),
    ),
    Entry("docs/tpm.md", "", RunBy("tests/documents/test_tpm.py::test_the_commands_give_the_fingerprint")),
    Entry(
        "docs/testing.md",
        "python -m pytest",
        RunBy("tests/documents/test_example_provider.py::test_a_node_joins_and_renews_not"),
    ),
    Entry("docs/testing.md", "python join.py", RunBy("tests/documents/test_testing.py::test_a_join_without_pytest")),
    Entry("docs/troubleshooting.md", "kubectl", _READ),
    Entry(
        "docs/writing-an-attestor.md",
        "python -m pytest",
        RunBy("tests/documents/test_building_an_attestor.py::test_the_controller_finds_it_and_its_tests_pass"),
    ),
    Entry(
        "deploy/monitoring/README.md",
        "kubectl apply",
        NotRun("needs the definitions of the Prometheus operator; tests/deploy/test_alerts.py reads the files"),
    ),
    Entry(
        "deploy/monitoring/README.md",
        "sed",
        RunBy("tests/deploy/test_alerts.py::test_the_address_of_the_runbooks_is_put_in"),
    ),
    Entry(
        "docs/audit.md",
        "node-attestation-controller run",
        RunBy("tests/unit/signer/test_cli_audit.py::test_a_log_is_opened_and_closed"),
    ),
    Entry(
        "docs/audit.md",
        "node-attestation-controller audit",
        RunBy("tests/documents/test_audit.py::test_the_recorded_log_verifies_for_ever"),
    ),
    Entry("docs/development/fuzzing.md", "python -m tests.fuzz", RunBy("tests/fuzz/test_fuzz.py::test_changed_inputs")),
    Entry(
        "docs/development/soak.md",
        "python -m tests.soak",
        RunBy("tests/soak/test_soak.py::test_faults_for_a_short_while"),
    ),
    Entry(
        "docs/explain.md",
        "kubectl exec",
        NotRun(
            "no kubelet runs Pods here; tests/integration/test_explain.py runs the command as its ServiceAccount, and "
            "test_blocks.py holds it against the Deployment"
        ),
    ),
    Entry("docs/explain.md", "kubectl", _READ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller explain node-1-client --objects",
        RunBy("tests/integration/test_explain_offline.py::test_a_recording_explains_the_same"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller explain machine/production-md-0-x7k2p",
        RunBy("tests/integration/test_explain_subjects.py::test_the_newest_request_that_waits"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller explain node/node-1",
        RunBy("tests/integration/test_explain_subjects.py::test_the_newest_request_that_waits"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller explain",
        RunBy("tests/integration/test_explain.py::test_from_a_file_and_from_standard_input"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller status --output html",
        RunBy("tests/integration/test_status.py::test_the_page_for_a_wall"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller status default/staging --output html",
        RunBy("tests/integration/test_status.py::test_the_page_for_a_wall"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller status default/staging",
        RunBy("tests/integration/test_status.py::test_the_machines_of_one_cluster"),
    ),
    Entry(
        "docs/explain.md",
        "node-attestation-controller status",
        RunBy("tests/integration/test_status.py::test_a_healthy_fleet"),
    ),
    Entry(
        "docs/ssh-authorities.md",
        "node-attestation-controller rotate default/production ssh start",
        RunBy("tests/integration/test_ssh_rotation.py::test_nodes_advance_it_by_their_attested_requests"),
    ),
    Entry(
        "docs/ssh-authorities.md",
        "node-attestation-controller rotate default/production ssh status",
        RunBy("tests/integration/test_ssh_rotation.py::test_nodes_advance_it_by_their_attested_requests"),
    ),
    Entry(
        "docs/ssh-authorities.md",
        "node-attestation-controller rotate default/production ssh complete",
        RunBy("tests/integration/test_ssh_rotation.py::test_nodes_advance_it_by_their_attested_requests"),
    ),
    Entry(
        "docs/ssh-authorities.md",
        "node-attestation-controller rotate default/production ssh revoke-user",
        RunBy("tests/integration/test_ssh_rotation.py::test_beside_the_rotation_of_cas"),
    ),
    Entry(
        "docs/rotation.md",
        "node-attestation-controller rotate default/production preflight",
        RunBy("tests/integration/test_rotate.py::test_preflight_of_a_cluster_that_is_ready"),
    ),
    Entry(
        "docs/rotation.md",
        "node-attestation-controller rotate default/production complete",
        RunBy("tests/integration/test_rotate.py::test_a_person_is_asked_and_may_decline"),
    ),
    Entry(
        "docs/rotation.md",
        "node-attestation-controller rotate default/production status --watch",
        RunBy("tests/integration/test_rotate.py::test_watch_prints_a_line_for_each_change"),
    ),
    Entry(
        "docs/rotation.md",
        "node-attestation-controller rotate",
        RunBy("tests/integration/test_rotate.py::test_a_rotation_is_started_and_watched"),
    ),
    Entry(
        "docs/ssh.md",
        "node-attestation-controller node-access config production --folder ~/kit",
        RunBy("tests/integration/test_node_access.py::test_the_kit_outlives_host_certificates"),
    ),
    Entry(
        "docs/ssh.md",
        "node-attestation-controller node-access config",
        RunBy("tests/integration/test_node_access.py::test_a_stock_ssh_logs_in_without_a_prompt"),
    ),
    Entry(
        "docs/ssh.md",
        "node-attestation-controller node-access known-hosts",
        RunBy("tests/integration/test_node_access.py::test_known_hosts_alone"),
    ),
    *(
        Entry(
            document,
            "node-attestation-controller node-access preflight",
            RunBy("tests/integration/test_ssh_ways_in.py::test_the_command"),
        )
        for document in ("docs/ssh.md", "docs/ssh-ways-in.md")
    ),
    *(
        Entry("docs/ssh.md", words, RunBy("tests/e2e/test_break_glass_drill.py::test_the_drill"))
        for words in (
            "ssh -F",
            "scp",
            "node-attestation-controller krl revoke drill-cert.pub",
            "node-attestation-controller ssh-sign --master-secret master-secret.json --principal root --exec -F",
            "node-attestation-controller ssh-sign --master-secret master-secret.json --principal root --validity 10m",
            "node-attestation-controller ssh-sign --master-secret master-secret.json --principal root --any-clock",
        )
    ),
    Entry(
        "docs/containers-node.md",
        "node-access-containers list",
        RunBy("tests/e2e/containers/test_node_mode.py::test_a_runtime_that_keeps_no_state_here_is_refused"),
    ),
    Entry(
        "docs/ssh-node.md",
        "node-access-sessions list",
        RunBy("tests/e2e/test_ssh_sessions.py::test_without_a_revocation_list_nobody_gets_in"),
    ),
    Entry("docs/ssh.md", "", RunBy("tests/documents/test_ssh.py::test_the_commands_work_with_every_api_server_down")),
    Entry(
        "docs/first-login.md",
        "node-access doctor",
        RunBy(f"{_CLIENT}::test_the_doctor_finds_what_is_missing"),
    ),
    Entry(
        "docs/first-login.md",
        "node-access ssh",
        RunBy(f"{_CLIENT}::test_ssh_asks_for_a_grant_runs_a_command_and_revokes_it"),
    ),
    Entry(
        "docs/first-login.md",
        "",
        RunBy("tests/integration/access/test_first_login.py::test_from_the_operators_values_to_alices_certificate"),
    ),
    Entry(
        "docs/first-cluster.md",
        "podman build",
        RunBy("tests/e2e/test_container_image.py::test_nodes_join_by_a_controller_in_a_container"),
    ),
    Entry(
        "docs/first-cluster.md",
        "podman push",
        RunBy("tests/e2e/test_container_image.py::test_a_registry_gives_back_what_the_documents_push"),
    ),
    Entry(
        "docs/first-cluster.md",
        "",
        RunBy("tests/e2e/test_first_cluster.py::test_a_new_user_gets_from_nothing_to_enforce_and_mends_a_refused_node"),
    ),
    Entry(
        "docs/high-availability.md",
        "node-attestation-controller run --config attestors.yaml --shards",
        RunBy("tests/e2e/test_shards.py::test_replicas_that_share_shards_are_killed_and_told_to_stop"),
    ),
    Entry(
        "docs/high-availability.md",
        "node-attestation-controller run",
        RunBy("tests/e2e/test_leader_election.py::test_replicas_that_are_killed_and_told_to_stop"),
    ),
    Entry("docs/high-availability.md", "kubectl get", _READ),
    Entry(
        "docs/high-availability.md",
        "kubectl label",
        RunBy("tests/integration/test_watch_filter.py::test_a_label_that_is_added_and_removed"),
    ),
    Entry(
        "docs/install.md",
        "podman",
        RunBy("tests/e2e/test_container_image.py::test_nodes_join_by_a_controller_in_a_container"),
    ),
    Entry("docs/install.md", "helm", RunBy("tests/e2e/test_deployment.py::test_records_stay_when_the_release_goes")),
    Entry(
        "docs/install.md",
        "clusterctl",
        NotRun("clusterctl is not at hand; tests/deploy/test_packages.py does to the package what it would do"),
    ),
    Entry("docs/install.md", "kubectl get", _READ),
    Entry("docs/install.md", "kubectl apply -k", RunBy("tests/e2e/test_manifests.py::test_a_package_is_accepted")),
    Entry(
        "docs/install.md",
        "kubectl label",
        NotRun(
            "the tests' API server is too old to enforce it; tests/deploy/test_chart.py holds Pods against the standard"
        ),
    ),
    Entry(
        "docs/install.md",
        "kubectl create rolebinding",
        RunBy("tests/documents/test_blocks.py::test_the_command_exists"),
    ),
    Entry(
        "docs/upgrading.md",
        "node-attestation-controller crds",
        RunBy("tests/unit/signer/test_cli.py::test_crds_prints_the_files_of_deploy"),
    ),
    Entry(
        "docs/upgrading.md",
        "kubectl apply -f -",
        RunBy("tests/documents/test_deploy.py::test_the_definitions_are_those_that_the_program_prints"),
    ),
    Entry(
        "docs/upgrading.md",
        "kubectl apply -f deploy/crds-cel",
        RunBy("tests/e2e/test_refused_at_the_api.py::test_a_policy_that_only_a_rule_refuses"),
    ),
    Entry(_QUICK_START, "kind", _NO_KIND),
    Entry(_QUICK_START, "docker", _NO_KIND),
    Entry(_QUICK_START, "helm", _NO_KIND),
    Entry(_QUICK_START, "env CLUSTER_TOPOLOGY=true clusterctl", _NO_KIND),
    Entry(_QUICK_START, "clusterctl", _NO_KIND),
    Entry(_QUICK_START, "kubectl apply -f -", NotRun("takes what clusterctl prints, which is not run")),
    Entry(
        _QUICK_START,
        "kubectl apply -f deploy/kind/workers.yaml",
        RunBy("tests/documents/test_quickstart.py::test_the_bootstrap_data_is_cluster_apis"),
    ),
    Entry(
        _QUICK_START,
        "kubectl scale",
        NotRun("nothing here makes Machines of a MachineDeployment; the test makes the Machine"),
    ),
    Entry(
        "docs/playground.md",
        "",
        RunBy("tests/e2e/test_playground.py::test_a_newcomer_gets_from_the_checkout_to_enforce"),
    ),
    Entry(_QUICK_START, "", _TRIED),
)
"""The first that fits counts."""


def handling_of(document: Path, command: Sequence[str]) -> Handling | None:
    """What becomes of a command; None where nobody says."""
    return next((entry.handling for entry in TABLE if entry.fits(document, command)), None)
