"""``ssh``, ``scp`` and ``forward``: a grant, and then OpenSSH's own program."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from node_access.client.access import Choices, Client, Held, target_of
from node_access.client.arguments import choices_of, client_of
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.gateway_files import ContainerAccess
from node_access.client.heartbeat import LAST_SESSION
from node_access.client.node_files import Access
from node_access.client.signals import Signalled, clean_up_on_signals
from node_access.client.ssh_files import AnyAccess
from node_access.client.terminal import say
from node_access.client.touching import program
from node_access.client.words import ContainerDestination, Destination, destination_of, forward

FAILED: Final = 255
"""``ssh``'s own exit code for each failure of its own, and this program's: every other one is the remote command's."""
_REMOTE: Final = re.compile(r"([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?):(.*)", re.ASCII | re.DOTALL)
_PASSED_ON: Final = frozenset(
    -getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""As ``Popen.returncode`` shows them."""
MakeWords = Callable[[Path, str], Sequence[str]]


def ssh(options: argparse.Namespace) -> int:
    """``node-access ssh NODE[.CLUSTER] [-- COMMAND]``."""
    return _run(options, options.node, lambda config, alias: ssh_words(config, alias, options.words, options.option))


def forward_ports(options: argparse.Namespace) -> int:
    """``node-access forward NODE[.CLUSTER] PORT:HOST:PORT``."""
    forwards = [forward(one) for one in options.forwards]
    options.port_forwarding = True
    return _run(options, options.node, lambda config, alias: forward_words(config, alias, forwards))


def scp(options: argparse.Namespace) -> int:
    """``node-access scp SOURCE... TARGET``."""
    nodes = {found[1] for one in options.paths if (found := _remote(one)) is not None}
    if len(nodes) != 1:
        raise WrongUse("name one node or container, as NODE[.CLUSTER]:PATH or NAMESPACE_POD_CONTAINER[.CLUSTER]:PATH")
    return _run(
        options, nodes.pop(), lambda config, alias: scp_words(config, alias, options.paths, recursive=options.recursive)
    )


def ssh_words(config: Path, alias: str, words: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    """The command line. ``--`` keeps ssh from reading the command's words as its own options."""
    command = [program("ssh"), "-F", str(config), *(word for one in settings for word in ("-o", one)), alias]
    return [*command, "--", *words] if words else command


def forward_words(config: Path, alias: str, forwards: Sequence[str]) -> list[str]:
    """The command line of a connection that only forwards ports."""
    given = [word for one in forwards for word in ("-L", one)]
    return [program("ssh"), "-F", str(config), "-N", "-o", "ExitOnForwardFailure=yes", *given, alias]


def scp_words(config: Path, alias: str, paths: Sequence[str], *, recursive: bool) -> list[str]:
    """The command line, with the host's name in ssh's configuration for the node's."""
    given = [one if (found := _remote(one)) is None else f"{alias}:{found[2]}" for one in paths]
    return [program("scp"), "-F", str(config), *(["-r"] if recursive else []), "--", *given]


def _remote(path: str) -> re.Match[str] | None:
    """As scp reads a path: remote if a colon comes before every slash."""
    return _REMOTE.fullmatch(path) if ":" in path.partition("/")[0] and not path.startswith((":", "[")) else None


def _run(options: argparse.Namespace, named: str, words: MakeWords) -> int:
    clean_up_on_signals()
    client = client_of(options)
    client.folders.forget_ended()
    where = destination_of(named, options.cluster, client.known())
    choices = choices_of(options, where.cluster, target_of(where))
    with contextlib.ExitStack() as stack:
        held = _held(client, where, choices, stack)
        stack.callback(_leave, client, held)
        host = _host(where, client.open(held, choices.seconds))
        if choices.keepalive:
            client.start_heartbeat(held)
        return run_program(words(held.folder.config, host))


def _host(where: Destination | ContainerDestination, access: AnyAccess) -> str:
    """The destination in ssh's words; says which way the connection takes.

    Raises:
        ClientFailed: the grant does not open it.
    """
    if isinstance(where, ContainerDestination) and isinstance(access, ContainerAccess):
        say(f"{where.user} through the gateway {access.gateway.address} port {access.gateway.port}")
        return access.alias if where.user == str(where.container) else f"{where.user}@{access.alias}"
    if isinstance(where, Destination) and isinstance(access, Access):
        if where.node in [one.node for one in access.targets]:
            return access.alias(where.node)
        raise ClientFailed(f"{where.node}: the grant's status does not say where it is")
    raise ClientFailed(f"{where}: the grant opens something else")


def _held(
    client: Client, where: Destination | ContainerDestination, choices: Choices, stack: contextlib.ExitStack
) -> Held:
    """A grant in which this process is registered, so that no other one ends it."""
    opened = where.container if isinstance(where, ContainerDestination) else where.node
    for held in client.find(where, choices):
        with held.folder.exclusive():
            if not held.folder.why_ended:
                stack.enter_context(held.folder.session(opened))
                login = next(iter(choices.request.logins), "")
                return replace(held, record=replace(held.record, login=login))
    return client.make(choices, lambda folder: stack.enter_context(folder.session(opened)))


def _leave(client: Client, held: Held) -> None:
    """Revoke the grant at the end of its last session, unless it is kept."""
    with held.folder.exclusive():
        if why := held.folder.why_ended:
            say(f"the grant {held.record.key.name} has ended: {why}")
        elif not held.record.keep and not held.folder.session_nodes():
            try:
                client.revoke(held.folder, held.record, LAST_SESSION)
            except ClientFailed as error:
                say(f"the grant {held.record.key.name} could not be revoked, and ends without heartbeats: {error}")


def run_program(words: Sequence[str]) -> int:
    """Run a program at the terminal; returns its exit code.

    Raises:
        ClientFailed: it cannot be started, or crashed.
        Signalled: somebody ended it, and this process does the same when it has cleaned up.
    """
    try:
        process = subprocess.Popen(list(words))  # noqa: S603
    except OSError as error:
        raise ClientFailed(f"{words[0]} cannot be started: {error.strerror}") from error
    # What the keyboard interrupts is the program, not this one: it has to clean up.
    former = {number: signal.signal(number, lambda *_: None) for number in _interruptions()}
    try:
        code = process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if code in _PASSED_ON:
        raise Signalled(-code)
    if code < 0:
        raise ClientFailed(f"{words[0]} was ended by signal {-code}")
    return code


def _interruptions() -> tuple[signal.Signals, ...]:
    return tuple(getattr(signal, name) for name in ("SIGINT", "SIGQUIT") if hasattr(signal, name))
