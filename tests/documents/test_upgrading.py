"""The way back to 0.1.0, which the page on upgrading shows: the journal is written back as it stood there."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from signer.kube.resources import ATTESTED_NODES, SECRETS
from signer.model.record_object import parse_record
from signer.model.seal import RecordSeals
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.fixtures import MakeMachine, MakeNode, StartController, embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.documents.markdown import ROOT
from tests.documents.test_blocks import commands
from tests.documents.test_operators_commands import kubectl
from tests.documents.test_what_is_not_stopped import ATTESTORS, PROVIDER_ID, settings_of
from tests.releases.recording import releases
from tests.support.binaries import MissingPart, skip_or_fail

FORMER = releases()[0]
KEY = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)


@pytest.mark.slow
def test_records_are_written_back_as_0_1_0_wrote_them(
    management_cluster: ManagementCluster,
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    if shutil.which("jq") is None:
        skip_or_fail(MissingPart("jq is not installed: run tests/provision/provision.sh"))
    api, client = embedded_api(management_cluster), management_cluster.client
    make_machine("worker-1", PROVIDER_ID)
    workload_cluster.authorize("keyed-mac")
    controller = attestation_controller(attestors=ATTESTORS)
    node = make_node("worker-1", PROVIDER_ID, "keyed-mac", settings_of(PROVIDER_ID))
    workload_cluster.submit_with_token(node.client_request("join"))
    assert workload_cluster.wait_until_decided("join").reason == "Attested"
    controller.stop()
    path = ATTESTED_NODES.collection(workload_cluster.namespace)
    [written] = client.items(path)
    [former] = FORMER.objects("attestedNodes")[:1]
    assert written["spec"].keys() != former["spec"].keys()

    *_, get, change, replace = [words for block, words in commands() if block.document == ROOT / "docs/upgrading.md"]
    listed = kubectl(api, get[1:])
    changed = subprocess.run(change, input=listed, capture_output=True, text=True, check=True).stdout
    kubectl(api, [*replace[1:], "--validate=false"], changed)  # the embedded API publishes no OpenAPI to validate by

    [back] = client.items(path)
    assert back["spec"].keys() == former["spec"].keys()
    for entries in ("journal", "stockApprovals"):
        assert {frozenset(one) for one in back["spec"][entries]} <= {frozenset(one) for one in former["spec"][entries]}
    record = parse_record(back)
    assert len(record.journal) == 1
    assert RecordSeals(parse_controller_keys(client.get(KEY))).unseal(record) is record
    assert parse_record({**back, "spec": written["spec"]}) == record
