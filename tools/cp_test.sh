#!/usr/bin/env bash
# weir cp and weir serve as whole programs, on loopback over the software RNIC.
# usage: cp_test.sh BUILD_DIR [CASE...]
set -u
# Under nohup everything started here would ignore what case_hangup sends.
[ -n "${WEIR_TEST_HEARS:-}" ] || WEIR_TEST_HEARS=1 exec env --default-signal=HUP "$0" "$@"
build=$(realpath "$1")
script=$(realpath "$0")
shift
. "$(dirname "$script")/whole_program.sh"

# start_server NAME COMMAND...: runs the command, which is a weir serve at the end, with its output
# in NAME.log; sets $pid and $url. A server that ends, or does not say its address, is a failure.
start_server() {
    local name=$1
    shift
    : >"$name.log"
    "$@" >"$name.log" 2>&1 &
    pid=$!
    pids+=("$pid")
    until_true has_said_address_or_ended "$name"
    [ -n "$url" ] || { cat "$name.log"; return 1; }
}

has_said_address_or_ended() { # NAME: sets $url
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p
        s|.*"event":"listening","address":"\([^"]*\)".*|weir://\1|p' "$1.log")
    [ -n "$url" ] || ! kill -0 "$pid" 2>/dev/null
}

serve() { # NAME ROOT [OPTION...]
    local name=$1 root=$2
    shift 2
    start_server "$name" "$weir" serve --insecure --listen 127.0.0.1:0 --root "$root" "$@" ||
        fail "the server $name does not start"
}

stop() { # PID: a server that is asked to end does so with status 0
    kill "$1" 2>/dev/null
    wait "$1" 2>/dev/null || fail "the server ended with status $?: $(tail -n 30 ./*.log)"
}

only_resumable() { # DIR: what was interrupted has its journal, and each journal what it is about
    local path
    while read -r path; do
        case $path in
            *.journal) [ -e "${path%.journal}" ] || fail "a journal of nothing: $path" ;;
            *) [ -e "$path.journal" ] || fail "left over without a journal: $path" ;;
        esac
    done < <(find "$1" -name '.weir-*')
}

no_temporary_names() { # DIR
    local found
    found=$(find "$1" -name '.weir-*' | head -3)
    [ -z "$found" ] || fail "left over: $found"
}

metadata() { # DIR: mode, mtime and kind of everything in it
    (cd "$1" && find . -printf '%P %m %T@ %y %l\n' | LC_ALL=C sort)
}

# A file of so many MiB that compresses badly and differs from place to place.
make_file() { # NAME MIB
    head -c "$2M" /dev/urandom >"$1"
}

case_files() { # push and pull, names, existing targets
    mkdir root
    serve a root
    make_file f 20
    expect 0 '1 file, 20.0 MiB.*; digest proven' "$weir" cp f "$url/"
    expect 0 '1 file, 20.0 MiB.*; digest proven; read back from storage' "$weir" cp -I --verify f "$url/"
    expect 0 'weir0 (software); 1 unchanged' "$weir" cp f "$url/"
    same f root/f
    expect 0 '1 file' "$weir" cp "$url/f" g
    same f g
    expect 0 '0 files, 0 B.*; 1 unchanged' "$weir" cp f "$url/"
    expect 0 '1 file.*; 0 \|1 file' "$weir" cp -I f "$url/"
    echo new >f
    expect 0 '1 left as they are' "$weir" cp --ignore-existing f "$url/"
    expect 0 'dry run, nothing done: 1 file' "$weir" cp -n f "$url/"
    grep -q '/s,' out.txt && fail "a dry run has a rate: $(cat out.txt)"
    wait_for a.log 'dry run, nothing done: pushed /: 1 file' 1 || fail "the log takes a dry run for a copy: $(cat a.log)"
    expect 0 '"dry_run":true' "$weir" cp -n --json f "$url/"
    cmp -s f root/f && fail "a dry run or --ignore-existing replaced a file"
    expect 0 '1 file' "$weir" cp --fsync f "$url/"
    same f root/f
    mkdir links && ln -s nowhere links/l
    expect 0 '0 files.*; 1 symbolic link$' "$weir" cp -r links "$url/"
    rm -r links root/links
    expect 0 'f.st......' "$weir" cp -i "$url/f" g
    same f g
    expect 0 '1 unchanged' "$weir" cp "$url/f" g
    expect 5 'no such directory' "$weir" cp f "$url/new/er/"
    expect 0 '1 file' "$weir" cp f "$url/new/"
    same f root/new/f
    rm -r root/new
    expect 0 'd..t...... \./' "$weir" cp -ri --exclude '*' "$PWD/" "$url/empty/"
    [ -d root/empty ] && [ -z "$(ls -A root/empty)" ] || fail "what was excluded was copied"
    mkdir d1 d2
    echo first >d1/x
    echo second >d2/x
    expect 2 "two sources are called 'x'" "$weir" cp d1/x d2/x "$url/"
    expect 2 "two sources are called 'f'" "$weir" cp "$url/f" "$url//f" d1
    [ ! -e root/x ] && [ ! -e d1/f ] || fail "one of two files was copied"
    local name
    name=$(printf 'n%.0s' $(seq 255))
    cp f "$name"
    expect 0 '1 file' "$weir" cp "$name" "$url/"
    same f "root/$name"
    expect 5 'too long' "$weir" cp f "$url/x$name"
    touch $'\xff\n\e[2J'
    expect 0 '1 file' "$weir" cp -v $'\xff\n\e[2J' "$url/"
    [ -e $'root/\xff\n\e[2J' ] || fail "a name of odd bytes did not arrive"
    grep -q $'\e' out.txt && fail "an escape sequence reached the terminal"
    expect 0 '2 files' "$weir" cp "$url/f" "$url/$name" .. 2>/dev/null
    rm -f "../f" "../$name"
    make_file root/large 9
    # shellcheck disable=SC2016
    expect 1 'few/large: cannot write: File too large' bash -c 'ulimit -f 8192; exec "$0" cp "$@"' "$weir" "$url/large" "$url/f" few/
    same f few/f
    no_temporary_names few
    no_temporary_names root
    stop "$pid"
}

