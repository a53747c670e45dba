"""Path validation from an endorsement key certificate to one of the operator's roots (RFC 5280 6.1).

`cryptography.x509.verification` is made for the web and rejects genuine endorsement chains (no subject alternative
name, critical policies, another extended key usage), and the library does not bind OpenSSL's validation.

Rules for every issuer on the path:

1. its subject is the issuer name of the certificate below (`names`); key identifiers only order the candidates
2. it signed the original bytes of the certificate below, with an accepted algorithm (`signatures`)
3. it is an authority by its basic constraints, or it has a version before 3 and is a configured root
4. its key usage, if any, has keyCertSign
5. its extended key usage, if any, allows endorsement key certificates: Microsoft has separate authorities for
      attestation keys
6. it has no unknown critical extension
7. at most as many authorities are below it as its path length allows; self-issued ones do not count
8. it is valid now; an expired one is accepted if the operator's configuration allows it

The path ends at the first root. A root's own signature is not checked: the root is trusted as configured.

The search tries at most `MAXIMUM_SIGNATURES` signatures, however many certificates a node sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from attestors.tpm.endorsement.authorities import EndorsementAuthorities
from attestors.tpm.endorsement.certificate import Certificate
from attestors.tpm.endorsement.errors import (
    AuthorityMissing,
    AuthorityOutsideValidity,
    AuthorityRefused,
    EndorsementCertificateRefused,
    SearchExhausted,
    SignatureRefused,
)
from attestors.tpm.endorsement.extensions import ANY_EXTENDED_KEY_USAGE, ENDORSEMENT_KEY_CERTIFICATE
from attestors.tpm.endorsement.signatures import OtherKeySignature, UnacceptableSignature

MAXIMUM_ISSUERS: Final = 8
"""From the endorsement key certificate's issuer to the root. Intel's on-die chains have six, others two or three."""
MAXIMUM_SIGNATURES: Final = 16
"""Twice what the longest chain needs."""


def find_root(
    certificate: Certificate, *, sent: Sequence[Certificate], authorities: EndorsementAuthorities, at: datetime
) -> Certificate:
    """The configured root to which ``certificate`` chains.

    Raises:
        EndorsementCertificateRefused: there is no such chain; the error is that of the longest attempt.
    """
    search = _Search(certificate, sent, authorities, at)
    root = search.extend((certificate,))
    if root is None:
        raise search.failure
    return root


class _Search:
    """Depth-first search; keeps the error of the longest attempt."""

    def __init__(
        self, certificate: Certificate, sent: Sequence[Certificate], authorities: EndorsementAuthorities, at: datetime
    ) -> None:
        self._sent = sent
        self._authorities = authorities
        self._at = at
        self._signatures_left = MAXIMUM_SIGNATURES
        self._progress = 0
        self.failure: EndorsementCertificateRefused = _missing(certificate)
        """The error of the longest attempt so far."""

    def extend(self, path: tuple[Certificate, ...]) -> Certificate | None:
        """The root to which ``path`` can be extended, or None with the reason in `failure`."""
        candidates = [(issuer, is_root) for issuer, is_root in self._candidates(path[-1]) if issuer not in path]
        if not candidates:
            self._remember(len(path), _missing(path[-1]))
        for issuer, is_root in candidates:
            if not self._is_accepted(issuer, is_root, path):
                continue
            if is_root:
                return issuer
            longer = (*path, issuer)
            if len(longer) > MAXIMUM_ISSUERS:
                self._remember(len(longer), AuthorityRefused(f"The chain has more than {MAXIMUM_ISSUERS} issuers"))
                continue
            root = self.extend(longer)
            if root is not None:
                return root
        return None

    def _candidates(self, certificate: Certificate) -> list[tuple[Certificate, bool]]:
        """All certificates with the issuer's name, each once: matching key identifiers first, roots before others."""
        name = certificate.issuer.comparable
        roots = self._authorities.roots.get(name, ())
        configured = self._authorities.intermediates.get(name, ())
        sent = [candidate for candidate in self._sent if candidate.subject.comparable == name]
        # A TPM may send certificates that the operator has configured too: without deduplication each doubles the
        # paths.
        candidates = {root.encoded: (root, True) for root in roots}
        for other in (*configured, *sent):
            candidates.setdefault(other.encoded, (other, False))
        identifier = certificate.extensions.authority_key_identifier
        return sorted(
            candidates.values(), key=lambda candidate: candidate[0].extensions.subject_key_identifier != identifier
        )

    def _is_accepted(self, issuer: Certificate, is_root: bool, path: tuple[Certificate, ...]) -> bool:
        if self._signatures_left == 0:
            raise SearchExhausted(
                f"No chain to an endorsement authority was found within {MAXIMUM_SIGNATURES} signatures; the TPM's "
                "intermediate certificates have too many of the same name"
            )
        self._signatures_left -= 1
        try:
            path[-1].require_signature_of(issuer)
        except UnacceptableSignature as error:
            self._remember(len(path), _refused(path, issuer, error))
            return False
        try:
            _require_fit(issuer, is_root, path)
            _require_valid(issuer, self._at, accept_expired=self._authorities.accept_expired)
        except AuthorityRefused as error:
            self._remember(len(path) + 1, error)
            return False
        return True

    def _remember(self, progress: int, failure: EndorsementCertificateRefused) -> None:
        if progress > self._progress:
            self._progress, self.failure = progress, failure


