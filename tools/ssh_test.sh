#!/usr/bin/env bash
# weir cp through ssh, with a real sshd on loopback that has a key, users' keys and a home of its own;
# and what strangers get. As root in a network namespace of its own.
# usage: ssh_test.sh BUILD_DIR [CASE...]
set -u
build=$(realpath "$1")
script=$(realpath "$0")
if [ "$(id -u)" = 0 ] && [ -z "${WEIR_SSH_TEST:-}" ]; then
    WEIR_SSH_TEST=1 exec unshare -n "$script" "$@"
fi
[ -z "${WEIR_SSH_TEST:-}" ] || ip link set lo up
shift
sshd=$(PATH=$PATH:/usr/sbin command -v sshd) || { echo "there is no sshd"; exit 77; }
. "$(dirname "$script")/whole_program.sh"

is_gone() { # PID
    ! kill -0 "$1" 2>/dev/null
}

# A free port that nobody listens at now.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The far side's home is $work/home; its weir is $work/bin/weir, which notes its process.
start_sshd() {
    mkdir home bin
    port=$(free_port)
    ssh-keygen -q -t ed25519 -N '' -f host_key
    ssh-keygen -q -t ed25519 -N '' -f user_key
    echo "command=\"cd '$work/home' && PATH='$work/bin':\$PATH && exec sh -c \\\"\$SSH_ORIGINAL_COMMAND\\\"\" $(cat user_key.pub)" \
        >authorized
    cat >sshd_config <<END
Port $port
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/authorized
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
END
    cat >ssh_config <<END
Host *
    HostName 127.0.0.1
    Port $port
    IdentityFile $work/user_key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile $work/known_hosts
    LogLevel ERROR
END
    cat >bin/weir <<END
#!/bin/sh
echo \$\$ >$work/far.pid
WEIR_LIBRARY_DIR=$build/dropin exec $weir "\$@"
END
    chmod +x bin/weir
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
    "$sshd" -D -e -f sshd_config 2>sshd.log &
    pids+=($!)
    until_true says sshd.log 'Server listening' || { cat sshd.log; exit 1; }
    export WEIR_RSH="ssh -F $work/ssh_config"
}

case_both_ways() { # names of all kinds, relative to the home and not
    local odd=$'it\'s "quoted" \xff\n$(touch oops) `*;'
    start_sshd
    head -c 3000000 /dev/urandom >f
    cp f "$odd"
    expect 0 'far: over weir0 (software), .*, at ' "$weir" cp f far:
    same f home/f
    expect 0 '1 file' "$weir" cp "$odd" "$(id -un)@far:"
    expect 2 'not of the form' "$weir" cp f @far:x
    same f "home/$odd"
    mkdir -p 'home/with blank/a' 'home/~' back
    cp f "home/with blank/a/$odd"
    ln -s ../f 'home/with blank/link'
    expect 0 '1 file' "$weir" cp -a 'far:with blank' .
    same 'home/with blank' 'with blank'
    expect 0 '1 file.*' "$weir" cp -r 'with blank' far:~/again
    same 'with blank' home/again/
    expect 0 '; 2 unchanged' "$weir" cp -a 'with blank/' far:again
    expect 0 '2 files' "$weir" cp "far:$odd" "[::1]:f" back
    same f "back/$odd"
    expect 0 '1 file' "$weir" cp f '[::1]:./~/f'
    same f 'home/~/f'
    expect 0 '1 file' "$weir" cp f "far:$work/home/absolute"
    same f home/absolute
    expect 0 '1 file' "$weir" cp "far:../f" up
    same f up
    expect 0 '"event":"connected","peer":"far:"' "$weir" cp --json --encrypt -I "$odd" far:
    same f "home/$odd"
    expect 1 'far:nothere: cannot read: No such file' "$weir" cp far:nothere .
    expect 5 'far: no/such: no such directory (--mkpath' "$weir" cp f far:no/such/place
    [ ! -e home/oops ] && [ ! -e oops ] || fail "a shell saw a name"
}

