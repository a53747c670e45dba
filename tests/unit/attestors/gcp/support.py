"""Identity tokens as Google makes them, and as it never would."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from attestors.contract import AttestationRequest, AttestorSettings, Denied, NotProvableYet
from attestors.gcp import wire
from attestors.gcp.settings import GCPSettings
from attestors.verdict import Ended
from tests.support.fake_google import FakeInstance, SigningKey, encode_token, identity_claims, signing_key
from tests.support.fake_google.signing import base64url
from tests.unit.attestors.support import attestation_request, binding_for, evidence_of

NOW: Final = datetime.now(UTC).replace(microsecond=0)
"""The fake's certificates are valid around the present."""
INSTANCE: Final = FakeInstance(created=NOW - timedelta(days=1))
BINDING: Final = binding_for(provider="gcp")
AUDIENCE: Final = wire.audience(BINDING.value)
KEY: Final = signing_key(0)
OTHER_KEY: Final = signing_key(1)
OPERATOR: Final[Mapping[str, Any]] = {"projects": {INSTANCE.project: int(INSTANCE.project_number)}}
SETTINGS: Final = GCPSettings.parse(AttestorSettings(operator=OPERATOR))


class Absent(enum.Enum):
    """The value of a claim that is to be left out; it is called the same in every process."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return "absent"


ABSENT: Final = Absent.ABSENT


def settings(**operator: Any) -> GCPSettings:
    """The operator's settings, with these beside the allowed project."""
    return GCPSettings.parse(AttestorSettings(operator={**OPERATOR, **operator}))


def claims(instance: FakeInstance = INSTANCE, *, issued: datetime = NOW, **changes: Any) -> dict[str, Any]:
    """The claims of a good token, with ``changes``."""
    return changed({**identity_claims(instance, AUDIENCE, issued)}, changes)


def engine(**changes: Any) -> dict[str, Any]:
    """The claim ``google`` with changes inside ``compute_engine``."""
    return {"compute_engine": changed(claims()["google"]["compute_engine"], changes)}


def changed(document: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**document, **changes}.items() if value is not ABSENT}


def header(**changes: Any) -> dict[str, Any]:
    """A good header, with ``changes``."""
    return changed({"alg": "RS256", "kid": KEY.key_id, "typ": "JWT"}, changes)


def token(payload: Mapping[str, Any] | None = None, *, key: SigningKey = KEY, **header_changes: Any) -> str:
    """A token of these claims, well signed by ``key``."""
    return encode_token(claims() if payload is None else payload, key, header(**{"kid": key.key_id, **header_changes}))


def signed(header_text: str, payload_text: str, key: SigningKey = KEY) -> str:
    """A token of these very texts."""
    content = f"{base64url(header_text.encode())}.{base64url(payload_text.encode())}"
    signature = key.key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{content}.{base64url(signature)}"


def repeated(name: str, first: Any, document: Mapping[str, Any]) -> str:
    """JSON of the document with this key once more in front."""
    return "{" + json.dumps(name) + ":" + json.dumps(first) + "," + json.dumps(document)[1:]


def request(text: str, *, provider_id: str = INSTANCE.provider_id, now: datetime = NOW) -> AttestationRequest:
    """A request with this token as evidence."""
    evidence = evidence_of({wire.IDENTITY_TOKEN_FIELD: text})
    return replace(attestation_request(evidence, binding=BINDING, provider_id=provider_id), now=now)


def ended(step: Callable[[], object]) -> Denied | NotProvableYet:
    """What the step ends with."""
    try:
        step()
    except Ended as found:
        return found.outcome
    raise AssertionError("it does not end")
