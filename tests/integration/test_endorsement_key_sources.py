"""The invariant can fail: each planted violation is found, and a consistent state passes."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestors.contract import Security
from attestors.wire.names import NODE_USER_PREFIX, Purpose, SignerName, parse_signer_name
from signer.model.cluster import ClusterKey
from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    KUBELET_KINDS,
    AttestedIdentity,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
    MachineKey,
)
from signer.model.record_object import record_spec
from signer.model.reservation import Pair, ReservationSide
from signer.model.seal import KEY_BYTES, ControllerKeys, RecordSeals
from signer.model.signing_request import spec_digest
from tests.integration.endorsement_key_sources import BUILTIN_SERVING_SIGNER, Shown, ShownCluster, violations
from tests.support.certificates import CertificateAuthority
from tests.support.reservations import reservation_spec
from tests.support.signing_requests import (
    BUILTIN_CLIENT_SIGNER,
    condition,
    request_pem,
    shared_key,
    signing_request,
    with_certificate,
    with_conditions,
)

OURS: Final = "the cluster's"
NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPKI: Final = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
WEEK: Final = timedelta(days=7)
CLUSTER: Final = ClusterKey("team-a", "prod")
KEYS: Final = ControllerKeys(secrets.token_bytes(KEY_BYTES))
CLIENT: Final = str(SignerName(Purpose.CLIENT, "keyed-mac"))
SERVING: Final = str(SignerName(Purpose.SERVING, "keyed-mac"))


@cache
def authority(whose: str) -> CertificateAuthority:
    """A CA; another cluster has another one."""
    del whose
    return CertificateAuthority.like_cluster_api()


@dataclass
class Draft:
    """What the API servers shall show; honest until a test changes it."""

    records: dict[str, AttestedNode] = field(default_factory=dict)
    reservations: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: ControllerKeys = KEYS
    keys_of_others: frozenset[str] = frozenset()
    """Records that were sealed with another controller's key."""

    def shown(self) -> Shown:
        ours, others = RecordSeals(self.keys), RecordSeals(ControllerKeys(secrets.token_bytes(KEY_BYTES)))
        records = []
        for name, record in self.records.items():
            seal = (others if name in self.keys_of_others else ours).seal(record)
            metadata = {"namespace": CLUSTER.namespace, "name": record.name, "uid": name, "resourceVersion": "1"}
            records.append({"metadata": metadata, "spec": {**record_spec(record), "seal": seal}})
        cluster = ShownCluster(CLUSTER, authority(OURS).certificate_pem, tuple(self.requests.values()))
        return Shown(self.keys, tuple(records), tuple(self.reservations), (cluster,))

    def ask(self, name: str, signer: str, node_name: str, *alternative_names: str) -> dict[str, Any]:
        """A CSR of that node, nothing said of it yet."""
        request = request_pem(NODE_USER_PREFIX + node_name, alternative_names=alternative_names)
        manifest = signing_request(name, request, signer=signer, username=NODE_USER_PREFIX + node_name)
        manifest["metadata"]["uid"] = f"uid-of-{name}"
        self.requests[name] = manifest
        return manifest

    def approve(self, name: str, certificate: x509.Certificate | None) -> None:
        """It is approved, and has this certificate."""
        approved = with_conditions(self.requests[name], condition("Approved"))
        if certificate is not None:
            approved = with_certificate(approved, certificate.public_bytes(Encoding.PEM))
        self.requests[name] = approved

    def journal(self, record: str, name: str, certificate: x509.Certificate) -> None:
        """The record allows that certificate for that CSR."""
        manifest = self.requests[name]
        signer = parse_signer_name(manifest["spec"]["signerName"])
        entry = JournalEntry(
            kind=KUBELET_KINDS[signer.purpose if isinstance(signer, SignerName) else Purpose.CLIENT],
            csr_name=name,
            csr_uid=manifest["metadata"]["uid"],
            spec_digest=spec_digest(manifest["spec"]),
            signer_name=manifest["spec"]["signerName"],
            requester=manifest["spec"]["username"],
            serial_number=certificate.serial_number,
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            ca_cert_hash="sha256:" + "ab" * 32,
            evidence_ca_cert_hash="sha256:" + "ab" * 32,
            certificate_digest=hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest(),
            public_key_digest=hashlib.sha256(certificate.public_key().public_bytes(*SPKI)).hexdigest(),
            created=NOW,
            decided=NOW,
        )
        self.records[record] = replace(self.records[record], journal=(*self.records[record].journal, entry))

    def journal_builtin(self, record: str, name: str) -> None:
        """The record allows that built-in serving request."""
        manifest = self.requests[name]
        request = x509.load_pem_x509_csr(base64.b64decode(manifest["spec"]["request"]))
        approval = BuiltinApproval(
            kind=BUILTIN_KUBELET_SERVING,
            csr_name=name,
            csr_uid=manifest["metadata"]["uid"],
            spec_digest=spec_digest(manifest["spec"]),
            public_key_digest=hashlib.sha256(request.public_key().public_bytes(*SPKI)).hexdigest(),
            created=NOW,
            decided=NOW,
        )
        self.records[record] = self.records[record].with_builtin_approval(approval)


