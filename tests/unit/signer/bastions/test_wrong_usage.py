"""Wrong calls of ``node-access-bastions``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from signer.bastions.entry import main
from tests.support.wrong_usage import answer, files

RIGHT = ("run", "--config={config}", "--host-key-secret={secret}")
"""As far as it goes: the management cluster is missing."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND, which is one of run"),
        (["rnu"], "Did you mean run? Type `node-access-bastions --help`"),
        (["--config=x", "run"], "unknown arguments: --config; flags of a command follow its name"),
        (["run"], "required: --config, --host-key-secret\nType `node-access-bastions run --help`"),
        (["run", "--confg=a"], "Did you mean --config? Type `node-access-bastions run --help`"),
        ([*RIGHT, "now"], "unknown arguments: now"),
        ([*RIGHT, "--config"], "--config: expected one argument"),
        ([*RIGHT, "--logging-format=jsn"], "Did you mean json? "),
        ([*RIGHT, "--config={missing}"], "--config: "),
        ([*RIGHT, "--config={folder}"], "Is a directory"),
        ([*RIGHT, "--config={broken}"], "broken is not YAML at line 2, column 1"),
        ([*RIGHT, "--config={binary}"], "--config: "),
        ([*RIGHT, "--config={empty}"], "empty: owner must be a DNS label of its own for each fleet"),
        ([*RIGHT, "--host-key-secret={missing}"], "missing: No such file or directory; make one by: openssl rand "),
        ([*RIGHT, "--host-key-secret={folder}"], "Is a directory; make one by: openssl rand "),
        ([*RIGHT, "--host-key-secret={empty}"], "empty: the secret has 32 to 4096 bytes; make one by: openssl rand "),
        ([*RIGHT, "--insecure-diagnostics"], "--insecure-diagnostics needs --diagnostics-address: give both"),
        ([*RIGHT, "--diagnostics-address=x"], "--diagnostics-address must be HOST:PORT, such as :8080"),
        ([*RIGHT, "--health-addr=:99999"], "--health-addr must be HOST:PORT, such as :8080"),
        ([*RIGHT, "--kubeconfig={missing}"], "missing: no such file; give --kubeconfig, or set KUBECONFIG"),
        ([*RIGHT, "--kubeconfig={broken}"], "broken: it is not YAML at line 2, column 1"),
    ],
)
def test_wrong_calls(words: Sequence[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").write_text("owner: blue\n")
    (tmp_path / "secret").write_bytes(bytes(range(64)))
    paths = {**files(tmp_path), "config": str(tmp_path / "config"), "secret": str(tmp_path / "secret")}
    assert said in answer(main, [word.format(**paths) for word in words], capfd)
