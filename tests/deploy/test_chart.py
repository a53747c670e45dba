"""The Helm chart: values that it refuses, objects that it renders, and files that are generated from it."""

from __future__ import annotations

import argparse
import base64
import functools
import json
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import pytest

from signer.access.admission.mutation import CREATOR_POLICY, mutation_binding_spec, mutation_spec
from signer.access.admission.policies import Controllers, access_policies
from signer.access.admission.webhook import CONFIGURATION_NAME, MUTATE_PATH, VALIDATE_PATH
from signer.access.admission.webhook_certificate import SECRET_NAME
from signer.admission.installation import RIGHTS
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.bastions.configuration import read_bastion_configuration
from signer.bastions.entry import make_parser as bastions_parser
from signer.bastions.targets import OperatorTargets
from signer.cli import run as run_command
from signer.cli.configuration import configuration_of
from signer.cli.leader_election import leader_election
from signer.configuration import (
    AccessPermission,
    AccessSwitchedOff,
    AllowedAuthorities,
    RotationOff,
    RotationSettings,
    Sharding,
    SSHPermission,
    SSHSwitchedOff,
    read_attestors,
    read_configuration_file,
)
from signer.crds.expressions import FIRST_VERSION
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES
from signer.model.rotation_waits import Waits
from signer.model.serving_networks import OperatorNetworks
from signer.rotation.admission_policy import OPERATIONS_POLICY
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy import packages
from tests.deploy.monitoring import MONITORING
from tests.deploy.packages import DEPLOY, ROOT
from tests.documents.generated import parser_of
from tests.integration.replicas import USED_BY_SHARDS
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.helm import CHART, REGISTRY, HelmFailed, find_helm, render_chart, run_helm
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = pytest.mark.slow

EVERYTHING: Final[dict[str, Any]] = {
    "image": {"registry": "registry.example", "digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "pull"}],
    "fullnameOverride": "blue",
    "createNamespace": True,
    "replicas": 3,
    "leaderElection": {"leaseName": "blue"},
    "watch": {"namespace": "team-a", "filter": "blue"},
    "config": {
        "attestors": {"tpm": {"namespaces": ["team-a"], "settings": {"endorsementRootsFolder": "/roots"}}},
        "servingAddresses": {"networksByNamespace": {"team-a": ["10.0.1.0/24"]}},
        "rotation": {"waits": {"overlap": "2h"}, "nodeClientAuthority": {"namespaces": ["team-a"]}},
        "ssh": {"namespaces": ["team-a"]},
        "access": {"namespaces": ["team-a"], "minimumApprovals": 1, "bastionsByNamespace": {"team-a": ["aws"]}},
    },
    "folders": [{"mountPath": "/roots", "configMap": "tpm-roots"}, {"mountPath": "/denied", "secret": "denied"}],
    "providerIDOIDs": ["1.2.3.4", "1.2.3.5"],
    "insecureAttestor": {"enabled": True, "namespaces": ["trial-a", "trial-b"]},
    "rotation": {"enabled": True, "namespaces": ["team-a"]},
    "ssh": {"enabled": True, "namespaces": ["team-a"], "hostKeysOIDs": ["1.2.3.6", "1.2.3.7"]},
    "access": {
        "enabled": True,
        "namespaces": ["team-a"],
        "webhook": {"enabled": True, "port": 9555, "clientAuthorities": "api-servers", "clientNames": ["api-server"]},
        "bastionServiceAccount": "blue-bastions",
    },
    "diagnostics": {"insecure": True},
    "logging": {"format": "text", "verbose": True},
    "auditLog": {"enabled": True},
    "extraArgs": ["--workers-per-cluster=9"],
    "extraEnv": [{"name": "AWS_REGION", "value": "eu-west-1"}],
    "rbac": {
        "inventoryNamespaces": ["team-a"],
        "ownerReferences": True,
        "admissionPolicies": True,
        "infrastructureStatus": True,
        "infrastructureMachines": {"enabled": True, "resources": ["metal3machines"]},
        "bareMetalHosts": True,
        "byoHosts": True,
    },
    "serviceAccount": {"name": "other", "annotations": {"example.com/role": "attestation"}},
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {}}],
        "webhookFrom": [{"ipBlock": {"cidr": "192.0.2.0/29"}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}],
    },
    "strategy": {"type": "Recreate"},
    "priorityClassName": "system-cluster-critical",
    "runAsUser": None,
    "podAnnotations": {"example.com/a": "b"},
    "podLabels": {"example.com/c": "d"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {"nodeAffinity": {}},
}
"""A value for every option."""


@pytest.fixture(autouse=True, scope="module")
def _helm() -> None:
    try:
        find_helm()
    except MissingPart as missing:
        skip_or_fail(missing)


