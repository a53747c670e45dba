"""The command line of ``node-attestation-controller``: the controller and its operator commands.

Exit codes: 0 success; 1 failure at run time, or ``audit`` found a fault; 2 wrong usage or configuration; 3
``preflight`` or ``status`` found something that needs attention; 4 ``run`` lost its Lease. ``explain``: 0 the request
would be approved or challenged, 4 it would be denied, 5 it waits, 6 it is left alone. ``rotate``: 3 as above, 4 the
controller rejected the order, 5 the rotation waits for a person, or the controller did not answer, 6 the caller
declined. ``node-access preflight``: 3 other ways in are declared, 5 not known. ``ssh-sign --exec``: that of
``ssh``. All commands: 74 standard output cannot be written, 130 interrupted, 141 broken pipe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from attestors.standard_output import OutputNotWritten, checked_argparse_output, discard_output, prepare_streams
from signer.cli.arguments import WrongUse
from signer.cli.audit import add_audit
from signer.cli.explain import ExplainFailed, add_explain
from signer.cli.node_access import NodeAccessFailed, add_node_access
from signer.cli.output import print_text, print_to_stderr
from signer.cli.preflight import add_preflight
from signer.cli.remedies import remedy_of
from signer.cli.rotate import RotateFailed, add_rotate
from signer.cli.run import add_run
from signer.cli.status import add_status
from signer.cli.workload_kubeconfig.command import add_workload_kubeconfig
from signer.cli.workload_kubeconfig.making import KubeconfigNotMade
from signer.configuration import InvalidConfiguration
from signer.controller.auto_approval.preflight import PreflightFailed
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.named_cluster import NoSuchCluster
from signer.controller.replicas.leadership import LeadershipLost
from signer.crds import access_definitions, custom_resource_definitions
from signer.kube.errors import ApiError
from signer.kube.management import ManagementConfigurationRefused
from signer.model.program_version import program_version
from signer.offline.main import add_offline_commands

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_LEADERSHIP_LOST: Final = 4
EXIT_NOT_WRITTEN: Final = os.EX_IOERR
"""As in ``sysexits.h``. No command uses it for anything else."""
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141
"""128 plus SIGINT or SIGPIPE, as shells report them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``node-attestation-controller``."""
    prepare_streams()
    try:
        with checked_argparse_output():
            options = _parser().parse_args(arguments)
        return int(options.command(options))
    except (InvalidConfiguration, ManagementConfigurationRefused, WrongUse) as error:
        _say(str(error))
        return EXIT_USAGE
    except (PreflightFailed, ExplainFailed, RotateFailed, NodeAccessFailed, KubeconfigNotMade, NoSuchCluster) as error:
        _say(str(error))
        return EXIT_FAILED
    except LeadershipLost as error:
        _say(f"leadership lost: {error}")
        return EXIT_LEADERSHIP_LOST
    except ClusterAPIChanged as error:
        _say(f"restart required: {error}")
        return EXIT_FAILED
    except ApiError as error:
        _say(f"the management cluster: {error}{remedy_of(error)}")
        return EXIT_FAILED
    except OutputNotWritten as error:
        discard_output(sys.stdout)
        _say(f"standard output cannot be written: {error}: fix that, or write elsewhere")
        return EXIT_NOT_WRITTEN
    except BrokenPipeError:  # the reader stopped early, as `head` does
        discard_output(sys.stdout)
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _say(text: str) -> None:
    print_to_stderr(f"node-attestation-controller: {text}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-attestation-controller",
        description="Approves and signs kubelet certificates of Cluster API workload clusters for attested nodes.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {program_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run(commands)
    add_preflight(commands)
    add_workload_kubeconfig(commands)
    add_explain(commands)
    add_audit(commands)
    add_status(commands)
    add_rotate(commands)
    add_node_access(commands)
    add_offline_commands(commands)
    crds = commands.add_parser("crds", help="print the CustomResourceDefinitions for kubectl apply -f -")
    crds.add_argument(
        "--access", action="store_true", help="also those of access, which only a controller with --access needs"
    )
    crds.set_defaults(command=_crds)
    return parser


def _crds(options: argparse.Namespace) -> int:
    definitions = custom_resource_definitions()
    print_text("---\n".join((*definitions, *access_definitions()) if options.access else definitions))
    return 0