case_tree() { # 2,000 files, links, modes and times
    mkdir root t
    local i j
    for i in $(seq 20); do
        mkdir "t/d$i"
        for j in $(seq 99); do
            printf '%*d\n' $((j * 97)) "$i" >"t/d$i/f$j"
        done
    done
    head -c 3000000 /dev/urandom >t/big
    mkdir t/empty t/locked
    echo x >t/locked/f
    chmod 400 t/locked/f
    chmod 555 t/locked
    ln -s ../nowhere t/dangling
    ln -s /etc t/outside
    touch -h -d '2001-02-03 04:05:06.789' t/d3 t/d4/f5 t/dangling
    serve a root
    expect 0 '1,982 files' "$weir" cp -r t "$url/"
    same t root/t
    [ "$(metadata t)" = "$(metadata root/t)" ] ||
        fail "modes or times differ: $(diff <(metadata t) <(metadata root/t) | head -4)"
    expect 0 '1,982 files' "$weir" cp -r "$url/t" back
    same t back
    [ "$(metadata t)" = "$(metadata back)" ] || fail "modes or times differ on the way back"
    expect 0 '; 1,984 unchanged' "$weir" cp -r t "$url/"
    expect 0 '; 1,984 unchanged' "$weir" cp -rc t "$url/"
    expect 0 '; 1,984 unchanged' "$weir" cp -r "$url/t/" back/
    expect 0 '1,982 files.*; 2 unchanged' "$weir" cp -rI t "$url/"
    same t root/t
    for i in $(seq 20); do
        rm "root/t/d1/f$i"
        mkdir -p "root/t/d1/f$i/full"
    done
    expect 1 '20 not copied' "$weir" cp -r t "$url/"
    wait_for a.log 'weir serve: 127.0.0.1:[0-9]*: /t/.*: cannot write: is a directory already' 10 ||
        fail "the server does not say whose files fail: $(head -3 a.log)"
    [ "$(grep -c 'weir serve' a.log)" -lt 15 ] || fail "the log grows with what clients do wrong"
    stop "$pid"
    serve a root --json
    expect 1 '20 not copied' "$weir" cp -r t "$url/"
    wait_for a.log '"event":"transfer".*"failed":20' 1 || fail "not told: $(tail -2 a.log)"
    [ "$(grep -c '"event":"problem"' a.log) $(grep -c '"event":"more-problems","peer":"127.0.0.1:[0-9]*"' a.log)" = "10 1" ] ||
        fail "the events grow with what clients do wrong: $(grep -c problem a.log)"
    expect 0 '20 files' "$weir" cp -r --force t "$url/"
    same t root/t
    expect 1 'is a directory (-r' "$weir" cp t "$url/"
    mkfifo t/fifo
    expect 0 'warning: t/fifo: left out' "$weir" cp -r t "$url/again"
    stop "$pid"
}

case_confinement() { # nothing outside the root
    mkdir root
    echo secret >outside
    echo f >f
    ln -s "$work/outside" root/link
    ln -s "$work" root/up
    ln -s f root/inner
    echo f >root/f
    serve a root
    expect 1 'leads out' "$weir" cp "$url/link" got
    expect 1 'leads out' "$weir" cp "$url/up/outside" got
    expect 1 '"\.\."' "$weir" cp "$url/../outside" got
    expect 5 '"\.\."' "$weir" cp f "$url/../f2"
    expect 5 'leads out' "$weir" cp f "$url/up/f2"
    expect 5 'leads out' "$weir" cp f "$url/link"
    [ "$(cat outside)" = secret ] || fail "written through a link that leads out"
    expect 0 '1 file' "$weir" cp "$url/inner" got
    [ -e got ] && [ ! -e f2 ] || fail "wrong files"
    stop "$pid"
}