def objects(values: Mapping[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    """The objects that the chart renders."""
    text = _rendered(json.dumps(values), json.dumps(options))
    return [one for one in safe_load_all(text) if one is not None]


@functools.cache
def _rendered(values: str, options: str) -> str:
    return render_chart(json.loads(values), **json.loads(options))


def of_kind(kind: str, values: Mapping[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    return [one for one in objects(values, **options) if one["kind"] == kind]


def bound_roles(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The roles that are bound: those of the controller, and not those for people."""
    bindings = [one for kind in ("RoleBinding", "ClusterRoleBinding") for one in of_kind(kind, values)]
    names = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings}
    roles = [one for kind in ("Role", "ClusterRole") for one in of_kind(kind, values)]
    return [one for one in roles if (one["kind"], one["metadata"]["name"]) in names]


def pod_of(values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The Pod of the Deployment."""
    [deployment] = of_kind("Deployment", values)
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def arguments_of(values: Mapping[str, Any] | None = None) -> list[str]:
    [container] = pod_of(values)["containers"]
    arguments: list[str] = container["args"]
    return arguments


def known_flags() -> set[str]:
    return {flag for action in parser_of("run")._actions for flag in action.option_strings}


def long_flags() -> list[tuple[str, bool]]:
    """The flags of ``run`` besides --help, and whether each takes a value."""
    actions = [one for one in parser_of("run")._actions if one.dest != "help"]
    return [(flag, one.nargs != 0) for one in actions for flag in one.option_strings if flag.startswith("--")]


class TestChart:
    @pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
    def test_helm_finds_nothing_to_criticize(self, values: dict[str, Any]) -> None:
        assert "0 chart(s) failed" in run_helm(["lint", "--strict", str(CHART)], values=values)

    def test_it_is_of_the_program_s_version(self) -> None:
        chart = safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert chart["appVersion"] == project["version"]
        assert chart["version"].replace("-dev.", ".dev") == project["version"]
        metadata = safe_load((DEPLOY / "clusterctl/metadata.yaml").read_text(encoding="utf-8"))
        major, minor = map(int, project["version"].split(".")[:2])
        assert [(one["major"], one["minor"]) for one in metadata["releaseSeries"]][-1] == (major, minor)

    def test_every_value_is_in_the_schema_and_has_a_default(self) -> None:
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
        defaults = safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        assert sorted(_paths(defaults, schema)) == sorted(_paths_of_schema(schema))

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ({"nonsense": 1}, "nonsense"),
            ({"replicas": 0}, "/replicas"),
            ({"image": {}}, "there is no image to pull"),
            ({"image": {"tag": "1.0"}}, "there is no image to pull"),
            ({"extraArgs": ["workers-per-cluster=9"]}, "/extraArgs/0"),
            ({"extraArgs": ["-v"]}, "/extraArgs/0"),
            ({"extraArgs": ["--workers=9"]}, "extraArgs: --workers is no flag of node-attestation-controller run"),
            ({"extraArgs": ["--verbose", "--leader-elects"]}, "extraArgs: --leader-elects is no flag"),
            ({"extraArgs": ["--workers-per-cluster"]}, "write --workers-per-cluster=VALUE as one entry"),
            ({"extraArgs": ["--verbose=true"]}, "--verbose takes no value"),
            ({"rbac": {"secretNamespace": ["default"]}}, "secretNamespace"),
            ({"insecureAttestor": {"enabled": True}}, "/insecureAttestor/namespaces"),
            ({"insecureAttestor": {"namespaces": ["trial"]}}, "/insecureAttestor/namespaces"),
            ({"image": {"digest": "sha256:12"}}, "/image/digest"),
            ({"image": {"registry": "registry.example/"}}, "/image/registry"),
            ({"image": {"repository": "registry.example/attestation:1.0"}}, "/image/repository"),
            ({"config": {"attestors": {"tpm": {"setings": {}}}}}, "/config/attestors/tpm"),
            ({"config": {"attestors": {"tpm": {"namespaces": ["Default"]}}}}, "/config/attestors/tpm/namespaces/0"),
            (
                {"config": {"attestors": {"tpm": {"settingsByNamespace": {"*": {}}}}}},
                "invalid propertyName",
            ),
            (
                {"config": {"attestors": {"tpm": {"settingsByNamespace": {"lab": []}}}}},
                "/config/attestors/tpm/settingsByNamespace/lab",
            ),
            ({"providerIDOIDs": ["1.2"]}, "/providerIDOIDs/0"),
            ({"providerIDOIDs": ["1.2.3", "1.2.3"]}, "/providerIDOIDs"),
            ({"providerIDOIDs": ["1.2.3", "1.2.4", "1.2.5", "1.2.6", "1.2.7"]}, "/providerIDOIDs"),
            ({"ssh": {"hostKeysOIDs": ["1.2"]}}, "/ssh/hostKeysOIDs/0"),
            ({"ssh": {"hostKeysOIDs": ["1.2.3", "1.2.3"]}}, "/ssh/hostKeysOIDs"),
            ({"folders": [{"mountPath": "/roots"}]}, "/folders/0"),
            ({"folders": [{"mountPath": "/roots", "configMap": "a", "secret": "b"}]}, "/folders/0"),
            ({"health": {"port": 80}}, "/health/port"),
            ({"rbac": {"secretNamespaces": ["*"]}}, "/rbac/secretNamespaces/0"),
            ({"terminationGracePeriodSeconds": 5}, "/terminationGracePeriodSeconds"),
            ({"watch": {"namespace": "node-attestation-system"}}, "out of tenants' reach"),
            ({"rbac": {"secretNamespaces": ["default", "node-attestation-system"]}}, "install with --namespace"),
            ({"health": {"port": 8443}}, "must differ"),
            ({"replicas": 2, "leaderElection": {"enabled": False}}, "leaderElection.enabled or shards"),
            ({"config": {"attestors": {"tpm": {}}, "existingSecret": "mine"}}, "not both"),
            (
                {
                    "config": {
                        "certificateAuthorities": {"suffixesByNamespace": {"a": ["ca"]}},
                        "existingSecret": "mine",
                    }
                },
                "not both",
            ),
            (
                {"config": {"certificateAuthorities": {"sharedBy": [["team-a"]]}, "existingSecret": "mine"}},
                "not both",
            ),
            (
                {"config": {"certificateAuthorities": {"sharedBy": ["team-a"]}}},
                "/config/certificateAuthorities/sharedBy/0",
            ),
            (
                {"config": {"certificateAuthorities": {"suffixes": ["-ca"]}}},
                "/config/certificateAuthorities/suffixes/0",
            ),
            (
                {"config": {"servingAddresses": {"networks": ["10.0.1.0/24"]}, "existingSecret": "mine"}},
                "not both",
            ),
            ({"config": {"rotation": {"waits": {"overlap": "2h"}}, "existingSecret": "mine"}}, "not both"),
            (
                {"config": {"rotation": {"nodeClientAuthority": {"namespaces": ["a"]}}, "existingSecret": "mine"}},
                "not both",
            ),
            (
                {"config": {"rotation": {"nodeClientAuthority": {"namespaces": ["team-a"]}}}},
                "config.rotation.nodeClientAuthority: set rotation.enabled too",
            ),
            (
                {"config": {"rotation": {"nodeClientAuthority": {"namespaces": ["Team"]}}}},
                "/config/rotation/nodeClientAuthority/namespaces/0",
            ),
            ({"config": {"ssh": {"namespaces": ["a"]}, "existingSecret": "mine"}}, "not both"),
            ({"config": {"ssh": {"namespaces": ["team-a"]}}}, "config.ssh: set ssh.enabled too"),
            ({"config": {"ssh": {"namespaces": ["Team"]}}}, "/config/ssh/namespaces/0"),
            ({"ssh": {"enabled": True, "namespaces": ["*"]}}, "/ssh/namespaces/0"),
            ({"access": {"enabled": True}}, "access.enabled: set ssh.enabled too"),
            ({"access": {"namespaces": ["default"]}}, "access.namespaces: set access.enabled too"),
            ({"access": {"webhook": {"enabled": True}}}, "access.webhook: set access.enabled too"),
            (
                {"access": {"webhook": {"clientNames": ["api-server"]}}},
                "access.webhook.clientNames: set access.webhook.clientAuthorities too",
            ),
            (
                {"access": {"webhook": {"clientAuthorities": "api-servers"}}},
                "access.webhook.clientAuthorities: set access.webhook.enabled too",
            ),
            ({"config": {"access": {"namespaces": ["team-a"]}}}, "config.access: set access.enabled too"),
            ({"config": {"access": {"namespaces": ["a"]}, "existingSecret": "mine"}}, "not both"),
            ({"config": {"access": {"minimumApprovals": 9}}}, "/config/access/minimumApprovals"),
            ({"config": {"access": {"bastions": ["None"]}}}, "/config/access/bastions/0"),
            ({"config": {"access": {"gateway": {"host": "ssh.example.com"}}}}, "/config/access/gateway"),
            (
                {"ssh": {"enabled": True}, "access": {"enabled": True, "namespaces": ["team-b"]}},
                "access.namespaces: the controller cannot read Secrets in team-b",
            ),
            ({"ssh": {"namespaces": ["default"]}}, "ssh.namespaces: set ssh.enabled too"),
            ({"ssh": {"enabled": True, "namespaces": ["team-b"]}}, "add it to rbac.secretNamespaces"),
            ({"config": {"rotation": {"waits": {"overlap": "1d"}}}}, "/config/rotation/waits/overlap"),
            ({"config": {"rotation": {"waits": {"kubelets": "1h"}}}}, "invalid propertyName"),
            ({"rotation": {"enabled": True, "namespaces": ["*"]}}, "/rotation/namespaces/0"),
            ({"rotation": {"namespaces": ["default"]}}, "set rotation.enabled too"),
            ({"rotation": {"enabled": True, "namespaces": ["team-b"]}}, "add it to rbac.secretNamespaces"),
            (
                {"rotation": {"enabled": True, "namespaces": ["default"]}, "watch": {"namespace": "team-a"}},
                "watch no other namespace",
            ),
            ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
            ({"auditLog": {"enabled": True, "path": "/audit/log"}}, "a file needs auditLog.persistentVolumeClaim"),
            ({"auditLog": {"enabled": True, "persistentVolumeClaim": "audit"}}, "nothing would be written to"),
            (
                {
                    "replicas": 2,
                    "auditLog": {"enabled": True, "path": "/audit/log", "persistentVolumeClaim": "audit"},
                },
                "one writer",
            ),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_wrong_values_are_refused(self, values: dict[str, Any], says: str) -> None:
        with pytest.raises(HelmFailed, match=says.replace("/", "[./]")):
            render_chart(values)

    @pytest.mark.parametrize(
        ("image", "name"),
        [
            ({"repository": "team/attestation", "tag": "1"}, "team/attestation:1"),
            ({"repository": "loaded", "tag": "1", "pullPolicy": "Never"}, "loaded:1"),
        ],
    )
    def test_an_image_of_a_path_or_on_the_nodes_is_taken(self, image: dict[str, str], name: str) -> None:
        assert pod_of({"image": image})["containers"][0]["image"] == name

    def test_every_flag_of_the_program_is_taken(self) -> None:
        given = [f"{flag}=x" if takes_value else flag for flag, takes_value in long_flags()]
        assert arguments_of({"extraArgs": given})[-len(given) :] == given

    @pytest.mark.parametrize("namespaces", [["*"], ["team-a", "7"], []], ids=" ".join)
    def test_namespaces_of_an_attestor(self, namespaces: list[str]) -> None:
        assert render_chart({"config": {"attestors": {"tpm": {"namespaces": namespaces}}}})

    def test_the_default_namespace_is_refused(self) -> None:
        """Without ``--namespace``, helm uses ``default``, where Clusters are."""
        with pytest.raises(HelmFailed, match="default is the controller's own namespace"):
            render_chart(namespace="default")
        assert render_chart({"rbac": {"secretNamespaces": None}}, namespace="default")

    def test_namespaces_that_look_like_numbers(self) -> None:
        numbers = {"watch": {"namespace": "456"}, "createNamespace": True}
        objects = [*safe_load_all(render_chart(numbers, namespace="123"))]
        found = {one["metadata"].get("namespace", "123") for one in objects if one is not None}
        found |= {of["namespace"] for one in objects if one is not None for of in one.get("subjects", ())}
        assert found == {"123", "456"}

    @pytest.mark.parametrize("name", ["123", "0x1f", "true", "null"])
    def test_names_that_look_like_something_else(self, name: str) -> None:
        values = {
            "image": {"registry": "registry.example:5000"},
            "leaderElection": {"leaseName": name},
            "config": {"existingSecret": name},
            "folders": [{"mountPath": "/a #b", "configMap": name}, {"mountPath": "/c", "secret": name}],
            "auditLog": {"enabled": True, "path": f"/{name}/audit.log", "persistentVolumeClaim": name},
            "serviceAccount": {"name": name},
            "priorityClassName": name,
        }
        found = objects(values, release=name)
        assert {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in found} == {name}
        assert {of["name"] for one in found for of in one.get("subjects", ())} == {name}
        assert [one["metadata"]["name"] for one in found if one["kind"] == "ServiceAccount"] == [name]
        assert name in [of for one in found for rule in one.get("rules", ()) for of in rule.get("resourceNames", ())]
        [pod] = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
        assert (pod["serviceAccountName"], pod["priorityClassName"]) == (name, name)
        config, _, roots, denied, audit = pod["volumes"]
        assert config["secret"]["secretName"] == roots["configMap"]["name"] == denied["secret"]["secretName"] == name
        assert audit["persistentVolumeClaim"]["claimName"] == name
        paths = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]]
        assert paths[-3:] == ["/a #b", "/c", f"/{name}"]

    def test_every_switch_is_rendered(self) -> None:
        """A template uses each of these values."""
        text = render_chart(EVERYTHING)
        for written in (
            'image: "registry.example/capi-node-attestation@sha256:000',
            "name: blue-controller",
            "--leader-elect-resource-name=blue",
            'resourceNames: ["blue"]',
            "--namespace=team-a",
            "--watch-filter=blue",
            "--provider-id-oids=1.2.3.4,1.2.3.5",
            "--ssh-host-keys-oids=1.2.3.6,1.2.3.7",
            "--insecure-attestor-namespaces=trial-a,trial-b",
            "--rotate-authorities",
            "--rotate-authorities-namespaces=team-a",
            "--insecure-diagnostics",
            "--logging-format=text",
            "--verbose",
            "--audit-log-path=-",
            "--workers-per-cluster=9",
            "name: AWS_REGION",
            'name: "tpm-roots"',
            'secretName: "denied"',
            "metal3machines",
            "name: blue-owner-references",
            "example.com/role: attestation",
            "cidr: 192.0.2.1/32",
            "namespaceSelector: {}",
            "type: Recreate",
            'priorityClassName: "system-cluster-critical"',
            "example.com/a: b",
            "example.com/c: d",
            "kubernetes.io/os: linux",
            "nodeAffinity: {}",
            "name: pull",
        ):
            assert written in text, written
        assert "runAsUser" not in text


class TestShards:
    """Shards replace leader election: all replicas are active."""

    VALUES: Final[dict[str, Any]] = {"replicas": 3, "shards": 16, "leaderElection": {"leaseName": "blue"}}

    def test_the_flags(self) -> None:
        arguments = arguments_of(self.VALUES)
        assert [one for one in arguments if "shards" in one or "leader" in one] == [
            "--shards=16",
            "--leader-elect-resource-name=blue",
        ]
        options = parser_of("run").parse_args(arguments[1:])
        assert leader_election(options) == Sharding(16, lease_name="blue")

    def test_the_grants_are_what_replicas_use(self) -> None:
        roles = [one for one in of_kind("Role", self.VALUES) if one["metadata"]["namespace"] == CONTROLLER_NAMESPACE]
        [rule] = [one for role in roles for one in role["rules"] if one["resources"] == ["leases"]]
        assert {("coordination.k8s.io", verb, "leases") for verb in rule["verbs"]} == USED_BY_SHARDS
        assert "resourceNames" not in rule


class TestDeployment:
    def test_its_flags_are_known_to_the_program(self) -> None:
        used = {argument.partition("=")[0] for argument in [*arguments_of(), *arguments_of(EVERYTHING)]} - {"run"}
        assert used - known_flags() == set()

    def test_the_program_accepts_them(self) -> None:
        options = parser_of("run").parse_args(arguments_of()[1:])
        assert isinstance(options, argparse.Namespace)
        assert options.load() is run_command.run_controller

    @pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
    def test_it_keeps_the_restricted_pod_security_standard(self, values: dict[str, Any]) -> None:
        """Kubernetes, "Pod Security Standards", Restricted. The API server of the tests is too old to enforce it."""
        assert violations(pod_of(values)) == []

    def test_a_violation_is_noticed(self) -> None:
        pod = pod_of()
        pod["containers"][0]["securityContext"].pop("allowPrivilegeEscalation")
        pod["volumes"].append({"name": "host", "hostPath": {"path": "/"}})
        pod["hostNetwork"] = True
        assert len(violations(pod)) == 3

    def test_the_root_file_system_is_read_only(self) -> None:
        [container] = pod_of()["containers"]
        assert container["name"] == "manager"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        writable = [one["name"] for one in container["volumeMounts"] if not one.get("readOnly")]
        assert writable == ["temporary"]

    def test_the_insecure_attestor_is_off(self) -> None:
        assert "insecure" not in " ".join(arguments_of())

    def test_the_configuration_is_what_the_program_reads(self, tmp_path: Path) -> None:
        [secret] = of_kind("Secret", EVERYTHING)
        file = tmp_path / "attestors.yaml"
        file.write_bytes(base64.b64decode(secret["data"]["attestors.yaml"]))
        [(provider, attestor)] = read_attestors(file).items()
        assert (provider, attestor.namespaces) == ("tpm", frozenset({"team-a"}))
        assert attestor.settings == {"endorsementRootsFolder": "/roots"}
        networks = read_configuration_file(file).serving_networks
        assert networks == OperatorNetworks((), {"team-a": (ip_network("10.0.1.0/24"),)})
        assert read_configuration_file(file).reserved_names == DEFAULT_RESERVED_NAMES
        assert read_configuration_file(file).authorities == AllowedAuthorities()
        assert read_configuration_file(file).rotation_waits == Waits(overlap=timedelta(hours=2))
        assert read_configuration_file(file).node_client_namespaces == {"team-a"}
        assert read_configuration_file(file).ssh.namespaces == {"team-a"}
        assert read_configuration_file(file).access == AccessPermission(
            frozenset({"team-a"}), minimum_approvals=1, bastions_by_namespace={"team-a": frozenset({"aws"})}
        )

    def test_another_configuration_makes_other_pods(self) -> None:
        def checksum(values: dict[str, Any]) -> str:
            [deployment] = of_kind("Deployment", values)
            found: str = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            return found

        assert checksum({}) != checksum({"config": {"attestors": {"insecure": {"namespaces": []}}}})
        assert checksum({}) != checksum({"config": {"servingAddresses": {"networks": ["10.0.1.0/24"]}}})
        assert checksum({}) != checksum({"config": {"certificateAuthorities": {"suffixes": ["ca"]}}})
        assert checksum({}) != checksum({"config": {"rotation": {"waits": {"overlap": "2h"}}}})

    def test_the_default_strategy_is_explicit(self) -> None:
        """Otherwise Helm's server-side apply would keep rollingUpdate, the API server's default, beside Recreate."""
        [deployment] = of_kind("Deployment", {})
        rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
        assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}

    def test_an_audit_log_on_a_volume_has_one_writer(self) -> None:
        audit = {"enabled": True, "path": "/var/log/node-attestation/audit.log", "persistentVolumeClaim": "audit"}
        [deployment] = of_kind("Deployment", {"auditLog": audit})
        assert deployment["spec"]["strategy"] == {"type": "Recreate"}
        mounts = {one["name"]: one["mountPath"] for one in pod_of({"auditLog": audit})["containers"][0]["volumeMounts"]}
        assert mounts["audit-log"] == "/var/log/node-attestation"


class TestNotes:
    """The notes that helm prints after an installation. ``helm template`` does not render them."""

    WARNING: Final = "WARNING: No attestor is named,"

    @staticmethod
    def said(values: Mapping[str, Any]) -> str:
        install = ["install", "node-attestation", str(CHART), "--namespace", CONTROLLER_NAMESPACE, "--dry-run=client"]
        return run_helm(install, values={"image": {"registry": REGISTRY}, **values}).partition("\nNOTES:\n")[2]

    def test_they_warn_that_every_request_is_denied(self) -> None:
        said = self.said({})
        assert self.WARNING in said
        assert "the controller denies every request" in said

    @pytest.mark.parametrize(
        "configured", [{"attestors": {"tpm": {"namespaces": ["team-a"]}}}, {"existingSecret": "mine"}], ids=" ".join
    )
    def test_they_do_not_warn_with_a_configuration(self, configured: dict[str, Any]) -> None:
        said = self.said({"config": configured})
        assert 'Before "helm uninstall", set spec.mode of every policy to Observe' in said
        assert "The controller never touches a Cluster without a NodeAttestationPolicy." in said
        assert "WARNING" not in said


class TestRotation:
    """The switch for the rotation of CAs, and the roles that come with it alone."""

    ON: Final[dict[str, Any]] = {"rotation": {"enabled": True}}
    NAMESPACES: Final[dict[str, Any]] = {
        "rotation": {"enabled": True, "namespaces": ["team-a"]},
        "rbac": {"secretNamespaces": ["team-a", "team-b"]},
    }
    WRITERS: Final = ("secrets", "kubeadmcontrolplanes", "clusters", "kubeadmconfigs", "certificateauthorityrotations")
    """Resources of Clusters that nothing but the rotation writes."""

    @staticmethod
    def rules(values: Mapping[str, Any] | None = None) -> list[tuple[str, str]]:
        """Each rule, with kind, namespace and name of its role."""
        roles = [one for kind in ("Role", "ClusterRole") for one in of_kind(kind, values)]
        return [
            (f"{role['kind']} {role['metadata'].get('namespace', '')}/{role['metadata']['name']}", json.dumps(rule))
            for role in roles
            for rule in role["rules"]
        ]

    @staticmethod
    def bound(values: Mapping[str, Any]) -> set[tuple[str, str, str]]:
        """Kind, namespace and role of each binding that comes with the switch."""
        bindings = [one for kind in ("RoleBinding", "ClusterRoleBinding") for one in of_kind(kind, values)]
        return {
            (one["kind"], one["metadata"].get("namespace", ""), one["roleRef"]["name"])
            for one in bindings
            if "rotation" in one["roleRef"]["name"]
        }

    @staticmethod
    def settings(values: Mapping[str, Any]) -> RotationSettings | RotationOff:
        """What the program reads from the Deployment's arguments."""
        arguments = [one for one in arguments_of(values)[1:] if not one.startswith("--config=")]
        return configuration_of(parser_of("run").parse_args(arguments)).rotation

    def test_without_the_switch_there_is_no_such_rule(self) -> None:
        """All that the switch adds are roles of its own."""
        added = set(self.rules(self.ON)) - set(self.rules())
        assert set(self.rules()) <= set(self.rules(self.ON))
        assert {role for role, _ in added} == {
            "ClusterRole /node-attestation-rotation",
            "ClusterRole /node-attestation-rotation-records",
            "ClusterRole /node-attestation-rotation-admission",
        }

    def test_no_other_option_lets_the_controller_write_what_rotation_writes(self) -> None:
        wings = {"rotation", "ssh", "access"}
        config = {key: value for key, value in EVERYTHING["config"].items() if key not in wings}
        others = {key: value for key, value in EVERYTHING.items() if key not in wings} | {"config": config}
        for role, text in self.rules(others):
            rule = json.loads(text)
            writes = {"create", "update", "patch", "delete"} & set(rule["verbs"])
            own = role.split()[-1].startswith(f"{CONTROLLER_NAMESPACE}/blue-controller")
            assert own or not writes or not set(self.WRITERS) & set(rule.get("resources", ())), (role, rule)

    def test_the_flag(self) -> None:
        assert self.settings({}) == RotationOff()
        assert self.settings(self.ON) == RotationSettings()
        assert self.settings(self.NAMESPACES) == RotationSettings(frozenset({"team-a"}))

    def test_secrets_are_writable_namespace_by_namespace(self) -> None:
        records = ("ClusterRoleBinding", "", "node-attestation-rotation-records")
        writes = "node-attestation-rotation"
        always = {records, ("ClusterRoleBinding", "", "node-attestation-rotation-admission")}
        assert self.bound({}) == set()
        assert self.bound(self.ON) == {*always, ("RoleBinding", "default", writes)}
        assert self.bound(self.NAMESPACES) == {*always, ("RoleBinding", "team-a", writes)}
        everywhere = {**self.ON, "rbac": {"secretNamespaces": ["team-a", "team-b"]}}
        assert self.bound(everywhere) == {*always, *(("RoleBinding", of, writes) for of in ("team-a", "team-b"))}

    def test_in_one_namespace(self) -> None:
        assert self.bound({**self.ON, "watch": {"namespace": "team-a"}}) == {
            ("RoleBinding", "team-a", "node-attestation-rotation-records"),
            ("RoleBinding", "team-a", "node-attestation-rotation"),
        }, "nothing reaches beyond the namespace"

    def test_the_admission_policy_can_be_left_out(self) -> None:
        without = {"rotation": {"enabled": True, "admissionPolicy": False}}
        groups = {group for _, rule in self.rules(without) for group in json.loads(rule).get("apiGroups", ())}
        assert "admissionregistration.k8s.io" not in groups
        assert not [one for one in self.bound(without) if "admission" in one[2]]

    def test_the_admission_policy_needs_exactly_the_rights_that_its_installation_calls(self) -> None:
        """Nothing is deleted: a policy that stays refuses orders that nobody carries out."""
        rules = [json.loads(rule) for role, rule in self.rules(self.ON) if role.endswith("-rotation-admission")]
        granted = {
            (group, resource, verb, *rule.get("resourceNames", ()))
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert granted == {
            (group, resource, verb, *(() if verb == "create" else (OPERATIONS_POLICY.name,)))
            for group, resource, verbs in RIGHTS
            for verb in verbs
            if verb != "delete"
        }

    def test_the_notes_say_what_the_controller_may_do(self) -> None:
        may = "It may change every Secret in: "
        assert may not in TestNotes.said({})
        assert f"{may}default." in TestNotes.said(self.ON)
        assert f"{may}team-a." in TestNotes.said(self.NAMESPACES)
        assert f"{may}team-a." in TestNotes.said({**self.ON, "watch": {"namespace": "team-a"}})


class TestAround:
    def test_a_disruption_budget_comes_with_replicas(self) -> None:
        assert of_kind("PodDisruptionBudget") == []
        [budget] = of_kind("PodDisruptionBudget", {"replicas": 2})
        assert (budget["apiVersion"], budget["spec"]["maxUnavailable"]) == ("policy/v1", 1)

    def test_nothing_comes_in_but_health_and_diagnostics(self) -> None:
        [policy] = of_kind("NetworkPolicy")
        [container] = pod_of()["containers"]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        [ingress] = policy["spec"]["ingress"]
        assert [port["port"] for port in ingress["ports"]] == [port["containerPort"] for port in container["ports"]]
        out = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert out == [53, 53, 443, 6443]

    def test_definitions_have_rules_where_the_api_server_knows_them(self) -> None:
        before, since = (f"{FIRST_VERSION[0]}.{minor}.0" for minor in (FIRST_VERSION[1] - 1, FIRST_VERSION[1]))
        assert "x-kubernetes-validations" not in render_chart(kube_version=before)
        assert "x-kubernetes-validations" in render_chart(kube_version=since)

    def test_definitions_outlive_the_release(self) -> None:
        for definition in of_kind("CustomResourceDefinition"):
            assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}

    def test_two_releases_share_no_name(self) -> None:
        """Except for the definitions, which one of them installs. They share a namespace, with the reservations."""
        lease = {"leaseName": "blue"}
        second = {"fullnameOverride": "blue", "leaderElection": lease, "crds": {"install": False}}
        names = {(one["kind"], one["metadata"]["name"]) for one in objects()}
        others = {(one["kind"], one["metadata"]["name"]) for one in objects(second)}
        assert not names & others
        assert "--leader-elect-resource-name=blue" in arguments_of(second)

    def test_in_one_namespace_nothing_of_tenants_is_granted_elsewhere(self) -> None:
        values = {**EVERYTHING, "rbac": {**EVERYTHING["rbac"], "bootstrapTokens": True}, "diagnostics": {}}
        everywhere = {one["metadata"]["name"] for one in of_kind("ClusterRoleBinding", values)}
        # No Clusters, Machines or Secrets: only reviews, definitions, and what admission asks.
        assert everywhere == {"blue-diagnostics", "blue-infrastructure-definitions", "blue-access-proof"}
        namespaces = {one["metadata"]["namespace"] for one in of_kind("RoleBinding", values)}
        assert namespaces == {"team-a", "node-attestation-system"}


class TestAdmissionPolicies:
    """The policies for the controller's own ServiceAccount; ``tests/e2e/test_own_admission.py`` has them applied."""

    @staticmethod
    def policies(values: Mapping[str, Any], kube_version: str = "1.30.0") -> dict[str, list[str]]:
        """Names of the policies and of their bindings, by kind."""
        rendered = safe_load_all(render_chart({"rbac": values}, kube_version=kube_version))
        found: dict[str, list[str]] = {}
        for one in filter(None, rendered):
            if one["kind"].startswith("ValidatingAdmissionPolicy"):
                found.setdefault(one["kind"], []).append(one["metadata"]["name"])
        return found

    def test_there_is_one_for_each_role_that_allows_too_much(self) -> None:
        names = [f"node-attestation-{name}" for name in ("policy-owner", "machine-condition", "infrastructure-status")]
        assert self.policies({"admissionPolicies": True, "infrastructureStatus": True}) == {
            "ValidatingAdmissionPolicy": names,
            "ValidatingAdmissionPolicyBinding": names,
        }
        without = {"admissionPolicies": True, "policyOwner": False, "machineCondition": False}
        assert self.policies(without) == {}

    def test_there_is_none_by_default_and_on_older_api_servers(self) -> None:
        assert self.policies({}) == {}
        assert self.policies({"admissionPolicies": True}, "1.29.0") == {}

    def test_they_are_for_the_controllers_own_account(self) -> None:
        values = {"rbac": {"admissionPolicies": True}, "serviceAccount": {"name": "other"}}
        rendered = safe_load_all(render_chart(values, namespace="own", kube_version="1.30.0"))
        conditions = {
            one["spec"]["matchConditions"][0]["expression"]
            for one in filter(None, rendered)
            if one["kind"] == "ValidatingAdmissionPolicy"
        }
        assert conditions == {"request.userInfo.username == 'system:serviceaccount:own:other'"}


class TestRolesOfTheirOwn:
    """What is not needed to attest can be left out."""

    @pytest.mark.parametrize(
        ("switch", "resource", "verb"),
        [
            ("policyOwner", "nodeattestationpolicies", "patch"),
            ("controllerKeyCreation", "secrets", "create"),
            ("bootstrapTokens", "kubeadmconfigs", "list"),
            ("machineCondition", "machines/status", "patch"),
            ("controlPlaneNames", "kubeadmcontrolplanes", "get"),
        ],
    )
    def test_a_switch_takes_its_grant_away(self, switch: str, resource: str, verb: str) -> None:
        def granted(values: Mapping[str, Any]) -> bool:
            rules = [rule for role in bound_roles({"rbac": values}) for rule in role["rules"]]
            return any(resource in rule.get("resources", ()) and verb in rule["verbs"] for rule in rules)

        assert granted({})
        assert not granted({switch: False})


class TestOwnerReferences:
    """The grant for OwnerReferencesPermissionEnforcement; ``tests/e2e/test_owner_references.py`` runs the plugin."""

    @staticmethod
    def may_be_deleted(values: Mapping[str, Any]) -> set[str]:
        """Kinds of the roles that grant deletion of policies."""
        return {
            role["kind"]
            for role in bound_roles(values)
            for rule in role["rules"]
            if "nodeattestationpolicies" in rule.get("resources", ()) and "delete" in rule["verbs"]
        }

    def test_it_is_granted_on_request(self) -> None:
        wanted = {"rbac": {"ownerReferences": True}}
        assert self.may_be_deleted(wanted) == {"ClusterRole"}
        assert self.may_be_deleted({**wanted, "watch": {"namespace": "team-a"}}) == {"Role"}
        [binding] = [
            one for one in of_kind("ClusterRoleBinding", wanted) if one["roleRef"]["name"].endswith("-owner-references")
        ]
        assert [one["name"] for one in binding["subjects"]] == ["node-attestation-controller"]

    def test_no_other_option_grants_deletion_of_policies(self) -> None:
        others = {key: value for key, value in EVERYTHING["rbac"].items() if key != "ownerReferences"}
        assert self.may_be_deleted({"rbac": others}) == set()


def test_generated_files_are_up_to_date() -> None:
    made = packages.generated()
    outdated = [
        str(path.relative_to(ROOT))
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert outdated == [], "run make generate"
    for folder in (packages.BASE, CHART / "files"):
        extra = {path for path in folder.rglob("*") if path.is_file()} - set(made)
        assert extra == set(), "these files are no longer generated"


def violations(pod: dict[str, Any]) -> list[str]:
    """The violations of the Restricted standard in this Pod."""
    context = pod.get("securityContext", {})
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        found.append("seccompProfile")
    if context.get("runAsUser") == 0:
        found.append("runAsUser")
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    found += [f"volume {volume['name']}" for volume in pod["volumes"] if set(volume) - {"name"} - allowed]
    for container in pod["containers"]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation")
        if own.get("privileged"):
            found.append("privileged")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append("capabilities")
        if not own.get("runAsNonRoot", context.get("runAsNonRoot")):
            found.append("runAsNonRoot")
        found += [f"hostPort {port['hostPort']}" for port in container["ports"] if port.get("hostPort")]
    return found


def _paths(values: dict[str, Any], schema: dict[str, Any], above: str = "") -> list[str]:
    found = []
    for name, value in values.items():
        inner = schema.get("properties", {}).get(name, {})
        if isinstance(value, dict) and "properties" in inner:
            found += _paths(value, inner, f"{above}{name}.")
        else:
            found.append(f"{above}{name}")
    return found


def _paths_of_schema(schema: dict[str, Any], above: str = "") -> list[str]:
    found = []
    for name, inner in schema["properties"].items():
        if f"{above}{name}" == "global":
            continue
        found += _paths_of_schema(inner, f"{above}{name}.") if "properties" in inner else [f"{above}{name}"]
    return found


class TestSSH:
    """The switch for SSH authorities, and the role that comes with it alone."""

    ON: Final[dict[str, Any]] = {"ssh": {"enabled": True}}
    NAMESPACES: Final[dict[str, Any]] = {
        "ssh": {"enabled": True, "namespaces": ["team-a"]},
        "rbac": {"secretNamespaces": ["team-a", "team-b"]},
    }

    @staticmethod
    def bound(values: Mapping[str, Any]) -> set[tuple[str, str, str]]:
        """Kind, namespace and role of each binding that comes with the switch."""
        bindings = [one for kind in ("RoleBinding", "ClusterRoleBinding") for one in of_kind(kind, values)]
        return {
            (one["kind"], one["metadata"].get("namespace", ""), one["roleRef"]["name"])
            for one in bindings
            if one["roleRef"]["name"].endswith("-ssh")
        }

    def test_without_the_switch_there_is_no_such_rule(self) -> None:
        rules = TestRotation.rules
        assert set(rules(self.ON)) - set(rules()) == {
            (
                "ClusterRole /node-attestation-ssh",
                json.dumps({"apiGroups": [group], "resources": [resource], "verbs": verbs}),
            )
            for group, resource, verbs in (
                ("", "secrets", ["create", "update"]),
                ("attestation.cluster.x-k8s.io", "nodeattestationpolicies", ["patch"]),
                ("cluster.x-k8s.io", "machinedeployments", ["list"]),
                ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs", ["list"]),
                ("bootstrap.cluster.x-k8s.io", "kubeadmconfigtemplates", ["get"]),
                ("controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes", ["get"]),
                ("infrastructure.cluster.x-k8s.io", "*", ["get", "list"]),
            )
        }
        assert set(rules()) <= set(rules(self.ON))

    def test_the_flag(self) -> None:
        def permission(values: Mapping[str, Any]) -> SSHPermission | SSHSwitchedOff:
            arguments = [one for one in arguments_of(values)[1:] if not one.startswith("--config=")]
            return configuration_of(parser_of("run").parse_args(arguments)).ssh

        assert permission({}) == SSHSwitchedOff()
        assert permission(self.ON) == SSHPermission(), "the configuration file says where"

    def test_secrets_are_writable_namespace_by_namespace(self) -> None:
        writes = "node-attestation-ssh"
        assert self.bound({}) == set()
        assert self.bound(self.ON) == {("RoleBinding", "default", writes)}
        assert self.bound(self.NAMESPACES) == {("RoleBinding", "team-a", writes)}
        assert self.bound({**self.ON, "watch": {"namespace": "team-a"}}) == {("RoleBinding", "team-a", writes)}


class TestAccess:
    """The switch for access grants: definitions, roles, policies or webhook, and the flag come with it alone."""

    ON: Final[dict[str, Any]] = {"ssh": {"enabled": True}, "access": {"enabled": True}}
    WEBHOOK: Final[dict[str, Any]] = {
        "ssh": {"enabled": True},
        "access": {"enabled": True, "webhook": {"enabled": True}},
    }
    GROUP: Final = "access.cluster.x-k8s.io"

    @classmethod
    def new(cls, values: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
        """The objects that come with the switch."""
        before = [json.dumps(one) for one in objects({"ssh": {"enabled": True}}, **options)]
        return [one for one in objects(values, **options) if json.dumps(one) not in before]

    @pytest.mark.parametrize(("version", "has_rules"), [("1.20.2", False), ("1.25.0", True), ("1.36.0", True)])
    def test_the_definitions(self, version: str, has_rules: bool) -> None:
        definitions = [
            one
            for one in of_kind("CustomResourceDefinition", self.ON, kube_version=version)
            if one["spec"]["group"] == self.GROUP
        ]
        assert {one["spec"]["names"]["kind"] for one in definitions} == {"AccessGrant", "AccessApproval", "Bastion"}
        for one in definitions:
            assert ("x-kubernetes-validations" in json.dumps(one)) is has_rules
            assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
            assert not any("clusterctl" in label for label in one["metadata"]["labels"]), "grants are not moved"
        assert self.GROUP not in json.dumps(objects({"ssh": {"enabled": True}}))

    @pytest.mark.parametrize(
        ("version", "kinds"),
        [
            ("1.29.9", set()),
            ("1.30.0", {"Validating"}),
            ("1.35.9", {"Validating"}),
            ("1.36.0", {"Validating", "Mutating"}),
        ],
    )
    def test_the_policies_are_those_of_the_version(self, version: str, kinds: set[str]) -> None:
        found = [one for one in objects(self.ON, kube_version=version) if "AdmissionPolicy" in one["kind"]]
        assert {one["kind"].partition("Admission")[0] for one in found} == kinds
        off = {**self.ON, "access": {"enabled": True, "admissionPolicies": False}}
        assert [one for one in objects(off, kube_version=version) if "AdmissionPolicy" in one["kind"]] == []

    def test_the_policies_are_the_programs_own_and_name_the_service_accounts(self) -> None:
        values = {
            **self.ON,
            "serviceAccount": {"name": "other"},
            "access": {"enabled": True, "bastionServiceAccount": "bastions"},
        }
        found = objects(values, kube_version="1.36.0", namespace="here")
        specs = {(one["kind"], one["metadata"]["name"]): one.get("spec") for one in found if "Policy" in one["kind"]}
        users = Controllers("system:serviceaccount:here:other", "system:serviceaccount:here:bastions")
        for policy in access_policies(users):
            for make in (policy_manifest, binding_manifest):
                body = make(policy, AdmissionVersion.V1).body
                assert specs[body["kind"], body["metadata"]["name"]] == body["spec"]
        assert specs["MutatingAdmissionPolicy", CREATOR_POLICY] == mutation_spec()
        assert specs["MutatingAdmissionPolicyBinding", CREATOR_POLICY] == mutation_binding_spec()

    def test_the_flag(self) -> None:
        def permission(values: Mapping[str, Any]) -> AccessPermission | AccessSwitchedOff:
            arguments = [one for one in arguments_of(values)[1:] if not one.startswith("--config=")]
            return configuration_of(parser_of("run").parse_args(arguments)).access

        assert permission({"ssh": {"enabled": True}}) == AccessSwitchedOff()
        assert permission(self.ON) == AccessPermission(), "the configuration file says where"

    def test_the_controllers_rules(self) -> None:
        writes = {
            (role, json.dumps(json.loads(rule)))
            for role, rule in set(TestRotation.rules(self.ON)) - set(TestRotation.rules({"ssh": {"enabled": True}}))
            if "node-attestation" in role
        }
        group = [self.GROUP]
        assert writes == {
            (f"ClusterRole /node-attestation-{role}", json.dumps(rule))
            for role, rule in (
                (
                    "access-watch",
                    {
                        "apiGroups": group,
                        "resources": ["accessgrants", "accessapprovals", "bastions"],
                        "verbs": ["get", "list", "watch"],
                    },
                ),
                (
                    "access",
                    {
                        "apiGroups": group,
                        "resources": ["accessgrants"],
                        "verbs": ["create", "patch", "update", "delete"],
                    },
                ),
                ("access", {"apiGroups": group, "resources": ["accessapprovals"], "verbs": ["create"]}),
                ("access", {"apiGroups": group, "resources": ["accessgrants/status"], "verbs": ["patch", "update"]}),
                (
                    "access",
                    {"apiGroups": group, "resources": ["bastions"], "verbs": ["create", "patch", "update", "delete"]},
                ),
                ("access", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]}),
                (
                    "access-proof",
                    {
                        "apiGroups": ["admissionregistration.k8s.io"],
                        "resourceNames": [policy.name for policy in access_policies(Controllers("a", "b"))],
                        "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
                        "verbs": ["get"],
                    },
                ),
                (
                    "access-proof",
                    {
                        "apiGroups": ["admissionregistration.k8s.io"],
                        "resourceNames": [CONFIGURATION_NAME],
                        "resources": ["validatingwebhookconfigurations"],
                        "verbs": ["get"],
                    },
                ),
                (
                    "access-proof",
                    {
                        "apiGroups": ["authorization.k8s.io"],
                        "resources": ["subjectaccessreviews"],
                        "verbs": ["create"],
                    },
                ),
            )
        }

    def test_objects_are_writable_namespace_by_namespace(self) -> None:
        def bound(values: Mapping[str, Any]) -> set[tuple[str, str]]:
            return {
                (one["kind"], one["metadata"].get("namespace", ""))
                for kind in ("RoleBinding", "ClusterRoleBinding")
                for one in of_kind(kind, values)
                if one["roleRef"]["name"] == "node-attestation-access"
            }

        namespaces = {"rbac": {"secretNamespaces": ["team-a", "team-b"]}}
        in_one = {"ssh": {"enabled": True}, "access": {"enabled": True, "namespaces": ["team-a"]}}
        assert bound({}) == set()
        assert bound({**self.ON, **namespaces}) == {("RoleBinding", "team-a"), ("RoleBinding", "team-b")}
        assert bound({**in_one, **namespaces}) == {("RoleBinding", "team-a")}
        assert bound({**self.ON, "watch": {"namespace": "team-a"}}) == {("RoleBinding", "team-a")}

    def test_roles_for_people(self) -> None:
        roles = {
            one["metadata"]["name"]: one
            for one in of_kind("ClusterRole", self.ON)
            if one["metadata"]["name"].startswith("node-access-")
        }

        def aggregates(name: str) -> set[str]:
            prefix = "rbac.authorization.k8s.io/aggregate-to-"
            return {label.removeprefix(prefix) for label in roles[name]["metadata"]["labels"] if prefix in label}

        def verbs(name: str) -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for rule in roles[name]["rules"]:
                assert rule["apiGroups"] == [self.GROUP]
                for resource in rule["resources"]:
                    found.setdefault(resource, set()).update(rule["verbs"])
            return found

        reads = {"get", "list", "watch"}
        assert {name: aggregates(name) for name in roles} == {
            "node-access-view": {"view"},
            "node-access-user": {"admin"},
            "node-access-admin": {"admin"},
            "node-access-approver": set(),
        }
        assert verbs("node-access-view") == {"accessgrants": reads, "accessapprovals": reads, "bastions": reads}
        assert verbs("node-access-user") == {
            "accessgrants": {*reads, "create", "patch", "update", "delete"},
            "accessapprovals": {*reads, "create"},
            "bastions": reads,
        }
        assert verbs("node-access-admin") == {"logins": {"use"}, "accessgrants": {"unsuspend"}}
        assert verbs("node-access-approver") == {
            "logins": {"approve"},
            "accessgrants": reads,
            "accessapprovals": {*reads, "create"},
        }
        without = {**self.ON, "access": {"enabled": True, "userRoles": False}}
        assert not [one for one in of_kind("ClusterRole", without) if one["metadata"]["name"].startswith("node-access")]

    def test_the_webhook(self) -> None:
        webhooks = [one for one in self.new(self.WEBHOOK) if one["kind"].endswith("WebhookConfiguration")]
        assert {one["metadata"]["name"] for one in webhooks} == {CONFIGURATION_NAME}
        found = {one["kind"]: one["webhooks"][0] for one in webhooks}
        [service] = [one for one in self.new(self.WEBHOOK) if one["kind"] == "Service"]
        for kind, path in (("Mutating", MUTATE_PATH), ("Validating", VALIDATE_PATH)):
            webhook = found[f"{kind}WebhookConfiguration"]
            assert webhook["failurePolicy"] == "Fail"
            assert webhook["clientConfig"]["service"] == {
                "name": service["metadata"]["name"],
                "namespace": CONTROLLER_NAMESPACE,
                "path": path,
                "port": 443,
            }
        [rule] = found["ValidatingWebhookConfiguration"]["rules"]
        matched = {one.plural for policy in access_policies(Controllers("a", "b")) for one in policy.resources}
        assert set(rule["resources"]) == matched
        assert rule["operations"] == ["CREATE", "UPDATE"]
        arguments = arguments_of(self.WEBHOOK)
        assert "--access-webhook-address=:9444" in arguments
        assert f"--access-webhook-service={service['metadata']['name']}" in arguments
        assert "--access-service-account=node-attestation-controller" in arguments
        assert "--access-bastion-service-account=node-access-bastions" in arguments
        assert service["spec"]["ports"][0]["targetPort"] == 9444
        assert not [one for one in self.new(self.ON) if "Webhook" in one["kind"] or one["kind"] == "Service"]

    def test_the_webhook_is_open_to_the_api_server_alone_where_it_is_known(self) -> None:
        health = {"ports": [{"port": 9440, "protocol": "TCP"}, {"port": 8443, "protocol": "TCP"}]}
        webhook = {"ports": [{"port": 9444, "protocol": "TCP"}]}
        assert of_kind("NetworkPolicy", self.WEBHOOK)[0]["spec"]["ingress"] == [health, webhook]
        api_servers = [{"ipBlock": {"cidr": "192.0.2.0/29"}}]
        prometheus: list[Any] = [{"namespaceSelector": {}}]
        values = {**self.WEBHOOK, "networkPolicy": {"webhookFrom": api_servers, "ingressFrom": prometheus}}
        [policy] = of_kind("NetworkPolicy", values)
        assert policy["spec"]["ingress"] == [{**health, "from": prometheus}, {**webhook, "from": api_servers}]
        values = {**self.ON, "networkPolicy": {"webhookFrom": api_servers}}
        assert of_kind("NetworkPolicy", values)[0]["spec"]["ingress"] == [health]

    def test_the_webhook_knows_the_api_server_by_its_certificate(self) -> None:
        webhook = {"enabled": True, "clientAuthorities": "api-servers", "clientNames": ["one", "two"]}
        values = {**self.WEBHOOK, "access": {"enabled": True, "webhook": webhook}}
        [deployment] = of_kind("Deployment", values)
        pod = deployment["spec"]["template"]["spec"]
        [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "access-webhook-clients"]
        [volume] = [one for one in pod["volumes"] if one["name"] == "access-webhook-clients"]
        assert volume["configMap"] == {"name": "api-servers"}
        assert f"--access-webhook-client-ca={mount['mountPath']}/ca.crt" in arguments_of(values)
        assert "--access-webhook-client-names=one,two" in arguments_of(values)
        assert not [one for one in arguments_of(self.WEBHOOK) if "client" in one]

    def test_the_webhooks_secret_is_one_by_name(self) -> None:
        [role] = [one for one in of_kind("Role", self.WEBHOOK) if one["metadata"]["name"].endswith("-access-webhook")]
        create, named = role["rules"]
        assert (create["verbs"], named["verbs"], named["resourceNames"]) == (
            ["create"],
            ["get", "update"],
            [SECRET_NAME],
        )

    def test_the_webhook_is_limited_to_the_watched_namespace(self) -> None:
        values = {**self.WEBHOOK, "watch": {"namespace": "team-a"}}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            [configuration] = of_kind(kind, values)
            selector = configuration["webhooks"][0]["namespaceSelector"]
            assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}


class TestBastions:
    """The bastion controller: a process with objects of its own."""

    ON: Final[dict[str, Any]] = {
        "access": {
            "bastions": {
                "enabled": True,
                "hostKeySecret": "host-key",
                "config": {"owner": "blue", "providers": {"none": {"namespaces": ["team-a"]}}},
            }
        }
    }

    @classmethod
    def with_values(cls, **values: Any) -> dict[str, Any]:
        return {"access": {"bastions": {**cls.ON["access"]["bastions"], **values}}}

    @staticmethod
    def own(values: Mapping[str, Any]) -> set[str]:
        """Kind, namespace and name of each object that comes with the switch."""
        kinds = (
            *("Deployment", "ServiceAccount", "Secret", "Service", "NetworkPolicy"),
            *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
        )
        return {
            f"{kind} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}"
            for kind in kinds
            for one in of_kind(kind, values)
            if "bastions" in one["metadata"]["name"]
        }

    def test_off_by_default(self) -> None:
        assert self.own({}) == set()

    def test_the_objects(self) -> None:
        namespace = CONTROLLER_NAMESPACE
        assert self.own(self.ON) == {
            f"Deployment {namespace}/node-access-bastions",
            f"ServiceAccount {namespace}/node-access-bastions",
            f"Secret {namespace}/node-access-bastions-config",
            f"Service {namespace}/node-access-bastions-metrics",
            f"NetworkPolicy {namespace}/node-access-bastions",
            "ClusterRole /node-access-bastions",
            "ClusterRoleBinding /node-access-bastions",
        }

    @pytest.mark.parametrize("insecure", [False, True])
    def test_nothing_comes_in_but_health_and_diagnostics(self, insecure: bool) -> None:
        """And it reaches what the controller reaches. No other policy selects its Pod."""
        values = {**self.ON, "diagnostics": {"insecure": insecure}}
        [deployment] = [one for one in of_kind("Deployment", values) if "bastions" in one["metadata"]["name"]]
        pod = deployment["spec"]["template"]
        [policy] = [
            one
            for one in of_kind("NetworkPolicy", values)
            if one["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        ]
        [other] = [one for one in of_kind("NetworkPolicy", values) if one != policy]
        [container] = pod["spec"]["containers"]
        [ingress] = policy["spec"]["ingress"]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert [port["port"] for port in ingress["ports"]] == [port["containerPort"] for port in container["ports"]]
        assert policy["spec"]["egress"] == other["spec"]["egress"]

    def test_its_metrics_are_scraped(self) -> None:
        [service] = [one for one in of_kind("Service", self.ON) if "bastions" in one["metadata"]["name"]]
        monitor = safe_load((MONITORING / "servicemonitor.yaml").read_text(encoding="utf-8"))["spec"]
        [expression] = monitor["selector"]["matchExpressions"]
        assert (expression["key"], expression["operator"]) == ("app.kubernetes.io/name", "In")
        with_gateway = {
            **self.ON,
            "ssh": {"enabled": True},
            "access": {**self.ON["access"], "enabled": True},
            "containers": {"enabled": True, "gateway": {"enabled": True}},
        }
        names = {one["metadata"]["labels"]["app.kubernetes.io/name"] for one in of_kind("Service", with_gateway)}
        assert names == set(expression["values"])
        assert [one["port"] for one in monitor["endpoints"]] == [port["name"] for port in service["spec"]["ports"]]

    def test_the_controllers_own_roles_stay_as_they_are(self) -> None:
        rules = TestRotation.rules
        added = {role for role, _ in set(rules(self.ON)) - set(rules())}
        assert added == {"ClusterRole /node-access-bastions"}
        assert set(rules()) <= set(rules(self.ON))

    def test_it_reads_no_secret_and_writes_bastions_alone(self) -> None:
        [role] = [one for one in of_kind("ClusterRole", self.ON) if one["metadata"]["name"] == "node-access-bastions"]
        assert {
            (tuple(rule["apiGroups"]), tuple(rule["resources"]), tuple(rule["verbs"])) for rule in role["rules"]
        } == {
            (("access.cluster.x-k8s.io",), ("bastions",), ("get", "list", "watch", "patch")),
            (("access.cluster.x-k8s.io",), ("bastions/status",), ("patch",)),
            (("",), ("events",), ("create",)),
            (("authentication.k8s.io",), ("tokenreviews",), ("create",)),
            (("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
        }
        for kind in ("RoleBinding", "ClusterRoleBinding"):
            subjects = [one["subjects"][0]["name"] for one in of_kind(kind, self.ON)]
            assert subjects.count("node-access-bastions") == (kind == "ClusterRoleBinding")

    def test_the_provider_pod_has_a_role_in_its_namespace(self) -> None:
        [role] = [one for one in of_kind("Role", self.with_values(podNamespace="bastions")) if "bastions" in str(one)]
        assert role["metadata"]["namespace"] == "bastions"
        assert all(set(rule["verbs"]) == {"list", "create", "patch", "delete"} for rule in role["rules"])

    def test_the_program_takes_its_arguments_and_its_file(self, tmp_path: Path) -> None:
        [deployment] = [one for one in of_kind("Deployment", self.ON) if "bastions" in one["metadata"]["name"]]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        options = bastions_parser().parse_args(container["args"])
        assert str(options.config) == "/etc/node-access-bastions/config/bastions.yaml"
        assert container["command"] == ["node-access-bastions"]
        [secret] = [one for one in of_kind("Secret", self.ON) if "bastions" in one["metadata"]["name"]]
        file = tmp_path / "bastions.yaml"
        file.write_text(secret["stringData"]["bastions.yaml"])
        configuration = read_bastion_configuration(file)
        assert configuration.targets == OperatorTargets()
        assert configuration.scope.owner == "blue"
        assert configuration.providers["none"].allows("team-a")

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"hostKeySecret": ""}, "access.bastions.hostKeySecret"),
            ({"config": {"owner": "", "providers": {}}}, "access.bastions.config.owner"),
            ({"existingConfigSecret": "mine"}, "not both"),
            ({"podNamespace": "default"}, "a namespace of its own"),
            ({"podNamespace": CONTROLLER_NAMESPACE}, "a namespace of its own"),
            ({"config": {"owner": "Blue"}}, "/access/bastions/config/owner"),
            ({"replicas": 2}, "replicas"),
        ],
    )
    def test_refused(self, values: dict[str, Any], message: str) -> None:
        with pytest.raises(HelmFailed, match=message):
            render_chart(self.with_values(**values))