case_several() { # hosts, which are fed one by the other; one has no weir
    start_sshd
    mkdir t
    head -c 5000000 /dev/urandom >t/large
    echo small >t/small
    expect 0 'to 3 of 3 targets' "$weir" cp -a --to one:a --to two:b --to "three:$work/home/c" t
    for i in a b c; do
        same t "home/$i"
    done
    cat >rsh <<END
#!/bin/sh
[ "\$1" = two ] && exit 127
exec ssh -F $work/ssh_config "\$@"
END
    chmod +x rsh
    echo other >t/small
    expect 1 'to 2 of 3 targets' "$weir" cp -a --encrypt --rsh "$work/rsh" --to one:a --to two:b --to three:c t
    grep -q "two: there is no 'weir'" out.txt || fail "not named: $(cat out.txt)"
    same t home/a/t
    same t home/c/t
}

case_no_start() { # each way in which nothing is started has its own words
    start_sshd
    echo f >f
    expect 3 "there is no 'noweir': install weir there" "$weir" cp --weir-path noweir f far:
    expect 3 "there is no 'noweir': install weir there" env --ignore-signal=CHLD "$weir" cp --weir-path noweir f far:
    expect 3 'the remote shell failed, as it says above' "$weir" cp -e 'ssh -F none -p 1' f 127.0.0.1:
    expect 6 "'noshell': No such file" "$weir" cp --rsh noshell f far:
    expect 2 "not a command" "$weir" cp --rsh "ssh 'x" f far:
    expect 2 "WEIR_RSH 'ssh 'x': not a command" env WEIR_RSH="ssh 'x" "$weir" cp f far:
    # one that asks for a password has the terminal without echo, until it is asked to end
    printf '#!/bin/sh\ntrap "echo >echo-is-back; kill \\$!; exit" TERM\nexec >&-\nsleep 60 &\nwait\n' >mute
    chmod +x mute
    expect 3 'the remote shell closed its output and went on' "$weir" cp --rsh ./mute f far:
    [ -e echo-is-back ] || fail "the shell was killed without being asked to end"
    local began=$SECONDS
    expect 6 'nowhere: no such directory' "$weir" cp --rsh ./mute far:f nowhere/x # nobody waits for its password
    [ $((SECONDS - began)) -lt 3 ] || fail "what is begun in vain is waited for"
    printf '#!/bin/sh\necho weir-session 1 9.9 99\ncat\n' >bin/later
    printf '#!/bin/sh\necho Have a nice day\nexit 9\n' >bin/motd
    printf '#!/bin/sh\necho Have a nice day\nexec weir "$@"\n' >bin/chatty
    chmod +x bin/*
    expect 5 'weir 9.9 there speaks version 1.99 of the transfer' "$weir" cp --weir-path later f far:
    expect 3 "exit status 9); it said 'Have a nice day'" "$weir" cp --weir-path motd f far:
    expect 3 '"error":"no session was started there (exit status 9); it said' "$weir" cp --json --weir-path motd f far:
    expect 0 '1 file' "$weir" cp --weir-path chatty f far:
    same f home/f
    expect 6 'no RDMA device' "$weir" cp --require-rdma f far:
    expect 3 'UDP port 4791, which must be open' env WEIR_FAULT=loss=1 "$weir" cp f far:g
    grep -q '127.0.0.1:[0-9]*: ' out.txt || fail "not said what was tried: $(cat out.txt)"
    until_true is_gone "$(cat far.pid)" || fail "the far side goes on"
}

# A copy that takes long; $client is its process, $far the far side's.
start_slow_copy() { # NAME TIMEOUT [RATE]
    rm -f far.pid
    "$weir" cp --bwlimit "${3:-500}" --timeout "$2" big "far:$1" >"$1.out" 2>"$1.log" &
    client=$!
    pids+=("$client")
    until_true says "$1.log" 'over weir0' || fail "no start: $(cat "$1.log")"
    far=$(cat far.pid)
}

case_killed() { # either side, or the shell between them
    start_sshd
    head -c 20M /dev/urandom >big
    start_slow_copy a 0
    kill -9 "$far"
    until_true is_gone "$client" || fail "the client does not notice"
    wait "$client"
    [ $? = 4 ] || fail "not lost: $(cat a.log)"
    start_slow_copy b 0
    kill -9 "$client"
    wait "$client" 2>/dev/null
    until_true is_gone "$far" || fail "the far side outlives its client"
    start_slow_copy c 0
    kill "$(ps -o pid= --ppid "$client" | head -1)"
    until_true is_gone "$client" || fail "the client does not notice that ssh is gone"
    wait "$client"
    [ $? = 4 ] || fail "not lost: $(cat c.log)"
    until_true is_gone "$far" || fail "the far side outlives ssh"
    start_slow_copy d 0
    kill -INT "$client"
    until_true is_gone "$client"
    wait "$client"
    [ $? = 130 ] || fail "not interrupted: $(cat d.log)"
    until_true is_gone "$far" || fail "the far side goes on"
    [ -z "$(ls home)" ] || fail "something has a name: $(ls home)"
}

has_records() { # two pieces have been noted at the far side
    find home -name '.weir-*.journal' -size +255c 2>/dev/null | grep -q .
}

# FAR: it is that process that goes on with the copy, or `other`.
goes_on() { # NAME FAR
    until_true is_gone "$client" || fail "the client does not end: $(cat "$1.log")"
    wait "$client" || fail "exit status $?: $(cat "$1.log")"
    same big "home/$1"
    grep -q 'connected again after' "$1.log" || fail "not said: $(cat "$1.log")"
    grep -q '1 file, 16.0 MiB.*MiB of it had come before;.* connected again 1 time' "$1.out" ||
        fail "not resumed: $(cat "$1.out")"
    [ "$2" = other ] || [ "$(cat far.pid)" = "$2" ] || fail "the far side was started again"
    [ "$2" != other ] || [ "$(cat far.pid)" != "$far" ] || fail "the far side was not started again"
}

case_again() { # the far side dies, or ssh does, or the way to it is gone for a while: it goes on
    start_sshd
    head -c 16M /dev/urandom >big
    start_slow_copy a 30 4M
    until_true has_records || fail "nothing is under way: $(cat a.log)"
    kill -9 "$far"
    goes_on a other
    start_slow_copy b 30 4M
    until_true has_records || fail "nothing is under way: $(cat b.log)"
    kill "$(ps -o pid= --ppid "$client" | head -1)"
    goes_on b other
    export WEIR_LINK=udp
    sed -i 's/^WEIR_/WEIR_LINK=udp WEIR_/' bin/weir
    start_slow_copy c 30 4M
    until_true has_records || fail "nothing is under way: $(cat c.log)"
    ip link set lo down
    until_true says c.log 'trying again' || fail "the loss is not said: $(cat c.log)"
    ip link set lo up
    goes_on c "$far"
    unset WEIR_LINK
    sed -i 's/^WEIR_LINK=udp //' bin/weir
    start_slow_copy e 16 4M # its host dies, and ssh does not hear of it
    until_true has_records || fail "nothing is under way: $(cat e.log)"
    local sshd_of_far
    sshd_of_far=$(ps -o ppid= -p "$far")
    kill -STOP "$sshd_of_far"
    kill -9 "$far"
    goes_on e other
    kill -9 "$sshd_of_far"
    start_slow_copy d 6 4M
    until_true has_records || fail "nothing is under way: $(cat d.log)"
    mv bin/weir bin/no-weir
    kill -9 "$far"
    wait "$client"
    [ $? = 4 ] || fail "not given up: $(cat d.log)"
    grep -q "there is no 'weir'" d.log || fail "not said why: $(cat d.log)"
    mv bin/no-weir bin/weir
    expect 0 'MiB of it had come before' "$weir" cp --resume big far:d
    same big home/d
}

case_session() { # serves who knows its secret, one of them, as long as its pipe stands
    mkdir home
    echo f >f
    mkfifo pipe
    (cd home && exec "$weir" serve --session <../pipe >../greeting 2>../far.log) &
    local far=$! port secret
    pids+=("$far")
    exec 7>pipe
    until_true says greeting ready || fail "no greeting: $(cat far.log)"
    port=$(sed -n 's/^address 127.0.0.1:\([0-9]*\).*/\1/p' greeting)
    secret=$(sed -n 's/^secret //p' greeting)
    (umask 077
        echo "session $secret" >right
        echo "session ${secret:32}${secret:0:32}" >wrong
        echo "other $secret" >unknown)
    expect 5 'wants a key' "$weir" cp f "weir://127.0.0.1:$port/x"
    expect 5 'does not know this key' "$weir" cp --key wrong f "weir://127.0.0.1:$port/x"
    expect 5 'does not know this key' "$weir" cp --key unknown f "weir://127.0.0.1:$port/x"
    [ -z "$(ls -A home)" ] || fail "a stranger wrote something"
    expect 0 '1 file' "$weir" cp --key right f "weir://127.0.0.1:$port$work/home/x"
    same f home/x
    expect 5 'has its client' "$weir" cp --key right f "weir://127.0.0.1:$port/$work/home/y"
    until_true says far.log 'stranger 3: 127.0.0.1:' || fail "not counted: $(cat far.log)"
    grep -q "stranger 1: 127.0.0.1:[0-9]*: it has no key" far.log || fail "not named: $(cat far.log)"
    exec 7>&-
    until_true is_gone "$far" || fail "it outlives its pipe"
}

