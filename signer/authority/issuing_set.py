"""The CAs of one workload cluster by purpose: those that sign, those that evidence may name, and retired ones.

kubeadm has one CA for clients and servers. RKE2 and K3s have two. During a rotation there are more: CAs that are
accepted but do not sign yet, or no longer. Callers select a CA by purpose and need not know how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from attestors.wire.names import Purpose
from signer.authority.certificate_authority import CertificateAuthority

__all__ = ["IssuingSet"]


@dataclass(frozen=True, slots=True)
class IssuingSet:
    """The CAs of one workload cluster, by purpose.

    Evidence may name a CA only if the controller has its private key for this cluster, or if such a CA chains to it.
    The types enforce this: ``client``, ``serving`` and ``also_accepted`` were loaded with their keys. Retired CAs are
    hashes only.
    """

    client: CertificateAuthority
    """Signs client certificates."""
    serving: CertificateAuthority
    """Signs serving certificates."""
    also_accepted: tuple[CertificateAuthority, ...] = ()
    """CAs that were loaded with their keys and that evidence may name. They sign nothing."""
    retired: frozenset[str] = frozenset()
    """Hashes of this cluster's other CAs, listed next to the one that signs or known from before. Evidence that names
    one is deferred and never denied for that, because the CA may be part of a rotation."""

    @classmethod
    def of(cls, authority: CertificateAuthority) -> IssuingSet:
        """One CA for clients and servers, as in Secret ``<cluster>-ca`` of kubeadm clusters."""
        return cls(client=authority, serving=authority, retired=authority.listed)

    def signer_of(self, purpose: Purpose) -> CertificateAuthority:
        """The CA that signs every new certificate of that purpose."""
        return self.client if purpose is Purpose.CLIENT else self.serving

    @property
    def accepted_hashes(self) -> frozenset[str]:
        """Every discovery hash by which evidence may name this cluster."""
        return self.client.ca_certificate_hashes.union(
            *(authority.ca_certificate_hashes for authority in (self.serving, *self.also_accepted))
        )

    @property
    def waiting_hashes(self) -> frozenset[str]:
        """The retired hashes that are not accepted. Evidence that names one is deferred."""
        return self.retired - self.accepted_hashes

    @property
    def not_after(self) -> datetime:
        """When the first of the two signing CAs expires."""
        return min(self.client.certificate.not_after, self.serving.certificate.not_after)
