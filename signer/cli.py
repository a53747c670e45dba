"""``node-attestation-controller``: the controller, and what its operators ask of it on the command line.

Exit codes: 0 done, 1 failed while running, 2 wrong usage or configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Final

from signer.controller.configuration import DEFAULT_WORKERS, Configuration, InvalidConfiguration, read_attestors
from signer.controller.diagnostics import Readiness, diagnostics_server
from signer.controller.logs import configure_logging, log_loop_fault
from signer.controller.run import ControllerOptions, run_controller
from signer.crds import custom_resource_definitions
from signer.kube.errors import ApiError
from signer.kube.management import ManagementConfigurationRefused, management_connection
from signer.kube.transport import shrink_tls_buffers

_DISTRIBUTION: Final = "capi-node-attestation"
_DEFAULT_NAMESPACE: Final = "node-attestation-system"
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

_LOG = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of ``node-attestation-controller``."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except (InvalidConfiguration, ManagementConfigurationRefused) as error:
        print(f"node-attestation-controller: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ApiError as error:
        print(f"node-attestation-controller: the management cluster: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="node-attestation-controller",
        description="Approves and signs kubelet certificates of Cluster API workload clusters, on proof of identity.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version(_DISTRIBUTION)}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the controller until SIGTERM")
    run.set_defaults(command=_run)
    run.add_argument("--kubeconfig", type=Path, help="management cluster (default: in-cluster, or KUBECONFIG)")
    run.add_argument("--namespace", help="serve Clusters of this namespace only (default: all)")
    run.add_argument(
        "--controller-namespace",
        default=os.environ.get("POD_NAMESPACE", _DEFAULT_NAMESPACE),
        help="the controller's own namespace, where IdentityReservations live (default: POD_NAMESPACE, "
        f"or {_DEFAULT_NAMESPACE})",
    )
    run.add_argument("--config", type=Path, help="YAML file with what the operator allows and sets for each attestor")
    run.add_argument(
        "--enable-insecure-attestor",
        action="store_true",
        help="allow the attestor that proves nothing, in --insecure-attestor-namespaces, for policies that name it",
    )
    run.add_argument(
        "--insecure-attestor-namespaces",
        default="",
        metavar="NAMESPACE,...",
        help="namespaces whose policies may name the insecure attestor",
    )
    run.add_argument(
        "--workers-per-cluster",
        type=_positive,
        default=DEFAULT_WORKERS,
        metavar="N",
        help="requests decided at once in each cluster (default: %(default)s)",
    )
    run.add_argument(
        "--diagnostics-address", default="", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz there"
    )
    run.add_argument(
        "--insecure-diagnostics", action="store_true", help="serve diagnostics over plain HTTP without authentication"
    )
    run.add_argument(
        "--logging-format", choices=("json", "text"), default=None, help="default: text on a terminal, else json"
    )
    run.add_argument("-v", "--verbose", action="store_true", help="log more")

    crds = commands.add_parser("crds", help="print the CustomResourceDefinitions, for kubectl apply -f -")
    crds.set_defaults(command=_crds)
    return parser


def _crds(_: argparse.Namespace) -> int:
    print("---\n".join(custom_resource_definitions()), end="")
    return 0


def _run(options: argparse.Namespace) -> int:
    as_json = options.logging_format == "json" or (options.logging_format is None and not sys.stderr.isatty())
    configure_logging(as_json=as_json, level=logging.DEBUG if options.verbose else logging.INFO)
    configuration = _configuration(options)
    shrink_tls_buffers()
    asyncio.run(_run_until_signal(options, configuration))
    return 0


def _configuration(options: argparse.Namespace) -> Configuration:
    insecure_namespaces = frozenset(filter(None, options.insecure_attestor_namespaces.split(",")))
    if options.enable_insecure_attestor != bool(insecure_namespaces):
        raise InvalidConfiguration(
            "--enable-insecure-attestor and --insecure-attestor-namespaces are given together, or neither"
        )
    if options.diagnostics_address and not options.insecure_diagnostics:
        raise InvalidConfiguration("--diagnostics-address needs --insecure-diagnostics: it is served over plain HTTP")
    return Configuration(
        namespace=options.controller_namespace,
        watch_namespace=options.namespace,
        insecure_enabled=options.enable_insecure_attestor,
        insecure_namespaces=insecure_namespaces,
        attestors=read_attestors(options.config) if options.config is not None else {},
        workers_per_cluster=options.workers_per_cluster,
    )


async def _run_until_signal(options: argparse.Namespace, configuration: Configuration) -> None:
    stop = asyncio.Event()
    readiness = Readiness()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    access = await management_connection(options.kubeconfig)
    controller = ControllerOptions()
    async with AsyncExitStack() as stack:
        if options.diagnostics_address:
            host, port = _address(options.diagnostics_address)
            server = diagnostics_server(host, port, controller.metrics, readiness.state)
            try:
                address = await stack.enter_async_context(server)
            except OSError as error:
                raise InvalidConfiguration(f"--diagnostics-address: cannot listen there: {error.strerror}") from error
            _LOG.info("serving diagnostics", extra={"address": f"{address[0]}:{address[1]}"})
        await run_controller(
            access.connection,
            configuration,
            stop=stop,
            token_source=access.token_source,
            options=controller,
            started=readiness.started,
        )


def _address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise InvalidConfiguration("--diagnostics-address is HOST:PORT, such as :8080")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - the pod's own address, as :8080 means everywhere


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError("between 1 and 1000")
    return number


if __name__ == "__main__":
    sys.exit(main())
