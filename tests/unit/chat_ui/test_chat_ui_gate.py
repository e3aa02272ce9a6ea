"""The gate before a small application that tells whom it sees: who comes in, who stays out, what is set."""
# ruff: noqa: ASYNC240, S105

import ipaddress
from pathlib import Path

import httpx
import pytest
from chat_ui.accounts.errors import LoginError
from chat_ui.accounts.gate import Gate
from chat_ui.accounts.identity import PERSON, Identity, Passes
from chat_ui.accounts.oauth import read_providers
from chat_ui.accounts.passwords import PasswordFile
from chat_ui.accounts.secret import load_secret
from chat_ui.accounts.throttle import ADDRESSES, Throttle
from chat_ui.accounts.ways import Guests, HeaderLogin, OAuthLogin, PasswordLogin, Way
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from ops.accounts import set_password

PAGE = {"accept": "text/html"}
PROXY = {"x-forwarded-for": "192.0.2.9"}
STRANGER = {"x-forwarded-for": "198.51.100.7"}
PASSWORD = "correct horse"
PASSES = Passes("s" * 48, days=30)


class Application:
    """What Chainlit is to the gate: it tells whom it takes the cookie for, and checks a password."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self.asgi = Starlette(
            routes=[
                Route("/", self._page),
                Route("/user", self._user),
                Route("/login", self._log_in, methods=["POST"]),
                Route("/cookie", self._cookie),
            ]
        )

    async def _page(self, _request: Request) -> Response:
        return HTMLResponse("<p>")

    async def _user(self, request: Request) -> Response:
        found = PASSES.read(request.headers.get("cookie", ""))
        assert PERSON.get() == (found.identity.name if found else "")
        assert "authorization" not in request.headers
        return JSONResponse({"name": PERSON.get(), "scheme": request.url.scheme})

    async def _log_in(self, request: Request) -> Response:
        assert isinstance(self._way, PasswordLogin)
        told = await request.json()
        identity = await self._way.log_in(told["name"], told["password"])
        if identity is None:
            return Response(status_code=401)
        response = Response()
        response.set_cookie("access_token", PASSES.write(identity))
        return response

    async def _cookie(self, _request: Request) -> Response:
        response = Response()
        response.set_cookie("x", "1", secure=True, samesite="none")
        return response


def browser(way: Way, header: str = "", peer: str = "127.0.0.1", base_path: str = "") -> httpx.AsyncClient:
    """Return a browser of its own before the gate, with nginx at `peer` between them."""
    trusted = (ipaddress.IPv4Network("127.0.0.0/8"),)
    # Its clock stands: a wait that has begun does not end, however slow the machine.
    throttle = Throttle(lambda: 0.0)
    app = Starlette(routes=[Mount(base_path, Application(way).asgi)]) if base_path else Application(way).asgi
    gate = Gate(
        app,
        way=way,
        passes=PASSES,
        trusted_proxies=trusted,
        header=header,
        throttle=throttle,
        base_path=base_path,
    )
    transport = httpx.ASGITransport(gate, client=(peer, 1))
    return httpx.AsyncClient(transport=transport, base_url=f"http://chat{base_path}")


async def who(client: httpx.AsyncClient, **headers: str) -> str:
    return str((await client.get("/user", headers=headers)).json()["name"])


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash with little work; test_chat_ui_login.py does as much as people wait for."""
    monkeypatch.setattr("ops.accounts._PARAMETERS", (10, 8, 1))
    monkeypatch.setattr("chat_ui.accounts.passwords.PARAMETERS", (10, 8, 1))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "people"
    set_password(file, "alice", PASSWORD)
    set_password(file, "bob", "another one")
    return file


@pytest.fixture
def accounts(file: Path) -> PasswordLogin:
    passwords = PasswordFile(str(file))
    passwords.load()
    return PasswordLogin(passwords)


async def log_in(client: httpx.AsyncClient, name: str, password: str, **headers: str) -> httpx.Response:
    return await client.post("/login", json={"name": name, "password": password}, headers=headers)


async def test_a_guest_is_the_same_at_every_visit_and_no_other() -> None:
    async with browser(Guests()) as one, browser(Guests()) as other:
        for client in (one, other):
            await client.get("/", headers=PAGE)
        known = await who(one)
        assert known.startswith("guest:")
        assert await who(one) == known
        assert await who(other) not in {"", known}


