from __future__ import annotations

import pytest

from signer.model.fields import required_text


def test_required_text() -> None:
    assert required_text({"a": "b"}, "a") == "b"
    with pytest.raises(KeyError):
        required_text({}, "a")
    with pytest.raises(TypeError, match="a is not a string"):
        required_text({"a": b"b"}, "a")
    with pytest.raises(ValueError, match="a is empty"):
        required_text({"a": ""}, "a")
