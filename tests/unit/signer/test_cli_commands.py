"""Each command loads its own modules, and what runs no command loads parsers alone, so that all start quickly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from signer import offline
from signer.cli import _EVERY_COMMAND, _named_in, _parser
from signer.cli.commands import COMMANDS

pytestmark = pytest.mark.slow

LOADED = """
import sys
from signer.entry import main
for arguments in {calls!r}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit:
        pass
print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {
    *("aiohttp", "asyncio", "cryptography", "importlib.metadata", "kubernetes", "prometheus_client", "requests"),
    *("rich", "ssl", "yaml", "attestors.registry", "signer.configuration", "signer.kube.client"),
}
ACTIONS = (
    *(["rotate", "one", action] for action in ("preflight", "start", "status", "confirm", "abandon")),
    *(["rotate", "one", "ssh", action] for action in ("status", "start", "revoke-host")),
    *(["audit", action] for action in ("verify", "show")),
    *(["node-access", action] for action in ("config", "known-hosts", "preflight")),
)
ONLINE = tuple([command.name] for command in COMMANDS if command.name not in offline.COMMANDS)


def modules_after(*calls: list[str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(calls=calls)], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [["--help"], ["crds"], ["completion", "bash"]], ids=" ".join)
def test_what_needs_no_cluster_loads_no_client(arguments: list[str]) -> None:
    assert modules_after(arguments) & HEAVY == set()


def test_the_version_is_looked_up_on_its_own_flag_alone() -> None:
    assert modules_after(["--version"]) & HEAVY == {"importlib.metadata"}


def test_help_and_wrong_usage_load_parsers_alone() -> None:
    modules = modules_after(
        *([*words, flag] for words in (*ONLINE, *ACTIONS) for flag in ("--help", "--unknown")),
        *(["status", "--timeout", "never"], ["explain", "--at", "noon"], ["run", "--shards", "0"]),
    )
    assert {f"signer.cli.parsers.{words[0].replace('-', '_')}" for words in ONLINE} <= modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize(
    ("arguments", "loaded", "not_loaded"),
    [
        (["status"], "signer.cli.status", {"signer.cli.explain_output", "signer.decision.decider", "signer.ssh.plan"}),
        (["explain", "one", "--cluster", "a/b"], "signer.cli.explain", {"signer.cli.status", "signer.ssh.plan"}),
        (
            ["rotate", "one", "status"],
            "signer.cli.rotate_status",
            {"signer.cli.rotate_confirm", "signer.cli.rotate_ssh", "signer.rotation.rotations", "signer.store.caches"},
        ),
        (
            ["rotate", "one", "ssh", "status"],
            "signer.cli.rotate_ssh",
            {"signer.cli.rotate_output", "signer.ssh.plan", "signer.store.caches"},
        ),
        (["rotate", "one", "start", "--yes"], "signer.cli.rotate", {"signer.cli.rotate_preflight"}),
    ],
    ids=["status", "explain", "rotate-status", "rotate-ssh-status", "rotate-start"],
)
def test_a_command_that_runs_loads_what_it_needs(
    tmp_path: Path, arguments: list[str], loaded: str, not_loaded: set[str]
) -> None:
    modules = modules_after([*arguments, "--kubeconfig", str(tmp_path / "missing")])
    assert loaded in modules
    assert modules & (not_loaded | {"signer.cli.run", "signer.controller.run"}) == set()


def test_the_word_that_is_no_flag_names_the_command() -> None:
    """The program's own flags take no values."""
    assert _named_in(["--version", "status", "rotate"]) == {"status"}
    assert _named_in(["--help"]) == frozenset()


def test_every_command_is_listed() -> None:
    text = _parser(frozenset()).format_help()
    assert [command.name for command in COMMANDS if f"\n    {command.name} " not in text.replace("\n", " \n")] == []
    assert len(_EVERY_COMMAND) == len(COMMANDS)
