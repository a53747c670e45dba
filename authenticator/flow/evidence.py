"""The attestor's agent plugin, and what is made with it: evidence, provider ID, and the CertificateSigningRequest."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.contract import AgentPlugin, AttestorDescription, EvidenceUnavailable, GatherRequest, InvalidSettings
from attestors.registry import AttestorUnavailable, Registry
from attestors.wire import binding, certificate_request, evidence, request
from attestors.wire.binding import CACertHash
from attestors.wire.certificate_request import TooManyNames
from attestors.wire.evidence import ENVELOPE_VERSIONS, MAXIMUM_FIELDS, Evidence, MalformedEvidence
from attestors.wire.names import Purpose, SignerName
from attestors.wire.provider_id import InvalidProviderID, check_provider_id
from attestors.wire.request import MalformedRequestBlocks, RequestBlocks
from authenticator.configuration import Configuration
from authenticator.model.answer import printable
from authenticator.model.attempt import PendingRequest, Step, Subject, request_name
from authenticator.model.certificate import load_key, public_key_info
from authenticator.model.failures import InvalidConfiguration, NoEvidence

USAGES: Final = {
    Purpose.CLIENT: ("digital signature", "client auth"),
    Purpose.SERVING: ("digital signature", "server auth"),
}
"""Without key encipherment, as the kubelet asks with keys that are not RSA (Kubernetes, ``GetUsages``)."""

_METHODS: Final = ("provider_id", "gather")
_PLACES: Final = 4
"""The innermost, of where an attestor failed."""
_MAXIMUM_SAID_CHARACTERS: Final = 1024


@contextmanager
def _code_of(provider: str, *known: type[Exception]) -> Iterator[None]:
    """That attestor's code runs, which may not end the program: with an exit code of its own, perhaps that of success.

    Raises:
        NoEvidence: it called ``sys.exit``, or raised what is not ``known``.
    """
    try:
        yield
    except known:
        raise
    except BrokenPipeError:  # whoever read our output is gone
        raise
    except SystemExit as error:
        raise NoEvidence(f"attestor {provider} called sys.exit() instead of raising what is wrong") from error
    except Exception as error:
        # What it says may be secret, and goes into a file; where it comes from is what the attestor's author needs.
        frames = traceback.extract_tb(error.__traceback__)[2:][-_PLACES:]  # this one, and who runs it
        places = ", ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
        raise NoEvidence(f"attestor {provider} failed with {type(error).__name__} at {places}") from error


@dataclass(frozen=True, slots=True)
class Attestation:
    """The attestor that this node was told to use."""

    description: AttestorDescription
    agent_plugin: AgentPlugin
    configured_provider_id: str
    provider_id_oid: str

    @classmethod
    def of(cls, configuration: Configuration, registry: Registry | None = None) -> Attestation:
        """Load the attestor that ``configuration`` names.

        Raises:
            InvalidConfiguration: it is not installed, lacks a library, or does not take these settings.
            NoEvidence: it failed.
        """
        attestors = registry or Registry()
        try:
            attestor = attestors.load(configuration.provider)
            with _code_of(configuration.provider, InvalidSettings, ImportError):
                agent_plugin = attestor.agent_plugin(configuration.settings)
        except AttestorUnavailable as error:
            raise InvalidConfiguration(str(error)) from error
        except InvalidSettings as error:
            raise InvalidConfiguration(f"settings of attestor {configuration.provider}: {_said(error)}") from error
        except ImportError as error:
            raise InvalidConfiguration(str(attestors.missing_extra(configuration.provider, error))) from error
        if missing := next((name for name in _METHODS if not callable(getattr(agent_plugin, name, None))), ""):
            raise NoEvidence(f"attestor {configuration.provider}: its agent plugin has no {missing}")
        return cls(attestor.description, agent_plugin, configuration.provider_id, configuration.provider_id_oid)

    def versions(self) -> tuple[str, ...]:
        """Evidence versions that both the attestor and this program write, newest last."""
        return tuple(version for version in self.description.evidence_versions if version in ENVELOPE_VERSIONS)

    def provider_id(self) -> str:
        """The provider ID: configured, or found out by the attestor.

        Raises:
            NoEvidence: neither.
        """
        if self.configured_provider_id:
            return self.configured_provider_id
        try:
            with _code_of(self.description.provider, EvidenceUnavailable):
                found: object = self.agent_plugin.provider_id()
            if not isinstance(found, str):
                provider = self.description.provider
                raise NoEvidence(f"attestor {provider} gave {type(found).__name__} for the provider ID, which is a str")
            return check_provider_id(found)
        except EvidenceUnavailable as error:
            raise NoEvidence(f"attestor {self.description.provider}: {_said(error)} (or give --provider-id)") from error
        except InvalidProviderID as error:
            raise NoEvidence(f"attestor {self.description.provider} found an unusable provider ID: {error}") from error

    def pending_request(
        self,
        subject: Subject,
        key: str,
        *,
        purpose: Purpose,
        evidence_version: str,
        tried: Sequence[str],
        challenge: str,
    ) -> PendingRequest:
        """Gather evidence and make a request of it, to be sent.

        Raises:
            NoEvidence: the attestor cannot, or its evidence is larger than a request may be, or none that can be read.
            InvalidConfiguration: so many names are asked for that the controller would not read the request.
        """
        private = load_key(key)
        signer_name = SignerName(purpose, subject.provider)
        step = Step.ANSWER if challenge else Step.FIRST
        cluster = CACertHash(subject.ca_cert_hash)
        expected = binding.compute(
            evidence_version=evidence_version,
            cluster=cluster,
            signer_name=signer_name,
            subject_public_key_info=public_key_info(private),
        )
        try:
            asked = certificate_request.build(
                private,
                node_name=subject.node_name,
                provider_id=subject.provider_id,
                dns_names=subject.dns_names,
                ip_addresses=[ip_address(address) for address in subject.ip_addresses],
                provider_id_oid=self.provider_id_oid,
            )
            with _code_of(subject.provider, EvidenceUnavailable):
                gathered = self.agent_plugin.gather(
                    GatherRequest(expected, cluster.text, evidence_version, purpose, challenge)
                )
            content = request.encode(RequestBlocks(asked, subject.provider, _encoded(gathered, evidence_version)))
        except EvidenceUnavailable as error:
            raise NoEvidence(f"attestor {subject.provider}: {_said(error)}") from error
        except TooManyNames as error:
            raise InvalidConfiguration(f"{error}: ask for fewer names") from error
        except (MalformedRequestBlocks, MalformedEvidence) as error:
            raise NoEvidence(f"attestor {subject.provider}: {error}") from error
        der = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        return PendingRequest(
            subject=subject,
            key=key,
            step=step,
            evidence_version=evidence_version,
            tried_versions=tuple(dict.fromkeys((*tried, evidence_version))),
            name=request_name(der, signer_name, step, evidence_version),
            request=base64.b64encode(content).decode("ascii"),
        )


def _said(error: Exception) -> str:
    """An attestor's own sentence for a person, who reads it at a terminal: it may repeat what a platform has said."""
    return printable(str(error), _MAXIMUM_SAID_CHARACTERS)


