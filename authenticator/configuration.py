"""Configuration: flags take precedence over the environment, the environment over the file, the file over defaults.

The file is JSON: the printing path parses it with what it has already imported, and cloud-init templates can write it
easily.

"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from attestors.contract import IPAddress
from attestors.wire.names import PROVIDER_ID_OID, SSH_HOST_KEYS_OID, InvalidProviderName, check_provider_name
from attestors.wire.provider_id import InvalidOID, InvalidProviderID, check_oid, check_provider_id
from attestors.wire.ssh_host_keys import MAXIMUM_HOST_KEYS
from authenticator.model.failures import InvalidConfiguration, UnreadableConfiguration
from authenticator.stored_credential import (
    DEFAULT_CONFIGURATION_FILE,
    DEFAULT_STORE,
    ENVIRONMENT_PREFIX,
    PROVIDER_ID_SETTING,
)

API_VERSION: Final = "attestation.cluster.x-k8s.io/v1alpha1"
KIND: Final = "KubeletAuthenticatorConfiguration"
DEFAULT_BOOTSTRAP_KUBECONFIG: Final = "/etc/kubernetes/bootstrap-kubelet.conf"
DEFAULT_KUBECONFIG: Final = "/etc/kubernetes/kubelet.conf"
DEFAULT_AUTHORITY_FILE: Final = "/etc/kubernetes/pki/ca.crt"
DEFAULT_TIMEOUT_SECONDS: Final = 300.0
DEFAULT_HOST_KEY: Final = "/etc/ssh/ssh_host_ed25519_key"
DEFAULT_SSH_FOLDER: Final = "/etc/ssh/node-access"

_PERMANENT_ERRORS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}
)
"""Errors that waiting does not fix; others are the disk's or the system's."""
_MAXIMUM_FILE_BYTES: Final = 64 * 1024
_TIMEOUT_BOUNDS: Final = (1.0, 3600.0)
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Approximately a DNS-1123 subdomain; the API server checks the exact form."""
_FILE_KEYS: Final = frozenset(
    {
        "apiVersion",
        "kind",
        "provider",
        "settings",
        "nodeName",
        "providerID",
        "providerIDOID",
        "bootstrapKubeconfig",
        "kubeconfig",
        "store",
        "timeoutSeconds",
        "serving",
        "trust",
        "ssh",
    }
)
_WHAT: Final[Mapping[type[ValueError], str]] = {
    InvalidProviderName: "provider",
    InvalidProviderID: "providerID",
    InvalidOID: "providerIDOID",
}
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LARGEST_PORT: Final = 65535
_TRUST_KEYS: Final = frozenset({"authorityFiles", "restartCommand", "health"})
_SERVING_KEYS: Final = frozenset({"dnsNames", "ipAddresses"})
_SSH_KEYS: Final = frozenset({"hostKeys", "hostKeysOID", "folder"})


@dataclass(frozen=True, slots=True)
class Serving:
    """Names of the serving certificate; empty tuples mean the node's own name and addresses."""

    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Trust:
    """How the agent changes the CAs that the kubelet trusts."""

    authority_files: tuple[Path, ...] = (Path(DEFAULT_AUTHORITY_FILE),)
    """CA files beside that of the kubeconfig: the kubelet's ``clientCAFile``."""
    authority_files_may_be_missing: bool = True
    """For the default, which not every distribution has."""
    restart_command: tuple[str, ...] = ("systemctl", "--no-block", "restart", "kubelet")
    """Not to be waited for: systemd restarts the agent with the kubelet (``PartOf=``)."""
    health_host: str = "127.0.0.1"
    health_port: int = 10248
    """``healthzBindAddress`` and ``healthzPort`` of the kubelet."""


