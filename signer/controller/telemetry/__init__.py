"""What the controller emits: Prometheus metrics, logs and Events."""
