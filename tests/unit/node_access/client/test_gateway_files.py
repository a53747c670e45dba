"""The files of a grant for a container, read back by the real ssh; and statuses that must not be used."""

from __future__ import annotations

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
from node_access.client.errors import WrongUse
from node_access.client.folders import FolderRecord, GrantFolders
from node_access.client.gateway_files import ContainerAccess
from node_access.client.grants import ContainerTarget, parse_grant
from node_access.client.manifests import GrantRequest, grant_manifest
from node_access.client.node_files import NotUsable
from node_access.client.ssh_files import access_of, known_hosts, names_of, ssh_config
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
        ({"gateway": {}}, r"names no gateway.*access\.gateway"),
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
