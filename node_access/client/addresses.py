"""This machine's address, as a bastion sees it: by flag, by a program, by a URL of the person's, or by question."""

from __future__ import annotations

import ipaddress
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from attestors.wire.ssh.options import MAXIMUM_NETWORKS, Network
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.programs import run_bounded
from node_access.client.words import network, network_of, printable

COMMAND_VARIABLE: Final = "NODE_ACCESS_PUBLIC_IP_COMMAND"
URL_VARIABLE: Final = "NODE_ACCESS_PUBLIC_IP_URL"
_MAXIMUM_BYTES: Final = 4096
_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class AddressSources:
    """Where to ask, in this order. Empty ones are not asked."""

    networks: tuple[Network, ...] = ()
    command: str = ""
    url: str = ""

    @property
    def is_given(self) -> bool:
        """Whether a person said how to find the address."""
        return bool(self.networks or self.command or self.url)


def own_networks(sources: AddressSources, ask: Callable[[str], str]) -> tuple[Network, ...]:
    """The networks of this machine. ``ask`` puts a question to the person at the terminal.

    Raises:
        ClientFailed: a source fails or prints something else, or nobody can be asked.
    """
    if sources.networks:
        return sources.networks
    if sources.command:
        return _of_lines(_run(sources.command), sources.command)
    if sources.url:
        return _of_lines(_fetch(sources.url), sources.url)
    answer = ask("Your address as the bastion sees it, or several with commas: ")
    return _checked([network(one.strip()) for one in answer.split(",") if one.strip()], "the answer")


def are_within(networks: tuple[Network, ...], allowed: tuple[Network, ...]) -> bool:
    """Whether connections from all of these are let in."""
    return all(
        any(one.version == other.version and one.subnet_of(other) for other in allowed)  # type: ignore[arg-type]
        for one in networks
    )


def _run(program: str) -> bytes:
    found = shutil.which(os.path.expanduser(program))
    if found is None:
        raise WrongUse(f"{printable(program)} is no program: --public-ip-command takes no arguments")
    finished = run_bounded([found], maximum_bytes=_MAXIMUM_BYTES, seconds=_SECONDS, environment=os.environ)
    if finished.code:
        raise ClientFailed(f"{program} ended with exit code {finished.code}: {finished.error.strip()}")
    return finished.output


def _fetch(url: str) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise WrongUse(f"{printable(url)} is no URL of the web")
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310
            content: bytes = answer.read(_MAXIMUM_BYTES + 1)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise ClientFailed(f"{url}: {error}") from error
    if len(content) > _MAXIMUM_BYTES:
        raise ClientFailed(f"{url}: more than {_MAXIMUM_BYTES} bytes")
    return content


def _of_lines(content: bytes, source: str) -> tuple[Network, ...]:
    """One address a line."""
    found = []
    for line in content.decode("ascii", "replace").splitlines():
        if not line.strip():
            continue
        try:
            found.append(network_of(ipaddress.ip_address(line.strip())))
        except ValueError:
            raise ClientFailed(f"{source}: {line[:64]!a} is no address; it must print one on each line") from None
    return _checked(found, source)


def _checked(networks: list[Network], source: str) -> tuple[Network, ...]:
    found = tuple(dict.fromkeys(networks))
    if not 0 < len(found) <= MAXIMUM_NETWORKS:
        raise ClientFailed(f"{source}: 1 to {MAXIMUM_NETWORKS} addresses are needed, not {len(found)}")
    return found
