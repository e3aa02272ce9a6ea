"""The configuration itself: accepted by nginx, clean to the linter, refused by name where a setting is wrong."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.edge import render_nginx
from ops.errors import StackError
from tests.edge.certificates import Pair, make_pair, openssl
from tests.edge.server import CONTAINER, SOURCE, Edge

pytestmark = pytest.mark.edge


def check_settings(**changes: str) -> subprocess.CompletedProcess[str]:
    """Run the image's check of its settings."""
    environment = {"PATH": os.defpath} | CONTAINER | changes
    script = SOURCE / "docker-entrypoint.d/05-settings.envsh"
    return subprocess.run(["sh", script], env=environment, capture_output=True, text=True, timeout=5, check=False)


TLS = {"NGINX_TLS": "self-signed", "NGINX_HTTPS_PORT": "8443"}
VARIANTS: dict[str, dict[str, str]] = {
    "container": {},
    "native": {"NGINX_UPSTREAM_RESOLVE": "", "NGINX_LOCAL_RESOLVERS": "127.0.0.1"},
    "self-signed": TLS,
    "files": {"NGINX_TLS": "files", "NGINX_HTTPS_PORT": "8443"},
    "names": {"NGINX_SERVER_NAMES": "chat.example.org"},
    "names and TLS": {"NGINX_SERVER_NAMES": "chat.example.org", **TLS},
    "base path": {"NGINX_BASE_PATH": "/ernie"},
    "status": {"NGINX_STATUS_PAGE": "on"},
    "status below a path": {"NGINX_STATUS_PAGE": "on", "NGINX_BASE_PATH": "/ernie"},
    "no limits": {"NGINX_RATE_LIMIT_REQUESTS": "off", "NGINX_MAX_CONNECTIONS_PER_CLIENT": "off"},
    "everything": {
        **TLS,
        "NGINX_SERVER_NAMES": "chat.example.org,*.example.com, localhost",
        "NGINX_TRUSTED_PROXIES": "10.0.0.0/8,2001:db8::/32,192.0.2.7",
        "NGINX_BASE_PATH": "/ernie/demo",
        "NGINX_STATUS_PAGE": "on",
        "NGINX_GATEWAY_ADDRESS": "127.0.0.1:8001,127.0.0.1:9001",
    },
}


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """One way to set it, with a certificate where one has to be given."""
    settings: dict[str, str] = request.param
    return settings | make_pair(tmp_path / "given").settings if settings.get("NGINX_TLS") == "files" else settings


def test_nginx_accepts_every_variant_without_a_warning(tmp_path: Path, variant: dict[str, str]) -> None:
    command = Edge(tmp_path / "nginx", **variant).command("-t")
    result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert (result.returncode, "[" in result.stderr.replace("[notice]", "")) == (0, False), result.stderr


