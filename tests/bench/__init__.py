"""``make bench``: measured against a real kube-apiserver, with kube-controller-manager beside it in the same run."""
