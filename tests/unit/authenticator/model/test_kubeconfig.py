from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from authenticator.model.cluster import BearerToken, ClientCertificate, Cluster
from authenticator.model.exec_credential import API_VERSIONS
from authenticator.model.kubeconfig import (
    EXEC_API_VERSIONS,
    MAXIMUM_KUBECONFIG_BYTES,
    UnusableKubeconfig,
    cluster_of_exec_info,
    cluster_of_kubeconfig,
    exec_info_bytes,
    exec_kubeconfig,
    parse_bootstrap,
    runs_this_program,
)
from tests.support.yaml_documents import safe_load
from tests.unit.authenticator.builders import (
    SERVER,
    TOKEN,
    V1,
    V1BETA1,
    as_yaml,
    authority,
    bootstrap,
    certificate,
    cluster,
    cluster_with_authorities,
    encoded,
    key_pem,
    kubeconfig,
    most_authorities,
    pem_of,
    secret_line,
)

CERTIFICATE = pem_of(certificate())
INLINE = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(key_pem())}
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
FILES = {
    "ca.crt": authority().encode(),
    "token": f"{TOKEN}\n".encode(),
    "client.crt": CERTIFICATE.encode(),
    "client.key": key_pem().encode(),
    "empty": b"",
    "blank": b" \n",
    "binary": b"\xff",
}
COMMAND = "/usr/local/bin/kubelet-authenticator"
ARGUMENTS = ["credential", "--config", "/etc/kubernetes/kubelet-authenticator.json"]


def read_file(path: str) -> bytes:
    try:
        return FILES[path]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory", path) from None


def parsed(document: object) -> Any:
    return parse_bootstrap(document if isinstance(document, bytes) else as_yaml(document), read_file)


def twice(listing: str) -> list[Any]:
    return [kubeconfig()[listing][0], kubeconfig()[listing][0]]


def target(**changes: Any) -> dict[str, Any]:
    return {"server": SERVER, "certificate-authority-data": encoded(authority()), **changes}


def refuse(document: object, message: str) -> None:
    with pytest.raises(UnusableKubeconfig, match=message) as refused:
        parsed(document)
    assert TOKEN not in str(refused.value)
    assert secret_line(key_pem()) not in str(refused.value)
    assert refused.value.__cause__ is None


# The bootstrap kubeconfig


def test_a_bootstrap_kubeconfig_of_kubeadm() -> None:
    assert parsed(kubeconfig()) == bootstrap()


def test_a_server_of_another_name() -> None:
    found = parsed(kubeconfig(target=target(**{"tls-server-name": "kubernetes"})))
    assert found.cluster.tls_server_name == "kubernetes"
    assert parsed(kubeconfig()).cluster.tls_server_name == ""


def test_a_client_certificate_in_place_of_a_token() -> None:
    assert parsed(kubeconfig(user=INLINE)).credential == ClientCertificate(CERTIFICATE, key_pem())


def test_files_beside_it() -> None:
    by_file = {"server": SERVER, "certificate-authority": "ca.crt"}
    assert parsed(kubeconfig(target=by_file, user={"tokenFile": "token"})) == bootstrap()
    found = parsed(kubeconfig(user={"client-certificate": "client.crt", "client-key": "client.key"}))
    assert found.credential == ClientCertificate(CERTIFICATE, key_pem())


def test_a_token_file_that_can_be_read_wins_over_a_token() -> None:
    """As in client-go, where a token in a file can be replaced."""
    for user in ({"token": TOKEN, "tokenFile": "no"}, {"token": "other", "tokenFile": "token"}):
        assert parsed(kubeconfig(user=user)) == bootstrap()


def test_inline_data_wins_over_files() -> None:
    assert parsed(kubeconfig(target=target(**{"certificate-authority": "missing"}))) == bootstrap()
    user = INLINE | {"client-certificate": "missing", "client-key": "missing"}
    assert parsed(kubeconfig(user=user)).credential == ClientCertificate(CERTIFICATE, key_pem())


def test_a_token_wins_over_a_client_certificate() -> None:
    assert parsed(kubeconfig(user=INLINE | {"token": TOKEN})).credential == BearerToken(TOKEN)


