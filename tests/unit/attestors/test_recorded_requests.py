"""A recorded request of every released format verifies, for ever (``fixtures/requests``)."""

from __future__ import annotations

import base64
import copy
import json
import ssl
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.contract import AttestationRequest, AttestorSettings, Outcome, VerifiedIdentity
from attestors.registry import Registry
from attestors.wire import binding, evidence, provider_id, request
from attestors.wire.binding import BindingMismatch
from attestors.wire.names import PROVIDER_ID_OID, Purpose, SignerName, parse_signer_name
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.model.certificate_request import COMMON_NAME
from signer.model.signing_request import SigningRequest, parse_signing_request
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.record_requests import record

FOLDER = Path(__file__).parents[3] / "fixtures" / "requests"
RECORDINGS = sorted(FOLDER.glob("*/*.json"))

recordings = pytest.mark.parametrize(
    "file", [pytest.param(file, id=f"{file.parent.name}-{file.stem}") for file in RECORDINGS]
)


def read(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def cluster_hash(recording: dict[str, Any]) -> str:
    return parse_ca_certificate(ssl.PEM_cert_to_DER_cert(recording["clusterCACertificate"])).public_key_hash


async def verify(recording: dict[str, Any]) -> Outcome:
    """What the core does with a request, as far as it concerns the attestor; each step of the wire format by itself."""
    stored = recording["certificateSigningRequest"]
    signer = parse_signer_name(stored["spec"]["signerName"])
    assert isinstance(signer, SignerName)
    blocks = request.decode(base64.b64decode(stored["spec"]["request"]))
    assert blocks.provider == signer.provider
    certificate_request = x509.load_der_x509_csr(blocks.certificate_request)
    assert certificate_request.is_signature_valid
    claim = certificate_request.extensions.get_extension_for_oid(x509.ObjectIdentifier(PROVIDER_ID_OID)).value
    assert isinstance(claim, x509.UnrecognizedExtension)
    envelope = evidence.decode(blocks.evidence)
    expected = binding.compute(
        evidence_version=envelope.version,
        cluster=envelope.cluster,
        signer_name=signer,
        subject_public_key_info=certificate_request.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        ),
    )
    operator = {"masterKey": recording["masterKey"], "acceptUndatedEvidence": True}
    plugin = Registry().load(signer.provider).server_plugin(AttestorSettings(operator=operator))
    verify_purpose = plugin.verify_client if signer.purpose is Purpose.CLIENT else plugin.verify_serving
    return await verify_purpose(
        AttestationRequest(
            provider_id=provider_id.decode(claim.value),
            evidence=envelope,
            binding=expected,
            cluster_namespace="default",
            cluster_name="recorded",
            cluster_uid="recorded",
            csr_uid=stored["metadata"]["uid"],
            dns_names=(),
            ip_addresses=(),
            now=datetime.fromisoformat(stored["metadata"]["creationTimestamp"]),
        )
    )


def test_the_recordings_are_there() -> None:
    assert {f"{file.parent.name}/{file.name}" for file in RECORDINGS} >= {"v1/client.json", "v1/serving.json"}


@recordings
async def test_verifies(file: Path) -> None:
    recording = read(file)
    outcome = await verify(recording)
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == recording["providerID"]
    assert outcome.binding.value.hex() == recording["binding"]


@recordings
def test_is_read_as_a_signing_request(file: Path) -> None:
    recording = read(file)
    parsed = parse_signing_request(recording["certificateSigningRequest"], frozenset({"keyed-mac"}))
    assert isinstance(parsed, SigningRequest)
    assert parsed.header.signer.purpose.value == file.stem
    assert parsed.evidence.version == file.parent.name
    assert parsed.evidence.cluster.text == cluster_hash(recording)
    subject = {attribute.oid: attribute.value for [attribute] in parsed.certificate_request.subject}
    common_name = subject[COMMON_NAME]
    assert common_name == f"system:node:{recording['nodeName']}"
    username = parsed.header.username
    assert username == common_name if file.stem == "serving" else username.startswith("system:bootstrap:")


async def test_a_recording_verifies_for_its_own_signer_only() -> None:
    """The test above would fail if the binding did not count."""
    recording = copy.deepcopy(read(FOLDER / "v1" / "client.json"))
    recording["certificateSigningRequest"]["spec"]["signerName"] = str(SignerName(Purpose.SERVING, "keyed-mac"))
    with pytest.raises(BindingMismatch):
        await verify(recording)


def test_a_recording_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "serving.json").write_text("recorded long ago")
    with pytest.raises(FileExistsError, match="never replaced"):
        record(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["serving.json"]


@pytest.mark.real
@pytest.mark.slow
async def test_a_recording_can_be_made_again(tmp_path: Path) -> None:
    try:
        files = record(tmp_path / "v1")
    except MissingPart as missing:
        skip_or_fail(missing)
    for file in files:
        assert isinstance(await verify(read(file)), VerifiedIdentity)
        test_is_read_as_a_signing_request(file)
