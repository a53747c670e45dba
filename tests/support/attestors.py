"""Attestors that a test or the demo made itself, in place of the installed ones of the same name."""

from __future__ import annotations

from attestors.contract import Attestor
from attestors.registry import Registry


class RegistryWith(Registry):
    """The installed attestors, some of them replaced: how a test's attestor finds a cloud elsewhere than it is."""

    def __init__(self, *attestors: Attestor) -> None:
        super().__init__()
        self._replaced = {attestor.description.provider: attestor for attestor in attestors}

    def load(self, provider: str) -> Attestor:
        """The replacement, or what is installed; see :meth:`attestors.registry.Registry.load`."""
        return self._replaced[provider] if provider in self._replaced else super().load(provider)