def test_white_space_around_a_token_is_none_of_it() -> None:
    assert parsed(kubeconfig(user={"token": f" {TOKEN}\n"})).credential == BearerToken(TOKEN)


def test_the_current_context_is_followed() -> None:
    document = kubeconfig()
    document["clusters"].insert(0, {"name": "other", "cluster": {"server": "https://other.example"}})
    document["users"].insert(0, {"name": "other", "user": {"token": "other"}})
    document["contexts"].insert(0, {"name": "other", "context": {"cluster": "other", "user": "other"}})
    assert parsed(document) == bootstrap()
    document["current-context"] = "other"
    refuse(document, "certificate-authority-data is missing")


def test_settings_that_are_off_do_no_harm() -> None:
    off = target(**{"insecure-skip-tls-verify": False, "proxy-url": ""})
    assert parsed(kubeconfig(target=off, user={"token": TOKEN, "exec": None, "username": ""})) == bootstrap()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(b"", "^it is not plain YAML: it is empty$", id="empty"),
        pytest.param(b"\xff\xfe", "it is no|it is not", id="binary"),
        pytest.param(b"{", "^it is not plain YAML: syntax error at line 2, column 1$|line 1", id="cut-off"),
        pytest.param(b"token: [" + TOKEN.encode(), "^it is not plain YAML: syntax error at", id="quoting-the-line"),
        pytest.param([], "it is not a kubeconfig", id="list"),
        pytest.param(
            {"kind": "Secret"},
            "^it is not a kubeconfig: kind must be Config and apiVersion v1, or absent$",
            id="another-kind",
        ),
        pytest.param({"kind": ["Config"]}, "it is not a kubeconfig", id="list-as-kind"),
        pytest.param({"kind": "Config"}, "^current-context is missing: it names one of the contexts$", id="nothing"),
        pytest.param(
            kubeconfig() | {"current-context": "other"}, "^current-context names none of the", id="no-context"
        ),
        pytest.param(kubeconfig(contexts={}), "^contexts is missing, or is no list$", id="contexts-no-list"),
        pytest.param(kubeconfig(contexts=["bootstrap"]), "^current-context names none", id="contexts-of-texts"),
        pytest.param(
            kubeconfig(contexts=[{"name": "bootstrap"}]), "names an entry without context", id="empty-context"
        ),
        pytest.param(
            kubeconfig(contexts=twice("contexts")), "^current-context names 2 of the contexts", id="two-contexts"
        ),
        pytest.param(kubeconfig(clusters=[]), "^the current context's cluster names none of the cl", id="no-cluster"),
        pytest.param(
            kubeconfig(clusters=twice("clusters")), "cluster names 2 of the clusters instead", id="two-clusters"
        ),
        pytest.param(kubeconfig(users=None), "^users is missing, or is no list$", id="no-user"),
        pytest.param(kubeconfig(users=twice("users")), "user names 2 of the users", id="two-users"),
        pytest.param(
            kubeconfig(target=target(**{"insecure-skip-tls-verify": True})),
            "^insecure-skip-tls-verify: the API server must be verified; give",
            id="insecure",
        ),
        pytest.param(
            kubeconfig(target=target(**{"proxy-url": "http://p"})), "^proxy-url: proxies are not supported", id="proxy"
        ),
        pytest.param(kubeconfig(target={"server": SERVER}), "certificate-authority-data is missing", id="no-ca"),
        pytest.param(
            kubeconfig(target=target(**{"certificate-authority-data": "no base64"})),
            "^certificate-authority-data has spaces in its base64; a YAML scalar in several lines must begin with",
            id="ca-no-base64",
        ),
        pytest.param(
            kubeconfig(target=target(**{"certificate-authority-data": f"!{encoded(authority())}"})),
            "^certificate-authority-data must be base64",
            id="ca-almost-base64",
        ),
        pytest.param(
            kubeconfig(target=target(**{"certificate-authority-data": base64.b64encode(b"\xff").decode()})),
            "^certificate-authority: holds no PEM certificate",
            id="ca-binary",
        ),
        pytest.param(
            kubeconfig(target=target(**{"certificate-authority-data": encoded("text")})),
            "^certificate-authority: holds no PEM certificate",
            id="ca-no-certificate",
        ),
        pytest.param(
            kubeconfig(target={"server": SERVER, "certificate-authority": "missing"}),
            "^missing: No such file or directory$",
            id="ca-file-missing",
        ),
        pytest.param(
            kubeconfig(target={"server": SERVER, "certificate-authority": "binary"}),
            "^certificate-authority: holds no PEM certificate",
            id="ca-file-binary",
        ),
        pytest.param(kubeconfig(target=target(server="")), "^server: must be https://", id="no-server"),
        pytest.param(kubeconfig(target=target(server="https://[")), "^server: has a malformed host", id="bad-server"),
        pytest.param(kubeconfig(target=target(server=[7])), "^server must be a string", id="list-as-server"),
        pytest.param(kubeconfig(target={}), "certificate-authority-data is missing", id="empty-cluster"),
        *(
            pytest.param(
                kubeconfig(user={"token": TOKEN, name: "x"}), f"{name} is not supported; a bootstrap kubec", id=name
            )
            for name in ("exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups")
        ),
        pytest.param(
            kubeconfig(target=target(**{"tls-server-name": "a b"})), "^tls-server-name: must be a host", id="name"
        ),
        pytest.param(
            kubeconfig(user=INLINE | {"client-certificate-data": encoded(CERTIFICATE + BROKEN)}),
            "^client-certificate: 1 of its 2 certificates are unreadable$",
            id="broken-chain",
        ),
        pytest.param(kubeconfig(user={}), "neither a token nor a client certificate", id="no-credential"),
        pytest.param(kubeconfig(user={"tokenFile": "empty"}), "neither a token nor", id="empty-token-file"),
        pytest.param(kubeconfig(user={"tokenFile": "blank"}), "neither a token nor", id="blank-token-file"),
        pytest.param(kubeconfig(user={"tokenFile": "binary"}), "^binary: token must be", id="binary-token-file"),
        pytest.param(kubeconfig(user={"tokenFile": "missing"}), "^missing: No such file", id="token-file-missing"),
        pytest.param(kubeconfig(user={"token": " \n"}), "token must be printable ASCII text", id="blank-token"),
        pytest.param(kubeconfig(user={"token": [TOKEN]}), "^token must be a string$", id="list-as-token"),
        pytest.param(kubeconfig(user={"token": "\u00e4"}), "token must be printable ASCII text", id="token-not-ascii"),
        pytest.param(kubeconfig(user={"token": "a\r\nX-Remote-User: b"}), "token must be printable", id="two-lines"),
        pytest.param(
            kubeconfig(user={"client-certificate-data": INLINE["client-certificate-data"]}),
            "neither a token nor",
            id="certificate-without-key",
        ),
        pytest.param(
            kubeconfig(user={"client-key-data": INLINE["client-key-data"]}), "neither a token nor", id="key-alone"
        ),
        pytest.param(
            kubeconfig(user=INLINE | {"client-key-data": key_pem()}), "^client-key-data has spaces", id="key-no-base64"
        ),
    ],
)
def test_what_cannot_be_used_is_refused(document: object, message: str) -> None:
    refuse(document, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"!!bool x", "explicit tags are not accepted"),
        (b"!!binary x", "explicit tags are not accepted"),
        (b"!!python/object:os.system x", "explicit tags are not accepted"),
        (b"? [a]\n: b", "a mapping key is not a string"),
        (b"[" * 600, "it is nested deeper than 16 levels"),
        (b"a: b: c", "syntax error at line 1"),
        (b"a\n---\nb", "it holds more than one document"),
        (b"kind: &a Config\ncurrent-context: *a", "anchors and aliases are not accepted"),
        (b"&a [*a]", "anchors and aliases are not accepted"),
        (b"a: b\na: c", "a mapping key appears twice"),
    ],
)
def test_what_is_not_plain_yaml(text: bytes, message: str) -> None:
    refuse(text, f"^it is not plain YAML: {message}")


