"""Compute Engine's API of the fake Google: ``instances.get`` and ``instances.getShieldedInstanceIdentity``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from .accounts import Accounts
from .faults import Faults, Service
from .instances import FakeInstance

COMPUTE_PATH: Final = "/compute/v1"
_INSTANCE: Final = COMPUTE_PATH + "/projects/{project}/zones/{zone}/instances/{instance}"
_LINK: Final = "https://www.googleapis.com/compute/v1"


class ComputeServer:
    """Serves the existing instances."""

    def __init__(self, instances: Callable[[], tuple[FakeInstance, ...]], accounts: Accounts) -> None:
        self._instances = instances
        self._accounts = accounts

    def add_routes(self, application: web.Application, faults: Faults) -> None:
        application.router.add_get(_INSTANCE, faults.guarded(Service.COMPUTE, self._get))
        application.router.add_get(
            _INSTANCE + "/getShieldedInstanceIdentity", faults.guarded(Service.COMPUTE, self._shielded)
        )

    async def _get(self, request: web.Request) -> web.StreamResponse:
        found = self._find(request)
        if isinstance(found, web.Response):
            return found
        return web.json_response(_partial(instance_document(found), request.query.get("fields", "")))

    async def _shielded(self, request: web.Request) -> web.StreamResponse:
        found = self._find(request)
        return found if isinstance(found, web.Response) else web.json_response(shielded_document(found))

    def _find(self, request: web.Request) -> FakeInstance | web.Response:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or not self._accounts.knows(token):
            return error(401, "authError", "Invalid Credentials")
        asked = request.match_info
        for instance in self._instances():
            if (instance.project, instance.zone) == (asked["project"], asked["zone"]) and asked["instance"] in (
                instance.name,
                instance.instance_id,
            ):
                return instance
        return error(404, "notFound", "The resource was not found")


def instance_document(instance: FakeInstance) -> dict[str, Any]:
    """The resource ``Instance``."""
    scope = f"{_LINK}/projects/{instance.project}/zones/{instance.zone}"
    external: list[dict[str, Any]] = [
        {"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "natIP": address}
        for address in instance.external_addresses
    ]
    document: dict[str, Any] = {
        "kind": "compute#instance",
        "id": instance.instance_id,
        "name": instance.name,
        "zone": scope,
        "selfLink": f"{scope}/instances/{instance.name}",
        "status": instance.status,
        "creationTimestamp": instance.created.isoformat(timespec="milliseconds"),
        "machineType": f"{scope}/machineTypes/e2-medium",
        "metadata": {"kind": "compute#metadata", "items": [{"key": "startup-script", "value": "secret"}]},
        "networkInterfaces": [
            {
                "kind": "compute#networkInterface",
                "name": f"nic{number}",
                ("ipv6Address" if ":" in address else "networkIP"): address,
                "accessConfigs": external if number == 0 else [],
            }
            for number, address in enumerate(instance.addresses)
        ],
    }
    if instance.hostname:
        document["hostname"] = instance.hostname
    return document


def shielded_document(instance: FakeInstance) -> dict[str, Any]:
    """The resource ``ShieldedInstanceIdentity``, without signing keys."""
    document: dict[str, Any] = {"kind": "compute#shieldedInstanceIdentity"}
    if instance.encryption_key:
        document["encryptionKey"] = {"ekPub": instance.encryption_key, "ekCert": instance.encryption_certificate}
    if instance.elliptic_encryption_key:
        document["eccP256EncryptionKey"] = {"ekPub": instance.elliptic_encryption_key}
    return document


def error(status: int, reason: str, message: str) -> web.Response:
    """An error in the format of Google's APIs."""
    listed = [{"message": message, "domain": "global", "reason": reason}]
    return web.json_response({"error": {"code": status, "message": message, "errors": listed}}, status=status)


def _partial(document: dict[str, Any], fields: str) -> dict[str, Any]:
    """A partial response; only top-level names are supported."""
    while (shorter := re.sub(r"\([^()]*\)", "", fields)) != fields:
        fields = shorter
    names = {name for name in fields.split(",") if name}
    return {name: value for name, value in document.items() if not names or name in names}