def _encoded(gathered: object, evidence_version: str) -> bytes:
    """The evidence as the controller will be able to read it: a request that it denies is denied for good.

    Raises:
        MalformedEvidence: it will not; not every attestor is type-checked.
    """
    if not isinstance(gathered, Evidence):
        raise MalformedEvidence(f"it returned {type(gathered).__name__} in place of Evidence")
    if gathered.version != evidence_version:
        raise MalformedEvidence(f"it made evidence {gathered.version!r} where {evidence_version} was asked for")
    if not isinstance(gathered.cluster, CACertHash):
        raise MalformedEvidence("the evidence's cluster must be a CACertHash")
    if not all(isinstance(text, str) for item in gathered.fields.items() for text in item):
        raise MalformedEvidence("every field of the evidence must be a str")
    if len(gathered.fields) > MAXIMUM_FIELDS - 2:  # version and caCertHash
        raise MalformedEvidence(f"the evidence has more than {MAXIMUM_FIELDS} keys")
    try:
        return evidence.encode(gathered)
    except UnicodeEncodeError as error:
        raise MalformedEvidence("the evidence holds a lone surrogate") from error


def signing_request(pending: PendingRequest, purpose: Purpose) -> dict[str, Any]:
    """The CertificateSigningRequest that is sent.

    Source: ``staging/src/k8s.io/api/certificates/v1/types.go``. Without ``expirationSeconds``: how long a certificate
    lives is the controller's policy, and API servers before 1.22 do not know the field.
    """
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": pending.name},
        "spec": {
            "request": pending.request,
            "signerName": str(SignerName(purpose, pending.subject.provider)),
            "usages": list(USAGES[purpose]),
        },
    }
