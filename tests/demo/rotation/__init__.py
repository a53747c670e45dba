"""``make demo-rotation``: a cluster's CA is replaced while clients ask its API servers all the time; none may fail.

API servers, etcd and kube-controller-manager are real, on this host. Machines and their agents are imitated.
"""
