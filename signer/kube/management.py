"""Access to the management cluster, by the operator's kubeconfig or the Pod's service account.

Unlike a kubeconfig from a Secret, this configuration is the operator's and may name files and credential plugins.
The result is a :class:`ClusterConnection` and a token source.

``kubernetes.aio.config`` reads it, unless it is a kubeconfig that embeds its credential, as those of kubeadm, kind and
clusterctl are. Importing that library takes a large part of a command's time, and it writes embedded keys to temporary
files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from signer.kube.client import TokenSource
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Unauthorized, bounded_text, without_credentials
from signer.kube.http.messages import Origin
from signer.kube.tls import TlsMaterialRefused, client_context
from signer.model.command_failures import InputRefused

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

TOKEN_SECONDS = 60.0
"""Time for which a token is used before its source is read again. Kubelets rotate a Pod's token at 80 % of an hour."""

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_BEARER = "bearer "
_NO_TEMPORARY_FOLDER = "No usable temporary directory"
"""Beginning of the message with which ``tempfile`` reports this; it has no exception of its own for it."""


class ManagementConfigurationRefused(InputRefused):
    """The operator's kubeconfig or the Pod's service account is unusable; the message says why."""


@dataclass(frozen=True, slots=True)
class ManagementAccess:
    """The arguments of a Client of the management cluster: ``Client(a.connection, token_source=a.token_source)``."""

    connection: ClusterConnection
    """Without a token: ``token_source`` provides it."""
    token_source: TokenSource


async def management_connection(kubeconfig: Path | None, context: str | None = None) -> ManagementAccess:
    """Access to the management cluster.

    With a path: that kubeconfig and no other. Without: ``$KUBECONFIG``, else the Pod's service account, else
    ``~/.kube/config`` (the order of controller-runtime's ``GetConfig``). With a context: that one of the kubeconfig,
    and never the Pod's service account. Without: the kubeconfig's current one.

    Client certificates from a credential plugin are read once: call this function again after Unauthorized.

    Raises:
        ManagementConfigurationRefused: the configuration is missing or unusable.
    """
    _ensure_home()
    if kubeconfig is None and context is None and not os.environ.get("KUBECONFIG") and _IN_CLUSTER in os.environ:
        return _in_cluster()
    path = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if context is None:
        try:
            return _from_embedded(path)
        except _NeedsLibrary:
            pass
    return await _from_kubeconfig(path, context)


def _ensure_home() -> None:
    """Set HOME if there is no home folder: importing the library needs one, from HOME or from the list of users.

    A user that is only a number has none. Container runtimes use the root folder then.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"


class RefreshingToken:
    """A token source that fetches a new token once a minute, and at once after a 401."""

    def __init__(
        self, fetch: Callable[[bool], Awaitable[str | None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``fetch(rejected)`` returns the token; ``rejected`` says whether the last token was answered with 401."""
        self._fetch = fetch
        self._clock = clock
        self._token: str | None = None
        self._fetched_at: float | None = None
        self._rejections = 0
        self._rejections_answered = 0
        """Those after which a new token was fetched."""
        self._one_at_a_time = asyncio.Lock()  # a credential plugin may take seconds

    async def token(self) -> str | None:
        """The current token. Raises Unauthorized if none is available."""
        if self._is_stale():
            async with self._one_at_a_time:
                if self._is_stale():
                    rejections = self._rejections  # further ones may come meanwhile
                    self._token = await self._fetch(self._is_rejected())
                    self._rejections_answered = rejections
                    self._fetched_at = self._clock()
        return self._token

    def _is_stale(self) -> bool:
        return self._is_rejected() or self._fetched_at is None or self._clock() - self._fetched_at >= TOKEN_SECONDS

    def _is_rejected(self) -> bool:
        return self._rejections > self._rejections_answered

    def rejected(self) -> None:
        """The API server answered 401."""
        self._rejections += 1


def _in_cluster() -> ManagementAccess:
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, load_incluster_config

    def load() -> Configuration:
        configuration = Configuration()
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except (ConfigException, OSError, ValueError) as error:
            raise ManagementConfigurationRefused(f"in-cluster configuration: {error}") from error
        return configuration

    async def fetch(rejected: bool) -> str | None:
        # Reads the mounted file again, which the kubelet rotates.
        try:
            return _token(load())
        except ManagementConfigurationRefused as error:
            raise Unauthorized(str(error)) from error

    return ManagementAccess(_connection(load()), RefreshingToken(fetch))


class _NeedsLibrary(Exception):
    """A kubeconfig names files or programs, cannot be read, or is malformed: the library reads it, or says why not."""


def _from_embedded(path: str) -> ManagementAccess:
    """Access by a kubeconfig whose current context embeds certificates, keys or a token.

    Raises:
        _NeedsLibrary: it is not such a kubeconfig.
    """

    async def fetch(rejected: bool) -> str | None:
        try:
            return _embedded(path).bearer_token  # which somebody may have renewed
        except _NeedsLibrary:
            try:
                return await (await _from_kubeconfig(path, None)).token_source.token()
            except ManagementConfigurationRefused as error:
                raise Unauthorized(str(error)) from error

    return ManagementAccess(replace(_embedded(path), bearer_token=None), RefreshingToken(fetch))


def _embedded(path: str) -> ClusterConnection:
    from signer.kube.kubeconfig import MAXIMUM_KUBECONFIG_BYTES, KubeconfigRefused, parse_kubeconfig

    file = Path(path)
    try:
        if not file.is_file():  # a list of files, or a pipe, which can be read only once
            raise _NeedsLibrary
        with file.open("rb") as opened:
            return parse_kubeconfig(opened.read(MAXIMUM_KUBECONFIG_BYTES + 1))
    except (OSError, KubeconfigRefused) as error:
        raise _NeedsLibrary from error


