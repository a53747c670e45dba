"""The metadata server of one instance, and the certificates for its identity tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from aiohttp import web

from .faults import Faults, Service
from .instances import FakeInstance
from .signing import SigningKey, encode_token, identity_claims

_FLAVOR: Final = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_ROOT: Final = "/computeMetadata/v1/"
PEM_CERTIFICATES_PATH: Final = "/oauth2/v1/certs"
JWKS_PATH: Final = "/oauth2/v3/certs"


class MetadataServer:
    """One instance's ``metadata.google.internal``."""

    def __init__(
        self,
        instance: Callable[[], FakeInstance],
        *,
        key: Callable[[], SigningKey],
        clock: Callable[[], datetime],
        access_token: Callable[[str], str],
        faults: Faults,
    ) -> None:
        self._instance = instance
        self._key = key
        self._clock = clock
        self._access_token = access_token
        self._faults = faults

    def application(self) -> web.Application:
        """The routes."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._faults.guarded(Service.METADATA, self._answer))
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/":  # google-auth detects Compute Engine here
            return _text("computeMetadata/\n")
        # The server refuses requests as from a browser or a misled proxy.
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return _text("Missing Metadata-Flavor:Google header.\n", status=403)
        if request.method != "GET":
            return _text("Method not allowed\n", status=405)
        if not request.path.startswith(_ROOT):
            return _text("Not found\n", status=404)
        return self._entry(request.path.removeprefix(_ROOT), request)

    def _entry(self, entry: str, request: web.Request) -> web.Response:
        instance = self._instance()
        for name in ("default", instance.service_account):
            prefix = f"instance/service-accounts/{name}/"
            if entry.startswith(prefix):
                return self._of_account(entry.removeprefix(prefix), instance, request)
        plain = {
            "project/project-id": instance.project,
            "project/numeric-project-id": instance.project_number,
            "universe/universe-domain": "googleapis.com",
            "instance/id": instance.instance_id,
            "instance/name": instance.name,
            "instance/hostname": instance.full_hostname,
            "instance/zone": f"projects/{instance.project_number}/zones/{instance.zone}",
            "instance/service-accounts/": f"default/\n{instance.service_account}/\n",
        }
        for number, address in enumerate(instance.addresses):
            plain[f"instance/network-interfaces/{number}/ip"] = address
        return _text(plain[entry]) if entry in plain else _text("Not found\n", status=404)

    def _of_account(self, entry: str, instance: FakeInstance, request: web.Request) -> web.Response:
        if entry == "email":
            return _text(instance.service_account)
        if entry == "" and request.query.get("recursive") == "true":
            return _json(
                {"aliases": ["default"], "email": instance.service_account, "scopes": _SCOPES},
            )
        if entry == "scopes":
            return _text("\n".join(_SCOPES))
        if entry == "token":
            token = self._access_token(instance.service_account)
            return _json({"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
        if entry == "identity":
            return self._identity(instance, request)
        return _text("Not found\n", status=404)

    def _identity(self, instance: FakeInstance, request: web.Request) -> web.Response:
        audience = request.query.get("audience", "")
        form = request.query.get("format", "standard")
        if not audience:
            return _text("non-empty audience parameter required\n", status=400)
        if form not in ("standard", "full"):
            return _text("format parameter must be standard or full\n", status=400)
        claims = identity_claims(
            instance,
            audience,
            self._clock(),
            full=form == "full",
            licenses=request.query.get("licenses", "").upper() == "TRUE",
        )
        return _text(encode_token(claims, self._key()))


_SCOPES: Final = ["https://www.googleapis.com/auth/cloud-platform"]


class CertificatesServer:
    """The issuer's certificates of ``www.googleapis.com``, as PEM and as a JSON Web Key Set."""

    def __init__(self, keys: Callable[[], tuple[SigningKey, ...]], cache_control: Callable[[], str]) -> None:
        self._keys = keys
        self._cache_control = cache_control

    def add_routes(self, application: web.Application, faults: Faults) -> None:
        """Add the routes of both formats."""
        application.router.add_get(PEM_CERTIFICATES_PATH, faults.guarded(Service.CERTIFICATES, self._pem))
        application.router.add_get(JWKS_PATH, faults.guarded(Service.CERTIFICATES, self._jwks))

    async def _pem(self, request: web.Request) -> web.StreamResponse:
        return self._answer({key.key_id: key.certificate_pem for key in self._keys()})

    async def _jwks(self, request: web.Request) -> web.StreamResponse:
        return self._answer({"keys": [key.jwk for key in self._keys()]})

    def _answer(self, document: object) -> web.Response:
        headers = {"Cache-Control": self._cache_control()} if self._cache_control() else {}
        return web.json_response(document, headers=headers)


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, headers=_FLAVOR, content_type="application/text")


def _json(document: object) -> web.Response:
    return web.json_response(document, headers=_FLAVOR)
