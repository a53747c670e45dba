"""What a tools container may be, from the Pod as a workload cluster shows it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest

from signer.gateway.tools_container import (
    MAXIMUM_OF_GRANT,
    MAXIMUM_OF_POD,
    NAME_PREFIX,
    Missing,
    NoToolsContainer,
    Runs,
    Starts,
    tools_state,
)
from signer.model.tools_image import InvalidToolsImage, ToolsImage
from tests.support.gateway_grants import UID

GRANT: Final = UID.format(11)
IMAGE: Final = ToolsImage("registry.example.com:5000/tools:1")
RESTRICTED: Final[Mapping[str, Any]] = {"runAsUser": 65532, "runAsGroup": 65532}


def pod(context: Mapping[str, Any] = RESTRICTED, **spec: Any) -> dict[str, Any]:
    container = {"name": "app", "image": "app:1", "securityContext": dict(context)}
    status = {"containerStatuses": [{"name": "app", "state": {"running": {}}}]}
    metadata = {"name": "web-0", "namespace": "shop", "uid": "p-1"}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status}


def wanted(of: dict[str, Any], grant: str = GRANT, image: ToolsImage = IMAGE) -> dict[str, Any]:
    """The container that is to be added."""
    state = tools_state(of, "app", grant, image)
    assert isinstance(state, Missing)
    return dict(state.container)


def with_container(of: dict[str, Any], state: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The Pod with the wanted container, changed as if by somebody else, in that state."""
    container = {**wanted(of), **changes}
    of = copy.deepcopy(of)
    of["spec"].setdefault("ephemeralContainers", []).append({**container, "resources": {}})
    statuses = of["status"].setdefault("ephemeralContainerStatuses", [])
    statuses.append({"name": container["name"], "state": dict(state)})
    return of


def refused(of: dict[str, Any], grant: str = GRANT) -> str:
    with pytest.raises(NoToolsContainer) as error:
        tools_state(of, "app", grant, IMAGE)
    return error.value.message


def test_the_container_is_bounded_to_its_target() -> None:
    found = wanted(pod())
    assert found["name"].startswith(f"{NAME_PREFIX}{GRANT}-")
    assert len(found["name"]) <= 63
    assert found["targetContainerName"] == "app"
    assert found["image"] == IMAGE.name
    assert found["command"] == ["sleep", "86400"]
    assert found["env"] == [{"name": "NODE_ACCESS_SESSION", "value": f"{GRANT}.tools"}]
    assert found["securityContext"] == {
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(found) == {
        *("name", "image", "imagePullPolicy", "command", "env", "securityContext", "targetContainerName"),
        *("terminationMessagePath", "terminationMessagePolicy"),
    }, "no volumes, no ports, no environment of others"


@pytest.mark.parametrize(
    ("own", "of_pod", "expected"),
    [
        pytest.param(
            {"allowPrivilegeEscalation": True, "readOnlyRootFilesystem": False, "capabilities": {"add": ["SYS_ADMIN"]}},
            {},
            {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
            id="what a user other than root cannot use is not passed on",
        ),
        pytest.param(
            {"runAsUser": 0, "runAsGroup": 0, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            {},
            {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            id="root has the target's capabilities",
        ),
        pytest.param({}, {"runAsUser": 7, "runAsGroup": 8}, {"runAsUser": 65532, "runAsGroup": 65532}, id="own first"),
        pytest.param(
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "tight.json"}},
            {"seccompProfile": {"type": "RuntimeDefault"}},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "tight.json"}},
            id="the target's seccomp profile",
        ),
        pytest.param(
            {},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "tight.json"}},
            {"seccompProfile": {"type": "Localhost", "localhostProfile": "tight.json"}},
            id="the pod's seccomp profile",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Unconfined"}},
            {},
            {"seccompProfile": {"type": "RuntimeDefault"}},
            id="never without a seccomp profile",
        ),
        pytest.param(
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}, "seLinuxOptions": {"level": "s0:c1"}},
            {},
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}, "seLinuxOptions": {"level": "s0:c1"}},
            id="AppArmor and SELinux",
        ),
    ],
)
def test_no_more_than_the_target(own: dict[str, Any], of_pod: dict[str, Any], expected: dict[str, Any]) -> None:
    found = wanted(pod({**RESTRICTED, **own}, securityContext=of_pod))["securityContext"]
    assert {name: found.get(name) for name in expected} == expected