case_usage() { # exit statuses, and words
    expect 6 '192.0.2.254:0: cannot listen: no RDMA device here has this address' \
        "$weir" serve --insecure --listen 192.0.2.254:0
    expect 6 '\*.invalid:0: ' "$weir" serve --insecure --listen '*.invalid:0' # less than every address
    expect 2 'in its directory from the beginning' "$weir" cp -T x f weir://127.0.0.1:1/
    local command
    for command in "" $("$weir" help | sed -n '/^  version /q; s/^  \([a-z]*\)  .*/\1/p'); do
        "$weir" help $command >out.txt || fail "no help of $command"
        [ "$(wc -L <out.txt)" -le 80 ] || fail "the help of '$command' is wider than a terminal: $(grep -m 1 '.\{81\}' out.txt)"
    done
    mkdir root
    echo f >f
    expect 2 'one side must be .*weir://' "$weir" cp f g
    expect 2 'one side must be local' "$weir" cp a:x b:y
    expect 2 'one side must be local' "$weir" cp weir://h/a weir://h/b
    expect 2 'a source and a target' "$weir" cp f
    expect 2 'not of the form' "$weir" cp f weir:///x
    expect 2 'a URL of another kind' "$weir" cp f rsync://host/module/
    expect 2 'auto, rdma or soft' "$weir" cp --fabric x f weir://h/
    expect 2 "\\\\x1b\[2J" "$weir" cp --max-size=$'\e[2J' f weir://h/
    grep -q $'\e' out.txt && fail "an escape sequence of the command line reached the terminal"
    for command in cp serve key info bench run; do
        expect 2 "unrecognized option '--x\\\\x1b\[2J\\\\x0a'\$" "$weir" $command $'--x\e[2J\n'
        grep -q $'\e' out.txt && fail "an option's escape sequence reached the terminal: $command"
        expect 2 "invalid option -- '\\\\x1b'\$" "$weir" $command $'-\e'
    done
    expect 2 "option '--to' requires an argument" "$weir" cp --to
    expect 2 "option '--del.*' is ambiguous" "$weir" cp --dele=x
    expect 2 'no command' "$weir" $'frob\e[2Jnicate'
    grep -q $'\e' out.txt && fail "an escape sequence of the command line reached the terminal"
    expect 2 'whom to serve' "$weir" serve --root root
    expect 2 'either --keys or --insecure' "$weir" serve --keys k --insecure
    expect 6 'No such file' "$weir" serve --insecure --root nowhere
    expect 3 '127.0.0.1:1' "$weir" cp f weir://127.0.0.1:1/
    expect 6 'nowhere: No such file\|no such directory' "$weir" cp weir://127.0.0.1:1/f nowhere/x
    expect 6 '"error":"nowhere: no such directory' "$weir" cp --json weir://127.0.0.1:1/f nowhere/x
    if [ -z "$(ls -A /sys/class/infiniband 2>/dev/null)" ]; then
        expect 6 'no RDMA device' "$weir" cp --fabric rdma f weir://127.0.0.1:1/
    fi
    expect 0 'weir0' "$weir" info
    expect 0 '"device":"weir0"' "$weir" info --json
    expect 0 'same host memory, ' "$weir" info
    expect 6 'WEIR_LINK is "tcp", which is neither' env WEIR_LINK=tcp "$weir" info
    expect 0 'same host memory, every payload copied: so WEIR_LINK says' env WEIR_LINK=copy "$weir" info
    expect 0 '"same_host":"UDP: so WEIR_LINK says, or WEIR_FAULT is set"' env WEIR_LINK=udp "$weir" info --json
    expect 0 'usage: weir cp' "$weir" help cp
    # a sanitizer in our libraries would mind coming after the program
    local run=(env ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 "$weir" run)
    expect 0 'LD_PRELOAD' "${run[@]}" -- sh -c 'env | grep LD_PRELOAD'
    expect 7 said "${run[@]}" -- sh -c 'echo said; exit 7'
    expect 7 said env --ignore-signal=CHLD "${run[@]}" -- sh -c 'echo said; exit 7'
    expect 127 'nosuchprogram' "${run[@]}" nosuchprogram
    WEIR_LIBRARY_DIR=/nowhere expect 6 'WEIR_LIBRARY_DIR' "$weir" run true
    serve a root
    expect 0 '"event":"summary","exit":0' "$weir" cp --json f "$url/"
    grep -q '"fabric_reason":' out.txt || fail "not said why this device: $(cat out.txt)"
    [ "$(grep -c '"peer_device":"weir0","peer_fabric":"soft","peer_fabric_reason":"[^"]' out.txt)" = 2 ] ||
        fail "the other side's device is not named alike in both: $(cat out.txt)"
    expect 0 '"event":"skipped","kind":"file","path":"f","reason":"same"' "$weir" cp --json -vv f "$url/"
    mkdir -p root/d/f/full
    expect 1 '"code":"wrong-kind"' "$weir" cp --json f "$url/d"
    expect 2 'modify-window takes' "$weir" cp --modify-window x f "$url/"
    expect 2 'pattern' "$weir" cp --exclude '' f "$url/"
    expect 2 'a rule begins with' "$weir" cp -f 'x y' f "$url/"
    expect 2 "'x' is not known here behind 'exclude'" "$weir" cp -f '-x y' f "$url/"
    expect 2 'a name without a slash' "$weir" cp -f ': d/rules' f "$url/"
    expect 2 "'x' is not known here behind 'dir-merge'" "$weir" cp -f ':x rules' f "$url/"
    expect 2 "stand alone" "$weir" cp -f '-C rules' f "$url/"
    expect 2 'nothing behind' "$weir" cp --filter=P f "$url/"
    expect 6 'nosuchfile: No such file' "$weir" cp -f '. nosuchfile' f "$url/"
    echo 'merge rules' >rules
    expect 2 'merge each other' "$weir" cp -f '. rules' f "$url/"
    expect 2 'takes a number' "$weir" cp --max-delete=-1 f "$url/"
    expect 6 'nosuchfile: No such file' "$weir" cp --exclude-from nosuchfile f "$url/"
    seq -f '/home/*/a project/%g.[oa]' 10000 > rules
    "$weir" cp -n --exclude-from rules "$url/nosuchfile" there 2>&1 | grep -q 'No such file'
    seq -f '%g' 32769 > rules
    expect 2 "'32769' is one rule too many: at most 32768 rules, of 1 MiB together" "$weir" cp --exclude-from rules f "$url/"
    touch $'\xff"'
    expect 0 '"path_hex":"ff22"' "$weir" cp --json -v $'\xff"' "$url/"
    while read -r line; do
        python3 -c 'import json, sys; json.loads(sys.argv[1])' "$line" || fail "not JSON: $line"
    done <out.txt
    expect 6 'standard output: No space left' sh -c "'$weir' info >/dev/full"
    expect 6 'standard output' sh -c "'$weir' cp --json f '$url/' >/dev/full"
    expect 6 'weir0: no port of it has an address' env WEIR_DEVICES=weir0=nowhere "$weir" info
    expect 6 'weir0: Invalid argument' env WEIR_LINK=off "$weir" info
    expect 0 'version   print' "$weir" help version
    expect 0 'help      this' "$weir" help --help
    expect 6 'standard output: Bad file' sh -c "'$weir' info >&-" # and no file that was opened since has it
    expect 0 'weir0' sh -c "'$weir' cp -vv --json f '$url/' <&- >&- 2>&-; '$weir' info"
    # shellcheck disable=SC2016
    expect 0 '^closed$' sh -c 'exec "$@" >&-' sh "${run[@]}" sh -c '[ -e /proc/self/fd/1 ] || echo closed >&2'
    expect 5 'no such directory' "$weir" cp f "$url/nowhere/at/all/"
    expect 5 '"error":"/nowhere/at/all/: no such directory (--mkpath' "$weir" cp --json f "$url/nowhere/at/all/"
    expect 1 'nothere: cannot read: No such file' "$weir" cp nothere f "$url/"
    mkfifo fifo
    expect 1 'fifo: cannot read: is a device, FIFO or socket (-D' "$weir" cp fifo "$url/"
    expect 1 '/nothere: cannot read: No such file' "$weir" cp "$url/nothere" g
    local words
    for words in "$url/f" "$url/" "-r $url/d" "-rn $url/d" "-r $url/d/"; do
        # shellcheck disable=SC2086
        "$weir" cp $words fifo >out.txt 2>&1 && fail "done: $words: $(cat out.txt)"
        [ -p fifo ] || fail "a FIFO that is the target was replaced by $words: $(cat out.txt)"
    done
    stop "$pid"
    mkdir $'r\xff\e'
    serve c $'r\xff\e' --json
    grep -q '"path_hex":"[0-9a-f]*72ff1b"' c.log || fail "the root is not told: $(cat c.log)"
    stop "$pid"
    serve c $'r\xff\e'
    grep -q $'\e' c.log && fail "an escape sequence reached the terminal: $(cat c.log)"
    stop "$pid"
    mkdir named other
    start_server d "$weir" serve --insecure --listen 127.0.0.1:0 --root a=named --root b=other,read-only ||
        fail "no server"
    grep -q "a=$PWD/named, b=$PWD/other (read-only) at weir://" d.log || fail "not told: $(cat d.log)"
    expect 0 '1 file' "$weir" cp f "$url/a/x"
    same f named/x
    cp f other/y
    expect 5 '/b is read-only at this server' "$weir" cp f "$url/b/"
    expect 0 '1 file' "$weir" cp "$url/b/y" got.y
    same f got.y
    expect 0 '1 file' "$weir" cp -r "$url/a" .
    same a named
    expect 0 '1 unchanged' "$weir" cp -r --delete "$url//a/" a/
    expect 0 '1 unchanged' "$weir" cp -r a/ "$url/a"
    expect 1 '/a/nothere: cannot read: No such' "$weir" cp "$url/a/nothere" g2
    expect 1 '"\.\."' "$weir" cp "$url/a/../other/y" g2
    expect 5 "no folder 'c' at this server; it has: a b" "$weir" cp f "$url/c/x"
    expect 5 "no folder '' at" "$weir" cp -r "$url/" g2
    expect 5 'one of this server' "$weir" cp "$url/a/x" "$url/b/y" .
    [ ! -e g2 ] || fail "something came"
    stop "$pid"
    expect 2 'a name of its own' "$weir" serve --insecure --root a=named --root other
    expect 2 'a name of its own' "$weir" serve --insecure --root a=named --root a=other
    serve b root --read-only
    expect 5 'read-only' "$weir" cp f "$url/g"
    expect 0 '1 file' "$weir" cp "$url/f" g
    stop "$pid"
}

memory_peak() { # of the server, in KiB
    awk '/VmHWM/ { print $2 }' "/proc/$pid/status"
}

case_sparse() { # holes cost neither time nor memory
    mkdir root
    truncate -s 100G s
    printf middle | dd of=s bs=1 seek=53687091200 conv=notrunc status=none
    serve a root
    local before
    before=$(memory_peak)
    expect 0 '1 file, 100 GiB' "$weir" cp s "$url/"
    [ "$(stat -c %s root/s)" = 107374182400 ] || fail "the length is wrong"
    [ "$(stat -c %b root/s)" -lt 2048 ] || fail "the holes were filled"
    [ "$(dd if=root/s bs=6 skip=1 iflag=skip_bytes skip=53687091200 count=1 status=none 2>/dev/null)" = middle ] ||
        fail "the data is not where it was"
    [ $(($(memory_peak) - before)) -lt 40960 ] || fail "the server grew by $(($(memory_peak) - before)) KiB"
    stop "$pid"
}

case_changing() { # a source that is written while it is read, each time for longer than its writer ever pauses
    mkdir root
    make_file f 8
    serve a root
    (while echo more >>f; do sleep 0.01; done) &
    local writer=$!
    pids+=("$writer")
    expect 1 'f: cannot read: changed while it was read' "$weir" cp --bwlimit 6M f "$url/"
    expect 1 '"code":"changed"' "$weir" cp --bwlimit 6M --json f "$url/"
    kill "$writer"
    wait "$writer" 2>/dev/null
    [ ! -e root/f ] || fail "the changed file was placed"
    expect 0 '1 file' "$weir" cp f "$url/"
    no_temporary_names root
    stop "$pid"
}

case_disks() { # a full disk, a disk one may only read
    if ! unshare -m true 2>/dev/null; then
        echo "  skipped: no mount namespace for us here"
        return
    fi
    mkdir root
    make_file f 5
    echo small >small
    # shellcheck disable=SC2016
    start_server a unshare -m sh -c 'mount -t tmpfs -o size=1M none "$1" && exec "$2" serve \
        --insecure --listen 127.0.0.1:0 --root "$1"' sh "$work/root" "$weir" || fail "no server"
    expect 1 '/f: cannot write: No space left' "$weir" cp f small "$url/"
    expect 0 '^got$' "$weir" cp -v "$url/small" got
    same small got
    expect 1 'No such file' "$weir" cp "$url/f" got2
    stop "$pid"
    # shellcheck disable=SC2016
    expect 1 'got/f: cannot write: No space left' unshare -m sh -c \
        'rm -f got; mkdir got; mount -t tmpfs -o size=1M none got; mkdir r; cp f r/
         "$0" serve --insecure --listen 127.0.0.1:0 --root r >r.log & server=$!
         until grep -q weir:// r.log; do sleep 0.05; done
         "$0" cp "$(sed -n "s|.* at \(weir://[^ ]*\)/ .*|\1|p" r.log)/f" got; code=$?
         kill $server; exit $code' "$weir"
    # shellcheck disable=SC2016
    expect 0 '1 file, 8.0 EiB' unshare -m sh -c \
        'mkdir most; mount -t tmpfs none most; mkdir most/r; truncate -s 9223372036854775807 most/f
         "$0" serve --insecure --listen 127.0.0.1:0 --root most/r >most/log & server=$!
         until grep -q weir:// most/log; do sleep 0.05; done
         "$0" cp most/f "$(sed -n "s|.* at \(weir://[^ ]*\)/ .*|\1|p" most/log)/"; code=$?
         [ "$(stat -c %s most/r/f)" = 9223372036854775807 ] || code=9
         kill $server; exit $code' "$weir"
    # shellcheck disable=SC2016
    start_server b unshare -m sh -c 'mount -t tmpfs -o ro none "$1" && exec "$2" serve \
        --insecure --listen 127.0.0.1:0 --root "$1"' sh "$work/root" "$weir" || fail "no server"
    expect 1 '/small: cannot write: Read-only file system' "$weir" cp small "$url/"
    stop "$pid"
}

now_ms() { date +%s%3N; }

# Whatever has a name must be whole.
whole_or_absent() { # FILE ORIGINAL
    [ ! -e "$1" ] || same "$1" "$2"
}

says_often() { # FILE PATTERN COUNT: so many lines match
    [ "$(grep -c -- "$2" "$1")" -ge "$3" ]
}

wait_for() { # FILE PATTERN COUNT
    until_true says_often "$@"
}

case_devices() { # of several, each side takes the one that has the address, or leads to it
    grep -q '^0*1 ' /proc/net/if_inet6 2>/dev/null || return 0
    export WEIR_DEVICES=weir0=::1,weir1=127.0.0.1
    mkdir root
    head -c 3000000 /dev/urandom >f
    start_server v4 "$weir" serve --fabric soft --insecure --root root --listen 127.0.0.1:0 || fail "no server"
    grep -q '(weir1, software' v4.log || fail "not the address's device: $(cat v4.log)"
    expect 0 '1 file.*weir1 (software)' "$weir" cp --fabric soft f "$url/new"
    same f root/new
    expect 0 '1 file.*weir1 (software)' "$weir" cp --fabric soft "$url/new" back
    same f back
    local at_first=$url
    start_server all "$weir" serve --fabric soft --insecure --root root --listen '*:0' || fail "no server"
    grep -q '(weir0, software' all.log || fail "not the first device: $(cat all.log)"
    kill "$pid"
    start_server all "$weir" serve --fabric soft --insecure --root root --listen '[::]:0' || fail "no server"
    grep -q '(weir0, software' all.log || fail "not the first device: $(cat all.log)"
    expect 3 "not this server's device" "$weir" cp --fabric soft f "weir://127.0.0.1:${url##*:}/other"
    unset WEIR_DEVICES
    expect 0 '1 unchanged' "$weir" cp --fabric soft f "$at_first/new"
}

case_client_killed() { # at several moments; the server says so and serves on
    mkdir root
    make_file f 600
    serve a root --json
    local moment number=0 clients=()
    for moment in 0 0.02 0.05 0.1 0.2 0.3; do
        number=$((number + 1))
        "$weir" cp -q f "$url/f$number" &
        clients+=($!)
        wait_for a.log '"event":"connected"' "$number" || fail "no connection: $(cat a.log)"
        sleep "$moment"
        kill -9 "$!"
    done
    wait "${clients[@]}" 2>/dev/null
    wait_for a.log '"event":"transfer"' "$number" || fail "not noticed: $(cat a.log)"
    [ "$(grep -c '"outcome":"lost"' a.log)" -ge 3 ] || fail "too few were lost: $(cat a.log)"
    for number in 1 2 3 4 5 6; do
        whole_or_absent "root/f$number" f
    done
    only_resumable root
    for number in 1 2 3 4 5 6; do
        [ -e "root/f$number" ] || expect 0 '1 file' "$weir" cp --resume f "$url/f$number"
        same f "root/f$number"
        rm "root/f$number"
    done
    no_temporary_names root
    expect 0 '1 file' "$weir" cp f "$url/after"
    same f root/after
    stop "$pid"
}

case_server_killed() { # at several moments; the client ends with status 4
    mkdir t
    make_file f 600
    local file
    for file in $(seq 3000); do
        echo "$file" >"t/$file"
    done
    local number=0 clients=() lost=0 moment client what
    for moment in 0 0.02 0.05 0.1 0.2 0.3; do
        number=$((number + 1))
        mkdir "root$number"
        serve "s$number" "root$number" --json
        what=f
        [ $((number % 2)) = 0 ] && what=t
        [ $((number % 4)) = 1 ] && echo old >"root$number/f" # what is to be replaced stays until then
        timeout 30 "$weir" cp --timeout 0 -r "$what" "$url/" >"c$number.log" 2>&1 &
        clients+=($!)
        wait_for "s$number.log" '"event":"connected"' 1 || fail "no connection to $number"
        sleep "$moment"
        kill -9 "$pid"
    done
    number=0
    for client in "${clients[@]}"; do
        number=$((number + 1))
        wait "$client"
        case $? in
        0) ;;
        3 | 4)
            lost=$((lost + 1))
            grep -q '127.0.0.1' "c$number.log" || fail "no peer named: $(cat "c$number.log")"
            ;;
        *) fail "an exit status that means something else: $(cat "c$number.log")" ;;
        esac
        [ "$(head -c 4 "root$number/f" 2>/dev/null)" = old ] || whole_or_absent "root$number/f" f
        [ $((number % 4)) != 1 ] || [ -e "root$number/f" ] || fail "the old file is gone"
        [ -z "$(find "root$number" -type f -size 0 ! -name '.weir-*')" ] || fail "an empty file"
    done
    [ "$lost" -ge 3 ] || fail "only $lost of the clients lost their server; the test says nothing"
    for number in 1 2 3 4 5 6; do
        what=f
        [ $((number % 2)) = 0 ] && what=t && no_temporary_names "root$number" # small files leave nothing
        serve "again$number" "root$number"
        expect 0 '' "$weir" cp -r --resume "$what" "$url/"
        same "$what" "root$number/$what"
        stop "$pid"
        no_temporary_names "root$number"
        rm -r "root$number"
    done
}

