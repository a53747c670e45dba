"""Virtual machines of the fake Google."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

_CREATED: Final = datetime(2026, 1, 1, 8, 30, 15, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FakeInstance:
    """One instance, as the metadata server and Compute Engine describe it."""

    name: str = "worker-1"
    project: str = "capi-workloads"
    project_number: str = "730000000001"
    zone: str = "europe-west1-b"
    instance_id: str = "4711000000000000001"
    created: datetime = _CREATED
    status: str = "RUNNING"
    addresses: tuple[str, ...] = ("10.132.0.7",)
    external_addresses: tuple[str, ...] = ()
    hostname: str = ""
    """A custom host name; by default the instance has the zonal internal DNS name."""
    service_account: str = "nodes@capi-workloads.iam.gserviceaccount.com"
    service_account_id: str = "104000000000000000001"
    encryption_key: str = field(default="", repr=False)
    """PEM of the virtual TPM's RSA endorsement key; empty if the instance is no Shielded VM."""
    elliptic_encryption_key: str = field(default="", repr=False)
    """PEM of its endorsement key on P-256."""
    encryption_certificate: str = field(default="", repr=False)

    @property
    def provider_id(self) -> str:
        """The provider ID in its Machine and Node."""
        return f"gce://{self.project}/{self.zone}/{self.name}"

    @property
    def internal_dns_project(self) -> str:
        """The project in a DNS name; the domain-scoped ``example.com:web`` becomes ``web.example.com.google``."""
        domain, colon, project = self.project.rpartition(":")
        return f"{project}.{domain}.google" if colon else self.project

    @property
    def full_hostname(self) -> str:
        """The custom host name, or else the zonal internal DNS name."""
        return self.hostname or f"{self.name}.{self.zone}.c.{self.internal_dns_project}.internal"

    def created_again(self, instance_id: str, created: datetime) -> FakeInstance:
        """Another instance with the same name."""
        return replace(self, instance_id=instance_id, created=created)