def test_the_size_is_bounded() -> None:
    text = as_yaml(kubeconfig())
    padding = b"#" * (MAXIMUM_KUBECONFIG_BYTES - len(text))
    assert parsed(text + padding) == bootstrap()
    refuse(text + padding + b"#", "it is larger than 524288 bytes")


@pytest.mark.parametrize("name", ["None", "X"])
@pytest.mark.parametrize("missing", ["current-context", "cluster", "user"])
def test_what_is_not_named_is_not_found(missing: str, name: str) -> None:
    document = kubeconfig()
    for listing in ("contexts", "clusters", "users"):
        document[listing][0]["name"] = name
    document["current-context"] = name
    document["contexts"][0]["context"] = {"cluster": name, "user": name}
    assert parsed(document) == bootstrap()
    del (document if missing == "current-context" else document["contexts"][0]["context"])[missing]
    refuse(document, " is missing: it names one of the ")
    if missing != "user":
        with pytest.raises(UnusableKubeconfig, match=" is missing: it names one of the "):
            cluster_of_kubeconfig(as_yaml(document), read_file)


# The cluster alone


def test_the_cluster_of_a_kubeconfig_with_any_user() -> None:
    assert cluster_of_kubeconfig(as_yaml(kubeconfig(users=[])), read_file) == cluster()


