from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.markdown import ROOT, anchors, blocks, documents, links

TEXT = """# A `b` (c): d, [e](f.md)

## Twice
## Twice

Text with [a link](other.md#twice), `[no](link.md)` and [`code`](code.py).

```yaml
a: [1](2)
```

- item

  ```python
  def f():
      pass
  ```
"""


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "document.md"
    path.write_text(TEXT)
    return path


def test_anchors_are_made_as_on_github(document: Path) -> None:
    assert anchors(document) == {"a-b-c-d-e", "twice", "twice-1"}


def test_links_outside_code_are_found(document: Path) -> None:
    assert [(link.line, link.target) for link in links(document)] == [
        (1, "f.md"),
        (6, "other.md#twice"),
        (6, "code.py"),
    ]


def test_blocks_keep_their_language_and_lose_their_indentation(document: Path) -> None:
    found = [(block.line, block.language, block.text) for block in blocks(document)]
    assert found == [(9, "yaml", "a: [1](2)\n"), (15, "python", "def f():\n    pass\n")]


def test_an_open_block_is_an_error(document: Path) -> None:
    document.write_text("```text\nnever closed\n")
    with pytest.raises(ValueError, match="not closed"):
        blocks(document)


def test_the_projects_documents_are_found() -> None:
    found = {str(path.relative_to(ROOT)) for path in documents()}
    assert found >= {
        "README.md",
        "CONTRIBUTING.md",
        "docs/protocol.md",
        "deploy/README.md",
        "fixtures/requests/README.md",
    }