@dataclass(frozen=True, slots=True)
class SSH:
    """Which host keys of sshd are certified, and where the files for sshd are."""

    host_keys: tuple[Path, ...] = (Path(DEFAULT_HOST_KEY),)
    """Private keys, each with a file name of its own. They are read to sign, and never written."""
    host_keys_oid: str = SSH_HOST_KEYS_OID
    """OID of the CSR extension that holds the host keys."""
    folder: Path = Path(DEFAULT_SSH_FOLDER)
    """Holds host certificates, authorities and the revocation list."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The whole configuration of this program."""

    provider: str
    """The attestor's provider name."""
    settings: Mapping[str, str] = field(repr=False)
    """Settings of the attestor's agent plugin; may hold secrets."""
    node_name: str
    provider_id: str
    """Empty if the attestor determines it."""
    provider_id_oid: str
    """OID of the CSR extension that holds the provider ID."""
    bootstrap_kubeconfig: Path
    kubeconfig: Path
    store: Path
    timeout: float
    """Seconds to wait for a certificate."""
    serving: Serving | None
    """None if the agent requests no serving certificate."""
    file: Path | None
    """The file that was read; None without a file."""
    trust: Trust | None = None
    """None if the agent leaves the CAs alone."""
    ssh: SSH | None = None
    """None if this program has nothing to do with sshd."""

    @property
    def stated_provider_id(self) -> str:
        """The provider ID, as far as it is written down: attestors that ask no platform have it as a setting."""
        return self.provider_id or self.settings.get(PROVIDER_ID_SETTING, "")

    @property
    def asker(self) -> str:
        """A digest of everything that identifies this node in requests: another configuration has another digest."""
        identifying = [self.provider, self.node_name, self.provider_id, sorted(self.settings.items())]
        if self.provider_id_oid != PROVIDER_ID_OID:  # the default is left out, so that stored pauses keep their digest
            identifying.append(self.provider_id_oid)
        if self.ssh is not None:
            identifying += ["ssh", self.ssh.host_keys_oid, *map(str, self.ssh.host_keys)]
        return hashlib.sha256(json.dumps(identifying).encode("utf-8")).hexdigest()[:16] + " "


@dataclass(frozen=True, slots=True)
class Given:
    """Values from the command line; None for those that are not given."""

    config: str | None = None
    provider: str | None = None
    setting: tuple[str, ...] = field(default=(), repr=False)
    node_name: str | None = None
    provider_id: str | None = None
    provider_id_oid: str | None = None
    bootstrap_kubeconfig: str | None = None
    kubeconfig: str | None = None
    store: str | None = None
    timeout: str | None = None
    serving: bool = False
    serving_dns_name: tuple[str, ...] = ()
    serving_ip_address: tuple[str, ...] = ()


def configure(given: Given, environment: Mapping[str, str], *, needs_attestor: bool = True) -> Configuration:
    """Combine flags, environment, file and defaults.

    Without ``needs_attestor``, ``provider`` may be empty: for checks before it is known that there is work.

    Raises:
        InvalidConfiguration: a value is missing or wrong; the message names it and its source.
        UnreadableConfiguration: the file cannot be read at this moment.
    """
    named = given.config or environment.get(f"{ENVIRONMENT_PREFIX}CONFIG") or None
    file, content = _read_file(named)

    def value(flag: str | None, variable: str, key: str, default: str = "") -> str:
        return flag or environment.get(ENVIRONMENT_PREFIX + variable) or _text(content, key, file) or default

    def path(flag: str | None, variable: str, key: str, default: str) -> Path:
        text = value(flag, variable, key, default)
        if "\0" in text:
            raise InvalidConfiguration(f"{key}: a path cannot contain a zero byte")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise InvalidConfiguration(f"{key}: a path cannot contain a lone surrogate, as {text!a} does") from None
        return Path(text)

    provider = value(given.provider, "PROVIDER", "provider")
    if not provider and needs_attestor:
        raise InvalidConfiguration(
            f"no attestor is configured: give --provider, {ENVIRONMENT_PREFIX}PROVIDER, or provider in "
            f"{named or DEFAULT_CONFIGURATION_FILE}"
        )
    # In lower case, as kubeadm and the kubelet write it.
    node_name = (value(given.node_name, "NODE_NAME", "nodeName") or socket.gethostname()).strip().lower()
    provider_id = value(given.provider_id, "PROVIDER_ID", "providerID")
    provider_id_oid = value(given.provider_id_oid, "PROVIDER_ID_OID", "providerIDOID", PROVIDER_ID_OID)
    try:
        if provider:
            check_provider_name(provider)
        if provider_id:
            check_provider_id(provider_id)
        check_oid(provider_id_oid)
    except (InvalidProviderName, InvalidProviderID, InvalidOID) as error:
        raise InvalidConfiguration(f"{_WHAT[type(error)]}: {error}") from None
    if not _NODE_NAME.fullmatch(node_name):
        raise InvalidConfiguration(f"nodeName: {node_name!r} is not a valid node name; give --node-name")
    return Configuration(
        provider=provider,
        settings=_settings(given, environment, content, file),
        node_name=node_name,
        provider_id=provider_id,
        provider_id_oid=provider_id_oid,
        bootstrap_kubeconfig=path(
            given.bootstrap_kubeconfig, "BOOTSTRAP_KUBECONFIG", "bootstrapKubeconfig", DEFAULT_BOOTSTRAP_KUBECONFIG
        ),
        kubeconfig=path(given.kubeconfig, "KUBECONFIG", "kubeconfig", DEFAULT_KUBECONFIG),
        store=path(given.store, "STORE", "store", DEFAULT_STORE),
        timeout=_timeout(given, environment, content, file),
        serving=_serving(given, content, file),
        trust=_trust(content.get("trust", {}), file),
        ssh=_ssh(content["ssh"], provider_id_oid, file) if "ssh" in content else None,
        file=file,
    )


