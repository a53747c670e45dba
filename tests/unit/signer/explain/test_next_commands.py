from __future__ import annotations

import shlex

import pytest

from signer.explain.next_commands import Named, next_commands
from signer.model.cluster import ClusterKey
from signer.model.reasons import Reason
from tests.unit.signer.builders import machine_view

NAMED = Named(ClusterKey("team-a", "prod"), "controllers", "csr-1", machine_view())
CHANGING = {"apply", "create", "delete", "edit", "patch", "annotate", "label", "approve", "deny", "replace"}


@pytest.mark.parametrize("reason", [*Reason, "AnAttestorsOwn"])
def test_every_reason_has_read_only_commands(reason: str) -> None:
    commands = next_commands(reason, NAMED)
    assert commands
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "kubectl"
        assert not CHANGING & set(words)


def test_commands_name_the_objects() -> None:
    assert next_commands("MachineNotReady", NAMED) == ("kubectl describe machine --namespace team-a prod-md-0-x7k2p",)
    (found,) = next_commands("MachineNotFound", NAMED)
    assert "--selector cluster.x-k8s.io/cluster-name=prod" in found
    unclear = Named(NAMED.cluster, "controllers", "csr-1", None)
    assert next_commands("MachineNotReady", unclear) == (found,)
    pool = Named(NAMED.cluster, "controllers", "csr-1", machine_view(kind="MachinePool"))
    assert next_commands("MachineNotReady", pool)[0].startswith("kubectl describe machinepool")
    assert "identityreservations --namespace controllers" in " ".join(next_commands("IdentityConflict", NAMED))


def test_a_hostile_name_is_one_word() -> None:
    named = Named(NAMED.cluster, "controllers", "$(reboot); \x1b[31m", None)
    (command,) = next_commands("MalformedRequest", named)
    assert command.isprintable()
    assert shlex.split(command)[5] == "$(reboot); \\x1b[31m"
