"""A software TPM with endorsement key certificates from a certificate authority of its own.

It needs no root, and writes only to its temporary folder. The commands follow swtpm's manual pages
(``swtpm_setup(8)``, ``swtpm_setup.conf(8)``, ``swtpm-localca(8)``, ``swtpm(8)``).
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart
from tests.support.closing import ClosedAtTheEnd
from tests.support.processes import Program, ProgramFailed, Programs, free_ports

ENDORSEMENT_CERTIFICATES: Final = {0x01C00002: "ek-rsa2048.crt", 0x01C00016: "ek-secp384r1.crt"}
"""Where swtpm_setup puts the certificates: NV index, and name of the file with the same content (DER)."""

LIBRARY_MISSING: Final = (
    "tpm2-pytss is not installed: run tests/provision/provision.sh tpm, then pip install 'capi-node-attestation[tpm]'"
)

START_ATTEMPTS: Final = 5
"""Another program may take free ports before swtpm listens on them."""
PORT_TAKEN: Final = "Address already in use"
_SETUP_SECONDS: Final = 60.0
_ROOT_CERTIFICATE: Final = "swtpm-localca-rootca-cert.pem"
_ISSUER_CERTIFICATE: Final = "issuercert.pem"

_LOCAL_CA: Final = """\
statedir = {authority}
signingkey = {authority}/signkey.pem
issuercert = {authority}/issuercert.pem
certserial = {authority}/certserial
"""
_LOCAL_CA_OPTIONS: Final = """\
--platform-manufacturer NodeAttestation
--platform-version 1
--platform-model software
"""
_SETUP: Final = """\
create_certs_tool = {swtpm_localca}
create_certs_tool_config = {folder}/swtpm-localca.conf
create_certs_tool_options = {folder}/swtpm-localca.options
active_pcr_banks = {pcr_banks}
"""


def find_swtpm() -> None:
    """Raises ``MissingPart``: a program that a software TPM is made with is not installed."""
    for program in ("swtpm", "swtpm_setup", "swtpm_localca"):
        if shutil.which(program) is None:
            raise MissingPart(f"{program} is not installed: run tests/provision/provision.sh tpm")


def find_tpm_library() -> None:
    """Raises ``MissingPart``: tpm2-pytss, or the library that it binds, is not installed."""
    try:
        importlib.import_module("tpm2_pytss")
    except ImportError as error:
        raise MissingPart(LIBRARY_MISSING) from error


class SoftwareTPM(ClosedAtTheEnd):
    """A newly manufactured, running swtpm.

    It has RSA-2048 and ECC P-384 endorsement keys, with certificates in NV (``ENDORSEMENT_CERTIFICATES``).
    """

    def __init__(self, *, same_authority_as: SoftwareTPM | None = None, pcr_banks: str = "sha256") -> None:
        """Manufacture and start a TPM.

        Its certificates come from its own authority, or from that of another TPM that is still open. Raises
        ``MissingPart``.
        """
        find_swtpm()
        self._programs = Programs("node-attestation-tpm-")
        with self._programs.closed_on_failure():
            self._state = self._programs.folder / "state"
            self._state.mkdir()
            self._authority = (
                self._programs.folder / "authority" if same_authority_as is None else same_authority_as.authority
            )
            self._manufacture(pcr_banks)
            self._port, self._swtpm = self._start_anywhere()

    @property
    def tcti(self) -> str:
        """Its TCTI configuration for tpm2-tss (``Tss2_TctiLdr_Initialize``) and ``TPM2TOOLS_TCTI``."""
        return f"swtpm:host=127.0.0.1,port={self._port}"

    @property
    def port(self) -> int:
        """The data port of 127.0.0.1; the control port is the next one."""
        return self._port

    @property
    def process_id(self) -> int:
        """The process ID of swtpm."""
        return self._swtpm.process.pid

    @property
    def authority(self) -> Path:
        """The folder with the certificate authority's keys and certificates."""
        return self._authority

    @property
    def root_certificate(self) -> bytes:
        """The authority's self-signed certificate, in PEM."""
        return (self._authority / _ROOT_CERTIFICATE).read_bytes()

    @property
    def issuer_certificate(self) -> bytes:
        """The intermediate certificate that signs the endorsement key certificates, in PEM."""
        return (self._authority / _ISSUER_CERTIFICATE).read_bytes()

    def endorsement_certificate(self, index: int) -> bytes:
        """The certificate in that NV index, in DER."""
        return (self._state / ENDORSEMENT_CERTIFICATES[index]).read_bytes()

    def stop(self) -> None:
        """Power off the TPM."""
        self._programs.stop(self._swtpm)

    def start(self) -> None:
        """Power on the TPM, at the same address if that is free."""
        program = self._start(self._port)
        if program is None:
            self._port, self._swtpm = self._start_anywhere()
        else:
            self._swtpm = program

    def restart(self) -> None:
        """Power-cycle the TPM: transient state is lost, NV stays."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._programs.close()

    def _manufacture(self, pcr_banks: str) -> None:
        folder = self._programs.folder
        self._authority.mkdir(exist_ok=True)
        (folder / "swtpm-localca.conf").write_text(_LOCAL_CA.format(authority=self._authority))
        (folder / "swtpm-localca.options").write_text(_LOCAL_CA_OPTIONS)
        configuration = folder / "swtpm_setup.conf"
        swtpm_localca = shutil.which("swtpm_localca")
        configuration.write_text(_SETUP.format(folder=folder, swtpm_localca=swtpm_localca, pcr_banks=pcr_banks))
        command = [
            *("swtpm_setup", "--tpm2", "--tpmstate", self._state, "--config", configuration),
            *("--create-ek-cert", "--write-ek-cert-files", self._state, "--lock-nvram", "--pcr-banks", pcr_banks),
        ]
        try:
            done = subprocess.run(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=folder,
                # swtpm_setup uses a temporary folder for certificates.
                env={**os.environ, "TMPDIR": str(folder), "XDG_CONFIG_HOME": str(folder)},
                timeout=_SETUP_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ProgramFailed(f"swtpm_setup was not done within {_SETUP_SECONDS} s\n{error.output or ''}") from error
        if done.returncode != 0:
            raise ProgramFailed(f"swtpm_setup ended with {done.returncode}\n{done.stdout}")

    def _start_anywhere(self) -> tuple[int, Program]:
        for _ in range(START_ATTEMPTS):
            port = free_ports(2)  # tpm2-tss expects swtpm's control port after the data port
            program = self._start(port)
            if program is not None:
                return port, program
        raise ProgramFailed(f"swtpm found no free ports in {START_ATTEMPTS} attempts")

    def _start(self, port: int) -> Program | None:
        """Start it on ``port`` and the next one; returns None if one of them is in use. Raises ``ProgramFailed``."""
        log = self._programs.folder / "swtpm.log"
        log.unlink(missing_ok=True)
        program = self._programs.start(
            "swtpm",
            [
                *("swtpm", "socket", "--tpm2", "--tpmstate", f"dir={self._state}"),
                *("--server", f"type=tcp,port={port},bindaddr=127.0.0.1"),
                *("--ctrl", f"type=tcp,port={port + 1},bindaddr=127.0.0.1"),
                *("--flags", "not-need-init,startup-clear"),
            ],
        )
        try:
            program.wait_ready(lambda: listens(port + 1))
            program.check_running()
        except ProgramFailed as failure:
            self._programs.stop(program)
            if PORT_TAKEN not in str(failure):
                raise
            return None
        return program


def listens(port: int) -> bool:
    """Whether the control port accepts connections; the data port is not probed, because it serves one client only."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
