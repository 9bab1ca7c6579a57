#!/usr/bin/env bash
# What stands on the wire between two hosts, with a router between them: identifications and ICRCs with and without the
# kernel's segmentation, traffic class, hop limit, flow label; and what happens where the way is narrower than the path MTU.
# Usage: wire_test.sh BUILD_DIR [CASE...]     exit status 77: namespaces, or a program, are not to be had
set -u
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
shift
if [ "${WIRE_TEST_STAGE:-}" != inside ]; then
    for program in ib_write_bw ucmatose tcpdump ibv_rc_pingpong python3; do
        command -v $program >/dev/null || { echo "there is no $program"; exit 77; }
    done
    user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --net --pid --fork --mount-proc --kill-child true 2>/dev/null || exit 77
    WIRE_TEST_STAGE=inside exec unshare "${user[@]}" --net --pid --fork --mount-proc --kill-child \
        "$here/wire_test.sh" "$build" "$@"
fi

# Here we are PID 1 of a private PID namespace: whatever is left over dies with us. Hosts a (this namespace) and b, router r.
unset WIRE_TEST_STAGE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
new_namespace() { # its PID in $holder
    unshare --net sleep infinity &
    holder=$!
    while [ "$(readlink /proc/$holder/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
}
new_namespace
b=$holder
new_namespace
r=$holder
on() { local pid=$1; shift; nsenter -t "$pid" -n -- "$@"; }

address() { # PID INTERFACE HOST-PART NETWORK
    on "$1" ip addr add "10.79.$4.$3/24" dev "$2" && on "$1" ip -6 addr add "fd79:$4::$3/64" dev "$2" nodad && on "$1" ip link set "$2" up
}
ip link set lo up
on "$b" ip link set lo up
ip link add name vea mtu 9000 type veth peer name rea mtu 9000 netns "$r" || exit 77
on "$b" ip link add name veb mtu 9000 type veth peer name reb mtu 9000 netns "$r"
address $$ vea 2 1 && address "$r" rea 1 1 && address "$r" reb 1 2 && address "$b" veb 2 2 || exit 77
ip route add default via 10.79.1.1 && ip -6 route add default via fd79:1::1
on "$b" ip route add default via 10.79.2.1 && on "$b" ip -6 route add default via fd79:2::1
on "$r" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

failed=0
fail() {
    echo "FAIL $1: $2"
    [ ! -s "$work/a.out" ] || tail -5 "$work/a.out"
    [ ! -s "$work/a.statistics" ] || cat "$work/a.statistics"
    failed=$((failed + 1))
}

# Server on b, client here; both with these options. The client's status.
write_bw() {
    rm -f "$work"/*.statistics
    WEIR_STATISTICS=$work/b.statistics on "$b" timeout 60 "$build/weir" run ib_write_bw -F "$@" >"$work/b.out" 2>&1 &
    local server=$!
    until on "$b" ss -ltn | grep -q :18515; do
        kill -0 $server 2>/dev/null || return 1
        sleep 0.05
    done
    WEIR_STATISTICS=$work/a.statistics timeout 60 "$build/weir" run ib_write_bw -F "$@" 10.79.2.2 >"$work/a.out" 2>&1
    local status=$?
    [ $status = 0 ] || kill $server 2>/dev/null
    wait $server 2>/dev/null
    return $status
}

captured() { capture write_bw "$@"; }

datagrams() { WEIR_STATISTICS=$work/a.statistics timeout 60 "$build/weir" run "$build/test/wire_send" "$@" >"$work/a.out" 2>&1; }
captured_datagrams() { capture datagrams "$@"; }

by_cm() {
    WEIR_STATISTICS=$work/b.statistics on "$b" timeout 60 "$build/weir" run ucmatose -C 20 -S 512 >"$work/b.out" 2>&1 &
    local server=$!
    for try in $(seq 100); do # until somebody listens
        WEIR_STATISTICS=$work/a.statistics timeout 60 "$build/weir" run ucmatose -s 10.79.2.2 "$@" >"$work/a.out" 2>&1 && break
        sleep 0.1
    done
    wait $server
}
captured_by_cm() { capture by_cm "$@"; }

# SENDER NAME EXPECTATIONS -- OPTIONS: what it sends is captured where it leaves.
capture() {
    local sender=$1 name=$2 expectations=()
    shift 2
    while [ "$1" != -- ]; do expectations+=("$1"); shift; done
    shift
    rm -f "$work/tcpdump" "$work/pcap"
    tcpdump -i vea -B 16384 -U -w "$work/pcap" \
        "udp port 4791 and (src host 10.79.1.2 or src host fd79:1::2)" 2>"$work/tcpdump" &
    local tcpdump=$!
    until grep -qs listening "$work/tcpdump"; do sleep 0.05; done
    $sender "$@" || fail "$name" "the transfer fails"
    for try in 1 2 3 4 5 6 7 8 9 10; do # what the kernel still holds for tcpdump comes soon
        python3 "$here/check_capture.py" check "$work/pcap" "${expectations[@]}" >"$work/check" 2>&1 && break
        sleep 0.2
    done
    kill $tcpdump
    wait $tcpdump
    python3 "$here/check_capture.py" check "$work/pcap" "${expectations[@]}" >"$work/check" 2>&1 || fail "$name" "$(tail -1 "$work/check")"
    echo "$name: $(tail -1 "$work/check")"
}

offload() { python3 "$here/check_capture.py" offload vea "$@"; }

case_segments() { # the kernel cuts a segmented send in software: what leaves is seen
    local size=65536
    for mtu in 1024 4096; do
        [ $mtu = 4096 ] || ip link set vea mtu 1500
        ip link set vea gso_max_segs 1
        captured "segmented, $mtu" counts=1 class=0 hop=255 least=$((20 * size / mtu)) -- -m $mtu -s $size -n 20 -x 0
        captured "segmented over IPv6, $mtu" class=0 hop=255 least=$((20 * size / mtu)) -- -m $mtu -s $size -n 20 -x 1
        ip link set vea gso_max_segs 65535
        offload tx 0
        captured "no offload at all, $mtu" least=$((20 * size / mtu)) -- -m $mtu -s $size -n 20 -x 0
        offload tx 1
        ip link set vea mtu 9000
    done
}

case_class() {
    ip link set vea gso_max_segs 1
    captured "traffic class" class=106 port=4791 -- -m 1024 -s 8192 -n 20 -x 0 --tclass=106
    captured "traffic class over IPv6" class=106 port=4791 -- -m 1024 -s 8192 -n 20 -x 1 --tclass=106
    captured_by_cm "rdma_set_option, RDMA_OPTION_ID_TOS" class=72 least=20 -- -t 72 -C 20 -S 512
    local port=$((0xc000 | (0x12345 & 0x3fff ^ 0x12345 >> 14)))
    captured_datagrams "flow label" class=32 hop=9 port=$port -- 0 ::ffff:10.79.2.2 0x12345 32 9 1000
    captured_datagrams "flow label over IPv6" class=32 hop=9 port=$port label=0x12345 -- 1 fd79:2::2 0x12345 32 9 1000
    captured_datagrams "no flow label" class=0 hop=64 port=4791 -- 0 ::ffff:10.79.2.2 0 0 0 1000
    ip link set vea gso_max_segs 65535
}

case_narrow_way() { # the router's second link takes 1500 bytes; the hosts think 9000
    on "$r" ip link set reb mtu 1500
    for gid in 0 1; do
        write_bw -m 1024 -s 65536 -n 50 -x $gid || fail "narrow way, GID $gid" "1024 fits, and fails"
        WEIR_STRICT=1 write_bw -m 4096 -s 65536 -n 50 -x $gid && fail "narrow way, GID $gid" "4096 does not fit, and passes"
        grep -q "Failed status 12: .* syndrom 0x5dc" "$work/a.out" || fail "narrow way, GID $gid" "the completion does not name 1500"
        grep -Eq "^# queue pair [0-9]+: packets to .*2 \(queue pair [0-9]+\) do not fit the way there: .*1 takes 1500 bytes. Path MTU 1024" \
            "$work/a.statistics" || fail "narrow way, GID $gid" "no words"
        grep -q "path-mtu: queue pair [0-9]* failed since its packets are longer than the 1500 bytes" "$work/a.out" ||
            fail "narrow way, GID $gid" "strict mode does not warn"
    done
    on "$r" ip link set reb mtu 9000
    echo "narrow way: $(grep '^# queue' "$work/a.statistics")"
}

case_many_processes() { # the kernel gives an ICMP message to one of those that share the port, whoever sent the packet
    local others=() server
    for port in 1 2 3 4 5 6 7; do
        WEIR_STATISTICS=$work/other$port "$build/weir" run ibv_rc_pingpong -g 0 -p $((19000 + port)) >/dev/null 2>&1 &
        others+=($!)
    done
    for port in 1 2 3 4 5 6 7; do # until each holds the port
        until ss -ltn | grep -q ":$((19000 + port)) "; do sleep 0.05; done
    done
    on "$r" ip link set reb mtu 1500
    for gid in 0 1; do # the kernel chooses anew for each
        write_bw -m 4096 -s 65536 -n 50 -x $gid && fail "many processes, GID $gid" "4096 does not fit, and passes"
        grep -q "Failed status 12: .* syndrom 0x5dc" "$work/a.out" || fail "many processes, GID $gid" "the completion does not name 1500"
        grep -q "^# queue pair .*1 takes 1500 bytes" "$work/a.statistics" || fail "many processes, GID $gid" "no words"
        echo "many processes, GID $gid: $(grep -c "^registry_complaints_handed_to_us [1-9]" "$work/a.statistics") by another"
    done
    on "$r" ip link set reb mtu 9000
    kill "${others[@]}"
    wait "${others[@]}" 2>/dev/null
}

case_shrinking_interface() { # under a running transfer
    sent() { ip -s link show vea | awk 'END { print $2 }'; }
    local before
    before=$(sent)
    (
        for try in $(seq 1200); do # at most a minute: it may never begin
            [ "$(sent)" -le $((before + 1000)) ] || break
            sleep 0.05
        done
        ip link set vea mtu 1500
    ) &
    local shrinks=$!
    write_bw -m 4096 -s 65536 -n 5000000 -x 0 && fail "shrinking interface" "the transfer passes"
    grep -q "Failed status 12: .* syndrom 0x5dc" "$work/a.out" || fail "shrinking interface" "the completion does not name 1500"
    grep -Eq "^# queue pair .* the interface here takes 1500 bytes" "$work/a.statistics" || fail "shrinking interface" "no words"
    wait $shrinks
    ip link set vea mtu 9000
    echo "shrinking interface: $(grep '^# queue' "$work/a.statistics")"
}

case_narrow_interface() { # is refused before a packet is sent
    ip link set vea mtu 1500
    on "$b" "$build/weir" run ibv_rc_pingpong -m 4096 -g 0 >/dev/null 2>&1 &
    local server=$!
    until on "$b" ss -ltn | grep -q :18515; do sleep 0.05; done
    timeout 60 "$build/weir" run ibv_rc_pingpong -m 4096 -g 0 10.79.2.2 >"$work/a.out" 2>&1
    grep -q "Failed to modify QP to RTR" "$work/a.out" || fail "narrow interface" "a path MTU of 4096 is taken"
    kill $server 2>/dev/null
    wait $server 2>/dev/null
    ip link set vea mtu 9000
    echo "narrow interface: $(grep Failed "$work/a.out")"
}

case_datagrams() { # nobody answers them: what the interface refuses fails, what somebody on the way refuses raises an event
    local gid=0
    for to in ::ffff:10.79.2.2 fd79:2::2; do
        ip link set vea mtu 1500
        rm -f "$work"/*.statistics
        WEIR_STRICT=1 datagrams $gid $to 0 0 0 4000 && fail "datagrams to $to" "4000 bytes leave by an interface of 1500"
        ip link set vea mtu 9000
        grep -q "^local length error, vendor_err 1500" "$work/a.out" || fail "datagrams to $to" "the completion does not name 1500"
        grep -q "path-mtu: queue pair [0-9]* failed since its packets are longer than the 1500 bytes" "$work/a.out" ||
            fail "datagrams to $to" "strict mode does not warn"
        grep -Eq "^# queue pair [0-9]+: packets of 40[57]2 bytes to ${to##*:ffff:} .* the interface here takes 1500 bytes" "$work/a.statistics" ||
            fail "datagrams to $to" "no words"
        grep -q "^udp_dropped_too_long 1$" "$work/a.statistics" || fail "datagrams to $to" "not counted"
        echo "datagrams: $(grep '^# queue' "$work/a.statistics")"
        datagrams $gid $to 0 0 0 4000 || fail "datagrams to $to" "they do not leave by an interface of 9000"
        on "$r" ip link set reb mtu 1500
        rm -f "$work"/*.statistics
        datagrams $gid $to 0 0 0 4000 event || fail "datagrams to $to" "no event of a narrow way"
        on "$r" ip link set reb mtu 9000
        grep -Eq "^# queue pair [0-9]+: packets to ${to##*:ffff:} .*1 takes 1500 bytes" "$work/a.statistics" || fail "datagrams to $to" "no words of the way"
        echo "datagrams: $(tail -1 "$work/a.out"); $(grep '^# queue' "$work/a.statistics")"
        gid=1
    done
}

case_marks() { # packets that leave as if a router had marked them
    write_bw -m 1024 -s 65536 -n 50 -x 0 --tclass=107 || fail marks "the transfer fails"
    for counter in np_ecn_marked_roce_packets np_cnp_sent; do
        grep -q "^$counter [1-9]" "$work/b.statistics" || fail marks "the server has no $counter"
    done
    grep -q "^rp_cnp_handled [1-9]" "$work/a.statistics" || fail marks "the client has no rp_cnp_handled"
    echo "marks: $(grep -h "^np_\|^rp_" "$work"/[ab].statistics | tr '\n' ' ')"
}

for name in ${*:-segments class marks datagrams narrow_way many_processes shrinking_interface narrow_interface}; do
    case_$name
done
[ $failed = 0 ] || { echo "$failed failed"; exit 1; }
