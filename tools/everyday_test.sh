#!/usr/bin/env bash
# Command lines that people who know rsync type without thinking, with weir cp in the place of rsync: each does what
# rsync does, or says in a sentence what to use. The far side is started by a stand-in for ssh.
# usage: everyday_test.sh BUILD_DIR [CASE...]
set -u
build=$(realpath "$1")
script=$(realpath "$0")
shift
command -v rsync >/dev/null || { echo "there is no rsync"; exit 77; }
. "$(dirname "$script")/whole_program.sh"
opens=()

# A tree, an older copy of it, and a host "far" whose home is ./home.
prepare() {
    mkdir -p src/sub/deep src/.git old/sub home
    echo "one" >src/one.txt
    echo "two, longer" >src/two.txt
    echo "object" >src/sub/x.o
    head -c 200000 /dev/urandom >src/sub/deep/large.bin
    head -c 900 /dev/urandom >src/sub/small.bin
    echo "config" >src/.git/config
    ln -s one.txt src/link
    chmod 640 src/one.txt
    chmod 755 src/two.txt
    cp -a src/one.txt old/
    echo "older, and of another length" >old/two.txt
    touch -d 2020-01-01 old/two.txt
    echo "same x" >old/sub/x.o # of the same size
    touch -d 2020-01-01 old/sub/x.o
    echo "gone at the source" >old/gone.txt
    echo "obj" >old/gone.o
    echo "newer" >old/sub/small.bin
    touch -d 2039-01-01 old/sub/small.bin
    printf '%s\n' '*.o' '# none' '.git/' >patterns
    cat >rsh <<END
#!/bin/sh
shift
cd "$work/home" && WEIR_LIBRARY_DIR=$build/dropin PATH=$work/bin:\$PATH exec sh -c "\$*"
END
    mkdir bin
    ln -s "$weir" bin/weir
    chmod +x rsh
    export WEIR_RSH="$work/rsh"
}

facts() { # DIR: everything of each file but its contents
    (cd "$1" && find . -printf '%P %m %Ts %y %l %n %s\n' | sed 's/\(.* d .*\) [0-9]* [0-9]*$/\1/' | LC_ALL=C sort)
}

# alike OPTION...: both bring a copy of old/ up to date, by a push and by a pull; exit status, trees and facts are the same.
# The other side is $far, whose folder is home/, and what "${opens[@]}" says opens it.
alike() {
    local way code
    rm -rf by_rsync home/by_weir by_weir
    cp -a old by_rsync
    timeout 30 rsync "$@" src/ by_rsync/ >rsync.txt 2>&1
    code=$?
    for way in push pull; do
        rm -rf home/by_weir by_weir
        if [ $way = push ]; then
            cp -a old home/by_weir
            timeout 30 "$weir" cp "${opens[@]}" "$@" src/ "${far:-far:}by_weir/" >weir.txt 2>&1
        else
            cp -a old by_weir
            timeout 30 "$weir" cp "${opens[@]}" "$@" "${far:-far:$work/}src/" by_weir/ >weir.txt 2>&1
        fi
        [ $? = $code ] || fail "$way $*: not the exit status of rsync, $code: $(cat weir.txt rsync.txt)"
        [ $way = pull ] || mv home/by_weir by_weir
        diff -r --no-dereference by_rsync by_weir >diff.txt 2>&1 || fail "$way $*: $(head -3 diff.txt)"
        facts by_rsync >facts.rsync
        facts by_weir >facts.weir
        diff facts.rsync facts.weir >diff.txt || fail "$way $*: $(head -5 diff.txt)"
    done
}

