"""What to do about an answer of the management cluster's API server, in the words that follow its own."""

from __future__ import annotations

from typing import Final

from signer.kube.errors import Forbidden, Unauthorized

_REMEDIES: Final[dict[type[BaseException], str]] = {
    Unauthorized: ": it does not know these credentials, or not any more: see --kubeconfig",
    Forbidden: ": grant that to whom --kubeconfig names, or be somebody who has it (docs/operating.md, Grants)",
}


def remedy_of(error: BaseException | None) -> str:
    """Empty where there is none to be named."""
    # For who has the grants of a controller that serves one namespace, as in its Pod.
    is_too_wide = isinstance(error, Forbidden) and "at the cluster scope" in str(error)
    scope = "; with grants in one namespace alone, give --namespace" if is_too_wide else ""
    return _REMEDIES.get(type(error), "") + scope if error is not None else ""
