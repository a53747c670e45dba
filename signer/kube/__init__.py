"""Access to Kubernetes API servers: connections, calls, list-and-watch, and the work queue.

Everything that knows HTTP or a kubeconfig lives here; the rest of the controller sees typed errors and JSON objects.
"""
