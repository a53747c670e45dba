"""Which CA of one workload cluster signs what, which CAs evidence may name, and which are known but no longer count.

kubeadm has one CA for clients and servers. RKE2 and K3s have two, and during a rotation there are more: CAs that are
accepted but do not sign yet, or no longer. One value states the purpose of each, so that no caller has to know whether
they are one or several.
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

    A hash is accepted in evidence only where it is that of a CA whose private key is held for this cluster, or of one
    that such a CA chains to. The types say so: ``client``, ``serving`` and ``also_accepted`` are CAs that were loaded
    with their keys, while of a retired CA only the hash is known.
    """

    client: CertificateAuthority
    """Signs client certificates."""
    serving: CertificateAuthority
    """Signs serving certificates."""
    also_accepted: tuple[CertificateAuthority, ...] = ()
    """Their keys are held and evidence may name them; they sign nothing."""
    retired: frozenset[str] = frozenset()
    """Hashes of this cluster's lineage that do not count: CAs listed beside the one that signs, or known from before.
    Evidence that names one waits and is never finally denied for that: the CA may be coming in or going out."""

    @classmethod
    def of(cls, authority: CertificateAuthority) -> IssuingSet:
        """One CA for clients and servers, as Secret ``<cluster>-ca`` of kubeadm's clusters has it."""
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
        """The hashes for which evidence waits: those retired, without any that is accepted."""
        return self.retired - self.accepted_hashes

    @property
    def not_after(self) -> datetime:
        """When the first of the CAs that sign runs out."""
        return min(self.client.certificate.not_after, self.serving.certificate.not_after)
