"""All targets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import attested, clouds, containers, controller, gateway, http, node, ssh, tpm, wire

ALL: Final[tuple[Target, ...]] = (
    *wire.TARGETS,
    *ssh.TARGETS,
    *attested.TARGETS,
    *tpm.TARGETS,
    *clouds.TARGETS,
    *controller.TARGETS,
    *http.TARGETS,
    *gateway.TARGETS,
    *node.TARGETS,
    *containers.TARGETS,
)
TARGETS: Final = {target.name: target for target in ALL}
CORPUS: Final = Path(__file__).parents[2] / "fixtures" / "fuzz"


def corpus_of(target: Target) -> list[Path]:
    """The target's inputs, in the order of their names."""
    return sorted((CORPUS / target.name).iterdir())
