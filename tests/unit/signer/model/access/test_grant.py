from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.model.access import (
    AccessGrant,
    AllNodes,
    AsPolicySays,
    BastionOf,
    Container,
    Creator,
    CreatorNotStated,
    DeletedAt,
    InvalidAccessGrant,
    NoBastion,
    Nodes,
    NotDeleted,
    Permissions,
    Pod,
    Workload,
    WorkloadKind,
    digest_of_spec,
    parse_access_grant,
    spec_digest,
)
from signer.model.cluster import ClusterKey
from tests.support.access_objects import GRANT_UID, USER_KEY, grant_object

INGRESS = [{"ipBlock": {"cidr": "198.51.100.7/32"}}]


def parse(**spec: Any) -> AccessGrant:
    return parse_access_grant(grant_object(**spec))


def invalid(**spec: Any) -> str:
    with pytest.raises(InvalidAccessGrant) as caught:
        parse(**spec)
    assert str(caught.value) == f"{caught.value.field} {caught.value.message}"
    return str(caught.value)


def test_least_grant() -> None:
    grant = parse()
    assert grant.cluster == ClusterKey("team-a", "production")
    assert (grant.target, grant.logins, grant.rights) == (Nodes(("worker-1",)), ("root",), ("root",))
    assert (grant.bastion, grant.duration) == (AsPolicySays(), AsPolicySays())
    assert (grant.permissions, grant.ingress, grant.is_suspended) == (Permissions(), (), False)
    assert (grant.reason, grant.ticket, grant.heartbeat, grant.asks_keepalive) == ("", "", "", False)
    assert grant.created_by == Creator("alice", "u-1", frozenset({"system:authenticated", "team-a"}))
    assert grant.metadata.uid == GRANT_UID
    assert grant.metadata.created == datetime(2026, 11, 27, 14, tzinfo=UTC)
    assert grant.metadata.deletion == NotDeleted()
    assert not grant.metadata.is_deleted


def test_everything_that_a_grant_may_say() -> None:
    manifest = grant_object(
        target={"nodes": ["worker-2", "worker-1"]},
        logins=["root", "admin"],
        ingress=[{"ipBlock": {"cidr": "2001:db8::/64"}}, {"ipBlock": {"cidr": "198.51.100.7/32"}}],
        bastion="aws",
        duration="8h",
        permissions={"pty": False, "portForwarding": True, "command": "uptime"},
        reason="disk full on worker-1",
        ticket="OPS-17",
        suspend=True,
    )
    manifest["metadata"] |= {
        "deletionTimestamp": "2026-11-27T15:00:00Z",
        "finalizers": ["access.cluster.x-k8s.io/access-grant"],
        "annotations": {
            "access.cluster.x-k8s.io/operation": "keepalive",
            "access.cluster.x-k8s.io/heartbeat": "2026-11-27T14:30:00Z",
        },
    }
    manifest["status"] = {"record": {"seal": "s"}}
    grant = parse_access_grant(manifest)
    assert grant.target == Nodes(("worker-1", "worker-2"))
    assert grant.logins == ("admin", "root")
    assert grant.ingress == (ip_network("198.51.100.7/32"), ip_network("2001:db8::/64"))
    assert (grant.bastion, grant.duration) == (BastionOf("aws"), timedelta(hours=8))
    assert grant.permissions == Permissions(pty=False, port_forwarding=True, command="uptime")
    assert (grant.reason, grant.ticket, grant.is_suspended) == ("disk full on worker-1", "OPS-17", True)
    assert (grant.heartbeat, grant.asks_keepalive) == ("2026-11-27T14:30:00Z", True)
    assert grant.metadata.deletion == DeletedAt(datetime(2026, 11, 27, 15, tzinfo=UTC))
    assert grant.metadata.finalizers == ("access.cluster.x-k8s.io/access-grant",)
    assert grant.status == {"record": {"seal": "s"}}
    assert grant.public_key.key_type.value == "ssh-ed25519"


