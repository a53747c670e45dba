"""Finds installed attestors through entry points, imports each one on first use, and contains what their code raises.

The group is ``node_attestation.attestors``; the entry point's name is the provider name. Third-party attestors install
with ``pip`` and need no change here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from pathlib import PurePath
from typing import Any, Final

from attestors.contract import (
    Attestor,
    AttestorDescription,
    AttestorSettings,
    ChecksOperatorSettings,
    InvalidOutcome,
    InvalidSettings,
    SettingsFinding,
)
from attestors.wire.names import ENTRY_POINT_GROUP, InvalidProviderName, check_provider_name

_PLUGINS: Final = ("server_plugin", "agent_plugin")
# The text of glibc's dlopen for a library that a Python module links to.
_MISSING_SHARED_LIBRARY: Final = re.compile(r"(?P<name>[\w.+-]{1,100}): cannot open shared object file", re.ASCII)


class AttestorUnavailable(Exception):
    """An attestor cannot be used in this installation; the message names it and the remedy."""


class AttestorNotInstalled(AttestorUnavailable):
    """No installed distribution provides the attestor."""


class MissingExtra(AttestorUnavailable):
    """The attestor is installed without a library that it needs."""


class InvalidAttestor(AttestorUnavailable):
    """The entry point's object is not an attestor, or two distributions provide the same provider name."""


class AttestorFailed(Exception):
    """An attestor's code raised an error that its contract does not name. The message is the error's type: its text may
    hold secrets.
    """

    def __init__(self, fault: BaseException) -> None:
        super().__init__(type(fault).__name__)
        self.fault = fault
        """The error."""


@contextmanager
def attestor_code(*expected: type[Exception]) -> Iterator[None]:
    """Run an attestor's code in the block. It may raise anything, also SystemExit as scripts do, and must end
    neither the calling task nor the process.

    Raises:
        AttestorFailed: it raised an error that is not ``expected``.
    """
    try:
        yield
    except expected:
        raise
    except (Exception, SystemExit) as error:  # an attestor is a plugin, and may have any defect
        raise AttestorFailed(error) from error


class PolicyMayBeNeeded(Exception):
    """An attestor refuses the operator's settings with an empty policy, and cannot say whether a policy may complete
    them. The message is the attestor's.
    """


