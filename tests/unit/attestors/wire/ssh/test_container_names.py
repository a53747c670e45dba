"""Names of containers in SSH: user names and principals."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.container_names import (
    Container,
    ContainerAddress,
    Numbered,
    OnlyContainer,
    Pod,
    Workload,
    WorkloadKind,
    parse_container_address,
    parse_container_principal,
)
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.principals import MAXIMUM_PRINCIPAL_CHARACTERS

WEB = Workload(WorkloadKind.DEPLOYMENT, "web")
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
subdomains = st.lists(labels | st.sampled_from(["deploy", "pod", "sts", "0", "17"]), min_size=1, max_size=4).map(
    ".".join
)
containers = st.builds(
    Container,
    labels,
    st.builds(Pod, subdomains) | st.builds(Workload, st.sampled_from(WorkloadKind), subdomains),
    labels,
)


@pytest.mark.parametrize(
    ("user", "address"),
    [
        ("shop_web-0_app", ContainerAddress("shop", Pod("web-0"), "app")),
        ("shop_web-0", ContainerAddress("shop", Pod("web-0"), OnlyContainer())),
        ("shop_web.0_app", ContainerAddress("shop", Pod("web.0"), "app")),
        ("shop_deploy.web_app", ContainerAddress("shop", WEB, "app")),
        ("shop_deploy.web.2_app", ContainerAddress("shop", Numbered(WEB, 2), "app")),
        ("shop_deploy.web.2", ContainerAddress("shop", Numbered(WEB, 2), OnlyContainer())),
        ("shop_sts.db.0_app", ContainerAddress("shop", Numbered(Workload(WorkloadKind.STATEFUL_SET, "db"), 0), "app")),
        ("shop_ds.agent", ContainerAddress("shop", Workload(WorkloadKind.DAEMON_SET, "agent"), OnlyContainer())),
        ("shop_job.load", ContainerAddress("shop", Workload(WorkloadKind.JOB, "load"), OnlyContainer())),
        ("shop_pod.deploy.web_app", ContainerAddress("shop", Pod("deploy.web"), "app")),
        ("shop_deploy.web.0.1", ContainerAddress("shop", Numbered(Workload(WEB.kind, "web.0"), 1), OnlyContainer())),
        ("shop_deploy.web.01", ContainerAddress("shop", Workload(WEB.kind, "web.01"), OnlyContainer())),
        ("shop_deploy", ContainerAddress("shop", Pod("deploy"), OnlyContainer())),
    ],
)
def test_user_names(user: str, address: ContainerAddress) -> None:
    assert parse_container_address(user) == address


@pytest.mark.parametrize(
    "user",
    [
        "",
        "root",
        "shop_",
        "_web",
        "shop__app",
        "shop_web_",
        "shop_web_app_x",
        "shop_web_app_",
        "Shop_web_app",
        "shop_web_app\n",
        "shop_web_a.b",
        "sh.op_web",
        "shop_-web",
        "shop_web-",
        "shop_web..0",
        "shop_deploy.",
        "shop_pod.",
        "shop_deploy..0",
        "shop_web\x1b[2J_app",
        "shop_wéb_app",
        "shop_" + "w" * 254,
        "n" * 64 + "_web",
        "x" * (MAXIMUM_PRINCIPAL_CHARACTERS + 1),
    ],
)
def test_other_user_names_are_refused(user: str) -> None:
    with pytest.raises(SSHRefused) as caught:
        parse_container_address(user)
    assert caught.value.reason is SSHReason.PRINCIPAL_INVALID
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


def test_the_longest_name_is_accepted() -> None:
    name = "_".join(("n" * 63, "p" * 253, "c" * 63))
    assert len(name) == MAXIMUM_PRINCIPAL_CHARACTERS
    assert str(parse_container_principal(name).principal) == name


@given(containers)
def test_a_principal_means_the_one_container_that_it_was_made_of(container: Container) -> None:
    assert parse_container_principal(str(container.principal)) == container


@given(containers)
def test_the_name_of_a_container_addresses_it(container: Container) -> None:
    """A workload whose name ends in a number is the exception: as a user name, that is the pod's number."""
    address = parse_container_address(str(container))
    assert (address.namespace, address.container) == (container.namespace, container.container)
    if isinstance(container.of, Pod):
        assert address.of == container.of
    elif isinstance(address.of, Numbered):
        assert f"{address.of.workload.name}.{address.of.number}" == container.of.name
    else:
        assert address.of == container.of


@pytest.mark.parametrize("principal", ["shop_web-0", "shop_pod.web-0_app", "root@worker-1", "shop_web-0_app@worker-1"])
def test_a_principal_has_one_form(principal: str) -> None:
    with pytest.raises(SSHRefused, match="PrincipalInvalid"):
        parse_container_principal(principal)


@given(st.text(max_size=40))
def test_any_other_error_would_fail_this(text: str) -> None:
    with contextlib.suppress(SSHRefused):
        parse_container_address(text)
