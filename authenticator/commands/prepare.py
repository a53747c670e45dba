"""``prepare``: for the kubelet's ``ExecStartPre``."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from authenticator.commands.arguments import (
    add_common,
    add_kubeconfig,
    configuration_of,
    credential_arguments,
    given,
    report,
)
from authenticator.configuration import DEFAULT_BOOTSTRAP_KUBECONFIG, Configuration, configure
from authenticator.flow.clock import Clock
from authenticator.flow.mismatches import stored_mismatches
from authenticator.flow.prepare import ExecStanza, NotNeeded, Prepared, prepare, too_large_for_cluster_info
from authenticator.model.failures import ExitCode, InvalidConfiguration, StoreUnusable
from authenticator.model.kubeconfig import EXEC_API_VERSIONS, PROGRAM
from authenticator.store.store import Store

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "prepare",
        help="copy the bootstrap kubeconfig's credential and write the kubelet's kubeconfig; for ExecStartPre",
        description="If the bootstrap kubeconfig exists: copies its credential into the store, and writes the "
        "kubelet's kubeconfig, whose user is this program. A kubeconfig that another program wrote is left alone.",
    )
    add_common(command)
    add_kubeconfig(command)
    add_exec_api_version(command)
    command.set_defaults(command=run)


def add_exec_api_version(command: argparse.ArgumentParser) -> None:
    """Add the option for the ExecCredential version."""
    command.add_argument(
        "--exec-api-version",
        choices=EXEC_API_VERSIONS,
        default=EXEC_API_VERSIONS[0],
        metavar="VERSION",
        help=f"version in the exec stanza: {EXEC_API_VERSIONS[0]} (default), or {EXEC_API_VERSIONS[1]}, which kubelets "
        "before 1.22 need",
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Prepare once.

    Raises:
        Failure: it fails.
    """
    # The same image serves machines that join and the one that `kubeadm init` sets up, which needs no attestor.
    try:
        known = configure(given(options), os.environ, needs_attestor=False)
    except InvalidConfiguration as error:
        if os.path.exists(DEFAULT_BOOTSTRAP_KUBECONFIG) or options.bootstrap_kubeconfig:
            raise
        report(f"{error}; {Prepared.NO_BOOTSTRAP_KUBECONFIG.value}")
        return ExitCode.DONE
    if not _is_there(known.bootstrap_kubeconfig):
        report(f"{known.kubeconfig}: {Prepared.NO_BOOTSTRAP_KUBECONFIG.value}")
        _report_mismatches(known)
        return ExitCode.DONE
    configuration = configuration_of(options)
    try:
        report(f"{configuration.kubeconfig}: {prepare_once(options, configuration).value}")
        if large := too_large_for_cluster_info(configuration, options.exec_api_version):
            report(large)
    except NotNeeded as failure:
        report(f"{failure}; the kubelet continues with {configuration.kubeconfig} and the stored certificate")
    _report_mismatches(configuration)
    return ExitCode.DONE


def _report_mismatches(configuration: Configuration) -> None:
    """At each start of the kubelet, which is not kept from starting: it may be called otherwise than is configured."""
    store = Store(configuration.store)
    with contextlib.suppress(StoreUnusable):  # `credential` reports it, if the kubelet needs the store at all
        store.check_folder()
        for mismatch in stored_mismatches(configuration, store):
            report(str(mismatch))


def _is_there(bootstrap_kubeconfig: Path) -> bool:
    try:
        return bootstrap_kubeconfig.exists()
    except OSError as error:
        raise InvalidConfiguration(f"bootstrap kubeconfig {bootstrap_kubeconfig}: {error.strerror}") from error


def prepare_once(options: argparse.Namespace, configuration: Configuration) -> Prepared:
    """Prepare for a kubelet that runs this program with the same configuration as now.

    Raises:
        Failure: it fails.
    """
    require_no_settings(options)
    stanza = ExecStanza(_own_path(), credential_arguments(options), options.exec_api_version)
    return prepare(configuration, Store(configuration.store), stanza, Clock())


def require_no_settings(options: argparse.Namespace) -> None:
    """Refuse settings on the command line: they may be secrets, and this command writes its flags to the kubeconfig.

    Raises:
        InvalidConfiguration: there are settings on the command line.
    """
    if options.setting:
        raise InvalidConfiguration(
            "--setting would be readable in the kubelet's kubeconfig and in the command line of every call: "
            "write settings into the configuration file, mode 0600"
        )


def _own_path() -> str:
    """The path of this program, as it was called, so that a link stays a link."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == PROGRAM and os.access(called, os.X_OK):
        return called
    found = shutil.which(PROGRAM)
    if found is None:
        raise InvalidConfiguration(f"{PROGRAM} is not in PATH: a kubelet could not run it")
    return os.path.abspath(found)