is_under_way() { # SIZE: so much of a file stands under a temporary name
    [ -n "$(find root -name '.weir-*' -size "+$1" 2>/dev/null)" ]
}

case_interrupted() { # SIGINT: status 130, the server knows at once, and --resume goes on
    mkdir root
    make_file f 400
    echo small >small
    serve a root
    "$weir" cp --bwlimit 50M small f "$url/" >c.log 2>&1 &
    local client=$!
    pids+=("$client")
    until_true is_under_way 20M || fail "nothing is under way: $(cat c.log)"
    kill -INT "$client"
    wait "$client"
    local code=$?
    [ "$code" = 130 ] || fail "exit status $code: $(cat c.log)"
    grep -q -- '--resume goes on' c.log || fail "does not say how to go on: $(cat c.log)"
    until_true says a.log ': lost: .*is kept' || fail "the server does not know: $(cat a.log)"
    [ ! -e root/f ] || fail "the file has a name"
    expect 2 'give one of them' "$weir" cp --resume --inplace f "$url/"
    grep -q '^1 file, ' c.log && ! grep -q 'proven' c.log || fail "says more than it knows: $(cat c.log)"
    expect 0 '1 file, 400 MiB.*MiB of it had come before; digest proven; 1 unchanged' "$weir" cp --resume small f "$url/"
    same f root/f
    no_temporary_names root
    stop "$pid"
}