def test_targets() -> None:
    assert parse(target={"allNodes": {}}).target == AllNodes()
    container = {"namespace": "shop", "pod": "web-0", "container": "nginx"}
    grant = parse(target={"container": container})
    assert grant.target == Container("shop", Pod("web-0"), "nginx")
    assert (grant.logins, grant.rights) == ((), ("container",))
    workload = {"namespace": "shop", "workload": {"kind": "Deployment", "name": "web"}, "container": "nginx"}
    assert parse(target={"container": workload}, logins=[]).target == Container(
        "shop", Workload(WorkloadKind.DEPLOYMENT, "web"), "nginx"
    )


CONTAINER = {"namespace": "shop", "pod": "web-0", "container": "nginx"}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "spec.target must be an object"),
        ({}, "spec.target must have exactly one of"),
        ({"nodes": ["a"], "allNodes": {}}, "spec.target must have exactly one of"),
        ({"nodes": []}, "spec.target.nodes must be a list of 1 to 16"),
        ({"nodes": [f"n{n}" for n in range(17)]}, "spec.target.nodes must be a list of 1 to 16"),
        ({"nodes": ["a", "a"]}, "spec.target.nodes[1] is there twice"),
        ({"nodes": ["A"]}, "spec.target.nodes[0] must be a name"),
        ({"nodes": ["*"]}, "spec.target.nodes[0] must be a name"),
        ({"nodes": ["a,b"]}, "spec.target.nodes[0] must be a name"),
        ({"nodes": "a"}, "spec.target.nodes must be a list"),
        ({"allNodes": {"but": "one"}}, "spec.target.allNodes has a field"),
        ({"allNodes": True}, "spec.target.allNodes must be an object"),
        ({"node": "a"}, "spec.target has a field"),
        ({"container": CONTAINER | {"workload": {"kind": "Deployment", "name": "web"}}}, "exactly one of pod and"),
        ({"container": {"namespace": "shop", "container": "nginx"}}, "exactly one of pod and workload"),
        ({"container": CONTAINER | {"namespace": "a.b"}}, "spec.target.container.namespace must be a DNS label"),
        ({"container": CONTAINER | {"container": "x" * 64}}, "spec.target.container.container must be a DNS label"),
        ({"container": CONTAINER | {"pod": "x_y"}}, "spec.target.container.pod must be a name"),
        (
            {"container": {"namespace": "s", "workload": {"kind": "CronJob", "name": "w"}, "container": "c"}},
            "spec.target.container.workload.kind must be DaemonSet, Deployment, Job or StatefulSet",
        ),
        (
            {"container": {"namespace": "s", "workload": {"kind": "Deployment", "name": 1}, "container": "c"}},
            "spec.target.container.workload.name must be a name",
        ),
    ],
)
def test_invalid_target(target: Any, message: str) -> None:
    assert message in invalid(target=target)


@pytest.mark.parametrize(
    ("logins", "message"),
    [
        ([], "spec.logins must be a list of 1 to 8"),
        ([f"u{n}" for n in range(9)], "spec.logins must be a list of 1 to 8"),
        (["root", "root"], "spec.logins[1] is there twice"),
        (["root,admin"], "spec.logins[0] must be a login"),
        (["-oProxyCommand"], "spec.logins[0] must be a login"),
        (["root\n"], "spec.logins[0] must be a login"),
        (["*"], "spec.logins[0] must be a login"),
        (["root@worker-1"], "spec.logins[0] must be a login"),
        (["Root"], "spec.logins[0] must be a login"),
        (["x" * 64], "spec.logins[0] must be a login"),
        ([7], "spec.logins[0] must be a login"),
        (["container"], "spec.logins[0] must not be container"),
    ],
)
def test_invalid_logins(logins: Any, message: str) -> None:
    assert message in invalid(logins=logins)


def test_container_has_no_logins() -> None:
    assert invalid(target={"container": CONTAINER}, logins=["root"]).startswith("spec.logins must be a list of 0 to 0")


@pytest.mark.parametrize(
    "key",
    [
        f"{USER_KEY} alice@laptop",
        f"{USER_KEY}\n",
        f'command="id" {USER_KEY}',
        f"{USER_KEY}\n{USER_KEY}",
        f"ssh-rsa {USER_KEY.split()[1]}",
        "",
        None,
        7,
    ],
)
def test_invalid_key(key: Any) -> None:
    assert invalid(sshPublicKey=key).startswith("spec.sshPublicKey is no public key")


