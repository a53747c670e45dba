"""Facts about the alternative names of one serving request that come from neither the request nor its Machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """Each field's default is that of an audit line that was written before the field existed."""

    possibly_conflicting_names: frozenset[str] = frozenset()
    """The requested names and addresses that an address of another Machine may be, if that address cannot be read.

    In canonical form; for addresses, their equivalent addresses.
    """
    names_of_shared_hosts: frozenset[str] = frozenset()
    """The requested names, in canonical form, whose host another Machine has too, in any domain. Empty if the policy
    names no domains.
    """
