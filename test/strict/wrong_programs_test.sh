#!/usr/bin/env bash
# Each wrong program draws exactly the warning that its mistake deserves, and the right one none;
# without strict mode nobody says anything.
# usage: wrong_programs_test.sh DROPIN_FOLDER PROGRAM...    a program's name says its pitfall
set -u
dropin=$(cd "$1" && pwd)
shift
if [ -z "${WRONG_PROGRAMS_INSIDE:-}" ]; then
    export WRONG_PROGRAMS_INSIDE=1
    for enter in "unshare -n" "unshare -Urn"; do
        if $enter ip link set lo up 2>/dev/null; then
            exec $enter "$0" "$dropin" "$@"
        fi
    done
fi
ip link set lo up 2>/dev/null

libraries=$dropin/libibverbs.so.1:$dropin/librdmacm.so.1
for name in asan tsan; do
    if readelf -d "$dropin/libibverbs.so.1" | grep -q "lib$name"; then
        libraries=$(gcc -print-file-name="lib$name.so"):$(gcc -print-file-name=libubsan.so):$libraries
        # Its SIGSEGV handler would stand where ours must; programs that end in the middle leak.
        export ASAN_OPTIONS="detect_leaks=0:handle_segv=0:${ASAN_OPTIONS:-}"
    fi
done

said=$(mktemp)
trap 'rm -f "$said"' EXIT
failed=0
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$said"
    failed=$((failed + 1))
}

# run STRICT PROGRAM: its standard error is in $said; false if it fails.
run() {
    if [ -n "$1" ]; then
        WEIR_STRICT=$1 LD_PRELOAD=$libraries timeout 30 "$2" 2>"$said"
    else
        env -u WEIR_STRICT LD_PRELOAD="$libraries" timeout 30 "$2" 2>"$said"
    fi
}

# What refused arguments are called, and to whom a queue pair was connected.
words_of() {
    case $1 in
    wrong-call)
        cat <<EOF
num_sge is 2, and the queue pair was created with a max_send_sge of 1
65 bytes IBV_SEND_INLINE, and the queue pair was created with a max_inline_data of 64
there is no way from RTS to INIT
from RESET to INIT attr_mask lacks IBV_QP_ACCESS_FLAGS
from RESET to INIT attr_mask may not have IBV_QP_QKEY
the queue pair is in RESET, and sends are posted from RTS on
grh.sgid_index is 200, and port 1 has no such GID
ah_attr.is_global is 0 and dlid 0 is nobody
EOF
        ;;
    wrong-call-values)
        cat <<EOF
min_rnr_timer is 32, and 31 is the most
cur_qp_state is not what the queue pair is in, RTS
path_mtu is 1024, which is none of IBV_MTU_256 (1) to IBV_MTU_4096 (5): it is no number of bytes
path_mtu is 0, which is none of
EOF
        ;;
    short-receive) echo "a message of 64 bytes or more came, and the receive that it found has room for 32" ;;
    short-receive-datagram) echo "a datagram of 104 bytes with its GRH came, and the receive that it found has room for 64" ;;
    wrong-call-datagram) echo "wr.ud.ah is NULL, and a datagram goes where an address handle says" ;;
    unanswered) echo "its peer (127.0.0.1, QP 0x" ;;
    wrong-access-qp) echo "a peer's RDMA READ (127.0.0.1, QP 0x" ;;
    esac
}

for program in "$@"; do
    name=$(basename "$program" | tr _ -)
    case $name in
    correct*) expected= ;;
    short-receive*) expected=short-receive ;;
    late-receive*) expected=late-receive ;;
    unpolled*) expected=unpolled ;;
    dead-key*) expected=dead-key ;;
    wrong-access*) expected=wrong-access ;;
    unacked-event*) expected=unacked-event ;;
    wrong-call*) expected=wrong-call ;;
    limit*) expected=limit ;;
    *) expected=$name ;;
    esac
    case $name in
    memlock | correct-child | correct-reregistered) ways=memlock=64K ;;
    limit-abilities) ways="mlx5 mlx4 irdma bnxt rxe" ;;
    limit-count) ways=irdma ;;
    *) ways=1 ;;
    esac
    for strict in $ways; do
        run "$strict" "$program" || fail "$name ends badly in strict mode ($strict)"
        seen=$(sed -n 's/^weir strict: \([a-z-]*\): .*/\1/p' "$said" | sort -u | tr '\n' ' ')
        [ "$seen" = "${expected:+$expected }" ] || fail "$name: warnings [$seen] instead of [$expected]"
        [ -n "$expected" ] || continue
        grep -q "^        #0 \|: no place of the program$" "$said" || fail "$name: no backtrace"
        while read -r words; do
            [ -z "$words" ] || grep -qF "$words" "$said" || fail "$name: it does not say: $words"
        done <<<"$(words_of "$name")"
        run "$strict,no-$expected" "$program" || fail "$name ends badly when not warned"
        grep -q "^weir strict" "$said" && fail "$name: a warning that was switched off"
    done
    case $name in
    unpolled | unsignaled-full) continue ;; # such queues never fill without strict mode
    esac
    run "" "$program" || fail "$name ends badly without strict mode"
    grep -q "^weir strict" "$said" && fail "$name: strict mode without being asked"
done
[ $failed = 0 ] && echo "$# programs, each with its warning"
exit $((failed > 0))
