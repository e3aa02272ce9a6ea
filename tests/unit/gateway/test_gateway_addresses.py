"""Whose request it is: addresses and what proxies say of them, from sound to hostile."""

import ipaddress
import time
from collections.abc import Iterator

import pytest
from gateway.identity.addresses import MAX_HOPS, UNKNOWN, Clients, name_of, parse_address
from hypothesis import given
from hypothesis import strategies as st

TRUSTED = tuple(ipaddress.ip_network(text) for text in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "fd00::/8"))
CLIENTS = Clients(TRUSTED)
# Documentation addresses: none of them is trusted.
V4 = st.ip_addresses(network="203.0.113.0/24") | st.ip_addresses(network="198.51.100.0/24")
V6 = st.ip_addresses(network="2001:db8::/32")
PROXIES = st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(network="fd00::/8")


def name(peer: str, *headers: tuple[str, str]) -> str:
    return CLIENTS.name(peer, [(key.encode(), value.encode("latin-1", "replace")) for key, value in headers])


def name_by(forwarded_for: str, peer: str = "127.0.0.1") -> str:
    return name(peer, ("x-forwarded-for", forwarded_for))


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"),
        (" 203.0.113.7 ", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("[2001:db8::1]:4711", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("[fe80::1%25eth0]:80", "fe80::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("::FFFF:CB00:7107", "203.0.113.7"),
        ("[::ffff:203.0.113.7]:80", "203.0.113.7"),
        ("64:ff9b::203.0.113.7", "203.0.113.7"),
        ("64:ff9b::cb00:7107", "203.0.113.7"),
        ("::1", "::/64"),
    ],
)
def test_addresses_are_read_in_every_form(text: str, counted: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert name_of(address) == counted


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "unknown",
            "_hidden",
            "23189987",
            "203.0.113",
            "203.0.113.256",
            "203.0.113.07",
            "0x7f.1",
            "localhost",
        ),
        *(
            "203.0.113.7:",
            "203.0.113.7:port",
            "203.0.113.7:123456",
            "203.0.113.7%eth0",
            "203.0.113.7/24",
            "\uff11.2.3.4",
        ),
        *("[203.0.113.7]:80", "[2001:db8::1", "[2001:db8::1]80", "2001:db8::1::2", "[[::1]]", '"', "\x00", "1" * 5000),
    ],
)
def test_junk_is_no_address(text: str) -> None:
    assert parse_address(text) is None
    assert name_by(text) == "127.0.0.1"


def test_the_nearest_hop_that_is_no_proxy_is_the_client() -> None:
    assert name("203.0.113.9", ("x-forwarded-for", "198.51.100.1")) == "203.0.113.9"
    assert name_by("198.51.100.1") == "198.51.100.1"
    assert name_by("192.0.2.1, 198.51.100.1") == "198.51.100.1"
    assert name_by("192.0.2.1, 198.51.100.1, 10.0.0.2, 10.0.0.1") == "198.51.100.1"
    assert name_by("192.0.2.1, junk, 10.0.0.1") == "10.0.0.1"
    assert name_by("10.0.0.3, 10.0.0.2") == "10.0.0.3"
    assert name_by("") == "127.0.0.1"
    assert name(UNKNOWN, ("x-forwarded-for", "198.51.100.1")) == UNKNOWN


def test_several_headers_are_one_list() -> None:
    headers = [("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "198.51.100.1, 10.0.0.1")]
    assert name("127.0.0.1", *headers) == "198.51.100.1"
    assert name("127.0.0.1", ("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "10.0.0.1")) == "198.51.100.1"


@pytest.mark.parametrize(
    ("forwarded", "counted"),
    [
        ("for=198.51.100.1", "198.51.100.1"),
        ('For="[2001:db8::1]:4711";proto=https', "2001:db8::/64"),
        ("proto=http;by=10.0.0.1;for=198.51.100.1", "198.51.100.1"),
        ("for=192.0.2.1, for=198.51.100.1;by=10.0.0.1", "198.51.100.1"),
        ("for=198.51.100.1, for=10.0.0.1", "198.51.100.1"),
        ("for=_hidden", "127.0.0.1"),
        ("for=unknown, for=10.0.0.1", "10.0.0.1"),
        ("by=198.51.100.1", "127.0.0.1"),
        # A quote that a client left open cannot swallow what the proxy has added.
        ('for="192.0.2.1, for=198.51.100.1', "198.51.100.1"),
    ],
)
def test_forwarded_is_read_where_there_is_no_x_forwarded_for(forwarded: str, counted: str) -> None:
    assert name("127.0.0.1", ("forwarded", forwarded)) == counted
    assert name("127.0.0.1", ("forwarded", forwarded), ("x-forwarded-for", "203.0.113.5")) == "203.0.113.5"


def test_endless_lists_are_read_from_the_near_end_and_in_no_time() -> None:
    lists = [", ".join(["10.0.0.1"] * 6000), "1" * 65_000, ",".join("," * 65_000), "a," * 30_000, 'for="' * 12_000]
    started_at = time.process_time()
    names = {name_by(text) for text in lists} | {name("127.0.0.1", ("forwarded", text)) for text in lists}
    assert time.process_time() - started_at < 0.2
    assert names <= {"10.0.0.1", "127.0.0.1"}
    assert name_by("198.51.100.1," + "10.0.0.1," * (MAX_HOPS - 2) + "10.0.0.1") == "198.51.100.1"
    assert name_by("198.51.100.1," + "10.0.0.1," * MAX_HOPS + "10.0.0.1") == "10.0.0.1"


def test_what_a_bound_cuts_off_is_nobodys_address() -> None:
    """A piece of 198.51.100.123 could be 198.51.100.1 of somebody else, or 10.0.0.1."""
    padding = " " * 3100
    assert {name_by(f"210.0.0.1{padding[:length]}") for length in range(2950, 3100)} <= {"210.0.0.1", "127.0.0.1"}


@given(peer=PROXIES, client=V4 | V6, nearer=st.lists(PROXIES, max_size=5), claimed=st.text(max_size=200))
def test_a_client_cannot_choose_who_it_is(
    peer: object, client: ipaddress.IPv4Address, nearer: list[object], claimed: str
) -> None:
    """Whatever stands before what the proxies have added changes nothing."""
    written = ", ".join([claimed.replace("\n", ""), *(str(hop) for hop in [client, *nearer])])
    assert name(str(peer), ("x-forwarded-for", written)) == name_of(client)


@given(address=V6, bits=st.integers(0, 2**64 - 1))
def test_a_64_is_one_client(address: ipaddress.IPv6Address, bits: int) -> None:
    neighbour = ipaddress.IPv6Address(int(address) >> 64 << 64 | bits)
    assert name_by(str(address)) == name_by(str(neighbour))
    assert name_by(str(address)) != name_by(str(ipaddress.IPv6Address(int(address) ^ 1 << 64)))


def test_a_thousand_addresses_of_one_64_are_one_client() -> None:
    def addresses() -> Iterator[str]:
        for number in range(1000):
            yield f"2001:db8:0:7:{number:x}::{number + 1:x}"

    assert {name_by(address) for address in addresses()} == {"2001:db8:0:7::/64"}


@given(st.binary(max_size=12_000), st.sampled_from([b"x-forwarded-for", b"forwarded"]))
def test_whatever_bytes_come_the_name_is_an_address(value: bytes, header: bytes) -> None:
    found = CLIENTS.name("127.0.0.1", [(header, value)])
    assert ipaddress.ip_network(found, strict=True)
