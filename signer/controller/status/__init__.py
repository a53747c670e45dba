"""What the controller writes about a cluster into the management cluster: policy, Machine and InfraCluster status."""
