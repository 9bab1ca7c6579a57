#!/usr/bin/env bash
# What the shells offer after some beginnings of a command line. Usage: completion_test.sh BUILD_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
PATH=$(cd "$1" && pwd):$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" && mkdir "a folder" .ssh && touch file.bin
export HOME=$work
printf 'Host known beta-*\n  HostName elsewhere\n' >.ssh/config
# shellcheck disable=SC2016
printf 'delta,10.0.0.7 ssh-rsa A\n|1|hash= ssh-rsa A\n@revoked zeta ssh-rsa A\nk$(touch${IFS}run)k ssh-rsa A\n' >.ssh/known_hosts
failed=0

offered_by_bash() { # WORD...: the last is the one that is being typed
    bash --norc -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weir 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"' \
        "$here/completion/weir.bash" "$@"
}
offered_by_zsh() { # stands in for what only a line editor can call
    zsh -f -c 'compadd() { print -l -- "$@" }
        _describe() { [[ $1 = -o ]] && shift; print -l -- ${(P)2%%:*} }
        _files() { print -l -- * }
        _normal() { print -l -- normal $words[CURRENT] }
        _hosts() { print -l -- known$2 }
        file=$1; shift; words=("$@"); CURRENT=$#; complete() { source $file }; complete' zsh "$here/completion/_weir" "$@"
}

expect() { # SHELL THERE NOT-THERE WORD...: some line is THERE, none is NOT-THERE
    local shell=$1 there=$2 absent=$3 offered
    shift 3
    offered=$(offered_by_"$shell" "$@")
    if ! grep -qxF -e "$there" <<<"$offered" || grep -qxF -e "$absent" <<<"$offered"; then
        echo "FAIL $shell, '$*': $there is not offered, or $absent is: $(tr '\n' ' ' <<<"$offered")"
        failed=1
    fi
}

shells=bash
if command -v zsh >/dev/null; then shells="bash zsh"; fi
for shell in $shells; do
    all=--no-such
    expect $shell cp "$all" weir ""
    expect $shell serve "$all" weir s
    expect $shell --dry-run --namespace weir cp --d
    expect $shell --namespace --dry-run-more weir run --n
    expect $shell --read-only --archive weir serve --re
    expect $shell soft cp weir cp --fabric s
    expect $shell infiniband cp weir run --link-layer i
    expect $shell file.bin --json weir cp fi
    expect $shell serve file.bin weir help s
    expect $shell known: elsewhere: weir cp file.bin kn
    expect $shell known: file.bin weir cp --to k
    expect $shell stats file.bin weir cp --info s
    for option in "cp --timeout" "cp --filter" "serve --listen" "serve --max-per-client"; do
        expect $shell "" file.bin weir $option ""
    done
done
for option in --include-from --min-size --delete-excluded --hosts --certificate-key; do # not the first of their lines
    for shell in $shells; do
        expect $shell $option file.bin weir cp $option
    done
done
if [ "$shells" = "bash zsh" ]; then # what follows the program is the program's
    expect zsh -l --link-layer weir run ls -l
    expect zsh l --link-layer weir run --devices 2 -v l
    expect zsh file soft weir run --link-layer=infiniband tar --fabric file
    expect zsh --dry-run normal weir run --devices 2 --d
fi
expect bash soft file.bin weir cp --fabric = s
expect bash soft file.bin weir cp --fabric =
expect bash "a folder" file.bin weir serve --root a
expect bash ls --devices weir run l
expect bash u@delta: u@zeta: weir cp u@
expect bash 10.0.0.7: beta-*: weir cp ""
if [ -e run ]; then # by a name among the known hosts
    echo "FAIL bash runs what is in the name of a host"
    failed=1
fi
expect bash 'a\ folder/' "a folder" weir cp ""
expect bash ./file.bin known: weir cp ./
[ "$failed" = 0 ] && echo "completion in $shells offers what --help says"
exit $failed