case_alike() { # what rsync does
    prepare
    alike -av
    alike -avz
    alike -avzh
    alike -avP
    alike -avzP --delete
    alike -ahv --progress
    alike -a --info=progress2
    alike -a --info=progress2,stats2 --no-inc-recursive
    alike -aHAX --numeric-ids
    alike -a -n --delete
    alike -ai --dry-run
    alike -a --delete --exclude '*.o'
    alike -a --delete --exclude='*.o' --exclude .git
    alike -a --delete-excluded --exclude-from=patterns
    tr '\n' '\0' <patterns >patterns0
    alike -a -0 --exclude-from=patterns0
    alike -a --delete-excluded --exclude-from=patterns0 -0
    sed 's/^[^#]/- &/' patterns | tr '\n' '\0' >rules0
    alike -a -0 --filter='. rules0'
    alike -a --filter="-/ $work/src/one.txt" --filter='-/ src/sub/*.o' --filter='-/ /sub'
    alike -a --delete --filter="-/s $work/src/sub/deep" --filter='+/ src/two.txt' --filter='- *.txt'
    printf -- '- *.o\0# none\0-/ src/two.txt\0' | tee src/.rules0 >old/.rules0
    alike -a -0 --filter=': .rules0'
    alike -a --delete-after --filter=': .rules0' -0
    rm src/.rules0 old/.rules0
    alike -a --delete-during --include='*/' --include='*.txt' --exclude='*'
    alike -a --del
    alike -a --delete-before
    alike -au
    alike -ac
    alike -aI
    alike -a --size-only
    alike -a --existing
    alike -a --ignore-existing
    alike -rlptD
    alike -a --no-o --no-g --no-D
    alike -a --no-owner --no-group
    alike -aW --inplace --partial
    alike -a --partial-dir=.partial
    alike -a --max-size=1K --delete
    alike -a --max-size=900
    alike -a --max-size=900-1
    alike -a --max-size=.9K
    alike -a --min-size=0.2K --max-size=1MB
    alike -a --chmod=D700,F600
    alike -a --chmod=u=rwX,go=rX
    alike -a --chmod=Dg+s,ug+w,Fo-w,+X
    alike -a --chmod=a-x --chmod=u+s
    alike -ax
    alike -a --bwlimit=10M
    alike -as --stats
    alike -aS
    alike -aF
    alike -aAX --fuzzy
    mkdir -p src/cvs old/cvs HOME
    touch src/cvs/{a.o,a.c,b.tmp,c~,core,'#kept'} src/sub/b.tmp old/cvs/{x.o,y.tmp,z}
    printf 'a.c !\nb.* \t#kept\nz' | tee src/cvs/.cvsignore >old/cvs/.cvsignore
    echo 'small.* deep' >HOME/.cvsignore
    export HOME=$work/HOME CVSIGNORE='one.*'
    alike -aC
    alike -avzC --delete --include=core
    alike -a --delete --filter=:C --filter=-C
    alike -a --filter=':w- .cvsignore'
    printf -- '-_*.o +_a.c\n-_a.*' >words
    alike -a --filter='.w words'
    alike -a --filter='.C words'
    alike -a -f '.Cn src/cvs/.cvsignore' --delete-excluded
    unset CVSIGNORE
}

# listed WORD...: the same of a target that is empty, or has something; FROM stands before each source, TO before by/.
listed() {
    local way code code_here word words filled
    for filled in '' 1; do
        for way in rsync push pull; do
            rm -rf by home/by got.$way
            mkdir by home/by
            [ -z "$filled" ] || { mkdir by/src home/by/src && echo kept | tee by/src/kept >home/by/src/kept && touch -d 2020-01-01 by/src/kept home/by/src/kept by/src home/by/src; }
            words=()
            for word in "$@"; do
                case $way in
                rsync) words+=("${word/#FROM/}") ;;
                push) words+=("${word/#FROM/}") ;;
                pull) words+=("${word/#FROM/far:}") ;;
                esac
            done
            case $way in
            rsync) timeout 30 rsync "${words[@]}" by/ >rsync.txt 2>&1 ;;
            push) timeout 30 "$weir" cp "${words[@]}" far:by/ >weir.txt 2>&1 ;;
            pull) (cp -a src home/src && cd home && timeout 30 "$weir" cp "${words[@]}" ../by/ >../weir.txt 2>&1) ;;
            esac
            code_here=$?
            [ $way = rsync ] && code=$code_here
            [ $((code_here == 0)) = $((code == 0)) ] || fail "$way $*: not the exit status of rsync, $code: $(cat weir.txt rsync.txt)"
            rm -rf home/src
            [ $way = push ] && mv home/by got.$way || mv by got.$way
            [ $way = rsync ] && continue
            diff -r --no-dereference got.rsync got.$way >diff.txt 2>&1 || fail "$way $*: $(head -3 diff.txt)"
            facts got.rsync | sed '/^ \|^tmp \|^tmp.weir-test-[^/]* /d' >facts.rsync # the target itself apart, and where all this is
            facts got.$way | sed '/^ \|^tmp \|^tmp.weir-test-[^/]* /d' >facts.weir
            diff facts.rsync facts.weir >diff.txt || fail "$way $*: $(head -5 diff.txt)"
        done
    done
}

