"""The printing path: prints a stored certificate at once if more than 20 % of its life is left.

It imports only a little of the standard library: no argparse, no dataclasses, no ssl. Every unusual case is left to
:mod:`authenticator.commands`, which parses everything in full and explains errors.

"""

from __future__ import annotations

import json
import os
import time

from authenticator.model.exec_credential import INFO_VARIABLE, UnusableExecInfo, encode_credential, parse_info
from authenticator.model.pair import (
    LONGEST_ANSWER_SECONDS,
    MAXIMUM_CHARACTERS,
    RETRY_SECONDS,
    Pair,
    UnreadablePair,
    parse_pair,
)

DEFAULT_CONFIGURATION_FILE = "/etc/kubernetes/kubelet-authenticator.json"
DEFAULT_STORE = "/var/lib/kubelet/pki"
ENVIRONMENT_PREFIX = "KUBELET_AUTHENTICATOR_"
CLIENT_PAIR_FILE = "kubelet-authenticator-client.pem"
BOOTSTRAP_FILE = "kubelet-authenticator-bootstrap.json"
CREDENTIAL_FLAGS = (
    "--config",
    "--store",
    "--provider",
    "--setting",
    "--node-name",
    "--provider-id",
    "--provider-id-oid",
    "--bootstrap-kubeconfig",
    "--timeout",
)
"""The flags of ``credential``; each has a value. Only the first two determine where the certificate is."""

_MAXIMUM_CONFIGURATION_BYTES = 64 * 1024
_OTHERS_MAY_WRITE = 0o022


class MoreToDo(Exception):
    """The stored certificate cannot simply be printed; nothing was printed."""


def print_stored(arguments: list[str], *, last_resort: bool = False) -> None:
    """Print the stored certificate for client-go. ``arguments`` are those after ``credential``.

    With ``last_resort``, print it as long as it is valid, for a few seconds of use.

    Raises:
        MoreToDo: there is no certificate that can simply be printed.
        OSError: there is one, and standard output cannot be written.
    """
    try:
        info = parse_info(os.environ.get(INFO_VARIABLE, ""))
        store = store_folder(_flags(arguments))
        if not last_resort and os.path.lexists(f"{store}/{BOOTSTRAP_FILE}"):
            raise MoreToDo  # a crash prevented its wiping
        pair = read_stored(store)
    except (OSError, UnusableExecInfo, UnreadablePair, ValueError, RecursionError) as error:
        raise MoreToDo from error
    now = int(time.time())
    end = pair.not_after if last_resort else pair.renewal
    if now >= end:
        raise MoreToDo
    expiration = min(now + (RETRY_SECONDS if last_resort else LONGEST_ANSWER_SECONDS), end)
    # Flush here: a failure at the end of the process would have Python's own exit code.
    text = encode_credential(info.api_version, certificate=pair.certificate, key=pair.key, expiration=expiration)
    print(text, flush=True)


def read_stored(folder: str) -> Pair:
    """The stored client pair.

    Raises:
        OSError: there is none, or other users may write to the folder.
        UnreadablePair: the file is not a pair.
    """
    found = os.stat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
        raise PermissionError(1, "others may write to the store", folder)
    with open(f"{folder}/{CLIENT_PAIR_FILE}", encoding="ascii") as file:
        return parse_pair(file.read(MAXIMUM_CHARACTERS + 1))


def store_folder(flags: dict[str, str]) -> str:
    """The store's folder: from the flag, the environment, the file or the default, in this order.

    Raises:
        MoreToDo, OSError, ValueError, RecursionError: the file cannot be parsed in this simple way.
    """
    store = flags.get("--store") or os.environ.get(f"{ENVIRONMENT_PREFIX}STORE")
    if store:
        return store
    configured = flags.get("--config") or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
    try:
        with open(configured or DEFAULT_CONFIGURATION_FILE, "rb") as file:
            data = file.read(_MAXIMUM_CONFIGURATION_BYTES + 1)
    except FileNotFoundError:
        if configured:
            raise
        return DEFAULT_STORE
    if len(data) > _MAXIMUM_CONFIGURATION_BYTES:
        raise MoreToDo
    content = json.loads(data, object_pairs_hook=_without_repetitions)
    if not isinstance(content, dict) or not isinstance(content.get("store", ""), str):
        raise MoreToDo
    return content.get("store") or DEFAULT_STORE


def _flags(arguments: list[str]) -> dict[str, str]:
    """The flags by name, with values as own arguments or after ``=``; MoreToDo for anything else."""
    flags: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        name, equals, value = arguments[position].partition("=")
        position += 1
        if not equals:
            if position == len(arguments):
                raise MoreToDo
            value = arguments[position]
            position += 1
            if value.startswith("-"):
                raise MoreToDo  # another flag: the value is missing
        if name not in CREDENTIAL_FLAGS or (name in flags and name != "--setting") or not value:
            raise MoreToDo
        flags[name] = value
    return flags


def _without_repetitions(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object without repeated keys: which of two values was meant is unknown."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a repeated key")
    return found
