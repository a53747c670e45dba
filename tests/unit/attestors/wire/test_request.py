from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import pem, request
from attestors.wire.names import MAXIMUM_REQUEST_BYTES
from attestors.wire.pem import Block
from attestors.wire.request import MalformedRequestBlocks, RequestBlocks
from tests.unit.attestors.support import PATIENT

CSR = pem.encode(Block("CERTIFICATE REQUEST", b"pkcs#10"))
PROVIDER = pem.encode(Block("KUBELET AUTHENTICATOR ATTESTATION PROVIDER", b"tpm"))
DATA = pem.encode(Block("KUBELET AUTHENTICATOR ATTESTATION DATA", b"{}"))
ALIAS = pem.encode(Block("ATTESTATION DATA", b"{}"))
UNKNOWN = pem.encode(Block("CERTIFICATE", b"x"))
HEADERS = DATA.replace(b"-----\n", b"-----\nProc-Type: 4,ENCRYPTED\n\n", 1)

READ = RequestBlocks(certificate_request=b"pkcs#10", provider="tpm", evidence=b"{}")

providers = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True)
contents = st.binary(min_size=1, max_size=200)


def provider_block(content: bytes) -> bytes:
    return pem.encode(Block("KUBELET AUTHENTICATOR ATTESTATION PROVIDER", content))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(CSR + PROVIDER + DATA, id="as-written"),
        pytest.param(CSR + DATA + PROVIDER, id="data-before-provider"),
        pytest.param(CSR + PROVIDER + ALIAS, id="alias"),
        pytest.param(CSR + ALIAS + PROVIDER, id="alias-before-provider"),
        pytest.param((CSR + PROVIDER + DATA)[:-1], id="no-last-newline"),
    ],
)
def test_reads(data: bytes) -> None:
    assert request.decode(data) == READ


def test_writes_the_blocks_in_their_order_and_never_the_alias() -> None:
    assert request.encode(READ) == CSR + PROVIDER + DATA


@PATIENT
@given(st.builds(RequestBlocks, contents, providers, contents))
def test_reads_back_what_it_writes(blocks: RequestBlocks) -> None:
    assert request.decode(request.encode(blocks)) == blocks


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(CSR, "PROVIDER block is missing", id="csr-alone"),
        pytest.param(CSR + PROVIDER, "DATA block is missing", id="no-data"),
        pytest.param(CSR + DATA, "PROVIDER block is missing", id="no-provider"),
        pytest.param(PROVIDER + DATA, "first block is not CERTIFICATE REQUEST", id="no-csr"),
        pytest.param(PROVIDER + CSR + DATA, "first block is not CERTIFICATE REQUEST", id="csr-second"),
        pytest.param(PROVIDER + DATA + CSR, "first block is not CERTIFICATE REQUEST", id="csr-last"),
        pytest.param(UNKNOWN + PROVIDER + DATA, "first block is not CERTIFICATE REQUEST", id="unknown-first"),
        pytest.param(
            CSR.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST") + PROVIDER + DATA,
            "first block is not CERTIFICATE REQUEST",
            id="netscape-label",
        ),
        pytest.param(CSR + CSR + DATA, "unknown block follows", id="two-csrs"),
        pytest.param(CSR + PROVIDER + CSR, "unknown block follows", id="csr-again-at-the-end"),
        pytest.param(CSR + PROVIDER + UNKNOWN, "unknown block follows", id="unknown-block"),
        pytest.param(CSR + PROVIDER + PROVIDER, "more than one KUBELET", id="two-providers"),
        pytest.param(CSR + DATA + DATA, "more than one KUBELET", id="two-data"),
        pytest.param(CSR + ALIAS + ALIAS, "more than one KUBELET", id="two-aliases"),
        pytest.param(CSR + DATA + ALIAS, "more than one KUBELET", id="name-and-alias"),
        pytest.param(CSR + ALIAS + DATA, "more than one KUBELET", id="alias-and-name"),
        pytest.param(CSR + PROVIDER + DATA + ALIAS, "more than 3 PEM blocks", id="all-and-alias"),
        pytest.param(CSR + PROVIDER + DATA + CSR, "more than 3 PEM blocks", id="all-and-csr"),
        pytest.param(b"text\n" + CSR + PROVIDER + DATA, "line 1", id="text-before"),
        pytest.param(b"\n" + CSR + PROVIDER + DATA, "line 1", id="newline-before"),
        pytest.param(CSR + b"\n" + PROVIDER + DATA, "line 4", id="newline-between"),
        pytest.param(CSR + b"text\n" + PROVIDER + DATA, "line 4", id="text-between"),
        pytest.param(CSR + PROVIDER + DATA + b"\n", "line 10", id="newline-behind"),
        pytest.param(CSR + PROVIDER + DATA + b"text", "line 10", id="text-behind"),
        pytest.param(CSR + PROVIDER + HEADERS, "not a line of base64", id="headers"),
        pytest.param(
            CSR.replace(b"-----\n", b"-----\nA: b\n\n", 1) + PROVIDER + DATA, "not a line of base64", id="csr-headers"
        ),
        pytest.param((CSR + PROVIDER + DATA).replace(b"\n", b"\r\n"), "line 1", id="carriage-returns"),
        pytest.param(CSR + provider_block(b"") + DATA, "the block is empty", id="empty-provider"),
        pytest.param(CSR + provider_block(b"TPM") + DATA, "holds no provider name", id="upper-case-provider"),
        pytest.param(CSR + provider_block(b"tpm\n") + DATA, "holds no provider name", id="newline-in-provider"),
        pytest.param(CSR + provider_block(b"tpm\0") + DATA, "holds no provider name", id="zero-byte-in-provider"),
        pytest.param(CSR + provider_block(b"\xfftpm") + DATA, "holds no provider name", id="provider-not-utf8"),
        pytest.param(CSR + provider_block(b"\xef\xbb\xbftpm") + DATA, "holds no provider name", id="byte-order-mark"),
        pytest.param(CSR + provider_block(b"a" * 41) + DATA, "holds no provider name", id="long-provider"),
    ],
)
def test_refuses(data: bytes, message: str) -> None:
    with pytest.raises(MalformedRequestBlocks) as refused:
        request.decode(data)
    assert message in str(refused.value)


