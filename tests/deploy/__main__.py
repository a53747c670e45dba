"""``python -m tests.deploy``: regenerate the files that are rendered from the Helm chart."""

from __future__ import annotations

from tests.deploy.packages import ROOT, write

for path in write():
    print(path.relative_to(ROOT))
