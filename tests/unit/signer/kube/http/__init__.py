"""Tests of signer.kube.http."""
