"""Wrong calls of ``kubelet-authenticator``: standard output is the kubelet's, so nothing is written to it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from authenticator.cli import main
from authenticator.model.exec_credential import API_VERSIONS, INFO_VARIABLE, KIND
from tests.support.wrong_usage import answer, as_nobody, checked, files

INFO: Final = json.dumps({"apiVersion": API_VERSIONS[0], "kind": KIND, "spec": {"interactive": False}})
INSECURE: Final = ("--provider", "insecure", "--provider-id", "a://b", "--store", "{folder}")

pytestmark = pytest.mark.usefixtures("nothing_configured")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND, which is one of credential, prepare, agent, request, status, tpm"),
        (["credental"], "Did you mean credential? Type `kubelet-authenticator --help`"),
        (["--store=/s", "status"], "unknown arguments: --store; flags of a command follow its name"),
        (["credential", "--confg=/c"], "Did you mean --config? Type `kubelet-authenticator credential --help`"),
        (["credential", "--config"], "--config: expected one argument"),
        (["credential", "/etc/config"], "unknown arguments: a word without a flag\n"),
        (["credential", "--config", "{missing}"], "there is no such file: write it, or name another with --config"),
        (["credential", "--config", "{broken}"], "broken: not JSON at line 1, column 1"),
        (["credential", "--config", "{list}"], "list: must be an object with apiVersion "),
        (["credential", "--config", "{folder}"], "Is a directory"),
        (["credential", "--timeout", "soon", *INSECURE], "--timeout must be a number of seconds from 1 to 3600"),
        (["credential", "--setting", "x", *INSECURE], "--setting must be NAME=VALUE"),
        (["credential", "--node-name", "_", *INSECURE], "nodeName: '_' is not a valid node name; give --node-name"),
        (["credential", "--provider-id-oid", "x", *INSECURE], "'x' is no OID: numbers with dots between them"),
        (["credential", "--bootstrap-kubeconfig", "{broken}", *INSECURE], "broken: it is not plain YAML"),
        (["prepare", "--exec-api-version", "v1"], f"'v1' is not one of {', '.join(API_VERSIONS)}"),
        (["prepare", "--setting", "a=b", "--bootstrap-kubeconfig", "{list}", *INSECURE], "write settings into the "),
        (["agent", "--serving-ip-address", "x", *INSECURE], "serving IP address: 'x' does not appear to be an IPv4"),
        (["status"], "no attestor is configured: give --provider, "),
        (["status", "--output", "jsn"], "Did you mean json? Type `kubelet-authenticator status --help`"),
        (["tpm", "fingerprnt"], "Did you mean fingerprint? Type `kubelet-authenticator tpm --help`"),
    ],
)
def test_wrong_calls(
    words: Sequence[str],
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(INFO_VARIABLE, INFO)
    paths = files(tmp_path)
    assert said in answer(main, [word.format(**paths) for word in words], capfd)


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ("", f"{INFO_VARIABLE} is not set: a kubelet or kubectl runs `credential` "),
        ("{", f"{INFO_VARIABLE} is not JSON: a kubelet or kubectl runs `credential` "),
        ("[]", f"{INFO_VARIABLE} is not an ExecCredential: a kubelet or kubectl runs `credential` "),
        (INFO.replace("/v1", "/v2"), "set apiVersion of the exec stanza to one of these"),
    ],
    ids=["not set", "not JSON", "another object", "another version"],
)
def test_no_kubelet_runs_it(
    info: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INFO_VARIABLE, info)
    words = [word.format(folder=tmp_path) for word in ("credential", *INSECURE)]
    assert said in answer(main, words, capfd)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can be another user")
def test_another_user() -> None:
    """The store is root's."""
    with tempfile.TemporaryDirectory() as store:
        Path(store).chmod(0o755)
        done = as_nobody(
            "import authenticator.commands\nfrom authenticator.cli import main",
            *("credential", "--provider", "insecure", "--provider-id", "a://b", "--store", store),
            environment={INFO_VARIABLE: INFO},
        )
    assert (done.returncode, done.stdout) == (10, "")
    assert f"the store {store} must belong to the user who runs kubelet-authenticator" in checked(done.stderr)
    assert "chown" in done.stderr