@pytest.mark.parametrize(
    ("cidr", "message"),
    [
        ("198.51.100.7/24", "must be a network in canonical form"),
        ("0.0.0.0/0", "must not be wider than /8"),
        ("::/0", "must not be wider than /16"),
        ("::ffff:198.51.100.0/120", "must be written as a network of IPv4"),
        ("198.51.100.7", "must be a network in canonical form"),
        ("198.051.100.7/32", "must be a network in canonical form"),
        ("198.51.100.7/032", "is written 198.51.100.7/32"),
        ("198.51.100.7/255.255.255.255", "must be a network in canonical form"),
        ("2001:DB8::/64", "must be a network in canonical form"),
        ("2001:db8:0::/64", "is written 2001:db8::/64"),
        ("fe80::1%eth0/128", "must be a network in canonical form"),
        (" 198.51.100.7/32", "must be a network in canonical form"),
        (7, "must be a network in canonical form"),
    ],
)
def test_invalid_network(cidr: Any, message: str) -> None:
    found = invalid(ingress=[{"ipBlock": {"cidr": cidr}}])
    assert found.startswith(f"spec.ingress[0].ipBlock.cidr {message}")


@pytest.mark.parametrize(
    ("ingress", "message"),
    [
        (INGRESS * 2, "spec.ingress[1].ipBlock is there twice"),
        ([INGRESS[0]] * 17, "spec.ingress must be a list of 0 to 16"),
        (["198.51.100.7/32"], "spec.ingress[0] must be an object"),
        ([{"ipBlock": {"cidr": "10.0.0.0/24", "except": []}}], "spec.ingress[0].ipBlock has a field"),
        ([{"podSelector": {}}], "spec.ingress[0] has a field"),
    ],
)
def test_invalid_ingress(ingress: Any, message: str) -> None:
    assert message in invalid(ingress=ingress)


def test_bastion() -> None:
    assert parse(bastion="None").bastion == NoBastion()
    assert parse(bastion="local", ingress=INGRESS).bastion == BastionOf("local")
    assert invalid(bastion="local").startswith("spec.ingress must name the networks")
    for name in ("", "none!", "AWS", "none\n", "-x", "x" * 33, 7):
        assert invalid(bastion=name, ingress=INGRESS).startswith("spec.bastion must be None or the name")


@pytest.mark.parametrize("duration", ["", "59s", "169h", "1d", 3600, "-1h"])
def test_invalid_duration(duration: Any) -> None:
    assert invalid(duration=duration).startswith("spec.duration ")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"reason": "x" * 1025}, "spec.reason"),
        ({"reason": "a\nb"}, "spec.reason"),
        ({"reason": "a\x1b[2J"}, "spec.reason"),
        ({"reason": "a\u2028b"}, "spec.reason"),
        ({"reason": "\ud800"}, "spec.reason"),
        ({"reason": 7}, "spec.reason"),
        ({"ticket": "x" * 129}, "spec.ticket"),
        ({"permissions": {"command": "x" * 1025}}, "spec.permissions.command"),
        ({"permissions": {"command": "a\0"}}, "spec.permissions.command"),
        ({"permissions": {"pty": "yes"}}, "spec.permissions.pty"),
        ({"permissions": {"sftp": True}}, "spec.permissions"),
        ({"permissions": []}, "spec.permissions"),
        ({"suspend": "true"}, "spec.suspend"),
        ({"clusterRef": {"name": "a/b"}}, "spec.clusterRef.name"),
        ({"clusterRef": {"name": "a", "namespace": "other"}}, "spec.clusterRef"),
        ({"clusterRef": None}, "spec.clusterRef"),
        ({"sudo": True}, "spec"),
        ({"createdBy": {"username": ""}}, "spec.createdBy.username"),
        ({"createdBy": {"username": "x" * 513}}, "spec.createdBy.username"),
        ({"createdBy": {"username": "a\nb"}}, "spec.createdBy.username"),
        ({"createdBy": {"username": "a", "extra": {}}}, "spec.createdBy"),
        ({"createdBy": {"username": "a", "uid": "x y"}}, "spec.createdBy.uid"),
        ({"createdBy": {"username": "a", "groups": [f"g{n}" for n in range(65)]}}, "spec.createdBy.groups"),
        ({"createdBy": {"username": "a", "groups": ["g", "g"]}}, "spec.createdBy.groups[1]"),
        ({"createdBy": {"username": "a", "groups": ["x" * 257]}}, "spec.createdBy.groups[0]"),
        ({"createdBy": {"username": "a", "groups": [7]}}, "spec.createdBy.groups[0]"),
        ({"createdBy": "alice"}, "spec.createdBy"),
    ],
)
def test_invalid_field(spec: dict[str, Any], field: str) -> None:
    assert invalid(**spec).startswith(f"{field} ")


