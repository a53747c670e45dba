"""Whether the settings still allow a virtual machine that was attested before.

What else they deny, such as a service account, a record does not say: the instance's next token does.
"""

from __future__ import annotations

from attestors.contract import AttestedBefore, Standing, StillAllowed
from attestors.gcp.identity import InstanceIdentity
from attestors.gcp.settings import GCPSettings
from attestors.verdict import denied


def standing_of(attested: AttestedBefore, settings: GCPSettings) -> Standing:
    """See :class:`attestors.contract.DeniesIdentities`. The settings are those of the start: no file can be unreadable.

    Raises:
        InvalidIdentity: the identity is not one that this attestor proves.
    """
    number = InstanceIdentity.parse(attested.identity).project_number
    if number not in settings.projects.values():
        return denied("ProjectNotAllowed", f"instances of the project with number {number} are not allowed").outcome
    return StillAllowed()
