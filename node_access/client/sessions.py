"""``ssh``, ``scp`` and ``forward``: a grant, and then OpenSSH's own program."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from node_access.client.access import Choices, Client, Held, target_of
from node_access.client.arguments import choices_of, client_of
from node_access.client.container_files import ContainerAccess
from node_access.client.container_ways import AsGranted, ChosenWay, OnNode, WayChoice, chosen_way, way_choice
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.folders import BadFolder, GrantFolder
from node_access.client.grants import Hop
from node_access.client.heartbeat import LAST_SESSION
from node_access.client.node_files import Access
from node_access.client.openssh import openssh_version, protocol_options
from node_access.client.pod_forwarding import forward_to_pod
from node_access.client.signals import Signalled, clean_up_on_signals
from node_access.client.ssh_files import AnyAccess
from node_access.client.terminal import say
from node_access.client.touching import program
from node_access.client.words import ContainerDestination, Destination, destination_of, forward, pod_forward

FAILED: Final = 255
"""``ssh``'s own exit code for each failure of its own, and this program's: every other one is the remote command's."""
_REMOTE: Final = re.compile(r"([a-z0-9](?:[a-z0-9._-]*[a-z0-9])?):(.*)", re.ASCII | re.DOTALL)
_PASSED_ON: Final = frozenset(
    -getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""As ``Popen.returncode`` shows them."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Where a command goes."""

    folder: GrantFolder
    host: str
    """In ssh's words."""
    way: ChosenWay | AsNode


@dataclass(frozen=True, slots=True)
class AsNode:
    """It is a node itself, and no container."""


Use = Callable[[Reached], int]
"""Runs the program; returns its exit code."""


def ssh(options: argparse.Namespace) -> int:
    """``node-access ssh NODE[.CLUSTER] [-- COMMAND]``."""

    def use(to: Reached) -> int:
        return run_program(ssh_words(to.folder.config, to.host, options.words, options.option))

    return _run(options, options.node, use)


def forward_ports(options: argparse.Namespace) -> int:
    """``node-access forward NODE[.CLUSTER] PORT:HOST:PORT``."""
    forwards = [forward(one) for one in options.forwards]
    options.port_forwarding = True

    def use(to: Reached) -> int:
        if not isinstance(to.way, OnNode):
            return run_program(forward_words(to.folder.config, to.host, forwards))
        return forward_to_pod(
            [pod_forward(one) for one in forwards],
            lambda port: connect_words(to.folder.config, to.host, port),
            lambda: why_no_connection(to.folder),
        )

    return _run(options, options.node, use)


def scp(options: argparse.Namespace) -> int:
    """``node-access scp SOURCE... TARGET``."""
    nodes = {found[1] for one in options.paths if (found := _remote(one)) is not None}
    if len(nodes) != 1:
        raise WrongUse("name one node or container, as NODE[.CLUSTER]:PATH or NAMESPACE_POD_CONTAINER[.CLUSTER]:PATH")

    def use(to: Reached) -> int:
        is_container = not isinstance(to.way, AsNode)
        chosen = protocol_options(openssh_version(), legacy=options.legacy, to_container=is_container)
        flags = [*(["-r"] if options.recursive else []), *chosen]
        return run_program(scp_words(to.folder.config, to.host, options.paths, flags))

    return _run(options, nodes.pop(), use)


def ssh_words(config: Path, alias: str, words: Sequence[str], settings: Sequence[str] = ()) -> list[str]:
    """The command line. ``--`` keeps ssh from reading the command's words as its own options."""
    command = [program("ssh"), "-F", str(config), *(word for one in settings for word in ("-o", one)), alias]
    return [*command, "--", *words] if words else command


def forward_words(config: Path, alias: str, forwards: Sequence[str]) -> list[str]:
    """The command line of a connection that only forwards ports."""
    given = [word for one in forwards for word in ("-L", one)]
    return [program("ssh"), "-F", str(config), "-N", "-o", "ExitOnForwardFailure=yes", *given, alias]


def connect_words(config: Path, alias: str, port: int) -> list[str]:
    """The command line of one connection to a port of a Pod, by the agent on its node."""
    return [program("ssh"), "-F", str(config), "-T", "-o", "LogLevel=ERROR", alias, "connect", str(port)]


def scp_words(config: Path, alias: str, paths: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The command line, with the host's name in ssh's configuration for the node's."""
    given = [one if (found := _remote(one)) is None else f"{alias}:{found[2]}" for one in paths]
    return [program("scp"), "-F", str(config), *flags, "--", *given]


def _remote(path: str) -> re.Match[str] | None:
    """As scp reads a path: remote if a colon comes before every slash."""
    return _REMOTE.fullmatch(path) if ":" in path.partition("/")[0] and not path.startswith((":", "[")) else None


def _run(options: argparse.Namespace, named: str, use: Use) -> int:
    clean_up_on_signals()
    client = client_of(options)
    client.folders.forget_ended()
    where = destination_of(named, options.cluster, client.known())
    choice = way_choice(options.via, options.on_node)
    if isinstance(where, Destination) and not isinstance(choice, AsGranted):
        raise WrongUse("--via and --node are for containers")
    choices = choices_of(options, where.cluster, target_of(where))
    with contextlib.ExitStack() as stack:
        held = _held(client, where, choices, stack)
        stack.callback(_leave, client, held)
        reached = _reached(held.folder, where, client.open(held, choices.seconds), choice)
        if isinstance(reached.way, OnNode):
            held.folder.session_is_at(reached.host)  # the heartbeat logs in there
        if choices.keepalive:
            client.start_heartbeat(held)
        return use(reached)


def _reached(
    folder: GrantFolder, where: Destination | ContainerDestination, access: AnyAccess, choice: WayChoice
) -> Reached:
    """The destination in ssh's words; says which way the connection takes.

    Raises:
        ClientFailed: the grant does not open it.
    """
    if isinstance(where, ContainerDestination) and isinstance(access, ContainerAccess):
        way = chosen_way(access, choice)
        say(f"{where.user} {way.where}")
        return Reached(folder, way.alias if where.user == str(where.container) else f"{where.user}@{way.alias}", way)
    if isinstance(where, Destination) and isinstance(access, Access):
        if where.node in [one.node for one in access.targets]:
            return Reached(folder, access.alias(where.node), AsNode())
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


def why_no_connection(folder: GrantFolder) -> str:
    """Why no new connection is possible; empty while one is."""
    try:
        if why := folder.why_ended:
            return why
        if folder.certificate_end(Hop.CONTAINER) <= time.time():
            return "its certificate is over, and no heartbeat has renewed it"
    except BadFolder as error:
        return str(error)
    return ""


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
