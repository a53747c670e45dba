"""Names of authorities and of what keeps them."""

from __future__ import annotations

import pytest

from signer.model.authority_suffixes import SUFFIX
from signer.rotation.authorities import (
    ROTATION_ID,
    AuthorityKind,
    NotMade,
    Role,
    RotatedAuthority,
    new_rotation_id,
    pair_suffix,
)
from tests.unit.signer.rotation.model_world import reference


def test_ids_are_random_and_part_of_names() -> None:
    found = {new_rotation_id() for _ in range(200)}
    assert len(found) == 200
    assert all(ROTATION_ID.fullmatch(one) for one in found)


@pytest.mark.parametrize("text", ["abcdefg", "abcdefghi", "ABCDEFGH", "abcdefg1", "abcdefg8", "abcdefg\n", "äbcdefgh"])
def test_what_is_no_id(text: str) -> None:
    assert ROTATION_ID.fullmatch(text) is None


def test_each_pair_has_a_name_of_its_own() -> None:
    suffixes = {pair_suffix(kind, "abcdefgh", role) for kind in AuthorityKind for role in Role}
    assert {"ca-abcdefgh", "ca-abcdefgh-old", "etcd-abcdefgh", "sa-abcdefgh-old"} < suffixes
    assert len(suffixes) == 8
    assert all(SUFFIX.fullmatch(one) for one in suffixes)
    assert not suffixes & {kind.value for kind in AuthorityKind}


def test_the_authority_in_a_role() -> None:
    made = RotatedAuthority(AuthorityKind.CLUSTER, reference(Role.OLD), reference(Role.NEW))
    assert (made.of(Role.OLD), made.of(Role.NEW), made.made) == (made.old, made.new, made.new)


def test_a_new_authority_that_is_not_made_has_no_reference() -> None:
    one = RotatedAuthority(AuthorityKind.ETCD, reference(Role.OLD), NotMade())
    assert one.of(Role.OLD) == one.old
    with pytest.raises(LookupError, match="the new etcd authority is not made yet"):
        one.of(Role.NEW)
