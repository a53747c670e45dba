"""Options that the commands share."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from attestors.wire.names import PROVIDER_ID_OID
from authenticator.configuration import (
    DEFAULT_BOOTSTRAP_KUBECONFIG,
    DEFAULT_KUBECONFIG,
    DEFAULT_TIMEOUT_SECONDS,
    Configuration,
    Given,
    configure,
)
from authenticator.stored_credential import (
    CREDENTIAL_FLAGS,
    DEFAULT_CONFIGURATION_FILE,
    DEFAULT_STORE,
    ENVIRONMENT_PREFIX,
)

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_HELP = {
    "--config": ("FILE", f"configuration in JSON (default: {DEFAULT_CONFIGURATION_FILE}, if it exists)"),
    "--store": ("FOLDER", f"folder for key and certificate (default: {DEFAULT_STORE})"),
    "--provider": ("NAME", "the attestor that proves which machine this is"),
    "--setting": ("NAME=VALUE", "a setting of the attestor's agent plugin; may be repeated"),
    "--node-name": ("NAME", "the Node's name (default: the host's name in lower case, like the kubelet's)"),
    "--provider-id": ("ID", "this machine's provider ID (default: determined by the attestor)"),
    "--provider-id-oid": ("OID", f"OID of the extension with the provider ID (default: {PROVIDER_ID_OID})"),
    "--bootstrap-kubeconfig": (
        "FILE",
        f"kubeconfig with the bootstrap token (default: {DEFAULT_BOOTSTRAP_KUBECONFIG})",
    ),
    "--timeout": ("SECONDS", f"how long to wait for a certificate (default: {DEFAULT_TIMEOUT_SECONDS:.0f})"),
}
_PATHS = ("--config", "--store", "--bootstrap-kubeconfig")


def add_common(command: argparse.ArgumentParser) -> None:
    """Add the options of ``credential``, which every command takes."""
    options = command.add_argument_group(
        "configuration", "A flag takes precedence over KUBELET_AUTHENTICATOR_<NAME>, and that over the file."
    )
    for flag in CREDENTIAL_FLAGS:
        metavar, text = _HELP[flag]
        if flag == "--setting":
            options.add_argument(flag, metavar=metavar, help=text, action="append", default=[])
        else:
            options.add_argument(flag, metavar=metavar, help=text)


def add_kubeconfig(command: argparse.ArgumentParser) -> None:
    """Add the option for the kubelet's kubeconfig."""
    command.add_argument(
        "--kubeconfig", metavar="FILE", help=f"the kubelet's kubeconfig (default: {DEFAULT_KUBECONFIG})"
    )


def add_serving(command: argparse.ArgumentParser, text: str) -> None:
    """Add the options for the serving certificate."""
    command.add_argument("--serving", action="store_true", help=text)
    command.add_argument(
        "--serving-dns-name",
        metavar="NAME",
        action="append",
        default=[],
        help="may be repeated (default: the node name)",
    )
    command.add_argument(
        "--serving-ip-address",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="may be repeated (default: the address of the default route)",
    )


def given(options: argparse.Namespace) -> Given:
    """The values from the command line."""
    return Given(
        config=options.config,
        provider=options.provider,
        setting=tuple(options.setting),
        node_name=options.node_name,
        provider_id=options.provider_id,
        provider_id_oid=options.provider_id_oid,
        bootstrap_kubeconfig=options.bootstrap_kubeconfig,
        kubeconfig=getattr(options, "kubeconfig", None),
        store=options.store,
        timeout=options.timeout,
        serving=wants_serving(options),
        serving_dns_name=tuple(getattr(options, "serving_dns_name", ())),
        serving_ip_address=tuple(getattr(options, "serving_ip_address", ())),
    )


def wants_serving(options: argparse.Namespace) -> bool:
    """Whether a serving certificate is requested; giving names for it implies it."""
    names = getattr(options, "serving_dns_name", []) or getattr(options, "serving_ip_address", [])
    return bool(getattr(options, "serving", False) or names)


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration from the command line, the environment and the file.

    Raises:
        InvalidConfiguration: a value is missing or wrong.
    """
    return configure(given(options), os.environ)


def credential_arguments(options: argparse.Namespace) -> list[str]:
    """A command line with which ``credential``, run in any folder, uses the same configuration as this command."""
    arguments = ["credential"]
    for flag in CREDENTIAL_FLAGS:
        value = getattr(options, flag.removeprefix("--").replace("-", "_"))
        if flag == "--config":
            value = value or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
        for one in value if isinstance(value, list) else [value] if value else []:
            arguments += [flag, os.path.abspath(one) if flag in _PATHS else one]
    return arguments


def report(text: str) -> None:
    """Print a line for the reader of the kubelet's log. If it cannot be written, the work continues."""
    with contextlib.suppress(OSError):
        print(f"kubelet-authenticator: {text}", file=sys.stderr, flush=True)
