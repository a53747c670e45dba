"""``node-attestation-controller version``: the versions of this program and of the controller in the cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rich.console import Console
from rich.text import Text

from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.kube.client import Client
from signer.kube.errors import ApiError
from signer.kube.management import ManagementConfigurationRefused
from signer.kube.resources import DEPLOYMENTS
from signer.model.decision import printable
from signer.model.fields import mapping_of
from signer.model.program_version import program_version

EXIT_NOT_KNOWN: Final = 1
_LABELS: Final = "app.kubernetes.io/name=node-attestation-controller"
"""Labels that chart, kustomization and clusterctl's files give the Deployment."""
_VERSION_LABEL: Final = "app.kubernetes.io/version"
_MOST_DEPLOYMENTS: Final = 20


@dataclass(frozen=True, slots=True)
class InstalledController:
    """A Deployment of the controller."""

    deployment: str
    """``NAMESPACE/NAME``."""
    version: str
    """Its label; empty if it has none."""
    image: str
    ready: int
    replicas: int


@dataclass(frozen=True, slots=True)
class ControllerNotKnown:
    """The controller's version cannot be said."""

    why: str


@dataclass(frozen=True, slots=True)
class ControllerNotAsked:
    """``--client``."""


Controller: TypeAlias = tuple[InstalledController, ...] | ControllerNotKnown | ControllerNotAsked


def run_version(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    found = ControllerNotAsked() if options.client else asyncio.run(_controller(options))
    print_result(options.output, lambda: as_json(found), lambda console: show(found, console))
    return EXIT_NOT_KNOWN if isinstance(found, ControllerNotKnown) else 0


async def _controller(options: argparse.Namespace) -> Controller:
    namespace = options.controller_namespace
    try:
        access = await management_access(options)
        async with Client(access.connection, token_source=access.token_source) as management:
            query = {"labelSelector": _LABELS, "limit": str(_MOST_DEPLOYMENTS)}
            listed = await management.get(DEPLOYMENTS.collection(namespace), query)
    except (ApiError, ManagementConfigurationRefused) as error:
        return ControllerNotKnown(f"not readable here: {error}")
    found = installed(listed)
    if not found:
        return ControllerNotKnown(
            f"no Deployment of namespace {namespace} has the label {_LABELS}: name the controller's namespace with "
            "--controller-namespace"
        )
    return found


def installed(listed: Mapping[str, Any]) -> tuple[InstalledController, ...]:
    """The controllers in a list of Deployments."""
    items = listed.get("items")
    return tuple(_installed(item) for item in items) if isinstance(items, Sequence) else ()


def _installed(item: Mapping[str, Any]) -> InstalledController:
    metadata, status = mapping_of(item, "metadata"), mapping_of(item, "status")
    pod = mapping_of(mapping_of(mapping_of(item, "spec"), "template"), "spec")
    images = [str(container.get("image", "")) for container in pod.get("containers", ())]
    return InstalledController(
        deployment=printable(f"{metadata.get('namespace')}/{metadata.get('name')}"),
        version=printable(str(mapping_of(metadata, "labels").get(_VERSION_LABEL, ""))),
        image=printable(images[0]) if images else "",
        ready=int(status.get("readyReplicas", 0)),
        replicas=int(status.get("replicas", 0)),
    )


def as_json(found: Controller) -> dict[str, Any]:
    """The versions as JSON. Fields are only ever added."""
    document: dict[str, Any] = {"clientVersion": program_version()}
    match found:
        case ControllerNotAsked():
            return document
        case ControllerNotKnown(why):
            return {**document, "controllers": None, "message": why}
        case tuple():
            controllers = [
                {
                    "deployment": one.deployment,
                    "version": one.version,
                    "image": one.image,
                    "readyReplicas": one.ready,
                    "replicas": one.replicas,
                }
                for one in found
            ]
            return {**document, "controllers": controllers}


def show(found: Controller, console: Console) -> None:
    """Print the versions as text."""
    console.print(Text(f"Client version: {program_version()}"))
    match found:
        case ControllerNotAsked():
            return
        case ControllerNotKnown(why):
            console.print(Text.assemble("Controller version: ", ("not known", "yellow"), f": {why}"))
        case tuple():
            for one in found:
                console.print(
                    Text(
                        f"Controller version: {one.version or 'without a label'} (Deployment {one.deployment}, "
                        f"{one.ready} of {one.replicas} replicas ready, image {one.image})"
                    )
                )
                if one.version and one.version != program_version():
                    console.print(Text("The versions differ: use the program of the controller's version.", "yellow"))
