"""kubectl as a program that may print anything."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node_access.client.creating import create_as_self
from node_access.client.errors import (
    AccessNotServed,
    ClientFailed,
    Conflict,
    Forbidden,
    Invalid,
    ManagementFailed,
    NotFound,
)
from node_access.client.grants import GrantKey
from node_access.client.kubectl import MAXIMUM_OBJECT_BYTES, Kubectl, KubectlSettings
from node_access.client.manifests import NotAsSent
from tests.unit.node_access.client.made import GRANT_UID, document

Make = Callable[[str], Kubectl]
ANSWER = 'print(json.dumps({"kind": "x"}))'
GROUP = "access.cluster.x-k8s.io"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A kubectl that runs some Python, and writes down its arguments."""

    def made(body: str) -> Kubectl:
        program = tmp_path / "kubectl"
        program.write_text(
            f"#!{sys.executable}\nimport json, sys, time\n"
            f"open({str(tmp_path / 'calls')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n{body}\n"
        )
        program.chmod(0o755)
        return Kubectl(KubectlSettings(str(program), "/kube config", "ctx", "team-a"))

    return made


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_options_are_passed_through_as_words(make: Make, tmp_path: Path) -> None:
    assert make(ANSWER).get_grant("repair") == {"kind": "x"}
    (words,) = calls(tmp_path)
    assert words[1:4] == ["--kubeconfig=/kube config", "--context=ctx", "--namespace=team-a"]
    assert words[4:] == ["get", f"accessgrants.{GROUP}", "-o", "json", "--", "repair"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (f'Error from server (NotFound): accessgrants.{GROUP} "repair" not found', NotFound),
        ("Error from server (NotFound): the server could not find the requested resource", AccessNotServed),
        ('error: the server doesn\'t have a resource type "accessgrants"', AccessNotServed),
        ('error: the server doesn\'t have a resource type "nodeattestationpolicies"', ManagementFailed),
        (
            'error: resource mapping not found for name: "x" namespace: "default" from "STDIN": no matches for kind '
            f'"AccessGrant" in version "{GROUP}/v1alpha1"\nensure CRDs are installed first',
            AccessNotServed,
        ),
        (
            f'error: unable to recognize "STDIN": no matches for kind "AccessApproval" in version "{GROUP}/v1alpha1"',
            AccessNotServed,
        ),
        ("Error from server (Forbidden): accessgrants is forbidden", Forbidden),
        ("Error from server (Conflict): Precondition failed", Conflict),
        ("Error from server (AlreadyExists): it exists", Conflict),
        ('The AccessGrant "repair" is invalid: spec.logins: no', Invalid),
        ("Unable to connect to the server: dial tcp", ManagementFailed),
        ("", ManagementFailed),
    ],
)
def test_failures_have_classes(make: Make, message: str, kind: type[ManagementFailed]) -> None:
    with pytest.raises(ManagementFailed) as raised:
        make(f"print({message!r}, file=sys.stderr); sys.exit(1)").get_grant("repair")
    assert type(raised.value) is kind


_LOGGED = 'E1127 17:06:16.003339   23182 memcache.go:265] "Unhandled Error" err="connection refused"'
_SAID = "The connection to the server localhost:8080 was refused - did you specify the right host or port?"


@pytest.mark.parametrize(("printed", "shown"), [([_LOGGED, _LOGGED, _SAID], _SAID), ([_LOGGED, _LOGGED], _LOGGED)])
def test_an_error_is_said_without_kubectls_log(make: Make, printed: list[str], shown: str) -> None:
    with pytest.raises(ManagementFailed) as raised:
        make(f"print(*{printed!r}, sep='\\n', file=sys.stderr); sys.exit(1)").get_grant("repair")
    assert str(raised.value) == f"kubectl: {shown}"


@pytest.mark.parametrize("output", ["", "[]", "text", "{", "[" * 100000, '{"a": NaN'])
def test_what_is_no_object_is_refused(make: Make, output: str) -> None:
    with pytest.raises(ManagementFailed):
        make(f"print({output!r})").get_grant("repair")


def test_output_is_bounded(make: Make) -> None:
    with pytest.raises(ManagementFailed, match="more than"):
        make(f"sys.stdout.write('x' * {MAXIMUM_OBJECT_BYTES + 1}); sys.stdout.flush(); time.sleep(60)").get_grant(
            "repair"
        )
    with pytest.raises(ManagementFailed, match="more than"):
        make("sys.stderr.write('x' * 70000); sys.stderr.flush(); time.sleep(60)").get_grant("repair")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ManagementFailed, match="no-such-kubectl is not installed"):
        Kubectl(KubectlSettings("no-such-kubectl")).version()


