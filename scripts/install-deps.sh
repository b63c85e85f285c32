#!/usr/bin/env bash
# Installs the Debian packages hokku needs: `install-deps.sh build`, `install-deps.sh test` (build and tests) or
# `install-deps.sh all` (also clang, for what `./test.sh all` adds). Does nothing, quickly and silently, when they
# are there. Works as root or with sudo; otherwise it says what to install.
set -euo pipefail

build="gcc libc6-dev meson ninja-build pkg-config libpcre2-dev libjansson-dev libcurl4-openssl-dev libmicrohttpd-dev ca-certificates python3"
tests="g++ libcmocka-dev python3-venv tmux git curl nginx-light openssl zsh fish man-db groff"
more="clang libclang-rt-dev"

case ${1:-build} in
build) want=$build ;;
test) want="$build $tests" ;;
all) want="$build $tests $more" ;;
*) sed -n '2,4s/^# //p' "$0" >&2; exit 2 ;;
esac

missing=""
for p in $want; do
    dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "hokku: this is no Debian system: install what provides$missing and try again" >&2
        exit 1
    fi
    sudo=""
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "hokku: needs these packages, and there is neither root nor sudo: apt-get install$missing" >&2
            exit 1
        fi
        sudo=sudo
    fi
    echo "hokku: installing Debian packages:$missing" >&2
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >&2
    # shellcheck disable=SC2086 # a list of names
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >&2
fi
