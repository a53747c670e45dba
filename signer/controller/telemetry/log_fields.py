"""The fields of log lines, so that each field has one name and meaning everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LOG_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "time": "Time in UTC.",
        "level": "`debug`, `info`, `warning` or `error`.",
        "message": "What happened: `decided` for a decision, `left alone` if the policy ignores the request.",
        "cluster": "Namespace and name of the Cluster.",
        "csr": "Name of the CertificateSigningRequest.",
        "uid": "UID of the CertificateSigningRequest, as in the journal.",
        "decision": "Approve, ApproveOnly, Deny, Challenge, Fail, Defer or LeftAlone.",
        "insteadOf": "The decision that would have been made about a request that was left alone.",
        "reason": "Reason, as in the request's condition and in metrics.",
        "detail": "The reason in a sentence.",
        "provider": "Provider name of the attestor.",
        "purpose": "`client` or `serving`.",
        "requester": "User that posted the request, according to the workload cluster's API server; a canary's user.",
        "machine": "Namespace and name of the Machine or MachinePool that the request claims.",
        "node": "Requested node name.",
        "serialNumber": "Serial number of the certificate, hexadecimal.",
        "keyID": "Key id of SSH certificates.",
        "notAfter": "When the certificate expires.",
        "caCertHash": "The CA, as kubeadm's discovery hash.",
        "error": "Error of an API server, without credentials.",
        "exception": "Exception type and stack frames, innermost last; never the message.",
        "retryInSeconds": "Seconds until the next attempt.",
        "seconds": "Duration in seconds.",
        "task": "Name of a task of the controller.",
        "resource": "Resource of the management cluster.",
        "namespace": "Namespace of an object.",
        "object": "Name of an object; at the gateway, also the address that a person asked for.",
        "resourceVersion": "resourceVersion of an object.",
        "secret": "Name of a Secret; never its content.",
        "configMap": "Name of a ConfigMap.",
        "binding": "Name of a ClusterRoleBinding.",
        "subresources": "Subresources that the ClusterRoleBinding granted.",
        "attestors": "Installed attestors.",
        "flag": "Command line flag.",
        "address": "Address of a server; at the gateway, from where a person comes.",
        "kubeadmConfigs": "Number of known KubeadmConfigs.",
        "lookedAt": "Number of checked objects.",
        "reserved": "Number of restored reservations.",
        "deleted": "Number of deleted records.",
        "released": "Number of released reservations.",
        "identity": "This replica's holder identity in the Lease.",
        "shards": "Numbers of the shards that this replica owns.",
        "replicas": "Number of replicas that share the shards.",
        "path": "Requested path of the diagnostics.",
        "lease": "Namespace and name of the Lease.",
        "failed": "Number of objects deferred to the next round.",
        "version": "Version of a published trust bundle.",
        "bastionProvider": "Provider of a bastion.",
        "bastionProviders": "Providers that the bastion controller's configuration allows.",
        "operation": "Call to a bastion's provider.",
        "owner": "The name with which the bastion controller tags its resources.",
    }
)
