"""Writes the first inputs of each target: ``python -m tests.fuzz.seeds``. One that is there already stays as it is.

They come from the other fixtures and from what the tests build; keys in them were made for this and vouch for nothing.
"""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from attestors.aws.document.recorded import read_recorded
from attestors.gcp.wire import audience
from attestors.tpm.wire import ATTESTATION_PUBLIC_FIELD, ENDORSEMENT_PUBLIC_FIELD
from attestors.wire import evidence, request, ssh_host_keys, statement
from attestors.wire.evidence import Evidence
from attestors.wire.names import PROVIDER_ID_OID, Purpose
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    SerialRange,
    encode_revocation_list,
)
from attestors.wire.ssh.options import Extension, VerifyRequired
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh.sshsig import Namespace, sign_message
from attestors.wire.ssh_host_keys import HostKeysClaim
from attestors.wire.statement import ClientRenewal, PinnedController
from authenticator.model.attempt import Attempt, encode_attempt
from authenticator.model.ssh_state import SSHRejection, SSHState, encode_ssh_state
from authenticator.model.trust_state import Change, FormerFile, Rejection, TrustState, encode_pin, encode_state
from node_access.containers.protocol import (
    Connect,
    NoTerminal,
    Request,
    Run,
    Terminal,
    TransferFiles,
    encode_request,
)
from signer.authority.ssh.authorities import UserAuthority
from signer.model.authority_sharing import AuthorityHashes
from signer.model.auto_approval import parse_cluster_role_binding
from signer.model.cluster import ClusterKey
from signer.model.gateway_connection import GatewayConnection, render_gateway_connection
from signer.model.host_keys import AttestedHostKey, AttestedHostKeys
from signer.model.record_object import record_spec
from signer.model.reservation import Pair, ReservationSide
from signer.model.saved_bindings import Lineage, saved_data, saved_name
from signer.model.seal import KEY_BYTES, ControllerKeys
from signer.store.published_authorities import FIELD, authorities_to_publish
from signer.testing.certificates import (
    ClusterCertificateAuthority,
    EncryptionAlgorithm,
    new_cluster_certificate_authority,
)
from tests.fuzz.table import CORPUS
from tests.fuzz.targets.attested import BINDING, NOW
from tests.support.fake_google import FakeInstance
from tests.support.fake_google.compute import instance_document, shielded_document
from tests.support.node_access import certificate, text_of
from tests.support.openssh import private_key, private_key_text, public_keys
from tests.support.reservations import reservation_spec
from tests.support.statements import IDENTITY, authority, bundle, controller, signed, trust_of
from tests.support.yaml_documents import safe_load
from tests.unit.attestors.gcp import support as gcp
from tests.unit.authenticator import builders as node
from tests.unit.node_access.containers import made
from tests.unit.signer import builders
from tests.unit.signer.authority.ssh.requests import FOR_HOST, FOR_USER, HOSTS, USERS, authority_key

FIXTURES: Final = CORPUS.parent
_NAMED: Final = {"name": "prod", "namespace": "team-a", "uid": "u-1", "resourceVersion": "7", "generation": 1}
Seed = tuple[str, str, bytes]


def seeds() -> Iterator[Seed]:
    """Target, name of the input, input."""
    yield from _of_requests()
    yield from _of_tpms()
    yield from _of_clouds()
    yield from _of_answers()
    yield from _of_objects()
    yield from _of_authorities()
    yield from _of_nodes()
    yield from _of_ssh()
    yield from _of_streams()
    yield from _of_containers()


def _of_containers() -> Iterator[Seed]:
    requests: dict[str, Request] = {
        "shell": Run(Terminal("xterm-256color", 24, 80), ""),
        "command": Run(NoTerminal(), "cat /etc/hostname"),
        "sftp": TransferFiles(),
        "port": Connect(8080),
    }
    for name, asked in requests.items():
        yield "container-request", name, encode_request(asked)
    yield "container-bundle", "containerd", _json({"annotations": made.ANNOTATIONS, "process": made.PROCESS})


