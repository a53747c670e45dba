"""The roles of ``workload-kubeconfig``: those of ``deploy/rbac``, all needed by ``tests/documents/test_grants.py``."""

from __future__ import annotations

from pathlib import Path

from signer.cli.workload_kubeconfig import roles
from signer.cli.workload_kubeconfig.features import Feature
from signer.cli.workload_kubeconfig.roles import (
    ACCOUNT,
    ACCOUNT_OBJECT,
    ROLE_FILES,
    unwanted_bindings,
    wanted_objects,
)
from tests.support.yaml_documents import safe_load_all

DEPLOYED = Path(__file__).parents[3] / "deploy/rbac"
OURS = Path(roles.__file__).parent
EVERY = tuple(Feature)


def test_the_files_of_deploy_are_copies() -> None:
    deployed = {path.name: path.read_text() for path in DEPLOYED.glob("workload*.yaml")}
    assert deployed == {path.name: path.read_text() for path in OURS.glob("*.yaml")}
    assert deployed.keys() == set(ROLE_FILES)


def test_every_object_of_the_files_has_a_feature() -> None:
    in_files = [document for name in ROLE_FILES for document in safe_load_all((OURS / name).read_text())]
    made = wanted_objects(EVERY, ("keyed-mac",))
    assert [(one.body["kind"], one.name) for one in made[1:]] == [
        (document["kind"], document["metadata"]["name"]) for document in in_files
    ]
    for one, document in zip(made[1:], in_files, strict=True):
        assert one.body.get("rules") == document.get("rules"), one.title


def test_only_the_account_gets_what_is_the_controllers() -> None:
    users = [subject for one in wanted_objects(EVERY, ()) for subject in one.body.get("subjects", ())]
    assert {(one["kind"], one["name"]) for one in users} == {("ServiceAccount", ACCOUNT), ("Group", "system:nodes")}


def test_signers_are_those_of_the_policys_attestors() -> None:
    (role,) = [one for one in wanted_objects((), ("tpm", "aws")) if one.name == "node-attestation-workload"][:1]
    (names,) = [rule["resourceNames"] for rule in role.body["rules"] if rule["resources"] == ["signers"]]
    assert {name.rpartition("-")[2] for name in names} == {"tpm", "aws"}
    assert len(names) == 4
    builtin = next(one for one in wanted_objects((), ()) if one.name == "node-attestation-builtin-serving")
    assert builtin.body["rules"][0]["resourceNames"] == ["kubernetes.io/kubelet-serving"]


def test_nothing_of_a_feature_that_is_not_wanted() -> None:
    names = {one.name for one in wanted_objects((), ())}
    assert not names & {"node-attestation-auto-approval", "node-attestation-bootstrap-tokens", "node-attestation-ssh"}
    assert "node-attestation-admission-policies" in {one.name for one in wanted_objects((Feature.ENFORCE,), ())}
    assert unwanted_bindings(EVERY) == ()
    assert ACCOUNT_OBJECT not in unwanted_bindings(())
    assert {one.body["kind"] for one in unwanted_bindings(())} == {"ClusterRoleBinding", "RoleBinding"}
