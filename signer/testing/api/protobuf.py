"""Kubernetes' protobuf request bodies, as newer client-go programs (kubectl among them) send them for built-in kinds.

Only reading, and only the kinds in ``_KINDS``: answers are JSON, which such clients accept too. Field numbers are those
of the ``generated.proto`` files of k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .status import bad_request

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAXIMUM_DEPTH = 16

Message = dict[int, "Field"]


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its JSON name, how its wire value becomes JSON, and whether it repeats or is a map."""

    name: str
    kind: str = "string"
    message: Message | None = None
    repeated: bool = False


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise bad_request("protobuf: unknown wire type")
        if position + length > len(data):
            raise bad_request("protobuf: unexpected end")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
    raise bad_request("protobuf: malformed number")


def _raw(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise bad_request("protobuf: a number where bytes are expected")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _raw(value).decode()
    except UnicodeDecodeError as error:
        raise bad_request("protobuf: text is not UTF-8") from error


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise bad_request("protobuf: bytes where a number is expected")
    return value - (1 << 64) if value >= 1 << 63 else value


def _moment(value: int | bytes, *, micro: bool) -> str | None:
    parts = {number: _number(part) for number, part in _fields(_raw(value))}
    if not parts:
        return None
    try:
        moment = datetime.fromtimestamp(parts.get(1, 0), UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise bad_request("protobuf: a time out of range") from error
    if moment.year <= 1:
        return None
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{parts.get(2, 0) // 1000:06d}Z" if micro else text + "Z"


_SCALARS: dict[str, Callable[[int | bytes], Any]] = {
    "string": _text,
    "integer": _number,
    "boolean": lambda value: bool(_number(value)),
    "bytes": lambda value: base64.b64encode(_raw(value)).decode(),
    "time": lambda value: _moment(value, micro=False),
    "microtime": lambda value: _moment(value, micro=True),
}


def _decode(data: bytes, message: Message, depth: int = 0) -> dict[str, Any]:
    if depth > _MAXIMUM_DEPTH:
        raise bad_request("protobuf: nested too deeply")
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        field = message.get(number)
        if field is None:
            continue
        if field.kind.startswith("map:"):
            key, item = _entry(_raw(value), field, depth)
            found.setdefault(field.name, {})[key] = item
            continue
        item = _decode(_raw(value), field.message, depth + 1) if field.message else _SCALARS[field.kind](value)
        if field.repeated:
            found.setdefault(field.name, []).append(item)
        elif item not in ("", None):
            found[field.name] = item
    return found


def _entry(data: bytes, field: Field, depth: int) -> tuple[str, Any]:
    key, item = "", b""
    for number, value in _fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2:
            item = _raw(value)
    if field.message is not None:
        return key, _decode(item, field.message, depth + 1).get("items", [])
    return key, _SCALARS[field.kind.removeprefix("map:")](item)


def _message(text: str, **messages: Message) -> Message:
    """``1:name 4:groups* 7:generation#integer 2:spec@`` (``*`` repeats, ``#`` type, ``@`` a message of that name)."""
    found: Message = {}
    for word in text.split():
        number, _, rest = word.partition(":")
        repeated, nested = rest.endswith("*"), rest.rstrip("*").endswith("@")
        name, _, kind = rest.rstrip("*@").partition("#")
        found[int(number)] = Field(name, kind or "string", messages[name] if nested else None, repeated)
        if kind == "map:values":
            found[int(number)] = Field(name, kind, {1: Field("items", repeated=True)})
    return found


_OWNER = _message("1:kind 3:name 4:uid 5:apiVersion 6:controller#boolean 7:blockOwnerDeletion#boolean")
_METADATA = _message(
    "1:name 2:generateName 3:namespace 5:uid 6:resourceVersion 7:generation#integer 8:creationTimestamp#time "
    "9:deletionTimestamp#time 10:deletionGracePeriodSeconds#integer 11:labels#map:string 12:annotations#map:string "
    "13:ownerReferences@* 14:finalizers*",
    ownerReferences=_OWNER,
)
_REFERENCE = _message("1:kind 2:namespace 3:name 4:uid 5:apiVersion 6:resourceVersion 7:fieldPath")
_CONDITION = _message("1:type 2:reason 3:message 4:lastUpdateTime#time 5:lastTransitionTime#time 6:status")
_CSR_SPEC = _message(
    "1:request#bytes 2:username 3:uid 4:groups* 5:usages* 6:extra#map:values 7:signerName 8:expirationSeconds#integer"
)
_CSR_STATUS = _message("1:conditions@* 2:certificate#bytes", conditions=_CONDITION)
_ATTRIBUTES = _message("1:namespace 2:verb 3:group 4:version 5:resource 6:subresource 7:name")
_PATH = _message("1:path 2:verb")
_ASKED = {"resourceAttributes": _ATTRIBUTES, "nonResourceAttributes": _PATH}
_SELF_SPEC = _message("1:resourceAttributes@ 2:nonResourceAttributes@", **_ASKED)
_ACCESS_SPEC = _message(
    "1:resourceAttributes@ 2:nonResourceAttributes@ 3:user 4:groups* 5:extra#map:values 6:uid", **_ASKED
)
_RULE = _message("1:verbs* 2:apiGroups* 3:resources* 4:resourceNames* 5:nonResourceURLs*")
_SUBJECT = _message("1:kind 2:apiGroup 3:name 4:namespace")
_ROLE = _message("1:metadata@ 2:rules@*", metadata=_METADATA, rules=_RULE)
_BINDING = _message(
    "1:metadata@ 2:subjects@* 3:roleRef@",
    metadata=_METADATA,
    subjects=_SUBJECT,
    roleRef=_message("1:apiGroup 2:kind 3:name"),
)
_LEASE_SPEC = _message(
    "1:holderIdentity 2:leaseDurationSeconds#integer 3:acquireTime#microtime 4:renewTime#microtime "
    "5:leaseTransitions#integer"
)
_EVENT = _message(
    "1:metadata@ 2:involvedObject@ 3:reason 4:message 5:source@ 6:firstTimestamp#time 7:lastTimestamp#time "
    "8:count#integer 9:type 10:eventTime#microtime 12:action 13:related@ 14:reportingComponent 15:reportingInstance",
    metadata=_METADATA,
    involvedObject=_REFERENCE,
    source=_message("1:component 2:host"),
    related=_REFERENCE,
)


def _object(spec: Message, status: Message | None = None) -> Message:
    found = _message("1:metadata@ 2:spec@", metadata=_METADATA, spec=spec)
    return found if status is None else {**found, 3: Field("status", message=status)}


_KINDS: dict[tuple[str, str], Message] = {
    ("certificates.k8s.io/v1", "CertificateSigningRequest"): _object(_CSR_SPEC, _CSR_STATUS),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): _object(_SELF_SPEC),
    ("authorization.k8s.io/v1", "SubjectAccessReview"): _object(_ACCESS_SPEC),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview"): _object(_ACCESS_SPEC),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"): _object(_message("1:namespace")),
    ("authentication.k8s.io/v1", "SelfSubjectReview"): _message("1:metadata@", metadata=_METADATA),
    ("rbac.authorization.k8s.io/v1", "Role"): _ROLE,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): _ROLE,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): _BINDING,
    ("coordination.k8s.io/v1", "Lease"): _object(_LEASE_SPEC),
    ("v1", "Event"): _EVENT,
    ("v1", "Namespace"): _object(_message("1:finalizers*"), _message("1:phase")),
    ("v1", "Secret"): _message(
        "1:metadata@ 2:data#map:bytes 3:type 4:stringData#map:string 5:immutable#boolean", metadata=_METADATA
    ),
    ("v1", "ConfigMap"): _message(
        "1:metadata@ 2:data#map:string 3:binaryData#map:bytes 4:immutable#boolean", metadata=_METADATA
    ),
    ("v1", "ServiceAccount"): _message(
        "1:metadata@ 2:secrets@* 3:imagePullSecrets@* 4:automountServiceAccountToken#boolean",
        metadata=_METADATA,
        secrets=_REFERENCE,
        imagePullSecrets=_message("1:name"),
    ),
}
_DELETE_OPTIONS = _message(
    "1:gracePeriodSeconds#integer 2:preconditions@ 3:orphanDependents#boolean 4:propagationPolicy 5:dryRun*",
    preconditions=_message("1:uid 2:resourceVersion"),
)


def read(body: bytes) -> dict[str, Any] | None:
    """The object in a body, or None for a kind that is not known here. Raises APIError 400 for malformed bytes."""
    if not body.startswith(_MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    header = {number: _raw(value) for number, value in _fields(body[len(_MAGIC) :])}
    type_meta = {number: _text(value) for number, value in _fields(header.get(1, b""))}
    api_version, kind = type_meta.get(1, ""), type_meta.get(2, "")
    message = _DELETE_OPTIONS if kind == "DeleteOptions" else _KINDS.get((api_version, kind))
    if message is None:
        return None
    return {"kind": kind, "apiVersion": api_version, **_decode(header.get(2, b""), message)}
