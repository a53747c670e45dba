"""An embedded Kubernetes API, the real controller and simulated nodes. docs/testing.md lists the public names."""