case_interrupted_late() { # in the instant in which all is done: then it is done
    mkdir -p root/t t
    echo x >root/t/f
    touch t/gone
    serve a root
    [ -e "$build/tools/libinterrupt.so" ] || { echo "  skipped: a sanitizer comes first"; stop "$pid"; return; }
    expect 0 '1 file, .*; 1 deleted' env LD_PRELOAD="$build/tools/libinterrupt.so" "$weir" cp -r --delete "$url/t/" t
    same root/t t
    wait_for a.log 'pulled /t/: 1 file' 1 || fail "the server does not think so: $(cat a.log)"
    stop "$pid"
}

case_json_of_odd_bytes() { # what is not UTF-8 is said in another way, and takes nothing else with it
    cp -rL "$WEIR_LIBRARY_DIR" $'lib\xff'
    WEIR_LIBRARY_DIR=$PWD/$'lib\xff' expect 0 '"library_hex":"[0-9a-f]*6c6962ff2f6c6962' "$weir" info --json
    grep -q '"library":"[^"]*/lib\\\\xff/lib' out.txt || fail "$(cat out.txt)"
    WEIR_LIBRARY_DIR=$PWD/$'lib\xff' expect 0 '"library":"[^"]*/lib\\\\xff/lib' "$weir" bench --json --op read --size 8 --runs 1 --seconds 0.001
    local preloaded=(env LD_LIBRARY_PATH="$PWD/"$'lib\xff' LD_PRELOAD="$PWD/"$'lib\xff/libibverbs.so.1' ASAN_OPTIONS="${ASAN_OPTIONS-}:verify_asan_link_order=0")
    expect 0 '"reason":"[^"]*/lib\\\\xff/lib' "${preloaded[@]}" "$weir" info --json
    expect 0 'reason .*/lib\\xff/lib' "${preloaded[@]}" "$weir" info
    expect 0 '"reason":"[^"]*/lib\\\\xff/lib' "${preloaded[@]}" "$weir" bench --json --op read --size 8 --runs 1 --seconds 0.001
    echo x >f
    expect 3 '"error":"h\\\\xff:' "$weir" cp --json f $'weir://h\xff/'
    expect 3 '"peer":"weir://h\\\\xff:7471"' "$weir" cp --json f --to $'weir://h\xff/' --to weir://127.0.0.1:1/
    expect 6 '"error":' "$weir" cp --json --rsh $'/no\xff' f h:
}

