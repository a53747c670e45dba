"""Tokens of ServiceAccounts (Kubernetes ``pkg/registry/core/serviceaccount/storage/token.go``, ``pkg/serviceaccount``).

They are random text instead of JWTs. As on kube-apiserver, a token ends at its time, and with the ServiceAccount that
it was made for: a later one of the same name has another UID.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from .identity import AUTHENTICATED, User
from .status import Target, bad_request, invalid, invalid_value, not_found, unauthorized
from .store import Store

_KIND = "TokenRequest"
_API_VERSION = "authentication.k8s.io/v1"
_MINIMUM_SECONDS = 600
_MAXIMUM_SECONDS = 1 << 32
_DEFAULT_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class _Issued:
    namespace: str
    name: str
    uid: str
    expires: datetime
    bound_secret: tuple[str, str] | None
    """Name and UID of the Secret with which the token ends."""


class ServiceAccountTokens:
    """The tokens of one API server. None is kept over its restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._issued: dict[str, _Issued] = {}
        self.maximum_seconds = _MAXIMUM_SECONDS
        """``--service-account-max-token-expiration``."""

    def issue(self, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """The TokenRequest with its status filled in. Raises APIError."""
        if body.get("kind", _KIND) != _KIND:
            raise bad_request(f"{body['kind']} cannot be handled as a {_KIND}")
        stored = self._store.collection("", "serviceaccounts").objects.get((namespace, name))
        if stored is None:
            raise not_found(Target("", "serviceaccounts", "ServiceAccount", name))
        seconds = (body.get("spec") or {}).get("expirationSeconds", _DEFAULT_SECONDS)
        if type(seconds) is not int or not _MINIMUM_SECONDS <= seconds <= _MAXIMUM_SECONDS:
            text = "may not specify a duration less than 10 minutes"
            error = invalid_value("spec.expirationSeconds", seconds, text)
            raise invalid(Target("authentication.k8s.io", "tokenrequests", _KIND, name), [error])
        expires = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=min(seconds, self.maximum_seconds))
        token = f"sa.{secrets.token_urlsafe(48)}"
        bound = self._bound_secret(namespace, name, body)
        self._issued[token] = _Issued(namespace, name, stored.value["metadata"]["uid"], expires, bound)
        status = {"token": token, "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return {
            "kind": _KIND,
            "apiVersion": _API_VERSION,
            "metadata": {},
            "spec": body.get("spec") or {},
            "status": status,
        }

    def _bound_secret(self, namespace: str, name: str, body: dict[str, Any]) -> tuple[str, str] | None:
        reference = (body.get("spec") or {}).get("boundObjectRef")
        if reference is None:
            return None
        bound = str(reference.get("name")), str(reference.get("uid"))
        if reference.get("kind") != "Secret" or self._uid_of_secret(namespace, bound[0]) != bound[1]:
            error = invalid_value("spec.boundObjectRef", bound[0], "cannot bind token to object")
            raise invalid(Target("authentication.k8s.io", "tokenrequests", _KIND, name), [error])
        return bound

    def _uid_of_secret(self, namespace: str, name: str) -> str:
        stored = self._store.collection("", "secrets").objects.get((namespace, name))
        return "" if stored is None else str(stored.value["metadata"]["uid"])

    def user_of(self, token: str) -> User:
        """Whose token it is. Raises APIError 401."""
        issued = self._issued.get(token)
        if issued is None or datetime.now(UTC) >= issued.expires:
            raise unauthorized()
        stored = self._store.collection("", "serviceaccounts").objects.get((issued.namespace, issued.name))
        if stored is None or stored.value["metadata"]["uid"] != issued.uid:
            raise unauthorized()
        if issued.bound_secret is not None:
            secret, uid = issued.bound_secret
            if self._uid_of_secret(issued.namespace, secret) != uid:
                raise unauthorized()
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{issued.namespace}", AUTHENTICATED)
        return User(f"system:serviceaccount:{issued.namespace}:{issued.name}", groups, issued.uid)
