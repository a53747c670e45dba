"""``tpm fingerprint``: what a person registers of this machine's TPM."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from attestors.contract import ShownKey
from attestors.standard_output import standard_output
from authenticator.commands.arguments import add_common, given
from authenticator.configuration import Configuration, configure
from authenticator.flow.bounded import bounded, longest
from authenticator.flow.evidence import Attestation
from authenticator.model.failures import ExitCode, InvalidConfiguration, NoEvidence

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands

PROVIDER: Final = "tpm"


def add(commands: Commands) -> None:
    """Add the command."""
    group = commands.add_parser("tpm", help="show what identifies this machine's TPM")
    command = group.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "fingerprint",
        help="print the fingerprint of the endorsement key",
        description="Prints what the Machine's annotation or the inventory holds of this machine: the fingerprint of "
        "the endorsement key that the node uses, its template, whether the TPM stores a certificate of it, and the "
        "chip that the certificate names. Needs no kubeconfig, and no configuration.",
    )
    add_common(command)
    command.add_argument(
        "--all", action="store_true", help="every template for which the TPM stores a certificate, one key a line"
    )
    command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Show the key, or all keys with a certificate.

    Raises:
        Failure: it fails.
    """
    attestation = Attestation.of(_configuration(options))
    with bounded(longest(exchanges=0, timeout=0)):
        shown = attestation.shown_keys(every=options.all)
    if not shown:
        raise NoEvidence("the TPM stores no certificate of an endorsement key; leave out --all to see the node's key")
    lines = [json.dumps(_document(shown), indent=2)] if options.output == "json" else [_line(one) for one in shown]
    with standard_output():
        print("\n".join(lines))
    return ExitCode.DONE


def _configuration(options: argparse.Namespace) -> Configuration:
    """Raises InvalidConfiguration."""
    configuration = configure(given(options), os.environ, needs_attestor=False)
    if configuration.provider not in ("", PROVIDER):
        raise InvalidConfiguration(
            f"the configured attestor is {configuration.provider}, which uses no TPM: give --provider {PROVIDER} and "
            "its settings"
        )
    return replace(configuration, provider=PROVIDER)


def _line(one: ShownKey) -> str:
    certificate = "with a certificate" if one.has_certificate else "without a certificate"
    return " ".join(filter(None, (f"{one.fingerprint}  {one.template}, {certificate}", one.chip)))


def _document(shown: Sequence[ShownKey]) -> dict[str, object]:
    return {
        "endorsementKeys": [
            {
                "fingerprint": one.fingerprint,
                "template": one.template,
                "certificate": one.has_certificate,
                "chip": one.chip,
            }
            for one in shown
        ]
    }