def test_user_and_group_of_the_pod_and_of_the_kubelets_report() -> None:
    of_pod = wanted(pod({}, securityContext={"runAsUser": 7, "runAsGroup": 8}))["securityContext"]
    assert (of_pod["runAsUser"], of_pod["runAsGroup"]) == (7, 8)
    reported = pod({})
    reported["status"]["containerStatuses"][0]["user"] = {"linux": {"uid": 9, "gid": 10}}
    found = wanted(reported)["securityContext"]
    assert (found["runAsUser"], found["runAsGroup"]) == (9, 10)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (pod({}), "set runAsUser and runAsGroup"),
        (pod({"runAsUser": 1}), "set runAsUser and runAsGroup"),
        (pod({"runAsUser": True, "runAsGroup": 1}), "set runAsUser and runAsGroup"),
        (pod({"runAsUser": -1, "runAsGroup": 1}), "set runAsUser and runAsGroup"),
        (pod({**RESTRICTED, "privileged": True}), "is privileged"),
        (pod({**RESTRICTED, "privileged": "no"}), "is privileged"),
        (pod(hostPID=True), "the pod has hostPID"),
        (pod(shareProcessNamespace=True), "the pod has shareProcessNamespace"),
        (pod(os={"name": "windows"}), "on Windows"),
        (pod({**RESTRICTED, "windowsOptions": {"runAsUserName": "a"}}), "on Windows"),
        (pod(containers=[]), "no container of the pod's own"),
    ],
)
def test_targets_that_get_none(of: dict[str, Any], expected: str) -> None:
    assert expected in refused(of)


def test_an_apparmor_profile_by_annotation_would_be_lost() -> None:
    of = pod()
    of["metadata"]["annotations"] = {"container.apparmor.security.beta.kubernetes.io/app": "localhost/tight"}
    assert "AppArmor" in refused(of)


@pytest.mark.parametrize("uid", ["", "web", "UPPER", "a" * 36, GRANT + "-x"])
def test_a_uid_that_is_no_part_of_a_name(uid: str) -> None:
    assert "UID" in refused(pod(), uid)


def test_one_that_runs_is_used_again_and_one_that_ended_is_not() -> None:
    of = pod()
    name = wanted(of)["name"]
    assert tools_state(with_container(of, {"running": {}}), "app", GRANT, IMAGE) == Runs(name)
    assert tools_state(with_container(of, {}), "app", GRANT, IMAGE) == Starts(name)
    assert tools_state(with_container(of, {"running": {}}, imagePullPolicy="Always"), "app", GRANT, IMAGE) == Runs(name)
    following = wanted(with_container(of, {"terminated": {}}))
    assert following["name"] == name.removesuffix("1") + "2"


def test_another_grant_and_another_image_get_another_container() -> None:
    of = with_container(pod(), {"running": {}})
    names = {wanted(pod())["name"], wanted(of, UID.format(12))["name"], wanted(of, image=ToolsImage("tools:2"))["name"]}
    assert len(names) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"image": "evil:1"},
        {"command": ["sh"]},
        {"args": ["-c", "id"]},
        {"securityContext": {"privileged": True}},
        {"volumeMounts": [{"name": "token", "mountPath": "/token"}]},
        {"env": []},
        {"targetContainerName": "other"},
        {"resources": {"limits": {"cpu": "1"}}},
        {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
        {"stdin": True},
    ],
)
def test_a_container_of_somebody_else_is_refused(changes: dict[str, Any]) -> None:
    of = with_container(pod(), {"running": {}}, **changes)
    if "resources" in changes:
        of["spec"]["ephemeralContainers"][0]["resources"] = changes["resources"]
    assert "is not as the gateway makes it" in refused(of)


@pytest.mark.parametrize("reason", ["ErrImageNeverPull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_one_that_cannot_start_says_why(reason: str) -> None:
    assert reason in refused(with_container(pod(), {"waiting": {"reason": reason}}))
    assert isinstance(tools_state(with_container(pod(), {"waiting": {"reason": "x"}}), "app", GRANT, IMAGE), Starts)


def test_containers_of_a_grant_and_of_a_pod_are_bounded() -> None:
    of = pod()
    for _ in range(MAXIMUM_OF_GRANT):
        of = with_container(of, {"terminated": {}})
    assert f"has had {MAXIMUM_OF_GRANT} tools containers" in refused(of)
    full = pod(ephemeralContainers=[{"name": f"{NAME_PREFIX}{number}"} for number in range(MAXIMUM_OF_POD)])
    assert f"has {MAXIMUM_OF_POD} tools containers" in refused(full)
    other = pod(ephemeralContainers=[{"name": f"debugger-{number}"} for number in range(MAXIMUM_OF_POD)])
    assert wanted(other)


@pytest.mark.parametrize(
    "name", ["tools", "tools:1", "registry.example.com:5000/team/tools:V1.2@sha256:" + "0" * 64, "localhost/a__b"]
)
def test_names_of_images(name: str) -> None:
    assert ToolsImage(name).name == name


@pytest.mark.parametrize("name", ["", " tools", "tools ", "a//b", "-tools", "tools:", "a\nb", "a@sha256:1", "x" * 513])
def test_no_names_of_images(name: str) -> None:
    with pytest.raises(InvalidToolsImage):
        ToolsImage(name)