def test_the_linter_finds_nothing_in_any(tmp_path: Path, variant: dict[str, str]) -> None:
    render_nginx(SOURCE, tmp_path / "nginx", CONTAINER | variant)
    gixy = Path(sys.executable).parent / "gixy"
    result = subprocess.run(
        [gixy, "nginx.conf"], cwd=tmp_path / "nginx", capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "No issues found" in result.stdout


def test_the_containers_defaults_are_accepted() -> None:
    result = check_settings(NGINX_VERSION="1.30.0", NGINX_ENTRYPOINT_QUIET_LOGS="1", NGINX_ENVSUBST_FILTER="^NGINX_")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("value", ["8080\r", " 8080 ", '"8080"'])
def test_stray_characters_around_a_value_are_dropped(value: str) -> None:
    assert check_settings(NGINX_HTTP_PORT=value).returncode == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NGINX_HTTP_PORT", ""),
        ("NGINX_HTTP_PORT", "0"),
        ("NGINX_HTTP_PORT", "65536"),
        ("NGINX_HTTP_PORT", "80; include /etc/passwd"),
        ("NGINX_MAX_BODY_BYTES", "4m"),
        ("NGINX_MAX_BODY_BYTES", "99999999999999999999"),
        ("NGINX_RATE_LIMIT_REQUESTS", ""),
        ("NGINX_RATE_LIMIT_REQUESTS", "100"),
        ("NGINX_RATE_LIMIT_REQUESTS", "0/second"),
        ("NGINX_RATE_LIMIT_REQUESTS", "60/minute"),
        ("NGINX_RATE_LIMIT_REQUESTS", "1000001/second"),
        ("NGINX_RATE_LIMIT_REQUESTS", "off/second"),
        ("NGINX_STATUS_PAGE", "yes"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "0"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "65536"),
        ("NGINX_MAX_CONNECTIONS_PER_CLIENT", "5; x"),
        ("NGINX_GATEWAY_ADDRESS", "gateway"),
        ("NGINX_GATEWAY_ADDRESS", "http://gateway:8001"),
        ("NGINX_GATEWAY_ADDRESS", "gateway:"),
        ("NGINX_CHAT_UI_ADDRESS", "chat-ui:port"),
        ("NGINX_CHAT_UI_ADDRESS", "chat-ui:8002;"),
        ("NGINX_MAX_BODYBYTES", "1"),
        ("NGINX_TLS", "on"),
        ("NGINX_BASE_PATH", "ernie"),
        ("NGINX_BASE_PATH", "/"),
        ("NGINX_BASE_PATH", "/ernie/"),
        ("NGINX_BASE_PATH", "/er.*"),
        ("NGINX_BASE_PATH", "/a /b"),
        ("NGINX_BASE_PATH", "/errors"),
        ("NGINX_SERVER_NAMES", "~.*"),
        ("NGINX_SERVER_NAMES", "https://chat.example.org"),
        ("NGINX_SERVER_NAMES", "a;b"),
        ("NGINX_TRUSTED_PROXIES", "all"),
        ("NGINX_TRUSTED_PROXIES", "10.0.0.0/8;"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str) -> None:
    result = check_settings(**{name: value})
    assert result.returncode == 2
    assert result.stderr.startswith(f"{name}: ")
    assert result.stderr.count("\n") == 1


def test_tls_without_a_port_says_which_file_is_missing() -> None:
    result = check_settings(NGINX_TLS="self-signed")
    assert result.returncode == 2
    assert result.stderr.startswith("NGINX_HTTPS_PORT: ")
    assert "docker-compose.tls.yml" in result.stderr


def test_one_port_for_both_is_refused() -> None:
    result = check_settings(NGINX_TLS="self-signed", NGINX_HTTPS_PORT="8080")
    assert (result.returncode, result.stderr.partition(":")[0]) == (2, "NGINX_HTTPS_PORT")


def write(path: Path, text: str) -> None:
    path.write_text(text)


def rewrite(path: Path, *command: str) -> None:
    """Let an openssl command put the file in another form."""
    openssl(*command, "-in", str(path), "-out", str(path.with_suffix(".new")))
    path.with_suffix(".new").replace(path)


BAD_PAIRS: dict[str, tuple[Callable[[Pair], object], str, str]] = {
    "no certificate": (lambda pair: pair.certificate.unlink(), "NGINX_TLS_CERTIFICATE", "is not there"),
    "no key": (lambda pair: pair.key.unlink(), "NGINX_TLS_KEY", "is not there"),
    "a folder": (
        lambda pair: (pair.certificate.unlink(), pair.certificate.mkdir()),
        "NGINX_TLS_CERTIFICATE",
        "is not there",
    ),
    "an empty certificate": (lambda pair: write(pair.certificate, ""), "NGINX_TLS_CERTIFICATE", "fullchain.pem"),
    "a cut certificate": (
        lambda pair: write(pair.certificate, pair.certificate.read_text()[:200]),
        "NGINX_TLS_CERTIFICATE",
        "broken",
    ),
    "a chain with a broken end": (
        lambda pair: write(
            pair.certificate,
            pair.certificate.read_text() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ),
        "NGINX_TLS_CERTIFICATE",
        "broken",
    ),
    "DER": (lambda pair: rewrite(pair.certificate, "x509", "-outform", "der"), "NGINX_TLS_CERTIFICATE", "PEM"),
    "a broken key": (lambda pair: write(pair.key, "nonsense"), "NGINX_TLS_KEY", "broken"),
    "another's key": (
        lambda pair: openssl("genpkey", "-algorithm", "RSA", "-out", str(pair.key)),
        "NGINX_TLS_KEY",
        "does not belong",
    ),
    "a key with a password": (
        lambda pair: rewrite(pair.key, "pkey", "-aes256", "-passout", "pass:secret"),
        "NGINX_TLS_KEY",
        "has a password",
    ),
}


@pytest.mark.parametrize("fault", BAD_PAIRS)
def test_a_certificate_that_cannot_be_served_is_named_with_the_cure(tmp_path: Path, fault: str) -> None:
    pair = make_pair(tmp_path / "given")
    spoil, name, reason = BAD_PAIRS[fault]
    spoil(pair)
    with pytest.raises(StackError) as raised:
        Edge(tmp_path / "nginx", **pair.settings)
    assert raised.value.exit_code == 2
    assert str(raised.value).startswith(f"{name}: ")
    assert reason in str(raised.value)
    assert str(raised.value).count("\n") == 0


def test_a_file_that_nginx_may_not_read_is_named_with_the_cure() -> None:
    """/etc/shadow stands for it: the tests' own folders are closed to that user, the scripts' too."""
    is_root = os.geteuid() == 0
    user = 101 if is_root else os.geteuid()
    as_user = ["setpriv", "--reuid=101", "--regid=101", "--clear-groups"] if is_root else []
    done = subprocess.run(
        [*as_user, "sh", "-s", "--", "take"],
        input=(SOURCE / "certificate.sh").read_text(),
        env={"PATH": os.defpath, "NGINX_TLS": "files", "NGINX_TLS_CERTIFICATE": "/etc/shadow", "NGINX_TLS_KEY": "x"},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 2
    cure = f"/etc/shadow cannot be read by user {user}: chown {user} /etc/shadow"
    assert done.stderr == f"NGINX_TLS_CERTIFICATE: {cure}\n"


@pytest.mark.parametrize(
    ("pair_of", "said"),
    [
        (lambda folder: make_pair(folder, expired=True), "it expired on Feb  1 00:00:00 2020"),
        (lambda folder: make_pair(folder, days=3), "it ends on "),
        (lambda folder: make_pair(folder, name="other.example.org"), "it is not for chat.example.org"),
    ],
    ids=["expired", "ends soon", "another name"],
)
def test_a_certificate_that_clients_will_refuse_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pair_of: Callable[[Path], Pair], said: str
) -> None:
    Edge(tmp_path / "nginx", NGINX_SERVER_NAMES="chat.example.org", **pair_of(tmp_path / "given").settings)
    assert f"certificate: warning: {said}" in capsys.readouterr().err


def test_a_good_certificate_is_taken_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = make_pair(tmp_path / "given")
    # Some tools leave out the last line's end.
    write(pair.certificate, pair.certificate.read_text().rstrip("\n"))
    edge = Edge(tmp_path / "nginx", NGINX_SERVER_NAMES="chat.example.org", **pair.settings)
    result = subprocess.run(edge.command("-t"), capture_output=True, text=True, timeout=10, check=False)
    assert (result.returncode, capsys.readouterr().err) == (0, "")
    assert openssl("x509", "-in", str(edge.prefix / "run/tls.pem"), "-noout", "-subject")
