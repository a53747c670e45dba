from __future__ import annotations

import json
from pathlib import Path

import pytest

from signer.explain import manifests
from signer.explain.manifests import UnreadableManifests, manifests_in, manifests_of
from signer.model.signing_request import spec_digest


def test_dates_stay_text_and_numbers_numbers() -> None:
    """The digest of a CSR is over JSON."""
    text = b"kind: X\nspec: {created: 2026-01-02T03:04:05Z, seconds: 3600, on: true, none: null, text: '1'}\n"
    (found,) = manifests_of(text, "x")
    same = {"created": "2026-01-02T03:04:05Z", "seconds": 3600, "on": True, "none": None, "text": "1"}
    assert {str(key).lower().replace("true", "on"): value for key, value in found["spec"].items()} == same
    assert spec_digest({"created": found["spec"]["created"]}) == spec_digest({"created": same["created"]})


def test_lists_and_documents_are_flattened() -> None:
    one = {"kind": "X", "metadata": {"name": "x"}}
    nested = {"kind": "List", "items": [one, {"kind": "XList", "items": [one]}]}
    assert manifests_of(json.dumps(nested).encode(), "x") == (one, one)
    assert manifests_of(b"---\nkind: X\n---\n---\nkind: Y\n", "x") == ({"kind": "X"}, {"kind": "Y"})


def test_files_of_a_folder_in_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "c.yml", "README.md"):
        (tmp_path / name).write_text(json.dumps({"kind": name}))
    assert [one["kind"] for one in manifests_in(tmp_path)] == ["a.json", "b.yaml", "c.yml"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b"{",
        b"a: &x [1]\nb: *x\n",
        b"!!python/object/apply:os.system ['true']",
        b"[" * 5000,
        b'{"kind": "List", "items": [1]}',
        b"kind: List\nitems: [" + b"[" * 2000,
        b"kind: X\nspec:\n" + b"- " * 200 + b"x",
        b'{"kind": "X", "spec": ' + b"[" * 200 + b"]" * 200 + b"}",
        b"kind: 1:" + b"59:" * 400 + b"1.5",
        b"kind: 1" + b":59" * 4000,
        b"kind: X\nspec: !!set {x}",
        b"kind: X\nspec: !!binary aGk=",
        b"kind: X\nspec: .nan",
    ],
)
def test_content_that_is_no_manifest(content: bytes) -> None:
    with pytest.raises(UnreadableManifests, match="the file"):
        manifests_of(content, "the file")


def test_files_are_bounded_and_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("kind: X\n")
    assert manifests_in(file) == ({"kind": "X"},)
    monkeypatch.setattr(manifests, "MAXIMUM_FILE_BYTES", 4)
    with pytest.raises(UnreadableManifests, match="larger than 4 bytes"):
        manifests_in(file)
    for path in (tmp_path / "nowhere.yaml", tmp_path / "empty"):
        if path.name == "empty":
            path.mkdir()
        with pytest.raises(UnreadableManifests):
            manifests_in(path)


def test_values_are_those_of_json() -> None:
    """Other keys would end the decision with an error."""
    found = manifests_of(b"kind: X\nspec: {2: one, true: two}\n", "x")
    assert found == ({"kind": "X", "spec": {"2": "one", "true": "two"}},)


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    assert manifests_of(b"kind: X\nspec: " + b"'[" + b"[" * 400 + b"'\n", "x") == ({"kind": "X", "spec": "[" * 401},)
