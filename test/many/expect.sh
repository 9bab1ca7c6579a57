# What the tests of many processes share: sourced. A test ends with `exit $failed`.
failed=0
expect() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@"; then
        echo "ok   $what"
    else
        echo "FAIL $what"
        failed=1
    fi
}
within() { # COMMAND...  is true soon
    for _ in $(seq 600); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}