# serve_home OPTION...: sets $far, and $said, the file in which this server says who came.
serve_home() {
    said=serve.${#pids[@]}
    "$weir" serve --super --root home --listen 127.0.0.1:0 "$@" >"$said" 2>serve.log &
    pids+=($!)
    until_true says "$said" weir:// || fail "no server: $(cat serve.log)"
    far=$(sed -n 's|.* at \(weir://[^ ]*/\) .*|\1|p' "$said")
}

came() { # COUNT: so many came by the client's certificate
    [ "$(grep -c '^CN=client from 127.0.0.1' "$said")" -ge "$1" ]
}

served_lines() { # from and to a standing server
    alike -av
    alike -avzP --delete
    alike -ahv --info=progress2
    alike -aHAX --numeric-ids
    alike -a -n --delete
    alike -a --delete --exclude '*.o' --exclude .git
    alike -a --delete-excluded --exclude-from=patterns
    alike -auS
    alike -acI
    alike -a --existing
    alike -aW --inplace --partial
    alike -rlptD --size-only
    alike -a --max-size=1K --chmod=D700,F600
    alike -aF --delete
}

case_served() { # by a key, and by certificates
    local far opens said
    prepare
    cp -a src home/src
    "$weir" key keys || fail "no key"
    make_certificate ca basicConstraints=critical,CA:TRUE
    make_certificate server subjectAltName=IP:127.0.0.1 ca
    make_certificate client extendedKeyUsage=clientAuth ca
    serve_home --keys keys
    opens=(--key keys)
    served_lines
    serve_home --certificate server.pem --certificate-key server.key --client-ca ca.pem
    opens=(--ca ca.pem --certificate client.pem --certificate-key client.key)
    served_lines
    opens+=(--encrypt)
    alike -avP --delete
    until_true came 30 || fail "who came: $(grep -c ^CN= "$said") of 30: $(head -3 "$said")"
}

case_lists() { # -R and --files-from
    prepare
    touch -d 2021-01-01 src src/sub src/sub/deep
    printf '%s\n' sub/small.bin ./one.txt /sub/deep '# none' 'link' one.txt >list
    tr '\n' '\0' <list | sed 's/# none\x00//' >list0
    printf '%s\n' sub sub/x.o one.txt >list2
    printf '%s\n' sub/small.bin nowhere/at/all one.txt/f >list3
    listed -aR FROMsrc/sub/deep
    listed -aR FROMsrc/sub/deep/ FROMsrc/one.txt
    listed -R FROMsrc/one.txt -t
    listed -aR FROMsrc/./sub/x.o FROMsrc/./two.txt
    listed -aR "FROM$work/src/sub"
    listed -aR FROMsrc/sub --exclude '*.o' --exclude deep
    listed -a --relative --no-relative FROMsrc/one.txt
    listed -a "--files-from=$work/list" FROMsrc
    listed -a "--files-from=$work/list" FROMsrc/
    listed -ar "--files-from=$work/list" FROMsrc
    listed -a -0 "--files-from=$work/list0" FROMsrc
    listed -a "--files-from=$work/list2" FROMsrc
    listed -a -r "--files-from=$work/list2" FROMsrc --exclude '*.o'
    printf '%s\n' sub sub/nothing sub/deep/nor/here >list5
    listed -a -r "--files-from=$work/list5" FROMsrc # not all are there, though the directory comes
    expect 1 'src/sub/deep/nor/here: .*No such file' "$weir" cp -ar "--files-from=$work/list5" src far:got5
    listed -aR --delete FROMsrc/sub FROMsrc/one.txt
    listed -aR --exclude 'su?' FROMsrc/sub/deep
    listed -aR --delete --exclude 'su?' FROMsrc/sub/deep
    listed -aR --delete-excluded --exclude 'su?' FROMsrc/sub/deep
    listed -aFR --delete --exclude 'su?' FROMsrc/sub/deep
    listed -a "--files-from=$work/list" --exclude '/su*' FROMsrc
    expect 1 'src/sub: .*is a directory (-r' "$weir" cp -R src/sub src/one.txt far:alone
    [ -e home/alone/src/one.txt ] && [ ! -e home/alone/src/sub ] || fail "a directory without -r: $(ls -R home/alone)"
    ln -s sub src/way
    expect 1 'way: .*symbolic link' "$weir" cp -aR src/way/x.o far:
    expect 1 'nowhere: cannot read: No such file' "$weir" cp -a --files-from=list3 src far:got
    [ -e home/got/sub/small.bin ] || fail "the others were not copied"
    echo ../old/one.txt >list4
    expect 2 'leads out of the source' "$weir" cp -a --files-from=list4 src far:
    expect 2 'begin at one place' "$weir" cp -aR src/one.txt "$work/src/two.txt" far:
    expect 2 'takes one source' "$weir" cp -a --files-from=list src old far:
    expect 2 'wants -r, also besides -a' "$weir" cp -a --delete --files-from=list src far:
    expect 6 'nofile: No such file' "$weir" cp -a --files-from=nofile src far:
    echo one.txt | expect 0 '1 file' "$weir" cp -a --files-from=- src far:piped
    [ -e home/piped/one.txt ] || fail "nothing from standard input"
}

case_patterns() { # at the other host, as the shell there would take them
    prepare
    mkdir -p home/d/sub.txt home/'e[1]' got
    touch home/d/a.txt home/d/b.txt home/d/c.o home/d/.hidden.txt home/d/sub.txt/inside "home/e[1]/x.txt" "home/d/q[1].z" home/top.c
    expect 0 '2 files' "$weir" cp 'far:d/*.txt' got
    [ "$(ls -A got)" = $'a.txt\nb.txt' ] || fail "not what matches: $(ls -A got)"
    expect 0 '3 files\|1 file.*2 unchanged' "$weir" cp -r 'far:d/*.txt' got/
    [ -e got/sub.txt/inside ] && [ ! -e got/.hidden.txt ] || fail "not the directory, too: $(ls -AR got)"
    rm -r got
    expect 0 '3 files' "$weir" cp -a 'far:e[1]/?.txt' 'far:d/[c-d].o' 'far:*.c' new/
    [ "$(ls -A new)" = $'c.o\ntop.c\nx.txt' ] || fail "several: $(ls -A new)"
    chmod 1777 home/d # which is no source, and so nothing of it is the target's
    expect 0 '1 file' "$weir" cp -a 'far:d/[c-d].o' made/
    mkdir plain
    [ "$(stat -c %a made)" = "$(stat -c %a plain)" ] || fail "the target's mode is that of where the names are: $(stat -c %a made)"
    expect 0 '1 file' "$weir" cp 'far:d/q[1].z' new/
    expect 0 '1 file' "$weir" cp 'far:d/q[1].z' as.z
    [ -e 'new/q[1].z' ] && [ -f as.z ] || fail "a name that looks like a pattern"
    expect 1 '\*.none: cannot read: No such file' "$weir" cp -a 'far:d/*.none' new/
    # each is a source: without -r a link is followed, and what cannot be copied is an error
    mkdir home/logs home/logs/old.log && echo today >home/logs/1.log && ln -s 1.log home/logs/current.log && ln -s old.log home/logs/last.log
    expect 0 '2 files' "$weir" cp 'far:logs/*.log' logs/
    [ ! -L logs/current.log ] && [ "$(cat logs/current.log)" = today ] && [ ! -e logs/last.log ] || fail "a link is not followed: $(ls -lA logs)"
    expect 0 '2 unchanged' "$weir" cp -c 'far:logs/*.log' logs/
    expect 0 '1 file.*; 1 unchanged\|1 file' "$weir" cp -r 'far:logs/*.log' links/
    [ "$(readlink links/current.log)" = 1.log ] || fail "with -r a link is not a link: $(ls -lA links)"
    if setfattr -n user.said -v of-the-file home/logs/1.log 2>/dev/null; then # what is the same keeps what its source has
        for path in 'far:logs/c*.log' far:logs/current.log far:logs/current.log; do
            expect 0 '1 unchanged\|1 file' "$weir" cp -X "$path" logs/
            getfattr -d logs/current.log | grep -q of-the-file || fail "attributes of the link, not of the file: $path"
        done
    fi
    ln -s nowhere home/logs/dangling.txt && mkfifo home/logs/fifo.txt
    expect 1 'dangling.txt: .*No such file' "$weir" cp 'far:logs/d*.txt' logs/
    expect 1 'fifo.txt: .*is a device, FIFO or socket' "$weir" cp 'far:logs/f*.txt' logs/
    mkdir mirror && touch mirror/kept
    expect 0 '5 files' "$weir" cp -a --delete 'far:d/*' mirror
    [ -e mirror/kept ] && [ -e mirror/sub.txt/inside ] || fail "--delete deletes in what matches only: $(ls -AR mirror)"
    touch mirror/sub.txt/gone
    expect 0 '1 deleted' "$weir" cp -a --delete 'far:d/*' mirror
    [ ! -e mirror/sub.txt/gone ] || fail "nothing is deleted in what matches"
    expect 2 'a pattern .*no other source' "$weir" cp -a --delete 'far:d/*' far:logs mirror
}

case_directories() { # that are made for the target
    prepare
    expect 0 '1 file' "$weir" cp src/one.txt far:new/
    expect 0 '2 files' "$weir" cp src/one.txt src/two.txt far:several
    [ -f home/new/one.txt ] && [ -f home/several/two.txt ] || fail "not made: $(ls -R home)"
    expect 5 'no such directory' "$weir" cp src/one.txt far:a/b/c/
    expect 0 '1 file' "$weir" cp --mkpath src/one.txt far:a/b/c/
    expect 0 '1 file' "$weir" cp --mkpath src/one.txt far:a/x/y/name
    expect 0 '1 file' "$weir" cp --mkpath far:a/b/c/one.txt l/m/
    expect 0 '1 file' "$weir" cp --mkpath -n far:a/b/c/one.txt none/at/all/
    [ -f home/a/b/c/one.txt ] && [ -f home/a/x/y/name ] && [ -f l/m/one.txt ] && [ ! -e none ] || fail "--mkpath: $(ls -R home l)"
    mkdir root
    "$weir" serve --insecure --listen 127.0.0.1:0 --root root >serve.log 2>&1 &
    pids+=($!)
    until_true says serve.log 'weir://' || fail "no server"
    url=$(sed -n 's|.* at \(weir://[^ ]*\)/ .*|\1|p' serve.log)
    ln -s "$work" root/out
    expect 0 '1 file' "$weir" cp --mkpath src/one.txt "$url/p/q/r/"
    [ -f root/p/q/r/one.txt ] || fail "not made at a server"
    expect 5 'leads out\|symbolic link\|no such' "$weir" cp --mkpath src/one.txt "$url/out/new/er/"
    expect 5 '"\.\."' "$weir" cp --mkpath src/one.txt "$url/p/../../new/er/"
    [ ! -e new ] || fail "made outside of the root"
}

# words NUMBERS: lines of --stats that both print
words() {
    sed -n 's/^\(Number of regular files transferred\|Number of deleted files\|Total file size\|Total transferred file size\): \([0-9,]*\).*/\1 \2/p
        s/^\(Number of files\): \([0-9,]*\).*/\1 \2/p' "$1" | sort
}

case_stats() { # the numbers are those of rsync
    prepare
    local options
    rm src/link # rsync counts a link's length
    for options in -a '-a --delete' '-a --exclude *.o' '-a -n'; do
        rm -rf by_rsync home/by_weir
        cp -a old by_rsync
        cp -a old home/by_weir
        # shellcheck disable=SC2086
        { set -f; rsync $options --stats src/ by_rsync/ >rsync.txt; "$weir" cp $options --stats src/ far:by_weir/ >weir.txt 2>&1; set +f; }
        words rsync.txt >one
        words weir.txt >other
        [ -s one ] && diff one other >diff.txt || fail "$options --stats: $(cat diff.txt)"
        cp -a src home/src
        rm -rf by_weir
        cp -a old by_weir
        # shellcheck disable=SC2086
        { set -f; "$weir" cp $options --stats far:src/ by_weir/ >weir.txt 2>&1; set +f; }
        words weir.txt >other
        diff one other >diff.txt || fail "$options --stats, a pull: $(cat diff.txt)"
        rm -rf home/src
    done
}

# kinds_alike WHAT: how many names of which kind there were, by --stats of rsync and of weir cp
kinds_alike() {
    sed -n 's/^Number of files: //p' rsync.txt >one
    sed -n 's/^Number of files: //p' weir.txt | sed 's/files:/reg:/' >other
    [ -s one ] && diff one other >diff.txt || fail "$1: not of the same kinds: $(cat diff.txt)"
    [ "$(words rsync.txt | grep transferred: | head -1)" = "$(words weir.txt | grep transferred: | head -1)" ] ||
        fail "$1: not so many transferred: $(words rsync.txt) $(words weir.txt)"
}

case_kinds() { # links, FIFOs and sockets are no files, whichever side counts them, and are told as what they are
    prepare
    local round options
    ln src/link src/link.again
    mkfifo src/fifo
    ln src/fifo src/sub/fifo.again
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("src/socket")'
    for options in -aH '-aH --ignore-existing' -aHn; do
        rm -rf by_rsync home/by_weir by_weir
        mkdir by_rsync home/by_weir by_weir
        touch -d 2020-01-01 by_rsync by_weir home/by_weir
        for round in first second; do
            # shellcheck disable=SC2086
            rsync $options -vvi --stats --out-format='%i %n' src/ by_rsync/ >rsync.txt
            # shellcheck disable=SC2086
            "$weir" cp $options -vvi --stats src/ far:by_weir/ >weir.txt 2>&1
            kinds_alike "$round push $options"
            [ "$options" != -aH ] || letters_alike "$round push $options"
            # shellcheck disable=SC2086
            "$weir" cp $options -vvi --stats "far:$work/src/" by_weir/ >weir.txt 2>&1
            kinds_alike "$round pull $options"
            [ "$options" != -aH ] || letters_alike "$round pull $options"
        done
    done
    expect 0 '"event":"entry","kind":"hard-link","path":"link.again"' "$weir" cp -aHv --json src/ far:as_events/
    expect 0 '"event":"skipped","kind":"hard-link","path":"sub/fifo.again","reason":"same"' "$weir" cp -aHvv --json src/ far:as_events/
}

# letters_alike WHAT: what -i says of each name
letters_alike() {
    sed -n 's/^\([<>ch.*][fdLDS][^ ]\{9\}\|[.h][fdLDS]         \) /&/p' rsync.txt | sort >one
    sed -n 's/^</>/; s/^\([<>ch.*][fdLDS][^ ]\{9\}\|[.h][fdLDS]         \) /&/p' weir.txt | sort >other
    [ -s one ] && diff one other >diff.txt || fail "$1: not the same letters: $(cat diff.txt)"
}

# set_acl FILE USER PERMISSIONS GROUP: of a user besides its owner, and of its group
set_acl() {
    python3 -c 'import os, struct, sys
path, user, rights, group = sys.argv[1], *map(int, sys.argv[2:])
none = 0xffffffff
entries = [(1, 6, none), (2, rights, user), (4, group, none), (16, rights | group, none), (32, 4, none)]
os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries))' "$@"
}