def test_a_login_is_shown_and_errors_are_not(make: Make, tmp_path: Path) -> None:
    shown: list[str] = []
    made = make("print('open https://x\\x1b[2J', file=sys.stderr); print('Error: no', file=sys.stderr); " + ANSWER)
    Kubectl(made.settings, on_login=shown.append).get_grant("repair")
    assert shown == ["open https://x\\x1b[2J"]


@pytest.mark.parametrize("items", ["null", "[1]", "{}"])
def test_a_list_is_a_list_of_objects(make: Make, items: str) -> None:
    with pytest.raises(ManagementFailed):
        make(f"print('{{\"items\": {items}}}')").list_grants()


@pytest.mark.parametrize(
    "info",
    ["{}", '{"username": ""}', '{"username": 1}', '{"username": "a", "groups": [1]}', '{"username": "a", "uid": 1}'],
)
def test_who_somebody_is_has_a_form(make: Make, info: str) -> None:
    with pytest.raises(ManagementFailed):
        make(f'print(\'{{"status": {{"userInfo": {info}}}}}\')').who_am_i()


def test_the_context_is_pinned(make: Make) -> None:
    made = make("print('chosen')")
    unpinned = Kubectl(KubectlSettings(made.settings.program))
    assert unpinned.pinned().settings.context == "chosen"
    assert made.pinned() is made
    none = make("sys.exit(1)")
    assert Kubectl(KubectlSettings(none.settings.program)).pinned().settings.context == ""


# Creating in one's own name

SERVER = """
me = {me!r}
given = sys.stdin.read() if "create" in sys.argv else ""
if "whoami" in sys.argv:
    if not me: sys.exit("error: the server doesn't have it")
    print(json.dumps({{"status": {{"userInfo": {{"username": me}}}}}}))
elif "create" in sys.argv:
    sent = json.loads(given)
    sent["metadata"].update(uid="7b1a2f9e-58a4-4ad1-9a55-0d6fdf9a3c11", namespace="team-a")
    {server}
    print(json.dumps(sent))
"""
FILLS = 'sent["spec"]["createdBy"] = {"username": "alice", "uid": "1"}'
REQUIRES = 'sent["spec"].get("createdBy") or sys.exit("Error from server (Forbidden): createdBy is missing")'
ELSEWHERE = f'{FILLS}; sent["metadata"]["namespace"] = "com"'
"""The host worker-1.github.com of ~/.ssh/config would be a node of this Cluster then."""
LIES = 'sent["spec"]["createdBy"] = {"username": "bob"}'
CHANGES = 'sent["spec"]["logins"] = ["admin"]'


def manifest() -> dict[str, object]:
    made = document(logins=["root"])
    return {**made, "metadata": {"name": "repair"}, "spec": {k: v for k, v in made["spec"].items() if k != "createdBy"}}


@pytest.mark.parametrize("server", [FILLS, REQUIRES, "pass"])
@pytest.mark.parametrize("me", ["alice", ""])
def test_the_creator_is_filled_in_where_the_server_does_not(make: Make, tmp_path: Path, server: str, me: str) -> None:
    kubectl = make(SERVER.format(me=me, server=server))
    if not me and server != FILLS:
        with pytest.raises(ClientFailed, match="give --user"):
            create_as_self(kubectl, manifest(), "")
    made = create_as_self(kubectl, manifest(), "" if me else "alice")
    assert made["spec"]["createdBy"]["username"] == "alice"


@pytest.mark.parametrize("server", [LIES, f"{FILLS}; {CHANGES}", ELSEWHERE])
def test_another_object_than_was_sent_is_deleted(make: Make, tmp_path: Path, server: str) -> None:
    with pytest.raises(NotAsSent):
        create_as_self(make(SERVER.format(me="alice", server=server)), manifest(), "")
    namespace = "com" if server == ELSEWHERE else "team-a"
    assert calls(tmp_path)[-1][4:] == [word.replace("team-a", namespace) for word in DELETE]


DELETE = ["delete", f"--raw=/apis/{GROUP}/v1alpha1/namespaces/team-a/accessgrants/repair", "-f", "-"]


def test_a_grant_is_deleted_by_its_uid(make: Make, tmp_path: Path) -> None:
    given = tmp_path / "options"
    kubectl = make(f"open({str(given)!r}, 'w').write(sys.stdin.read())")
    kubectl.delete_grant(GrantKey("team-a", "repair", GRANT_UID))
    assert calls(tmp_path)[-1][4:] == DELETE
    assert json.loads(given.read_text())["preconditions"] == {"uid": GRANT_UID}
    conflict = "Error from server (Conflict): Precondition failed: UID in precondition"
    with pytest.raises(NotFound, match="another grant has its name"):
        make(f"sys.exit({conflict!r})").delete_grant(GrantKey("team-a", "repair", GRANT_UID))
