from __future__ import annotations

import pytest

from attestors.clouds.urls import InvalidURL, PlainHosts, Proxy, check_url


@pytest.mark.parametrize(
    "url",
    [
        "https://compute.googleapis.com/compute/v1",
        "https://10.0.0.1:8443/x?y=z",
        "http://127.0.0.1:8080/",
        "http://127.1.2.3/",
        "http://[::1]:8080/",
    ],
    ids=range(5),
)
def test_what_may_be_called(url: str) -> None:
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "compute.googleapis.com",
        "//compute.googleapis.com/",
        "http://compute.googleapis.com/",
        "http://localhost:8080/",
        "http://127.0.0.1.example.com/",
        "http://127.0.0.1@example.com/",
        "http://10.0.0.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://169.254.169.254/computeMetadata/v1/",
        "http://metadata.google.internal/computeMetadata/v1/",
        "https://user:password@compute.googleapis.com/",
        "https://compute.googleapis.com/#fragment",
        "https:///path",
        "https://host:port/",
        "https://host/\n",
        "https://host/ x",
        "https://host\\@other/",
        "https://h\u00f6st/",
        "https://[::1/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "https://host/" + "x" * 2048,
    ],
    ids=range(23),
)
def test_what_may_not(url: str) -> None:
    with pytest.raises(InvalidURL) as caught:
        check_url(url)
    assert "password" not in str(caught.value) or "no user name" in str(caught.value)


@pytest.mark.parametrize("host", ["metadata.google.internal", "169.254.169.254", "[fd20:ce::254]", "127.0.0.1"])
def test_the_metadata_server_may_be_called_where_it_is_meant(host: str) -> None:
    url = f"http://{host}/computeMetadata/v1/"
    assert check_url(url, PlainHosts.LOOPBACK_AND_METADATA) == url


@pytest.mark.parametrize("host", ["169.254.169.253", "metadata.google.internal.example.com", "metadata"])
def test_and_no_other_host(host: str) -> None:
    with pytest.raises(InvalidURL):
        check_url(f"http://{host}/", PlainHosts.LOOPBACK_AND_METADATA)


def test_a_proxys_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Proxy("https://me:hunter2@proxy.example.com"))
