"""An attestor that must never be loaded: a test fails if this module was imported."""

from __future__ import annotations

from keyed_mac import plugin as plugin
