from __future__ import annotations

import json

import pytest

from authenticator.model.ssh_state import (
    SSHRejection,
    SSHState,
    UnreadableSSHState,
    decode_ssh_state,
    encode_ssh_state,
)

FULL = SSHState(7, "0f", SSHRejection("OlderTrust", "m", 5), 6, is_of_former_cluster=True)


@pytest.mark.parametrize("state", [SSHState(), FULL])
def test_what_is_written_is_read(state: SSHState) -> None:
    assert decode_ssh_state(encode_ssh_state(state)) == state


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"trust_version": "7"},
        {"trust_version": -1},
        {"trust_version": True},
        {"trust_digest": 7},
        {"unanswered_at": None},
        {"is_of_former_cluster": 1},
        {"rejection": {"reason": "x"}},
        {"rejection": {"reason": "x", "message": "m", "at": "5"}},
        {"rejection": []},
        {"further": 1},
    ],
)
def test_another_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UnreadableSSHState):
        decode_ssh_state(json.dumps(json.loads(encode_ssh_state(FULL)) | change))


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"format": 1}'])
def test_no_state_is_refused(text: str) -> None:
    with pytest.raises(UnreadableSSHState):
        decode_ssh_state(text if text != '{"format": 1}' else '{"format": 1}')