def _require_fit(issuer: Certificate, is_root: bool, path: tuple[Certificate, ...]) -> None:
    """Items 3 to 7. That a version 3 root is an authority was checked when the configuration was loaded."""
    extensions = issuer.extensions
    if not is_root and extensions.is_authority is not True:
        raise AuthorityRefused(f"{issuer.subject.text} issued a certificate but is not a certificate authority")
    if extensions.key_usage is not None and not extensions.key_usage.key_cert_sign:
        raise AuthorityRefused(f"{issuer.subject.text} may not sign certificates: its key usage lacks keyCertSign")
    purposes = extensions.purposes
    if purposes is not None and purposes.isdisjoint({ENDORSEMENT_KEY_CERTIFICATE, ANY_EXTENDED_KEY_USAGE}):
        raise AuthorityRefused(f"{issuer.subject.text} is not an authority for endorsement keys")
    if extensions.unknown_critical:
        raise AuthorityRefused(
            f"{issuer.subject.text} has an unknown critical extension: {extensions.unknown_critical[0]}"
        )
    below = sum(not authority.is_self_issued for authority in path[1:])
    if extensions.path_length is not None and below > extensions.path_length:
        raise AuthorityRefused(
            f"{issuer.subject.text} allows {extensions.path_length} authorities below it, and there are {below}"
        )


def _require_valid(issuer: Certificate, at: datetime, *, accept_expired: bool) -> None:
    """Item 8."""
    if at < issuer.not_before:
        raise AuthorityOutsideValidity(
            f"The endorsement authority {issuer.subject.text} is not valid before {issuer.not_before:%Y-%m-%d}"
        )
    if at > issuer.not_after and not accept_expired:
        raise AuthorityOutsideValidity(
            f"The endorsement authority {issuer.subject.text} expired on {issuer.not_after:%Y-%m-%d}: ask the "
            "manufacturer for a renewed one, or allow expired authorities in the endorsement settings"
        )


def _described(path: tuple[Certificate, ...]) -> str:
    if len(path) == 1:
        return f"The endorsement key certificate names {path[0].issuer.text} as its issuer"
    return f"The certificate of {path[-1].subject.text} names {path[-1].issuer.text} as its issuer"


def _refused(
    path: tuple[Certificate, ...], issuer: Certificate, error: UnacceptableSignature
) -> SignatureRefused | AuthorityMissing:
    """If the key identifiers differ, another authority of the same name signed it, which the operator may add."""
    wanted, has = path[-1].extensions.authority_key_identifier, issuer.extensions.subject_key_identifier
    if isinstance(error, OtherKeySignature) and wanted and has and wanted != has:
        return _missing(path[-1])
    return SignatureRefused(f"{_described(path)}: its signature {error}")


def _missing(certificate: Certificate) -> AuthorityMissing:
    identifier = certificate.extensions.authority_key_identifier
    hexadecimal = identifier.hex() if identifier else None
    location = certificate.extensions.issuer_location
    where = (
        f"the certificate names {location} as its source; compare the file with those that the manufacturer publishes"
        if location
        else "get it from the TPM's manufacturer"
    )
    key = f" (key identifier {hexadecimal})" if hexadecimal else ""
    return AuthorityMissing(
        f"No endorsement authority is configured by the name {certificate.issuer.text}{key}: {where}, and add it "
        "to the endorsement authorities",
        issuer=certificate.issuer.text,
        key_identifier=hexadecimal,
        location=location,
    )
