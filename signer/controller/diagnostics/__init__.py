"""The HTTP endpoints ``/metrics``, ``/healthz`` and ``/readyz``."""
