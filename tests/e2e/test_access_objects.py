"""Wrong AccessGrants, AccessApprovals and Bastions are refused by their definitions, and right ones are not.

On the embedded API and on the real kube-apiserver; what only CEL can say where the real one is of 1.25 or newer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signer.crds import ACCESS_CRD_FILES
from signer.crds.expressions import FIRST_VERSION
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS, Resource
from signer.model.access import (
    InvalidAccessObject,
    parse_access_approval,
    parse_access_grant,
    parse_bastion,
)
from signer.testing.api import EmbeddedAPI
from tests.conformance.api import version_of
from tests.support.access_objects import USER_KEY, approval_object, bastion_object, grant_object
from tests.support.control_plane import ControlPlane
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
PARSERS: Final = {
    ACCESS_GRANTS: parse_access_grant,
    ACCESS_APPROVALS: parse_access_approval,
    BASTIONS: parse_bastion,
}
CONTAINER: Final = {"namespace": "shop", "pod": "web-0", "container": "nginx"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=(pytest.mark.real, pytest.mark.slow))])
def client(request: pytest.FixtureRequest) -> Iterator[RawClient]:
    """An administrator at an API server with the plain definitions."""
    files = [DEPLOY / "crds-access" / name for name in ACCESS_CRD_FILES]
    if request.param == "real":
        control_plane: ControlPlane = request.getfixturevalue("real_control_plane")
        control_plane.install_crds(files)
        with RawClient(control_plane.connection()) as real:
            yield real
        return
    with EmbeddedAPI() as embedded:
        embedded.install_crds(files)
        with RawClient(embedded.connection()) as client:
            yield client


def ingress(*cidrs: str) -> list[Any]:
    return [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


def sent(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {"generateName": "tried-", "namespace": "default"}}


RIGHT: Final[dict[str, tuple[Resource, dict[str, Any]]]] = {
    "least grant": (ACCESS_GRANTS, grant_object()),
    "every field": (
        ACCESS_GRANTS,
        grant_object(
            logins=["root", "admin"],
            ingress=ingress("198.51.100.0/24", "2001:db8::/48", "10.0.0.0/8"),
            bastion="aws",
            duration="8h",
            permissions={"pty": False, "portForwarding": True, "command": "uptime"},
            reason="disk full — Wärme",
            ticket="OPS-17",
            suspend=True,
        ),
    ),
    "all nodes": (ACCESS_GRANTS, grant_object(target={"allNodes": {}})),
    "container": (ACCESS_GRANTS, grant_object(target={"container": CONTAINER}, logins=[])),
    "workload": (
        ACCESS_GRANTS,
        grant_object(
            target={
                "container": {
                    "namespace": "shop",
                    "workload": {"kind": "StatefulSet", "name": "web"},
                    "container": "nginx",
                }
            }
        ),
    ),
    "nobody stated": (ACCESS_GRANTS, grant_object(createdBy=None)),
    "approval": (ACCESS_APPROVALS, approval_object()),
    "denial": (ACCESS_APPROVALS, approval_object(decision="Deny")),
    "bastion": (BASTIONS, bastion_object(settings={"subnet": {"id": "x"}})),
}
WRONG: Final[dict[str, tuple[Resource, dict[str, Any], str]]] = {
    "no key": (ACCESS_GRANTS, grant_object(sshPublicKey=None), "spec.sshPublicKey"),
    "a comment": (ACCESS_GRANTS, grant_object(sshPublicKey=f"{USER_KEY} a@b"), "spec.sshPublicKey"),
    "options": (ACCESS_GRANTS, grant_object(sshPublicKey=f"no-pty {USER_KEY}"), "spec.sshPublicKey"),
    "two keys": (ACCESS_GRANTS, grant_object(sshPublicKey=f"{USER_KEY}\n{USER_KEY}"), "spec.sshPublicKey"),
    "a line end": (ACCESS_GRANTS, grant_object(sshPublicKey=f"{USER_KEY}\n"), "spec.sshPublicKey"),
    "no target": (ACCESS_GRANTS, grant_object(target={}), "spec.target"),
    "two targets": (ACCESS_GRANTS, grant_object(target={"nodes": ["a"], "allNodes": {}}), "spec.target"),
    "seventeen nodes": (
        ACCESS_GRANTS,
        grant_object(target={"nodes": [f"n{n}" for n in range(17)]}),
        "spec.target.nodes",
    ),
    "a node twice": (ACCESS_GRANTS, grant_object(target={"nodes": ["a", "a"]}), "spec.target.nodes"),
    "a node with a comma": (ACCESS_GRANTS, grant_object(target={"nodes": ["a,b"]}), "spec.target.nodes"),
    "pod and workload": (
        ACCESS_GRANTS,
        grant_object(target={"container": {**CONTAINER, "workload": {"kind": "Deployment", "name": "w"}}}),
        "spec.target.container",
    ),
    "neither pod nor workload": (
        ACCESS_GRANTS,
        grant_object(target={"container": {"namespace": "a", "container": "b"}}),
        "spec.target.container",
    ),
    "nine logins": (ACCESS_GRANTS, grant_object(logins=[f"u{n}" for n in range(9)]), "spec.logins"),
    "a login with a comma": (ACCESS_GRANTS, grant_object(logins=["root,admin"]), "spec.logins"),
    "a login that is an option": (ACCESS_GRANTS, grant_object(logins=["-oProxyCommand=x"]), "spec.logins"),
    "the login container": (ACCESS_GRANTS, grant_object(logins=["container"]), "spec.logins"),
    "the whole Internet": (ACCESS_GRANTS, grant_object(ingress=ingress("0.0.0.0/0")), "spec.ingress"),
    "the whole Internet of IPv6": (ACCESS_GRANTS, grant_object(ingress=ingress("::/0")), "spec.ingress"),
    "leading zeros": (ACCESS_GRANTS, grant_object(ingress=ingress("198.051.100.7/32")), "spec.ingress"),
    "no prefix length": (ACCESS_GRANTS, grant_object(ingress=ingress("198.51.100.7")), "spec.ingress"),
    "IPv4 in the form of IPv6": (ACCESS_GRANTS, grant_object(ingress=ingress("::ffff:1.2.3.4/128")), "spec.ingress"),
    "upper case": (ACCESS_GRANTS, grant_object(ingress=ingress("2001:DB8::/64")), "spec.ingress"),
    "a provider in upper case": (ACCESS_GRANTS, grant_object(bastion="AWS"), "spec.bastion"),
    "a long reason": (ACCESS_GRANTS, grant_object(reason="x" * 1025), "spec.reason"),
    "sixty-five groups": (
        ACCESS_GRANTS,
        grant_object(createdBy={"username": "a", "groups": [f"g{n}" for n in range(65)]}),
        "spec.createdBy.groups",
    ),
    "a decision of its own": (ACCESS_APPROVALS, approval_object(decision="Perhaps"), "spec.decision"),
    "a digest in upper case": (ACCESS_APPROVALS, approval_object(specDigest="A" * 64), "spec.specDigest"),
    "an approval of any grant": (ACCESS_APPROVALS, approval_object(grantRef={"name": "repair"}), "spec.grantRef.uid"),
    "a bastion without provider": (BASTIONS, bastion_object(provider="None"), "spec.provider"),
    "a principal of root": (BASTIONS, bastion_object(principal="root"), "spec.principal"),
    "a bastion to nowhere": (BASTIONS, bastion_object(targets=[]), "spec.targets"),
}
ONLY_BY_RULE: Final = {
    "host bits": (grant_object(ingress=ingress("198.51.100.7/24")), "must have no host bits"),
    "a network twice": (grant_object(ingress=ingress("10.0.0.0/8", "10.0.0.0/8")), "must name each network once"),
    "169 hours": (grant_object(duration="169h"), "must be from 1m to 168h"),
    "no login": (grant_object(logins=[]), "logins must name 1 to 8 logins"),
    "a login of a container": (
        grant_object(target={"container": CONTAINER}, logins=["root"]),
        "logins must name 1 to 8 logins",
    ),
    "a bastion for nobody": (grant_object(bastion="aws"), "ingress must name the networks"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_object(client: RawClient, case: str) -> None:
    """It is kept as it is, and the controller can read it."""
    resource, manifest = RIGHT[case]
    made = client.post(resource.collection("default"), sent(manifest)).expect(201)
    kept = copy.deepcopy(made["spec"])
    assert {field: kept[field] for field in manifest["spec"]} == manifest["spec"]
    assert set(kept) - set(manifest["spec"]) <= {"suspend"}
    PARSERS[resource](made)
    client.delete(resource.object(made["metadata"]["name"], "default")).expect(200)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_object(client: RawClient, case: str) -> None:
    resource, manifest, field = WRONG[case]
    assert field in client.post(resource.collection("default"), sent(manifest)).expect(422)["message"]
    with pytest.raises(InvalidAccessObject) as caught:
        PARSERS[resource]({**manifest, "metadata": grant_object()["metadata"]})
    assert caught.value.field.startswith(field)


def test_names_are_short(client: RawClient) -> None:
    manifest = grant_object("x" * 64)
    manifest["metadata"] = {"name": "x" * 64, "namespace": "default"}
    said = client.post(ACCESS_GRANTS.collection("default"), manifest).expect(422)["message"]
    assert "metadata.name" in said


@pytest.fixture(scope="module")
def ruled(real_control_plane: ControlPlane) -> Iterator[RawClient]:
    """The real API server with the rules, where it is new enough to evaluate them."""
    with RawClient(real_control_plane.connection()) as client:
        version = version_of(client)
        if version < FIRST_VERSION:
            found = f"kube-apiserver {version[0]}.{version[1]}"
            pytest.skip(f"{found} evaluates no CEL: set KUBEBUILDER_ASSETS to 1.25 or newer")
        real_control_plane.install_crds(DEPLOY / "crds-access-cel" / name for name in ACCESS_CRD_FILES)
        yield client
        real_control_plane.install_crds(DEPLOY / "crds-access" / name for name in ACCESS_CRD_FILES)


@pytest.mark.real
@pytest.mark.parametrize("case", ONLY_BY_RULE)
def test_what_only_a_rule_refuses(ruled: RawClient, case: str) -> None:
    manifest, says = ONLY_BY_RULE[case]
    assert says in ruled.post(ACCESS_GRANTS.collection("default"), sent(manifest)).expect(422)["message"]


@pytest.mark.real
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_object_breaks_no_rule(ruled: RawClient, case: str) -> None:
    resource, manifest = RIGHT[case]
    ruled.post(resource.collection("default"), sent(manifest), dryRun="All").expect(201)


@pytest.mark.real
@pytest.mark.parametrize(
    ("resource", "manifest", "change", "says"),
    [
        (ACCESS_GRANTS, grant_object(), {"sshPublicKey": USER_KEY.replace("A", "B")}, "sshPublicKey never changes"),
        (ACCESS_GRANTS, grant_object(), {"target": {"nodes": ["worker-2"]}}, "target never changes"),
        (ACCESS_GRANTS, grant_object(), {"createdBy": {"username": "bob"}}, "createdBy never changes"),
        (ACCESS_GRANTS, grant_object(), {"createdBy": None}, "createdBy never changes"),
        (ACCESS_GRANTS, grant_object(), {"reason": "because"}, "reason never changes"),
        (ACCESS_GRANTS, grant_object(), {"bastion": "None"}, "bastion never changes"),
        (ACCESS_GRANTS, grant_object(), {"ingress": ingress("10.0.0.0/8"), "suspend": True}, ""),
        (ACCESS_APPROVALS, approval_object(), {"decision": "Deny"}, "an approval never changes"),
        (BASTIONS, bastion_object(), {"provider": "aws"}, "provider never changes"),
        (BASTIONS, bastion_object(), {"targets": [{"addresses": ["10.0.0.6"], "port": 22}]}, "targets never changes"),
        (BASTIONS, bastion_object(), {"notAfter": "2026-11-27T23:00:00Z"}, ""),
    ],
)
def test_what_never_changes(
    ruled: RawClient, resource: Resource, manifest: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    made = ruled.post(resource.collection("default"), sent(manifest)).expect(201)
    path = resource.object(made["metadata"]["name"], "default")
    answer = ruled.patch(path, {"spec": change})
    if says:
        assert says in answer.expect(422)["message"]
    else:
        answer.expect(200)
    ruled.delete(path).expect(200)