case_attributes() { # where an ACL changes the mode, the ACL alone is told; what rsync notes for itself is not copied
    prepare
    set_acl src/two.txt 1 6 4 2>/dev/null || { echo "  skipped: no ACLs on this file system"; return; }
    mkdir start
    cp src/one.txt src/two.txt start
    cp src/one.txt start/three.txt
    cp src/one.txt src/three.txt
    set_acl src/one.txt 1 4 4
    set_acl start/one.txt 2 4 4
    set_acl src/three.txt 1 6 6
    set_acl start/three.txt 1 6 4
    setfattr -n user.rsync.%stat -v '100644 0,0 1:1' src/two.txt
    setfattr -n user.rsync.plain -v kept src/two.txt
    setfattr -n user.rsync.%stat -v '100644 0,0 1:1' start/one.txt
    touch -r src/one.txt start/one.txt
    touch -r src/two.txt start/two.txt
    touch -r src/three.txt start/three.txt
    local way
    for way in -aAn -aA -aAI -aX -aAX; do
        rm -rf by_rsync by_weir home/by_weir
        for tree in by_rsync by_weir home/by_weir; do
            cp -a start $tree
        done
        rsync $way -i --out-format='%i %n' src/*.txt by_rsync/ >rsync.txt
        "$weir" cp $way -i src/*.txt far:by_weir/ >weir.txt 2>&1
        letters_alike "push $way"
        "$weir" cp $way -i "far:$work/src/one.txt" "far:$work/src/two.txt" "far:$work/src/three.txt" by_weir/ >weir.txt 2>&1
        letters_alike "pull $way"
        (cd by_rsync && getfattr -dm - -- *.txt) >one 2>/dev/null
        (cd by_weir && getfattr -dm - -- *.txt) >other 2>/dev/null
        diff one other >diff.txt || fail "pull $way: not the same attributes: $(cat diff.txt)"
        (cd home/by_weir && getfattr -dm - -- *.txt) >other 2>/dev/null
        diff one other >diff.txt || fail "push $way: not the same attributes: $(cat diff.txt)"
    done
}

case_progress() { # -P prints a line without a terminal, too, and nothing of a terminal's
    prepare
    head -c 30000000 /dev/urandom >big
    expect 0 '1 file, 28.6 MiB' "$weir" cp -P --bwlimit=15M big far:
    grep -q '1 files\?, .*MiB/s, .* left, weir0' out.txt || grep -q 'of 1 files, .* left, weir0' out.txt || fail "no progress: $(cat out.txt)"
    grep -q $'\e\|\r' out.txt && fail "something for a terminal: $(cat -v out.txt)"
    same big home/big
    expect 0 'usage: weir cp' "$weir" cp -h
    expect 0 'usage: weir cp' "$weir" cp --help
    expect 0 'note: nothing is compressed' "$weir" cp -avz src far:
    "$weir" cp -aqz src far: 2>&1 | grep . && fail "-q is not quiet"
    same src home/src
}

# every option of rsync, short and long: taken, or answered by a sentence, but never unknown
case_all_options() {
    local line long short value word
    rsync --help | sed -n 's/^ *\(-[^ ]*\(, -[^ ]*\)*\)  .*/\1/p' | tr -d , >options
    [ "$(wc -l <options)" -gt 100 ] || fail "rsync --help is not understood"
    while read -r line; do
        value=
        [[ $line == *=* ]] && value=1
        for word in $line; do
            case $word in
                --no-OPTION | --help | -h) continue ;;
                --*=*) set -- "${word%%=*}=1" ;;
                --*) set -- "$word" ;;
                *) set -- "$word${value:+1}" ;;
            esac
            timeout 30 "$weir" cp "$1" >out.txt 2>&1 </dev/null
            grep -q 'unrecognized\|invalid option\|requires an argument\|allow an argument\|ambiguous' out.txt &&
                fail "rsync has '$1': $(head -1 out.txt)"
            grep -q 'a source and a target are needed\|there is no \|takes ' out.txt || grep -q "'1'\|^weir cp: 1: \|--max-size" out.txt ||
                fail "what is said of '$1': $(head -1 out.txt)"
        done
    done <options
    # What takes one back that is not given, or never so.
    for word in verbose v itemize-changes i i-r mkpath ignore-errors from0 timeout bwlimit progress partial relative R append atimes U backup \
        blocking-io contimeout crtimes N delay-updates dirs d fuzzy y iconv old-args omit-dir-times O omit-link-times J open-noatime \
        munge-links insecure-links prune-empty-dirs m super write-devices 8-bit-output 8; do
        expect 2 'a source and a target are needed' "$weir" cp "--no-$word"
    done
    expect 2 'no shell sees them' "$weir" cp --no-s
}