def test_its_ca_may_be_in_a_file() -> None:
    for file, found in (("ca.crt", True), ("missing", False)):
        named = as_yaml(kubeconfig(target={"server": SERVER, "certificate-authority": file}, users=[]))
        if found:
            assert cluster_of_kubeconfig(named, read_file) == cluster()
            continue
        with pytest.raises(UnusableKubeconfig, match=r"^missing: No such file"):
            cluster_of_kubeconfig(named, read_file)


def test_client_go_names_no_file() -> None:
    with pytest.raises(UnusableKubeconfig, match="files are not read here"):
        cluster_of_exec_info({"server": SERVER, "certificate-authority": __file__})


def test_the_cluster_that_client_go_hands_over() -> None:
    assert cluster_of_exec_info(target(**{"tls-server-name": "x"})) == cluster(tls_server_name="x")


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"server": SERVER},
        {"server": 7, "certificate-authority-data": {}},
        target(**{"insecure-skip-tls-verify": True}),
        target(**{"proxy-url": "http://proxy.example"}),
    ],
)
def test_a_cluster_that_cannot_be_verified_is_refused(info: dict[str, Any]) -> None:
    with pytest.raises(UnusableKubeconfig):
        cluster_of_exec_info(info)


# The kubeconfig that is written


def test_the_versions_that_may_be_written_are_those_that_are_answered() -> None:
    assert EXEC_API_VERSIONS == API_VERSIONS == (V1, V1BETA1)


def written(of: Cluster | None = None, api_version: str = V1) -> str:
    return exec_kubeconfig(
        of or cluster(), authority_file="ca.crt", command=COMMAND, arguments=ARGUMENTS, api_version=api_version
    )


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_the_exec_stanza(api_version: str) -> None:
    document = safe_load(written(api_version=api_version))
    assert document["users"] == [
        {
            "name": "kubelet",
            "user": {
                "exec": {
                    "apiVersion": api_version,
                    "command": COMMAND,
                    "args": ARGUMENTS,
                    "interactiveMode": "Never",
                    "provideClusterInfo": True,
                }
            },
        }
    ]


def test_the_rest_of_it() -> None:
    document = safe_load(written())
    del document["users"]
    assert document == {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "workload", "cluster": {"server": SERVER, "certificate-authority": "ca.crt"}}],
        "contexts": [{"name": "kubelet@workload", "context": {"cluster": "workload", "user": "kubelet"}}],
        "current-context": "kubelet@workload",
    }
    assert written().startswith(
        "# Written by kubelet-authenticator prepare.\napiVersion: v1\nkind: Config\nclusters:\n"
    )


@pytest.mark.parametrize("name", ["", "kubernetes"])
def test_the_cluster_is_read_back(name: str) -> None:
    one = cluster(tls_server_name=name)
    assert cluster_of_kubeconfig(written(one).encode(), read_file) == one
    assert ("tls-server-name" in written(one)) == bool(name)


