"""The server plugin of the AWS attestor: verifies which instance sent the request, with its own role, for this request.

The steps run in this order. Steps 1 to 5 are local, and no unverified value is used for a call:

1. the fields: an instance identity document, and one proof of the caller
2. the document is signed with its Region's pinned key; Region and account are allowed; it is the claimed instance
3. the proof is well formed, and for the document's partition, or from the issuer of the document's account
4. the proof was made for this binding
5. the proof is fresh
6. STS says that the document's instance signed the presigned request, with an allowed role of the document's account;
   or the token is signed with its issuer's key and says the same
7. presigned requests only: IAM says that only EC2 may assume that role
8. EC2 says that the instance runs, as it was launched, hardened as the operator requires
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from attestors.aws import wire
from attestors.aws.answers import CALLER, INSTANCE, TRUST, VERIFIED
from attestors.aws.caller_identity import CallerIdentity, PresignedRequest
from attestors.aws.document import (
    IdentityDocumentMalformed,
    IdentityDocumentRefused,
    InstanceIdentityDocument,
    RegionCertificateMissing,
    verify_identity_document,
)
from attestors.aws.ec2.directory import NotListed
from attestors.aws.ec2.instance import Instance
from attestors.aws.ec2.trust import RoleTrust, require_trust
from attestors.aws.identity import InstanceIdentity
from attestors.aws.issuers import KeyNotPublishedYet, UnknownKey
from attestors.aws.partitions import Region
from attestors.aws.services import AWSServices
from attestors.aws.settings import AnyRegion, AWSSettings, NotDescribed, Role
from attestors.aws.standing import require_place_allowed, standing_of
from attestors.aws.termination import termination_of
from attestors.aws.web_identity import WebIdentity, parse_web_identity_token
from attestors.clouds.errors import CloudError, CloudObjectMissing
from attestors.clouds.json_web_token import InvalidToken, UnverifiedToken
from attestors.clouds.recorded_calls import ask_recorded
from attestors.contract import (
    AttestationRequest,
    AttestedBefore,
    Denied,
    FormerInstance,
    Outcome,
    Plausible,
    PreFiltered,
    RecordedCalls,
    Standing,
    Termination,
    VerifiedIdentity,
)
from attestors.verdict import Ended, denied, not_until_fixed, not_yet
from attestors.wire.binding import ProvenBinding
from attestors.wire.evidence import Evidence, MalformedEvidence


@dataclass(frozen=True, slots=True)
class _Presigned:
    """A fresh presigned request for this binding; its signer is not verified yet."""

    request: PresignedRequest
    binding: ProvenBinding


@dataclass(frozen=True, slots=True)
class _Token:
    """A fresh token for this binding about the document's instance; its signature is not verified yet."""

    token: UnverifiedToken
    identity: WebIdentity
    binding: ProvenBinding


_Proof: TypeAlias = _Presigned | _Token