def _of_requests() -> Iterator[Seed]:
    for name in ("client", "serving"):
        manifest = json.loads((FIXTURES / "requests" / "v1" / f"{name}.json").read_text())["certificateSigningRequest"]
        manifest["metadata"].pop("managedFields", None)
        yield "signing-request", name, _json(manifest)
        sent = base64.b64decode(manifest["spec"]["request"])
        yield "pem", name, sent
        yield "request-blocks", name, sent
        blocks = request.decode(sent)
        yield "certificate-request", name, blocks.certificate_request
        yield "evidence", name, blocks.evidence
        read = x509.load_der_x509_csr(blocks.certificate_request)
        claim = read.extensions.get_extension_for_oid(x509.ObjectIdentifier(PROVIDER_ID_OID)).value
        assert isinstance(claim, x509.UnrecognizedExtension)
        yield "provider-id", name, claim.value
        yield "signer-name", name, manifest["spec"]["signerName"].encode()
    yield "signing-request", "stock-serving", _json(builders.builtin_serving_manifest())
    yield "certificate-request", "rsa", builders.pkcs10(builders.rsa_key("rsa-2048"))
    yield "provider-id-text", "aws", b"aws:///eu-west-1a/i-0123456789abcdef0"
    yield "signer-name", "stock", b"kubernetes.io/kubelet-serving"
    old, new = authority("old"), authority("new")
    yield "statement", "trust", statement.encode(signed(trust_of(new, old, nodes=("node-1", "node-2")), old, new))
    yield "statement", "keys", statement.encode(signed(controller("d", "c").public, old, keys=controller("d", "c")))
    renewal = ClientRenewal("0a" * 20, 1_800_000_000, 60)
    yield "statement", "renewal", statement.encode(signed(renewal, old, keys=controller("d", "c")))
    told = bundle(7, CertificateRevocations(AnyAuthority(), (SerialRange(7, 9),), ("grant/alice",)), renew_below=7)
    text = statement.encode(signed(told, old, keys=controller("d", "c"), sequence=7))
    yield "trust-bundle", "revocations", text
    keys = [private_key(kind) for kind in ("ed25519", "nistp384")]
    claims = tuple(ssh_host_keys.claim_with(key, b"any key") for key in keys)
    yield "ssh-host-keys", "two", ssh_host_keys.encode(HostKeysClaim(2**62, claims))
    yield "ssh-host-keys", "without-trust", ssh_host_keys.encode(HostKeysClaim(0, claims[:1]))
    yield "node-access", "two", text_of(*(certificate(public_key_of(key)) for key in keys))
    marked = text_of(certificate(public_key_of(keys[0])), break_glass_authorities=(public_key_of(keys[1]),))
    yield "node-access", "break-glass", marked
    yield "requester", "token", b"system:bootstrap:abcdef"
    yield "requester", "node", b"system:node:node-1"


def _evidence(**fields: str) -> bytes:
    return evidence.encode(Evidence("v1", gcp.request(gcp.token()).evidence.cluster, fields))


def _of_tpms() -> Iterator[Seed]:
    recorded = json.loads((FIXTURES / "tpm" / "swtpm.json").read_text())
    token = gcp.token(gcp.claims(issued=NOW, aud=audience(BINDING.value)))
    for number, quote in enumerate(recorded["quotes"]):
        yield "tpm-quote", f"quote-{number}", bytes.fromhex(quote["quote"])
        yield "tpm-signature", f"quote-{number}", bytes.fromhex(quote["signature"])
        yield "tpm-public", f"attestation-key-{number}", bytes.fromhex(quote["attestationKey"])
        yield "tpm-pcr-selection", f"quote-{number}", quote["pcrSelection"].encode()
    for number, credential in enumerate(recorded["credentials"]):
        keys = [bytes.fromhex(credential[key]) for key in ("endorsementKey", "attestationKey")]
        yield "tpm-public", f"endorsement-key-{number}", keys[0]
        fields = dict(zip((ENDORSEMENT_PUBLIC_FIELD, ATTESTATION_PUBLIC_FIELD), map(_base64, keys), strict=True))
        yield "evidence-tpm", f"first-{number}", _evidence(**fields)
        of_both = {"gcp.identityToken": token, **{f"tpm.{name}": value for name, value in fields.items()}}
        yield "evidence-composite", f"first-{number}", _evidence(**of_both)
        challenge = {
            "version": "v1",
            "token": f"7c1c0f3e-7d1e-4c0a-9b46-0f6a3f0f7a11.{1767323045 + number}",
            "credentialBlob": _base64(bytes.fromhex(credential["idObject"])),
            "encryptedSecret": _base64(bytes.fromhex(credential["encryptedSecret"])),
            "pcrSelection": "sha256:0,7",
        }
        yield "tpm-challenge", f"challenge-{number}", _json(challenge)
    yield "tpm-challenge-token", "token", b"7c1c0f3e-7d1e-4c0a-9b46-0f6a3f0f7a11-f7fe852cc85b8b16.1767323045"
    for folder in sorted((FIXTURES / "tpm" / "certificates").iterdir()):
        if folder.is_dir():
            stored = (folder / "endorsement-key-certificate.bin").read_bytes()
            yield "tpm-certificate", folder.name, stored
            yield "tpm-certificates", folder.name, stored
    digest = "sha256:" + "0f" * 32
    yield (
        "tpm-inventory",
        "two",
        f"# rack 7\nexample://rack-7/machine-12 {digest}\nexample://rack-7/13 {digest}\n".encode(),
    )
    yield "evidence-insecure", "bare", _evidence()


