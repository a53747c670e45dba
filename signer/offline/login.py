"""Logs in with a key that lives as long as the session."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.keys import HostKey
from attestors.wire.ssh.signatures import public_key_of
from signer.offline.failures import CommandFailed

_PREFIX: Final = "node-attestation-ssh-"
_IN_MEMORY: Final = "/dev/shm"  # noqa: S108 - mkdtemp makes a folder of its own there
_TERMINAL: Final = "/dev/tty"
_SIGNALLED: Final = 128
"""Plus the signal's number: the exit code of a killed program, as shells report it."""


class TemporaryKey:
    """An Ed25519 key in memory, and its certificate in a folder that only this user may enter.

    Leaving the context removes both. SIGKILL leaves the folder behind; on systems other than Linux, the key is in it.
    """

    def __init__(self) -> None:
        self._private_key = Ed25519PrivateKey.generate()
        self._memory: int | None = None
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_runtime_folder()))

    @property
    def public_key(self) -> HostKey:
        """The key to be certified."""
        return public_key_of(self._private_key)

    def write(self, signed: SignedCertificate) -> tuple[Path, Path]:
        """Write key and certificate, and return their files, which programs can read as long as this one runs."""
        key, certificate = self._key_file(), self.folder / "key-cert.pub"
        text = self._private_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        certificate.touch(mode=0o600, exist_ok=False)
        for file, content in ((key, text), (certificate, f"{signed.line}\n".encode("ascii"))):
            file.write_bytes(content)
        return key, certificate

    def _key_file(self) -> Path:
        """An empty file, private to this user. ssh closes descriptors that it inherits, but opens its parent's."""
        if hasattr(os, "memfd_create"):
            self._memory = os.memfd_create("key")
            os.fchmod(self._memory, 0o600)
            return Path(f"/proc/{os.getpid()}/fd/{self._memory}")
        key = self.folder / "key"
        key.touch(mode=0o600, exist_ok=False)
        return key

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._memory is not None:
            os.close(self._memory)
        shutil.rmtree(self.folder)


def run_ssh(
    key: TemporaryKey, signed: SignedCertificate, login: str, arguments: Sequence[str], *, input_is_consumed: bool
) -> int:
    """Run ``ssh`` with these arguments, with that key and nothing else, and return its exit code.

    If standard input has been consumed, because it held the authority, ssh reads the terminal, if there is one.

    Raises:
        CommandFailed: ssh is not installed.
    """
    program = shutil.which("ssh")
    if program is None:
        raise CommandFailed("ssh is not installed: install OpenSSH's client, or sign a certificate for another machine")
    with _Signals() as signals:
        file, certificate = key.write(signed)
        options = (
            f"IdentityFile={file}",
            f"CertificateFile={certificate}",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            "PreferredAuthentications=publickey",
            "ForwardAgent=no",
        )
        command = [program, *(word for option in options for word in ("-o", option)), "-l", login, *arguments]
        with (
            _terminal() if input_is_consumed else contextlib.nullcontext() as terminal,
            subprocess.Popen(command, stdin=terminal) as process,  # noqa: S603 - the caller's own ssh and arguments
        ):
            signals.forward_to(process)
            code = process.wait()
    return _SIGNALLED - code if code < 0 else code


@contextlib.contextmanager
def _terminal() -> Iterator[int | None]:
    try:
        descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Signals:
    """While ssh runs, the keyboard's signals are for ssh alone, and those that would end this program go to it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting: list[int] = []
        self._stack = contextlib.ExitStack()

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        """From now on; what came before goes there, too."""
        self._process = process
        for number in self._waiting:
            process.send_signal(number)

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGQUIT):
            self._stack.enter_context(_handler(number, _leave_to_ssh))
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._stack.enter_context(_handler(number, self._forward))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._waiting.append(number)
        else:
            self._process.send_signal(number)


def _leave_to_ssh(number: int, _: FrameType | None) -> None:
    """The terminal has sent it to ssh as well. Ignoring it instead would make ssh ignore it, too."""


@contextlib.contextmanager
def _handler(number: signal.Signals, handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = signal.signal(number, handle)
    try:
        yield
    finally:
        signal.signal(number, before)


def _runtime_folder() -> str | None:
    """In memory where that can be had."""
    for folder in (os.environ.get("XDG_RUNTIME_DIR", ""), _IN_MEMORY):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None