# Who has a key and says nothing has no more places than another, and not for long. In the background: sets $visited.
visit_in_silence() {
    "$weir" serve --keys writer.key --max-per-client 1 --root mine --listen 127.0.0.1:0 --json >visited.log 2>&1 &
    pids+=($!)
    until_true says visited.log listening || fail "no server: $(cat visited.log)"
    visited=$(sed -n 's|.*"event":"listening","address":"\([^"]*\)".*|\1|p' visited.log)
    "$build/tools/weir_silent" writer.key "$visited" 11 >silent.log 2>&1 &
    silent=$!
    pids+=($silent)
    until_true says silent.log '^11 ' || fail "they do not come: $(cat silent.log)"
    [ "$(grep -c 'let in$' silent.log)" = 9 ] || fail "not one that is served, and eight to be told: $(cat silent.log)"
    says silent.log '^10 refused: .*busy: this server runs 1 transfers' || fail "the tenth: $(cat silent.log)"
    "$build/tools/weir_silent" writer.key "$visited" 1 64 >short.log 2>&1 # it would fetch what it is told
    says short.log '^1 refused: .*fetch' || fail "it gets keys: $(cat short.log)" # whichever of both ends it first
    until_true says visited.log '"stranger"' || fail "it is let in: $(cat visited.log)"
}

