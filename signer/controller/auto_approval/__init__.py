"""Removes the RBAC grants by which kube-controller-manager auto-approves kubelet CSRs, and restores them."""
