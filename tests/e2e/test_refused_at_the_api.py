"""A wrong policy is refused by ``kubectl apply``, with a sentence that names the field and what is allowed.

On the embedded API and on the real kube-apiserver; what only CEL can say where the real one is of 1.25 or newer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signer.crds import CRD_FILES
from signer.crds.expressions import FIRST_VERSION, POLICY_FILE
from signer.testing.api import EmbeddedAPI
from tests.conformance.api import version_of
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load_all

pytestmark = pytest.mark.slow

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
DEFINITIONS: Final = Path(__file__).parents[2] / "signer" / "crds"
API = EmbeddedAPI | ControlPlane
ONE: Final = [{"name": "tpm"}]


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=(pytest.mark.real, pytest.mark.slow))])
def api(request: pytest.FixtureRequest) -> Iterator[API]:
    """An API server with our definitions."""
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    if request.param == "real":
        control_plane: ControlPlane = request.getfixturevalue("real_control_plane")
        control_plane.install_crds(DEFINITIONS / name for name in CRD_FILES)
        yield control_plane
        return
    with EmbeddedAPI() as embedded:
        embedded.install_crds(DEFINITIONS / name for name in CRD_FILES)
        yield embedded


def manifest(kind: str, name: str, spec: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
    )


def refusal(api: API, applied: str) -> str:
    """What kubectl prints when the API server does not take it."""
    result = run_kubectl(api.kubeconfig(), ["apply", "-f", "-"], standard_input=applied)
    assert result.returncode != 0, result.stdout
    return result.stderr


def assert_says(said: str, words: tuple[str, ...]) -> None:
    """The field and what is allowed; before 1.25, kubectl finds some of it by itself, and words it its own way."""
    for word in words:
        assert word.lower() in said.lower(), said


def policy(**spec: Any) -> str:
    return manifest("NodeAttestationPolicy", "wrong", {"authorizedAttestors": ONE, **spec})


def certificates(**durations: Any) -> str:
    return policy(certificates=durations)


SSH_KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
SSH_SECURITY_KEY: Final = "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAAB"


def revoking(what: str, *entries: object) -> str:
    """A policy with these revocations."""
    return policy(ssh={"revoked": {what: list(entries)}})


WRONG: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "mode": (policy(mode="enforce"), ("spec.mode", '"Observe"', '"Enforce"')),
    "node-client authority": (
        policy(nodeClientAuthority="separate"),
        ("spec.nodeClientAuthority", '"Shared"', '"Separate"'),
    ),
    "a break-glass key with a comment": (
        policy(ssh={"breakGlass": {"publicKeys": [{"key": f"{SSH_KEY} root"}]}}),
        ("spec.ssh.breakGlass.publicKeys", "should match"),
    ),
    "a break-glass key with options": (
        policy(ssh={"breakGlass": {"publicKeys": [{"key": f"no-pty {SSH_KEY}"}]}}),
        ("spec.ssh.breakGlass.publicKeys", "should match"),
    ),
    "a break-glass key twice": (
        policy(ssh={"breakGlass": {"publicKeys": [{"key": SSH_KEY}, {"key": SSH_KEY, "comment": "again"}]}}),
        ("spec.ssh.breakGlass.publicKeys[1]", "Duplicate"),
    ),
    "nine break-glass keys": (
        policy(ssh={"breakGlass": {"publicKeys": [{"key": f"{SSH_KEY[:-1]}{end}"} for end in "ABCDEFGHI"]}}),
        ("spec.ssh.breakGlass.publicKeys", "8"),
    ),
    "a master secret without a name": (
        policy(ssh={"masterSecretRef": {"generations": [0]}}),
        ("spec.ssh.masterSecretRef", "name", "required"),
    ),
    "a master secret elsewhere": (
        policy(ssh={"masterSecretRef": {"name": "../a"}}),
        ("spec.ssh.masterSecretRef.name", "should match"),
    ),
    "three generations of a master secret": (
        policy(ssh={"masterSecretRef": {"name": "a", "generations": [0, 1, 2]}}),
        ("spec.ssh.masterSecretRef.generations", "2"),
    ),
    "a serial number 0 to revoke": (revoking("serials", "0"), ("spec.ssh.revoked.serials", "should match")),
    "a serial number of 20 digits": (revoking("serials", "1" * 20), ("spec.ssh.revoked.serials", "19")),
    "a serial number that is none": (revoking("serials", 7), ("spec.ssh.revoked.serials", "string")),
    "a key id with a space": (revoking("keyIDs", "a b"), ("spec.ssh.revoked.keyIDs", "should match")),
    "a key id of 1025 characters": (revoking("keyIDs", "a" * 1025), ("spec.ssh.revoked.keyIDs", "1024")),
    "a key id twice": (revoking("keyIDs", "a", "a"), ("spec.ssh.revoked.keyIDs[1]", "Duplicate")),
    "1001 key ids": (revoking("keyIDs", *map(str, range(1001))), ("spec.ssh.revoked.keyIDs", "1000")),
    "a revoked key with a comment": (
        revoking("publicKeys", f"{SSH_KEY} root"),
        ("spec.ssh.revoked.publicKeys", "should match"),
    ),
    "no attestor": (policy(authorizedAttestors=[]), ("spec.authorizedAttestors", "at least 1")),
    "attestors missing": (manifest("NodeAttestationPolicy", "wrong", {}), ("authorizedAttestors", "spec", "required")),
    "too many attestors": (
        policy(authorizedAttestors=[{"name": f"a{number}"} for number in range(17)]),
        ("spec.authorizedAttestors", "16"),
    ),
    "attestor twice": (policy(authorizedAttestors=[*ONE, *ONE]), ("spec.authorizedAttestors[1]", "Duplicate", "tpm")),
    "attestor without a name": (
        policy(authorizedAttestors=[{"settings": {}}]),
        ("authorizedAttestors", "name", "required"),
    ),
    "attestor's name": (policy(authorizedAttestors=[{"name": "TPM"}]), ("authorizedAttestors", "name", "[a-z0-9]")),
    "attestor's long name": (policy(authorizedAttestors=[{"name": "a" * 41}]), ("authorizedAttestors", "name", "40")),
    "attestor's settings": (policy(authorizedAttestors=[{"name": "tpm", "settings": "x"}]), ("settings", "object")),
    "attestors as text": (policy(authorizedAttestors="tpm"), ("spec.authorizedAttestors", "array")),
    "source of node names": (policy(nodeNames={"sources": ["NodeRef"]}), ("spec.nodeNames.sources", '"ProviderID"')),
    "reuse of node names": (policy(nodeNameReuse="Never"), ("spec.nodeNameReuse", '"AfterExpiry"', '"Immediate"')),
    "approval by others": (policy(approvalByOthers="Honour"), ("spec.approvalByOthers", '"Refuse"', '"Honor"')),
    "built-in serving requests": (
        policy(builtinServingRequests="Deny"),
        ("spec.builtinServingRequests", '"FollowMode"'),
    ),
    "untraceable tokens": (
        policy(bootstrapTokens={"untraceable": "Deny"}),
        ("spec.bootstrapTokens.untraceable", '"Allow"', '"Refuse"'),
    ),
    "tokens of pools": (
        policy(bootstrapTokens={"machinePools": "Keep"}),
        ("spec.bootstrapTokens.machinePools", '"Rotate"', '"Extend"'),
    ),
    "duration in days": (certificates(clientDuration="7d"), ("spec.certificates.clientDuration", "[0-9]{1,6}h")),
    "duration as a number": (certificates(servingDuration=168), ("spec.certificates.servingDuration", "string")),
    "empty duration": (certificates(insecureDuration=""), ("spec.certificates.insecureDuration", "at least 2")),
    "no spec": (
        json.dumps({**json.loads(policy()), "spec": None}),
        ("spec", "required"),
    ),
    "name that no Cluster can have": (
        manifest("NodeAttestationPolicy", "x" * 64, {"authorizedAttestors": ONE}),
        ("metadata.name", "63"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_policy(api: API, case: str) -> None:
    applied, words = WRONG[case]
    said = refusal(api, applied)
    assert_says(said, words)


def test_a_field_of_another_name_is_not_passed_over(api: API) -> None:
    said = refusal(api, policy(modus="Enforce"))
    assert "modus" in said, said


RESERVATION: Final[dict[str, Any]] = {
    "machineRef": {"namespace": "default", "clusterName": "prod", "kind": "Machine", "name": "m"},
    "providerID": "test:///m",
    "attestor": "tpm",
    "identity": "i",
    "security": "secure",
    "seal": "s",
}
RECORD: Final[dict[str, Any]] = {
    "clusterName": "prod",
    "machineRef": {"kind": "Machine", "name": "m", "uid": "u"},
    "providerID": "test:///m",
    "nodeName": "m",
    "attestor": "tpm",
    "security": "secure",
    "identity": "i",
    "firstAttestationTime": "2026-03-01T12:00:00Z",
    "lastAttestationTime": "2026-03-01T12:00:00Z",
    "lastNotAfter": "2026-03-08T12:00:00Z",
    "droppedNotAfter": "1970-01-01T00:00:00Z",
    "certificates": [],
    "seal": "v2.x",
}


REFERENCE: Final[dict[str, Any]] = {
    "digest": "a" * 64,
    "publicKeyHash": "sha256:" + "b" * 64,
    "notAfter": "2036-03-01T12:00:00Z",
}
ROTATION: Final[dict[str, Any]] = {
    "rotationID": "abcdef27",
    "sequence": 7,
    "phase": "Completing",
    "step": "DropOld",
    "authorities": [{"kind": "ca", "old": REFERENCE, "new": REFERENCE}, {"kind": "sa", "old": REFERENCE}],
    "workersRollout": "ByController",
    "takesBack": "NewWithOld",
    "operation": "u/7",
    "waits": {"trustAgeSeconds": 600, "overlapSeconds": 86400, "openWatchesSeconds": 0},
    "startedTime": "2026-03-01T12:00:00Z",
    "skippedGates": [{"gate": "overlap", "time": "2026-03-01T12:00:00Z"}],
    "heldAt": "SignServing",
    "seal": "v2.x",
}


@pytest.mark.parametrize(
    ("kind", "good", "wrong", "words"),
    [
        ("IdentityReservation", RESERVATION, {"security": "some"}, ("spec.security", '"secure"', '"insecure"')),
        ("IdentityReservation", RESERVATION, {"seal": None}, ("spec", "seal", "required")),
        ("IdentityReservation", RESERVATION, {"providerID": ""}, ("spec.providerID", "at least 1")),
        (
            "IdentityReservation",
            RESERVATION,
            {"machineRef": {"name": "m"}},
            ("spec.machineRef", "clusterName", "required"),
        ),
        ("AttestedNode", RECORD, {"seal": None}, ("spec", "seal", "required")),
        ("AttestedNode", RECORD, {"lastNotAfter": "tomorrow"}, ("spec.lastNotAfter", "date-time")),
        ("AttestedNode", RECORD, {"machineRef": {"kind": "Pod", "name": "m", "uid": "u"}}, ("machineRef.kind", "Pod")),
        ("AttestedNode", RECORD, {"droppedNotAfter": None}, ("spec", "droppedNotAfter", "required")),
        ("AttestedNode", RECORD, {"certificates": None}, ("spec", "certificates", "required")),
        ("AttestedNode", RECORD, {"certificates": ["{}"] * 49}, ("spec.certificates", "48")),
        ("AttestedNode", RECORD, {"certificates": ["x" * 6145]}, ("spec.certificates", "6144")),
        ("AttestedNode", RECORD, {"certificates": [{}]}, ("spec.certificates", "string")),
        ("CertificateAuthorityRotation", ROTATION, {"seal": None}, ("spec", "seal", "required")),
        ("CertificateAuthorityRotation", ROTATION, {"rotationID": "ABCDEF27"}, ("spec.rotationID", "[a-z2-7]{8}")),
        ("CertificateAuthorityRotation", ROTATION, {"sequence": 0}, ("spec.sequence", "1")),
        ("CertificateAuthorityRotation", ROTATION, {"step": "Next"}, ("spec.step", '"Forget"')),
        ("CertificateAuthorityRotation", ROTATION, {"authorities": []}, ("spec.authorities", "at least 1")),
        (
            "CertificateAuthorityRotation",
            ROTATION,
            {"authorities": [{"kind": "ca", "old": REFERENCE}, {"kind": "ca", "old": REFERENCE}]},
            ("spec.authorities[1]", "Duplicate"),
        ),
        (
            "CertificateAuthorityRotation",
            ROTATION,
            {"authorities": [{"kind": "ca", "old": {**REFERENCE, "digest": "a"}}]},
            ("old.digest", "{64}"),
        ),
        (
            "CertificateAuthorityRotation",
            ROTATION,
            {"waits": {"trustAgeSeconds": 7776001, "overlapSeconds": 0, "openWatchesSeconds": 0}},
            ("spec.waits.trustAgeSeconds", "7776000"),
        ),
    ],
)
def test_a_wrong_record(
    api: API, kind: str, good: dict[str, Any], wrong: dict[str, Any], words: tuple[str, ...]
) -> None:
    spec = {key: value for key, value in {**good, **wrong}.items() if value is not None}
    said = refusal(api, manifest(kind, "wrong", spec))
    assert_says(said, words)


def test_kubectl_shows_a_rotation(api: API) -> None:
    """By its short name, and nothing of it is lost."""
    applied = run_kubectl(
        api.kubeconfig(),
        ["apply", "-f", "-"],
        standard_input=manifest("CertificateAuthorityRotation", "rotated", ROTATION),
    )
    assert applied.returncode == 0, applied.stderr
    stored = json.loads(run_kubectl(api.kubeconfig(), ["get", "car", "rotated", "--output", "json"]).stdout)
    assert stored["spec"] == ROTATION
    head, row = run_kubectl(api.kubeconfig(), ["get", "car", "rotated"]).stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "STEP", "STARTED", "SEQUENCE"]
    assert [word for word in row.split() if word in ("rotated", "Completing", "DropOld", "7")] == [
        *("rotated", "Completing", "DropOld", "7")
    ]
    head, row = run_kubectl(api.kubeconfig(), ["get", "car", "rotated", "--output", "wide"]).stdout.splitlines()
    assert head.endswith("ROTATION ID")
    assert row.split()[-1] == "abcdef27"


SERVER: Final = {"machine": "m", "presents": "NewLinked", "acceptsOld": "Refused", "acceptsNew": "Unknown"}
PROGRESS: Final[dict[str, Any]] = {
    "phase": "Completing",
    "gepPhase": "Finalize",
    "step": "DropOld",
    "lastInitiationTime": "2026-03-01T12:00:00Z",
    "pendingWorkersRollouts": [{"name": "workers", "lastInitiationTime": "2026-03-01T12:00:00Z"}],
    "rotationID": "abcdef27",
    "rollbackAvailable": "ClientsOnly",
    "linkNotAfter": "2026-04-01T12:00:00Z",
    "current": {"hash": REFERENCE["publicKeyHash"], "notAfter": "2036-03-01T12:00:00Z"},
    "nodes": {"total": 50, "trustNew": 49, "clientByNew": 49, "servingByNew": 0, "lagging": ["worker-7"]},
    "apiServers": [{**SERVER, "time": "2026-03-01T12:00:00Z"}],
    "skippedGates": ROTATION["skippedGates"],
}


def patched_status(api: API, **changes: Any) -> Any:
    """The answer to a status of a policy with that progress."""
    name = {"metadata": {"name": "progress", "namespace": "default"}}
    path = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/default/nodeattestationpolicies"
    status = {"credentials": {"rotation": {"certificateAuthorities": {**PROGRESS, **changes}}}}
    spec = json.loads(policy())["spec"]
    kind = {"apiVersion": "attestation.cluster.x-k8s.io/v1alpha1", "kind": "NodeAttestationPolicy"}
    with RawClient(api.connection()) as client:
        client.post(path, {**kind, **name, "spec": spec}).expect(201, 409)
        current = client.get(f"{path}/progress").expect(200)
        return client.put(f"{path}/progress/status", {**current, "status": status})


def test_the_status_of_a_policy_shows_the_rotation(api: API) -> None:
    stored = patched_status(api).expect(200)
    assert stored["status"]["credentials"]["rotation"]["certificateAuthorities"] == PROGRESS
    shown = run_kubectl(api.kubeconfig(), ["get", "nap", "progress", "--output", "wide"]).stdout
    assert "ROTATION" in shown
    assert "Completing" in shown
    assert "ROTATION" not in run_kubectl(api.kubeconfig(), ["get", "nap", "progress"]).stdout


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "Done"},
        {"gepPhase": "Preparing"},
        {"gepPhase": ""},
        {"apiServers": [SERVER] * 17},
        {"apiServers": [{**SERVER, "presents": "Newer"}]},
        {"nodes": {"lagging": ["n"] * 11}},
        {"pendingWorkersRollouts": [{"name": "p"}] * 101},
        {"current": {"hash": "x", "notAfter": "2036-03-01T12:00:00Z"}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_status_of_another_form_is_refused(api: API, changes: dict[str, Any]) -> None:
    patched_status(api, **changes).expect(422)


@pytest.mark.parametrize("file", sorted((DEPLOY / "policies").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_example_policies_are_taken(api: API, file: Path) -> None:
    (example,) = safe_load_all(file.read_text(encoding="utf-8"))
    example["metadata"]["namespace"] = "default"
    applied = run_kubectl(api.kubeconfig(), ["apply", "-f", "-"], standard_input=json.dumps(example))
    assert applied.returncode == 0, applied.stderr
    run_kubectl(api.kubeconfig(), ["delete", "-f", "-"], standard_input=json.dumps(example))


# What only CEL can say.


@pytest.fixture(scope="module")
def real(real_control_plane: ControlPlane) -> tuple[ControlPlane, tuple[int, int]]:
    """The real API server with our definitions, and its version. The embedded one evaluates no CEL."""
    real_control_plane.install_crds(DEFINITIONS / name for name in CRD_FILES)
    with RawClient(real_control_plane.connection()) as client:
        return real_control_plane, version_of(client)


@pytest.fixture(scope="module")
def rules(real: tuple[ControlPlane, tuple[int, int]]) -> Iterator[ControlPlane]:
    """The API server with the overlay, where it is new enough to evaluate it."""
    api, version = real
    if version < FIRST_VERSION:
        found = f"kube-apiserver {version[0]}.{version[1]}"
        pytest.skip(f"{found} evaluates no CEL: set KUBEBUILDER_ASSETS to 1.25 or newer")
    api.install_crds([DEPLOY / "crds-cel" / POLICY_FILE])
    yield api
    api.install_crds([DEFINITIONS / POLICY_FILE])


INSECURE: Final = [{"name": "insecure"}]
WRONG_BY_RULE: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "too short": (certificates(clientDuration="59m"), ("spec.certificates.clientDuration", "from 1h to 8784h")),
    "too long": (certificates(servingDuration="8784h1s"), ("spec.certificates.servingDuration", "from 1h to 8784h")),
    "zero": (certificates(insecureDuration="0h"), ("spec.certificates.insecureDuration", "from 1h to 8784h")),
    "too short while deleting": (certificates(deletingDuration="59m"), ("spec.certificates.deletingDuration", "or 0s")),
    "Enforce without attestation": (
        policy(mode="Enforce", authorizedAttestors=INSECURE),
        ("spec", "mode Enforce needs an attestor"),
    ),
    "SSH host certificates for too long": (
        policy(ssh={"hostCertificateDuration": "8785h"}),
        ("spec.ssh.hostCertificateDuration", "from 1h to 8784h"),
    ),
    "a period of an hour": (policy(ssh={"rotationPeriod": "1h"}), ("spec.ssh.rotationPeriod", "from 24h to 87840h")),
    "a node-client authority beside other CAs": (
        policy(nodeClientAuthority="Separate", certificateAuthorities={"client": "cca", "serving": "ca"}),
        ("spec", "nodeClientAuthority Separate needs ca as client and serving"),
    ),
}
RIGHT_BY_RULE: Final = {
    "least and most": certificates(clientDuration="1h", servingDuration="8784h", insecureDuration="90m"),
    "none while deleting": certificates(deletingDuration="0s"),
    "an hour while deleting": certificates(deletingDuration="1h"),
    "Enforce": policy(mode="Enforce", authorizedAttestors=[*ONE, *INSECURE]),
    "a node-client authority": policy(nodeClientAuthority="Separate"),
    "SSH": policy(ssh={}),
    "everything of SSH": policy(
        ssh={
            "hostCertificateDuration": "8784h",
            "breakGlass": {"publicKeys": [{"key": SSH_KEY, "comment": "in the safe"}, {"key": SSH_SECURITY_KEY}]},
            "revoked": {"keyIDs": ["ssh-sign/a@b"], "serials": ["9" * 19], "publicKeys": [SSH_KEY, SSH_SECURITY_KEY]},
            "masterSecretRef": {"name": "break-glass", "generations": [0, 1]},
            "rotationPeriod": "2160h",
        }
    ),
    "Observe without attestation": policy(mode="Observe", authorizedAttestors=INSECURE),
    "Extend without Enforce, to be able to leave it in one step": policy(bootstrapTokens={"machinePools": "Extend"}),
    "Extend under Enforce": policy(mode="Enforce", bootstrapTokens={"machinePools": "Extend"}),
}


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG_BY_RULE)
def test_a_policy_that_only_a_rule_refuses(rules: ControlPlane, case: str) -> None:
    applied, words = WRONG_BY_RULE[case]
    said = refusal(rules, applied)
    assert_says(said, words)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("case", RIGHT_BY_RULE)
def test_a_policy_that_the_rules_allow(rules: ControlPlane, case: str) -> None:
    applied = run_kubectl(rules.kubeconfig(), ["apply", "-f", "-"], standard_input=RIGHT_BY_RULE[case])
    assert applied.returncode == 0, applied.stderr


@pytest.mark.real
@pytest.mark.slow
def test_an_older_api_server_does_not_get_the_overlay_by_mistake(real: tuple[ControlPlane, tuple[int, int]]) -> None:
    """Why it is an overlay: kubectl refuses it, and the plain definition stays."""
    api, version = real
    if version >= FIRST_VERSION:
        pytest.skip(f"kube-apiserver {version[0]}.{version[1]} evaluates CEL")
    said = refusal(api, (DEPLOY / "crds-cel" / POLICY_FILE).read_text(encoding="utf-8"))
    assert "x-kubernetes-validations" in said
    group, plural = POLICY_FILE.removesuffix(".yaml").split("_")
    with RawClient(api.connection()) as client:
        stored = client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}").expect(200)
    assert "x-kubernetes-validations" not in json.dumps(stored)
