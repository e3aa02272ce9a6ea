"""Keys: who a key belongs to, a file that changes or breaks while the gateway runs, and chat-ui's own key."""

import hashlib
import itertools
import json
import logging
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from pathlib import Path

import pytest
from gateway.errors import Unauthorized
from gateway.identity import Identity, Keys, KeysError, SharedKeyError, read_or_make
from gateway.identity.keys import parse_keys
from gateway.rates import Allowance, Rate
from hypothesis import given
from hypothesis import strategies as st

DEFAULT = Allowance(Rate(60, 60.0), Rate(1000, 60.0), 4)
KEY = b"sk-a-key-of-alice"
CHAT_UI = b"c" * 43


def digest(key: bytes) -> str:
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


ALICE = f"key alice default {digest(KEY)}"


def always_later() -> Iterator[float]:
    """Give times that are two seconds apart: every use looks at the file."""
    return itertools.count(0.0, 2.0)


def keys_of(path: Path, text: str = ALICE) -> Keys:
    path.write_text(text, encoding="utf-8")
    return Keys(path, DEFAULT, always_later().__next__)


def identity(keys: Keys | None = None, *, anonymous: bool = False, chat_ui_key: bytes | None = CHAT_UI) -> Identity:
    trusted = (ip_network("127.0.0.0/8"),)
    return Identity(trusted, DEFAULT, keys=keys, chat_ui_key=chat_ui_key, anonymous=anonymous)


def asked(*headers: tuple[str, bytes], peer: str = "203.0.113.7") -> dict[str, object]:
    return {"client": (peer, 4711), "headers": [(name.encode(), value) for name, value in headers]}


def bearer(key: bytes) -> tuple[str, bytes]:
    return "authorization", b"Bearer " + key


def test_files_of_every_editor_are_read(tmp_path: Path) -> None:
    keys = keys_of(tmp_path / "keys", f"\ufeff# ours\r\n\r\n{ALICE}  \r\n")
    assert keys.holder_of(KEY)


def test_names_tiers_and_comments() -> None:
    text = f"# ours\n\ntier team requests=600/minute tokens=off\n{ALICE}\nkey bob team {digest(b'b')}\n"
    holders = {holder.name: holder.allowance for holder in parse_keys(text, DEFAULT).values()}
    assert holders == {"alice": DEFAULT, "bob": Allowance(Rate(600, 60.0), None, 4)}
    tier_last = f"key bob team {digest(b'b')}\ntier team streams=1\n"
    assert [holder.allowance.streams for holder in parse_keys(tier_last, DEFAULT).values()] == [1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "write 'key"),
        ("key bob default sha256:abc", "write 'key"),
        (f"key b/b default {digest(b'b')}", "write 'key"),
        (f"key bob gold {digest(b'b')}", "no tier 'gold'"),
        (f"key alice default {digest(b'b')}", "stands above"),
        (f"key bob default {digest(KEY)}", "stands above"),
        ("tier", "needs a name"),
        ("tier default requests=1/second", "a tier 'default' already"),
        ("tier t requests=60", "'requests=60': write a number and a unit"),
        ("tier t requests=0/minute", "'requests=0/minute'"),
        ("tier t streams=0", "'streams=0'"),
        ("tier t speed=1", "'speed=1': there are"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(KeysError, match="line 3 is wrong: ") as refused:
        keys_of(tmp_path / "keys", f"# ours\n{ALICE}\n{line}\n")
    assert said in str(refused.value)
    assert str(tmp_path / "keys") in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * 5_000_000])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(KeysError, match="keys"):
        Keys(path, DEFAULT)


