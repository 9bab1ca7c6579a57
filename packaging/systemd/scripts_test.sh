#!/usr/bin/env bash
# What the Debian package's scripts ask of systemd, which is a stand-in here. Usage: scripts_test.sh
set -u
here=$(dirname "$(realpath "$0")")
if [ "${WEIR_SCRIPTS_INSIDE:-}" != 1 ]; then
    user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --mount true 2>/dev/null || { echo "namespaces are not allowed here"; exit 77; }
    WEIR_SCRIPTS_INSIDE=1 exec unshare "${user[@]}" --mount "$here/scripts_test.sh"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for name in systemctl deb-systemd-invoke; do
    printf '#!/bin/sh\necho %s "$@" >>%s/asked\n' $name "$work" >"$work/$name"
    chmod +x "$work/$name"
done
export PATH=$work:$PATH
mount -t tmpfs tmpfs /run || exit 1
failed=0
expect() { # ASKED SCRIPT ARGUMENT...
    local wanted=$1 script=$2 asked
    shift 2
    : >"$work/asked"
    sh "$here/../debian/weir.$script" "$@" || { echo "FAIL $script $*: status $?"; failed=1; }
    asked=$(paste -sd ';' "$work/asked")
    [ "$asked" = "$wanted" ] || { echo "FAIL $script $*: asks '$asked', not '$wanted'"; failed=1; }
}

expect "" postinst configure 0.1.0 # no systemd runs
mkdir -p /run/systemd/system
expect "" prerm upgrade 0.1.1
expect "systemctl --system daemon-reload;deb-systemd-invoke try-restart weir-serve@*.service" postinst configure 0.1.0
expect "" postinst configure ""
expect "deb-systemd-invoke stop weir-serve@*.service" prerm remove
expect "systemctl --system daemon-reload" postrm remove
expect "" postrm purge
DPKG_ROOT=/elsewhere expect "" postinst configure 0.1.0
DPKG_ROOT=/elsewhere expect "" prerm remove
exit $failed
