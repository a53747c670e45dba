"""The files of a grant for a container, read back by the real ssh; and statuses that must not be used."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.container_names import parse_container_principal
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import LoginOnNode, PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.arguments import choices_of
from node_access.client.cli import parser
from node_access.client.container_files import ContainerAccess
from node_access.client.container_ways import AsGranted, Via, WayChoice, chosen_way, way_choice
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.folders import FolderRecord, GrantFolders
from node_access.client.grants import ContainerTarget, Hop, parse_grant
from node_access.client.heartbeat import touched
from node_access.client.manifests import GrantRequest, grant_manifest
from node_access.client.node_files import CERTIFICATE_FILES, NotUsable
from node_access.client.sessions import why_no_connection
from node_access.client.ssh_files import access_of, known_hosts, names_of, ssh_config
from node_access.client.words import PodForward, pod_forward
from tests.support.grant_controller import issue
from tests.support.openssh import private_key
from tests.unit.node_access.client.made import BASTION, GRANT_UID, KEY, document
from tests.unit.node_access.client.test_node_files import effective

USER = "shop_web-0_app"
TARGET = {"container": {"namespace": "shop", "pod": "web-0", "container": "app"}}
GATEWAY_LINE = key_line(public_key_of(private_key("ed25519", 351)))
ALIAS = f"node-access-gateway-{GRANT_UID}"


def container_document(**status: Any) -> dict[str, Any]:
    """A grant for a container, with the status that the controller writes but for what ``status`` names."""
    made = document(BASTION)
    made["spec"] = {**made["spec"], "target": TARGET, "logins": []}
    del made["status"]["ingress"]
    certificate = issue(public_key_of(KEY), PlainPrincipal(USER))
    made["status"].update(
        {
            "targets": [],
            "gateway": {"host": "gateway.example.com", "port": 2222},
            "certificates": [{"hop": "container", "certificate": certificate.line}],
            "knownHosts": [*made["status"]["knownHosts"], f"{ALIAS} {GATEWAY_LINE}"],
            **status,
        }
    )
    return made


def access(**status: Any) -> ContainerAccess:
    found = access_of(parse_grant(container_document(**status)), public_key_of(KEY), int(time.time()))
    assert isinstance(found, ContainerAccess)
    return found


def test_ssh_reads_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(ssh_config(access(), "/home/a b/x", ""))
    for host in (f"{USER}.production", f"{USER}.production.team-a"):
        found = effective(file, host)
        assert (found["hostname"], found["port"], found["user"]) == ("gateway.example.com", "2222", USER)
        assert found["hostkeyalias"] == ALIAS
        assert found["identityfile"] == "/home/a b/x/key"
        assert found["userknownhostsfile"] == "/home/a b/x/known_hosts"
        assert (found["stricthostkeychecking"], found["identitiesonly"]) == ("true", "yes")
        assert (found["forwardagent"], found["globalknownhostsfile"]) == ("no", "none")
        assert "certificatefile" not in found
    file.write_text(ssh_config(access(), "/home/a", "", "/home/a/id"))
    assert effective(file, f"{USER}.production")["identityfile"] == "/home/a/id"
    assert names_of(access()) == (f"{USER}.production",)


NODES: dict[str, Any] = {
    "targets": [
        {"node": "worker-1", "addresses": ["10.0.0.7"], "port": 2022},
        {"node": "worker-2", "addresses": ["10.0.0.8"], "port": 2022},
    ],
    "containerNode": "worker-2",
}


def on_nodes(**status: Any) -> ContainerAccess:
    """A grant whose status names nodes, and no gateway."""
    return access(**{"gateway": {}, **NODES, **status})


def test_without_a_gateway_ssh_goes_to_the_node_of_the_pod(tmp_path: Path) -> None:
    file = tmp_path / "config"
    found = on_nodes()
    file.write_text(ssh_config(found, "/home/a", ""))
    for host, address, node in (
        (f"{USER}.production", "10.0.0.8", "worker-2"),
        (f"{USER}.production.team-a", "10.0.0.8", "worker-2"),
        (f"{USER}.worker-1.production", "10.0.0.7", "worker-1"),
    ):
        read = effective(file, host)
        assert (read["hostname"], read["port"], read["user"]) == (address, "2022", USER)
        assert read["hostkeyalias"] == f"{node}.production.team-a"
        assert read["certificatefile"] == "/home/a/container-cert.pub"
        assert (read["stricthostkeychecking"], read["identitiesonly"]) == ("true", "yes")
        assert "proxyjump" not in read
    assert set(found.certificates) == {Hop.CONTAINER}
    assert names_of(found)[0] == f"{USER}.production"


def test_beside_a_gateway_each_node_has_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "config"
    found = access(**NODES)
    file.write_text(ssh_config(found, "/home/a", ""))
    assert effective(file, f"{USER}.production")["hostname"] == "gateway.example.com"
    assert "certificatefile" not in effective(file, f"{USER}.production")
    assert effective(file, f"{USER}.worker-2.production")["hostname"] == "10.0.0.8"


def test_nodes_are_known_by_the_authorities_and_for_this_cluster_alone() -> None:
    lines = known_hosts(on_nodes()).splitlines()
    assert lines
    assert all(one.startswith("@cert-authority *.production.team-a ") for one in lines)


def test_bastions_in_front_of_nodes_stay_in_force(tmp_path: Path) -> None:
    made = document(BASTION)["status"]
    certificate = issue(public_key_of(KEY), PlainPrincipal(USER)).line
    bastion = next(one["certificate"] for one in made["certificates"] if one["hop"] == "bastion")
    status = {
        "ingress": made["ingress"],
        "certificates": [{"hop": "container", "certificate": certificate}, {"hop": "bastion", "certificate": bastion}],
    }
    found = on_nodes(**status)
    file = tmp_path / "config"
    file.write_text(ssh_config(found, "/home/a", ""))
    assert effective(file, f"{USER}.production")["proxyjump"] == f"node-access-bastion-{GRANT_UID}"
    jump = effective(file, f"node-access-bastion-{GRANT_UID}")
    assert (jump["user"], jump["certificatefile"]) == ("bastion", "/home/a/bastion-cert.pub")
    assert f"node-access-bastion-{GRANT_UID} " in known_hosts(found)
    with pytest.raises(NotUsable, match="no certificate for the bastion"):
        on_nodes(**{**status, "certificates": status["certificates"][:1]})


@pytest.mark.parametrize(
    ("status", "choice", "where"),
    [
        (NODES, AsGranted(), "through the gateway gateway.example.com port 2222"),
        (NODES, Via.GATEWAY, "through the gateway gateway.example.com port 2222"),
        (NODES, Via.NODE, "on node worker-2, port 2022"),
        (NODES, way_choice("", "worker-1"), "on node worker-1, port 2022"),
        ({**NODES, "gateway": {}}, AsGranted(), "on node worker-2, port 2022"),
        ({**NODES, "gateway": {}, "containerNode": "", "targets": NODES["targets"][:1]}, Via.NODE, "on node worker-1,"),
    ],
)
def test_the_way_is_the_gateways_or_as_the_person_says(status: dict[str, Any], choice: WayChoice, where: str) -> None:
    assert chosen_way(access(**status), choice).where.startswith(where)


@pytest.mark.parametrize(
    ("status", "choice", "why"),
    [
        ({**NODES, "gateway": {}}, Via.GATEWAY, r"names no gateway.*--via node"),
        ({**NODES, "containerNode": ""}, Via.NODE, "not known on which node.*--node"),
        ({**NODES, "containerNode": "worker-9"}, Via.NODE, "not known on which node"),
        (NODES, way_choice("node", "worker-9"), "names no node worker-9; it has worker-1, worker-2"),
        ({}, Via.NODE, r"no node of the Cluster has attested.*--via gateway"),
        (
            {**NODES, "knownHosts": [f"{ALIAS} {GATEWAY_LINE}"]},
            Via.NODE,
            "no host authority, so no node could be told from another machine",
        ),
    ],
)
def test_ways_that_there_are_not(status: dict[str, Any], choice: WayChoice, why: str) -> None:
    with pytest.raises(ClientFailed, match=why):
        chosen_way(access(**status), choice)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"permissions": {"command": "uptime"}}, "forced command"),
        (
            {
                "target": {
                    "container": {
                        "namespace": "shop",
                        "workload": {"kind": "Deployment", "name": "web"},
                        "container": "app",
                    }
                }
            },
            "nodes know no workloads",
        ),
    ],
)
def test_what_nodes_do_not_open_goes_through_the_gateway_alone(spec: dict[str, Any], why: str) -> None:
    made = container_document(**NODES)
    made["spec"].update(spec)
    principal = "shop_deploy.web_app" if "target" in spec else USER
    line = issue(public_key_of(KEY), PlainPrincipal(principal)).line
    made["status"]["certificates"] = [{"hop": "container", "certificate": line}]
    found = access_of(parse_grant(made), public_key_of(KEY), int(time.time()))
    assert isinstance(found, ContainerAccess)
    assert (found.nodes, found.certificates) == ((), {})
    with pytest.raises(ClientFailed, match=why):
        chosen_way(found, Via.NODE)
    made["status"]["gateway"] = {}
    with pytest.raises(NotUsable, match=why):
        access_of(parse_grant(made), public_key_of(KEY), int(time.time()))


def test_a_node_and_the_gateway_are_two_ways() -> None:
    with pytest.raises(WrongUse, match="leave one of them out"):
        way_choice("gateway", "worker-1")
    with pytest.raises(WrongUse):
        way_choice("", "worker-1 -oProxyCommand=x")


def test_the_heartbeat_logs_in_where_sessions_are_on_nodes() -> None:
    """The gateway prolongs its sessions by itself."""
    there = (f"{USER}.worker-1.production", USER)
    assert touched(access(**NODES), ()) == ()
    assert touched(access(**NODES), (USER, there[0])) == (there,)
    assert touched(on_nodes(), ()) == ((f"{USER}.worker-2.production", USER),)
    assert touched(on_nodes(), (there[0],)) == (there, (f"{USER}.worker-2.production", USER))


def test_a_forwarding_ends_with_the_certificate_or_the_grant(tmp_path: Path) -> None:
    """Also where no heartbeat writes the folder."""
    found = on_nodes()
    record = FolderRecord(found.grant.key, "production", "", False, "")
    folder = GrantFolders(tmp_path / "grants").create(record)
    folder.write_access(found, record)
    assert why_no_connection(folder) == ""
    over = issue(public_key_of(KEY), PlainPrincipal(USER), seconds=-1)
    folder.write(CERTIFICATE_FILES[Hop.CONTAINER], f"{over.line}\n")
    assert "certificate is over" in why_no_connection(folder)
    folder.end("it was revoked")
    assert why_no_connection(folder) == "it was revoked"
    shutil.rmtree(folder.path)
    assert why_no_connection(folder)


@pytest.mark.parametrize(
    ("text", "forward"),
    [
        ("8080:localhost:80", PodForward(("127.0.0.1", "::1"), 8080, 80)),
        ("localhost:8080:127.0.0.1:80", PodForward(("127.0.0.1", "::1"), 8080, 80)),
        ("127.0.0.2:8080:[::1]:80", PodForward(("127.0.0.2",), 8080, 80)),
        ("[::1]:8080:localhost:80", PodForward(("::1",), 8080, 80)),
        ("*:8080:localhost:80", PodForward(("0.0.0.0", "::"), 8080, 80)),  # noqa: S104
    ],
)
def test_a_forwarding_to_a_pod(text: str, forward: PodForward) -> None:
    assert pod_forward(text) == forward


@pytest.mark.parametrize(
    "text",
    ["8080:10.0.0.7:80", "8080:db:80", "8080:[::2]:80", "0:localhost:80", "8080:localhost:65536", "8080:localhost", ""],
)
def test_a_forwarding_that_leads_elsewhere(text: str) -> None:
    with pytest.raises(WrongUse):
        pod_forward(text)


def test_only_the_gateways_keys_are_known() -> None:
    """Neither the bastion's key, nor the authorities of hosts: each of those could be the gateway then."""
    assert known_hosts(access()) == f"{ALIAS} {GATEWAY_LINE}\n"


