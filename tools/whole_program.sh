# What the tests of whole programs share: sourced with $build set, by a script that then stands in an empty folder of
# its own, $work, which goes when it ends, together with the processes in "${pids[@]}". Failures are counted in $failures.
weir=$build/weir
[ -x "$weir" ] || { echo "there is no $weir"; exit 1; }
export WEIR_LIBRARY_DIR=$build/dropin
work=$(mktemp -d "${TMPDIR:-/tmp}/weir-test-XXXXXX")
cd "$work" || exit 1
failures=0
pids=()

cleanup() {
    local pid
    for pid in "${pids[@]}"; do
        kill -9 "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    chmod -R u+rwx "$work" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "  FAILED: $*"
    failures=$((failures + 1))
}

# expect CODE PATTERN COMMAND...: the exit status, and what standard error or output must say.
expect() {
    local code=$1 pattern=$2 got
    shift 2
    timeout 60 "$@" >out.txt 2>&1
    got=$?
    [ "$got" = "$code" ] || fail "exit status $got, not $code: $*: $(head -c 900 out.txt)"
    grep -q -- "$pattern" out.txt || fail "does not say '$pattern': $*: $(head -c 900 out.txt)"
}

same() { # PATH PATH
    diff -r --no-dereference "$1" "$2" >diff.txt 2>&1 || fail "differ: $(head -3 diff.txt)"
}

until_true() { # COMMAND...: 30 s at most
    local began=$SECONDS
    until "$@"; do
        [ $((SECONDS - began)) -lt 30 ] || return 1
        sleep 0.02
    done
}

says() { # FILE PATTERN
    grep -q -- "$2" "$1" 2>/dev/null
}

# make_certificate NAME EXTENSIONS [ISSUER]: NAME.pem and NAME.key, of ISSUER or of itself.
make_certificate() {
    local issuer=()
    [ $# = 2 ] || issuer=(-CA "$3.pem" -CAkey "$3.key")
    printf '[req]\ndistinguished_name=d\n[d]\n[x]\n%s\n' "$2" >openssl.cnf
    openssl req -x509 -config openssl.cnf -extensions x -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
        -subj "/CN=$1" -keyout "$1.key" -out "$1.pem" "${issuer[@]}" 2>openssl.log || fail "$(cat openssl.log)"
}

# run_cases [NAME]: the function case_NAME, or each that there is, by a run of $script and so in a folder of its own.
run_cases() {
    local name began
    if [ $# = 1 ]; then
        "case_$1"
    else
        for name in $(declare -F | sed -n 's/^declare -f case_//p'); do
            began=$SECONDS
            "$script" "$build" "$name" || failures=$((failures + 1))
            echo "$name: $((SECONDS - began)) s"
        done
        [ $failures = 0 ] && echo "$(basename "$script" .sh): all cases passed"
    fi
    [ $failures = 0 ]
}
