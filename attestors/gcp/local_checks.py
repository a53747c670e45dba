"""Checks of a token that need no call, in their order.

google-auth checks neither a token's issuer, nor its lifetime, nor its subject.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from attestors.contract import AttestationRequest
from attestors.gcp import wire
from attestors.gcp.claims import Claims, InstanceClaims, NoInstance, NoVerifiedEmail
from attestors.gcp.settings import AnyServiceAccount, GCPSettings
from attestors.gcp.token import IdentityToken, MalformedToken, UnsuitableAlgorithm, parse_token
from attestors.verdict import denied, not_yet
from attestors.wire.binding import Binding, ProvenBinding
from attestors.wire.evidence import Evidence, MalformedEvidence
from attestors.wire.names import EVIDENCE_EXPIRED

ISSUERS: Final = frozenset({"https://accounts.google.com", "accounts.google.com"})
"""Both forms are Google's (OpenID Connect, "Validating an ID token")."""
CLOCK_SKEW: Final = timedelta(seconds=60)
"""Tolerated difference between the controller's clock and Google's."""
MAXIMUM_LIFETIME: Final = timedelta(hours=1)


def check_locally(request: AttestationRequest, settings: GCPSettings) -> IdentityToken:
    """Run every check that needs no call.

    They prove nothing: a forged token can pass them. They only avoid calls for bad requests.

    Raises:
        MalformedEvidence: the evidence holds anything but one identity token.
        BindingMismatch: the token is for another request.
        Ended: the first check that fails.
    """
    token = read_token(request.evidence)
    claims = token.claims
    check_issuer(claims)
    prove_audience(claims, request.binding)
    check_times(claims, request.now)
    instance = check_instance(claims)
    check_project(instance, settings)
    check_service_account(claims, settings)
    check_claimed_provider_id(instance, request.provider_id)
    return token


def read_token(evidence: Evidence) -> IdentityToken:
    """The token, as the only field.

    Raises:
        MalformedEvidence: another field, or no token.
        Ended: the token has another signature algorithm than Google's.
    """
    evidence.expect_fields(wire.IDENTITY_TOKEN_FIELD)
    text = evidence.text(wire.IDENTITY_TOKEN_FIELD, maximum_characters=wire.MAXIMUM_TOKEN_CHARACTERS)
    try:
        return parse_token(text)
    except MalformedToken as error:
        raise MalformedEvidence(str(error)) from error
    except UnsuitableAlgorithm as error:
        raise denied("TokenAlgorithmRefused", str(error)) from error


def check_issuer(claims: Claims) -> None:
    """Raises ``Ended`` if Google did not issue the token."""
    if claims.issuer not in ISSUERS:
        raise denied("TokenIssuerRefused", "the identity token's issuer (iss) is not accounts.google.com")


def prove_audience(claims: Claims, binding: Binding) -> ProvenBinding:
    """Prove that the token was made for this request.

    Raises:
        BindingMismatch: it was made for another key, cluster or signer, or for another purpose.
    """
    # JSON may hold a lone surrogate, which UTF-8 cannot encode; it equals no audience of ours.
    committed = claims.audience.encode("utf-8", "surrogatepass")
    return binding.prove(committed, through=lambda value: wire.audience(value).encode("ascii"))


def check_times(claims: Claims, now: datetime) -> None:
    """Check that the token's lifetime is one that Google issues, and has not ended.

    :func:`check_clock` checks whether the token is from the future.

    Raises:
        Ended: the token has expired, or is valid for too long.
    """
    if not timedelta() < claims.expires - claims.issued <= MAXIMUM_LIFETIME + CLOCK_SKEW:
        raise denied("TokenLifetimeRefused", "the identity token is valid for longer than an hour, or never")
    # The token's own expiry is not shortened: this may be the last usable token.
    if claims.expires <= now - CLOCK_SKEW:
        raise denied(EVIDENCE_EXPIRED, "the identity token has expired: the node must retry with a new one")


def check_clock(claims: Claims, now: datetime) -> None:
    """Check that the token is not from the future. Only for a token with a verified signature.

    Google does not sign ahead of time. If the token is from the future, the controller's clock is slow, which is no
    reason to deny.

    Raises:
        Ended: the token is from the future; the request waits.
    """
    ahead = claims.issued - now
    if ahead > CLOCK_SKEW:
        raise not_yet(
            "ClockBehind",
            f"Google's identity token is {ahead.total_seconds():.0f} seconds ahead of this controller's clock: set it",
            ahead,
        )


def check_instance(claims: Claims) -> InstanceClaims:
    """The token's instance. Raises ``Ended`` for a token of a user or service account, or without the instance."""
    if isinstance(claims.instance, NoInstance):
        raise denied(
            "TokenOfNoInstance",
            "the identity token names no instance (google.compute_engine): it must come from an instance's metadata "
            "server, with format=full",
        )
    return claims.instance


def check_project(instance: InstanceClaims, settings: GCPSettings) -> None:
    """Check the instance's project by ID and number. Raises ``Ended`` for another project."""
    project = instance.provider_id.project
    number = settings.projects.get(project)
    if number is None:
        raise denied("ProjectNotAllowed", f"instances of project {project} are not allowed")
    if number != instance.project_number:
        raise denied(
            "ProjectNumberMismatch",
            f"project {project} has number {instance.project_number}, but another number is allowed",
        )


def check_service_account(claims: Claims, settings: GCPSettings) -> None:
    """Check the instance's service account. Raises ``Ended`` for another one, or an unverified one."""
    if isinstance(settings.service_accounts, AnyServiceAccount):
        return
    if isinstance(claims.service_account, NoVerifiedEmail):
        raise denied("ServiceAccountNotAllowed", "Google does not vouch for the identity token's service account")
    if claims.service_account.address not in settings.service_accounts:
        raise denied(
            "ServiceAccountNotAllowed", f"instances of service account {claims.service_account.address} are not allowed"
        )


def check_claimed_provider_id(instance: InstanceClaims, claimed: str) -> None:
    """Check that the token's instance is the one that the request claims. Raises ``Ended`` for another.

    The core compares it again; this check avoids a call for a false claim.
    """
    if str(instance.provider_id) != claimed:
        raise denied("ProviderIDMismatch", f"the identity token is for instance {instance.provider_id}")
