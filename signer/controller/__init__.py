"""The controller: it watches, decides and writes. ``run`` composes it.

``cluster``         the fleet of workload clusters, with one isolated task for each
``requests``        the CSRs of one workload cluster: informer, queue, workers, publisher
``auto_approval``   removes kubeadm's auto-approval grants and restores them
``status``          conditions of policies and Machines, status of InfraClusters
``replicas``        leader election and shards
``diagnostics``     ``/metrics``, ``/healthz`` and ``/readyz``
``telemetry``       logs, metrics and Events

:mod:`signer.decision` decides one CSR.
"""