async def test_who_takes_no_cookies_is_a_new_guest_each_time() -> None:
    async with browser(Guests()) as client:
        first, second = await who(client), await who(client)
        assert first.startswith("guest:")
        assert first != second


async def test_a_forged_pass_an_old_one_and_one_in_a_header_are_nobodys() -> None:
    identity = Identity("guest:1", "guest", "Guest")
    forged = Passes("t" * 48, days=30).write(identity)
    expired = Passes("s" * 48, days=-1).write(identity)
    async with browser(Guests()) as client:
        for value in (forged, expired, "x", f"{PASSES.write(identity)[:-4]}AAAA"):
            assert await who(client, cookie=f"a=b; access_token={value}") not in {"", "guest:1"}
        assert await who(client, authorization=f"Bearer {PASSES.write(identity)}") not in {"", "guest:1"}
        assert await who(client, cookie=f"a=b; access_token={PASSES.write(identity)}") == "guest:1"


@pytest.mark.parametrize(("peer", "told", "secure"), [("127.0.0.1", "https", True), ("127.0.0.1", "http", False)])
async def test_cookies_are_out_of_reach_of_scripts_and_other_sites_and_secure_behind_tls(
    peer: str, told: str, secure: bool
) -> None:
    async with browser(Guests(), peer=peer) as client:
        headers = {"x-forwarded-proto": told}
        answers = [await client.get(path, headers=PAGE | headers) for path in ("/", "/cookie")]
        assert (await client.get("/user", headers=headers)).json()["scheme"] == told
    for answer in answers:
        attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")}
        assert {"httponly", "samesite=lax", "path=/"} <= attributes
        assert ("secure" in attributes) is secure


async def test_a_stranger_does_not_say_that_it_is_tls() -> None:
    async with browser(Guests(), peer="198.51.100.7") as client:
        answer = await client.get("/", headers=PAGE | {"x-forwarded-proto": "https"})
    assert "secure" not in answer.headers["set-cookie"].lower()


async def test_a_pass_in_use_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async with browser(Guests()) as client:
        first = (await client.get("/", headers=PAGE)).headers["set-cookie"]
        known = await who(client)
        assert "set-cookie" not in (await client.get("/", headers=PAGE)).headers
        monkeypatch.setattr("chat_ui.accounts.gate.RENEW_SECONDS", -1)
        assert (await client.get("/", headers=PAGE)).headers["set-cookie"].startswith("access_token=")
        assert first
        assert await who(client) == known


async def test_only_the_right_password_opens_and_a_wrong_name_looks_like_a_wrong_password(
    accounts: PasswordLogin,
) -> None:
    async with browser(accounts) as client:
        assert (await client.get("/", headers=PAGE)).is_success
        assert await who(client) == ""
        for name, password in (("alice", "wrong"), ("mallory", PASSWORD), ("alice", "x" * 5000), ("", "")):
            assert (await log_in(client, name, password)).status_code == 401
        assert (await log_in(client, "alice", PASSWORD)).is_success
        assert await who(client) == "account:alice"


@pytest.mark.parametrize("base_path", ["", "/ai/ernie"])
async def test_who_guesses_waits_longer_and_longer_and_others_do_not(accounts: PasswordLogin, base_path: str) -> None:
    async with browser(accounts, base_path=base_path) as client:
        for number in range(5):
            assert (await log_in(client, "bob", f"guess {number}", **STRANGER)).status_code == 401
        refused = await log_in(client, "bob", "another one", **STRANGER)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        assert (await log_in(client, "bob", "another one", **PROXY)).is_success


async def test_another_password_and_a_deleted_account_end_the_visits(accounts: PasswordLogin, file: Path) -> None:
    async with browser(accounts) as alice, browser(accounts) as bob:
        assert (await log_in(alice, "alice", PASSWORD)).is_success
        assert (await log_in(bob, "bob", "another one")).is_success
        set_password(file, "alice", "another one")
        assert (await who(alice), await who(bob)) == ("", "account:bob")
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("bob")))
        assert await who(bob) == ""
        assert (await log_in(alice, "alice", "another one")).is_success


async def test_who_was_in_as_a_guest_is_out_once_a_login_is_asked_for(accounts: PasswordLogin) -> None:
    guest = PASSES.write(Identity("guest:1", "guest", "Guest"))
    async with browser(accounts) as client:
        assert await who(client, cookie=f"access_token={guest}; access_token_0={guest}") == ""


