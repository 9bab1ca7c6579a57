/* What rnic/io/system/lock does, as a model for spin: the favoured thread (Often), whose stores
 * reach others late, one that gives what that one has taken (Gives), likewise, and threads that
 * come now and then.
 *
 * Each ring of a doorbell (Rings, as engine_kick does it: ring, then try; who gives looks again) is
 * heard, and no two are inside at a time. model_test.sh plants mistakes by what stands in comments
 * with a number. */
#define NOBODY   0
#define FAVOURED 1
#define NOT_YET  0
#define TO_GIVE  1
#define GIVEN    2

byte state = 0;           /* 1: taken */
byte favour = FAVOURED;
bit place = 0;            /* of the favoured thread: it is inside, as others see it, */
bit written = 0;          /* and as it has written it */
bit is_late = 0;
bit is_given_late = 0;    /* emptied by who gives for it */
byte handed = NOT_YET;
bit handed_by_favour = 0;
bit doorbell = 0;
byte inside = 0, ended = 0;

#define OWN_PLACE (is_late -> written : place) /* as the favoured thread sees it */

active proctype Store() {
    end: do
    :: atomic { is_late -> place = written; is_late = 0 }
    :: atomic { is_given_late -> place = 0; is_given_late = 0 }
    od
}

inline write(value) { atomic { written = value; is_late = 1 } }
inline heavy_fence() {
    atomic {
        if :: is_late -> place = written; is_late = 0 :: else fi;
        if :: is_given_late -> place = 0; is_given_late = 0 :: else fi
    }
}
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

inline look_again() {
    do
    :: doorbell ->
        take_state();
        if :: has -> settle(0) :: else fi;
        if :: has -> work(); state = 0 :: else -> break fi
    :: else -> break
    od
}

/* Begun by the favoured thread, whose stores have reached us as what we know of it has. */
active proctype Gives() {
    bit has;
    end: handed == TO_GIVE;
    work();
    if
    :: handed_by_favour -> is_given_late = 1 /* 4 */
    :: else -> state = 0
    fi;
    look_again();
    handed = GIVEN
}

proctype Often(byte times) {
    bit has, by_favour;
    do
    :: times > 0 ->
        has = 0; by_favour = 0;
        if
        :: favour == FAVOURED && OWN_PLACE == 0 ->
            write(1);
            if :: favour == FAVOURED -> has = 1; by_favour = 1 /* 3 */
               :: else -> write(0)
            fi
        :: else
        fi;
        if :: !has -> take_state() :: else fi;
        if /* its own favour, which another had ended for a moment, or has not given for it yet */
        :: has && !by_favour && favour == FAVOURED ->
            if :: OWN_PLACE == 1 -> settle(1) :: else -> favour = NOBODY fi
        :: else
        fi;
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
        :: has && handed == NOT_YET ->
            !is_late;
            atomic { handed_by_favour = by_favour; handed = TO_GIVE };
            times--
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
    look_again();
    ended++
}

init {
    if /* both at once are too many states */
    :: handed = GIVEN; run Rings()
    :: ended++
    fi;
    run Often(2); run Rings(); run Takes();
    (ended == 4 && !is_late && !is_given_late && handed != TO_GIVE);
    assert(!doorbell)
}