case_taken_back() { # the last word counts
    prepare
    expect 0 '' "$weir" cp -avi --no-v --no-i src far:
    grep -q 'src/' out.txt && fail "names are said: $(cat out.txt)"
    expect 0 '' "$weir" cp -a --no-R --bwlimit=1 --no-bwlimit --timeout=0 --no-timeout src far:again/
    same src home/again/src
}

case_sentences() { # what is not to be had says what is
    prepare
    expect 2 'there is no --remove-source-files: nothing is removed.*-c --verify' "$weir" cp -a --remove-source-files src far:
    expect 2 'there is no -L, --copy-links: links' "$weir" cp -aL src far:
    expect 2 'there is no -xx: .*--exclude' "$weir" cp -axvx src far:
    expect 2 "there is no -b, --backup: .*cp -al.*attributes in both" "$weir" cp -ab src far:
    expect 2 "there is no --link-dest: .*cp -al.*attributes in both" "$weir" cp -a --link-dest=../old src far:
    expect 2 "there is no --rsync-path: --weir-path" "$weir" cp -a --rsync-path='sudo rsync' src far:
    expect 2 "there is no --port: .*weir://HOST:PORT" "$weir" cp -a --port 873 src far:
    expect 2 "permissions are always kept" "$weir" cp -a --no-perms src far:
    expect 2 "two colons name a module" "$weir" cp -a src far::module
    expect 2 "not 'u+q'" "$weir" cp -a --chmod=u+q src far:
    expect 2 "not '1X'" "$weir" cp -a --max-size=1X src far:
    expect 2 "not 'flist'" "$weir" cp -a --info=flist src far:
    [ -z "$(ls home)" ] || fail "something was copied"
}

