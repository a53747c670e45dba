"""The fake Google's token endpoints and access tokens."""

from __future__ import annotations

import functools
import json
import secrets
import threading
from typing import Any, Final

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from google.auth import jwt

from .faults import Faults, Service

TOKEN_PATH: Final = "/token"
EXCHANGE_PATH: Final = "/v1/token"
ACCOUNT: Final = "attestation@capi-management.iam.gserviceaccount.com"
_JWT_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE_GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"


@functools.cache
def account_key(number: int) -> rsa.RSAPrivateKey:
    """A service account's key, cached for the process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Accounts:
    """The controller's service account, its key, and the valid tokens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._key_number = 0
        self.lifetime_seconds = 3600
        self.subject_token = secrets.token_urlsafe(24)
        """The subject token that the workload identity pool trusts."""

    def issue(self, account: str) -> str:
        token = f"ya29.{secrets.token_urlsafe(48)}"
        with self._lock:
            self._tokens[token] = account
        return token

    def knows(self, token: str) -> bool:
        with self._lock:
            return token in self._tokens

    def revoke_all(self) -> None:
        with self._lock:
            self._tokens.clear()

    def change_key(self) -> None:
        """Replace the key; the previous one becomes invalid."""
        self._key_number += 1

    def key_document(self, base_url: str) -> dict[str, Any]:
        """The service account's key file, as from the console."""
        pem = account_key(self._key_number).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return {
            "type": "service_account",
            "project_id": "capi-management",
            "private_key_id": f"{self._key_number:040x}",
            "private_key": pem.decode(),
            "client_email": ACCOUNT,
            "client_id": "104000000000000000009",
            "token_uri": base_url + TOKEN_PATH,
            "universe_domain": "googleapis.com",
        }

    def federation_document(self, base_url: str, subject_token_file: str) -> dict[str, Any]:
        """The configuration of workload identity federation with a token in a file."""
        return {
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/pool/providers/example",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": base_url + EXCHANGE_PATH,
            "credential_source": {"file": subject_token_file},
            "universe_domain": "googleapis.com",
        }

    def add_routes(self, application: web.Application, faults: Faults) -> None:
        application.router.add_post(TOKEN_PATH, faults.guarded(Service.TOKEN, self._grant))
        application.router.add_post(EXCHANGE_PATH, faults.guarded(Service.TOKEN, self._exchange))

    async def _grant(self, request: web.Request) -> web.StreamResponse:
        """Grant for an assertion signed with the service account's key, for this endpoint and a scope (RFC 7523)."""
        form = await request.post()
        if form.get("grant_type") != _JWT_GRANT:
            return _refused("unsupported_grant_type")
        public = account_key(self._key_number).public_key()
        pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        try:
            claims = jwt.decode(str(form["assertion"]), certs=pem, audience=None)
        except (ValueError, KeyError):
            return _refused("invalid_grant")
        if claims.get("iss") != ACCOUNT or not str(claims.get("scope", "")).startswith("https://www.googleapis.com/"):
            return _refused("invalid_scope")
        return self._granted()

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        """Exchange a token of the pool for one of Google's (RFC 8693)."""
        form = await request.post()
        if form.get("grant_type") != _EXCHANGE_GRANT or form.get("subject_token") != self.subject_token:
            return _refused("invalid_grant")
        return self._granted()

    def _granted(self) -> web.Response:
        answer = {"access_token": self.issue(ACCOUNT), "expires_in": self.lifetime_seconds, "token_type": "Bearer"}
        issued = "urn:ietf:params:oauth:token-type:access_token"
        return web.json_response({**answer, "issued_token_type": issued})


def _refused(code: str) -> web.Response:
    return web.Response(
        status=400,
        text=json.dumps({"error": code, "error_description": "secret-detail-of-the-answer"}),
        content_type="application/json",
    )