async def _from_kubeconfig(path: str, context: str | None) -> ManagementAccess:
    import yaml
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException, kube_config, load_kube_config

    # The errors that the library raises for a malformed file.
    malformed = (
        ConfigException,
        yaml.YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    )
    configuration = Configuration()
    plugin_log = _Said()
    try:
        if not _exists(path):
            raise ManagementConfigurationRefused("no such file; give --kubeconfig, or set KUBECONFIG")
        with plugin_log.capture(kube_config.logger):
            loader = await load_kube_config(path, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        connection = _connection(configuration)
        if _token(configuration) is None and connection.client_certificate is None and "exec" in (loader._user or {}):
            raise ManagementConfigurationRefused(f"its credential plugin gave no credential: {plugin_log.last}")
    except malformed as error:
        what = _described(error)
        if context is not None and f"with name {context} in " in what and "contexts" in what:
            what = f"it has no context {context}: `kubectl config get-contexts` lists those that it has"
        raise ManagementConfigurationRefused(f"kubeconfig {path}: {what}") from error
    except ManagementConfigurationRefused as error:
        raise ManagementConfigurationRefused(f"kubeconfig {path}: {error}") from error
    finally:
        # The library writes embedded keys to temporary files and keeps them until the process ends.
        kube_config._cleanup_temp_files()  # type: ignore[no-untyped-call]

    has_plugin = "exec" in (loader._user or {})
    has_expiry = hasattr(loader, "exec_plugin_expiry")

    async def fetch(rejected: bool) -> str | None:
        try:
            if has_plugin and not rejected and not has_expiry:
                pass  # valid until the API server rejects it, as in client-go
            elif has_plugin:
                if rejected:
                    vars(loader).pop("exec_plugin_expiry", None)  # missing if the plugin failed at that time
                plugin_log = _Said()
                with plugin_log.capture(kube_config.logger):
                    given = await loader.load_from_exec_plugin()
                if not given:
                    raise Unauthorized(f"kubeconfig: the credential plugin gave no credential: {plugin_log.last}")
                loader._set_config(configuration)
            else:
                await load_kube_config(path, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
            return _token(configuration)
        except malformed as error:
            raise Unauthorized(f"kubeconfig: {type(error).__name__}") from error
        except ManagementConfigurationRefused as error:
            raise Unauthorized(str(error)) from error
        finally:
            kube_config._cleanup_temp_files()  # type: ignore[no-untyped-call]

    return ManagementAccess(connection, RefreshingToken(fetch))


class _Said(logging.Handler):
    """Captures the library's log of a failing credential plugin: it raises no error, and commands print no log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = "it logged nothing"

    def emit(self, record: logging.LogRecord) -> None:
        self.last = bounded_text(without_credentials(record.getMessage()))

    @contextlib.contextmanager
    def capture(self, logger: logging.Logger) -> Iterator[None]:
        """Capture the log of that logger, and stop it from propagating."""
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate


def _exists(path: str) -> bool:
    """Whether a file of a ``$KUBECONFIG`` list exists; the library only logs if none does.

    Raises:
        OSError: this cannot be determined, as in a folder without search permission.
    """
    return any(Path(os.path.expanduser(part)).is_file() for part in path.split(os.pathsep) if part)


def _described(error: Exception) -> str:
    """A one-line message about an error of the library for a file. The library's own text often describes its code."""
    import yaml
    from kubernetes.aio.config import ConfigException

    from attestors.net.strict_yaml import position

    if isinstance(error, yaml.YAMLError):
        return f"it is not YAML{position(error)}"
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, OSError):
        if str(error.strerror).startswith(_NO_TEMPORARY_FOLDER):
            return (
                "its keys are put into a temporary folder for a moment, and none can be written: make /tmp writable, "
                "or name another with TMPDIR"
            )
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ConfigException):
        return " ".join(str(error).split())
    return f"it is not a kubeconfig ({type(error).__name__})"


def _connection(configuration: Configuration) -> ClusterConnection:
    """The connection that the library read, unless it needs features that the client refuses."""
    try:
        Origin.of(configuration.host)
    except ValueError as error:
        raise ManagementConfigurationRefused(f"the management cluster: {error}") from None
    if not configuration.verify_ssl:
        raise ManagementConfigurationRefused("insecure-skip-tls-verify: the server is always verified; give its CA")
    if configuration.proxy:
        raise ManagementConfigurationRefused("proxy-url: proxies are not supported")
    connection = ClusterConnection(
        server=configuration.host.rstrip("/"),
        certificate_authority=_authority(configuration.ssl_ca_cert),
        tls_server_name=configuration.tls_server_name or None,
        client_certificate=Path(configuration.cert_file).read_bytes() if configuration.cert_file else None,
        client_key=Path(configuration.key_file).read_bytes() if configuration.key_file else None,
    )
    try:
        client_context(connection)
    except TlsMaterialRefused as error:
        raise ManagementConfigurationRefused(f"the management cluster: {error}") from error
    return connection


def _authority(path: str | None) -> bytes:
    """The CA of the configuration, or the system's if it names none, as in kubectl."""
    if path is not None:
        return Path(path).read_bytes()
    system = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in system).encode("ascii")


def _token(configuration: Configuration) -> str | None:
    value: str | None = configuration.api_key.get("BearerToken")
    if not value:
        return None
    if value[: len(_BEARER)].lower() != _BEARER:
        raise ManagementConfigurationRefused("user name and password are not supported; use a token or a certificate")
    return value[len(_BEARER) :].strip()
