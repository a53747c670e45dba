"""``python -m tests.deploy``: make again what is made from the Helm chart."""

from __future__ import annotations

from tests.deploy.packages import ROOT, write

for path in write():
    print(path.relative_to(ROOT))
