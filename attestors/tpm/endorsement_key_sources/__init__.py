"""Sources that assign endorsement keys to machines.

A certificate proves "some genuine TPM", a quote "the TPM that has this endorsement key". Neither says which machine
the TPM is in. Each module named after a member of :class:`SourceName` implements the protocol :class:`Source`;
:class:`SourcesInOrder` asks the sources in the order of a cluster's policy.
"""

from attestors.tpm.endorsement_key_sources.answer import (
    RETRY_AFTER,
    CertificateNotVerified,
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    Source,
    SourceName,
    SourceUnavailable,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint, identity
from attestors.tpm.endorsement_key_sources.gcp_shielded_vm import GCPShieldedVM, shielded_vms
from attestors.tpm.endorsement_key_sources.host import proven_node_names
from attestors.tpm.endorsement_key_sources.host_annotation import HostAnnotation
from attestors.tpm.endorsement_key_sources.infrastructure_annotation import InfrastructureMachineAnnotation
from attestors.tpm.endorsement_key_sources.inventory import INVENTORY_KEY, Inventory
from attestors.tpm.endorsement_key_sources.machine_annotation import MachineAnnotation
from attestors.tpm.endorsement_key_sources.order import SourcesInOrder, Undetermined
from attestors.tpm.endorsement_key_sources.trust_on_first_use import TrustOnFirstUse

__all__ = [
    "Source",
    "SourceName",
    "SourcesInOrder",
    "MachineAnnotation",
    "InfrastructureMachineAnnotation",
    "HostAnnotation",
    "Inventory",
    "INVENTORY_KEY",
    "GCPShieldedVM",
    "shielded_vms",
    "TrustOnFirstUse",
    "KeySourceAnswer",
    "KeyConfirmed",
    "KeyContradicted",
    "NoInformation",
    "Unclear",
    "Undetermined",
    "SourceUnavailable",
    "CertificateState",
    "CertificateNotVerified",
    "RETRY_AFTER",
    "fingerprint",
    "identity",
    "proven_node_names",
]