case_hangup() { # a terminal that goes away: as for SIGINT at either side, and nothing where it is ignored
    mkdir root
    make_file f 400
    serve a root
    "$weir" cp --bwlimit 50M f "$url/" >c.log 2>&1 &
    local client=$! code
    pids+=("$client")
    until_true is_under_way 10M || fail "nothing is under way: $(cat c.log)"
    kill -HUP "$client"
    wait "$client"
    code=$?
    [ "$code" = 130 ] || fail "the client: exit status $code: $(cat c.log)"
    until_true says a.log 'the other side was interrupted' || fail "the server was not told: $(cat a.log)"
    find root -mindepth 1 -delete
    (trap '' HUP; exec "$weir" cp --bwlimit 50M f "$url/" >d.log 2>&1) &
    client=$!
    pids+=("$client")
    until_true is_under_way 10M || fail "nothing is under way: $(cat d.log)"
    kill -HUP "$client" # it goes on
    until_true is_under_way 20M || fail "it was told not to hear: $(cat d.log)"
    kill -HUP "$pid"
    wait "$pid"
    code=$?
    [ "$code" = 0 ] || fail "the server: exit status $code: $(cat a.log)"
    until_true says d.log 'the server was stopped' || fail "the client was not told: $(cat d.log)"
    kill -INT "$client"
    wait "$client"
}

case_interrupted_early() { # before anything has begun: by a remote shell that does it as soon as it is there
    mkdir root
    make_file root/f 1
    printf '#!/bin/sh\nkill -INT $PPID\nsleep 0.2\nshift\nexec sh -c "$*"\n' >rsh
    chmod +x rsh
    for round in 1 2 3 4 5; do
        expect 130 interrupted "$weir" cp --rsh ./rsh --weir-path "$weir" "far:$PWD/root/f" "copy$round"
        expect 130 interrupted "$weir" cp --rsh ./rsh --weir-path "$weir" root/f "far:$PWD/copy$round"
        [ ! -e "copy$round" ] || fail "something was copied"
    done
}

case_retransmissions() { # on a bad wire: who copies is told how much came again, whichever side sends
    mkdir root
    make_file f 40 # more than the receiver has memory for: what was lost at first has come before the end is said
    export WEIR_FAULT=loss=0.02,seed=7
    serve a root
    expect 0 'weir0.*; [0-9,]* retransmissions' "$weir" cp f "$url/"
    expect 0 '"retransmissions":[1-9]' "$weir" cp --json f "$url/g"
    expect 0 'weir0.*; [0-9,]* retransmissions' "$weir" cp "$url/g" h
    same f h
    unset WEIR_FAULT
    stop "$pid"
    serve b root
    expect 0 '"retransmissions":[0-9]' "$weir" cp --json f "$url/i"
    stop "$pid"
}

case_many_clients() { # at once, both directions
    mkdir root
    make_file f 30
    cp f root/g
    serve a root
    local i clients=()
    for i in 1 2 3 4; do
        timeout 60 "$weir" cp -q f "$url/f$i" &
        clients+=($!)
        timeout 60 "$weir" cp -q "$url/g" "g$i" &
        clients+=($!)
    done
    for i in "${clients[@]}"; do
        wait "$i" || fail "a client failed"
    done
    for i in 1 2 3 4; do
        same f "root/f$i"
        same f "g$i"
    done
    stop "$pid"
}

case_limits() { # clients that do nothing, and too many of them
    mkdir root t
    local name i client
    name=$(printf 'n%.0s' $(seq 200))
    for i in $(seq 6000); do # more than leave before the first is answered
        : >"t/$name$i"
    done
    echo x >f
    serve a root --json --max-per-client 1
    mkfifo pipe
    "$weir" cp -r -v t "$url/" >pipe 2>c.log & # stays in the middle, since nobody reads
    client=$!
    pids+=("$client")
    exec 9<pipe
    wait_for a.log '"event":"connected"' 1 || fail "no connection: $(cat a.log)"
    expect 5 'busy: this server runs 1 transfers at a time for one address' "$weir" cp f "$url/f2"
    wait_for a.log '"outcome":"refused","reason":"busy' 1 || fail "the server does not say it: $(cat a.log)"
    kill -9 "$client"
    wait "$client" 2>/dev/null
    exec 9<&-
    wait_for a.log '"outcome":"lost"' 1 || fail "not noticed: $(cat a.log)"
    expect 0 '1 file' "$weir" cp f "$url/f2"
    stop "$pid"
    rm -r root/t
    serve idle root --json --idle-timeout 1
    "$weir" cp -r -v t "$url/" >pipe 2>c.log &
    client=$!
    pids+=("$client")
    exec 9<pipe
    wait_for idle.log '"outcome":"lost","reason":"idle: the client did nothing for 1 s' 1 || fail "not ended: $(cat idle.log)"
    cat <&9 >out.txt
    exec 9<&-
    wait "$client"
    [ $? = 0 ] || fail "it did not come again: $(cat c.log)"
    grep -q 'idle: the client did nothing for 1 s; trying again' c.log || fail "the client does not know why: $(cat c.log)"
    grep -q '6,000 files, .*; connected again [1-9]' out.txt || fail "not counted: $(tail -1 out.txt)"
    expect 0 '1 file' "$weir" cp f "$url/f3"
    stop "$pid"
    mkdir -p "deep/$(printf 'd/%.0s' $(seq 70))"
    echo x >deep/f
    start_server b sh -c 'ulimit -n 300 && exec "$@"' sh "$weir" serve --insecure --listen 127.0.0.1:0 --root root ||
        fail "no server"
    expect 1 'is deeper in directories than this server takes' "$weir" cp -r deep "$url/"
    same deep/f root/deep/f
    [ "$(find root/deep -type d | wc -l)" = 64 ] || fail "$(find root/deep -type d | wc -l) deep"
    cp -r deep root/all
    expect 1 'is deeper in directories than this server takes' "$weir" cp -r "$url/all" .
    [ "$(find all -type d | wc -l)" = 64 ] || fail "$(find all -type d | wc -l) deep"
    stop "$pid"
    expect 2 'max-per-client takes' "$weir" serve --max-per-client 0
    expect 2 'from 1 to' "$weir" serve --max-transfers 0
    expect 2 'takes seconds' "$weir" serve --idle-timeout 1m
}

case_deep() { # deeper than a path can be long: what fits is copied, the rest reported
    mkdir root t
    local name i
    name=$(printf 'd%.0s' $(seq 100))
    (cd t && for i in $(seq 60); do
        mkdir "$name" && cd "$name" && echo "$i" >f && : >"${name//d/e}"
    done)
    serve a root
    expect 1 'File name too long' "$weir" cp -r t "$url/"
    [ -z "$(sort out.txt | uniq -d)" ] || fail "not told which entries: $(sort out.txt | uniq -dc | cut -c 1-60)"
    [ "$(find root -name f | wc -l)" -ge 35 ] || fail "only $(find root -name f | wc -l) files"
    no_temporary_names root
    stop "$pid"
}

