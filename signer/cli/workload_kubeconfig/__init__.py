"""Makes the restricted kubeconfig with which the controller reaches one workload cluster.

A person runs it, with an administrator's rights at both clusters. The roles are YAML beside this module;
``deploy/rbac`` holds copies.
"""
