"""Serial numbers of revoked certificates, as ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attestors.wire.ssh.encoding import MAXIMUM_UINT64
from attestors.wire.ssh.errors import SSHReason, SSHRefused


@dataclass(frozen=True, slots=True, order=True)
class SerialRange:
    """The serial numbers from ``first`` to ``last``, both included.

    Raises:
        SSHRefused: ``SerialZero``, or ``SerialRangeInvalid``: it ends before it begins, or above 64 bits.
    """

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first == 0:
            raise SSHRefused(
                SSHReason.SERIAL_ZERO, "serial number 0 cannot be revoked: it would make sshd refuse the whole list"
            )
        if not 0 < self.first <= self.last <= MAXIMUM_UINT64:
            raise SSHRefused(
                SSHReason.SERIAL_RANGE_INVALID, "a range of serial numbers goes upwards, from 1 to 2^64 - 1"
            )

    @classmethod
    def single(cls, serial: int) -> SerialRange:
        """One serial number; raises as the constructor."""
        return cls(serial, serial)

    def __contains__(self, serial: int) -> bool:
        return self.first <= serial <= self.last


def merged(ranges: Iterable[SerialRange]) -> tuple[SerialRange, ...]:
    """The same serial numbers in as few ranges as possible, in order."""
    found: list[SerialRange] = []
    for one in sorted(ranges):
        if found and one.first <= found[-1].last + 1:
            found[-1] = SerialRange(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)