case_permissions() { # what one may not read, where one may not write
    if [ "$(id -u)" = 0 ]; then
        if ! unshare -n setpriv --reuid=65534 --regid=65534 --clear-groups test -r "$script" \
            2>/dev/null; then
            echo "  skipped: no other user here, or none that may read $script"
            return
        fi
        # In a network of its own, since another user's software RNIC holds the port in this one.
        unshare -n sh -c 'ip link set lo up; exec setpriv --reuid=65534 --regid=65534 \
            --clear-groups "$@"' sh "$script" "$build" permissions ||
            fail "as another user"
        return
    fi
    mkdir root t t/closed
    echo a >t/a
    echo b >t/b
    chmod 000 t/a t/closed
    serve a root
    expect 1 't/a: cannot read: Permission denied' "$weir" cp -r t "$url/"
    grep -q 't/closed: cannot read: Permission denied' out.txt || fail "nothing said of t/closed"
    same t/b root/t/b
    chmod 555 root
    expect 1 '/b: cannot write: Permission denied' "$weir" cp t/b "$url/"
    chmod 000 root/t/b
    expect 1 '/t/b: cannot read: Permission denied' "$weir" cp "$url/t/b" c
    [ ! -e c ] || fail "a file without contents"
    chmod 755 root
    stop "$pid"
}

case_mirror() { # --delete, --inplace, --bwlimit
    mkdir -p root/t/old t/d
    echo new >t/d/f
    make_file t/big 2
    echo old >root/t/old/f
    echo old >root/t/kept.o
    echo beside >root/beside
    serve a root
    expect 2 'wants -r' "$weir" cp --delete t/d/f "$url/"
    expect 2 'no other source' "$weir" cp -r --delete t/ t/d "$url/t"
    expect 2 'no other source' "$weir" cp -r --delete "$url" "$url/t/d" .
    expect 2 'no other source' "$weir" cp -r --delete far: far:t/d .
    expect 0 'deleting   t/old/f' "$weir" cp -an --delete -i t "$url/"
    expect 0 '"event":"deleted","kind":"file","path":"t/old/f"' "$weir" cp -anv --json --delete t "$url/"
    [ -e root/t/old/f ] || fail "a dry run deleted a file"
    expect 0 '; 2 deleted' "$weir" cp -a --delete --exclude '*.o' t "$url/"
    [ ! -e root/t/old ] && [ -e root/t/kept.o ] && [ -e root/beside ] || fail "not what was to be deleted"
    expect 0 'deleting kept.o' "$weir" cp -av --delete t/ "$url/t"
    same t root/t
    echo more >>root/t/d/f
    ln root/t/d/f root/other
    expect 0 '1 file' "$weir" cp -a --inplace t/ "$url/t"
    same t/d/f root/other
    echo '- *.tmp' >t/.rsync-filter
    touch t/d/a.tmp root/t/d/b.tmp root/t/extra
    expect 0 '; 1 deleted' "$weir" cp -aF --delete t "$url/"
    [ ! -e root/t/d/a.tmp ] && [ -e root/t/d/b.tmp ] && [ -e root/t/.rsync-filter ] || fail "not as the file says: $(find root)"
    rm root/t/.rsync-filter
    expect 0 '; 1 deleted' "$weir" cp -aFF --delete t "$url/"
    [ ! -e root/t/d/b.tmp ] && [ ! -e root/t/.rsync-filter ] || fail "-FF: not as without the file: $(find root)"
    expect 0 '; 1 deleted' "$weir" cp -aF --delete "$url/t" .
    [ ! -e t/.rsync-filter ] && [ -e t/d/a.tmp ] || fail "a pull: not as the file says: $(find t)"
    rm t/d/a.tmp
    echo nonsense >t/.rsync-filter
    expect 1 't: cannot read: its rules cannot be had.*: .rsync-filter, line 1: a rule begins' "$weir" cp -aF t "$url/"
    rm t/.rsync-filter
    ln -s /proc/self/status t/d/unreadable
    expect 1 'nothing was deleted, since a source' sh -c "echo x >root/t/extra
        '$weir' cp -r --delete t nowhere '$url/'"
    [ -e root/t/extra ] || fail "deleted after an error"
    echo x >root/t/extra2
    expect 1 'because of --max-delete: 1 more' "$weir" cp -r --delete --ignore-errors --max-delete=1 t nowhere "$url/"
    [ "$(find root/t -name 'extra*' | wc -l)" = 1 ] || fail "not one was deleted: $(ls root/t)"
    expect 1 '"not_deleted":1' "$weir" cp -r --json --delete --ignore-errors --max-delete=0 t "$url/"
    mkdir -p other/u here/t here/u
    touch here/t/extra here/u/extra
    local first=$pid there=$url
    serve b other
    expect 1 '; 1 deleted' "$weir" cp -r --delete --max-delete=1 "$there/t" "$url/u" here
    [ ! -e here/t/extra ] && [ -e here/u/extra ] || fail "of two servers more was deleted than of one: $(find here)"
    stop "$pid"
    pid=$first url=$there
    mkdir root/t/sub
    touch root/t/sub/keep root/t/sub/lose
    printf '%s\n' '# rules' 'P keep' '- *.o' >rules
    expect 0 'deleting sub/lose' "$weir" cp -rvn --delete -f '. rules' t/ "$url/t"
    ! grep -q 'deleting sub/$' out.txt || fail "a dry run deletes a directory in which something stays: $(cat out.txt)"
    mkdir root/t/sub2
    touch root/t/sub2/lose root/t/sub2/.weir-0123456789abcdef
    expect 0 'deleting sub2/lose' "$weir" cp -rvn --delete t/ "$url/t"
    grep -q 'deleting sub2/$' out.txt || fail "what a killed copy left holds a directory: $(cat out.txt)"
    exec 7<root/t/sub2/.weir-0123456789abcdef
    flock 7
    expect 0 'deleting sub2/lose' "$weir" cp -rvn --delete t/ "$url/t"
    ! grep -q 'deleting sub2/$' out.txt || fail "a dry run deletes a directory in which a file is written: $(cat out.txt)"
    exec 7<&-
    rm -r root/t/sub2
    expect 0 'deleting sub/lose' "$weir" cp -rv --delete --ignore-errors -f '. rules' t/ "$url/t"
    [ -e root/t/sub/keep ] && [ ! -e root/t/extra2 ] && [ ! -e root/t/extra ] || fail "not what was to go: $(ls root/t)"
    rm -r root/t/sub
    local began
    began=$(now_ms)
    expect 0 '1 file' "$weir" cp --bwlimit 1M t/big "$url/slow"
    [ $(($(now_ms) - began)) -gt 1300 ] || fail "2 MiB at 1 MiB/s took $(($(now_ms) - began)) ms"
    began=$(now_ms)
    expect 0 '1 file' "$weir" cp --bwlimit=1024 "$url/t/big" slow
    [ $(($(now_ms) - began)) -gt 1300 ] || fail "2 MiB at 1 MiB/s took $(($(now_ms) - began)) ms"
    same slow root/slow
    expect 2 'bwlimit takes' "$weir" cp --bwlimit 1X t/big "$url/slow"
    stop "$pid"
}

