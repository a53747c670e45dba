"""``make demo-containers``: a person gets into a container by stock ssh, and the workload cluster's audit log names the
person.

kube-apiserver of the workload cluster, kubelet, containerd, ssh, scp, kubectl, the controller and the gateway are real,
on this host. The API server of the management cluster is an embedded one.
"""
