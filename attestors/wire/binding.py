"""The binding: it ties evidence to one key, one cluster and one signer.

The attestation blocks are not covered by the CSR's signature, and every bootstrap token can read them. Evidence that
does not commit to the binding could be copied. An attestor gets the expected binding as a :class:`Binding`. It can
obtain the :class:`ProvenBinding` that a verified identity needs only by comparing what the evidence commits to.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Final

from attestors.wire.names import SignerName

_CONTEXT: Final = b"node-attestation binding v1"
_CA_CERT_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")
DIGEST_BYTES: Final = 32


class BindingMismatch(Exception):
    """The evidence commits to another key, cluster or signer than this request has."""


class InvalidCACertHash(ValueError):
    """The text is not in kubeadm's discovery form: ``sha256:`` and 64 lower-case hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class CACertHash:
    """Identifies the workload cluster: SHA-256 of its CA's SubjectPublicKeyInfo, in kubeadm's text form.

    Source: ``--discovery-token-ca-cert-hash`` (kubeadm, ``cmd/kubeadm/app/util/pubkeypin``).
    """

    text: str

    def __post_init__(self) -> None:
        if not _CA_CERT_HASH.fullmatch(self.text):
            raise InvalidCACertHash("a CA certificate hash is sha256: and 64 lower-case hexadecimal digits")

    @classmethod
    def of(cls, subject_public_key_info: bytes) -> CACertHash:
        """The hash of a CA's DER SubjectPublicKeyInfo."""
        return cls("sha256:" + hashlib.sha256(subject_public_key_info).hexdigest())


class _Seal:
    """Private to this module: distinguishes a proof from a copy of the expected value."""


_SEAL: Final = _Seal()


@dataclass(frozen=True, slots=True)
class ProvenBinding:
    """Proof that the evidence commits to ``value``. Only :meth:`Binding.prove` creates one."""

    value: bytes
    seal: InitVar[object]
    """Not stored, so that ``dataclasses.replace`` cannot turn one proof into another."""

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a ProvenBinding comes from Binding.prove(), which compares what the evidence commits to")


@dataclass(frozen=True, slots=True)
class Binding:
    """The 32 bytes that evidence for one request must commit to."""

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != DIGEST_BYTES:
            raise ValueError(f"a binding has {DIGEST_BYTES} bytes")

    def prove(self, committed: bytes, *, through: Callable[[bytes], bytes] | None = None) -> ProvenBinding:
        """Compare, in constant time, the value that the evidence commits to with this binding.

        ``through`` is for evidence that commits to a value derived from the binding, such as a MAC over it or a hash of
        it with a secret: it maps the binding to the value that the evidence should hold.

        Raises:
            BindingMismatch: the evidence commits to another value, or to none.
        """
        expected = self.value if through is None else through(self.value)
        # With an empty or short expected value, empty evidence would pass.
        if len(expected) < DIGEST_BYTES or not hmac.compare_digest(expected, committed):
            raise BindingMismatch("the evidence was made for another key, cluster or signer")
        return ProvenBinding(self.value, _SEAL)


def compute(
    *, evidence_version: str, cluster: CACertHash, signer_name: SignerName, subject_public_key_info: bytes
) -> Binding:
    """The binding of one request: SHA-256 over the inputs, each prefixed with its length (8 bytes, big-endian).

    ``subject_public_key_info`` is the CSR's, in DER.
    """
    digest = hashlib.sha256()
    for part in (
        _CONTEXT,
        evidence_version.encode("utf-8"),
        cluster.text.encode("ascii"),
        str(signer_name).encode("ascii"),
        subject_public_key_info,
    ):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return Binding(digest.digest())
