"""Finds installed bastion providers through entry points of the group ``node_access.bastions``.

The entry point's name is the provider's name, and its object implements
:class:`~node_access.bastions.contract.BastionProvider`. A provider is imported on first use.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from typing import Final

from node_access.bastions.contract import BastionProvider, ProviderUnavailable, one_line

ENTRY_POINT_GROUP: Final = "node_access.bastions"
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)


class ProviderNotInstalled(ProviderUnavailable):
    """No installed distribution has a provider of that name."""


class InvalidProvider(ProviderUnavailable):
    """The entry point's object is no provider, cannot be imported, or two distributions have one of that name."""


class BastionRegistry:
    """The installed providers. Their names are known before they are imported."""

    def __init__(self, entry_points: Iterable[importlib.metadata.EntryPoint] | None = None) -> None:
        """Read ``entry_points``, or by default those of all installed distributions."""
        found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if entry_points is None else entry_points
        # A distribution is found twice if its path is listed twice in sys.path.
        self._candidates: dict[str, set[importlib.metadata.EntryPoint]] = {}
        for entry_point in found:
            self._candidates.setdefault(entry_point.name, set()).add(entry_point)
        self._loaded: dict[str, BastionProvider] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of all installed providers."""
        return frozenset(self._candidates)

    def load(self, name: str) -> BastionProvider:
        """Import the provider of that name.

        Raises:
            ProviderNotInstalled: there is none.
            InvalidProvider: it is unusable; the message says why.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> BastionProvider:
        candidates = {(one.value, one.group): one for one in self._candidates.get(name, ())}
        if not candidates:
            installed = ", ".join(sorted(self._candidates)) or "none"
            raise ProviderNotInstalled(f"bastion provider {name[:40]!r} is not installed; installed are: {installed}")
        if len(candidates) > 1:
            raise InvalidProvider(f"bastion provider {name!r} is provided twice: uninstall all but one")
        if _NAME.fullmatch(name) is None:
            raise InvalidProvider(f"bastion provider {name[:40]!r}: its name is no DNS label of up to 40 characters")
        (entry_point,) = candidates.values()
        try:
            provider = entry_point.load()
        except ImportError as error:
            raise InvalidProvider(f"bastion provider {name!r} cannot be imported: {one_line(str(error))}") from error
        except AttributeError as error:
            raise InvalidProvider(f"bastion provider {name!r}: {entry_point.value} does not exist") from error
        if isinstance(provider, type) or not isinstance(provider, BastionProvider):
            raise InvalidProvider(f"bastion provider {name!r}: {entry_point.value} is no provider")
        if provider.name != name:
            raise InvalidProvider(f"bastion provider {name!r} calls itself {str(provider.name)[:40]!r}")
        return provider
