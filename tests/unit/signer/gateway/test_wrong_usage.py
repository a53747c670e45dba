"""Wrong calls of ``node-access-gateway``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from signer.gateway.entry import main
from tests.support.openssh import ssh_keygen
from tests.support.wrong_usage import answer, files

RIGHT = ("run", "--namespace=a", "--host-key={key}")
"""As far as it goes: the management cluster is missing."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name, passphrase in (("key", ""), ("locked", "secret")):
        ssh_keygen("-q", "-t", "ed25519", "-N", passphrase, "-f", folder / name).check_returncode()
    return {"key": str(folder / "key"), "locked": str(folder / "locked")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND, which is one of run"),
        (["rnu"], "Did you mean run? Type `node-access-gateway --help`"),
        (["--namespace=a", "run"], "unknown arguments: --namespace; flags of a command follow its name"),
        (["run"], "required: --namespace, --host-key\nType `node-access-gateway run --help`"),
        (["run", "--namspace=a", "--host-key=k"], "Did you mean --namespace? Type `node-access-gateway run --help`"),
        ([*RIGHT, "now"], "unknown arguments: now"),
        ([*RIGHT, "--listen"], "--listen: expected one argument"),
        ([*RIGHT, "--listen=22"], "--listen must be HOST:PORT, such as :8080"),
        ([*RIGHT, "--logging-format=jsn"], "Did you mean json? "),
        ([*RIGHT, "--namespace=A_"], "--namespace must be a namespace: up to 63 lower-case letters"),
        ([*RIGHT, "--host-key={missing}"], "missing: No such file or directory; make one by: ssh-keygen "),
        ([*RIGHT, "--host-key={folder}"], "Is a directory; make one by: ssh-keygen "),
        ([*RIGHT, "--host-key={broken}"], "broken: no private key without a passphrase; make one by: ssh-keygen "),
        ([*RIGHT, "--host-key={locked}"], "locked: no private key without a passphrase; make one by: ssh-keygen "),
        ([*RIGHT, *3 * ["--host-key={key}"]], "--host-key must be given once to 3 times"),
        ([*RIGHT, "--insecure-diagnostics"], "--insecure-diagnostics needs --diagnostics-address: give both"),
        ([*RIGHT, "--diagnostics-address=x"], "--diagnostics-address must be HOST:PORT, such as :8080"),
        ([*RIGHT, "--health-addr=:99999"], "--health-addr must be HOST:PORT, such as :8080"),
        ([*RIGHT, "--kubeconfig={missing}"], "missing: no such file; give --kubeconfig, or set KUBECONFIG"),
        ([*RIGHT, "--kubeconfig={broken}"], "broken: it is not YAML at line 2, column 1"),
    ],
)
def test_wrong_calls(
    words: Sequence[str], said: str, keys: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {**files(tmp_path), **keys}
    assert said in answer(main, [word.format(**paths) for word in words], capfd)
