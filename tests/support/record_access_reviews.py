"""Records the AdmissionReviews of :mod:`tests.support.access_requests` from a real kube-apiserver.

``python -m tests.support.record_access_reviews`` writes ``fixtures/admission/access``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from signer.crds import ACCESS_CRD_FILES
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS
from tests.support.access_requests import (
    ADDITIONAL_VERBS,
    BASTION_CONTROLLER,
    CASES,
    GRANT_CONTROLLER,
    GROUPS,
    LOGINS,
    NAMESPACE,
    REVIEWS,
    VERBS,
)
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.record_reviews import recording, write_review
from tests.support.rotation_operations import grant

_DEFINITIONS: Final = Path(__file__).parents[2] / "signer" / "crds"
_KINDS: Final = (ACCESS_GRANTS, ACCESS_APPROVALS, BASTIONS)


def prepare(control_plane: ControlPlane, admin: RawClient) -> None:
    """Create the users' roles and the objects of all cases, before anything looks at requests."""
    control_plane.install_crds(_DEFINITIONS / name for name in ACCESS_CRD_FILES)
    group = ACCESS_GRANTS.group
    plurals = [plural for kind in _KINDS for plural in (kind.plural, f"{kind.plural}/status")]
    for user in (*GROUPS, GRANT_CONTROLLER, BASTION_CONTROLLER):
        verbs = [*VERBS, *ADDITIONAL_VERBS.get(user, ())]
        rules: list[dict[str, Any]] = [{"apiGroups": [group], "resources": plurals, "verbs": verbs}]
        if LOGINS.get(user):
            names = list(LOGINS[user])
            rules.append({"apiGroups": [group], "resources": ["logins"], "resourceNames": names, "verbs": ["use"]})
        grant(admin, user, rules)
    for case in CASES:
        if case.change is not None:
            admin.post(case.resource.collection(NAMESPACE), case.manifest).expect(201)


def main() -> None:
    """Write one file for each case."""
    with ControlPlane() as control_plane, RawClient(control_plane.connection()) as admin:
        prepare(control_plane, admin)
        with recording(control_plane, admin, ACCESS_GRANTS.group, ["*/*"]) as reviews:
            probe = next(case for case in CASES if case.resource is ACCESS_GRANTS and case.change is not None)
            path = probe.resource.object(probe.name, NAMESPACE)
            change = {"metadata": {"annotations": {"example.org/probe": None}}}
            wait_until(lambda: admin.patch(path, change).expect(200) and bool(reviews), "the webhook is asked")
            reviews.clear()
            for case in CASES:
                with RawClient(control_plane.connection(case.user, GROUPS.get(case.user, ()))) as client:
                    case.send(client).expect(200, 201)
    REVIEWS.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        write_review(REVIEWS / f"{case.name}.json", reviews[case.name])


if __name__ == "__main__":
    main()
