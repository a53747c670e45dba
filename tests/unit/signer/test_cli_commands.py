"""Each command loads its own modules, so that all start quickly."""

from __future__ import annotations

import subprocess
import sys

import pytest

from signer.cli import _EVERY_COMMAND, _named_in, _parser
from signer.cli.commands import COMMANDS

pytestmark = pytest.mark.slow

LOADED = """
import sys
sys.argv[1:] = {arguments!r}
from signer.entry import main
try:
    main()
except SystemExit:
    pass
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
HEAVY = {"aiohttp", "asyncio", "cryptography", "kubernetes", "requests", "signer.configuration", "signer.kube.client"}


def modules_after(*arguments: str) -> set[str]:
    code = LOADED.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("crds",)], ids=" ".join)
def test_what_needs_no_cluster_loads_no_client(arguments: tuple[str, ...]) -> None:
    assert modules_after(*arguments) & HEAVY == set()


def test_a_command_loads_no_other() -> None:
    modules = modules_after("audit", "--help")
    assert "signer.cli.audit" in modules
    assert modules & {"kubernetes", "signer.cli.run", "signer.cli.rotate", "signer.controller.run"} == set()


def test_the_word_that_is_no_flag_names_the_command() -> None:
    """The program's own flags take no values."""
    assert _named_in(["--version", "status", "rotate"]) == {"status"}
    assert _named_in(["--help"]) == frozenset()


def test_every_command_is_listed() -> None:
    text = _parser(frozenset()).format_help()
    assert [command.name for command in COMMANDS if f"\n    {command.name} " not in text.replace("\n", " \n")] == []
    assert len(_EVERY_COMMAND) == len(COMMANDS)
