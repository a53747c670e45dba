"""The image, built from the Containerfile as docs/install.md says, and run as the chart's Deployment says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.packages import ROOT
from tests.e2e.auto_approval_fixtures import THIEF, VICTIM
from tests.e2e.installation import Installation, installation
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.contained import security_options
from tests.support.container_engine import ContainerEngine, EngineFailed, container_engine
from tests.support.image_registry import image_registry

pytestmark = [pytest.mark.real, pytest.mark.slow]

_PLUGIN: Final = ROOT / "tests/attestor_plugin"


def documented() -> list[str]:
    """The arguments of ``podman build`` in docs/install.md."""
    text = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^podman build (--tag .*)$", text, flags=re.MULTILINE)
    return shlex.split(command)


@pytest.fixture(scope="module")
def engine() -> Iterator[ContainerEngine]:
    try:
        with container_engine() as engine:
            yield engine
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def image(engine: ContainerEngine) -> str:
    """The image, with an attestor of somebody else's."""
    arguments = documented()
    here = [f"--volume={_PLUGIN}:/attestor:ro", "--build-arg=ATTESTORS=/attestor"]
    engine.build([*here, *arguments], ROOT)
    return arguments[arguments.index("--tag") + 1]


def test_it_holds_the_program_and_nothing_to_change_it_with(engine: ContainerEngine, image: str) -> None:
    [inspected] = json.loads(engine.do("inspect", image))
    assert inspected["Config"]["User"] == "65532:65532"
    assert engine.run(image, "--version").startswith("node-attestation-controller ")

    def shell(script: str) -> str:
        return engine.run(image, "-c", script, options=["--entrypoint=sh"])

    assert shell("id -u; id -g").split() == ["65532", "65532"]
    with pytest.raises(EngineFailed, match="No module named pip"):
        shell("/opt/node-attestation/bin/python -m pip --version")
    assert shell("find /opt/node-attestation -writable ! -type l").split() == []
    assert (
        shell("find /opt/node-attestation -path '*/signer/testing*' -o -path '*/site-packages/pytest*'").split() == []
    )
    # Compiled when it was built: the root file system is read-only.
    assert shell("find /opt/node-attestation -path '*/signer/*' -name '__pycache__'").split()


@pytest.mark.parametrize("program", ["node-access-bastions", "node-access-gateway"])
def test_it_holds_the_other_programs(engine: ContainerEngine, image: str, program: str) -> None:
    """With their libraries: the command line is read after all imports."""
    said = engine.run(image, "run", "--help", options=[f"--entrypoint={program}"])
    assert said.startswith(f"usage: {program} run ")


def test_each_attestor_can_be_loaded_in_it(engine: ContainerEngine, image: str) -> None:
    script = """
from attestors.registry import Registry

registry = Registry()
for provider in registry.providers:
    registry.load(provider)
    print(provider)
"""
    loaded = engine.run(image, "-c", script, options=["--entrypoint=/opt/node-attestation/bin/python"])
    assert set(loaded.split()) >= {"aws", "gcp", "insecure", "keyed-mac", "tpm"}


def test_the_node_image_of_the_quick_start_has_the_plugin(engine: ContainerEngine) -> None:
    """Upon the same base: kind's node images are Debian, too."""
    build = ["--build-arg=NODE_IMAGE=localhost/python-base", "--file=deploy/kind/worker.Containerfile"]
    engine.build([*build, "--tag=localhost/worker", "."], ROOT)
    harness = "find /opt/kubelet-authenticator -path '*/signer/testing*'"
    assert engine.run("localhost/worker", "-c", harness, options=["--entrypoint=sh"]).split() == []
    script = "kubelet-authenticator --version; ls /etc/systemd/system/kubelet-authenticator.service /tmp"
    said = engine.run("localhost/worker", "-c", script, options=["--entrypoint=sh"]).split()
    assert said[0] == "kubelet-authenticator"
    assert said[2:] == ["/etc/systemd/system/kubelet-authenticator.service", "/tmp:"]


def test_a_registry_gives_back_what_the_documents_push(engine: ContainerEngine, image: str) -> None:
    """To a machine that has never seen the image, as a node of the management cluster."""
    text = (ROOT / "docs/first-cluster.md").read_text(encoding="utf-8")
    [command] = re.findall(r"^podman (push .*)$", text, flags=re.MULTILINE)
    name = command.split()[-1]
    of, _, repository = name.partition("/")
    try:
        with image_registry() as registry, container_engine(has_base=False) as node:
            there = registry.instead_of(of)
            engine.do("tag", image, name)
            engine.do(*shlex.split(command), f"{registry.address}/{repository}", environment=there)
            with pytest.raises(EngineFailed, match="manifest unknown"):
                node.do("pull", f"{name}-other", environment=there)
            node.do("pull", "--quiet", name, environment=there)
            assert node.do("inspect", "--format={{.Id}}", name) == engine.do("inspect", "--format={{.Id}}", image)
            assert node.run(name, "--version").startswith("node-attestation-controller ")
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation("contained", tmp_path_factory.mktemp("contained")) as installed:
        yield installed


def test_nodes_join_by_a_controller_in_a_container(
    installed: Installation, engine: ContainerEngine, image: str, tmp_path: Path
) -> None:
    """In-cluster configuration, user 65532, no capabilities, a read-only root file system, and SIGTERM at the end."""
    with installed.contained(engine, image) as controller:
        for machine in (VICTIM, THIEF):
            installed.world.join(machine)
    log = controller.log.read_text()
    assert "ERROR" not in log
    assert "Traceback" not in log


def test_the_container_has_no_rights_and_nothing_to_write_upon(
    installed: Installation, engine: ContainerEngine, image: str
) -> None:
    """What :mod:`tests.support.contained` makes of the Deployment's security context."""
    template = installed.pod()
    options = security_options(template.spec["securityContext"], template.container["securityContext"])
    script = "touch /x /opt/x /tmp/x || grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status"
    said = engine.run(image, "-c", script, options=[*options, "--entrypoint=sh"])
    assert said.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
