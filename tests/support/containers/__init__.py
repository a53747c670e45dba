"""A real kubelet with containerd, and Pods that run, on a node of its own: namespaces and a network of this machine."""
