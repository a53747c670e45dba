"""EC2 instances of the end-to-end tests, and whoever posts requests as one of them, honest or not."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec

from attestors.aws import wire
from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.names import EVIDENCE_VERSION, Purpose, SignerName
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.aws.fixtures import fields, presigned, token_fields
from tests.integration.fixtures import Harness, assert_readable, pending
from tests.support import aws_documents
from tests.support.fake_aws import EC2Instance, FakeAccount, Session
from tests.unit.attestors.support import evidence_of

Fields: TypeAlias = Mapping[str, str]
_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True)
class Suspect:
    """Whoever posts requests by hand, as the node on ``claimed``, with what ``own`` has."""

    cluster: WorldCluster
    account: FakeAccount
    claimed: EC2Instance
    own: EC2Instance
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def but(self, **changes: Any) -> Suspect:
        return replace(self, **changes)

    def with_new_key(self) -> Suspect:
        return self.but(key=ec.generate_private_key(ec.SECP256R1()))

    @property
    def node(self) -> SimulatedNode:
        known = self.cluster.ca_cert_hash
        return SimulatedNode(self.claimed.node_name, self.claimed.provider_id, known, "aws", {}, self.key)

    def binding(self, purpose: Purpose = Purpose.CLIENT, *, cluster: str = "", provider: str = "aws") -> Binding:
        return binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(cluster or self.cluster.ca_cert_hash),
            signer_name=SignerName(purpose, provider),
            subject_public_key_info=self.node.subject_public_key_info,
        )

    @property
    def signed(self) -> bytes:
        """Its own document, as EC2 signs it."""
        return aws_documents.sign(self.own.document)

    def presigned(self, session: Session | None = None, *, signed_for: str = "", **changes: Any) -> str:
        """A caller identity request with its own credentials, or those."""
        binding = signed_for or self.binding().value.hex()
        return presigned(session or self.own.session, binding, **{"at": datetime.now(UTC), **changes})

    def fields(self, session: Session | None = None, *, document: bytes = b"", url: str = "", **changes: Any) -> Fields:
        """Honest evidence, but for what is given."""
        url = url or self.presigned(session, **changes)
        return fields(url, binding=self.binding().value.hex(), document=document or self.signed)

    def session(self, **changes: Any) -> Session:
        """Somebody's own, which STS knows."""
        key_id = "ASIA" + secrets.token_hex(8).upper()
        return self.account.sts.remember(self.own.session.but(access_key_id=key_id, **changes))

    def token(self, *, about: Mapping[str, Any] | None = None, header: Any = None, **changes: Any) -> Fields:
        """Evidence with a token of its own, but for what is given."""
        issuer = self.account.sts.issuer
        audience = wire.audience(self.binding().value)
        claims = issuer.claims(self.own.session, audience, datetime.now(UTC), timedelta(minutes=5))
        said = claims["https://sts.amazonaws.com/"] | (about or {})
        kept = {name: value for name, value in said.items() if value is not ...}
        claims = claims | {"https://sts.amazonaws.com/": kept} | changes
        return token_fields(issuer.token(claims, **(header or {})), document=self.signed)

    def post(self, evidence: Fields) -> str:
        """Post a request with a bootstrap token; its name."""
        name = f"aws-{next(_NUMBERS)}"
        blocks = evidence_of(evidence, CACertHash(self.cluster.ca_cert_hash))
        self.cluster.submit_with_token(self.node.client_request(name, evidence_of=blocks))
        return name

    def ask(self, evidence: Fields) -> Verdict:
        """Post it and wait for the verdict."""
        return self.cluster.wait_until_decided(self.post(evidence))

    def waits(self, harness: Harness, evidence: Fields, reason: str) -> str:
        """What its request waits for, as the Event says it."""
        name = self.post(evidence)
        message = harness.wait_for_event(reason, machine_name(self.claimed), namespace=self.cluster.namespace)
        assert_readable(message)
        pending(self.cluster, name)
        return message


def machine_name(instance: EC2Instance) -> str:
    """Of its Machine."""
    return f"machine-{instance.launched.instance_id}"


def launch(account: FakeAccount, cluster: WorldCluster) -> EC2Instance:
    """An instance, and its Machine."""
    instance = account.launch()
    cluster.add_machine(machine_name(instance), provider_id=instance.provider_id, addresses=instance.addresses)
    return instance
