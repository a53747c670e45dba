"""The printing path: prints a stored certificate at once if more than 20 % of its life is left.

It imports only a little of the standard library: no argparse, no dataclasses, no ssl. Every unusual case is left to
:mod:`authenticator.commands`, which parses everything in full and explains errors. So is a certificate that may be for
something else than is configured: it is printed first, and compared in full after that.
"""

from __future__ import annotations

import binascii
import json
import os
import time

from authenticator.model.exec_credential import (
    INFO_VARIABLE,
    ExecInfo,
    UnusableExecInfo,
    encode_credential,
    parse_info,
)
from authenticator.model.pair import (
    CERTIFICATE_BEGIN,
    CERTIFICATE_END,
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
CLUSTER_FILE = "kubelet-authenticator-cluster.json"
PROVIDER_ID_SETTING = "provider-id"
"""Setting of the attestors that ask no platform for the provider ID."""
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
_MAXIMUM_CLUSTER_CHARACTERS = 512 * 1024
_COMMON_NAME = b"\x06\x03\x55\x04\x03"
"""The OID of a common name, DER; its value follows."""
_TEXT_TAGS = (0x0C, 0x13)
"""UTF8String, and PrintableString, which Go writes where it can."""
_OTHERS_MAY_WRITE = 0o022


class MoreToDo(Exception):
    """The stored certificate cannot simply be printed; nothing was printed."""


def print_stored(arguments: list[str], *, last_resort: bool = False) -> bool:
    """Print the stored certificate for client-go. ``arguments`` are those after ``credential``.

    Returns whether the certificate is sure to be for the configured node name, provider ID, signer and cluster.

    With ``last_resort``, print it as long as it is valid, for a few seconds of use.

    Raises:
        MoreToDo: there is no certificate that can simply be printed.
        OSError: there is one, and standard output cannot be written.
    """
    try:
        info = parse_info(os.environ.get(INFO_VARIABLE, ""))
        flags = _flags(arguments)
        store = store_folder(flags)
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
    return last_resort or _is_for_this_node(store, flags, info, pair.certificate)


def _is_for_this_node(store: str, flags: dict[str, str], info: ExecInfo, certificate: str) -> bool:
    """Whether nothing shows that the certificate is for something else, in the simplest way."""
    try:
        content = _configuration(flags)
        name = _configured("node-name", "nodeName", flags, content) or os.uname().nodename
        if not _has_name(certificate, name.strip().lower()):
            return False
        with open(f"{store}/{CLUSTER_FILE}", encoding="utf-8") as file:
            known = json.loads(file.read(_MAXIMUM_CLUSTER_CHARACTERS))
        provider = _configured("provider", "provider", flags, content)
        provider_id = _configured("provider-id", "providerID", flags, content) or _setting(flags, content)
        return (
            known.get("provider", "") in ("", provider)
            and (not provider_id or known.get("providerID", "") in ("", provider_id))
            and (info.cluster is None or _has_authority(info.cluster, known["cluster"]["certificateAuthority"]))
        )
    except FileNotFoundError:
        return True  # without the file, only the name is known
    except (MoreToDo, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _configured(name: str, key: str, flags: dict[str, str], content: dict[str, object]) -> str:
    variable = ENVIRONMENT_PREFIX + name.upper().replace("-", "_")
    return flags.get(f"--{name}") or os.environ.get(variable) or str(content.get(key, ""))


def _setting(flags: dict[str, str], content: dict[str, object]) -> str:
    """The provider ID in the file's settings; empty if others take precedence."""
    settings = content.get("settings")
    if "--setting" in flags or f"{ENVIRONMENT_PREFIX}SETTINGS" in os.environ or not isinstance(settings, dict):
        return ""
    return str(settings.get(PROVIDER_ID_SETTING, ""))


def _has_name(certificate: str, name: str) -> bool:
    der = binascii.a2b_base64(certificate[len(CERTIFICATE_BEGIN) : certificate.index(CERTIFICATE_END)])
    text = f"system:node:{name}".encode("ascii")
    # A longer value has a longer length, and is left to the full comparison.
    return any(_COMMON_NAME + bytes((tag, len(text))) + text in der for tag in _TEXT_TAGS)


def _has_authority(cluster: dict[str, object], known: str) -> bool:
    """Whether the cluster has one of the known CA certificates."""
    given = binascii.a2b_base64(str(cluster.get("certificate-authority-data", ""))).decode("ascii")
    return any(CERTIFICATE_BEGIN in one and one in given for one in known.split(CERTIFICATE_END))


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
    content = _configuration(flags)
    found = content.get("store", "")
    if not isinstance(found, str):
        raise MoreToDo
    return found or DEFAULT_STORE


def _configuration(flags: dict[str, str]) -> dict[str, object]:
    """The content of the configuration file; empty if there is none by default."""
    configured = flags.get("--config") or os.environ.get(f"{ENVIRONMENT_PREFIX}CONFIG")
    try:
        with open(configured or DEFAULT_CONFIGURATION_FILE, "rb") as file:
            data = file.read(_MAXIMUM_CONFIGURATION_BYTES + 1)
    except FileNotFoundError:
        if configured:
            raise
        return {}
    if len(data) > _MAXIMUM_CONFIGURATION_BYTES:
        raise MoreToDo
    content = json.loads(data, object_pairs_hook=_without_repetitions)
    if not isinstance(content, dict):
        raise MoreToDo
    return content


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
