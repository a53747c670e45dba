"""``node-attestation-controller``: the controller, and what its operators ask of it on the command line.

Exit codes: 0 done, 1 failed while running or ``audit`` found something bad, 2 wrong usage or configuration, 3
``preflight`` or ``status`` found what needs attention, 4 ``run`` led and lost the Lease. ``explain``: 0 would be
approved or challenged, 4 denied, 5 waits, 6 is left alone.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from signer.cli.arguments import WrongUse
from signer.cli.audit import add_audit
from signer.cli.explain import ExplainFailed, add_explain
from signer.cli.preflight import add_preflight
from signer.cli.run import add_run
from signer.cli.status import add_status
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.configuration import InvalidConfiguration
from signer.controller.leadership import LeadershipLost
from signer.controller.preflight import PreflightFailed
from signer.crds import custom_resource_definitions
from signer.kube.errors import ApiError
from signer.kube.management import ManagementConfigurationRefused

_DISTRIBUTION: Final = "capi-node-attestation"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_LEADERSHIP_LOST: Final = 4
EXIT_INTERRUPTED: Final = 130
"""As shells say it: 128 and SIGINT."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``node-attestation-controller``."""
    options = _parser().parse_args(arguments)
    try:
        code = int(options.command(options))
        sys.stdout.flush()
        return code
    except (InvalidConfiguration, ManagementConfigurationRefused, WrongUse) as error:
        print(f"node-attestation-controller: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (PreflightFailed, ExplainFailed) as error:
        print(f"node-attestation-controller: {error}", file=sys.stderr)
        return EXIT_FAILED
    except LeadershipLost as error:
        print(f"node-attestation-controller: leadership lost: {error}", file=sys.stderr)
        return EXIT_LEADERSHIP_LOST
    except ClusterAPIChanged as error:
        print(f"node-attestation-controller: to be started again: {error}", file=sys.stderr)
        return EXIT_FAILED
    except ApiError as error:
        print(f"node-attestation-controller: the management cluster: {error}", file=sys.stderr)
        return EXIT_FAILED
    except BrokenPipeError:  # whoever read has read enough, as `head` does; rich ends with the same code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not tried again at the end
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-attestation-controller",
        description="Approves and signs kubelet certificates of Cluster API workload clusters, on proof of identity.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version(_DISTRIBUTION)}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run(commands)
    add_preflight(commands)
    add_explain(commands)
    add_audit(commands)
    add_status(commands)
    crds = commands.add_parser("crds", help="print the CustomResourceDefinitions, for kubectl apply -f -")
    crds.set_defaults(command=_crds)
    return parser


def _crds(_: argparse.Namespace) -> int:
    print("---\n".join(custom_resource_definitions()), end="")
    return 0
