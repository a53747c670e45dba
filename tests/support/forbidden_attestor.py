"""An attestor that no test lets anybody use: to find it among the loaded modules is the failure."""

from __future__ import annotations

from keyed_mac import plugin as plugin
