"""Key lines: `type base64` and nothing else (test 6 of the design brief), and the files of ssh-keygen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import to_base64
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_file, parse_key_line, readable_authorities
from tests.support.openssh import public_keys

KEYS = public_keys()
LINE = key_line(KEYS["ed25519"])
WORD, ENCODED = LINE.split()
TRAILING = to_base64(KEYS["ed25519"].blob + b"\0")


@pytest.mark.parametrize("name", list(KEYS))
def test_each_type_reads_back(name: str) -> None:
    assert parse_key_line(key_line(KEYS[name])) == KEYS[name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"restrict {LINE}", SSHReason.KEY_LINE_HAS_OPTIONS),
        (f'command="a b" {LINE}', SSHReason.KEY_LINE_HAS_OPTIONS),
        (f"cert-authority {LINE}", SSHReason.KEY_LINE_HAS_OPTIONS),
        (f"@revoked {LINE}", SSHReason.KEY_LINE_HAS_OPTIONS),
        (f"{LINE} alice@laptop", SSHReason.KEY_LINE_HAS_COMMENT),
        (f'{LINE} "; touch /x', SSHReason.KEY_LINE_HAS_COMMENT),
        (f"{LINE}\n{LINE}", SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"{LINE}\n", SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"{LINE}\r", SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"{WORD}\n{ENCODED}", SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"{LINE}\u2028x", SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"ecdsa-sha2-nistp256 {ENCODED}", SSHReason.KEY_LINE_TYPE_MISMATCH),
        (f"sk-ssh-ed25519@openssh.com {ENCODED}", SSHReason.KEY_LINE_TYPE_MISMATCH),
        (f"{WORD} {TRAILING}", SSHReason.TRAILING_BYTES),
        (f"{WORD}  {ENCODED}", SSHReason.KEY_LINE_MALFORMED),
        (f" {LINE}", SSHReason.KEY_LINE_MALFORMED),
        (f"{LINE} ", SSHReason.KEY_LINE_MALFORMED),
        (f"{WORD}\t{ENCODED}", SSHReason.KEY_LINE_MALFORMED),
        (WORD, SSHReason.KEY_LINE_MALFORMED),
        ("", SSHReason.KEY_LINE_MALFORMED),
        (f"{WORD} {ENCODED}\0", SSHReason.MALFORMED),
        (f"{WORD} {ENCODED[:-1]}", SSHReason.MALFORMED),
        (f"ssh-dss {ENCODED}", SSHReason.KEY_TYPE_UNSUPPORTED),
        (f"ssh-ed25519-cert-v01@openssh.com {ENCODED}", SSHReason.KEY_TYPE_UNSUPPORTED),
        (f"{WORD} {'A' * 4000}", SSHReason.TOO_LARGE),
        (f"{WORD} {'?' * 4000}", SSHReason.TOO_LARGE),
    ],
)
def test_another_line_is_refused(text: str, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_key_line(text)
    assert refused.value.reason is reason


@given(st.text(max_size=100))
def test_any_text_is_refused_or_read_back(text: str) -> None:
    for line in (text, f"{WORD} {text}", f"{LINE}{text}"):
        try:
            key = parse_key_line(line)
        except SSHRefused:
            continue
        assert key_line(key) == line


@pytest.mark.parametrize("end", ["", "\n", "\r\n", " alice@laptop\n", " two words", " Jürgen\n"])
def test_files_of_ssh_keygen_are_read(end: str) -> None:
    assert parse_key_file(f"{LINE}{end}".encode()) == KEYS["ed25519"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (f"{LINE}\n{LINE}\n".encode(), SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"{LINE}\n\n".encode(), SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (f"restrict {LINE}\n".encode(), SSHReason.KEY_LINE_HAS_OPTIONS),
        (f'command="x y" {LINE} c\n'.encode(), SSHReason.KEY_LINE_HAS_OPTIONS),
        (f"{LINE} c\x1b[31m".encode(), SSHReason.KEY_LINE_MALFORMED),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", SSHReason.KEY_LINE_MALFORMED),
        (f"{LINE} \xff".encode("latin-1"), SSHReason.MALFORMED),
        (b"x\n" * 10_000, SSHReason.TOO_LARGE),
        (f"{LINE} alice\n{LINE} bob\n".encode(), SSHReason.KEY_LINE_HAS_SEVERAL_LINES),
        (b"", SSHReason.KEY_LINE_MALFORMED),
    ],
    ids=[
        "two keys",
        "empty line",
        "options",
        "options with a space",
        "escape",
        "private",
        "latin",
        "large",
        "with comments",
        "empty",
    ],
)
def test_another_file_is_refused(data: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        parse_key_file(data)
    assert refused.value.reason is reason


def test_a_file_of_authorities() -> None:
    """What is no key line counts as none, and the others count."""
    other = KEYS["nistp256"]
    good = f"# ours\n\n{LINE} of the safe\r\n{key_line(other)}\u2028{LINE}\n"
    assert readable_authorities(good.encode()) == (KEYS["ed25519"], other)
    for line in (b"nonsense", b"\xff", b"ssh-ed25519 AAAA", f"cert-authority {LINE}".encode()):
        assert readable_authorities(line) == ()
        assert readable_authorities(line + b"\n" + good.encode()) == (KEYS["ed25519"], other)
