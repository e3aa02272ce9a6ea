"""Certificates of the tests' own, made by the same tool that operators use."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

CLOCK_SKEW = "20200101000000Z"
OPENSSL_TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path

    @property
    def settings(self) -> dict[str, str]:
        """What makes the edge serve them."""
        return {
            "NGINX_TLS": "files",
            "NGINX_TLS_CERTIFICATE": str(self.certificate),
            "NGINX_TLS_KEY": str(self.key),
        }

    def replace_by(self, other: "Pair") -> None:
        """Put another pair's contents where this one lies, the way a renewal does."""
        self.certificate.write_bytes(other.certificate.read_bytes())
        self.key.write_bytes(other.key.read_bytes())


def openssl(*arguments: str) -> str:
    """Call openssl; returns what it printed."""
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, timeout=OPENSSL_TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_pair(folder: Path, *, days: int = 90, name: str = "chat.example.org", expired: bool = False) -> Pair:
    """Make a certificate for `name` and 127.0.0.1 that is its own authority."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / "fullchain.pem", folder / "privkey.pem")
    request = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}"]
    names = ["-addext", f"subjectAltName=DNS:{name},IP:127.0.0.1"]
    out = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
    if not expired:
        openssl("req", "-x509", *request, *names, "-days", str(days), *out)
        return pair
    asked = folder / "request.pem"
    openssl("req", "-new", *request, "-keyout", str(pair.key), "-out", str(asked))
    (folder / "index").touch()
    (folder / "ca.conf").write_text(
        "[ca]\ndefault_ca=ca\n[ca]\n"
        f"database={folder}/index\nrand_serial=yes\nnew_certs_dir={folder}\ndefault_md=sha256\npolicy=any\n"
        "[any]\ncommonName=supplied\n"
    )
    openssl(
        *("ca", "-config", str(folder / "ca.conf"), "-selfsign", "-keyfile", str(pair.key), "-in", str(asked)),
        *("-startdate", CLOCK_SKEW, "-enddate", "20200201000000Z", "-batch", "-out", str(pair.certificate), "-notext"),
    )
    return pair
