"""An account of the fake AWS: instances with a role and a metadata service, and the attestor that uses them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

from cryptography.hazmat.primitives.serialization import Encoding

from attestors.aws import AWSAttestor
from attestors.aws.services import Elsewhere
from signer.configuration import OperatorAttestor
from tests.support import aws_documents
from tests.support.aws_documents import REGION
from tests.support.fake_instance_metadata import FakeInstanceMetadata, Instance

from .accounts import ISSUER_HOST, Session
from .cloud import FakeAWS
from .ec2 import ACCOUNT, FakeEC2, Launched

ROLE: Final = "nodes.example"
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "x" * 40,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""The controller's environment variables, instead of those of the user who runs the tests."""
_OTHERS: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")


@dataclass(frozen=True)
class EC2Instance:
    """A running instance. :meth:`but` makes variants, such as an attacker's."""

    launched: Launched
    session: Session
    """Credentials of its role."""
    document: bytes
    """Its identity document, in JSON."""

    @property
    def provider_id(self) -> str:
        """The provider ID in its Machine and Node."""
        return f"aws:///{self.launched.zone}/{self.launched.instance_id}"

    @property
    def node_name(self) -> str:
        """Its private DNS name."""
        return self.launched.private_dns_name

    @property
    def addresses(self) -> list[tuple[str, str]]:
        """The addresses of its Machine."""
        return [("InternalDNS", self.node_name), ("InternalIP", self.launched.private_ip)]

    def but(self, **changes: Any) -> EC2Instance:
        """A copy with changes."""
        return replace(self, **changes)


class FakeAccount:
    """EC2, IAM, STS and the metadata services of one account in one region, as a context manager.

    Args:
        folder: for the region's certificate.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "region-certificates"
        self._stack = contextlib.ExitStack()
        self.sts = FakeAWS(REGION)
        self.ec2 = FakeEC2(REGION)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, _CREDENTIALS))
            for name in _OTHERS:
                os.environ.pop(name, None)
            stack.enter_context(self.sts)
            stack.enter_context(self.ec2)
            self._folder.mkdir()
            for region in (REGION, aws_documents.OTHER_REGION):
                pem = aws_documents.authority(region).certificate.public_bytes(Encoding.PEM)
                (self._folder / f"{region}.pem").write_bytes(pem)
            self._role_id = self.ec2.create_role(ROLE)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def attestor(self) -> AWSAttestor:
        """A new attestor whose server plugin uses this fake."""
        return AWSAttestor(Elsewhere(routes=self.sts.elsewhere.routes, endpoints=self.ec2.endpoints))

    def operator_attestor(self, **changes: Any) -> OperatorAttestor:
        """The operator's settings: the instances' role, and the certificates of this fake EC2."""
        settings: Mapping[str, Any] = {
            "allowedRoles": [f"arn:aws:iam::{ACCOUNT}:role/{ROLE}"],
            "regionCertificatesFolder": str(self._folder),
            "replacedRegionCertificates": [REGION, aws_documents.OTHER_REGION],
            "webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"},
        }
        return OperatorAttestor(settings={**settings, **changes})

    def launch(self, *, role: str = ROLE) -> EC2Instance:
        """Run an instance with this role."""
        launched = self.ec2.launch()
        session = self.sts.credentials(launched.instance_id, account=ACCOUNT, role_name=role)
        if role == ROLE:
            session = self.sts.remember(session.but(role_id=self._role_id))
        document = aws_documents.document(
            instanceId=launched.instance_id, availabilityZone=launched.zone, privateIp=launched.private_ip
        )
        return EC2Instance(launched, session, document)

    def terminate(self, instance: EC2Instance) -> None:
        """Terminate an instance."""
        self.ec2.ec2.terminate_instances(InstanceIds=[instance.launched.instance_id])

    def metadata_of(self, instance: EC2Instance) -> Mapping[str, str]:
        """Start its metadata service, which runs until the account closes; returns the agent plugin's settings."""
        told = Instance(
            document=instance.document,
            role=instance.session.role_name,
            access_key_id=instance.session.access_key_id,
            secret_access_key=instance.session.secret_key,
            session_token=instance.session.session_token,
        )
        return {"metadata-endpoint": self._stack.enter_context(FakeInstanceMetadata(told)).url}
