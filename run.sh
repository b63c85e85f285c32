#!/usr/bin/env bash
# Installs what hokku needs (Debian packages), builds it, and runs it with the given arguments. Says on standard error what
# it does when there is something to do; standard output belongs to hokku.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

"$here/scripts/install-deps.sh" build
if [ ! -f "$here/build/build.ninja" ]; then
    echo "hokku: configuring the build in build/" >&2
    arch=$("$here/scripts/gpu-arch.sh") # of the GPU that is here; without one the default
    log=$(meson setup "$here/build" "$here" -Dtests=false -Dwerror=false ${arch:+"-Dgpu_arch=$arch"} </dev/null 2>&1) || { printf '%s\n' "$log" >&2; exit 1; }
fi
if ! ninja -C "$here/build" -n src/hokku </dev/null 2>/dev/null | grep -q 'no work to do'; then
    echo "hokku: building (once)" >&2
    log=$(ninja -C "$here/build" src/hokku </dev/null 2>&1) || { printf '%s\n' "$log" >&2; exit 1; }
fi
exec "$here/build/src/hokku" "$@"
