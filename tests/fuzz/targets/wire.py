"""What a node sends: blocks, certificate request, evidence, provider ID."""

from __future__ import annotations

import contextlib
from typing import Final

from attestors.wire import evidence, node_access, pem, provider_id, request, ssh_host_keys, statement
from attestors.wire.evidence import Evidence, MalformedEvidence, UnsupportedVersion
from attestors.wire.names import ForeignSigner, SignerName, parse_signer_name
from attestors.wire.node_access import NodeAccess, NodeAccessRefused, NodeAccessText
from attestors.wire.pem import Block, MalformedPEM
from attestors.wire.provider_id import InvalidProviderID
from attestors.wire.request import MalformedRequestBlocks, RequestBlocks
from attestors.wire.ssh_host_keys import HostKeysClaim, HostKeysRefused
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    MalformedStatement,
    NotPinned,
    PinnedController,
    SignedStatement,
    StatementRefused,
    UnsupportedStatement,
    accept_client_renewal,
    accept_controller_keys,
    accept_node_access_trust,
    accept_trust,
)
from signer.model.certificate_request import (
    CertificateRequest,
    MalformedCertificateRequest,
    parse_certificate_request,
)
from signer.model.signing_request import Malformed, MalformedBuiltinServingRequest, Parsed, parse_signing_request
from tests.fuzz.target import MAXIMUM_MESSAGE_CHARACTERS, Shape, Target, object_of, require, text_of
from tests.support.statements import controller

_MAXIMUM_BYTES: Final = 64 * 1024
_MAXIMUM_BLOCKS: Final = 4
_PROVIDERS: Final = frozenset({"aws", "composite", "gcp", "insecure", "keyed-mac", "tpm"})


def _pem(data: bytes) -> tuple[Block, ...]:
    blocks = pem.split(data, maximum_bytes=_MAXIMUM_BYTES, maximum_blocks=_MAXIMUM_BLOCKS)
    require(0 < len(blocks) <= _MAXIMUM_BLOCKS, "no block, or too many")
    require(b"".join(map(pem.encode, blocks)).rstrip(b"\n") == data.rstrip(b"\n"), "not what encode writes")
    return blocks


def _request_blocks(data: bytes) -> RequestBlocks:
    blocks = request.decode(data)
    require(request.decode(request.encode(blocks)) == blocks, "encode and decode do not agree")
    return blocks


def _evidence(data: bytes) -> Evidence:
    read = evidence.decode(data)
    require(evidence.decode(evidence.encode(read)) == read, "encode and decode do not agree")
    for name in read.fields:
        with contextlib.suppress(MalformedEvidence):
            require(0 < len(read.text(name, maximum_characters=100)) <= 100, "a text outside its bound")
        with contextlib.suppress(MalformedEvidence):
            require(len(read.binary(name, maximum_bytes=100)) <= 100, "bytes beyond their bound")
    return read


def _statement(data: bytes) -> SignedStatement:
    read = statement.decode(data)
    require(statement.encode(read) == data, "not the only encoding")
    now = read.statement.not_before
    with contextlib.suppress(StatementRefused):
        accept_trust(read, trusted=(), pin=NotPinned(), last_sequence=0, now=now)
        require(False, "trust without a signer")
    with contextlib.suppress(StatementRefused):
        accept_controller_keys(read, trusted=(), pin=NotPinned(), now=now)
        require(False, "a pin without a signer")
    with contextlib.suppress(StatementRefused):
        accept_client_renewal(read, trusted=(), pin=NotPinned(), last_sequence=0, now=now)
        require(False, "a renewal without a signer")
    return read


def _trust_bundle(data: bytes) -> SignedStatement:
    read = statement.decode(data, maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
    require(statement.encode(read) == data, "not the only encoding")
    pin = PinnedController(read.statement.cluster, controller("d", "c").public, 1)
    with contextlib.suppress(StatementRefused):
        accept_node_access_trust(read, trusted=(), pin=pin, last_sequence=0, now=read.statement.not_before)
        require(False, "a bundle without a signer")
    return read


def _ssh_host_keys(data: bytes) -> HostKeysClaim:
    read = ssh_host_keys.decode(data)
    require(ssh_host_keys.encode(read) == data, "not the only encoding")
    with contextlib.suppress(HostKeysRefused):
        ssh_host_keys.verify(read, b"the key of a request that nobody made")
        require(False, "a proof for a request that nobody made")
    return read


def _node_access(data: bytes) -> NodeAccess:
    found = node_access.find(data)
    require(not isinstance(found, NodeAccessText) or data.endswith(found.content), "something stands behind the text")
    read = node_access.parse(data)
    require(found == NodeAccessText(data), "a text that is not found")
    require(node_access.render(read) == data, "not the only form")
    return read


def _provider_id(data: bytes) -> str:
    read = provider_id.decode(data)
    require(provider_id.encode(read) == data, "not the only encoding")
    return read


def _provider_id_text(data: bytes) -> str:
    read = provider_id.check_provider_id(text_of(data))
    require(provider_id.decode(provider_id.encode(read)) == read, "encode and decode do not agree")
    return read


def _signer_name(data: bytes) -> object:
    text = text_of(data)
    read = parse_signer_name(text)
    require(isinstance(read, ForeignSigner) or str(read) == text, "another name than was read")
    require(not isinstance(read, SignerName) or text.isascii(), "a name that is no signer's")
    return read


def _certificate_request(data: bytes) -> CertificateRequest:
    return parse_certificate_request(data)


def _signing_request(data: bytes) -> Parsed:
    parsed = parse_signing_request(object_of(data), _PROVIDERS)
    if isinstance(parsed, Malformed | MalformedBuiltinServingRequest):
        require(parsed.message.isprintable(), "a message that is not printable")
        require(len(parsed.message) <= MAXIMUM_MESSAGE_CHARACTERS, "a message without bound")
    return parsed


TARGETS: Final = (
    Target("pem", _pem, (MalformedPEM,)),
    Target("request-blocks", _request_blocks, (MalformedRequestBlocks,)),
    Target("certificate-request", _certificate_request, (MalformedCertificateRequest,)),
    Target("signing-request", _signing_request, shape=Shape.JSON),
    Target("evidence", _evidence, (MalformedEvidence, UnsupportedVersion), Shape.JSON),
    Target("statement", _statement, (MalformedStatement, UnsupportedStatement), Shape.JSON),
    Target("trust-bundle", _trust_bundle, (MalformedStatement, UnsupportedStatement), Shape.JSON),
    Target("provider-id", _provider_id, (InvalidProviderID,)),
    Target("provider-id-text", _provider_id_text, (InvalidProviderID,)),
    Target("signer-name", _signer_name),
    Target("ssh-host-keys", _ssh_host_keys, (HostKeysRefused,)),
    Target("node-access", _node_access, (NodeAccessRefused,)),
)