def certificate_for(
    node_name: str,
    *alternative_names: str,
    serving: bool = False,
    signed_by: str = OURS,
    key: ec.EllipticCurvePrivateKey | None = None,
    is_authority: bool = False,
) -> x509.Certificate:
    """A certificate for the key that all requests of these tests have."""
    request = x509.load_pem_x509_csr(request_pem(NODE_USER_PREFIX + node_name, alternative_names=alternative_names))
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serving else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(authority(signed_by).name)
        .public_key((key or shared_key()).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + WEEK)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if alternative_names:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority(signed_by).key, hashes.SHA256())


def honest() -> Draft:
    """Two nodes; the first also has a serving certificate of ours and one of the built-in signer."""
    draft = Draft()
    for node_name in ("n1", "n2"):
        machine = MachineKey(CLUSTER, "Machine", node_name, f"test:///{node_name}")
        identity = AttestedIdentity("keyed-mac", f"identity-{node_name}", Security.SECURE)
        draft.records[node_name] = AttestedNode(
            machine, f"uid-{node_name}", node_name, identity, NOW, NOW, NOW + WEEK, ()
        )
        pair = Pair(machine, identity)
        draft.reservations += [
            {
                "metadata": {"name": pair.name(side), "uid": pair.name(side), "resourceVersion": "1"},
                "spec": reservation_spec(side, pair, keys=KEYS),
            }
            for side in ReservationSide
        ]
        certify(draft, f"join-{node_name}", CLIENT, node_name)
    certify(draft, "serving", SERVING, "n1", "n1.example", "10.1.0.1")
    draft.ask("builtin", BUILTIN_SERVING_SIGNER, "n1", "n1.example")
    draft.approve("builtin", certificate_for("n1", "n1.example", serving=True))
    draft.journal_builtin("n1", "builtin")
    draft.ask("waiting", BUILTIN_CLIENT_SIGNER, "n1")
    return draft


def certify(draft: Draft, name: str, signer: str, node_name: str, *alternative_names: str) -> None:
    """As the controller does it: journal, approval, certificate."""
    certificate = certificate_for(node_name, *alternative_names, serving=signer == SERVING)
    draft.ask(name, signer, node_name, *alternative_names)
    draft.journal(node_name, name, certificate)
    draft.approve(name, certificate)


def issue_instead(draft: Draft, certificate: x509.Certificate) -> None:
    """The journal allows it for the first join, and it was published there."""
    draft.records["n1"] = replace(draft.records["n1"], journal=draft.records["n1"].journal[1:])
    draft.journal("n1", "join-n1", certificate)
    draft.requests["join-n1"] = with_certificate(draft.requests["join-n1"], certificate.public_bytes(Encoding.PEM))


def change_entry(draft: Draft, **changes: Any) -> None:
    """Change the journal entry of the first join."""
    first, *others = draft.records["n1"].journal
    draft.records["n1"] = replace(draft.records["n1"], journal=(replace(first, **changes), *others))


def change_record(draft: Draft, name: str, **changes: Any) -> None:
    draft.records[name] = replace(draft.records[name], **changes)


def publish_another_certificate(draft: Draft) -> None:
    other = certificate_for("n1").public_bytes(Encoding.PEM)
    draft.requests["join-n1"] = with_certificate(draft.requests["join-n1"], other)


def take_approval_away(draft: Draft) -> None:
    draft.requests["join-n1"]["status"].pop("conditions")


def fail_after_certificate(draft: Draft) -> None:
    draft.requests["join-n1"] = with_conditions(draft.requests["join-n1"], condition("Failed"))


def another_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def recreate_under_the_same_name(draft: Draft) -> None:
    draft.requests["join-n1"]["metadata"]["uid"] = "another"
    encoded = base64.b64encode(request_pem(NODE_USER_PREFIX + "n1", key=another_key())).decode()
    draft.requests["join-n1"]["spec"]["request"] = encoded


def copy_the_request(draft: Draft) -> None:
    """Which is no violation: the copy has what the original has."""
    draft.requests["join-n1"]["metadata"]["uid"] = "another"


def change_the_spec(draft: Draft) -> None:
    encoded = base64.b64encode(request_pem(NODE_USER_PREFIX + "n2", key=another_key())).decode()
    draft.requests["join-n1"]["spec"]["request"] = encoded


def approve_and_never_sign(draft: Draft) -> None:
    draft.requests["join-n1"]["status"].pop("certificate")


def steal_by_the_builtin_signer(draft: Draft) -> None:
    draft.approve("waiting", certificate_for("n1"))


def drop_builtin_journal(draft: Draft) -> None:
    change_record(draft, "n1", builtin_approvals=())


def builtin_with_another_key(draft: Draft) -> None:
    (approval,) = draft.records["n1"].builtin_approvals
    change_record(draft, "n1", builtin_approvals=(replace(approval, public_key_digest="00" * 32),))


