"""The fake Google as a context manager, with a thread of its own and controls for tests."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from aiohttp import web

from tests.support.closing import ClosedAtTheEnd
from tests.support.local_servers import HOST, LocalServers

from .accounts import Accounts
from .compute import COMPUTE_PATH, ComputeServer
from .faults import Fault, Faults, Seen, Service
from .instances import FakeInstance
from .metadata import JWKS_PATH, PEM_CERTIFICATES_PATH, CertificatesServer, MetadataServer
from .signing import SigningKey, encode_token, identity_claims, signing_key

_CACHE_CONTROL: Final = "public, max-age=19302, must-revalidate, no-transform"


class FakeGoogle(ClosedAtTheEnd):
    """Google Cloud on 127.0.0.1; methods may be called from any thread but its own.

    Args:
        clock: Google's current time.
        cache_control: the Cache-Control header of the certificates; empty for none.
    """

    def __init__(
        self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC), cache_control: str = _CACHE_CONTROL
    ) -> None:
        self.clock = clock
        self.cache_control = cache_control
        self._lock = threading.Lock()
        self._faults = Faults()
        self._instances: dict[tuple[str, str, str], FakeInstance] = {}
        self._keys = (signing_key(0), signing_key(1))
        self._next_key = 2
        self.accounts = Accounts()
        self._servers = LocalServers("fake Google")
        self._base_url = ""

    def __enter__(self) -> Self:
        application = web.Application()
        CertificatesServer(lambda: self.keys, lambda: self.cache_control).add_routes(application, self._faults)
        ComputeServer(lambda: self.instances, self.accounts).add_routes(application, self._faults)
        self.accounts.add_routes(application, self._faults)
        self._base_url = self._serve(application)
        return self

    def close(self) -> None:
        """Stop listening."""
        self._servers.close()

    def _serve(self, application: web.Application) -> str:
        return f"http://{HOST}:{self._servers.serve(application)}"

    # Addresses

    @property
    def base_url(self) -> str:
        """The URL of everything but the metadata servers."""
        return self._base_url

    @property
    def compute_url(self) -> str:
        """Replaces ``https://compute.googleapis.com/compute/v1``."""
        return self._base_url + COMPUTE_PATH

    @property
    def pem_certificates_url(self) -> str:
        """Replaces ``https://www.googleapis.com/oauth2/v1/certs``, certificates by key ID."""
        return self._base_url + PEM_CERTIFICATES_PATH

    @property
    def jwks_url(self) -> str:
        """Replaces ``https://www.googleapis.com/oauth2/v3/certs``, a JSON Web Key Set."""
        return self._base_url + JWKS_PATH

    def metadata_of(self, instance: FakeInstance) -> str:
        """Start the metadata server of this instance; returns its base URL without a path."""
        server = MetadataServer(
            lambda: self.current(instance),
            key=lambda: self.keys[-1],
            clock=lambda: self.clock(),
            access_token=self.accounts.issue,
            faults=self._faults,
        )
        return self._serve(server.application())

    # Instances.

    def add(self, instance: FakeInstance) -> FakeInstance:
        """Create the instance, or replace the one with its name."""
        with self._lock:
            self._instances[instance.project, instance.zone, instance.name] = instance
        return instance

    def delete(self, instance: FakeInstance) -> None:
        """Delete the instance with this name."""
        with self._lock:
            del self._instances[instance.project, instance.zone, instance.name]

    @property
    def instances(self) -> tuple[FakeInstance, ...]:
        """The existing instances."""
        with self._lock:
            return tuple(self._instances.values())

    def current(self, instance: FakeInstance) -> FakeInstance:
        """The current instance with this name, or else ``instance``."""
        with self._lock:
            return self._instances.get((instance.project, instance.zone, instance.name), instance)

    # Tokens and their keys.

    @property
    def keys(self) -> tuple[SigningKey, ...]:
        """The issuer's published keys; the last one signs."""
        with self._lock:
            return self._keys

    def rotate_keys(self) -> SigningKey:
        """Publish a new signing key, and remove the oldest one."""
        with self._lock:
            added = signing_key(self._next_key)
            self._next_key += 1
            self._keys = (*self._keys[1:], added)
        return added

    def identity_token(self, instance: FakeInstance, audience: str) -> str:
        """The token that the instance's metadata server returns with ``format=full``."""
        return encode_token(identity_claims(self.current(instance), audience, self.clock()), self.keys[-1])

    def write_account_key(self, folder: Path) -> str:
        """Write the key file of the controller's service account for this token endpoint; returns its path."""
        path = folder / "service-account.json"
        path.write_text(json.dumps(self.accounts.key_document(self._base_url)))
        return str(path)

    def write_federation(self, folder: Path) -> str:
        """Write a workload identity federation configuration and its token; returns the configuration's path."""
        token = folder / "subject-token"
        token.write_text(self.accounts.subject_token)
        path = folder / "federation.json"
        path.write_text(json.dumps(self.accounts.federation_document(self._base_url, str(token))))
        return str(path)

    # Faults and received requests

    def fail(self, service: Service, fault: Fault, *, path: str = "", times: int | None = None) -> None:
        """Make requests to a service fail whose path contains ``path``: all of them, or the next ``times``."""
        self._faults.set(service, fault, path=path, times=times)

    def mend(self, service: Service) -> None:
        """End the faults of a service."""
        self._faults.clear(service)

    def seen(self, service: Service) -> list[Seen]:
        """The requests that a service received, in order."""
        return self._faults.seen(service)

    def counts(self) -> Counter[Service]:
        """The number of requests per service."""
        return self._faults.counts()
