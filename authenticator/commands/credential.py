"""``credential``: the exec credential plugin."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING, Final

from attestors.standard_output import standard_output
from authenticator.commands.arguments import add_common, configuration_of, report
from authenticator.commands.output import reserved_output
from authenticator.commands.renewal import Failed, Finished, StillRunning, renew_in_child
from authenticator.flow.bounded import bounded, longest
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.clock import Clock
from authenticator.flow.mismatches import stored_mismatches
from authenticator.model.certificate import check_pair
from authenticator.model.cluster import Cluster
from authenticator.model.exec_credential import INFO_VARIABLE, ExecInfo, UnusableExecInfo, encode_credential, parse_info
from authenticator.model.failures import ExitCode, Failure, InvalidConfiguration
from authenticator.model.kubeconfig import UnusableKubeconfig, cluster_of_exec_info
from authenticator.model.pair import RETRY_SECONDS, Pair
from authenticator.model.plan import Use, expiration
from authenticator.store.store import Store
from authenticator.stored_credential import DEFAULT_STORE, MoreToDo, read_stored, store_folder

RENEWAL_LIMIT_SECONDS: Final = 6.0
"""Hard limit for a kubelet's wait for a renewal, whatever hangs: all its requests wait for this one."""

if TYPE_CHECKING:
    from authenticator.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "credential",
        help="print a client certificate for client-go; the exec stanza of a kubeconfig runs it",
        description="Prints an ExecCredential with the node's client certificate; requests a certificate if there is "
        "none or it is due.",
    )
    add_common(command)
    command.set_defaults(command=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print an ExecCredential.

    A kubelet whose plugin fails cannot reach its API server any more. A valid certificate is therefore printed whatever
    fails: the configuration, the attestor, the disk, or the renewal.

    Raises:
        Failure: there is no certificate.
    """
    try:
        info = parse_info(os.environ.get(INFO_VARIABLE, ""))
    except UnusableExecInfo as error:
        raise InvalidConfiguration(str(error)) from error
    now = Clock().now()
    stored = _still_valid(options, now)
    if stored is None:
        with reserved_output():
            certificates = _certificates(options, info)
            with bounded(longest(exchanges=1, timeout=certificates.configuration.timeout)):
                use = certificates.client()
    else:
        use = _renewed(options, info, stored, now)
    until = expiration(use, now)
    with standard_output():
        print(encode_credential(info.api_version, certificate=use.pair.certificate, key=use.pair.key, expiration=until))
    if stored is not None:
        try:
            report_mismatches(options)
        except Exception as error:  # noqa: BLE001 - the certificate is printed already, and must not be printed twice
            report(f"the stored certificate could not be compared with the configuration: {error!r}")
    return ExitCode.DONE


def report_mismatches(options: argparse.Namespace) -> None:
    """Report in what the stored certificate is not what is configured.

    It is printed all the same. The API server takes the kubelet for the node in the certificate, so no other node's
    rights are at stake; and the configured name may be wrong while the kubelet is called otherwise by a flag.
    """
    with contextlib.suppress(Failure):  # a broken configuration is reported where it is needed
        info = parse_info(os.environ.get(INFO_VARIABLE, ""))
        configuration = configuration_of(options)
        for mismatch in stored_mismatches(configuration, Store(configuration.store), _cluster(info)):
            report(str(mismatch))


def _certificates(options: argparse.Namespace, info: ExecInfo) -> NodeCertificates:
    cluster = _cluster(info)
    configuration = configuration_of(options)
    return NodeCertificates(configuration, Store(configuration.store), Clock(), report, cluster)


def _cluster(info: ExecInfo) -> Cluster | None:
    try:
        return cluster_of_exec_info(info.cluster) if info.cluster is not None else None
    except UnusableKubeconfig as error:
        raise InvalidConfiguration(f"the kubeconfig that runs this plugin: {error}") from error


def _still_valid(options: argparse.Namespace, now: int) -> Pair | None:
    """The stored pair, if it is usable as a last resort."""
    try:
        pair = read_stored(_known_store(options))
        check_pair(pair)
    except (OSError, ValueError):
        return None
    return pair if now < pair.not_after else None


def _known_store(options: argparse.Namespace) -> str:
    """The store's folder; the default if a broken configuration file does not name it."""
    try:
        store = store_folder({"--store": options.store or "", "--config": options.config or ""})
        with contextlib.suppress(OSError):
            os.stat(store)  # raises ValueError for an invalid path
    except (MoreToDo, OSError, ValueError, RecursionError):
        return DEFAULT_STORE
    return store


def _renewed(options: argparse.Namespace, info: ExecInfo, stored: Pair, now: int) -> Use:
    """The renewed certificate if it comes within a few seconds; otherwise the stored one, and the cause is reported."""
    try:
        renewal = renew_in_child(lambda: _certificates(options, info).client().until, seconds=RENEWAL_LIMIT_SECONDS)
    except OSError as error:
        renewal = Failed(f"it cannot start: {error}")
    if isinstance(renewal, Finished):
        found = _still_valid(options, now)
        # The renewal's result applies to the pair that is stored now; the earlier one may have expired.
        return Use(found, renewal.until) if found is not None else Use(stored, now + RETRY_SECONDS)
    if isinstance(renewal, StillRunning):
        report(
            "the renewal takes longer than a kubelet should wait, and continues as process "
            f"{renewal.process}; the stored certificate is still valid"
        )
    elif renewal.cause:
        report(f"the certificate was not renewed: {renewal.cause}; the stored certificate is still valid")
    return Use(stored, now + RETRY_SECONDS)
