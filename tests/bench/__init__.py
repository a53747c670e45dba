"""``make bench``: benchmarks on a real kube-apiserver, compared with kube-controller-manager in the same run."""
