"""Explains what the controller decides, and why, without deciding anything: ``explain`` and ``status``.

The controller's own code runs: the same checks, stores and attestors. What it would write goes into a sketch of the
management cluster (:mod:`signer.explain.dry_run_client`), and no certificate is signed
(:mod:`signer.explain.unsigned`).
"""