class Registry:
    """The installed attestors. Their names are known before they are imported."""

    def __init__(self, entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> None:
        """Read ``entry_points``, or by default those of all installed distributions."""
        found = _installed() if entry_points is None else entry_points
        self._entry_points: dict[str, list[importlib.metadata.EntryPoint]] = {}
        for entry_point in found:
            already = self._entry_points.setdefault(entry_point.name, [])
            # A distribution is found twice if its path is listed twice in sys.path.
            if all(
                (other.value, _distribution(other)) != (entry_point.value, _distribution(entry_point))
                for other in already
            ):
                already.append(entry_point)
        self._loaded: dict[str, Attestor] = {}

    @property
    def providers(self) -> frozenset[str]:
        """The names of all installed attestors."""
        return frozenset(self._entry_points)

    def load(self, provider: str) -> Attestor:
        """Import the attestor of that name.

        Raises:
            AttestorNotInstalled: there is none.
            MissingExtra: it needs libraries that are not installed; the message names the extra.
            InvalidAttestor: it breaks the contract, or two distributions provide it.
        """
        if provider not in self._loaded:
            self._loaded[provider] = self._load(provider)
        return self._loaded[provider]

    def require_installed(self, provider: str) -> None:
        """Check that an attestor of that name is installed, without an import.

        Raises:
            AttestorNotInstalled: there is none.
        """
        if not self._entry_points.get(provider):
            installed = ", ".join(sorted(self._entry_points)) or "none"
            raise AttestorNotInstalled(f"attestor {provider!r} is not installed; installed are: {installed}")

    def _load(self, provider: str) -> Attestor:
        self.require_installed(provider)
        candidates = self._entry_points[provider]
        if len(candidates) > 1:
            owners = " and ".join(sorted(_distribution(candidate) for candidate in candidates))
            raise InvalidAttestor(f"attestor {provider!r} is provided by {owners}: uninstall all but one")
        entry_point = candidates[0]
        try:
            check_provider_name(provider)
        except InvalidProviderName as error:
            raise InvalidAttestor(f"attestor {provider!r} of {_distribution(entry_point)}: {error}") from error
        attestor = _imported(entry_point)
        if isinstance(attestor, type):
            raise InvalidAttestor(f"attestor {provider!r}: {entry_point.value} is a class, and must be an object of it")
        if not _is_described(entry_point, attestor) or not all(
            callable(getattr(attestor, plugin, None)) for plugin in _PLUGINS
        ):
            raise InvalidAttestor(f"attestor {provider!r}: {entry_point.value} is not an attestor")
        if attestor.description.provider != provider:
            raise InvalidAttestor(f"attestor {provider!r} calls itself {attestor.description.provider!r}")
        loaded: Attestor = attestor
        return loaded

    def check_operator_settings(
        self, provider: str, operator: Mapping[str, Any], now: datetime
    ) -> tuple[SettingsFinding, ...]:
        """Load the attestor of that name, and build its server plugin with the operator's settings and no policy.

        Raises:
            AttestorUnavailable: it cannot be used in this installation.
            InvalidSettings: a setting is wrong, whatever a policy says.
            PolicyMayBeNeeded: see there.
            AttestorFailed: its code fails.
        """
        attestor = self.load(provider)
        decides = isinstance(attestor, ChecksOperatorSettings)
        found: tuple[SettingsFinding, ...] = ()
        try:
            with attestor_code(ImportError, AttestorUnavailable, InvalidSettings):
                if isinstance(attestor, ChecksOperatorSettings):
                    found = tuple(attestor.check_operator_settings(deepcopy(operator), now))
        except ImportError as error:
            raise self.missing_extra(provider, error) from error
        try:
            with attestor_code(ImportError, AttestorUnavailable, InvalidSettings):
                attestor.server_plugin(AttestorSettings(operator=deepcopy(operator)))
        except ImportError as error:
            raise self.missing_extra(provider, error) from error
        except InvalidSettings as error:
            if not decides:
                raise PolicyMayBeNeeded(str(error)) from error
        return found

    def missing_extra(self, provider: str, error: ImportError) -> MissingExtra:
        """The message for an :class:`ImportError` that one of the attestor's halves raised."""
        return missing_extra(self._entry_points[provider][0], error)


@functools.cache
def _installed() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Looked up once in a process: the lookup reads the metadata of every installed distribution."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def _imported(entry_point: importlib.metadata.EntryPoint) -> Any:
    """The entry point's object."""
    name = f"attestor {entry_point.name!r}"
    try:
        with attestor_code(InvalidOutcome, ImportError):
            importlib.import_module(entry_point.module)
    except InvalidOutcome as error:
        raise InvalidAttestor(f"{name} of {_distribution(entry_point)}: {error}") from error
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and f"{entry_point.module}.".startswith(f"{error.name}."):
            no_module = f"{entry_point.value} names no module that exists; write package.module:object"
            raise InvalidAttestor(f"{name} of {_distribution(entry_point)}: {no_module}") from error
        raise missing_extra(entry_point, error) from error
    except AttestorFailed as failed:
        what = _what_failed(entry_point, failed.fault)
        raise InvalidAttestor(f"{name} of {_distribution(entry_point)} fails when imported: {what}") from failed.fault
    try:
        return entry_point.load()
    except AttributeError as error:
        raise InvalidAttestor(f"{name}: {entry_point.value} does not exist") from error


def _is_described(entry_point: importlib.metadata.EntryPoint, attestor: object) -> bool:
    try:
        with attestor_code():
            return isinstance(getattr(attestor, "description", None), AttestorDescription)
    except AttestorFailed as failed:
        name = f"attestor {entry_point.name!r} of {_distribution(entry_point)}"
        what = _what_failed(entry_point, failed.fault)
        raise InvalidAttestor(f"{name}: its description fails: {what}") from failed.fault


def _what_failed(entry_point: importlib.metadata.EntryPoint, error: BaseException) -> str:
    """The exception's type, and the last line in the attestor's own code. Its text is left out: it may hold secrets."""
    file, line = "", 0
    if isinstance(error, SyntaxError):
        file, line = error.filename or "", error.lineno or 0
    found = error.__traceback__
    while found is not None:
        module = str(found.tb_frame.f_globals.get("__name__", ""))
        # The entry point's own .module fails for malformed values.
        if module.partition(".")[0] == re.split(r"[.:\[ ]", entry_point.value)[0]:
            file, line = found.tb_frame.f_code.co_filename, found.tb_lineno
        found = found.tb_next
    return f"{type(error).__name__} ({PurePath(file).name}, line {line})" if file else type(error).__name__


def missing_extra(entry_point: importlib.metadata.EntryPoint, error: ImportError) -> MissingExtra:
    """Turn an attestor's import error into an error that says what to install."""
    distribution = _distribution(entry_point)
    if str(error).startswith("cannot import name"):
        what = str(error).partition(" (")[0]
        return MissingExtra(
            f"attestor {entry_point.name!r} of {distribution} cannot be imported: {what}: do their versions fit each "
            "other?"
        )
    shared = _MISSING_SHARED_LIBRARY.match(str(error))
    if shared is not None:  # the Python package is there: pip would install nothing
        return MissingExtra(
            f"attestor {entry_point.name!r} needs the system library {shared['name']}, which is not installed: install "
            "the package of the operating system that contains it"
        )
    declared = entry_point.dist.metadata.get_all("Provides-Extra") or [] if entry_point.dist is not None else []
    extras = entry_point.extras or [extra for extra in declared if extra == entry_point.name]
    module = error.name or "a library"
    remedy = f"pip install '{distribution}[{','.join(extras)}]'" if extras else f"see how {distribution} is installed"
    return MissingExtra(f"attestor {entry_point.name!r} needs {module}, which is not installed: {remedy}")


def _distribution(entry_point: importlib.metadata.EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else "an unknown distribution"
