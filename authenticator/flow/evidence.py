"""The attestor's agent plugin, and what it contributes: evidence, provider ID, CertificateSigningRequest."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.contract import (
    AgentPlugin,
    AttestorDescription,
    EvidenceUnavailable,
    GatherRequest,
    InvalidSettings,
    ShownKey,
    ShowsKeys,
)
from attestors.registry import AttestorFailed, AttestorUnavailable, Registry, attestor_code
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
"""Without key encipherment, as the kubelet requests for keys other than RSA (Kubernetes, ``GetUsages``)."""

_METHODS: Final = ("provider_id", "gather")
_OUR_FRAMES: Final = 3
"""Number of stack frames before the attestor's: those of ``attestor_code``, of ``_attestor_code`` and of its caller."""
_FRAMES: Final = 4
"""Number of innermost stack frames in the message about a failed attestor."""
_MAXIMUM_MESSAGE_CHARACTERS: Final = 1024


@contextmanager
def _attestor_code(provider: str, *expected: type[Exception]) -> Iterator[None]:
    """Run the attestor's code, which must not end the program: its exit code could even be that of success.

    Raises:
        NoEvidence: it called ``sys.exit``, or raised an exception that is not ``expected``.
    """
    try:
        with attestor_code(*expected, BrokenPipeError):  # BrokenPipeError: the reader of our output is gone
            yield
    except AttestorFailed as failed:
        raise NoEvidence(f"attestor {provider} {_what_failed(failed)}") from failed.fault


def _what_failed(failed: AttestorFailed) -> str:
    if isinstance(failed.fault, SystemExit):
        return "called sys.exit() instead of raising an exception"
    # The exception's text may hold secrets, and goes into a file. The attestor's author needs the stack frames.
    frames = traceback.extract_tb(failed.fault.__traceback__)[_OUR_FRAMES:][-_FRAMES:]
    places = ", ".join(f"{PurePath(frame.filename).name}:{frame.lineno}" for frame in frames)
    return f"failed with {failed} at {places}"


@dataclass(frozen=True, slots=True)
class Attestation:
    """The configured attestor."""

    description: AttestorDescription
    agent_plugin: AgentPlugin
    configured_provider_id: str
    provider_id_oid: str

    @classmethod
    def of(cls, configuration: Configuration, registry: Registry | None = None) -> Attestation:
        """Load the attestor that ``configuration`` names.

        Raises:
            InvalidConfiguration: it is not installed, lacks a library, or rejects these settings.
            NoEvidence: it failed.
        """
        attestors = registry or Registry()
        try:
            attestor = attestors.load(configuration.provider)
            with _attestor_code(configuration.provider, InvalidSettings, ImportError):
                agent_plugin = attestor.agent_plugin(configuration.settings)
        except AttestorUnavailable as error:
            raise InvalidConfiguration(str(error)) from error
        except InvalidSettings as error:
            raise InvalidConfiguration(f"settings of attestor {configuration.provider}: {_message(error)}") from error
        except ImportError as error:
            raise InvalidConfiguration(str(attestors.missing_extra(configuration.provider, error))) from error
        if missing := next((name for name in _METHODS if not callable(getattr(agent_plugin, name, None))), ""):
            raise NoEvidence(f"attestor {configuration.provider}: its agent plugin has no {missing}")
        return cls(attestor.description, agent_plugin, configuration.provider_id, configuration.provider_id_oid)

    def versions(self) -> tuple[str, ...]:
        """Evidence versions that both the attestor and this program support, newest last."""
        return tuple(version for version in self.description.evidence_versions if version in ENVELOPE_VERSIONS)

    def provider_id(self) -> str:
        """The provider ID: configured, or determined by the attestor.

        Raises:
            NoEvidence: neither is possible.
        """
        if self.configured_provider_id:
            return self.configured_provider_id
        try:
            with _attestor_code(self.description.provider, EvidenceUnavailable):
                found: object = self.agent_plugin.provider_id()
            if not isinstance(found, str):
                provider = self.description.provider
                raise NoEvidence(f"attestor {provider} returned {type(found).__name__} as the provider ID, not str")
            return check_provider_id(found)
        except EvidenceUnavailable as error:
            raise NoEvidence(
                f"attestor {self.description.provider}: {_message(error)} (or give --provider-id)"
            ) from error
        except InvalidProviderID as error:
            raise NoEvidence(
                f"attestor {self.description.provider} returned an unusable provider ID: {error}"
            ) from error

    def shown_keys(self, *, every: bool) -> Sequence[ShownKey]:
        """The keys by which the attestor recognizes this machine (:class:`attestors.contract.ShowsKeys`).

        Raises:
            NoEvidence: the attestor has none, or fails.
        """
        plugin = self.agent_plugin
        if not isinstance(plugin, ShowsKeys):
            raise NoEvidence(f"attestor {self.description.provider} recognizes machines by no key")
        try:
            with _attestor_code(self.description.provider, EvidenceUnavailable):
                return plugin.shown_keys(every=every)
        except EvidenceUnavailable as error:
            raise NoEvidence(f"attestor {self.description.provider}: {_message(error)}") from error

    def pending_request(
        self,
        subject: Subject,
        key: str,
        *,
        purpose: Purpose,
        evidence_version: str,
        tried: Sequence[str],
        challenge: str,
        further: Sequence[x509.UnrecognizedExtension] = (),
    ) -> PendingRequest:
        """Gather evidence, and build the request to be sent, with ``further`` extensions.

        Raises:
            NoEvidence: the attestor fails, or its evidence is too large for a request or malformed.
            InvalidConfiguration: so many names are requested that the controller would not read the request.
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
                further=further,
            )
            with _attestor_code(subject.provider, EvidenceUnavailable):
                gathered = self.agent_plugin.gather(
                    GatherRequest(expected, cluster.text, evidence_version, purpose, challenge)
                )
            content = request.encode(RequestBlocks(asked, subject.provider, _encoded(gathered, evidence_version)))
        except EvidenceUnavailable as error:
            raise NoEvidence(f"attestor {subject.provider}: {_message(error)}") from error
        except TooManyNames as error:
            raise InvalidConfiguration(f"{error}: request fewer names") from error
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


def _message(error: Exception) -> str:
    """An attestor's message, safe for a terminal: it may repeat what a platform has sent."""
    return printable(str(error), _MAXIMUM_MESSAGE_CHARACTERS)


def _encoded(gathered: object, evidence_version: str) -> bytes:
    """Encode the evidence, and check that the controller can read it: a malformed request would be denied.

    Raises:
        MalformedEvidence: the controller could not read it; not every attestor is type-checked.
    """
    if not isinstance(gathered, Evidence):
        raise MalformedEvidence(f"it returned {type(gathered).__name__} instead of Evidence")
    if gathered.version != evidence_version:
        raise MalformedEvidence(f"it made evidence {gathered.version!r} instead of {evidence_version}")
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
    """The CertificateSigningRequest to send.

    Source: ``staging/src/k8s.io/api/certificates/v1/types.go``. It has no ``expirationSeconds``: the controller's
    policy sets the lifetime, and API servers before 1.22 do not know the field.
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
