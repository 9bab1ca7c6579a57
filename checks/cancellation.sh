#!/usr/bin/env bash
# What sends and receives in the application's threads, under the engine's lock, calls nothing of libc that is a cancellation point
# [pthreads(7)]: a thread that was cancelled there would keep the lock. The files named here may: they serve control calls and the
# background thread, or hold cancellation off where they are met (rnic/io/system/cancel.h).
# Usage: cancellation.sh OBJECT...
set -eu
may='^(direct_(common|common_fork|direct|hold|hot_regions|present)|loop_loop_(leave|life|memory|statistics|thread)|registry_(burial|registry.*|steering|wills)|same_host_inbox|system_(check|life|mapping|notify|stretch)|udp_(address.*|groups|port_holder))\.c\.o$'
points='^(p?read(v2?)?|p?write(v2?)?|pread64|pwrite64|(__)?recv(from|msg|mmsg)?(_chk)?|send(to|msg|mmsg)?|p?poll|p?select|epoll_p?wait|open(at)?(64)?|close|f(data)?sync|msync|accept4?|connect|u?sleep|nanosleep|clock_nanosleep|pause|sem_(timed)?wait|pthread_(cond_(timed)?wait|join)|(open|read|close)dir(64)?|f(open|close|gets|read|write|puts|flush|printf)(64)?|getifaddrs|sigtimedwait|__(read|pread|recv|poll)_chk|__f(gets|read|printf)_chk)(@.*)?$'
checked=0 bad=0
for object in "$@"; do
    [[ $(basename "$object") =~ $may ]] && continue
    checked=$((checked + 1))
    called=$(nm -u "$object" | awk '{print $2}' | grep -E "$points" | tr '\n' ' ' || true)
    if [ -n "$called" ]; then
        echo "cancellation: $(basename "$object") calls $called"
        bad=1
    fi
done
[ $bad = 0 ] && [ $checked -gt 0 ] && echo "cancellation: $checked objects of the data path have no cancellation point"
