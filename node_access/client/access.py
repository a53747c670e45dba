"""Finds or makes a grant, waits for it, and keeps its folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from attestors.wire.ssh.options import Network
from attestors.wire.ssh.principals import HostName
from node_access.client.addresses import AddressSources, are_within, own_networks
from node_access.client.creating import create_as_self
from node_access.client.errors import ClientFailed, ManagementFailed, NotFound
from node_access.client.folders import BadFolder, FolderRecord, GrantFolder, GrantFolders
from node_access.client.grants import (
    AllNodesTarget,
    ContainerTarget,
    Grant,
    GrantKey,
    InvalidGrant,
    NodesTarget,
    parse_grant,
)
from node_access.client.heartbeat import InAgent, KeyPlace, WithoutAgent, blobs_of, forget, serials
from node_access.client.keys import ExistingKey, FreshKey, Key, existing_key, fresh_key
from node_access.client.kubectl import Kubectl, KubectlSettings
from node_access.client.lifecycle import is_ready, waited_for, waits_for, why_ended, why_over
from node_access.client.manifests import GrantRequest, grant_manifest, ingress_patch
from node_access.client.programs import detach, own_command
from node_access.client.ssh_agent import NoAgent, SSHAgent, agent_address
from node_access.client.ssh_files import AnyAccess, access_of
from node_access.client.terminal import ask, confirm, say
from node_access.client.words import ContainerDestination, Destination, duration_text

NO_BASTION: Final = "None"
KEY_FROM_STANDARD_INPUT: Final = "--key-from-stdin"
_FIRST_POLLS: Final = (0.1, 0.2, 0.4)
_POLL_SECONDS: Final = 1.0
_LIFETIME_WITHOUT_DURATION: Final = 7 * 86400
_CLOCK_SECONDS: Final = 120
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_NAME_CHARACTERS: Final = 40


class GrantOver(ClientFailed):
    """Nothing comes of the grant any more."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person chose on the command line."""

    request: GrantRequest
    sources: AddressSources
    name: str = ""
    user: str = ""
    identity: str = ""
    keep: bool = False
    keepalive: bool = True
    seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Held:
    """A grant of this machine."""

    folder: GrantFolder
    record: FolderRecord
    grant: Grant
    place: KeyPlace
    """Where a key that was made now is."""


