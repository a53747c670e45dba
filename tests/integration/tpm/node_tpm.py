"""What the tests of the TPM attestor's agent plugin share: requests, challenges, and a look inside the TPM."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding
from tpm2_pytss import ESAPI
from tpm2_pytss.constants import ESYS_TR, TPM2_CAP, TPMA_NV
from tpm2_pytss.types import TPM2B_NV_PUBLIC, TPM2B_PUBLIC, TPMS_NV_PUBLIC, TPMT_PUBLIC
from tpm2_pytss.utils import make_credential

from attestors.contract import GatherRequest
from attestors.tpm.node.plugin import TPMAgentPlugin, agent_plugin_from
from attestors.wire.binding import Binding
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose
from tests.support.software_tpm import SoftwareTPM

SECRET: Final = bytes(range(32))
BINDING: Final = Binding(bytes(range(100, 132)))
CLUSTER: Final = "sha256:" + "ab" * 32
DER: Final = Encoding.DER
PCRS: Final = "sha256:0,1,2,3,4,5,6,7,16,23"

_TRANSIENT: Final = 0x80000000
_LOADED_SESSIONS: Final = 0x02000000


def agent_plugin(tpm: SoftwareTPM, **settings: str) -> TPMAgentPlugin:
    return agent_plugin_from({"tcti": tpm.tcti, **settings})


def request(challenge: str = "") -> GatherRequest:
    return GatherRequest(BINDING, CLUSTER, "v1", Purpose.CLIENT, challenge)


def field(evidence: Evidence, name: str) -> bytes:
    return base64.b64decode(evidence.fields[name], validate=True)


def public(evidence: Evidence, name: str) -> Any:
    """TPMT_PUBLIC of that field."""
    content = field(evidence, name)
    area, consumed = TPMT_PUBLIC.unmarshal(content)
    assert consumed == len(content)
    return area


def challenge_for(
    first: Evidence, *, secret: bytes = SECRET, pcrs: str = PCRS, attestation_key: bytes | None = None
) -> str:
    """What a controller would answer; ``attestation_key`` is another key's Name."""
    name = public(first, "akPublic").get_name() if attestation_key is None else attestation_key
    blob, encrypted = make_credential(TPM2B_PUBLIC(publicArea=public(first, "ekPublic")), secret, name)
    return challenge_text(blob.marshal(), encrypted.marshal(), pcrs)


def challenge_text(credential_blob: bytes, encrypted_secret: bytes, pcrs: str = PCRS) -> str:
    """A challenge as it stands in the annotation."""
    return json.dumps(
        {
            "version": "v1",
            "token": "opaque-token",
            "credentialBlob": base64.b64encode(credential_blob).decode(),
            "encryptedSecret": base64.b64encode(encrypted_secret).decode(),
            "pcrSelection": pcrs,
        }
    )


@contextlib.contextmanager
def opened(tpm: SoftwareTPM) -> Iterator[Any]:
    """The TPM as an administrator uses it: an ESAPI."""
    with ESAPI(tpm.tcti) as esys:
        yield esys


def left_behind(tpm: SoftwareTPM) -> list[int]:
    """Handles of transient keys and of sessions that nobody flushed."""
    with opened(tpm) as esys:
        found = []
        for first in (_TRANSIENT, _LOADED_SESSIONS):
            _, told = esys.get_capability(TPM2_CAP.HANDLES, first, 254)
            found += [int(handle) for handle in told.data.handles]
        return found


EVERYBODY_READS: Final = TPMA_NV.OWNERREAD | TPMA_NV.AUTHREAD | TPMA_NV.NO_DA


def write_index(
    tpm: SoftwareTPM,
    index: int,
    content: bytes,
    *,
    size: int | None = None,
    reading: int = EVERYBODY_READS,
    password: bytes = b"",
) -> None:
    """Define an NV index as its owner, with a password of its own, and write ``content`` to it."""
    attributes = TPMA_NV.OWNERWRITE | reading
    area = TPMS_NV_PUBLIC(nvIndex=index, nameAlg=0x000B, attributes=attributes, dataSize=size or len(content))
    with opened(tpm) as esys:
        handle = esys.nv_define_space(password, TPM2B_NV_PUBLIC(nvPublic=area))
        for start in range(0, len(content), 512):
            esys.nv_write(handle, content[start : start + 512], start, auth_handle=ESYS_TR.OWNER)


def remove_persistent_keys(tpm: SoftwareTPM) -> None:
    with opened(tpm) as esys:
        _, told = esys.get_capability(TPM2_CAP.HANDLES, 0x81000000, 254)
        for handle in told.data.handles:
            esys.evict_control(ESYS_TR.OWNER, esys.tr_from_tpmpublic(handle), int(handle))


def remove_index(tpm: SoftwareTPM, index: int) -> None:
    """As the manufacturer, whose password swtpm leaves empty."""
    with opened(tpm) as esys:
        esys.nv_undefine_space(esys.tr_from_tpmpublic(index), auth_handle=ESYS_TR.PLATFORM)
