"""Programs that verify chains. Each is a real one; a missing one raises ``MissingPart``."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart
from tests.support.kubectl import find_kubectl
from tests.support.tls_programs.questions import AcceptsClient, AcceptsServer, Answer, written

__all__ = ["CLIENT_VERIFIERS", "SERVER_VERIFIERS", "Program"]

_HERE: Final = Path(__file__).parent
_TIMEOUT: Final = 120.0
_AT_ONCE: Final = 2


class Program(ABC):
    """One program."""

    name: str

    @abstractmethod
    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        """Its answers, in order. ``folder`` is empty and the program's own. Raises ``MissingPart``."""

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        """Its answers, in order. ``folder`` is empty and the program's own. Raises ``MissingPart``."""
        raise NotImplementedError(f"{self.name} verifies servers only")


def _found(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingPart(f"{name} is not installed")
    return path


def _run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, input=given, capture_output=True, text=True, check=False, timeout=_TIMEOUT, cwd=_HERE
    )


def _error(*arguments: str) -> Answer:
    """Empty if the program ends with 0."""
    finished = _run(*arguments)
    return "" if finished.returncode == 0 else (finished.stdout + finished.stderr).strip() or "failed"


class OpenSSL(Program):
    """``openssl s_client``, and ``openssl verify`` for clients."""

    name = "openssl"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        program = _found(self.name)
        return [
            _error(
                *(program, "s_client", "-connect", f"127.0.0.1:{question.port}", "-servername", "localhost"),
                *("-verify_return_error", "-verify_hostname", "localhost", "-no-CApath", "-no-CAstore"),
                *("-CAfile", written(folder, "trust.pem", question.trust)),
            )
            for question in questions
        ]

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        program = _found(self.name)
        return [
            _error(
                *(program, "verify", "-purpose", "sslclient", "-no-CApath", "-no-CAstore"),
                *("-CAfile", written(folder, "trust.pem", question.trust)),
                *("-untrusted", written(folder, "chain.pem", question.chain), str(folder / "chain.pem")),
            )
            for question in questions
        ]


class Python(Program):
    """The standard library's ``ssl``, for clients and for servers."""

    name = "python"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        return [self._connect(question) for question in questions]

    def _connect(self, question: AcceptsServer) -> Answer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=question.trust.decode())
        try:
            with (
                socket.create_connection(("127.0.0.1", question.port)) as connection,
                context.wrap_socket(connection, server_hostname="localhost"),
            ):
                return ""
        except ssl.SSLCertVerificationError as error:
            return str(error)

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        return [self._log_in(folder, question) for question in questions]

    def _log_in(self, folder: Path, question: AcceptsClient) -> Answer:
        """The server presents the client's certificate too: the client does not verify it."""
        chain, key = written(folder, "chain.pem", question.chain), written(folder, "key.pem", question.key)
        ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ours.load_cert_chain(chain, key)
        ours.verify_mode = ssl.CERT_REQUIRED
        ours.load_verify_locations(cadata=question.trust.decode())
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
        theirs.load_cert_chain(chain, key)
        server_end, client_end = socket.socketpair()

        def log_in() -> None:
            try:
                with theirs.wrap_socket(client_end, server_hostname="localhost") as tls:
                    tls.recv(1)
            except OSError:
                pass  # the server refused the certificate, and says why itself

        client = threading.Thread(target=log_in)
        client.start()
        try:
            with ours.wrap_socket(server_end, server_side=True):
                return ""
        except ssl.SSLCertVerificationError as error:
            return str(error)
        finally:
            server_end.close()
            client.join()
            client_end.close()


class Curl(Program):
    """``curl``."""

    name = "curl"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        program = _found(self.name)
        return [
            _error(
                *(program, "--silent", "--show-error", "--noproxy", "*", "--max-time", "20"),
                *("--resolve", f"localhost:{question.port}:127.0.0.1", "--capath", str(folder / "none")),
                *("--cacert", written(folder, "trust.pem", question.trust), f"https://localhost:{question.port}/"),
            )
            for question in questions
        ]


