"""Whose endorsement key it is.

A certificate says "some genuine TPM", a quote "the TPM that has this endorsement key". Which machine that TPM is in,
only others can say. Each module named after a source of :class:`SourceName` is one of them, behind the protocol
:class:`Source`; :class:`SourcesInOrder` asks them in the order that a cluster's policy prefers.
"""

from attestors.tpm.endorsement_key_sources.answer import (
    LOOK_AGAIN,
    CannotBeAskedNow,
    CertificateNotVerified,
    CertificateState,
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    Source,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint, identity
from attestors.tpm.endorsement_key_sources.gcp_shielded_vm import GCPShieldedVM, shielded_vms
from attestors.tpm.endorsement_key_sources.infrastructure_annotation import InfrastructureMachineAnnotation
from attestors.tpm.endorsement_key_sources.inventory import INVENTORY_KEY, Inventory
from attestors.tpm.endorsement_key_sources.machine_annotation import MachineAnnotation
from attestors.tpm.endorsement_key_sources.order import NobodySays, SourcesInOrder
from attestors.tpm.endorsement_key_sources.trust_on_first_use import TrustOnFirstUse

__all__ = [
    "Source",
    "SourceName",
    "SourcesInOrder",
    "MachineAnnotation",
    "InfrastructureMachineAnnotation",
    "Inventory",
    "INVENTORY_KEY",
    "GCPShieldedVM",
    "shielded_vms",
    "TrustOnFirstUse",
    "KeySourceAnswer",
    "Owned",
    "OwnedByOthers",
    "NotSaid",
    "Unclear",
    "NobodySays",
    "CannotBeAskedNow",
    "CertificateState",
    "CertificateNotVerified",
    "LOOK_AGAIN",
    "fingerprint",
    "identity",
]
