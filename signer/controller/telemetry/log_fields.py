"""The fields of log lines, by name: one idea has one name wherever it is logged."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LOG_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "time": "When, in UTC.",
        "level": "`debug`, `info`, `warning` or `error`.",
        "message": "What happened; a decision is `decided`, and `left alone` where the policy has none made.",
        "cluster": "Namespace and name of the Cluster.",
        "csr": "Name of the CertificateSigningRequest.",
        "uid": "Its UID, as the journal has it.",
        "decision": "Approve, ApproveOnly, Deny, Challenge, Fail, Defer or LeftAlone.",
        "insteadOf": "What would have been decided of a request that was left alone.",
        "reason": "Why, as in the request's condition and in metrics.",
        "detail": "The same in a sentence.",
        "provider": "The attestor.",
        "purpose": "`client` or `serving`.",
        "requester": "Who asks, as the workload cluster's API server says.",
        "machine": "Namespace and name of the Machine, or MachinePool, that the request claims to be.",
        "node": "The node name that it asks for.",
        "serialNumber": "Of the certificate, hexadecimal.",
        "error": "What an API server said, without credentials.",
        "exception": "Type and places of an unexpected fault, the innermost last; never what it says.",
        "retryInSeconds": "When it is tried again.",
        "seconds": "How long it took.",
        "task": "Which of the controller's own tasks.",
        "resource": "Which collection of the management cluster.",
        "namespace": "Of an object.",
        "object": "Its name.",
        "resourceVersion": "Its version.",
        "secret": "Name of a Secret; never what it holds.",
        "configMap": "Name of a ConfigMap.",
        "binding": "Name of a ClusterRoleBinding.",
        "subresources": "What it approved by itself.",
        "attestors": "Those that are installed.",
        "flag": "Which flag of the command line.",
        "address": "Where something is served.",
        "kubeadmConfigs": "How many KubeadmConfigs are known.",
        "lookedAt": "How many objects were looked at.",
        "reserved": "How many reservations were made again.",
        "deleted": "How many records were deleted.",
        "released": "How many reservations were released.",
        "identity": "This replica's name in the Lease.",
        "shards": "Numbers of the shards that this replica owns.",
        "replicas": "How many replicas share the shards.",
        "path": "Which page of the diagnostics was asked for.",
        "lease": "Namespace and name of the Lease.",
        "failed": "How many of these are left for the next round.",
    }
)
