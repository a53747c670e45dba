"""Signed statements: what the controller tells nodes, in one envelope and with one verifier.

A statement says something of one kind (:class:`Kind`) about one cluster. CAs of the cluster and the controller sign it.
The channel is not trusted: the workload cluster's API delivers most statements.

=====================  =============================================  ===========================================
kind                   says                                           the node reads it
=====================  =============================================  ===========================================
``ClusterTrust``       which CAs the node must trust                  in a ConfigMap of the workload cluster
``ControllerKeys``     which keys of the controller the node pins     behind its certificate, in the same text
``ClientRenewal``      that certificates by a CA are to be renewed    in another key of the same ConfigMap
``NodeAccessTrust``    which SSH authorities count, what is revoked   in a ConfigMap of its own
=====================  =============================================  ===========================================

The rule is that of TUF's root metadata (The Update Framework, section 5.3): what the node trusts now must have signed
what it will trust next, and so must what it will trust next.
"""

from __future__ import annotations

from attestors.wire.statement.client_renewal import MAXIMUM_SPREAD_SECONDS, ClientRenewal
from attestors.wire.statement.cluster_trust import MAXIMUM_SHARE, ClusterTrust, node_digest
from attestors.wire.statement.controller_keys import ControllerPublicKeys
from attestors.wire.statement.envelope import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    MAXIMUM_STATEMENT_BYTES,
    ClusterIdentity,
    Kind,
    Payload,
    Signature,
    SignedStatement,
    Statement,
    decode,
    encode,
    signed_input,
)
from attestors.wire.statement.errors import (
    MalformedStatement,
    StatementReason,
    StatementRefused,
    UnsupportedStatement,
)
from attestors.wire.statement.explanatory_text import as_explanatory_text, statements_in
from attestors.wire.statement.node_access_trust import (
    MAXIMUM_RENEW_SPREAD_SECONDS,
    MAXIMUM_REVOCATION_LIST_BYTES,
    NodeAccessTrust,
)
from attestors.wire.statement.verification import (
    AcceptedNodeAccessTrust,
    AcceptedTrust,
    NotPinned,
    PinnedController,
    accept_client_renewal,
    accept_controller_keys,
    accept_node_access_trust,
    accept_trust,
    authorities_in,
)

__all__ = [
    "MAXIMUM_NODE_ACCESS_TRUST_BYTES",
    "MAXIMUM_RENEW_SPREAD_SECONDS",
    "MAXIMUM_REVOCATION_LIST_BYTES",
    "MAXIMUM_SHARE",
    "MAXIMUM_SPREAD_SECONDS",
    "MAXIMUM_STATEMENT_BYTES",
    "AcceptedNodeAccessTrust",
    "AcceptedTrust",
    "ClientRenewal",
    "ClusterIdentity",
    "ClusterTrust",
    "ControllerPublicKeys",
    "Kind",
    "MalformedStatement",
    "NodeAccessTrust",
    "NotPinned",
    "Payload",
    "PinnedController",
    "Signature",
    "SignedStatement",
    "Statement",
    "StatementReason",
    "StatementRefused",
    "UnsupportedStatement",
    "accept_client_renewal",
    "accept_controller_keys",
    "accept_node_access_trust",
    "accept_trust",
    "as_explanatory_text",
    "authorities_in",
    "decode",
    "encode",
    "node_digest",
    "signed_input",
    "statements_in",
]
