"""The schemas of the built-in resources, as far as this server checks them."""

from __future__ import annotations

from typing import Any, Final

from .crd_formats import MICRO_TIME
from .crd_schema import Schema, compile_schema

_STRING: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer", "format": "int64"}
_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_TIME: dict[str, Any] = {"type": "string", "format": "date-time"}
_MICRO_TIME: dict[str, Any] = {"type": "string", "format": MICRO_TIME}
_BYTES: dict[str, Any] = {"type": "string", "format": "byte"}
_ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _schema(**properties: dict[str, Any]) -> Schema:
    return compile_schema({"type": "object", "properties": properties})


_STRINGS = _list(_STRING)
_REFERENCE = _object(
    kind=_STRING,
    namespace=_STRING,
    name=_STRING,
    uid=_STRING,
    apiVersion=_STRING,
    resourceVersion=_STRING,
    fieldPath=_STRING,
    apiGroup=_STRING,
)
_RULES = _list(
    _object(verbs=_STRINGS, apiGroups=_STRINGS, resources=_STRINGS, resourceNames=_STRINGS, nonResourceURLs=_STRINGS)
)
_CONDITION = _object(
    type=_STRING,
    status=_STRING,
    reason=_STRING,
    message=_STRING,
    lastUpdateTime=_TIME,
    lastTransitionTime=_TIME,
)
CSR: Final = _schema(
    spec=_object(
        request=_BYTES,
        signerName=_STRING,
        expirationSeconds={"type": "integer", "format": "int32"},
        usages=_STRINGS,
        username=_STRING,
        uid=_STRING,
        groups=_STRINGS,
        extra=_map(_STRINGS),
    ),
    status=_object(conditions=_list(_CONDITION), certificate=_BYTES),
)
EVENT: Final = _schema(
    involvedObject=_REFERENCE,
    reason=_STRING,
    message=_STRING,
    source=_object(component=_STRING, host=_STRING),
    firstTimestamp=_TIME,
    lastTimestamp=_TIME,
    count=_INTEGER,
    type=_STRING,
    eventTime=_MICRO_TIME,
    series=_object(count=_INTEGER, lastObservedTime=_MICRO_TIME),
    action=_STRING,
    related=_REFERENCE,
    reportingComponent=_STRING,
    reportingInstance=_STRING,
)
LEASE: Final = _schema(
    spec=_object(
        holderIdentity=_STRING,
        leaseDurationSeconds=_INTEGER,
        acquireTime=_MICRO_TIME,
        renewTime=_MICRO_TIME,
        leaseTransitions=_INTEGER,
        strategy=_STRING,
        preferredHolder=_STRING,
    )
)
_SUBJECTS = _list(_REFERENCE)
RBAC_ROLE: Final = _schema(rules=_RULES)
CLUSTER_ROLE: Final = _schema(rules=_RULES, aggregationRule=_ANYTHING)
BINDING: Final = _schema(subjects=_SUBJECTS, roleRef=_REFERENCE)
CONFIG_MAP: Final = _schema(data=_map(_STRING), binaryData=_map(_BYTES), immutable=_BOOLEAN)
SECRET: Final = _schema(
    data=_map({**_BYTES, "nullable": True}), stringData=_map(_STRING), type=_STRING, immutable=_BOOLEAN
)
SERVICE_ACCOUNT: Final = _schema(
    secrets=_list(_REFERENCE), imagePullSecrets=_list(_object(name=_STRING)), automountServiceAccountToken=_BOOLEAN
)
NAMESPACE: Final = _schema(spec=_object(finalizers=_STRINGS), status=_ANYTHING)