# A list that takes longer than a greeting may, over a slow network. In the background, where root can have one: sets $slow.
list_slowly() {
    slow=
    [ -n "${WEIR_SSH_TEST:-}" ] || return 0
    mkdir -p slow/root
    echo f >slow/root/f
    { echo f; seq -f 'some/long/name/of/a/directory/in/which/there/is/nothing/%07.0f' 50000; } >slow/list
    unshare -n bash -c '
        ip link set lo up mtu 1500 && tc qdisc add dev lo root tbf rate 2mbit burst 20kb latency 200ms || exit 77
        export WEIR_LINK=udp
        timeout 90 "$0" serve --keys writer.key --root slow/root --listen 127.0.0.1 >slow/server.log 2>&1 &
        until grep -q weir:// slow/server.log; do sleep 0.02; kill -0 $! || exit; done
        timeout 60 "$0" cp -r --files-from slow/list --key writer.key weir://127.0.0.1/ slow/got >slow/log 2>&1
        kill $!' "$weir" &
    slow=$!
    pids+=($slow)
}

slow_list_is_over() {
    [ -n "$slow" ] || return 0
    wait "$slow"
    [ $? = 77 ] && return 0
    same f slow/got/f
    grep -q '^1 file.* 1 not copied' slow/log || fail "a long list: $(cat slow/log slow/server.log)"
}

silence_is_over() {
    wait "$silent" || fail "the silent ones: $(cat silent.log)"
    [ "$(grep -c 'ended: .*no greeting within 10 s' silent.log)" = 9 ] || fail "not ended for their silence: $(cat silent.log)"
    expect 0 '1 file' "$weir" cp --key writer.key "weir://$visited/of-reader" got3
}