@given(st.text(max_size=300))
def test_any_text_is_keys_or_named(text: str) -> None:
    try:
        said, holders = "", parse_keys(f"{text}\n{ALICE}", DEFAULT)
    except KeysError as error:
        said, holders = str(error), {}
    assert said.isprintable()
    assert said.startswith("line ") or "alice" in {holder.name for holder in holders.values()}


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    keys = keys_of(path)
    holder = keys.holder_of(KEY)
    assert holder is not None
    assert holder.name == "alice"
    assert keys.holder_of(b"bob's") is None
    path.write_text(f"{ALICE}\nkey bob default {digest(b'bob')}\n", encoding="utf-8")
    assert keys.holder_of(b"bob") is not None
    caplog.set_level(logging.INFO)
    path.write_text("key bob\n", encoding="utf-8")
    assert keys.holder_of(b"bob") is not None
    path.unlink()
    assert keys.holder_of(b"bob") is not None
    assert keys.holder_of(KEY) is not None
    errors = [json.dumps(record.__dict__["fields"]) for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 2
    assert "line 1 is wrong" in errors[0]
    path.write_text(ALICE, encoding="utf-8")
    assert keys.holder_of(b"bob") is None
    assert keys.holder_of(KEY) is not None


def test_without_keys_any_key_is_nobodys() -> None:
    assert identity().client_of(asked(bearer(b"whatever"))).name == "203.0.113.7"
    assert identity().client_of(asked()).name == "203.0.113.7"


def test_with_keys_the_holder_is_the_client(tmp_path: Path) -> None:
    known = identity(keys_of(tmp_path / "keys"))
    for scheme in (b"Bearer ", b"bearer ", b"BEARER  "):
        assert known.client_of(asked(("authorization", scheme + KEY))).name == "key:alice"
    for wrong in (KEY + b"x", KEY[:-1], b"", b"x" * 70_000):
        with pytest.raises(Unauthorized):
            known.client_of(asked(bearer(wrong)))
    for missing in (asked(), asked(("authorization", b"Basic " + KEY))):
        with pytest.raises(Unauthorized, match="is needed"):
            known.client_of(missing)


def test_anonymous_clients_may_be_let_in_but_never_with_a_wrong_key(tmp_path: Path) -> None:
    known = identity(keys_of(tmp_path / "keys"), anonymous=True)
    assert known.client_of(asked()).name == "203.0.113.7"
    assert known.client_of(asked(bearer(KEY))).name == "key:alice"
    with pytest.raises(Unauthorized, match="is not known"):
        known.client_of(asked(bearer(b"wrong")))


def test_the_person_behind_chat_ui_is_the_client_with_its_key_alone(tmp_path: Path) -> None:
    told = ("x-end-user-address", b"198.51.100.4")
    for known in (identity(), identity(keys_of(tmp_path / "keys"))):
        assert known.client_of(asked(bearer(CHAT_UI), told)).name == "198.51.100.4"
        assert (
            known.client_of(asked(bearer(CHAT_UI), ("x-end-user-address", b"[2001:db8::9]:80"))).name == "2001:db8::/64"
        )
        for junk in (b"", b"junk", b"\xff", b"1" * 70_000):
            assert known.client_of(asked(bearer(CHAT_UI), ("x-end-user-address", junk))).name == "203.0.113.7"
    assert identity().client_of(asked(bearer(b"another"), told)).name == "203.0.113.7"
    assert identity().client_of(asked(told)).name == "203.0.113.7"
    assert identity(chat_ui_key=None).client_of(asked(bearer(CHAT_UI), told)).name == "203.0.113.7"


def test_chat_uis_key_is_made_once_whoever_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "chat-ui-key"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(read_or_make, [path] * 32))
    assert len(made) == 1
    assert read_or_make(path) in made
    assert len(path.read_bytes().strip()) >= 43
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["chat-ui-key"]


def test_a_key_file_without_a_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chat-ui-key"
    path.write_text("short\n", encoding="utf-8")
    with pytest.raises(SharedKeyError, match="holds no key"):
        read_or_make(path)
    with pytest.raises(SharedKeyError, match="neither read nor made"):
        read_or_make(path / "below-a-file")
