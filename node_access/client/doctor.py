"""``doctor``: what this machine and the management cluster lack, before one needs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from node_access.client.access import Client, new_name, node_target
from node_access.client.arguments import client_of
from node_access.client.errors import ClientFailed
from node_access.client.file_commands import USER_CONFIG
from node_access.client.folders import GrantFolder
from node_access.client.grants import GATEWAY_NAME
from node_access.client.include import is_installed
from node_access.client.keys import fresh_key
from node_access.client.manifests import GrantRequest, grant_manifest
from node_access.client.node_files import needs_touch
from node_access.client.openssh import NotOpenSSH, openssh_version
from node_access.client.programs import run_bounded
from node_access.client.ssh_agent import SSHAgent, agent_address
from node_access.client.tables import lines_of, table
from node_access.client.terminal import show, width_of
from node_access.client.touching import program
from node_access.client.words import CONTAINER_MARK, login_name, object_name, printable, time

OLDEST_SSH: Final = (8, 5)
"""``KnownHostsCommand`` is from 8.5."""
OLDEST_KUBECTL: Final = 26
_CLOCK_SECONDS: Final = 120
_MAXIMUM_BYTES: Final = 256 * 1024
_WAYS_IN: Final = "NoOtherWaysInDeclared"
_EFFECTIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "stricthostkeychecking": ("true", "yes"),
    "forwardagent": ("no",),
    "identitiesonly": ("yes",),
    "globalknownhostsfile": ("none",),
}
"""As ``ssh -G`` prints them."""
_WITHOUT_LOGIN: Final = ("PreferredAuthentications=none", "BatchMode=yes", "ConnectTimeout=20", "LogLevel=ERROR")
_ANSWER_SECONDS: Final = 60.0
_REFUSED: Final = "Permission denied"
_OTHER_KEY: Final = "Host key verification failed"
"""As ssh says them."""


@dataclass(frozen=True, slots=True)
class Passed:
    """As it should be."""

    what: str


@dataclass(frozen=True, slots=True)
class Warned:
    """It works without, or it could not be told."""

    what: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Access does not work, or is not safe."""

    what: str


Finding = Passed | Warned | Failed
_WORDS: Final = {Passed: "ok", Warned: "warning", Failed: "FAILED"}


def doctor(options: argparse.Namespace) -> int:
    """Print a table of checks; exit code 1 if one failed."""
    client = client_of(options)
    login, cluster = login_name(options.login), options.cluster
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("ssh", _ssh),
        ("kubectl", lambda: _kubectl(client)),
        ("ssh-agent", _agent),
        ("identity", lambda: _identity(client)),
        ("rights", lambda: _rights(client, login)),
        ("~/.ssh/config", lambda: _config(client)),
    ]
    if containers := _container_grants(client):
        checks.append(("containers", lambda: _containers(containers)))
    if cluster:
        checks.append(("grant, clock", lambda: _dry_run(client, object_name(cluster, "a Cluster"), login)))
        checks.append(("other ways in", lambda: _ways_in(client, cluster)))
    found = [(name, finding) for name, check in checks for finding in _findings(check)]
    rows = [(name, _WORDS[type(finding)], finding.what) for name, finding in found]
    width = width_of(sys.stdout)
    split = [
        (name if number == 0 else "", word if number == 0 else "", line)
        for name, word, what in rows
        for number, line in enumerate(lines_of(what, width - max(len(name) for name, _ in found) - 11))
    ]
    show(table(("CHECK", "RESULT", ""), split, shrink=(2,), width=width))
    return 1 if any(isinstance(finding, Failed) for _, finding in found) else 0