case_keys() { # a standing server: what each key's owner may, and what strangers get
    mkdir root mine
    echo f >f
    local name visited silent slow
    for name in writer reader stranger; do
        "$weir" key --name "$name" "$name.key" || fail "no key"
    done
    visit_in_silence
    list_slowly
    [ "$(stat -c %a writer.key)" = 600 ] || fail "others may read a key"
    expect 6 'File exists' "$weir" key writer.key
    "$weir" key --name piped - | grep -Eq '^piped [0-9a-f]{64}$' || fail "no key at standard output"
    [ ! -e ./- ] || fail "a file is called -"
    "$weir" key - >/dev/full 2>full.txt && fail "a key that was not written"
    grep -q 'standard output: No space left' full.txt || fail "$(cat full.txt)"
    (umask 077 && cat writer.key >keys && sed "s|\$| read-only root=$work/mine|" reader.key >>keys)
    cp f mine/of-reader
    mkdir root/below
    cp writer.key root/below/keys # nobody may copy it from there and be who he is not
    ln -s root/below/keys led
    expect 6 "led: it is in a folder that is served ($work/root)" "$weir" serve --keys led --root root
    expect 6 'it is in a folder that is served' "$weir" serve --keys led --root a=mine --root b=root/below,read-only
    cp keys mine/keys
    expect 6 "mine/keys: it is in a folder that is served ($work/mine)" "$weir" serve --keys mine/keys --root root
    mkdir outside && cp writer.key outside/keys # nor give a link another target, for when the server starts again
    ln -s ../outside/keys root/led
    expect 6 "root/led: it is in a folder that is served ($work/root)" "$weir" serve --keys root/led --root root
    ln -s ../outside root/away
    expect 6 "it is in a folder that is served ($work/root)" "$weir" serve --keys ./root/away/keys --root root
    expect 6 'cannot listen' env -C root "$weir" serve --keys ./../outside/keys --listen 192.0.2.254:0 # the way out is nobody's
    rm -r root/below root/led root/away mine/keys
    "$weir" serve --keys keys --root root --listen 127.0.0.1:0 >server.out 2>server.log &
    local server=$! url
    pids+=("$server")
    until_true says server.out weir:// || fail "no server: $(cat server.log)"
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' server.out)
    expect 0 '1 file' "$weir" cp --key writer.key f "$url/"
    same f root/f
    expect 0 '1 file' "$weir" cp --key writer.key --encrypt "$url/f" got
    same f got
    expect 0 '1 file' "$weir" cp --key reader.key "$url/of-reader" .
    expect 1 'No such file' "$weir" cp --key reader.key "$url/f" got2
    expect 5 'read-only' "$weir" cp --key reader.key f "$url/"
    expect 5 'wants a key: weir cp --key' "$weir" cp "$url/f" got2
    expect 5 'does not know this key' "$weir" cp --key stranger.key "$url/f" got2
    sed 's/^stranger/writer/' stranger.key >forged && chmod 600 forged
    expect 5 'does not know this key' "$weir" cp --key forged "$url/f" got2
    chmod 644 writer.key
    expect 6 'others may read or write it' "$weir" cp --key writer.key "$url/f" got2
    expect 2 'wants --key' "$weir" cp --encrypt "$url/f" got2
    [ ! -e got2 ] || fail "a stranger got something"
    kill "$server"
    wait "$server"
    grep -q 'stranger 1: 127.0.0.1:[0-9]*: it has no key' server.log || fail "not named: $(cat server.log)"
    grep -q "stranger 3: 127.0.0.1:[0-9]*: wrong key 'writer'" server.log || fail "not named: $(cat server.log)"
    grep -q 'not let in: 3' server.log || fail "not counted: $(cat server.log)"
    grep -q '^writer from 127.0.0.1' server.out || fail "the key is not told: $(cat server.out)"
    (
        ulimit -c unlimited
        exec "$weir" serve --keys keys --root root --listen 127.0.0.1:0 >doomed.out 2>&1
    ) &
    server=$!
    pids+=("$server")
    until_true says doomed.out weir:// || fail "no server: $(cat doomed.out)"
    kill -ABRT "$server" # QUIT is ignored by what a shell has started behind
    { wait "$server"; } 2>death
    grep -q Aborted death || fail "the server does not die: $(cat death)"
    grep -q 'core dumped' death && fail "the keys are in a core: $(cat death)"
    "$weir" serve --insecure --root root --listen 127.0.0.1:0 >open.out 2>&1 &
    server=$!
    pids+=("$server")
    until_true says open.out weir:// || fail "no server: $(cat open.out)"
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' open.out)
    expect 5 'has no keys: it runs with --insecure' "$weir" cp --key forged "$url/f" got2
    kill "$server"
    wait "$server"
    chmod 600 writer.key
    silence_is_over
    slow_list_is_over
}

