"""Access to Kubernetes API servers: connections, calls, list and watch, and the work queue.

Only this package handles HTTP and kubeconfigs; the rest of the controller uses typed errors and JSON objects.
"""