def test_the_folder_has_no_certificate(tmp_path: Path) -> None:
    found = access()
    record = FolderRecord(found.grant.key, "production", "", False, "")
    folder = GrantFolders(tmp_path / "grants").create(record)
    folder.write_access(found, record)
    assert folder.record() == record
    assert folder.hosts == (f"{USER}.production",)
    assert not list(folder.path.glob("*-cert.pub"))


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"gateway": {}}, r"names no gateway.*access\.gateway.*no node of the Cluster"),
        ({"knownHosts": [f"gateway.example.com {GATEWAY_LINE}"]}, "no host key of the gateway"),
        ({"knownHosts": [f"@cert-authority {ALIAS} {GATEWAY_LINE}"]}, "no host key of the gateway"),
        ({"certificates": []}, "no certificate for the container"),
    ],
)
def test_a_status_that_lacks_something(status: dict[str, Any], why: str) -> None:
    with pytest.raises(NotUsable, match=why):
        access(**status)


def test_a_certificate_for_something_else() -> None:
    key, other = public_key_of(KEY), public_key_of(private_key("ed25519", 331))
    for certificate, why in (
        (issue(key, PlainPrincipal("shop_web-1_app")), "other logins"),
        (issue(key, LoginOnNode("root", "worker-1")), "other logins"),
        (issue(other, PlainPrincipal(USER)), "not for the grant's key"),
        (issue(key, PlainPrincipal(USER), seconds=-1), "has ended"),
    ):
        with pytest.raises(NotUsable, match=why):
            access(certificates=[{"hop": "container", "certificate": certificate.line}])
    with pytest.raises(NotUsable, match="another key"):
        access_of(parse_grant(container_document()), other, int(time.time()))


def test_a_request_names_the_container_and_no_login() -> None:
    for name, target in (
        (USER, TARGET),
        (
            "shop_sts.db_app",
            {"container": {"namespace": "shop", "workload": {"kind": "StatefulSet", "name": "db"}, "container": "app"}},
        ),
    ):
        request = GrantRequest("production", ContainerTarget(parse_container_principal(name)), ())
        spec = grant_manifest(request, "mine", public_key_of(KEY))["spec"]
        assert spec["target"] == target
        assert "logins" not in spec


def test_a_login_for_a_container_is_refused() -> None:
    target = ContainerTarget(parse_container_principal(USER))
    create = ["grant", "create", f"{USER}.production"]
    assert choices_of(parser().parse_args(create), "production", target).request.logins == ()
    with pytest.raises(WrongUse, match="--login is for nodes"):
        choices_of(parser().parse_args([*create, "--login", "root"]), "production", target)
