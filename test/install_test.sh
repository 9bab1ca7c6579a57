#!/usr/bin/env bash
# What README says of an installed Weir, in a mount namespace whose /usr/local and /etc are its own: programs linked with
# either library start, the command finds its own, and the manual is there. Usage: install_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
source=$(realpath "$(dirname "$0")/..")
prefix=$(meson introspect --buildoptions "$build" | python3 -c \
    'import json, sys; print(*(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
[ "$prefix" = /usr/local ] || { echo "the prefix is $prefix"; exit 77; }
for tool in meson pkg-config cc; do
    case $(realpath "$(command -v $tool)") in /usr/local/*) echo "$tool is in /usr/local, which is to be empty"; exit 77 ;; esac
done
if [ "${WEIR_INSTALL_INSIDE:-}" != 1 ]; then
    user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --mount --net true 2>/dev/null || { echo "namespaces are not allowed here"; exit 77; }
    WEIR_INSTALL_INSIDE=1 exec unshare "${user[@]}" --mount --net "$(realpath "$0")" "$build"
fi

work=$(mktemp -d)
trap 'cd /; umount -l "$work"; rmdir "$work"' EXIT
ip link set lo up
mount -t tmpfs tmpfs "$work" && mount -t tmpfs tmpfs /usr/local && cd "$work" || exit 1
mkdir etc && cp -r /etc/ld.so.* /etc/passwd /etc/group /etc/nsswitch.conf /etc/alternatives etc && mount --bind etc /etc || exit 1
unset WEIR_LIBRARY_DIR PKG_CONFIG_PATH LD_LIBRARY_PATH
export PATH=/usr/local/bin:$PATH
failed=0
expect() { # WANTED COMMAND...: what it prints has it
    local wanted=$1 said
    shift
    said=$("$@" 2>&1)
    grep -qF -- "$wanted" <<<"$said" || { echo "FAIL $*: no '$wanted' in: $said"; failed=1; }
}

# A library that the host's administrator has put there, and not linked to the name that programs ask for.
mkdir -p /usr/local/lib && echo | cc -shared -x c - -Wl,-soname,libown.so.1 -o /usr/local/lib/libown.so.1.2 || exit 1
meson install -C "$build" --no-rebuild --quiet || exit 1
[ ! -e /usr/local/lib/libown.so.1 ] || { echo "FAIL the install has linked a library that is not Weir's"; failed=1; }
cat >one.c <<'END'
#include <stdio.h>
#include <weir/channel.h>
int main(void)
{
    struct weir_fabric *fabric;
    struct weir_error error;
    puts(weir_fabric_open(NULL, &fabric, &error) == WEIR_OK ? weir_fabric_library(fabric) : error.message);
}
END
cat >other.c <<'END'
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    puts(list != NULL && list[0] != NULL ? ibv_get_device_name(list[0]) : "none");
}
END
cc one.c -o one $(pkg-config --cflags --libs weir) || failed=1
# Linked with the archive, beside names that are libweir's own inside.
archive=$(pkg-config --variable=libdir weir)/libweir.a
names=$(nm -g --defined-only "$archive" | awk 'NF == 3 && $3 !~ /^weir_/ {print $3}')
[ -z "$names" ] || { echo "FAIL libweir.a has names that are not weir_*:" $names; failed=1; }
echo 'int error_set, address_resolve, poller_watch;' >own.c
cc one.c own.c -o fixed $(pkg-config --cflags weir) "$archive" || failed=1
cc other.c -o other $(pkg-config --cflags --libs weir-verbs) || failed=1
for example in echo file group rpc storage tcp_write; do # with the headers that are installed
    cc -Wall -Werror -I "$source" "$source/examples/$example.c" -o $example $(pkg-config --cflags --libs weir) || failed=1
done
expect "1048576 bytes written and right" "$source/examples/run.sh" . tcp_write
expect /weir/libibverbs.so.1 ./one
expect /weir/libibverbs.so.1 ./fixed
expect weir0 ./other
expect "libraries: /usr/local/lib/" weir run -v ./other
expect "library   /usr/local/" weir info
for page in weir weir-cp weir-run; do
    [ -f /usr/local/share/man/man1/$page.1 ] || { echo "FAIL there is no page $page"; failed=1; }
done
cd /
exit $failed