async def test_the_proxy_alone_names_people_and_each_request_counts() -> None:
    way = HeaderLogin((ipaddress.IPv4Network("192.0.2.0/24"),))
    alice = {"x-remote-user": "alice@example.org"}
    async with browser(way, header="X-Remote-User") as client:
        assert (await client.get("/", headers=PAGE | PROXY | alice)).is_success
        assert await who(client, **PROXY, **alice) == "header:alice@example.org"
        # Somebody else sits down at the same browser, and somebody comes around the proxy.
        assert await who(client, **PROXY, **{"x-remote-user": "bob"}) == "header:bob"
        assert await who(client, **PROXY) == ""
        assert await who(client, **STRANGER, **alice) == ""
        refused = await client.get("/", headers=PAGE | STRANGER | alice)
        assert refused.status_code == 403
        assert "sign-in" in refused.text
        twice = [*PROXY.items(), *alice.items(), ("x-remote-user", "root")]
        assert (await client.get("/user", headers=twice)).json()["name"] == ""


@pytest.mark.parametrize(
    ("allowed", "name", "enters"),
    [
        ((), "anybody", True),
        (("Alice", "@example.org"), "alice", True),
        (("alice", "@example.org"), "Bob@Example.org", True),
        (("alice", "@example.org"), "bob", False),
        (("alice", "@example.org"), "bob@example.org.evil.com", False),
        (("alice", "@example.org"), "example.org", False),
    ],
)
def test_a_provider_lets_in_whom_the_setting_names(allowed: tuple[str, ...], name: str, enters: bool) -> None:
    assert (OAuthLogin(allowed).log_in("github", name) is not None) is enters


def test_providers_are_read_from_a_file_and_their_values_never_told(tmp_path: Path) -> None:
    file = tmp_path / "oauth"
    file.write_text('# GitHub\nOAUTH_GITHUB_CLIENT_ID=id\nOAUTH_GITHUB_CLIENT_SECRET = "hush"\n')
    assert read_providers(str(file)) == {"OAUTH_GITHUB_CLIENT_ID": "id", "OAUTH_GITHUB_CLIENT_SECRET": "hush"}
    for text in ("PATH=hush", "OAUTH_AZURE_AD_HYBRID_CLIENT_SECRET=hush", "hush"):
        file.write_text(text)
        with pytest.raises(LoginError, match=f"CHAT_UI_OAUTH_FILE={file}: line 1") as told:
            read_providers(str(file))
        assert "hush" not in str(told.value)


@pytest.mark.parametrize(
    "line", ["alice", "alice secret", "alice scrypt:99:8:1:AAAA:AAAA", "a b scrypt:15:8:3:AA==:AA=="]
)
def test_a_line_that_is_no_account_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "people"
    file.write_text(f"# people\n{line}\n")
    with pytest.raises(LoginError, match="line 2 is no account"):
        PasswordFile(str(file)).load()


def test_waits_double_end_and_are_bounded_in_number() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    for _ in range(7):
        throttle.failed("2001:db8::1")
    assert throttle.wait_seconds("2001:db8::2") == 8
    now[0] += 8
    assert throttle.wait_seconds("2001:db8::1") == 0
    for _ in range(30):
        throttle.failed("2001:db8::1")
    assert throttle.wait_seconds("2001:db8::1") == 900
    now[0] += 3601
    throttle.failed("2001:db8::1")
    assert throttle.wait_seconds("2001:db8::1") == 0
    for number in range(ADDRESSES + 10):
        throttle.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(throttle._wrong) == ADDRESSES


def test_the_secret_is_made_once_and_for_this_user_alone(tmp_path: Path) -> None:
    made = load_secret("", tmp_path / "data")
    assert load_secret("", tmp_path / "data") == made
    assert len(made) >= 64
    file = tmp_path / "data/cookie-secret"
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in file.parent.iterdir()] == ["cookie-secret"]
    assert load_secret(str(file), tmp_path) == made


def test_a_folder_that_cannot_be_written_costs_no_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "data").write_text("a file")
    first, second = (load_secret("", tmp_path / "data") for _ in range(2))
    assert first != second
    assert "forgotten when this process ends" in caplog.text
    assert first not in caplog.text