def _of_clouds() -> Iterator[Seed]:
    signed = read_recorded((FIXTURES / "aws" / "ap-southeast-2.rsa2048").read_bytes())
    yield "aws-signed-data", "ap-southeast-2", signed
    yield "aws-signed-document", "ap-southeast-2", signed
    yield "aws-document", "ap-southeast-2", (FIXTURES / "aws" / "ap-southeast-2.json").read_bytes()
    url = (
        "https://sts.ap-southeast-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
        "&X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=ASIAIOSFODNN7EXAMPLE%2F20260102%2Fap-southeast-2%2Fsts%2Faws4_request"
        "&X-Amz-Date=20260102T030405Z&X-Amz-Expires=300"
        "&X-Amz-SignedHeaders=host%3Bx-capi-node-attestation-binding"
        f"&X-Amz-Security-Token=IQoJb3JpZ2luX2VjEXAMPLE%2F%2B%3D&X-Amz-Signature={'0f' * 32}"
    )
    yield "aws-presigned-request", "example", url.encode()
    fields = {"identityDocument": _base64(signed), "callerIdentityRequest": url, "callerIdentityBinding": "0f" * 32}
    yield "evidence-aws", "presigned", _evidence(**fields)
    caller = {
        "Arn": "arn:aws:sts::123456789012:assumed-role/nodes.example/i-0123456789abcdef0",
        "Account": "123456789012",
        "UserId": "AROAIOSFODNN7EXAMPLE:i-0123456789abcdef0",
    }
    answer = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": caller, "ResponseMetadata": {"RequestId": "1"}}}
    yield "aws-caller", "instance", _json(answer)
    yield "aws-caller-refused", "expired", _json({"Error": {"Code": "ExpiredToken", "Message": "m", "Type": "Sender"}})
    claims = {
        "iss": "https://0123456789abcdef.tokens.sts.global.api.aws",
        "aud": "https://attestation.cluster.x-k8s.io/binding/" + "0f" * 32,
        "sub": "arn:aws:iam::123456789012:role/nodes.example",
        "iat": 1767323045,
        "exp": 1767323345,
        "jti": "1",
        "https://sts.amazonaws.com/": {
            "aws_account": "123456789012",
            "ec2_source_instance_arn": "arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0",
            "ec2_role_delivery": "2.0",
            "principal_id": "arn:aws:iam::123456789012:role/nodes.example",
        },
    }
    token = gcp.token(claims).encode()
    yield "aws-web-identity", "token", token
    yield "json-web-token", "token", token
    yield "evidence-aws", "token", _evidence(identityDocument=_base64(signed), webIdentityToken=token.decode())
    numbers = gcp.KEY.key.public_key().public_numbers()
    key = {
        "kty": "RSA",
        "kid": "one",
        "use": "sig",
        "alg": "RS256",
        "n": base64.urlsafe_b64encode(numbers.n.to_bytes(256, "big")).decode().rstrip("="),
        "e": "AQAB",
    }
    yield "json-web-key-set", "rsa", _json({"keys": [key]})
    of_google = gcp.token(gcp.claims(issued=NOW, aud=audience(BINDING.value)))
    yield "gcp-token", "instance", of_google.encode()
    yield "evidence-gcp", "token", _evidence(identityToken=of_google)
    certificate = new_cluster_certificate_authority(serial_number=7, now=NOW).certificate.decode()
    yield "gcp-certificates", "one", _json({"0f0f": certificate})
    instance = FakeInstance()
    yield "gcp-instance", "one", _json(instance_document(instance))
    yield "gcp-shielded-instance", "one", _json(shielded_document(instance))
    yield "gce-provider-id", "one", b"gce://example-project/europe-west1-b/worker-1"
    yield "cloud-url", "https", b"https://oauth2.example:8443/keys?alt=json"