def builtin_for_another(draft: Draft) -> None:
    drop_builtin_journal(draft)
    draft.journal_builtin("n2", "builtin")


def builtin_without_security(draft: Draft) -> None:
    identity = replace(draft.records["n1"].identity, security=Security.INSECURE)
    change_record(draft, "n1", identity=identity)
    pair = Pair(draft.records["n1"].machine, identity)
    for side, reservation in zip(ReservationSide, draft.reservations[:2], strict=True):
        reservation["spec"] = reservation_spec(side, pair, keys=KEYS)


def two_records_one_identity(draft: Draft) -> None:
    change_record(draft, "n2", identity=draft.records["n1"].identity)


def two_records_one_machine(draft: Draft) -> None:
    change_record(draft, "n2", machine=draft.records["n1"].machine)


def one_certificate_twice(draft: Draft) -> None:
    (entry,) = draft.records["n2"].journal
    change_record(draft, "n2", journal=(entry, draft.records["n1"].journal[0]))


PLANTED: Final[dict[str, tuple[Callable[[Draft], object], str]]] = {
    "built-in client": (
        steal_by_the_builtin_signer,
        f"approved for {BUILTIN_CLIENT_SIGNER}, which no AttestedNode can",
    ),
    "no record": (lambda draft: draft.records.pop("n1"), "approved, and in no journal"),
    "record of others": (
        lambda draft: setattr(draft, "keys_of_others", frozenset({"n1"})),
        "join-n1: approved, and in no journal",
    ),
    "empty journal": (lambda draft: change_record(draft, "n1", journal=()), "approved, and in no journal"),
    "re-created": (recreate_under_the_same_name, "another key than the request"),
    "another spec": (change_the_spec, "another key than the request"),
    "never signed": (approve_and_never_sign, "approved, and without certificate"),
    "not approved": (take_approval_away, "a certificate without approval"),
    "failed": (fail_after_certificate, "a certificate without approval, or after failure"),
    "another certificate": (publish_another_certificate, "another certificate than the journal allows"),
    "another kind": (lambda draft: change_entry(draft, kind="kubelet-serving"), "as another kind of certificate"),
    "built-in with another key": (builtin_with_another_key, "journaled with another key"),
    "another serial number": (lambda draft: change_entry(draft, serial_number=1), "another serial number"),
    "another time": (lambda draft: change_entry(draft, not_after=NOW), "valid at another time"),
    "another requester": (lambda draft: change_entry(draft, requester="x"), "of another name, requester or signer"),
    "another signer": (lambda draft: change_entry(draft, signer_name=SERVING), "another name, requester or signer"),
    "another name": (lambda draft: change_entry(draft, csr_name="x"), "another name, requester or signer"),
    "another node": (lambda draft: issue_instead(draft, certificate_for("n2")), "the record for n1"),
    "another key": (
        lambda draft: issue_instead(draft, certificate_for("n1", key=another_key())),
        "another key than the request",
    ),
    "another CA": (
        lambda draft: issue_instead(draft, certificate_for("n1", signed_by="somebody else's")),
        "not of the cluster's CA",
    ),
    "another purpose": (
        lambda draft: issue_instead(draft, certificate_for("n1", serving=True)),
        "for another purpose than its signer's",
    ),
    "alternative names": (
        lambda draft: issue_instead(draft, certificate_for("n1", "kubernetes")),
        "a client certificate with alternative names",
    ),
    "an authority": (lambda draft: issue_instead(draft, certificate_for("n1", is_authority=True)), "an authority's"),
    "builtin, no journal": (drop_builtin_journal, "a built-in serving request, approved, and in no journal"),
    "builtin, another node": (builtin_for_another, "for another node than the requester"),
    "builtin, insecure": (builtin_without_security, "on the word of an insecure attestor"),
    "no pair": (lambda draft: draft.reservations.clear(), "its pair of reservations is not there"),
    "half a pair": (lambda draft: draft.reservations.pop(), "its pair of reservations is not there"),
    "identity twice": (two_records_one_identity, "in 2 AttestedNodes"),
    "Machine twice": (two_records_one_machine, "in 2 AttestedNodes"),
    "certificate twice": (one_certificate_twice, "journaled 2 times"),
}


def test_a_consistent_state_is_no_violation() -> None:
    assert violations(honest().shown()) == []


def test_a_copy_of_a_request_may_have_the_certificate_of_the_original() -> None:
    draft = honest()
    copy_the_request(draft)
    assert violations(draft.shown()) == []


def test_a_known_exception_is_no_violation() -> None:
    draft = honest()
    steal_by_the_builtin_signer(draft)
    assert violations(draft.shown(), not_ours={"waiting"}) == []


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_violation_is_found(planted: str) -> None:
    plant, said = PLANTED[planted]
    draft = honest()
    plant(draft)
    found = violations(draft.shown())
    assert any(said in text for text in found), found