def test_creator_is_not_stated() -> None:
    assert parse(createdBy=None).created_by == CreatorNotStated()
    assert parse(creator={"username": "alice"}).created_by == Creator("alice", "", frozenset())


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "x" * 64}, "metadata.name"),
        ({"name": None}, "metadata.name"),
        ({"namespace": "a/b"}, "metadata.namespace"),
        ({"uid": ""}, "metadata.uid"),
        ({"uid": "a b"}, "metadata.uid"),
        ({"creationTimestamp": None}, "metadata.creationTimestamp"),
        ({"creationTimestamp": "yesterday"}, "metadata.creationTimestamp"),
        ({"deletionTimestamp": "yesterday"}, "metadata.deletionTimestamp"),
    ],
)
def test_invalid_metadata(metadata: dict[str, Any], field: str) -> None:
    manifest = grant_object()
    manifest["metadata"] |= metadata
    with pytest.raises(InvalidAccessGrant) as caught:
        parse_access_grant(manifest)
    assert caught.value.field == field


def test_heartbeat_of_any_length_is_bounded() -> None:
    manifest = grant_object()
    manifest["metadata"]["annotations"] = {"access.cluster.x-k8s.io/heartbeat": "x" * 100_000}
    assert len(parse_access_grant(manifest).heartbeat) == 64


def test_digest_covers_what_an_approval_is_about() -> None:
    digest = spec_digest(parse())
    assert spec_digest(parse(ingress=INGRESS, suspend=True)) == digest
    others: tuple[dict[str, Any], ...] = (
        {"reason": "other"},
        {"logins": ["admin"]},
        {"target": {"allNodes": {}}},
        {"duration": "1h"},
        {"permissions": {"portForwarding": True}},
        {"bastion": "None"},
        {"ticket": "T"},
        {"clusterRef": {"name": "other"}},
        {"createdBy": {"username": "eve"}},
    )
    for changed in others:
        assert spec_digest(parse(**changed)) != digest


def test_digest_is_that_of_common_tools() -> None:
    """A person can check what an approval is about: ``jq -cjS 'del(.ingress, .suspend)' | sha256sum``."""
    spec = {"reason": 'W\u00e4rme "x"', "b": {"d": [1, {"z": 1, "a": 2}], "c": True}, "suspend": True, "ingress": []}
    written = '{"b":{"c":true,"d":[1,{"a":2,"z":1}]},"reason":"W\u00e4rme \\"x\\""}'
    assert digest_of_spec(spec) == hashlib.sha256(written.encode()).hexdigest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
FIELD = st.sampled_from(
    ["clusterRef", "target", "logins", "sshPublicKey", "ingress", "bastion", "duration", "permissions", "createdBy"]
)


@given(FIELD, JSON)
def test_hostile_field(field: str, value: Any) -> None:
    manifest = grant_object()
    manifest["spec"][field] = value
    try:
        grant = parse_access_grant(manifest)
    except InvalidAccessGrant as error:
        assert error.field.startswith("spec")  # noqa: PT017
    else:
        hash(grant)


@given(JSON)
def test_hostile_object(value: Any) -> None:
    for manifest in ({"metadata": value, "spec": value}, {**grant_object(), "spec": value}):
        with pytest.raises(InvalidAccessGrant):
            parse_access_grant(manifest)
