"""The layers of the project: what ``.importlinter`` says holds, and it says so of every package."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_ERROR, EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / ".importlinter"


def contract(name: str) -> dict[str, list[str]]:
    parser = configparser.ConfigParser()
    parser.read(CONFIGURATION)
    return {key: value.split("\n") for key, value in parser[f"importlinter:contract:{name}"].items()}


def packages(folder: Path) -> set[str]:
    """The modules and packages directly inside a package."""
    found = {path.parent.name for path in folder.glob("*/__init__.py")}
    return found | {path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__")}


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # It would disable every logger there is, for the tests that follow in this process.
    monkeypatch.setattr("logging.config.dictConfig", lambda config: None)
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture(scope="module")
def import_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Imports that were read once."""
    return str(tmp_path_factory.mktemp("imports"))


def test_contracts_hold(import_cache: str) -> None:
    assert lint_imports(config_filename=str(CONFIGURATION), cache_dir=import_cache) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize(
    ("layers", "reversed_layers"),
    [
        (
            "    signer\n    authenticator | node_access\n    attestors\n",
            "    attestors\n    signer\n    authenticator | node_access\n",
        ),
        ("    testing\n    entry\n", "    entry\n    testing\n"),
        (
            "    decision | rotation\n    audit | store | admission\n",
            "    audit | store | admission\n    decision | rotation\n",
        ),
        ("    status | replicas\n    telemetry\n", "    telemetry\n    status | replicas\n"),
        ("    multiprocessing\n", "    multiprocessing\n    cryptography\n"),
        ("    commands\n    flow\n", "    flow\n    commands\n"),
        (
            "    aiohttp\n    httptools\n    kubernetes\n    msgspec\n    prometheus_client\n",
            "    aiohttp\n    httptools\n    yaml\n    msgspec\n",
        ),
        ("    asyncio\n    http\n    httptools\n", "    argparse\n    asyncio\n    httptools\n"),
        ("    tempfile\n    threading\n\n", "    tempfile\n    yaml\n\n"),
        (
            "    attestors.composite\n    attestors.gcp\n    attestors.insecure\n    attestors.tpm\n\n",
            "    attestors.wire\n\n",
        ),
        ("    attestors.tpm\n    attestors.registry\n\n", "    attestors.contract\n\n"),
        ("    attestors.clouds.google.compute\n", "    attestors.clouds.google.credentials\n"),
        ("    pool\n    dial\n", "    dial\n    pool\n"),
        ("    select\n    socket\n    ssl\n    time\n", "    select\n    httptools\n"),
        ("    attestors.verdict\n    httptools\n", "    attestors.wire\n    httptools\n"),
        ("    registry\n    machine | node_files", "    machine | node_files\n    registry"),
        (
            "    node_access.values\nforbidden_modules =\n    os\n",
            "    node_access.values\nforbidden_modules =\n    base64\n    os\n",
        ),
        ("forbidden_modules =\n    authenticator\n", "forbidden_modules =\n    attestors.net\n"),
        ("    node_access.bastions.pod\n    node_access.cli\n", "    attestors.wire\n    node_access.cli\n"),
        ("    node_access.bastions.aws.errors\n", "    node_access.bastions.aws.ec2\n"),
        ("    signal\n    socket\n    subprocess\n    tempfile\n", "    json\n    socket\n"),
        (
            "    bastions | gateway\n    controller\n    access\n",
            "    controller\n    bastions | gateway\n    access\n",
        ),
        ("    attestors.wire.ssh_host_keys\n    attestors.wire.statement\n", "    attestors.wire.ssh\n"),
        ("    access\n    heartbeat | creating\n", "    heartbeat | creating\n    access\n"),
        (
            "    openings | resolver | streams\n    opening | person | tools_container\n",
            "    opening | person | tools_container\n    openings | resolver | streams\n",
        ),
        ("    listener\n    server\n    forwarding\n", "    server\n    listener\n    forwarding\n"),
        ("forbidden_modules =\n    asyncssh\n", "forbidden_modules =\n    aiohttp\n"),
        (
            "    signer.gateway.streams.status\nforbidden_modules =\n    aiohttp\n",
            "    signer.gateway.streams.status\nforbidden_modules =\n    enum\n",
        ),
        (
            "    node_access.client.words\nforbidden_modules =\n    os\n",
            "    node_access.client.words\nforbidden_modules =\n    ipaddress\n    os\n",
        ),
    ],
    ids=[
        "ground floor",
        "the product over its test harness",
        "store over decision",
        "telemetry over status",
        "what is used is forbidden",
        "commands over flow",
        "a node's library",
        "commands without an API server",
        "the node's model",
        "a used module",
        "what clouds use",
        "who uses google-auth",
        "pool over dial",
        "a network for bytes",
        "sessions need the wire format",
        "the machine over the registry",
        "what rules of sessions use",
        "what the signer uses",
        "what the contract of bastions uses",
        "who calls AWS for bastions",
        "what files of bastions need",
        "the controller over bastions",
        "the client needs OpenSSH's formats",
        "the heartbeat over the command",
        "a person over streams",
        "connections over what listens",
        "who speaks SSH",
        "what parsers of streams use",
        "what parsers of the client use",
    ],
)
def test_a_violation_is_found(tmp_path: Path, import_cache: str, layers: str, reversed_layers: str) -> None:
    """Each contract looks at something: the opposite of what it says does not hold."""
    text = CONFIGURATION.read_text()
    assert text.count(layers) == 1
    changed = tmp_path / "importlinter"
    changed.write_text(text.replace(layers, reversed_layers))
    [*_, of] = re.findall(r"\[importlinter:contract:(.*)\]", text[: text.index(layers)])

    def linted(path: Path) -> int:
        return lint_imports(config_filename=str(path), limit_to_contracts=(of,), cache_dir=import_cache)

    assert linted(CONFIGURATION) == EXIT_STATUS_SUCCESS
    assert linted(changed) == EXIT_STATUS_ERROR


def test_no_provider_is_forgotten() -> None:
    """Whoever adds to the attestors says whether nobody may import it, or it may import no provider."""
    providers = contract("providers")
    sources, forbidden = (
        {module.removeprefix("attestors.") for module in providers[side] if module.startswith("attestors.")}
        for side in ("source_modules", "forbidden_modules")
    )
    assert not sources & forbidden
    assert sources | forbidden == packages(ROOT / "attestors")


SSH_SERVER = frozenset({"entry", "run", "ssh"})
"""What of signer.gateway speaks SSH."""


def test_whoever_speaks_ssh_is_listed() -> None:
    sources = set(contract("ssh-library")["source_modules"])
    signer = {f"signer.{name}" for name in packages(ROOT / "signer") - {"gateway"}}
    gateway = {f"signer.gateway.{name}" for name in packages(ROOT / "signer/gateway") - SSH_SERVER}
    assert sources - {""} == signer | gateway | {"attestors", "authenticator", "node_access"}


def test_nothing_is_exempted() -> None:
    assert "ignore_imports" not in CONFIGURATION.read_text()
