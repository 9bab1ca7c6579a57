# bash completion of weir. Commands and options are read from the help that the command itself prints.

_weir_help_words() { # WEIR PATTERN [COMMAND]: what matches in its help, once each
    local weir=$1 pattern=$2
    shift 2
    "$weir" "$@" --help 2>/dev/null | grep -oE -- "$pattern" | tr -d ' ' | sort -u
}

_weir_hosts() { # [USER@]WORD: the hosts in ssh's files that it may begin, each with a colon; not patterns, what is hashed, nor what compgen would run
    local hosts host=${1#*@}
    hosts=$({ sed -nE 's/^[[:space:]]*host[[:space:]=]+//Ip' ~/.ssh/config; cut -d ' ' -f 1 ~/.ssh/known_hosts; } 2>/dev/null |
        tr ', \t' '\n' | grep -xE '[[:alnum:]._:%-]+' | sort -u)
    compgen -P "${1%"$host"}" -S : -W "$hosts" -- "$host"
}

_weir_place() { # WORD: files here, and hosts as far as no file name is meant; a server's files are not asked for
    local word=$1 file
    [[ $word == */* || $word == .* || $word == "~"* ]] || mapfile -t COMPREPLY < <(_weir_hosts "$word")
    if [ ${#COMPREPLY[@]} = 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
        return
    fi
    while IFS= read -r file; do # by hand what readline does to names of files alone
        if [ -d "$file" ]; then file=$(printf '%q/' "$file"); else file=$(printf '%q ' "$file"); fi
        COMPREPLY+=("$file")
    done < <(compgen -f -- "$word")
    compopt -o nospace 2>/dev/null
}

_weir_value() { # of the option before the cursor: true if it has one, which is then completed
    local option=$1 word=$2
    case $option in
        --fabric) mapfile -t COMPREPLY < <(compgen -W "auto rdma soft" -- "$word") ;;
        --link-layer) mapfile -t COMPREPLY < <(compgen -W "ethernet infiniband" -- "$word") ;;
        --op) mapfile -t COMPREPLY < <(compgen -W "send write write-imm read fetch-add compare-swap message put all" -- "$word") ;;
        --measure) mapfile -t COMPREPLY < <(compgen -W "latency bandwidth all" -- "$word") ;;
        --direction) mapfile -t COMPREPLY < <(compgen -W "one-way both-ways all" -- "$word") ;;
        --mode) mapfile -t COMPREPLY < <(compgen -W "poll event all" -- "$word") ;;
        --exclude-from | --include-from | --files-from | --hosts | --html | --key | --keys | --ca | --client-ca | --certificate | --certificate-key | --weir-path) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        --info) mapfile -t COMPREPLY < <(compgen -W "progress stats name" -- "$word") ;;
        --root | --partial-dir) mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
        --to)
            mapfile -t COMPREPLY < <(_weir_hosts "$word")
            compopt -o nospace 2>/dev/null
            return 0
            ;;
        --exclude | --include | --chmod | --chown | --max-size | --min-size | --rsh | --name | --modify-window | --bwlimit | --timeout | --max-delete | --filter | --listen | \
            --max-transfers | --max-per-client | --idle-timeout | --device | --size | --depth | \
            --runs | --seconds | --devices) COMPREPLY=() ;;
        *) return 1 ;;
    esac
    compopt -o filenames 2>/dev/null
    return 0
}

_weir() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} weir=${COMP_WORDS[0]} at
    COMPREPLY=()
    if [ "$word" = = ]; then # --option=VALUE is three words to bash
        word=
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weir_help_words "$weir" '^  [a-z]+ ')" -- "$word")
        return
    fi
    if [ "$command" = run ]; then # the program's own completion, from the first word that is no option
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
                -d | --devices | -l | --link-layer) ((at++)) ;;
                -*) ;;
                *) break ;;
            esac
        done
        if ((at < COMP_CWORD)); then
            if declare -F _command_offset >/dev/null; then _command_offset "$at"; else compopt -o default; fi
            return
        fi
    fi
    _weir_value "$before" "$word" && return
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_weir_help_words "$weir" '(^|[ ,])--[a-z][a-z-]+' "$command" | tr -d ,)" -- "$word")
        return
    fi
    case $command in
        run) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
        help) mapfile -t COMPREPLY < <(compgen -W "$(_weir_help_words "$weir" '^  [a-z]+ ')" -- "$word") ;;
        cp) _weir_place "$word" ;;
        key)
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            compopt -o filenames 2>/dev/null
            ;;
    esac
}

complete -F _weir weir
