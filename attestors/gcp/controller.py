"""The server plugin of the GCP attestor: verifies, through Google's signature, which virtual machine sent a request.

The steps run in this order, local before remote, so that nothing unverified is used and a bad request costs no call:


1. the evidence is one identity token, signed with RS256, which names its key
2. Google issued it for this request's binding, for at most an hour, and it has not expired
3. it names an instance in an allowed project, with an allowed service account: the instance that the request claims
4. Google's certificate of that key: the key signed the token
5. the token is not from the future
6. if instances are looked up: Compute Engine has this very instance, and it runs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from attestors.clouds.errors import CloudError
from attestors.clouds.recorded_calls import ask_recorded
from attestors.contract import (
    AttestationRequest,
    AttestedBefore,
    Denied,
    IPAddress,
    Outcome,
    Plausible,
    PreFiltered,
    RecordedCalls,
    Standing,
    VerifiedIdentity,
)
from attestors.gcp.certificate_source import CertificateSource, KeyNotPublishedYet, UnknownKey
from attestors.gcp.certificates import InvalidSignature, VerifiedToken
from attestors.gcp.claims import InstanceClaims
from attestors.gcp.identity import InstanceIdentity
from attestors.gcp.instances import InstanceAddresses, NoLookUp
from attestors.gcp.local_checks import check_clock, check_instance, check_locally, prove_audience
from attestors.gcp.recorded_calls import ADDRESSES, verified_form
from attestors.gcp.settings import GCPSettings
from attestors.gcp.standing import standing_of
from attestors.gcp.token import IdentityToken
from attestors.verdict import Ended, denied, not_yet
from attestors.wire.binding import ProvenBinding


@dataclass(frozen=True, slots=True)
class GCPServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin` and :class:`attestors.contract.DeniesIdentities`. It keeps no
    state of requests.
    """

    settings: GCPSettings
    certificates: Callable[[], CertificateSource] = field(repr=False)
    """Returns the source of the running event loop."""
    instances: InstanceAddresses = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Run steps 1 to 3, which are local."""
        try:
            check_locally(request, self.settings)
        except Ended as ended:
            return ended.outcome if isinstance(ended.outcome, Denied) else Plausible()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Verify a request for a client certificate.

        Raises:
            MalformedEvidence: the evidence is not one identity token; the core denies.
            BindingMismatch: the token was made for another key, cluster or signer; the core denies.
        """
        return await self._verify(request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Same as :meth:`verify_client`; the outcome holds names and addresses from Google, which the core compares."""
        return await self._verify(request)

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """See :class:`attestors.contract.DeniesIdentities`."""
        return standing_of(attested, self.settings)

    async def _verify(self, request: AttestationRequest) -> Outcome:
        try:
            token = check_locally(request, self.settings)
            verified = await ask_recorded(
                request.recorded_calls,
                "Google's certificates",
                lambda: self._verified(token, request.now),
                verified_form(token),
            )
            check_clock(verified.claims, request.now)
            proof = prove_audience(verified.claims, request.binding)
            instance = check_instance(verified.claims)
            return _identity(instance, proof, await self._addresses(instance, request.recorded_calls))
        except Ended as ended:
            return ended.outcome
        except CloudError as error:
            return error.outcome()

    async def _addresses(self, instance: InstanceClaims, recorded_calls: RecordedCalls) -> tuple[IPAddress, ...]:
        """Step 6."""
        if isinstance(self.instances, NoLookUp):
            return await self.instances.addresses(instance)
        return await ask_recorded(
            recorded_calls, "Compute Engine", lambda: self.instances.addresses(instance), ADDRESSES
        )

    async def _verified(self, token: IdentityToken, now: datetime) -> VerifiedToken:
        """Step 4."""
        try:
            key = await self.certificates().key(token.key_id, issued=token.claims.issued, now=now)
            return key.verify(token)
        except UnknownKey as error:
            raise denied(
                "TokenKeyUnknown", f"Google publishes no certificate with key ID {token.key_id}, or not any more"
            ) from error
        except KeyNotPublishedYet as error:
            raise not_yet(
                "TokenKeyNotPublished",
                f"Google's certificates have no key ID {token.key_id}: they may be older than the token, and will be "
                "fetched again",
                error.retry_after,
            ) from error
        except InvalidSignature as error:
            raise denied("TokenSignatureInvalid", str(error)) from error


def _identity(instance: InstanceClaims, proof: ProvenBinding, addresses: tuple[IPAddress, ...]) -> VerifiedIdentity:
    return VerifiedIdentity(
        provider_id=str(instance.provider_id),
        identity=str(InstanceIdentity(instance.project_number, instance.instance_id)),
        binding=proof,
        node_names=(instance.provider_id.name,),
        dns_names=internal_dns_names(instance),
        ip_addresses=addresses,
    )


def internal_dns_names(instance: InstanceClaims) -> tuple[str, ...]:
    """The instance's own name, its zonal and its global internal DNS name.

    Source: "Internal DNS" of Compute Engine's documentation. Which of the two a project uses is not looked up. Within
    the project, the zonal name is unique to this instance; the global one is too if instance names are unique. Projects
    inside a domain (``example.com:web``) have other names, which the Machine must provide.
    """
    name, zone, project = instance.provider_id.name, instance.provider_id.zone, instance.provider_id.project
    if ":" in project:
        return (name,)
    return (name, f"{name}.{zone}.c.{project}.internal", f"{name}.c.{project}.internal")