case_archive() { # what -a, -H, -X and --chown keep, and who may
    mkdir -p t/d there here
    echo x >t/program
    chmod 4750 t/program
    ln t/program t/d/again
    mkfifo t/fifo
    setfattr -n user.note -v text t/program
    touch -d '2001-02-03 04:05:06.789012345' t/program t/d
    serve trusting there --super
    expect 0 'files' "$weir" cp -aHX t "$url/"
    expect 0 'files' "$weir" cp -aHX "$url/t" here
    metadata t >before
    metadata there/t | diff before - || fail "the push is not the same"
    metadata here/t | diff before - || fail "the pull is not the same"
    [ there/t/program -ef there/t/d/again ] || fail "the link became a file"
    getfattr -n user.note here/t/program | grep -q '"text"' || fail "no extended attribute"
    expect 0 'files' "$weir" cp -aHX t "$url/"
    expect 2 'chown takes' "$weir" cp --chown : t "$url/"
    expect 2 'chown takes' "$weir" cp --chown a:b:c t "$url/"
    if [ "$(id -u)" = 0 ] && chown 1:2 before 2>/dev/null; then
        expect 0 'files' "$weir" cp -a --chown daemon:4321 t "$url/chown"
        [ "$(stat -c %U:%g there/chown/program)" = daemon:4321 ] || fail "the owner of a push"
        expect 0 'files' "$weir" cp -a --chown :bin "$url/t" pulled
        [ "$(stat -c %u:%G pulled/program)" = 0:bin ] || fail "the group of a pull"
        expect 1 'nobody here has the name' "$weir" cp --chown no-such-user before "$url/"
        [ ! -e there/before ] || fail "a file of nobody's"
    fi
    stop "$pid"
    serve wary there
    expect 0 'files' "$weir" cp -aHX t "$url/wary"
    [ "$(stat -c %a there/wary/program)" = 750 ] || fail "a stranger sets the set-user-ID bit"
    stop "$pid"
}

# will_flip WHAT: sets $flip, to put before a command in whose process that happens (flip.c).
will_flip() {
    rm -f mark
    flip=(env WEIR_LINK=udp LD_PRELOAD="$build/tools/libflip.so" WEIR_FLIP="$1" WEIR_FLIP_MARK="$work/mark")
}

# flipped CODE PATH WORDS COMMAND...: the client says so, and the file gets no name.
flipped() {
    local code=$1 path=$2 words=$3
    shift 3
    expect "$code" "$words" "$@"
    [ -e mark ] || fail "no bit was flipped: the test says nothing"
    [ ! -e "$path" ] || fail "a file with a flipped bit got its name: $path: $words"
}

flip_file() { # NAME OFFSET
    python3 -c 'import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0] ^ 4
    file.seek(-1, 1)
    file.write(bytes([byte]))' "$1" "$2"
}

has_record() { # one piece of the file has been noted
    find root -name '*.journal' -size +191c 2>/dev/null | grep -q .
}

case_flips() { # a bit that nobody has noticed on the way is noticed, and told
    if [ ! -e "$build/tools/libflip.so" ]; then
        echo "  skipped: a sanitizer has the calls that it takes place in"
        return
    fi
    local arrived='the bytes that arrived are not those that were read (digest)'
    local stored='what was read back from storage is not what was written (digest)'
    local packet=4096 part=131072 how client journal expected
    mkdir root
    make_file f 8
    for how in copy:$packet:700 write:$part:9; do # the wire, staging
        will_flip $how
        start_server a "${flip[@]}" "$weir" serve --insecure --listen 127.0.0.1:0 --root root || fail "no server"
        flipped 1 root/f "/f: cannot write: $arrived" "$weir" cp f "$url/"
        expect 0 '1 file, 8.0 MiB' "$weir" cp --resume f "$url/"
        same f root/f
        will_flip $how
        flipped 1 got "got: cannot write: $arrived" "${flip[@]}" "$weir" cp "$url/f" got
        rm root/f
        stop "$pid"
    done
    cp f root
    "$weir" key keys
    WEIR_LINK=udp start_server a "$weir" serve --keys keys --listen 127.0.0.1:0 --root root || fail "no server"
    will_flip copy:$packet:700
    flipped 4 got "a sealed chunk was changed on its way" "${flip[@]}" "$weir" cp --key keys --encrypt "$url/f" got
    stop "$pid"
    rm root/f
    will_flip copy:$packet:700
    start_server a "${flip[@]}" "$weir" serve --keys keys --listen 127.0.0.1:0 --root root || fail "no server"
    WEIR_LINK=udp flipped 4 root/f "a sealed chunk was changed on its way" "$weir" cp --key keys --encrypt f "$url/"
    says out.txt 'trying again' && fail "what the server found wrong is tried again"
    stop "$pid"
    cp f root
    serve a root --json
    will_flip storage:$part:9
    flipped 1 got "got: cannot write: $stored" "${flip[@]}" "$weir" cp --verify "$url/f" got
    [ -z "$(find . -maxdepth 1 -name '.weir-*')" ] || fail "kept, though nobody asked for it: $(ls -A)"
    for how in write:$part:9 storage:$part:9; do # what is right of it need not come again
        will_flip $how
        flipped 1 got "got: cannot write: .*(digest)" "${flip[@]}" "$weir" cp --resume --verify "$url/f" got
        expect 0 '1 file, 8.0 MiB.*; 4.0 MiB of it had come before' "$weir" cp --resume "$url/f" got
        same f got
        rm got
    done
    for how in head record kept; do # in the journal, and in what that is about
        rm -f root/f
        : >a.log
        "$weir" cp --bwlimit 2M f "$url/" >c.log 2>&1 &
        client=$!
        until_true has_record || fail "nothing is under way: $(cat c.log)"
        journal=$(find root -name '*.journal')
        kill -9 "$client"
        wait "$client" 2>/dev/null
        wait_for a.log '"outcome":"lost"' 1 || fail "the server does not notice: $(cat a.log)"
        case $how in
        head) flip_file "$journal" 20; expected='f: its journal is damaged' ;;
        record) flip_file "$journal" 148; expected='f: 1 of [1-9]* records of its journal are damaged' ;;
        kept) flip_file "${journal%.journal}" 1000000; expected='f: 1 of [1-9]* pieces .* are not what its journal says' ;;
        esac
        expect 0 "warning: $url/$expected" "$weir" cp --resume f "$url/"
        same f root/f
        no_temporary_names root
    done
    stop "$pid"
}

cases=("$@")
[ ${#cases[@]} -gt 0 ] || mapfile -t cases < <(declare -F | sed -n 's/^declare -f case_//p')
for name in "${cases[@]}"; do
    echo "$name"
    mkdir "$work/$name"
    cd "$work/$name" || exit 1
    work=$PWD "case_$name"
    cd "$work" || exit 1
    chmod -R u+rwx "$work/$name"
    rm -rf "${work:?}/$name"
done
if [ "$failures" -gt 0 ]; then
    echo "$failures failed"
    exit 1
fi
echo "all passed"
