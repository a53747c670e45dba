"""``config``, ``known-hosts`` and ``agent``: the files of this machine's grants."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from node_access.client.access import Client
from node_access.client.arguments import client_of, folders_of
from node_access.client.errors import ClientFailed, NotFound, WrongUse
from node_access.client.folders import FolderRecord, GrantFolder, GrantFolders
from node_access.client.heartbeat import Heartbeat, InAgent, KeyPlace, Over, WithoutAgent
from node_access.client.include import install
from node_access.client.keys import MAXIMUM_PRIVATE_BYTES, read_fresh_key
from node_access.client.kubectl import Kubectl
from node_access.client.lifecycle import why_ended
from node_access.client.locks import Busy
from node_access.client.ssh_agent import SSHAgent, agent_address
from node_access.client.ssh_files import access_of, known_hosts
from node_access.client.terminal import say, show
from node_access.client.words import login_name, object_name

USER_CONFIG = "~/.ssh/config"


def config(options: argparse.Namespace) -> int:
    """Write the files of every live grant of this machine again, and perhaps the one line of ``~/.ssh/config``."""
    login = login_name(options.login) if options.login else ""
    client = client_of(options)
    client.folders.forget_ended()
    count = 0
    for folder, record in client.folders.all():
        if not folder.why_ended and client.is_here(record):
            count += _write(client, folder, record, login)
    line = f'Include "{client.folders.pattern}"'
    if not options.install:
        say(f"{_counted(count)}; the first line of {USER_CONFIG}, or use --install:")
        show(f"{line}\n")
        return 0
    changed = install(Path(USER_CONFIG).expanduser(), client.folders.pattern)
    say(f"{_counted(count)}; {USER_CONFIG} {'has the line now' if changed else 'had the line already'}: {line}")
    return 0


def _counted(count: int) -> str:
    return f"{count} live {'grant' if count == 1 else 'grants'}"


def show_known_hosts(options: argparse.Namespace) -> int:
    """Print the ``known_hosts`` lines of a grant."""
    grant = client_of(options).grant(object_name(options.grant, "a grant"))
    show(known_hosts(access_of(grant, grant.public_key, int(datetime.now(UTC).timestamp()))))
    return 0


def agent(options: argparse.Namespace) -> int:
    """Keep a grant of this machine alive until it ends."""
    folder, record = _own(folders_of(options), options.grant)
    kubectl = Kubectl(replace(record.kubectl, namespace=record.key.namespace))
    place = _place(folder, sys.stdin.buffer.read(MAXIMUM_PRIVATE_BYTES) if options.key_from_stdin else b"")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with folder.as_agent():
            ended = Heartbeat(kubectl, folder, record, place, say=_say, stop=stop).run()
    except Busy:
        say(f"{record.key.name}: another process keeps it alive already")
        return 0
    return 0 if isinstance(ended, Over) else 1


def _write(client: Client, folder: GrantFolder, record: FolderRecord, login: str) -> int:
    """The number of grants whose files are written: one, or none."""
    try:
        grant = client.of(record.key)
        if why := why_ended(grant, datetime.now(UTC)):
            raise NotFound(why)
        chosen = replace(record, login=login) if login in grant.logins else record
        folder.write_access(access_of(grant, folder.public_key(), int(datetime.now(UTC).timestamp())), chosen)
    except NotFound as error:
        client.end_here(folder, str(error))
        say(f"{record.key.name} has ended: {error}")
        return 0
    except ClientFailed as error:
        say(f"{record.key.name}: {error}")
        return 0
    return 1


def _own(folders: GrantFolders, named: str) -> tuple[GrantFolder, FolderRecord]:
    """The folder of a grant, by name or UID."""
    found = [(folder, one) for folder, one in folders.all() if named in (one.key.name, one.key.uid, str(one.key))]
    live = [entry for entry in found if not entry[0].why_ended]
    if len(live) == 1:
        return live[0]
    if not live:
        why = f": {found[0][0].why_ended}" if found else ""
        raise WrongUse(f"{named[:253]!a} is no live grant of this machine{why}")
    raise WrongUse(f"{named[:253]!a} is the name of several grants: give NAMESPACE/NAME, or the UID")


def _place(folder: GrantFolder, content: bytes) -> KeyPlace:
    """Where the private key is that this process was given, if any."""
    if not content:
        return WithoutAgent()
    try:
        return InAgent(SSHAgent(agent_address(os.environ)), read_fresh_key(content))
    except ValueError as error:
        raise ClientFailed(f"{folder.path}: {error}") from error


def _say(text: str) -> None:
    say(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}")
