"""What the command line prints in place of a traceback. A light module, so that no other need be loaded for it."""

from __future__ import annotations


class CommandFailed(Exception):
    """A command cannot do what it is for; the message says why, and what to do."""


class InputRefused(Exception):
    """The arguments or a file of a command are invalid; the message names what, and what is expected."""