class GnuTLS(Program):
    """``gnutls-cli``, and ``certtool --verify`` for clients."""

    name = "gnutls-cli"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        program = _found(self.name)
        return [
            _error(
                *(program, "--x509cafile", written(folder, "trust.pem", question.trust)),
                *("--port", str(question.port), "--verify-hostname", "localhost", "127.0.0.1"),
            )
            for question in questions
        ]

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        program = _found("certtool")
        return [
            _error(
                *(program, "--verify", "--verify-purpose", "1.3.6.1.5.5.7.3.2"),
                *("--load-ca-certificate", written(folder, "trust.pem", question.trust)),
                *("--infile", written(folder, "chain.pem", question.chain)),
            )
            for question in questions
        ]


class Node(Program):
    """Node.js, for clients and for servers."""

    name = "node"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        return self._ask([{"port": question.port, "trust": question.trust.decode()} for question in questions])

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        return self._ask(
            [
                {
                    "trust": question.trust.decode(),
                    "chain": question.chain.decode(),
                    "key": question.key.decode(),
                    "serverChain": question.chain.decode(),
                    "serverKey": question.key.decode(),
                }
                for question in questions
            ]
        )

    def _ask(self, asked: list[dict[str, object]]) -> list[Answer]:
        finished = _run(_found(self.name), "clients.js", given=json.dumps(asked))
        assert finished.returncode == 0, finished.stderr
        return list(json.loads(finished.stdout))


class Java(Program):
    """Java's default trust manager; the program is compiled in memory."""

    name = "java"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        return self._ask(
            [
                f"{question.port} {written(folder, f'trust-{number}.pem', question.trust)}"
                for number, question in enumerate(questions)
            ]
        )

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        asked = []
        for number, question in enumerate(questions):
            trust = written(folder, f"trust-{number}.pem", question.trust)
            asked.append(f"client {trust} {written(folder, f'chain-{number}.pem', question.chain)}")
        return self._ask(asked)

    def _ask(self, asked: list[str]) -> list[Answer]:
        program, _ = _found(self.name), _found("javac")
        finished = _run(program, "Client.java", given="\n".join(asked) + "\n")
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.splitlines()


class Go(Program):
    """Go's ``crypto/x509``, by a program that is compiled here."""

    name = "go"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        return self._ask([("server", question.trust, question.chain) for question in questions])

    def clients(self, folder: Path, questions: Sequence[AcceptsClient]) -> list[Answer]:
        return self._ask([("client", question.trust, question.chain) for question in questions])

    def _ask(self, asked: list[tuple[str, bytes, bytes]]) -> list[Answer]:
        text = json.dumps(
            [{"Purpose": purpose, "Trust": trust.decode(), "Chain": chain.decode()} for purpose, trust, chain in asked]
        )
        finished = _run(_found(self.name), "run", "verify.go", given=text)
        assert finished.returncode == 0, finished.stderr
        return list(json.loads(finished.stdout))


class Kubectl(Program):
    """kubectl, whose client-go is a current Go program."""

    name = "kubectl"

    def servers(self, folder: Path, questions: Sequence[AcceptsServer]) -> list[Answer]:
        program = str(find_kubectl())

        def ask(number: int) -> Answer:
            question = questions[number]
            environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(folder)}
            finished = subprocess.run(
                [
                    *(program, "--kubeconfig", os.devnull, "--server", f"https://127.0.0.1:{question.port}"),
                    *("--tls-server-name", "localhost", "--request-timeout", "20s", "--token", "none"),
                    *("--certificate-authority", written(folder, f"trust-{number}.pem", question.trust)),
                    *("get", "--raw", "/version"),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT,
                env=environment,
            )
            return "" if finished.returncode == 0 else finished.stderr.strip() or "failed"

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(ask, range(len(questions))))


SERVER_VERIFIERS: Final[tuple[Program, ...]] = (
    OpenSSL(),
    Python(),
    Curl(),
    GnuTLS(),
    Node(),
    Java(),
    Go(),
    Kubectl(),
)
CLIENT_VERIFIERS: Final[tuple[Program, ...]] = (OpenSSL(), Python(), GnuTLS(), Node(), Java(), Go())
