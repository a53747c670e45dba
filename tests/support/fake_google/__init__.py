"""A fake Google Cloud on 127.0.0.1 that makes the checks of the real one, over real HTTP.

It has the parts that the project uses: an instance's metadata server with identity tokens, the certificates for these
tokens, the token endpoint for service account keys, and ``instances.get`` and ``getShieldedInstanceIdentity`` of
Compute Engine. Tests can make each part fail::

    with FakeGoogle() as google:
        node = google.add(FakeInstance(name="worker-1"))
        metadata = google.metadata_of(node)  # http://127.0.0.1:<port>, that node's metadata.google.internal
        google.fail(Service.CERTIFICATES, Fault.status(503), times=1)

Formats are those of Google's public documents: https://cloud.google.com/compute/docs/metadata,
https://cloud.google.com/compute/docs/instances/verifying-instance-identity and
https://cloud.google.com/compute/docs/reference/rest/v1/instances.
"""

from __future__ import annotations

from .cloud import FakeGoogle
from .faults import Fault, Seen, Service
from .instances import FakeInstance
from .signing import SigningKey, encode_token, identity_claims, signing_key

__all__ = [
    "FakeGoogle",
    "FakeInstance",
    "Fault",
    "Seen",
    "Service",
    "SigningKey",
    "encode_token",
    "identity_claims",
    "signing_key",
]
