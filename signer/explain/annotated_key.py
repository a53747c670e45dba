"""What to say where a Machine's annotation names another TPM than the request shows (reason EndorsementKeyMismatch)."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Final

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.explain.next_commands import describe_machine
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.decision import printable

REASON: Final = "EndorsementKeyMismatch"
_FINGERPRINT: Final = r"sha256:[0-9a-f]{64}"
# The message of attestors.tpm, also behind the prefix of the composite attestor.
_MESSAGE: Final = re.compile(rf"by its annotation, Machine (\S+) has another TPM than ({_FINGERPRINT})\Z")


@dataclass(frozen=True, slots=True)
class AnnotatedKey:
    """The annotation of the claimed Machine is what the request contradicts; all texts are printable."""

    note: str
    """Both fingerprints."""
    commands: tuple[str, ...]
    """How to look at the Machine, and how to correct the annotation if the machine is the right one."""


@dataclass(frozen=True, slots=True)
class NoAnnotatedKey:
    """Another reason, or another source says which TPM the machine has."""


def annotated_key(
    reason: str, message: str, cluster: ClusterKey, machine: MachineView | None
) -> AnnotatedKey | NoAnnotatedKey:
    """Compare the annotation of the claimed ``machine`` with the fingerprint in the message of the decision."""
    found = _MESSAGE.search(message)
    if reason != REASON or found is None or machine is None or (machine.kind, machine.name) != (MACHINE_KIND, found[1]):
        return NoAnnotatedKey()
    said = dict(machine.annotations).get(ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, "")
    expected = said if re.fullmatch(_FINGERPRINT, said) else "a public key in PEM"
    name, shown = printable(machine.name), found[2]
    corrected = f"{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}={shown}"
    return AnnotatedKey(
        f"The annotation of Machine {name} is {expected}; the TPM of the request has {shown}. If its node has joined "
        "with the annotated TPM, another machine asks in its name: leave the annotation as it is.",
        (
            describe_machine(cluster, machine),
            f"kubectl annotate machine {shlex.quote(name)} --namespace {shlex.quote(printable(cluster.namespace))} "
            f"--overwrite {corrected}  # only if the machine is the right one",
        ),
    )
