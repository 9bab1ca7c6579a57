#!/usr/bin/env bash
# The unit as systemd reads it, and its command as systemd would start it: a root by name, read-only.
# usage: unit_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
. "$here/../../tools/whole_program.sh"

unit=weir-serve@data.service
sed "s|@bindir@/weir|$weir|; s|/etc/weir|$work/etc|; s|/var/lib/weir|$work/lib|" "$here/weir-serve@.service.in" >weir-serve@.service
cp weir-serve@.service "$unit"
if command -v systemd-analyze >/dev/null; then
    systemd-analyze verify --man=no "./$unit" >verify.txt 2>&1 || fail "systemd refuses it: $(cat verify.txt)"
    [ ! -s verify.txt ] || fail "systemd complains: $(cat verify.txt)"
    systemd-analyze security --offline=true --threshold=30 --no-pager "./$unit" >security.txt 2>&1 ||
        fail "it is open: $(tail -n 1 security.txt)"
    # Who starts it without keys is told so.
    systemd-analyze condition "$(sed -n 's/%i/data/g; /PathExists=/p' "$unit")" 2>&1 | grep -q 'Asserts failed' ||
        fail "it needs no keys"
else
    echo "  no systemd-analyze here: the command alone"
fi

mkdir -p etc lib/data
echo f >lib/data/f
"$weir" key --name laptop laptop.key && install -m 600 laptop.key etc/data.keys
echo 'WEIR_LISTEN=127.0.0.1:0' >etc/data.conf
echo 'WEIR_OPTIONS=--read-only --max-per-client 2' >>etc/data.conf
set -a
eval "$(sed -n 's/%i/data/g; s/^Environment=//p' "$unit" | tr ' ' '\n' | sed "s/=\(.*\)/='\1'/")"
eval "$(sed "s/=\(.*\)/='\1'/" etc/data.conf)"
set +a
command=$(sed -n 's/%i/data/g; s/^ExecStart=//p' "$unit")
set -f
eval "exec_start() { exec $command; }"
(exec_start) >server.log 2>&1 &
pids+=($!)
set +f
for _ in $(seq 200); do
    grep -q weir:// server.log && break
    sleep 0.05
done
url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' server.log)
expect 0 '1 file' "$weir" cp --key laptop.key "$url/f" got
same got lib/data/f
expect 5 'read-only' "$weir" cp --key laptop.key got "$url/g"
[ "$failures" = 0 ] && echo "all passed"
[ "$failures" = 0 ]
