"""``python -m tests.documents``: write the generated parts of every document, and the templates of ``deploy/node``."""

from __future__ import annotations

from tests.deploy import embedded
from tests.documents.generated import render
from tests.documents.markdown import ROOT, documents

for document in documents():
    before = document.read_text(encoding="utf-8")
    after = render(before)
    if after != before:
        document.write_text(after, encoding="utf-8")
        print(document.relative_to(ROOT))
for template in embedded.write():
    print(template.relative_to(ROOT))