def _of_answers() -> Iterator[Seed]:
    """As kube-apiserver writes them; and what is rarer."""
    head = (
        b"HTTP/1.1 200 OK\r\nAudit-Id: 7c1c0f3e-7d1e-4c0a-9b46-0f6a3f0f7a11\r\nCache-Control: no-cache, private\r\n"
        b"Content-Type: application/json\r\nDate: Sun, 22 Nov 2026 13:00:00 GMT\r\n"
    )
    yield "http-answer", "object", head + b'Content-Length: 15\r\n\r\n{"kind":"List"}'
    event = b'{"type":"BOOKMARK","object":{}}\n'
    yield (
        "http-answer",
        "watch",
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(event), event),
    )
    refused = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    yield "http-answer", "refused", refused
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"
    chunks = b"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n"
    yield "http-answer", "trailers", hint + b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + chunks
    yield "http-answer", "no-length", b"HTTP/1.1 502 X\r\nContent-Type: text/html\r\n\r\n<p>"


def _of_objects() -> Iterator[Seed]:
    record = builders.record().with_builtin_approval(builders.builtin_approval())
    named = {**_NAMED, "namespace": record.machine.cluster.namespace, "name": record.name}
    spec = {**record_spec(record), "seal": "v2.0.0"}
    yield "record", "lines", _json({"metadata": named, "spec": spec})
    unknown = builders.record(journal=(builders.journal_entry(kind="of-a-later-version"),))
    ssh = AttestedHostKeys(
        trust_version=7,
        attested=unknown.first_attestation,
        host_keys=(AttestedHostKey(key_line(public_key_of(private_key("ed25519"))), 4711),),
        principals=("node-1", "192.0.2.1"),
        not_before=unknown.first_attestation,
        not_after=unknown.last_not_after,
        authority="SHA256:abc",
        nonce_key="0123456789abcdef",
    )
    yield (
        "record",
        "ssh",
        _json({"metadata": named, "spec": {**record_spec(replace(unknown, ssh=ssh)), "seal": "v2.0.0"}}),
    )
    yield "record", "unknown-kind", _json({"metadata": named, "spec": {**record_spec(unknown), "seal": "v2.0.0"}})
    pair = Pair(record.machine, record.identity)
    for side in ReservationSide:
        metadata = {"name": pair.name(side), "namespace": "node-attestation-system", "uid": "u", "resourceVersion": "1"}
        yield "reservation", side.name.lower(), _json({"metadata": metadata, "spec": reservation_spec(side, pair)})
    hashes = AuthorityHashes(frozenset({"sha256:" + "01" * 32}), frozenset({"sha256:" + "02" * 32}))
    sealed_with = ControllerKeys(b"k" * KEY_BYTES)
    published = authorities_to_publish(ClusterKey("team-a", "prod"), str(_NAMED["uid"]), hashes, sealed_with)
    yield "published-authorities", "sealed", _json({"metadata": _NAMED, "status": {FIELD: published}})
    for what, count in (("many", 64), ("too-many", 65)):
        listed = [f"sha256:{number:064x}" for number in range(count)]
        field = {"keys": listed, "issuers": [*listed[:3], *published["issuers"]], "seal": "x"}
        yield "published-authorities", what, _json({"metadata": _NAMED, "status": {FIELD: field}})
    authorities = tuple(public_key_of(private_key(key_type)) for key_type in ("ed25519", "nistp384"))
    connection = GatewayConnection(ClusterKey("team-a", "production"), b"apiVersion: v1\n", authorities)
    yield "gateway-connection", "two-authorities", _json(render_gateway_connection(connection, "node-access-gateway"))
    folder = FIXTURES.parent / "deploy" / "policies"
    for file in sorted(folder.glob("*.yaml")):
        document = safe_load(file.read_text(encoding="utf-8"))
        yield "policy", file.stem, _json({**document, "metadata": _NAMED})
        yield "strict-yaml", file.stem, file.read_bytes()
    yield (
        "cluster",
        "one",
        _json(
            {
                "metadata": _NAMED,
                "spec": {
                    "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
                    "clusterNetwork": {
                        "services": {"cidrBlocks": ["10.96.0.0/12"]},
                        "pods": {"cidrBlocks": ["10.0.0.0/8"]},
                    },
                    "infrastructureRef": {
                        "apiGroup": "infrastructure.example",
                        "kind": "ExampleCluster",
                        "name": "prod",
                    },
                },
                "status": {"conditions": [{"type": "ControlPlaneInitialized", "status": "True"}]},
            }
        ),
    )
    yield (
        "machine",
        "one",
        _json(
            {
                "metadata": {
                    **_NAMED,
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                    "annotations": {"attestation.cluster.x-k8s.io/tpm-endorsement-key": "sha256:" + "0f" * 32},
                    "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "md"}],
                },
                "spec": {"clusterName": "prod", "providerID": "test:///1", "version": "v1.34.0"},
                "status": {
                    "nodeRef": {"name": "node-1"},
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                },
            }
        ),
    )
    yield (
        "machine-pool",
        "one",
        _json(
            {
                "metadata": _NAMED,
                "spec": {"clusterName": "prod", "replicas": 2, "providerIDList": ["test:///1", "test:///2"]},
                "status": {"nodeRefs": [{"name": "node-1"}], "readyReplicas": 1},
            }
        ),
    )
    token = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": "2026-03-01T12:15:00Z"}
    yield (
        "bootstrap-token",
        "one",
        _json(
            {
                "type": "bootstrap.kubernetes.io/token",
                "metadata": {
                    "name": "bootstrap-token-abcdef",
                    "namespace": "kube-system",
                    "uid": "u",
                    "resourceVersion": "1",
                },
                "data": {key: _base64(text.encode()) for key, text in token.items()},
            }
        ),
    )
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m1", "uid": "u", "controller": True}
    discovery = {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}}
    yield (
        "bootstrap-config",
        "one",
        _json(
            {
                "metadata": {**_NAMED, "ownerReferences": [owner]},
                "spec": {"joinConfiguration": {"discovery": discovery}},
            }
        ),
    )
    rule = {
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests/nodeclient"],
        "verbs": ["create"],
    }
    yield "cluster-role", "one", _json({"metadata": {"name": "approve"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "kubeadm:node-autoapprove-bootstrap", "uid": "u", "resourceVersion": "1"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approve"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}],
    }
    yield "cluster-role-binding", "one", _json(binding)
    cluster = ClusterKey("team-a", "prod")
    lineage = Lineage(("c-1",), ("sha256:" + "0f" * 32,), {"one": parse_cluster_role_binding(binding)})
    kept = saved_data(cluster, {"lineage-" + "0f" * 20: lineage})
    yield "kept-grants", "one", _json({"metadata": {**_NAMED, "name": saved_name(cluster)}, "data": kept})
    keys = {"current": _base64(bytes(range(32))), "previous": _base64(bytes(range(32, 64)))}
    yield "controller-key", "two", _json({"metadata": _NAMED, "data": keys})
    yield (
        "controller-configuration",
        "tpm",
        (b"attestors:\n  tpm:\n    namespaces: [team-a]\n    settings: {endorsementRootsFolder: /etc/roots}\n"),
    )
    yield (
        "kubeadm-config",
        "one",
        b"apiServer:\n  certSANs: [api.example, '*.apps.example']\ncontrolPlaneEndpoint: vip.example:6443\n",
    )
    yield "kubernetes-time", "one", b"2026-01-02T03:04:05Z"


def _authority(algorithm: EncryptionAlgorithm = EncryptionAlgorithm.ECDSA_P256) -> ClusterCertificateAuthority:
    return new_cluster_certificate_authority(algorithm, now=NOW)


def _of_authorities() -> Iterator[Seed]:
    authority = _authority()
    yield (
        "ca-certificate",
        "elliptic",
        ssl.PEM_cert_to_DER_cert(authority.certificate.decode("ascii")),
    )
    yield "authority-pem", "bundle", authority.certificate * 2
    yield "certificate-authority", "elliptic", authority.certificate + b"\0" + authority.private_key
    yield "private-key", "elliptic", authority.private_key
    yield "private-key", "rsa", (FIXTURES / "keys" / "rsa-2048.pem").read_bytes()
    document = node.kubeconfig()
    document["users"][0]["user"] = {"token": "abcdef.0123456789abcdef"}
    yield "kubeconfig", "token", node.as_yaml(document)
    pair = node.pair()
    document["users"][0]["user"] = {
        "client-certificate-data": _base64(pair.certificate.encode()),
        "client-key-data": _base64(pair.key.encode()),
    }
    yield "kubeconfig", "client-certificate", node.as_yaml(document)


def _of_nodes() -> Iterator[Seed]:
    pair = node.pair()
    yield "node-pair", "one", pair.encode().encode()
    yield "node-issued-certificate", "one", f"{pair.certificate}\0{pair.key}".encode()
    yield "node-attempt", "pending", encode_attempt(Attempt(node.pending(), node.pause())).encode()
    keys = controller("d", "c").public
    rejection = SSHRejection("OlderTrust", "version 6 of the trust", 5)
    yield "node-ssh-state", "rejected", encode_ssh_state(SSHState(7, "0f" * 32, rejection, 6)).encode()
    yield "node-pin", "two", encode_pin(PinnedController(IDENTITY, keys, 7)).encode()
    former = (FormerFile("/etc/kubernetes/pki/ca.crt", node.authority()),)
    state = TrustState(
        sequence=6,
        highest=7,
        lineage=("sha256:" + "0f" * 32,),
        superseded=((Purpose.CLIENT, "0f" * 32),),
        change=Change(node.authority(1), 7, former, 60),
        rejection=Rejection("KubeletFailed", "it does not answer", 7, 1790000000, 1, 1790000600),
    )
    yield "node-trust-state", "full", encode_state(state).encode()
    cluster = {"server": node.SERVER, "certificateAuthority": node.authority(), "tlsServerName": ""}
    yield "node-stored-cluster", "one", _json({"cluster": cluster, "usedBootstrap": "0f" * 32})
    yield "node-stored-bootstrap", "token", _json({"cluster": cluster, "credential": {"token": node.TOKEN}})
    configuration: dict[str, Any] = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAuthenticatorConfiguration",
        "provider": "keyed-mac",
        "settings": {"provider-id": node.PROVIDER_ID},
        "nodeName": node.NODE,
        "store": "/var/lib/kubelet/pki",
        "timeoutSeconds": 60,
        "serving": {"dnsNames": ["node-1.example"], "ipAddresses": ["192.0.2.1"]},
    }
    yield "node-configuration", "one", _json(configuration)
    yield "node-exec-info", "one", node.exec_info().encode()
    yield "node-bootstrap-kubeconfig", "token", node.as_yaml(node.kubeconfig())
    yield "node-kubelet-kubeconfig", "token", node.as_yaml(node.kubeconfig())
    condition = {"type": "Denied", "status": "True", "reason": "ProviderIDMismatch", "message": "no such Machine"}
    challenged = {"type": "Denied", "status": "True", "reason": "ChallengeIssued", "message": "prove it"}
    annotations = {"attestation.cluster.x-k8s.io/challenge": "{}"}
    yield "node-answer", "denied", _json({"metadata": {}, "status": {"conditions": [condition]}})
    yield (
        "node-answer",
        "challenged",
        _json({"metadata": {"annotations": annotations}, "status": {"conditions": [challenged]}}),
    )
    yield "node-answer", "issued", _json({"status": {"certificate": _base64(pair.certificate.encode())}})
    yield (
        "node-server-body",
        "status",
        _json({"kind": "Status", "status": "Failure", "message": "not found", "code": 404}),
    )
    credentials = {
        "Code": "Success",
        "AccessKeyId": "ASIAIOSFODNN7EXAMPLE",
        "SecretAccessKey": "0" * 40,
        "Token": "IQoJb3JpZ2luX2VjEXAMPLE",
        "Expiration": "2026-01-02T09:04:05Z",
    }
    yield "node-role-credentials", "one", _json(credentials)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _of_ssh() -> Iterator[Seed]:
    namespace = Namespace("host-key@attestation.example")
    for name, key in public_keys().items():
        if name.startswith("rsa-"):
            continue  # each time another one
        yield "ssh-public-key", name, key.blob
        yield "ssh-key-line", name, key_line(key).encode()
        yield "ssh-key-file", name, f"{key_line(key)} alice@laptop\n".encode()
        request = replace(
            FOR_USER, public_key=key, extensions=(Extension.PERMIT_PTY,), critical_options=(VerifyRequired(),)
        )
        yield "ssh-certificate", f"user-{name}", USERS.sign(request).blob
    yield "ssh-certificate", "host", HOSTS.sign(FOR_HOST).blob
    for name in ("ed25519", "nistp384"):
        signed = sign_message(private_key(name), namespace, b"message")
        yield "ssh-signature", name, signed.blob
        yield "ssh-signature-text", name, signed.armored.encode()
        yield "ssh-private-key", name, private_key_text(private_key(name))
    serials = (SerialRange.single(7), SerialRange(20, 40))
    revocations = RevocationList(
        version=3,
        generated=1_767_323_045,
        certificates=(CertificateRevocations(USERS.public_key, serials, ("grant/a", "grant/b")),),
        keys=(public_keys()["sk-ecdsa"],),
        fingerprints=(Fingerprint.of(public_keys()["ed25519"]),),
    )
    yield "ssh-revocation-list", "written", encode_revocation_list(revocations)
    bitmap = bytes.fromhex("01000000260000000000000000220000001900000000000000010000000d") + bytes(range(1, 14))
    yield "ssh-revocation-list", "bitmap", encode_revocation_list(RevocationList(1, 1)) + bitmap
    secret = {"key": _base64(bytes(range(32))), "salt": _base64(bytes(range(32, 64)))}
    yield "ssh-master-secret", "constellation", _json(secret)
    authority = UserAuthority(authority_key("nistp384"))
    data = {
        "ssh-privatekey": _base64(private_key_text(authority.private_key)),
        "ssh-publickey": _base64(key_line(authority.public_key).encode()),
    }
    named = {"name": "production-ssh-user", "namespace": "default"}
    yield "ssh-authority", "user", _json({"apiVersion": "v1", "kind": "Secret", "metadata": named, "data": data})


def _of_streams() -> Iterator[Seed]:
    yield "gateway-exec-message", "output", b"\x01total 4\n"
    yield "gateway-exec-message", "error", b"\x02sh: nosuch: not found\n"
    success = {"metadata": {}, "status": "Success"}
    exited = {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: exit status 3",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    failed = {"metadata": {}, "status": "Failure", "message": "no such file", "reason": "InternalError", "code": 500}
    yield "gateway-exec-message", "status", b"\x03" + _json(success)
    for name, status in (("success", success), ("exit-code", exited), ("failure", failed)):
        yield "gateway-status", name, _json(status)
    port = b"\x90\x1f"
    refused = b"error forwarding port 8080 to pod web-0: connection refused"
    messages = (b"\x00" + port, b"\x01" + port, b"\x00hello", b"\x01" + refused)
    yield "gateway-port-messages", "refused", b"".join(bytes((len(each),)) + each for each in messages)
    yield "gateway-person", "mail", b"alice@example.org"
    yield "gateway-person", "service-account", b"system:serviceaccount:ci:deployer"


def write(folder: Path) -> list[Path]:
    """Write what is not there yet; returns what was written."""
    written = []
    for target, name, content in seeds():
        file = folder / target / f"seed-{name}"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            written.append(file)
    return written


if __name__ == "__main__":
    print(f"{len(write(CORPUS))} written")
