"""Authentication: client certificates, a static token table, and bootstrap tokens kept in Secrets.

Follows k8s.io/apiserver ``pkg/authentication/request/x509`` and Kubernetes
``plugin/pkg/auth/authenticator/token/bootstrap``. Anonymous requests are refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .identity import AUTHENTICATED, User
from .service_account_tokens import ServiceAccountTokens
from .status import unauthorized
from .store import Store
from .strategy import ServerVersion

_BOOTSTRAP_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_BOOTSTRAP_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_CREDENTIAL_ID_SINCE = (1, 32)
_CACHED_CERTIFICATES = 4096


class _Known:
    """A client certificate with a verified chain; only its validity period is still to be checked."""

    __slots__ = ("not_after", "not_before", "user")

    def __init__(self, user: User, certificate: x509.Certificate) -> None:
        self.user = user
        self.not_before = certificate.not_valid_before_utc
        self.not_after = certificate.not_valid_after_utc


class Authenticator:
    """Maps credentials to a User. Raises APIError 401 for invalid ones."""

    def __init__(
        self,
        store: Store,
        client_authorities: tuple[x509.Certificate, ...],
        tokens: Mapping[str, User],
        server_version: ServerVersion,
    ) -> None:
        self._store = store
        self._authorities = client_authorities
        self._tokens = dict(tokens)
        self.service_account_tokens = ServiceAccountTokens(store)
        self._server_version = server_version
        self._certificates: dict[bytes, _Known] = {}

    def believe(self, client_authorities: tuple[x509.Certificate, ...]) -> None:
        """Believe client certificates of these CAs, and of no others."""
        self._authorities = client_authorities
        self._certificates.clear()

    def add_token(self, token: str, user: User) -> None:
        self._tokens[token] = user

    def remove_token(self, token: str) -> None:
        self._tokens.pop(token, None)

    def authenticate(self, certificate: bytes | None, authorization: str | None) -> User:
        """``certificate`` is the peer's in DER, ``authorization`` the header. A certificate takes precedence."""
        if certificate is not None:
            try:
                return self._by_certificate(certificate)
            except ValueError:
                if not authorization:
                    raise unauthorized() from None
        if authorization:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer" and token.strip():
                return self._by_token(token.strip())
        raise unauthorized()

    def _by_certificate(self, der: bytes) -> User:
        known = self._certificates.get(der)
        if known is None:
            known = self._verify(der)
            if len(self._certificates) >= _CACHED_CERTIFICATES:
                self._certificates.clear()
            self._certificates[der] = known
        if not known.not_before <= datetime.now(UTC) <= known.not_after:
            raise ValueError("certificate has expired or is not yet valid")
        return known.user

    def _verify(self, der: bytes) -> _Known:
        certificate = x509.load_der_x509_certificate(der)
        if not any(_issued_by(certificate, authority) for authority in self._authorities):
            raise ValueError("certificate signed by unknown authority")
        try:
            usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except x509.ExtensionNotFound:
            usages = None
        allowed = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
        if usages is not None and not any(usage in usages for usage in allowed):
            raise ValueError("certificate specifies an incompatible key usage")
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if not names or not names[-1].value:
            raise ValueError("certificate has no common name")
        groups = [str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        extra: dict[str, tuple[str, ...]] = {}
        if self._server_version >= _CREDENTIAL_ID_SINCE:
            digest = hashlib.sha256(der).hexdigest()
            extra["authentication.kubernetes.io/credential-id"] = (f"X509SHA256={digest}",)
        return _Known(User(str(names[-1].value), _with_authenticated(groups), extra=extra), certificate)

    def _by_token(self, token: str) -> User:
        for known, user in self._tokens.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return User(user.name, _with_authenticated(list(user.groups)), user.uid, user.extra)
        match = _BOOTSTRAP_TOKEN.fullmatch(token)
        if match is None:
            return self.service_account_tokens.user_of(token)
        return self._by_bootstrap_token(match[1], match[2])

    def _by_bootstrap_token(self, identifier: str, secret: str) -> User:
        name = f"bootstrap-token-{identifier}"
        stored = self._store.collection("", "secrets").objects.get(("kube-system", name))
        if stored is None or "deletionTimestamp" in stored.value["metadata"]:
            raise unauthorized()
        data = _secret_data(stored.value)
        good = (
            stored.value.get("type") == "bootstrap.kubernetes.io/token"
            and data.get("token-id") == identifier
            and hmac.compare_digest(data.get("token-secret", "").encode(), secret.encode())
            and data.get("usage-bootstrap-authentication") == "true"
            and not _expired(data.get("expiration", ""))
        )
        if not good:
            raise unauthorized()
        groups = {"system:bootstrappers"}
        for group in filter(None, data.get("auth-extra-groups", "").split(",")):
            if _BOOTSTRAP_GROUP.fullmatch(group) is None:
                raise unauthorized()
            groups.add(group)
        return User(f"system:bootstrap:{identifier}", _with_authenticated(sorted(groups)))


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _with_authenticated(groups: list[str]) -> tuple[str, ...]:
    return tuple(groups) if AUTHENTICATED in groups else (*groups, AUTHENTICATED)


def _secret_data(secret: dict[str, Any]) -> dict[str, str]:
    found = {}
    for name, text in (secret.get("data") or {}).items():
        try:
            found[name] = base64.b64decode(text or "", validate=True).decode()
        except (binascii.Error, ValueError):
            continue
    return found


def _expired(text: str) -> bool:
    """An expiration that does not parse counts as passed."""
    if not text:
        return False
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return True
    return moment.tzinfo is None or moment <= datetime.now(UTC)