def _read_file(named: str | None) -> tuple[Path | None, Mapping[str, Any]]:
    path = Path(named or DEFAULT_CONFIGURATION_FILE)
    try:
        with path.open("rb") as file:
            data = file.read(_MAXIMUM_FILE_BYTES + 1)
    except FileNotFoundError:
        if named:
            raise InvalidConfiguration(
                f"{path}: there is no such file: write it, or name another with --config"
            ) from None
        return None, {}
    except OSError as error:
        kind = InvalidConfiguration if error.errno in _PERMANENT_ERRORS else UnreadableConfiguration
        raise kind(f"{path}: {error.strerror}") from None
    if len(data) > _MAXIMUM_FILE_BYTES:
        raise InvalidConfiguration(f"{path}: larger than {_MAXIMUM_FILE_BYTES} bytes")
    try:
        content = json.loads(data, object_pairs_hook=_without_repetitions)
    except _Repeated as error:
        raise InvalidConfiguration(f"{path}: {error} is repeated") from None
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidConfiguration(f"{path}: not JSON{where}") from None
    if not isinstance(content, dict) or content.get("apiVersion") != API_VERSION or content.get("kind") != KIND:
        raise InvalidConfiguration(f"{path}: must be an object with apiVersion {API_VERSION} and kind {KIND}")
    unknown = set(content) - _FILE_KEYS
    if unknown:
        raise InvalidConfiguration(f"{path}: unknown key {min(unknown)}; known are {', '.join(sorted(_FILE_KEYS))}")
    return path, content


class _Repeated(ValueError):
    """A key is repeated in an object."""


