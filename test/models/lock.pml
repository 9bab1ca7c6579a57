/* What rnic/io/system/lock does, as a model for spin: the favoured thread (Often), whose stores
 * reach others late, and threads that come now and then.
 *
 * Each ring of a doorbell (Rings, as engine_kick does it: ring, then try; who gives looks again) is
 * heard, and no two are inside at a time. model_test.sh plants mistakes by what stands in comments
 * with a number. */
#define NOBODY   0
#define FAVOURED 1

byte state = 0;           /* 1: taken */
byte favour = FAVOURED;
bit place = 0;            /* of the favoured thread: it is inside, as others see it, */
bit written = 0;          /* and as it has written it */
bit is_late = 0;
bit doorbell = 0;
byte inside = 0, ended = 0;

active proctype Store() { end: do :: atomic { is_late -> place = written; is_late = 0 } od }

inline write(value) { atomic { written = value; is_late = 1 } }
inline heavy_fence() { atomic { if :: is_late -> place = written; is_late = 0 :: else fi } }
inline take_state() { atomic { if :: state == 0 -> state = 1; has = 1 :: else has = 0 fi } }
inline work() {
    inside++; assert(inside == 1);
    if :: doorbell -> doorbell = 0 :: else fi;
    inside--
}

/* lock_settle: `waits` for as long as it takes. */
inline settle(waits) {
    do
    :: favour == NOBODY -> break
    :: else ->
        favour = NOBODY;
        heavy_fence(); /* 1 */
        if
        :: place == 0 -> break
        :: waits -> place == 0; break
        :: !waits && place == 1 ->
            favour = FAVOURED;
            state = 0;
            heavy_fence(); /* 2 */
            if
            :: place == 1 -> has = 0; break
            :: else -> take_state(); if :: has -> skip :: else -> break fi
            fi
        fi
    od
}

proctype Often(byte times) {
    bit has, by_favour;
    do
    :: times > 0 ->
        has = 0; by_favour = 0;
        if
        :: favour == FAVOURED ->
            write(1);
            if :: favour == FAVOURED -> has = 1; by_favour = 1 /* 3 */
               :: else -> write(0)
            fi
        :: else
        fi;
        if :: !has -> take_state() :: else fi;
        if /* the favour is earned: its own stores stay in order */
        :: has && !by_favour && favour == NOBODY ->
            write(1);
            heavy_fence();
            favour = FAVOURED;
            state = 0;
            by_favour = 1
        :: else
        fi;
        if
        :: has ->
            work();
            if :: by_favour -> write(0) :: else -> state = 0 fi;
            if :: doorbell -> skip :: else -> times-- fi
        :: else -> times--
        fi
    :: else -> break
    od;
    ended++
}

proctype Rings() {
    bit has;
    doorbell = 1;
    do
    :: take_state();
        if :: has -> settle(0) :: else fi;
        if :: has -> work(); state = 0; if :: doorbell -> skip :: else -> break fi
           :: else -> break
        fi
    od;
    ended++
}

proctype Takes() {
    bit has;
    do :: take_state(); if :: has -> break :: else -> state == 0 fi od;
    settle(1);
    work();
    state = 0;
    do
    :: doorbell ->
        take_state();
        if :: has -> settle(0) :: else fi;
        if :: has -> work(); state = 0 :: else -> break fi
    :: else -> break
    od;
    ended++
}

init {
    run Often(2); run Rings(); run Rings(); run Takes();
    (ended == 4 && !is_late);
    assert(!doorbell)
}