def test_a_cluster_is_told_if_linux_takes_it_in_one_string() -> None:
    """What the real client-go passes is compared in ``test_kubectl.py``."""
    most = most_authorities()
    for certificates in (1, most, most + 1, 400):
        large = cluster_with_authorities(certificates)
        (user,) = safe_load(written(large))["users"]
        assert user["user"]["exec"]["provideClusterInfo"] is (certificates <= most)
        assert (exec_info_bytes(large, V1) <= 128 * 1024) is (certificates <= most)


def test_it_is_recognised() -> None:
    assert runs_this_program(written().encode())


REWRITTEN = b"""apiVersion: v1
clusters:
- cluster:
    certificate-authority: /var/lib/kubelet/pki/kubelet-authenticator-ca.crt
    server: https://192.0.2.2:48737
  name: workload
contexts:
- context:
    cluster: workload
    user: kubelet
  name: kubelet@workload
current-context: kubelet@workload
kind: Config
users:
- name: kubelet
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      args:
      - credential
      command: /usr/local/bin/kubelet-authenticator
      env: null
      interactiveMode: Never
      provideClusterInfo: true
"""
"""After ``kubeadm upgrade node`` 1.36.2 gave a control plane's kubelet the API server of its machine."""


def test_it_is_recognised_as_kubeadm_writes_it_back() -> None:
    assert runs_this_program(REWRITTEN)
    files = {"/var/lib/kubelet/pki/kubelet-authenticator-ca.crt": CERTIFICATE.encode()}
    assert cluster_of_kubeconfig(REWRITTEN, files.__getitem__) == Cluster("https://192.0.2.2:48737", CERTIFICATE)


def running(*commands: Any) -> bytes:
    return as_yaml(kubeconfig(users=[{"name": "kubelet", "user": {"exec": {"command": one}}} for one in commands]))


def test_this_program_anywhere_is_this_program() -> None:
    assert runs_this_program(running("kubelet-authenticator"))
    assert runs_this_program(running("/opt/kubelet-authenticator"))
    assert runs_this_program(running("/opt/kubelet-authenticator", COMMAND))


KUBEADM = kubeconfig(
    users=[
        {"name": "default-auth", "user": dict.fromkeys(("client-certificate", "client-key"), "/var/lib/kubelet/x.pem")}
    ]
)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(as_yaml(KUBEADM), id="kubeadms-own"),
        pytest.param(as_yaml(kubeconfig()), id="a-bootstrap-kubeconfig"),
        pytest.param(running(COMMAND, "/usr/bin/other"), id="two-users"),
        pytest.param(running("/opt/kubelet-authenticator/other"), id="folder"),
        pytest.param(running("/opt/my-kubelet-authenticator"), id="another-name"),
        pytest.param(running("kubelet-authenticator.sh"), id="another-ending"),
        pytest.param(running(["kubelet-authenticator"]), id="list"),
        pytest.param(running(None), id="null"),
        pytest.param(as_yaml(kubeconfig(users=[])), id="no-user"),
        pytest.param(as_yaml(kubeconfig(users={"kubelet": {}})), id="users-no-list"),
        pytest.param(as_yaml(kubeconfig(users=7)), id="users-a-number"),
        pytest.param(as_yaml(kubeconfig(users=["kubelet-authenticator"])), id="users-of-texts"),
        pytest.param(as_yaml(kubeconfig(users=[{"user": {"exec": "kubelet-authenticator"}}])), id="exec-no-object"),
        pytest.param(b"kubelet-authenticator", id="text"),
        pytest.param(b"{", id="not-yaml"),
        pytest.param(b"", id="empty"),
        pytest.param(b"#" * (MAXIMUM_KUBECONFIG_BYTES + 1), id="large"),
    ],
)
def test_another_programs_kubeconfig_is_not_recognised(data: bytes) -> None:
    assert not runs_this_program(data)


def test_the_client_library_of_kubernetes_reads_it(tmp_path: Path) -> None:
    from kubernetes import config

    path = tmp_path / "kubelet.conf"
    path.write_text(written())
    contexts, active = config.list_kube_config_contexts(str(path))  # type: ignore[no-untyped-call]
    assert active == contexts[0]
    assert active["context"] == {"cluster": "workload", "user": "kubelet"}
