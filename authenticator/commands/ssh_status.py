"""What ``status`` shows of SSH: the host certificates in place, the version of the trust, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attestors.wire.ssh.certificate import FOREVER
from authenticator.configuration import SSH
from authenticator.flow.sshd_files import SSHDFiles
from authenticator.model.bundle_state import BundleState
from authenticator.model.ssh_state import SSHState
from authenticator.model.unix_time import time_text
from authenticator.store.store import Damaged, Store

_ALARM_SECONDS = 24 * 3600
"""How long a restored file counts as something wrong."""
_LAST_TIME = 253402300799
"""The end of the year 9999, the last time that can be shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One line, and whether it says that something is wrong."""

    text: str
    is_good: bool


@dataclass(frozen=True, slots=True)
class SSHStatus:
    """The state of SSH on this node."""

    ssh: SSH
    state: SSHState
    bundle: BundleState
    problem: str
    now: int

    @classmethod
    def of(cls, ssh: SSH, store: Store, now: int) -> SSHStatus:
        """Read it.

        Raises:
            StoreUnusable: the store is unreadable.
        """
        try:
            return cls(ssh, store.ssh_state(), store.bundle_state(), "", now)
        except Damaged as damaged:
            return cls(ssh, SSHState(), BundleState(), str(damaged), now)

    def lines(self) -> list[Shown]:
        """For a person."""
        return [Shown(f"ssh          {one.text}", one.is_good) for one in (*self._certificates(), *self._state())]

    def document(self) -> dict[str, Any]:
        """For a program. A certificate without end shows the last time that can be shown."""
        rejection = self.state.rejection
        return {
            "trustVersion": self.state.trust_version,
            "hostCertificates": [self._certificate(number) for number in range(len(self.ssh.host_keys))],
            "rejected": None
            if rejection is None
            else {"reason": rejection.reason, "message": rejection.message, "since": time_text(rejection.at)},
            "bundle": self._bundle_document(),
            "answeredWithoutText": bool(self.state.unanswered_at),
            "revokedKeysMissing": self._lacks_revocation_list(),
            "problem": self.problem,
        }

    def _certificates(self) -> list[Shown]:
        shown: list[Shown] = []
        files = SSHDFiles(self.ssh.folder)
        for host_key in self.ssh.host_keys:
            found = files.certificate(host_key)
            if not found:
                shown.append(Shown(f"no host certificate for {host_key}", is_good=False))
            for signed in found:
                end = signed.certificate.valid_before
                shown.append(Shown(f"host certificate for {host_key} {_validity(end, self.now)}", self.now < end))
        return shown

    def _state(self) -> list[Shown]:
        shown: list[Shown] = []
        if self.state.trust_version:
            shown.append(Shown(f"version {self.state.trust_version} of the trust is in force", is_good=True))
        shown += self._bundle()
        if self._lacks_revocation_list():
            shown.append(Shown("RevokedKeys is missing or unreadable: sshd refuses each login", is_good=False))
        if self.state.unanswered_at:
            when = time_text(self.state.unanswered_at)
            text = f"the controller answered without SSH at {when}: it is older, or SSH is off there"
            shown.append(Shown(text, is_good=False))
        if self.state.rejection is not None:
            found = self.state.rejection
            text = f"not accepted at {time_text(found.at)}: {found.reason}: {found.message}"
            shown.append(Shown(text, is_good=False))
        if self.problem:
            shown.append(Shown(self.problem, is_good=False))
        return shown

    def _bundle(self) -> list[Shown]:
        found, shown = self.bundle, list[Shown]()
        if found.newest:
            how = "in force" if found.is_in_place else "accepted, and sshd's files are not as it has them"
            text = f"trust bundle {found.newest} is {how}, with {found.revocations} revocations"
            shown.append(Shown(text, found.is_in_place))
            if self.now >= found.not_after:
                when = _time(found.not_after)
                shown.append(Shown(f"nothing was heard of revocations after {when}", is_good=False))
        if found.restored_at:
            text = f"{found.restored} was missing or changed, and was restored at {_time(found.restored_at)}"
            shown.append(Shown(text, is_good=self.now >= found.restored_at + _ALARM_SECONDS))
        if found.rejection is not None:
            one = found.rejection
            text = f"the published trust bundle does not count since {time_text(one.at)}: {one.reason}: {one.message}"
            shown.append(Shown(text, is_good=False))
        return shown

    def _bundle_document(self) -> dict[str, Any] | None:
        found, rejection = self.bundle, self.bundle.rejection
        if found == BundleState():
            return None
        return {
            "version": found.sequence,
            "revocationsVersion": found.newest,
            "inPlace": found.is_in_place,
            "trustVersion": found.trust_version,
            "revocations": found.revocations,
            "renewBelow": found.renew_below,
            "notAfter": _time(found.not_after) if found.not_after else "",
            "restored": found.restored,
            "restoredAt": _time(found.restored_at) if found.restored_at else "",
            "rejected": None
            if rejection is None
            else {"reason": rejection.reason, "message": rejection.message, "since": time_text(rejection.at)},
        }

    def _lacks_revocation_list(self) -> bool:
        return bool(self.state.trust_version) and SSHDFiles(self.ssh.folder).lacks_revocation_list()

    def _certificate(self, number: int) -> dict[str, Any]:
        host_key = self.ssh.host_keys[number]
        files = SSHDFiles(self.ssh.folder)
        found = files.certificate(host_key)
        return {
            "hostKey": str(host_key),
            "file": str(files.certificate_file(host_key)),
            "serialNumber": str(found[0].certificate.serial) if found else "",
            "principals": [str(one) for one in found[0].certificate.principals] if found else [],
            "notBefore": _time(found[0].certificate.valid_after) if found else "",
            "notAfter": _time(found[0].certificate.valid_before) if found else "",
        }


def _validity(end: int, now: int) -> str:
    if end == FOREVER:
        return "valid without end"
    return f"valid until {_time(end)}" if now < end else f"ended at {_time(end)}"


def _time(unix_time: int) -> str:
    return time_text(min(unix_time, _LAST_TIME))
