#!/usr/bin/env bash
# weir cp to several targets at once, as whole programs on loopback over the software RNIC.
# usage: fanout_test.sh BUILD_DIR [CASE...]
set -u
build=$(realpath "$1")
script=$(realpath "$0")
shift
. "$(dirname "$script")/whole_program.sh"

# serve NUMBER [OPTION...]: a server of r$NUMBER; sets ${servers[NUMBER]} and adds to ${to[@]}.
serve() {
    local number=$1 url
    shift
    mkdir -p "r$number"
    : >"s$number.log"
    "$weir" serve --fabric soft --listen 127.0.0.1:0 --root "r$number" "$@" >"s$number.log" 2>&1 &
    servers[number]=$!
    pids+=($!)
    until_true says "s$number.log" weir:// || fail "the server does not start: $(cat "s$number.log")"
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' "s$number.log")
    urls[number]=$url
    to+=(--to "$url/")
}

make_tree() { # MIB: of the one large file in it
    mkdir -p t/d
    head -c "$1M" /dev/urandom >t/large
    head -c 100000 /dev/urandom >t/middle
    local i
    for i in $(seq 100); do
        head -c $((i * 61)) /dev/urandom >"t/d/$i"
    done
    ln -s large t/link
}

case_eight() { # two are killed while the large file is under way: the others have all, and nobody looks at a dropped link (ASan)
    local i
    servers=() to=() urls=()
    make_tree 48
    for i in 1 2 3 4 5 6 7 8; do
        serve "$i" --insecure
    done
    timeout 120 "$weir" cp -a --bwlimit 24M "${to[@]}" t >out.txt 2>&1 &
    local copy=$!
    until compgen -G 'r5/t/.weir-*' >/dev/null || ! kill -0 $copy 2>/dev/null; do
        sleep 0.02
    done
    kill -9 "${servers[2]}" "${servers[5]}"
    wait $copy
    [ $? = 1 ] || fail "the exit status is not 1: $(cat out.txt)"
    grep -q 'to 6 of 8 targets' out.txt || fail "does not say how many: $(cat out.txt)"
    [ "$(grep -c failed: out.txt)" = 2 ] || fail "not two failed: $(cat out.txt)"
    for i in 2 5; do
        grep -q "${urls[i]} failed: lost: " out.txt || fail "$i is not named: $(cat out.txt)"
        [ ! -e "r$i/t/large" ] || fail "a half file has a name"
    done
    for i in 1 3 4 6 7 8; do
        same t "r$i/t"
    done
    expect 0 '"bytes_put":50431648' "$weir" cp -aI --json --to "${urls[1]}/" --to "${urls[3]}/" --to "${urls[4]}/new" t
    same t r1/t
    same t r3/t
    same t r4/new
    expect 3 'failed: unreached' "$weir" cp -a --to "${urls[2]}/" --to "${urls[5]}/" t
}

case_keys() { # who feeds another proves a secret of that one copy; data are sealed on each way
    servers=() to=() urls=()
    make_tree 3
    "$weir" key --name tester tester.key >/dev/null || fail "no key"
    for i in 1 2 3; do
        serve "$i" --keys tester.key --encrypt
    done
    printf '# all of them\n\n%s/\n%s/\n%s/\n' "${urls[1]}" "${urls[2]}" "${urls[3]}" >hosts
    expect 0 'to 3 of 3 targets' "$weir" cp -a --key tester.key --encrypt --hosts hosts t
    for i in 1 2 3; do
        same t "r$i/t"
    done
    grep -q stranger s*.log && fail "one was a stranger: $(cat s*.log)"
    echo new >r2/t/extra
    expect 0 "${urls[2]} 0 files copied, 103 unchanged, 1 deleted" "$weir" cp -av --delete --key tester.key --encrypt \
        --hosts hosts t
    same t r2/t
    make_and_copy >out.txt 2>&1
    [ $? = 1 ] || fail "the exit status is not 1: $(cat out.txt)"
    grep -q "${urls[3]}/t/large: cannot write" out.txt || fail "not named: $(cat out.txt)"
    same t r1/t
    "$weir" key --name tester other.key >/dev/null || fail "no key"
    expect 5 'failed: refused' "$weir" cp -a --key other.key --encrypt --hosts hosts t
}

make_and_copy() { # at the third a directory is where the file is to be
    rm r3/t/large
    mkdir r3/t/large
    touch r3/t/large/x t/large
    "$weir" cp -a --key tester.key --encrypt --hosts hosts t
}

is_kept_by_all() {
    says s1.log 'is kept' && says s2.log 'is kept' && says s3.log 'is kept'
}

