"""``python -m tests.documents``: write the generated parts of every document again."""

from __future__ import annotations

from tests.documents.generated import render
from tests.documents.markdown import ROOT, documents

for document in documents():
    before = document.read_text(encoding="utf-8")
    after = render(before)
    if after != before:
        document.write_text(after, encoding="utf-8")
        print(document.relative_to(ROOT))
