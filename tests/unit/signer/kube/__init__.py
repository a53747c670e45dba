"""Tests of signer.kube."""
