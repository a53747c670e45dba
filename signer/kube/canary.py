"""The canary: one certificate of a CA, and one request with it, which shows whether an API server accepts that CA.

The request is a SelfSubjectReview (``k8s.io/api/authentication/v1``), since its answer names the user: the answer of an
API server that does not see the certificate, because a proxy ends TLS, names another one. An API server before 1.28
does not serve that resource, and refuses the request with 403 and the user's name. A certificate that is not accepted
is always answered with 401, even where anonymous requests are allowed (apiserver
``pkg/authentication/request/x509``; tried on 1.20 and 1.36).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from signer.authority import CertificateAuthority, IssuingSet
from signer.authority.canary_certificate import CanaryCertificate
from signer.authority.der import encode_block
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Cause, Forbidden, Unauthorized, Unreachable
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import SELF_SUBJECT_REVIEWS
from signer.kube.tls import TlsMaterialRefused
from signer.model.fields import mapping_of, text_of

REQUEST_SECONDS: Final = 10.0
"""An API server that takes longer has proven nothing yet."""
_MAXIMUM_ANSWER_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Trusted:
    """The API server accepts the CA's client certificates."""

    serving_chains: bool
    """Whether the API server's own certificate chains to the CA that signs serving certificates."""


@dataclass(frozen=True, slots=True)
class NotTrusted:
    """The API server refuses the CA's client certificates; ``message`` says how."""

    message: str


@dataclass(frozen=True, slots=True)
class NotProven:
    """The API server gave no answer that shows it; ``message`` says why."""

    message: str


Finding: TypeAlias = Trusted | NotTrusted | NotProven


async def try_canary(
    canary: CanaryCertificate, server: ClusterConnection, authority: IssuingSet, limits: ResourceLimits
) -> Finding:
    """Make the request at ``server``, a connection without credentials.

    The API server's certificate must chain to the CA that signs serving certificates, or else to the kubeconfig's.
    """
    by_serving = replace(server, certificate_authority=_bundle(authority.serving))
    try:
        return await ask_once(canary, by_serving, limits, serving_chains=True)
    except TlsMaterialRefused:
        pass
    except Unreachable as error:
        if error.cause is not Cause.TLS:
            return NotProven(str(error))
    try:
        return await ask_once(canary, server, limits, serving_chains=False)
    except (TlsMaterialRefused, Unreachable) as error:
        return NotProven(str(error))


async def ask_once(
    canary: CanaryCertificate,
    server: ClusterConnection,
    limits: ResourceLimits,
    *,
    serving_chains: bool,
    on_connect: Callable[[TlsTransport], None] = lambda transport: None,
) -> Finding:
    """Make the request at ``server`` on one new connection: it changes nothing, but is no GET, so none is repeated.

    ``serving_chains`` goes into the finding. If ``server`` has a TLS context, the context has the certificate already.

    Raises:
        Unreachable: there is no answer.
        TlsMaterialRefused: a certificate of ``server`` is unusable.
    """
    connection = replace(server, client_certificate=canary.certificate, client_key=canary.key)
    async with Client(
        connection,
        on_connect=on_connect,
        timeout_seconds=REQUEST_SECONDS,
        maximum_body_bytes=_MAXIMUM_ANSWER_BYTES,
        connection_limit=1,
        resource_limits=limits,
    ) as client:
        try:
            review = await client.create(
                SELF_SUBJECT_REVIEWS.collection(),
                {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": "SelfSubjectReview"},
            )
        except Unauthorized as error:
            return NotTrusted(str(error))
        except Forbidden as error:
            # apiserver ``responsewriters.forbiddenMessage``
            if f'User "{canary.user}" ' in error.message:
                return Trusted(serving_chains)
            return NotProven(f"the API server did not see the certificate: {error}")
        except Unreachable:
            raise
        except ApiError as error:
            return NotProven(str(error))
    if _reviewed_user(review) == canary.user:
        return Trusted(serving_chains)
    return NotProven("the API server did not see the certificate: its SelfSubjectReview names another user")


def _reviewed_user(review: dict[str, Any]) -> str:
    return text_of(mapping_of(mapping_of(review, "status"), "userInfo"), "username")


def _bundle(authority: CertificateAuthority) -> bytes:
    return b"".join(encode_block("CERTIFICATE", one.der) for one in (authority.certificate, *authority.trusted))