class Client:
    """The management cluster and the folders of this machine."""

    def __init__(self, kubectl: Kubectl, folders: GrantFolders) -> None:
        self.kubectl = kubectl
        self.folders = folders

    def known(self) -> list[tuple[str, str]]:
        """Names of nodes and containers, each with its Cluster, of this machine's live grants in that management
        cluster.
        """
        found = []
        for folder, record in self.folders.all():
            if self.is_here(record) and not folder.why_ended:
                found += [
                    (host.removesuffix(f".{record.cluster}"), record.cluster)
                    for host in folder.hosts
                    if host.endswith(f".{record.cluster}")
                ]
        return found

    def find(self, where: Destination | ContainerDestination, choices: Choices) -> list[Held]:
        """A live grant of this machine for that container, or that node and the first login; none or one."""
        for folder, record in self.folders.all():
            if not self.is_here(record) or record.cluster != where.cluster or folder.why_ended:
                continue
            identity = existing_key(choices.identity).identity if choices.identity else ""
            if record.identity != identity:
                continue
            try:
                grant = self.of(record.key)
            except NotFound as error:
                self.end_here(folder, str(error))  # its heartbeat may have ended with the machine
                continue
            except InvalidGrant:
                continue
            if (
                _opens(grant, where, choices.request.logins)
                and (grant.port_forwarding or not choices.request.port_forwarding)
                and not why_over(grant, datetime.now(UTC))
                and self._has_key(folder, record, grant)
            ):
                return [Held(folder, record, self._with_address(grant, choices.sources), WithoutAgent())]
        return []

    def make(self, choices: Choices, register: Callable[[GrantFolder], object] = lambda folder: None) -> Held:
        """Create a grant, its key and its folder. ``register`` is called before other processes see the folder: one of
        them could use the grant, and revoke it at its own end.

        Raises:
            ClientFailed: see there.
        """
        key: Key = existing_key(choices.identity) if choices.identity else fresh_key()
        request = choices.request
        if request.bastion != NO_BASTION and (
            not isinstance(request.target, ContainerTarget) or request.bastion or choices.sources.is_given
        ):
            request = replace(request, ingress=own_networks(choices.sources, ask))
        manifest = grant_manifest(request, choices.name or new_name(request), key.public)
        pinned = self.kubectl.pinned()
        grant = parse_grant(create_as_self(pinned, manifest, choices.user))
        with contextlib.ExitStack() as stack:
            stack.callback(_take_back, pinned, grant.key)
            held = self._hold(choices, key, grant, pinned.settings, register)
            stack.pop_all()
        return held

    def _hold(
        self,
        choices: Choices,
        key: Key,
        grant: Grant,
        settings: KubectlSettings,
        register: Callable[[GrantFolder], object],
    ) -> Held:
        say(f"grant {grant.key.name}: {grant.target} of {grant.cluster} {_logins(grant)}")
        if abs(datetime.now(UTC) - grant.created).total_seconds() > _CLOCK_SECONDS:
            say("warning: this machine's clock and the management cluster's differ by more than 2 minutes")
        identity = key.identity if isinstance(key, ExistingKey) else ""
        record = FolderRecord(grant.key, grant.cluster, next(iter(grant.logins), ""), choices.keep, identity, settings)
        with self.folders.making(record) as folder:
            folder.write_public_key(key.public)
            place = self._place(key, folder, grant)
            register(folder)
        return Held(folder, record, grant, place)

    def grant(self, name: str) -> Grant:
        """A grant of the namespace that the person named."""
        return parse_grant(self.kubectl.get_grant(name))

    def of(self, key: GrantKey) -> Grant:
        """That very grant.

        Raises:
            NotFound: it is gone, even if another one has its name.
        """
        grant = parse_grant(self.kubectl.in_namespace(key.namespace).get_grant(key.name))
        if grant.key != key:
            raise NotFound("another grant has its name")
        return grant

    def wait(self, key: GrantKey, seconds: float, say: Callable[[str], None] = say) -> Grant:
        """The grant once it is Ready.

        Raises:
            GrantOver: it never will be.
            ClientFailed: it is not in time.
        """
        deadline = time.monotonic() + seconds
        said = ""
        pause = pauses()
        while True:
            grant = self._same(key)
            if is_ready(grant):
                return grant
            reason = waits_for(grant)
            if reason != said:
                said = reason
                say(f"waiting for {reason}")
            if time.monotonic() > deadline:
                raise ClientFailed(
                    f"the grant {key.name} is not ready after {seconds:.0f} s: it waits for {waited_for(grant)}"
                )
            time.sleep(next(pause))

    def open(self, held: Held, seconds: float) -> AnyAccess:
        """Wait for the grant, and write its files.

        Raises:
            ClientFailed: see :meth:`wait`; or the grant gives what must not be used.
        """
        grant = self.wait(held.record.key, seconds)
        now = datetime.now(UTC)
        access = access_of(grant, held.folder.public_key(), int(now.timestamp()))
        held.folder.write_access(access, held.record)
        if isinstance(held.place, InAgent):
            held.place.give_certificates(access, now.timestamp())
        ends = f", the grant for {duration_text(grant.status.expiration[0] - now)}" if grant.status.expiration else ""
        left = duration_text(datetime.fromtimestamp(access.valid_before, UTC) - now)
        say(f"ready: certificates for {left}{ends}, and longer with heartbeats")
        return access

    def revoke(self, folder: GrantFolder, record: FolderRecord, why: str) -> None:
        """End a grant of this machine, on the server and here. The caller holds the folder's lock."""
        folder.end(why)
        self.forget_key(folder)
        with contextlib.suppress(NotFound):
            self.kubectl.delete_grant(record.key)

    def end_here(self, folder: GrantFolder, why: str) -> None:
        """The grant is gone on the server: take key and files away."""
        with folder.exclusive():
            folder.end(why)
        self.forget_key(folder)

    def forget_key(self, folder: GrantFolder) -> None:
        """Take a fresh key out of the ssh-agent."""
        record = folder.record()
        if not record.identity:
            try:
                agent = SSHAgent(agent_address(os.environ))
                forget(agent, blobs_of(agent, folder.public_key()))
            except ClientFailed:
                return  # its lifetime ends by itself

    def start_heartbeat(self, held: Held) -> None:
        """Start the background process, unless one runs. It ends by itself."""
        if held.folder.has_agent():
            return
        content = held.place.key.text if isinstance(held.place, InAgent) else b""
        words = [*own_command(), "agent", "--folder", str(self.folders.path), KEY_FROM_STANDARD_INPUT]
        try:
            with held.folder.agent_log.open("ab") as log:
                detach([*words, held.record.key.uid], content, log)
        except OSError as error:
            raise ClientFailed(f"the heartbeat cannot be started: {error.strerror}") from error

    def _same(self, key: GrantKey) -> Grant:
        try:
            grant = self.of(key)
        except NotFound:
            raise GrantOver(f"the grant {key.name} is gone: it was revoked, or it ended") from None
        if why := why_ended(grant, datetime.now(UTC)):
            raise GrantOver(f"the grant {key.name} has ended: {why}")
        if why := why_over(grant, datetime.now(UTC)):
            raise GrantOver(f"nothing comes of the grant {key.name}: {why}")
        return grant

    def is_of(self, record: FolderRecord, name: str) -> bool:
        """Whether a folder is of the grant of that name in that management cluster and namespace."""
        return record.key.name == name and self.is_here(record)

    def wait_renewed(self, before: Grant, seconds: float) -> Grant:
        """The grant once the controller has answered a heartbeat.

        Raises:
            ClientFailed: it has ended, or no answer comes in time.
        """
        deadline = time.monotonic() + seconds
        pause = pauses()
        while True:
            grant = self._same(before.key)
            if grant.status.last_heartbeat != before.status.last_heartbeat or serials(grant) != serials(before):
                return grant
            if time.monotonic() > deadline:
                raise ClientFailed(
                    f"no answer to the heartbeat within {seconds:.0f} s: the grant waits for {waited_for(grant)}"
                )
            time.sleep(next(pause))

    def is_here(self, record: FolderRecord) -> bool:
        """Whether it is a grant of the management cluster and namespace that the person named now."""
        mine, its = self.kubectl.settings, record.kubectl
        if mine.namespace not in ("", record.key.namespace):
            return False
        return (mine.kubeconfig, mine.context, mine.environment) == (its.kubeconfig, its.context, its.environment)

    @staticmethod
    def _has_key(folder: GrantFolder, record: FolderRecord, grant: Grant) -> bool:
        """Whether this machine has the private half of the grant's key."""
        try:
            key = folder.public_key()
            is_here = bool(record.identity or folder.private_key())
            return key == grant.public_key and (is_here or key.blob in SSHAgent(agent_address(os.environ)).listed())
        except (NoAgent, BadFolder):
            return False

    def _with_address(self, grant: Grant, sources: AddressSources) -> Grant:
        """The grant, after the person was asked whether a new address shall be let in."""
        if not sources.is_given or not grant.ingress:
            return grant
        networks = own_networks(sources, ask)
        if are_within(networks, grant.ingress):
            return grant
        shown = ", ".join(map(str, networks))
        if confirm(f"This machine's address is {shown} now, which the bastion does not let in. Change that?"):
            return self.patch_ingress(grant, networks)
        say(f"warning: the bastion does not let in {shown}: node-access patch-ingress {grant.key.name}")
        return grant

    def patch_ingress(self, grant: Grant, networks: tuple[Network, ...]) -> Grant:
        """Replace the networks from which the bastion is reached."""
        kubectl = self.kubectl.in_namespace(grant.key.namespace)
        found = parse_grant(kubectl.patch_grant(grant.key.name, ingress_patch(grant.key, networks)))
        if found.key != grant.key or set(found.ingress) != set(networks):
            raise ManagementFailed("the API server returned another grant than was sent")
        return found

    @staticmethod
    def _place(key: Key, folder: GrantFolder, grant: Grant) -> KeyPlace:
        """Put a fresh key into the ssh-agent, else on disk."""
        if not isinstance(key, FreshKey):
            return WithoutAgent()
        try:
            place = InAgent(SSHAgent(agent_address(os.environ)), key)
            seconds = [int(one.total_seconds()) for one in grant.duration] or [_LIFETIME_WITHOUT_DURATION]
            place.agent.add_key(key.private, f"node-access {grant.key}", seconds[0])
        except NoAgent as error:
            folder.write_private_key(key.text)
            say(f"{error}; the private key is in {folder.path}, readable for you alone, until the grant ends")
            return WithoutAgent()
        return place


