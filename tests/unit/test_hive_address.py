"""Addresses of hives, as users give them."""

import pytest

from arkml.errors import UsageError
from arkml.hive.address import Address


@pytest.mark.parametrize(
    ("text", "address", "url"),
    [
        ("localhost", Address("localhost"), "http://localhost:12356"),
        ("hive.example:80", Address("hive.example", 80), "http://hive.example:80"),
        ("[::1]", Address("::1"), "http://[::1]:12356"),
        ("[::1]:5", Address("::1", 5), "http://[::1]:5"),
        ("http://h:5", Address("h", 5), "http://h:5"),
        ("http://h/", Address("h", 80), "http://h:80"),
        ("https://h", Address("h", 443, is_secure=True), "https://h:443"),
        (
            "https://H.example:8443/team/arkml/",
            Address("h.example", 8443, is_secure=True, prefix="/team/arkml"),
            "https://h.example:8443/team/arkml",
        ),
        ("https://[2001:db8::1]/x", Address("2001:db8::1", 443, None, True, "/x"), None),
    ],
)
def test_an_address_is_read_and_written(text, address, url):
    read = Address.parse(text)

    assert read == address
    assert url in (None, read.url)
    assert Address.parse(str(read)) == read


@pytest.mark.parametrize(
    "text",
    [
        "", ":5", "host:", "host:port", "host:0", "host:65536", "ftp://h", "https://", "https://h:0",
        "https://h:x", "https://h:99999", "https://a@h", "https://h?q", "https://h#f",
        "https://h/a/../b", "https://h//x", "https://a b",
        "a b", "a b:80", "ann@h:80", "h/x:80", "h?q", "[]:80",
    ],
)  # fmt: skip
def test_other_texts_are_one_sentence(text):
    with pytest.raises(UsageError, match="is not an address of a hive: HOST:PORT, such as"):
        Address.parse(text)


def test_a_token_is_not_shown():
    address = Address.parse("https://h", "secret")

    assert address.token == "secret"
    assert "secret" not in f"{address} {address!r}"


@pytest.mark.parametrize("text", ["https://u:tok3n@x:1/", "u:tok3n@x:1", "tok3n@x"])
def test_what_may_be_a_token_in_an_address_is_not_shown(text):
    with pytest.raises(UsageError, match=r"…@x.* a token is given apart from it") as refusal:
        Address.parse(text)

    assert "tok3n" not in str(refusal.value)