def largest() -> bytes:
    """A request of exactly 64 KiB: base64 grows in steps, so two of its blocks have to fit together."""
    for csr_size in range(1, 400):
        csr = pem.encode(Block("CERTIFICATE REQUEST", bytes(csr_size)))
        for evidence_size in range(47_800, 48_300, 3):
            evidence = pem.encode(Block("KUBELET AUTHENTICATOR ATTESTATION DATA", bytes(evidence_size)))
            data = csr + PROVIDER + evidence
            if len(data) == MAXIMUM_REQUEST_BYTES:
                return data
    raise AssertionError("no sizes fit together")


def test_64_kibibytes_are_read_and_one_more_byte_is_not() -> None:
    data = largest()
    blocks = request.decode(data)
    assert request.encode(blocks) == data
    with pytest.raises(MalformedRequestBlocks, match="larger than 65536 bytes"):
        request.decode(data + b"\n")


def test_does_not_write_what_no_controller_reads() -> None:
    with pytest.raises(MalformedRequestBlocks, match="larger than 65536 bytes"):
        request.encode(RequestBlocks(b"pkcs#10", "tpm", bytes(MAXIMUM_REQUEST_BYTES)))


@PATIENT
@given(st.lists(st.sampled_from([CSR, PROVIDER, DATA, ALIAS, UNKNOWN, HEADERS, b"\n", b"text\n"]), max_size=5))
def test_only_a_csr_and_each_attestation_block_once_is_read(parts: list[bytes]) -> None:
    """Over every arrangement of parts, against the rule as a person would write it down."""
    data = [DATA if part == ALIAS else part for part in parts]
    allowed = data in ([CSR, PROVIDER, DATA], [CSR, DATA, PROVIDER])
    try:
        assert request.decode(b"".join(parts)) == READ
        assert allowed
    except MalformedRequestBlocks:
        assert not allowed


def test_the_evidence_is_never_shown() -> None:
    assert "secret" not in repr(RequestBlocks(certificate_request=b"x", provider="aws", evidence=b"secret"))


def test_shows_no_evidence_by_itself() -> None:
    assert "hunter2" not in repr(RequestBlocks(b"pkcs#10", "tpm", b"hunter2"))