case_one_file_system() { # what is mounted below a source
    prepare
    [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo "  skipped: nothing can be mounted"; return; }
    export -f alike facts fail
    export weir work failures
    unshare -m bash -c 'mkdir -p src/mounted old/mounted && echo there >old/mounted/kept && mount -t tmpfs none src/mounted &&
        echo within >src/mounted/f && alike -ax --delete && [ "$failures" = 0 ] && [ ! -e by_weir/mounted/f ] && alike -a && [ -e by_weir/mounted/f ] &&
        echo mounted/f >of_another && alike -ax --files-from=of_another && [ "$failures" = 0 ] && [ -e by_weir/mounted/f ]' ||
        fail "-x"
    unshare -m bash -c 'mkdir -p home/t/disk home/t/gone/disk && mount -t tmpfs none home/t/disk && mount -t tmpfs none home/t/gone/disk &&
        touch home/t/disk/kept home/t/gone/f && "$weir" cp -axnv --delete src/ far:t/ >out.txt 2>&1 && ! grep -q disk out.txt &&
        "$weir" cp -ax --delete src/ far:t/ >out.txt 2>&1 && ! grep -q disk out.txt && [ -e home/t/disk/kept ] && [ ! -e home/t/gone/f ] &&
        echo f >src/gone && ! "$weir" cp -ax --force src/ far:t/ >out.txt 2>&1 && grep -q "far:t/gone: cannot write: Directory not empty" out.txt &&
        touch home/t/gone/disk/more && ! "$weir" cp -ax --force src/ far:t/ >out.txt 2>&1 && [ -e home/t/gone/disk/more ] && rm src/gone &&
        ! "$weir" cp -a --delete src/ far:t/ >out.txt 2>&1 && grep -q "far:t/disk: cannot write: Device" out.txt && [ ! -e home/t/disk/kept ]' ||
        fail "-x at the target: $(cat out.txt)"
}

run_cases "$@"
