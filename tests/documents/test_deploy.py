"""What ``deploy/`` holds is accepted by an API server, and is what the program prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from signer.crds import CRD_FILES, custom_resource_definitions
from signer.model.floors import NO_FLOOR
from signer.model.policy import InvalidPolicy, parse_policy
from signer.testing.api import APIError, EmbeddedAPI
from tests.documents.markdown import ROOT
from tests.documents.test_blocks import assert_applies
from tests.support.yaml_documents import safe_load, safe_load_all

POLICIES = sorted((ROOT / "deploy/policies").glob("*.yaml"))
policies = pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.stem)


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as embedded:
        embedded.install_crds(ROOT / "deploy/crds" / name for name in CRD_FILES)
        embedded.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "trial"}})
        yield embedded


def test_the_definitions_are_those_that_the_program_prints() -> None:
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "deploy/crds").iterdir()}
    assert files == dict(zip(CRD_FILES, custom_resource_definitions(), strict=True)), "run make generate"


@policies
def test_a_policy_is_accepted_and_can_be_followed(file: Path, api: EmbeddedAPI) -> None:
    [manifest] = safe_load_all(file.read_text(encoding="utf-8"))
    assert_applies(api, manifest)
    stored = api.get("nodeattestationpolicies", manifest["metadata"]["name"], manifest["metadata"]["namespace"])
    assert parse_policy(stored, NO_FLOOR).authorized_attestors


@policies
def test_a_policy_is_explained(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# ")
    assert f"policies/{file.name}" in (ROOT / "deploy/README.md").read_text(encoding="utf-8")


def test_the_explicit_policy_has_every_field() -> None:
    definition = safe_load(custom_resource_definitions()[0])
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec = safe_load((ROOT / "deploy/policies/explicit.yaml").read_text(encoding="utf-8"))["spec"]
    assert set(spec) == set(schema)
    for part in ("certificates", "bootstrapTokens", "nodeNames"):
        assert set(spec[part]) == set(schema[part]["properties"])
    assert set(spec["ssh"]["access"]) == set(schema["ssh"]["properties"]["access"]["properties"])
    assert set(spec["ssh"]) | {"masterSecretRef"} == set(schema["ssh"]["properties"])  # it would need a Secret


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "Maybe"),
        ("authorizedAttestors", []),
        ("nodeNames", {"sources": ["NodeRef"]}),
        ("certificates", {"clientDuration": "1d"}),
    ],
)
def test_a_wrong_policy_is_refused_by_the_schema(path: str, value: object, api: EmbeddedAPI) -> None:
    """What the tests above rest on."""
    manifest = safe_load((ROOT / "deploy/policies/explicit.yaml").read_text(encoding="utf-8"))
    manifest["metadata"]["name"] = "wrong"
    manifest["spec"][path] = value
    with pytest.raises(APIError, match=path):
        api.create(manifest)


def test_a_duration_out_of_bounds_passes_the_schema_and_not_the_controller(api: EmbeddedAPI) -> None:
    manifest = safe_load((ROOT / "deploy/policies/explicit.yaml").read_text(encoding="utf-8"))
    manifest["metadata"]["name"] = "too-short"
    manifest["spec"]["certificates"]["clientDuration"] = "59m"
    stored = api.create(manifest)
    with pytest.raises(InvalidPolicy, match="clientDuration must be between 1h"):
        parse_policy(stored, NO_FLOOR)