@dataclass(frozen=True, slots=True)
class AWSServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin`, :class:`attestors.contract.InstanceTerminationProver` and
    :class:`attestors.contract.DeniesIdentities`.
    """

    settings: AWSSettings
    services: AWSServices = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """Run steps 1 to 5."""
        try:
            self._check_locally(request)
        except Ended as ended:
            return ended.outcome if isinstance(ended.outcome, Denied) else Plausible()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Run all steps.

        Raises:
            MalformedEvidence: a field is missing, unknown or malformed; the core denies.
            BindingMismatch: the proof was made for another key, cluster or signer; the core denies.
        """
        try:
            document, proof = self._check_locally(request)
            role = await self._role_of(document, proof, request)
            return await self._describe(document, role, proof.binding, request.recorded_calls)
        except Ended as ended:
            return ended.outcome
        except CloudError as error:
            return error.outcome()

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Same as :meth:`verify_client`: every outcome holds the instance's names and addresses."""
        return await self.verify_client(request)

    async def termination_of(self, former: FormerInstance) -> Termination:
        """See :class:`attestors.contract.InstanceTerminationProver`."""
        return await termination_of(former, self.settings, self.services.instances)

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """See :class:`attestors.contract.DeniesIdentities`."""
        return standing_of(attested, self.settings)

    # Steps 1 to 5.

    def _check_locally(self, request: AttestationRequest) -> tuple[InstanceIdentityDocument, _Proof]:
        evidence = request.evidence
        with_token = wire.WEB_IDENTITY_TOKEN_FIELD in evidence.fields
        evidence.expect_fields(*(wire.WEB_IDENTITY_FIELDS if with_token else wire.CALLER_IDENTITY_FIELDS))
        document = self._document(evidence)
        self._require_allowed(document, request.provider_id)
        if with_token:
            return document, self._token(request, document)
        return document, self._presigned(request, document)

    def _document(self, evidence: Evidence) -> InstanceIdentityDocument:
        signed = evidence.binary(wire.IDENTITY_DOCUMENT_FIELD, maximum_bytes=wire.MAXIMUM_IDENTITY_DOCUMENT_BYTES)
        try:
            return verify_identity_document(signed, self.settings.certificates)
        except IdentityDocumentMalformed as error:
            raise MalformedEvidence(str(error)) from error
        except RegionCertificateMissing as error:
            raise not_until_fixed("RegionCertificateMissing", str(error)) from error
        except IdentityDocumentRefused as error:
            raise denied("IdentityDocumentRefused", str(error)) from error

    def _require_allowed(self, document: InstanceIdentityDocument, claimed: str) -> None:
        require_place_allowed(self.settings, document.account_id, document.region)
        if document.provider_id != claimed:
            raise denied(
                "ProviderIDMismatch", f"the instance identity document is of {document.provider_id}, not of {claimed}"
            )

    def _presigned(self, request: AttestationRequest, document: InstanceIdentityDocument) -> _Presigned:
        if not self.settings.accept_presigned:
            raise denied("PresignedRequestNotAccepted", "the operator accepts web identity tokens only")
        evidence = request.evidence
        presigned = PresignedRequest.parse(
            evidence.text(
                wire.CALLER_IDENTITY_REQUEST_FIELD,
                maximum_characters=wire.MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS,
            )
        )
        self._require_sts_of(presigned.region, document.region)
        signed_for = evidence.text(wire.CALLER_IDENTITY_BINDING_FIELD, maximum_characters=64)
        binding = request.binding.prove(wire.parse_binding_text(signed_for))
        self.settings.freshness.require_fresh(
            "the caller identity request",
            made_at=presigned.signed_at,
            lifetime=presigned.lifetime,
            now=request.now,
        )
        return _Presigned(presigned, binding)

    def _require_sts_of(self, asked: Region, own: Region) -> None:
        """A Region's STS knows its whole partition's sessions, and a node may be configured to use another Region's.

        That Region must have a certificate and be allowed by the operator. Otherwise a node could make the controller
        call any plausible host, including unresponsive ones, and each call occupies threads.
        """
        if asked.partition != own.partition:
            raise denied("PartitionMismatch", "the caller identity request is for another partition than the document")
        if asked == own:
            return
        if not isinstance(self.settings.regions, AnyRegion) and asked.name not in self.settings.regions:
            raise denied(
                "RegionNotAllowed", f"the caller identity request is for Region {asked.name}, which is not allowed"
            )
        try:
            self.settings.certificates.of(asked)
        except RegionCertificateMissing as error:
            raise not_until_fixed("RegionCertificateMissing", str(error)) from error

    def _token(self, request: AttestationRequest, document: InstanceIdentityDocument) -> _Token:
        text = request.evidence.text(
            wire.WEB_IDENTITY_TOKEN_FIELD, maximum_characters=wire.MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS
        )
        token = parse_web_identity_token(text)
        identity = WebIdentity.read(token)
        issuer = self.settings.issuers.get(document.account_id)
        if issuer is None:
            raise denied("WebIdentityNotAccepted", f"the operator accepts no tokens of account {document.account_id}")
        if identity.issuer != issuer:
            raise denied("IssuerMismatch", f"the web identity token is not of account {document.account_id}'s issuer")
        binding = request.binding.prove(identity.binding)
        self.settings.freshness.require_not_expired(
            "the web identity token",
            made_at=identity.issued_at,
            lifetime=identity.expires_at - identity.issued_at,
            now=request.now,
        )
        identity.require_instance(document, session_token=self.settings.require_session_tokens)
        self._allowed_role(document, identity.partition, identity.account, identity.role_name)
        return _Token(token, identity, binding)

    def _allowed_role(self, document: InstanceIdentityDocument, partition: str, account: str, name: str) -> Role:
        """Compared by partition, account and name together: any account may have a role of that name."""
        if (partition, account) != (document.region.partition.name, document.account_id):
            raise denied("CallerOfAnotherAccount", "the caller's role belongs to another account than the instance")
        role = Role(partition, account, name)
        if role not in self.settings.roles:
            raise denied("RoleNotAllowed", f"role {name} of account {account} is not allowed")
        return role

    # Steps 6 and 7.

    async def _role_of(self, document: InstanceIdentityDocument, proof: _Proof, request: AttestationRequest) -> Role:
        if isinstance(proof, _Token):
            return await self._verified_by_issuer(document, proof, request)
        presigned = proof.request
        caller = await ask_recorded(
            request.recorded_calls,
            "AWS STS",
            lambda: self.services.callers.caller_of(presigned, proof.binding),
            CALLER,
        )
        role = self._allowed_role(document, caller.partition, caller.account, caller.role_name)
        _require_own_session(document, caller)
        if self.settings.check_role_trust:
            await self._require_trust(document, caller, request.recorded_calls)
        return role

    async def _verified_by_issuer(
        self, document: InstanceIdentityDocument, proof: _Token, request: AttestationRequest
    ) -> Role:
        identity = proof.identity
        await ask_recorded(
            request.recorded_calls, identity.issuer, lambda: self._verify_token(proof, request.now), VERIFIED
        )
        self.settings.freshness.require_our_clock("the web identity token", made_at=identity.issued_at, now=request.now)
        return self._allowed_role(document, identity.partition, identity.account, identity.role_name)

    async def _verify_token(self, proof: _Token, now: datetime) -> None:
        made_ago = now - proof.identity.issued_at - self.settings.freshness.clock_skew
        try:
            key = await self.services.issuers.key(
                proof.identity.issuer, proof.token.key_id, made_seconds_ago=made_ago.total_seconds()
            )
            proof.token.verify(key)
        except KeyNotPublishedYet as error:
            raise not_yet(
                "WebIdentityKeyNotPublished",
                "the issuer's keys have none of that name: they may be older than the token, and will be fetched again",
                timedelta(seconds=error.retry_after_seconds),
            ) from error
        except (UnknownKey, InvalidToken) as error:
            raise denied("WebIdentityRefused", str(error)) from error

    async def _require_trust(
        self, document: InstanceIdentityDocument, caller: CallerIdentity, recorded_calls: RecordedCalls
    ) -> None:
        async def fetch() -> RoleTrust:
            try:
                return await self.services.roles.find(caller.account, document.region, caller.role_name)
            except CloudObjectMissing as error:
                raise not_until_fixed("RoleMissing", str(error)) from error

        trust = await ask_recorded(recorded_calls, "AWS IAM", fetch, TRUST)
        require_trust(trust, role_name=caller.role_name, role_id=caller.role_id)

    # Step 8.

    async def _describe(
        self, document: InstanceIdentityDocument, role: Role, binding: ProvenBinding, recorded_calls: RecordedCalls
    ) -> VerifiedIdentity:
        identity = str(InstanceIdentity(document.account_id, document.region, document.instance_id))
        rules = self.settings.instance_rules
        if isinstance(rules, NotDescribed):
            # An instance keeps its first private address for as long as it exists.
            addresses = (document.private_ip,) if document.private_ip is not None else ()
            return VerifiedIdentity(document.provider_id, identity, binding, ip_addresses=addresses)
        found = await ask_recorded(
            recorded_calls,
            "AWS EC2",
            lambda: self.services.instances.find(document.account_id, document.region, document.instance_id),
            INSTANCE,
        )
        if isinstance(found, NotListed):
            raise not_yet("InstanceNotListed", self._not_listed(document))
        rules.check(found, instance_id=document.instance_id, account=document.account_id)
        return VerifiedIdentity(
            document.provider_id,
            identity,
            binding,
            node_names=_node_names(found),
            dns_names=tuple(name for name in (found.private_dns_name, *found.other_dns_names) if name),
            ip_addresses=found.addresses,
        )

    def _not_listed(self, document: InstanceIdentityDocument) -> str:
        account, region = document.account_id, document.region.name
        message = f"AWS EC2 does not list {document.instance_id} in account {account}, {region} (yet)"
        if account in self.settings.account_roles:
            return message
        return f"{message}; if the controller's own credentials belong to another account, name a role in accountRoles"


def _require_own_session(document: InstanceIdentityDocument, caller: CallerIdentity) -> None:
    """EC2 names the sessions of an instance's role after the instance."""
    if caller.session_name != document.instance_id:
        raise denied(
            "CallerIsAnotherInstance",
            f"the caller's session is not that of {document.instance_id}, the instance in the document",
        )


def _node_names(instance: Instance) -> tuple[str, ...]:
    """The private DNS name, as the AWS cloud provider names nodes."""
    return (instance.private_dns_name,) if instance.private_dns_name else ()