def _opens(grant: Grant, where: Destination | ContainerDestination, logins: tuple[str, ...]) -> bool:
    if isinstance(where, ContainerDestination):
        return grant.opens_container(where.cluster, where.container)
    return grant.opens(where.cluster, where.node) and logins[0] in grant.logins


def _logins(grant: Grant) -> str:
    if isinstance(grant.target, ContainerTarget):
        return "as the user that it runs as"
    return f"as {', '.join(grant.logins)}"


def _take_back(kubectl: Kubectl, key: GrantKey) -> None:
    """Delete a grant that this machine cannot use: nothing here would end it, nor know of it."""
    with contextlib.suppress(ManagementFailed):
        kubectl.delete_grant(key)


def pauses() -> Iterator[float]:
    """Seconds between two looks: short ones at first, for a controller that is quick."""
    return itertools.chain(_FIRST_POLLS, itertools.repeat(_POLL_SECONDS))


def new_name(request: GrantRequest) -> str:
    """A name for a new grant, which a person recognizes."""
    target = request.target
    if isinstance(target, NodesTarget):
        of = str(target.nodes[0])
    else:
        of = target.container.of.name if isinstance(target, ContainerTarget) else request.cluster
    stem = of[:_NAME_CHARACTERS].rstrip(".-")
    return f"{stem}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


def node_target(nodes: tuple[HostName, ...]) -> NodesTarget | AllNodesTarget:
    """The target for those nodes; every one for none."""
    return NodesTarget(nodes) if nodes else AllNodesTarget()


def target_of(where: Destination | ContainerDestination) -> NodesTarget | ContainerTarget:
    """What a grant for it opens."""
    return ContainerTarget(where.container) if isinstance(where, ContainerDestination) else NodesTarget((where.node,))
