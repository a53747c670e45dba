"""``agent``: the long-running service."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from authenticator.commands.arguments import add_common, add_kubeconfig, add_serving, configuration_of, report
from authenticator.commands.prepare import add_exec_api_version, prepare_once, require_no_settings
from authenticator.configuration import Configuration
from authenticator.flow.agent import Agent, notify_systemd
from authenticator.flow.bounded import bounded
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.client_renewal import RenewalStep
from authenticator.flow.clock import Clock, interruptible_sleep
from authenticator.flow.kubelet import LocalKubelet
from authenticator.flow.prepare import Prepared
from authenticator.flow.trust import TrustStep
from authenticator.flow.trust_bundle import TrustBundleStep
from authenticator.model.failures import ExitCode
from authenticator.store.store import Store

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "agent",
        help="renew the certificates early; a service",
        description="Copies the bootstrap kubeconfig's credential when it appears, requests the client certificate "
        "and, with --serving, the serving certificate, and renews both before the kubelet needs it. Notifies systemd "
        "when they are stored (Type=notify).",
    )
    add_common(command)
    add_kubeconfig(command)
    add_exec_api_version(command)
    add_serving(command, "request a serving certificate too: for the kubelet's tlsCertFile and tlsPrivateKeyFile")
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Run until SIGTERM.

    Raises:
        InvalidConfiguration: the configuration cannot work.
    """
    # SIGTERM may interrupt any step: the store is made for that.
    signal.signal(signal.SIGTERM, _stop)
    try:
        _run(options)
    except _Stopped:
        return ExitCode.DONE


class _Stopped(BaseException):
    """SIGTERM arrived. Not a SystemExit, which counts as an attestor's fault, nor anything that other code catches."""


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _Stopped


def _run(options: argparse.Namespace) -> NoReturn:
    require_no_settings(options)
    configuration = configuration_of(options)
    clock = Clock(sleep=interruptible_sleep())

    def prepare_kubeconfig() -> None:
        prepared = prepare_once(options, configuration)
        if prepared is Prepared.WRITTEN:
            report(f"{configuration.kubeconfig}: {prepared.value}")

    Agent(
        NodeCertificates(configuration, Store(configuration.store), clock, report),
        prepare_kubeconfig,
        clock,
        report,
        notify_systemd,
        bounded,
        _trust_step(configuration, clock),
        RenewalStep(configuration, Store(configuration.store), clock, report).turn,
        _bundle_step(configuration, clock),
    ).run()


def _trust_step(configuration: Configuration, clock: Clock) -> Callable[[], float] | None:
    trust = configuration.trust
    if trust is None:
        return None
    kubelet = LocalKubelet(trust.restart_command, trust.health_host, trust.health_port)
    return TrustStep(configuration, trust, Store(configuration.store), clock, report, kubelet).turn


def _bundle_step(configuration: Configuration, clock: Clock) -> Callable[[], float] | None:
    ssh = configuration.ssh
    if ssh is None:
        return None
    return TrustBundleStep(configuration, ssh, Store(configuration.store), clock, report).turn