case_crowd() { # who fills the place of those that have proven nothing makes way himself
    [ -n "${WEIR_SSH_TEST:-}" ] || { echo "it takes a second address"; return 0; }
    local port
    ip addr add 198.51.100.1/32 dev lo
    mkdir root
    echo f >root/f
    "$weir" key --name friend friend.key || fail "no key"
    "$weir" serve --keys friend.key --root root --listen '*:0' >server.out 2>server.log &
    pids+=($!)
    until_true says server.out weir:// || fail "no server: $(cat server.log)"
    port=$(sed -n 's|.*weir://127.0.0.1:\([0-9]*\)/.*|\1|p' server.out)
    "$build/tools/weir_silent" - "127.0.0.1:$port" 1 >one.log 2>&1 &
    pids+=($!)
    until_true says one.log '^1 let in' || fail "the one does not come: $(cat one.log)"
    "$build/tools/weir_silent" - "198.51.100.1:$port" 70 >many.log 2>&1 &
    pids+=($!)
    until_true says many.log '^70 let in' || fail "the many do not come: $(tail -3 many.log)"
    until_true says many.log '^7 ended: .*too many come' || fail "they all stay: $(grep ended many.log)"
    grep -q ended one.log && fail "another one had to go for them: $(cat one.log)"
    expect 0 '1 file' "$weir" cp --key friend.key "weir://127.0.0.1:$port/f" got
}

# serve_certified NAME OPTION...: sets $server and $url.
serve_certified() {
    local name=$1
    shift
    rm -f "$name.out" # of an earlier one of that name
    "$weir" serve --certificate server.pem --certificate-key server.key --root root --listen 127.0.0.1:0 "$@" \
        >"$name.out" 2>"$name.log" &
    server=$!
    pids+=("$server")
    until_true says "$name.out" weir:// || fail "no server: $(cat "$name.log")"
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' "$name.out")
}