def _findings(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except ClientFailed as error:
        return [Failed(str(error))]


def _ssh() -> Iterator[Finding]:
    version = openssh_version()
    if isinstance(version, NotOpenSSH):
        yield Warned("not OpenSSH")
    elif version.numbers < OLDEST_SSH:
        yield Failed(f"OpenSSH {version}: 8.5 or newer is needed")
    else:
        yield Passed(f"OpenSSH {version}")


def _kubectl(client: Client) -> Iterator[Finding]:
    version = client.kubectl.version().get("clientVersion")
    minor = str(version.get("minor", "")).rstrip("+") if isinstance(version, dict) else ""
    if not minor.isdigit():
        yield Warned("it does not say its version")
    elif int(minor) < OLDEST_KUBECTL:
        yield Warned(f"version 1.{minor}: before 1.26 it cannot say who you are, so give --user")
    else:
        yield Passed(f"version 1.{minor}")


def _agent() -> Iterator[Finding]:
    try:
        count = len(SSHAgent(agent_address(os.environ)).listed())
    except ClientFailed as error:
        yield Warned(f"{error}; private keys of grants will be on disk")
        return
    yield Passed(f"{count} keys")


def _identity(client: Client) -> Iterator[Finding]:
    try:
        yield Passed(client.kubectl.who_am_i().username)
    except ClientFailed as error:
        yield Warned(f"unknown, so give --user: {error}")


def _rights(client: Client, login: str) -> Iterator[Finding]:
    wanted = [(verb, "accessgrants", "") for verb in ("create", "get", "list", "patch", "delete")]
    for verb, resource, name in (*wanted, ("use", "logins", login)):
        what = f"{verb} {resource}{f'/{name}' if name else ''}"
        yield Passed(what) if client.kubectl.may_i(verb, resource, name) else Failed(f"{what}: you have no such right")


def _config(client: Client) -> Iterator[Finding]:
    if not is_installed(Path(USER_CONFIG).expanduser(), client.folders.pattern):
        yield Warned("it does not include the grants first: node-access config --install; `node-access ssh` works")
        return
    yield Passed("it includes the grants first")
    for folder, record in client.folders.all():
        if folder.why_ended or not folder.hosts:
            continue
        host = folder.hosts[0]
        found = _effective(host)
        wrong = sorted(name for name, values in _EFFECTIVE.items() if found.get(name) not in values)
        if str(folder.path) not in found.get("userknownhostsfile", ""):
            yield Failed(f"{host} is another file's: ssh does not use the grant {record.key.name}")
        elif wrong:
            yield Failed(f"{host}: another file sets {', '.join(wrong)}")
        else:
            yield Passed(host)


def _effective(host: str, *options: str) -> Mapping[str, str]:
    """What ssh makes of all of a person's configuration, or of the file that ``options`` name."""
    words = [program("ssh"), "-G", *options, host]
    found = run_bounded(words, maximum_bytes=_MAXIMUM_BYTES, seconds=10, environment=os.environ)
    lines = (line.partition(" ") for line in found.output.decode("utf-8", "replace").splitlines())
    return {name: value for name, _, value in reversed(list(lines))}


def _container_grants(client: Client) -> list[GrantFolder]:
    """The folders of live grants for containers."""
    return [
        folder
        for folder, record in client.folders.all()
        if client.is_here(record) and not folder.why_ended and CONTAINER_MARK in "".join(folder.hosts[:1])
    ]


def _containers(grants: Sequence[GrantFolder]) -> Iterator[Finding]:
    """Whether the gateway or the node of each answers, with a host key that the grant's files know; and scp."""
    for folder in grants:
        yield _answer_of(folder, folder.hosts[0])
    version = openssh_version()
    if isinstance(version, NotOpenSSH):
        yield Warned("not OpenSSH: use its sftp or scp for files")
    elif version.copies_by_sftp:
        yield Passed(f"OpenSSH {version} copies files by SFTP")
    elif version.chooses_protocol:
        yield Warned(f"OpenSSH {version}: scp of your own needs -s, which node-access scp adds")
    else:
        yield Warned(f"OpenSSH {version}: scp needs a program scp in the image; use sftp")


def _answer_of(folder: GrantFolder, host: str) -> Finding:
    """Without a login: host keys are checked before it. Each login may need a touch."""
    read = _effective(host, "-F", str(folder.config))
    way = f"{read.get('hostname', '')} port {read.get('port', '')}"
    which = "the gateway" if read.get("hostkeyalias", "").startswith(GATEWAY_NAME) else "the node"
    if "proxyjump" in read and needs_touch(folder.public_key()):
        return Warned(f"{host}: {which} is behind a bastion, which asks for a touch; not tried")
    options = [word for one in _WITHOUT_LOGIN for word in ("-o", one)]
    words = [program("ssh"), "-F", str(folder.config), *options, host, "true"]
    found = run_bounded(words, maximum_bytes=_MAXIMUM_BYTES, seconds=_ANSWER_SECONDS, environment=os.environ)
    if _REFUSED in found.error:
        return Passed(f"{host}: {which} {way} answers, and its host key is known")
    if _OTHER_KEY in found.error:
        return Failed(f"{host}: what answers at {way} has a host key that is not {which}'s")
    said = printable((found.error.strip().splitlines() or ["it says nothing"])[-1])
    return Failed(f"{host}: {which} {way} does not answer: {said}")


def _dry_run(client: Client, cluster: str, login: str) -> Iterator[Finding]:
    request = GrantRequest(cluster, node_target(()), (login,))
    before = datetime.now(UTC)
    made = client.kubectl.create(grant_manifest(request, new_name(request), fresh_key().public), dry_run=True)
    yield Passed(f"a grant for {cluster} would be accepted")
    metadata = made.get("metadata")
    stated = metadata.get("creationTimestamp") if isinstance(metadata, dict) else ""
    try:
        skew = abs((time(str(stated)) - before).total_seconds())
    except ValueError:
        yield Warned("the management cluster does not say what time it is")
        return
    text = f"this machine's clock is {skew:.0f} s off the management cluster's"
    yield Passed(text) if skew <= _CLOCK_SECONDS else Failed(text)


def _ways_in(client: Client, cluster: str) -> Iterator[Finding]:
    try:
        status: Any = client.kubectl.get_policy_conditions(cluster).get("status")
    except ClientFailed as error:
        yield Warned(f"not known: {error}")
        return
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for one in conditions if isinstance(conditions, list) else []:
        if isinstance(one, dict) and one.get("type") == _WAYS_IN:
            message = str(one.get("message", ""))
            yield Passed("none is declared") if one.get("status") == "True" else Warned(message)
            return
    yield Warned("the Cluster's policy says nothing about them")
