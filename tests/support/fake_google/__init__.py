"""A Google Cloud on 127.0.0.1 that checks what the real one checks, over real HTTP.

It has what the project uses: the metadata server of an instance with its identity tokens, the certificates that these
tokens verify with, the token endpoint for service accounts' keys, and of Compute Engine ``instances.get`` and
``getShieldedInstanceIdentity``. Every part can be told to fail::

    with FakeGoogle() as google:
        node = google.add(FakeInstance(name="worker-1"))
        metadata = google.metadata_of(node)  # http://127.0.0.1:<port>, what metadata.google.internal is to that node
        google.fail(Service.CERTIFICATES, Fault.status(503), times=1)

Forms are those of Google's public documents: https://cloud.google.com/compute/docs/metadata,
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