case_certificates() { # a standing server that has one, and clients that have one or not
    local authority=basicConstraints=critical,CA:TRUE server url
    mkdir root
    echo f >f
    make_certificate ca "$authority"
    make_certificate other-ca "$authority"
    make_certificate server subjectAltName=DNS:localhost,IP:127.0.0.1 ca
    make_certificate client extendedKeyUsage=clientAuth ca
    make_certificate stranger extendedKeyUsage=clientAuth other-ca
    "$weir" key --name client.key-owner keys || fail "no key"
    local mine=(--ca ca.pem --certificate client.pem --certificate-key client.key)
    serve_certified both --client-ca ca.pem --keys keys
    expect 0 '1 file' "$weir" cp "${mine[@]}" f "$url/"
    same f root/f
    expect 0 '1 file' "$weir" cp "${mine[@]}" --encrypt "$url/f" got
    same f got
    expect 0 '1 file' "$weir" cp "${mine[@]}" "${url/127.0.0.1/localhost}/f" got-by-name
    expect 0 '1 file' "$weir" cp --key keys "$url/f" got-by-key
    expect 0 'to 2 of 2 targets' "$weir" cp "${mine[@]}" --to "$url/one" --to "$url/two" f
    same f root/two
    expect 5 'server.s certificate: unable to get local issuer certificate' "$weir" cp --ca other-ca.pem "$url/f" got2
    expect 5 'wants a key, or a client.s certificate' "$weir" cp --ca ca.pem "$url/f" got2
    expect 5 'does not believe this certificate' \
        "$weir" cp --ca ca.pem --certificate stranger.pem --certificate-key stranger.key "$url/f" got2
    expect 5 'wants a key' "$weir" cp "$url/f" got2
    expect 2 'either --key or --ca' "$weir" cp --key keys --ca ca.pem "$url/f" got2
    expect 2 'go together' "$weir" cp --ca ca.pem --certificate client.pem "$url/f" got2
    expect 6 'server.key: ' "$weir" cp --ca ca.pem --certificate client.pem --certificate-key server.key "$url/f" got2
    chmod 644 client.key
    expect 6 'client.key: others may read' "$weir" cp "${mine[@]}" "$url/f" got2
    [ ! -e got2 ] || fail "a stranger got something"
    kill "$server"
    wait "$server"
    grep -q '^CN=client from 127.0.0.1' both.out || fail "the client is not told: $(cat both.out)"
    grep -q 'neither a key nor a certificate' both.log || fail "not named: $(cat both.log)"
    make_certificate server subjectAltName=DNS:elsewhere,IP:127.0.0.2 ca
    serve_certified open --insecure
    expect 5 'certificate: IP address mismatch' "$weir" cp --ca ca.pem "$url/f" got2
    expect 5 'certificate: hostname mismatch' "$weir" cp --ca ca.pem "${url/127.0.0.1/localhost}/f" got2
    expect 5 'wants a key' "$weir" cp "$url/f" got2
    kill "$server"
    wait "$server"
    make_certificate server subjectAltName=IP:127.0.0.1 ca
    serve_certified open --insecure --encrypt
    expect 5 'only what is encrypted: give --encrypt' "$weir" cp --ca ca.pem "$url/f" got2
    expect 0 '1 file' "$weir" cp --ca ca.pem --encrypt -I "$url/f" got
    kill "$server"
    wait "$server"
    expect 2 'for who may' "$weir" serve --certificate server.pem --certificate-key server.key
    expect 6 'certificate-key server.key: it is in a folder that is served' \
        "$weir" serve --insecure --certificate server.pem --certificate-key server.key
    cp ca.pem root
    expect 6 'client-ca root/ca.pem: it is in a folder that is served' \
        "$weir" serve --root root --client-ca root/ca.pem --certificate server.pem --certificate-key server.key
    expect 6 'nowhere: No such file' "$weir" serve --insecure --certificate nowhere --certificate-key server.key
}

case_addresses() { # servers that are not on loopback
    if [ -z "${WEIR_SSH_TEST:-}" ]; then
        echo "  skipped: no network of our own"
        return
    fi
    ip addr add 10.99.0.1/32 dev lo
    mkdir root
    echo f >f
    "$weir" serve --insecure --root root --listen 10.99.0.1:7471 >server.out 2>&1 &
    pids+=($!)
    until_true says server.out weir:// || fail "no server: $(cat server.out)"
    local far
    "$weir" serve --insecure --root root --listen '*:7473' --listen 10.99.0.1:7474 >every.out 2>&1 &
    pids+=($!)
    until_true says every.out weir:// || fail "no server: $(cat every.out)"
    for far in 127.0.0.1:7473 10.99.0.1:7473 '[::1]:7473' 10.99.0.1:7474; do
        grep -q " weir://${far//[/\\[}/ " every.out || fail "not told: $far: $(cat every.out)"
        expect 0 '1 file' "$weir" cp -I f "weir://$far/"
    done
    expect 6 'cannot listen: ' "$weir" serve --insecure --listen '[::]:7473'
    expect 6 'cannot listen: no RDMA device here has this address' "$weir" serve --insecure --listen 203.0.113.9:0
    expect 0 'weir cp: warning: weir://10.99.0.1:7471: nobody has proven who answers' "$weir" cp f weir://10.99.0.1/
    expect 0 '"code":"unproven"' "$weir" cp --json weir://10.99.0.1/f g
    "$weir" cp -q weir://10.99.0.1/f g >out.txt 2>&1 || fail "status $?: $(cat out.txt)"
    [ ! -s out.txt ] || fail "-q says something: $(cat out.txt)"
    "$weir" serve --insecure --root root --listen 127.0.0.1:7472 >loopback.out 2>&1 &
    pids+=($!)
    until_true says loopback.out weir:// || fail "no server: $(cat loopback.out)"
    expect 0 '1 file' "$weir" cp -I f weir://127.0.0.1:7472/
    grep -q warning out.txt && fail "warns of its own host: $(cat out.txt)"
}

run_cases "$@"