has_records() { # NUMBER: two pieces of the large file have been noted there
    find "r$1" -name '.weir-*.journal' -size +255c 2>/dev/null | grep -q .
}

case_resume() { # what all have of a file is not sent again; what one has lost is
    local put
    servers=() to=() urls=()
    make_tree 48
    for i in 1 2 3; do
        serve "$i" --insecure
    done
    "$weir" cp -a --bwlimit 8M "${to[@]}" t >out.txt 2>&1 &
    local copy=$!
    pids+=("$copy")
    until_true has_records 3 || fail "nothing is under way: $(cat out.txt)"
    kill -9 "$copy"
    until_true is_kept_by_all || fail "not kept: $(cat s1.log s2.log s3.log)"
    expect 0 '"bytes_put":' "$weir" cp -a --resume --json "${to[@]}" t
    put=$(sed -n 's/.*"bytes_put":\([0-9]*\).*/\1/p' out.txt | tail -1)
    [ "$put" -le $(((48 - 8) << 20)) ] || fail "all of it was sent: $(cat out.txt)"
    for i in 1 2 3; do
        same t "r$i/t"
    done
}

case_unlike() { # targets that differ: the summary is of the one that had least, and two at one server are told apart
    servers=() to=() urls=()
    make_tree 1
    serve 1 --insecure
    serve 2 --insecure
    expect 0 'to 1 of 1 targets' "$weir" cp -a "${to[@]:0:2}" t
    expect 0 '^102 files, .* to 2 of 2 targets' "$weir" cp -a "${to[@]}" t
    touch r2/t/one r2/t/two r2/t/three
    expect 1 "${urls[2]} not deleted because of --max-delete: 2 more" "$weir" cp -a --delete --max-delete=1 "${to[@]}" t
    grep -q '; 1 deleted' out.txt || fail "what went is not said: $(cat out.txt)"
    echo f >r1/file
    expect 1 "${urls[1]}/file/x failed: refused" "$weir" cp -a --to "${urls[1]}/file/x" --to "${urls[1]}/other/" t
    expect 0 "${urls[1]}/other/ 0 files copied, 103 unchanged" "$weir" cp -av --to "${urls[1]}/new" --to "${urls[1]}/other/" t
    expect 0 "\"target\":\"${urls[1]}/new\"" "$weir" cp -a --json --to "${urls[1]}/new" --to "${urls[1]}/other/" t
    [ "$(grep -c '"event":"target".*"peer_device":"weir0","peer_fabric":"soft"' out.txt)" = 2 ] || fail "not which device each target has: $(cat out.txt)"
    printf '  # two\n\t%s/spaced/ \n' "${urls[1]}" >hosts
    expect 0 'to 1 of 1 targets' "$weir" cp -a --hosts hosts t
    same t r1/spaced/t
    printf '%s/\0%s/\n' "${urls[1]}" "${urls[2]}" >hosts
    expect 2 'a line has a byte 0' "$weir" cp -a --hosts hosts t
}

case_usage() { # what does not go together is said
    echo f >f
    expect 2 'not \[USER@\]HOST:PATH or weir://' "$weir" cp --to here f
    expect 2 'given twice' "$weir" cp --to weir://a/ --to weir://a/ f
    expect 2 'with --to all else are sources' "$weir" cp --to weir://a/ f weir://b/
    expect 2 'a source and a target' "$weir" cp --to weir://a/
    expect 2 'takes one target' "$weir" cp -aHu --to weir://a/ f
    expect 2 'takes one target' "$weir" cp -aH --existing --to weir://a/ f
    expect 2 'wants --key' "$weir" cp --encrypt --to weir://a/ f
    expect 6 'No such file' "$weir" cp --hosts nothing f
    expect 3 '"peer":"a:","outcome":"unreached","reason":"no session was started there (exit status 1)"' "$weir" cp --json -e false --to a: --to b: f
    echo '# none' >none
    expect 2 '--hosts none: there is no target in it' "$weir" cp --hosts none f weir://a/
    echo weir://a/ >targets
    expect 2 'two options would read standard input' "$weir" cp --hosts - --files-from - . <targets
    expect 2 'two options would read standard input' "$weir" cp --hosts - --exclude-from - f <targets
}

cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(usage unlike keys eight resume)
for name in "${cases[@]}"; do
    mkdir "$work/$name"
    cd "$work/$name" || exit 1
    "case_$name"
    kill -9 "${pids[@]}" 2>/dev/null
    wait 2>/dev/null
    pids=()
    cd "$work" || exit 1
done
[ $failures = 0 ] && echo "fanout_test: all cases passed"
[ $failures = 0 ]
