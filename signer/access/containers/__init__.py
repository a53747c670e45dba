"""The controller's part in SSH into containers: it gives the gateway a way into each workload cluster.

In the workload cluster it keeps a ServiceAccount that may only impersonate, and the role of the people whom the gateway
impersonates (:mod:`.workload`). In the management cluster it keeps a Secret for each Cluster in the gateway's namespace
(:mod:`.connections`), with the credential of that ServiceAccount and the user authorities that count.
"""
