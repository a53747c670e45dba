"""Replaces installed attestors by those of a test or the demo."""

from __future__ import annotations

from attestors.contract import Attestor
from attestors.registry import Registry


class RegistryWith(Registry):
    """The installed attestors, some of them replaced, such as by one that uses a fake cloud."""

    def __init__(self, *attestors: Attestor) -> None:
        super().__init__()
        self._replaced = {attestor.description.provider: attestor for attestor in attestors}

    def load(self, provider: str) -> Attestor:
        """The replacement, or else the installed attestor; see :meth:`attestors.registry.Registry.load`."""
        return self._replaced[provider] if provider in self._replaced else super().load(provider)
