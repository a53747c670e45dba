"""``explain`` as run by a user that may read both clusters and write nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.cli import main
from tests.integration.fixtures import Harness, keyed_mac

READER: Final = "reader"
READ_ONLY: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: [get, list]}
  - {nonResourceURLs: ["*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]
"""
Explained = tuple[int, dict[str, Any]]


class Explain:
    """The command, as a user with read access only, and the controller's configuration."""

    def __init__(self, harness: Harness, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        harness.api.apply_yaml(READ_ONLY)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(harness.api.kubeconfig("management", READER, ()))
        self.config = folder / "config.yaml"
        settings = {provider: {"settings": dict(one.settings)} for provider, one in keyed_mac().items()}
        self.config.write_text(yaml.safe_dump({"attestors": settings}))
        self._capsys = capsys
        self.configured = True
        self.error = ""

    def text(self, csr: str, *arguments: str, cluster: str = "default/workload") -> tuple[int, str]:
        self._capsys.readouterr()
        given = ["--kubeconfig", str(self.kubeconfig), "--cluster", cluster]
        config = ["--config", str(self.config)] if self.configured else []
        code = main(["explain", csr, *given, *config, *arguments])
        written = self._capsys.readouterr()
        self.error = written.err
        return code, written.out

    def __call__(self, csr: str, *arguments: str, cluster: str = "default/workload") -> Explained:
        code, output = self.text(csr, *arguments, "--output", "json", cluster=cluster)
        return code, json.loads(output) if output else {}


def outcomes(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["outcome"] for one in report["checks"]}