def _without_repetitions(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Repeated(key)
        found[key] = value
    return found


def _text(content: Mapping[str, Any], key: str, file: Path | None) -> str:
    value = content.get(key, "")
    if not isinstance(value, str):
        raise InvalidConfiguration(f"{file}: {key} must be a string")
    return value


def _settings(
    given: Given, environment: Mapping[str, str], content: Mapping[str, Any], file: Path | None
) -> Mapping[str, str]:
    """Settings merged by name: a flag replaces that one setting of the file."""
    settings = _texts_by_name(content.get("settings", {}), f"{file}: settings")
    variable = f"{ENVIRONMENT_PREFIX}SETTINGS"
    if environment.get(variable):
        try:
            found = json.loads(environment[variable], object_pairs_hook=_without_repetitions)
            settings |= _texts_by_name(found, variable)
        except _Repeated as error:
            raise InvalidConfiguration(f"{variable}: {error} is repeated") from None
        except (ValueError, RecursionError):
            raise InvalidConfiguration(f"{variable} is not JSON") from None
    for setting in given.setting:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InvalidConfiguration("--setting must be NAME=VALUE")
        settings[name] = value
    return settings


def _texts_by_name(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise InvalidConfiguration(f"{where}: must be an object of strings")
    for name, one in value.items():
        if not isinstance(one, str):
            raise InvalidConfiguration(f"{where}: {name} must be a string")
    return dict(value)


def _timeout(given: Given, environment: Mapping[str, str], content: Mapping[str, Any], file: Path | None) -> float:
    variable = f"{ENVIRONMENT_PREFIX}TIMEOUT"
    found, where = content.get("timeoutSeconds"), f"{file}: timeoutSeconds"
    if environment.get(variable):
        found, where = environment[variable], variable
    if given.timeout:
        found, where = given.timeout, "--timeout"
    if found is None:
        return DEFAULT_TIMEOUT_SECONDS
    least, most = _TIMEOUT_BOUNDS
    try:
        if isinstance(found, bool):
            raise TypeError
        timeout = float(found)
    except (TypeError, ValueError, OverflowError):
        timeout = 0.0
    if not least <= timeout <= most:
        raise InvalidConfiguration(f"{where} must be a number of seconds from {least:.0f} to {most:.0f}")
    return timeout


def _serving(given: Given, content: Mapping[str, Any], file: Path | None) -> Serving | None:
    wanted = content.get("serving")
    if wanted is not None and (not isinstance(wanted, dict) or set(wanted) - _SERVING_KEYS):
        raise InvalidConfiguration(f"{file}: serving must be an object with {' and '.join(sorted(_SERVING_KEYS))}")
    if wanted is None and not given.serving:
        return None
    names = given.serving_dns_name or _texts(wanted, "dnsNames", file)
    for name in names:
        if not _NODE_NAME.fullmatch(name):
            raise InvalidConfiguration(f"serving DNS name: {name!r} is not a valid host name")
    addresses = given.serving_ip_address or _texts(wanted, "ipAddresses", file)
    return Serving(tuple(names), tuple(map(_address, addresses)))


def _trust(wanted: object, file: Path | None) -> Trust | None:
    """``trust`` of the file; only ``false`` switches it off."""
    if wanted is False:
        return None
    if not isinstance(wanted, dict) or set(wanted) - _TRUST_KEYS:
        raise InvalidConfiguration(f"{file}: trust must be false, or an object with {', '.join(sorted(_TRUST_KEYS))}")
    trust = Trust()
    if "authorityFiles" in wanted:
        paths = _trust_texts(wanted, "authorityFiles", file)
        if not all(path.startswith("/") and "\0" not in path for path in paths):
            raise InvalidConfiguration(f"{file}: trust.authorityFiles must be absolute paths")
        trust = replace(trust, authority_files=tuple(map(Path, paths)), authority_files_may_be_missing=False)
    if "restartCommand" in wanted:
        command = _trust_texts(wanted, "restartCommand", file)
        if not command or not command[0] or any("\0" in word for word in command):
            raise InvalidConfiguration(f"{file}: trust.restartCommand must be a program and its arguments")
        trust = replace(trust, restart_command=command)
    if "health" in wanted:
        host, port = _health(wanted["health"], file)
        trust = replace(trust, health_host=host, health_port=port)
    return trust


def _ssh(wanted: object, provider_id_oid: str, file: Path | None) -> SSH:
    if not isinstance(wanted, dict) or set(wanted) - _SSH_KEYS:
        raise InvalidConfiguration(f"{file}: ssh must be an object with {', '.join(sorted(_SSH_KEYS))}")
    ssh = SSH()
    if "hostKeys" in wanted:
        paths = wanted["hostKeys"]
        if not isinstance(paths, list) or not 1 <= len(paths) <= MAXIMUM_HOST_KEYS or not all(map(_is_path, paths)):
            raise InvalidConfiguration(f"{file}: ssh.hostKeys must be 1 to {MAXIMUM_HOST_KEYS} absolute paths")
        ssh = replace(ssh, host_keys=tuple(map(Path, paths)))
        if len({path.name for path in ssh.host_keys}) < len(paths):
            raise InvalidConfiguration(f"{file}: ssh.hostKeys must have different file names")
    if "folder" in wanted:
        if not _is_path(wanted["folder"]):
            raise InvalidConfiguration(f"{file}: ssh.folder must be an absolute path")
        ssh = replace(ssh, folder=Path(wanted["folder"]))
    try:
        ssh = replace(ssh, host_keys_oid=check_oid(_text(wanted, "hostKeysOID", file) or ssh.host_keys_oid))
    except InvalidOID as error:
        raise InvalidConfiguration(f"{file}: ssh.hostKeysOID: {error}") from None
    if ssh.host_keys_oid == provider_id_oid:
        raise InvalidConfiguration(f"{file}: ssh.hostKeysOID is the OID of the provider ID")
    return ssh


def _is_path(value: object) -> bool:
    """Whether it is an absolute path of a file or folder that has a name."""
    if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
        return False
    return Path(value).name not in {"", ".."}


def _trust_texts(wanted: Mapping[str, Any], key: str, file: Path | None) -> tuple[str, ...]:
    value = wanted[key]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidConfiguration(f"{file}: trust.{key} must be a list of strings")
    return tuple(value)


def _health(value: object, file: Path | None) -> tuple[str, int]:
    """Only this machine's loopback: any other answer says nothing about this kubelet."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]")
    try:
        usable = ip_address(host).is_loopback and _PORT.fullmatch(port) is not None and int(port) <= _LARGEST_PORT
    except ValueError:
        usable = False
    if not usable:
        raise InvalidConfiguration(
            f"{file}: trust.health must be a loopback address and a port, such as 127.0.0.1:10248"
        )
    return host, int(port)


def _texts(wanted: Mapping[str, Any] | None, key: str, file: Path | None) -> tuple[str, ...]:
    value = (wanted or {}).get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidConfiguration(f"{file}: serving.{key} must be a list of strings")
    return tuple(value)


def _address(text: str) -> IPAddress:
    try:
        found = ip_address(text)
    except ValueError as error:
        raise InvalidConfiguration(f"serving IP address: {error}") from None
    if "%" in text:
        raise InvalidConfiguration(f"serving IP address: a certificate cannot hold a zone, as in {text!r}")
    return found
