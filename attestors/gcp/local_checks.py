"""What can be told of a token without asking anybody, in the order in which it is told.

google-auth checks neither who issued a token, nor how long it is good for, nor whose it is.
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
"""How far the controller's clock and Google's may be apart."""
MAXIMUM_LIFETIME: Final = timedelta(hours=1)


def check_locally(request: AttestationRequest, settings: GCPSettings) -> IdentityToken:
    """Every check that needs nobody else.

    Nothing is proven by it: whoever writes a token can write it so that it passes. It keeps what is wrong anyway from
    costing a call.

    Raises:
        MalformedEvidence: the evidence holds anything but one identity token.
        BindingMismatch: the token is for another request.
        Ended: with the first check that does not pass.
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
    """The token, and nothing beside it.

    Raises:
        MalformedEvidence: another field, or no token.
        Ended: the token is signed in another way than Google's.
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
    """Google made the token. Raises ``Ended``: somebody else did."""
    if claims.issuer not in ISSUERS:
        raise denied("TokenIssuerRefused", "the identity token's issuer (iss) is not accounts.google.com")


def prove_audience(claims: Claims, binding: Binding) -> ProvenBinding:
    """The token was made for this request.

    Raises:
        BindingMismatch: for another key, cluster or signer, or for something else altogether.
    """
    # JSON may hold a lone surrogate, which is no UTF-8; it equals nothing that we write.
    committed = claims.audience.encode("utf-8", "surrogatepass")
    return binding.prove(committed, through=lambda value: wire.audience(value).encode("ascii"))


def check_times(claims: Claims, now: datetime) -> None:
    """The token is good no longer than Google makes them, and still good.

    That it is from the future is another matter (:func:`check_clock`).

    Raises:
        Ended: it has run out, or would be good for longer.
    """
    if not timedelta() < claims.expires - claims.issued <= MAXIMUM_LIFETIME + CLOCK_SKEW:
        raise denied("TokenLifetimeRefused", "the identity token is good for longer than an hour, or never")
    # Never added to the token's time: it may be the last that there is.
    if claims.expires <= now - CLOCK_SKEW:
        raise denied(EVIDENCE_EXPIRED, "the identity token has run out: the node must ask again with a new one")


def check_clock(claims: Claims, now: datetime) -> None:
    """The token is from the past. Only for a token whose signature was verified.

    Google does not sign ahead of time: where this does not hold the controller's clock is slow, and it is no ground to
    deny anything.

    Raises:
        Ended: it is from the future; the request waits.
    """
    ahead = claims.issued - now
    if ahead > CLOCK_SKEW:
        raise not_yet(
            "ClockBehind",
            f"Google's identity token is {ahead.total_seconds():.0f} seconds ahead of this controller's clock: set it",
            ahead,
        )


def check_instance(claims: Claims) -> InstanceClaims:
    """The token is an instance's. Raises ``Ended``: a user's or a service account's, or without the instance."""
    if isinstance(claims.instance, NoInstance):
        raise denied(
            "TokenOfNoInstance",
            "the identity token names no instance (google.compute_engine): it must come from an instance's metadata "
            "server, with format=full",
        )
    return claims.instance


def check_project(instance: InstanceClaims, settings: GCPSettings) -> None:
    """The instance is in an allowed project, by ID and by number. Raises ``Ended``: it is in another."""
    project = instance.provider_id.project
    number = settings.projects.get(project)
    if number is None:
        raise denied("ProjectNotAllowed", f"instances of project {project} are not allowed here")
    if number != instance.project_number:
        raise denied(
            "ProjectNumberMismatch",
            f"project {project} has number {instance.project_number}, and another one is allowed here",
        )


def check_service_account(claims: Claims, settings: GCPSettings) -> None:
    """The instance runs as an allowed service account. Raises ``Ended``: as another, or Google does not say."""
    if isinstance(settings.service_accounts, AnyServiceAccount):
        return
    if isinstance(claims.service_account, NoVerifiedEmail):
        raise denied("ServiceAccountNotAllowed", "Google does not vouch for the identity token's service account")
    if claims.service_account.address not in settings.service_accounts:
        raise denied(
            "ServiceAccountNotAllowed", f"instances of service account {claims.service_account.address} are not allowed"
        )


def check_claimed_provider_id(instance: InstanceClaims, claimed: str) -> None:
    """The token is of the instance that the request claims to be. Raises ``Ended``: of another.

    The core compares it again; here it keeps a false claim from costing a call.
    """
    if str(instance.provider_id) != claimed:
        raise denied("ProviderIDMismatch", f"the identity token is of instance {instance.provider_id}")
