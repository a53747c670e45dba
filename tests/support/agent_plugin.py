"""Runs ``kubelet-authenticator`` with an attestor that executes test code, which hangs, fails or prints, before it
gathers evidence.

It waits for a renewal as long as the test does, and not as briefly as a kubelet, because the machine may be busy.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any, Final

from tests.support.node_program import NodeProgram, exec_info

_CODE: Final = """
import functools, os, signal, sys, threading, time
from pathlib import Path
from attestors.contract import EvidenceUnavailable
from authenticator.flow.evidence import Attestation

attestation_of = Attestation.of

class OtherPlugin:
    def __init__(self, half):
        self.half = half

    def provider_id(self):
        return self.half.provider_id()

    def gather(self, request):
        {gather}
        return self.half.gather(request)

def other_attestation_of(configuration):
    attestation = attestation_of(configuration)
    object.__setattr__(attestation, "agent_plugin", OtherPlugin(attestation.agent_plugin))
    return attestation

Attestation.of = other_attestation_of  # before anything else takes hold of it

from authenticator.commands import credential
from authenticator.flow.certificates import NodeCertificates

credential.RENEWAL_LIMIT_SECONDS = 60.0
NodeCertificates.client = functools.partialmethod(NodeCertificates.client, timeout=60.0)
{before}
from authenticator.cli import main
sys.exit(main(sys.argv[1:]))
"""

NOTED_BOUNDS: Final = """
alarm, bounds = signal.alarm, []
signal.alarm = lambda seconds: bounds.append(seconds) or alarm(seconds)
"""
"""Code for the start: ``bounds`` holds the alarms that the program has set; ``alarm`` sets another one."""


def start_with(
    program: NodeProgram, gather: str, *, command: str = "credential", before: str = "", **options: Any
) -> subprocess.Popen[str]:
    """Start a command whose attestor executes ``gather`` before it gathers; ``before`` runs at the start."""
    code = _CODE.format(gather=textwrap.indent(textwrap.dedent(gather), " " * 8).strip(), before=before)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(
        [sys.executable, "-c", code, command, "--config", str(program.configuration)],
        text=True,
        env=program.environment(exec_info()),
        **streams,
    )


def run_with(program: NodeProgram, gather: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run such a command until the process and its output end; the test fails after a minute."""
    with start_with(program, gather, **options) as process:
        try:
            output, log = process.communicate(timeout=60)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, output, log)
