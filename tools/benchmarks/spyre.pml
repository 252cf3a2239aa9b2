/*
 * Spyre's scheduler as an experienced user of Spin would write it: the revisions `documented` and
 * `2.1.2` of model/spyre, without prefix caching, with an unbounded pool and with interleaving.
 *
 * -D macros, all needed unless a default is named:
 *   BLOCK CHUNK SLOTS MAX_MODEL_LEN   block_size, chunk_size, max_num_seqs, max_model_len
 *   LIMIT, or LIMIT_FROM LIMIT_TO     max_batch_tkv; a range is searched in one run
 *   REQUESTS MAX_PROMPT MAX_TOKENS    how many requests may arrive, and their greatest lengths
 *   FORMULA_DOCUMENT_REALIGNED, FORMULA_2_1_2 or FORMULA_COMMON_BASE   the projection
 *   STALE_TKV     admission uses the tkv that the last step reported (default: the batch's)
 *   ABORTS        any requests may be aborted before any step (default: never)
 *   NO_EOS        every request emits all its tokens (default: it may end early)
 *   LATE          no request arrives while another one waits (default: it may)
 *   FOREVER       as LATE, and arrivals never end: REQUESTS is ignored
 *   CHECK_R07 CHECK_R09 CHECK_R30 CHECK_R32 CHECK_R35 CHECK_R36   the rule that is asserted
 *
 * Revision 2.1.2 is FORMULA_2_1_2 and STALE_TKV, `documented` is FORMULA_DOCUMENT_REALIGNED alone.
 * Lines that begin with "@" tell a program what happened in a run.
 */

#ifdef LIMIT
#define LIMIT_FROM LIMIT
#define LIMIT_TO LIMIT
#endif

#if MAX_MODEL_LEN + BLOCK > 255
#error "tokens are counted in bytes"
#endif

/* `select` does not accept an element of an array. */
#ifndef CHOOSE
#define CHOOSE(what, least, most) what = least; do :: d_step { what < most -> what++ } :: break od
#endif
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define BLOCKS(tokens) (((tokens) + BLOCK - 1) / BLOCK)
#define ROUND_UP(tokens) (BLOCKS(tokens) * BLOCK)
#define REALIGNED(tokens) (base / BLOCK * BLOCK + (tokens) % BLOCK)

/* The largest tkv that the newcomer, and that member k of the batch, can still reach. */
#ifdef FORMULA_DOCUMENT_REALIGNED
#define NEWCOMER_REACHES (REALIGNED(NEXT.prompt) + NEXT.left - 1)
#define MEMBER_REACHES (REALIGNED(line[k].computed) + line[k].left + BLOCK)
#endif
#ifdef FORMULA_2_1_2
#define NEWCOMER_REACHES (ROUND_UP(REALIGNED(NEXT.prompt) + NEXT.left - 1) + BLOCK)
#define MEMBER_REACHES (ROUND_UP(base + line[k].left) + BLOCK)
#endif
#ifdef FORMULA_COMMON_BASE
#define NEWCOMER_REACHES ROUND_UP(base + NEXT.left - 1)
#define MEMBER_REACHES ROUND_UP(base + line[k].left)
#endif

#ifdef NO_EOS
#define EARLY_EOS false
#else
#define EARLY_EOS true
#endif

/* The scheduler looks only at the first waiting request. So no behaviour is lost if no request
 * arrives while another one waits: it may as well arrive when it is its turn. Then the line is short,
 * and there are finitely many states even if arrivals never end. */
#define NOBODY_WAITS (decoding == live || line[live - 1].computed > 0)
#ifdef FOREVER
#define PLACES (SLOTS + 1)
#define MORE true
#define MAY_ARRIVE NOBODY_WAITS
#else
#define PLACES REQUESTS
#define MORE (arrived < REQUESTS)
#ifdef LATE
#define MAY_ARRIVE (MORE && NOBODY_WAITS)
#else
#define MAY_ARRIVE MORE
#endif
#endif

/* The unfinished requests, in order of arrival. They start in this order, and one prefills at a time:
 * decoding requests come first, then the one that prefills or is next to do so, then all others.
 * To reduce states, only data that affects the future is kept, and unused data is 0. */
typedef Request {
  byte prompt;   /* 0 once all of it is computed */
  byte computed; /* tokens */
  byte left      /* tokens that it may still emit */
};
Request line[PLACES];
byte live, decoding; /* how many stand in the line, and how many of them decode */
#ifdef FOREVER
hidden int arrived; /* no decision counts them */
#else
byte arrived;
#endif
bool after_prefill; /* the last step was a prefill, and somebody decodes */
short limit;
#ifdef STALE_TKV
byte tkv;        /* the tkv that the scheduler uses; an idle step resets it */
byte runner_tkv; /* the tkv that the model runner uses; an idle step keeps it */
#endif
/* 0 between two steps, but part of the state, because choices are made while they count. */
byte emitting; /* this many requests at the end of the batch have yet to emit a token */
#ifdef ABORTS
byte victim;
#endif

#define NEXT line[decoding]
#define SOMEBODY_PREFILLS (decoding < live && NEXT.computed > 0)
#define SOMEBODY_RUNS (decoding > 0 || SOMEBODY_PREFILLS)

/* Scratch variables of a d_step, not part of a state; `id` only identifies requests in the output. */
hidden int id[PLACES];
hidden int k, at, other, width, max_tkv, before, pad, base, newcomer, rows, swap;
hidden int reaches[PLACES];
hidden byte fits;

/* Remove a request from the line; those behind it move up. */
inline leave(who) {
  at = who;
  if
  :: at < decoding -> decoding--
  :: else
  fi;
  live--;
  for (k : at .. live - 1) {
    line[k].prompt = line[k + 1].prompt;
    line[k].computed = line[k + 1].computed;
    line[k].left = line[k + 1].left;
    id[k] = id[k + 1]
  }
  line[live].prompt = 0;
  line[live].computed = 0;
  line[live].left = 0
}

/* No decision depends on the order of decoding requests. They are sorted, so that equal batches are
 * one state. A decode step keeps the order, so only a request that has just joined may have to move. */
inline sort_in() {
  k = decoding - 1;
  do
  :: k > 0 && (line[k].computed < line[k - 1].computed ||
               (line[k].computed == line[k - 1].computed && line[k].left < line[k - 1].left)) ->
     swap = line[k].computed; line[k].computed = line[k - 1].computed; line[k - 1].computed = swap;
     swap = line[k].left; line[k].left = line[k - 1].left; line[k - 1].left = swap;
     swap = id[k]; id[k] = id[k - 1]; id[k - 1] = swap;
     k--
  :: else -> break
  od
}

/* Reset data that no later decision uses, to reduce states. */
inline tidy() {
  after_prefill = after_prefill && decoding > 0;
#ifdef STALE_TKV
  if
  :: !SOMEBODY_RUNS -> tkv = 0; runner_tkv = 0
  :: else
  fi
#endif
}

/* Measure the batch: blocks of its longest request, and the largest tkv (0 if no request decodes). */
inline measure() {
  width = 0;
  max_tkv = 0;
  for (k : 0 .. decoding - 1) {
    width = MAX(width, BLOCKS(line[k].computed))
  }
  for (k : 0 .. decoding - 1) {
    max_tkv = MAX(max_tkv, (width - BLOCKS(line[k].computed)) * BLOCK + line[k].computed)
  }
}

/* The last-chunk constraints: a free slot, the model's length, and the volume.
 * No sorting is needed: the volume is computed at the end of each member's projection, or of the
 * newcomer's if that is earlier, and counts all requests whose projections reach that far. */
inline judge_last_chunk() {
#ifdef STALE_TKV
  base = MAX(tkv, NEXT.prompt);
#else
  measure();
  base = MAX(max_tkv, NEXT.prompt);
#endif
  fits = decoding < SLOTS && REALIGNED(NEXT.prompt) + NEXT.left - 1 <= MAX_MODEL_LEN;
  newcomer = NEWCOMER_REACHES;
  for (k : 0 .. decoding - 1) {
    fits = fits && REALIGNED(line[k].computed) + line[k].left <= MAX_MODEL_LEN;
    reaches[k] = MEMBER_REACHES
  }
  for (k : 0 .. decoding - 1) {
    rows = 1;
    for (other : 0 .. decoding - 1) {
      rows = rows + (reaches[other] >= MIN(reaches[k], newcomer))
    }
    fits = fits && rows * MIN(reaches[k], newcomer) <= limit
  }
}

/* May the next request's chunk run? If no other request runs, it always may. */
inline judge() {
  fits = decoding < live;
  if
  :: fits && SOMEBODY_RUNS ->
     fits = !after_prefill && (NEXT.computed > 0 || decoding < SLOTS);
     if
     :: fits && NEXT.prompt - NEXT.computed <= CHUNK -> judge_last_chunk()
     :: else
     fi
  :: else
  fi
}

inline prefill() {
#ifdef CHECK_R32
  assert(!(after_prefill && decoding > 0));
#endif
#ifdef CHECK_R36
  rows = 0;
  for (k : 0 .. live - 1) {
    rows = rows + (line[k].computed > 0)
  }
  assert(NEXT.computed > 0 || rows < SLOTS);
#endif
  at = decoding;
#ifdef STALE_TKV
  /* The old tkv stays until the last chunk; a request that joins no batch starts a new one. */
  tkv = (NEXT.computed == 0 && decoding == 0 -> NEXT.prompt : runner_tkv);
#endif
  before = NEXT.computed;
  pad = (NEXT.prompt + CHUNK - 1) / CHUNK * CHUNK - ROUND_UP(NEXT.prompt);
  NEXT.computed = MIN(((pad + before) / CHUNK + 1) * CHUNK - pad, NEXT.prompt);
  if
  :: NEXT.computed == NEXT.prompt ->
#ifdef STALE_TKV
     tkv = (MAX(BLOCKS(NEXT.prompt), BLOCKS(tkv)) - 1) * BLOCK +
           MAX((NEXT.prompt - 1) % BLOCK, (tkv - 1) % BLOCK) + 1;
#endif
     NEXT.prompt = 0;
     NEXT.left--;
     decoding++;
     emitting = 1
  :: else
  fi;
  after_prefill = true;
#ifdef STALE_TKV
  runner_tkv = tkv;
  max_tkv = tkv;
#else
  measure();
#endif
  printf("@ prefill %d tokens %d pad %d tkv %d\n",
         id[at], line[at].computed - before, pad / BLOCK, max_tkv)
}

inline decode() {
  for (k : 0 .. decoding - 1) {
    line[k].computed++;
    line[k].left--
  }
  emitting = decoding;
  after_prefill = false;
  measure();
#ifdef STALE_TKV
  tkv = max_tkv;
  runner_tkv = max_tkv;
#endif
  for (k : 0 .. decoding - 1) {
    pad = width - BLOCKS(line[k].computed);
    printf("@ member %d pad %d\n", id[k], pad);
#ifdef CHECK_R09
    rows = (k == 0 -> pad + BLOCKS(line[k].computed) : rows);
    assert(pad >= 0 && pad + BLOCKS(line[k].computed) == rows)
#endif
  }
  printf("@ decode tkv %d\n", max_tkv);
#ifdef CHECK_R07
  assert(decoding * max_tkv <= limit)
#endif
}

inline idle() {
#ifdef CHECK_R35
  assert(live == 0);
#endif
  after_prefill = false;
#ifdef STALE_TKV
  tkv = 0;
#endif
  printf("@ idle\n")
}

inline settle() {
  sort_in();
  tidy();
#ifdef CHECK_R30
  rows = 0;
  for (k : 0 .. live - 1) {
    rows = rows + (line[k].prompt > 0 && line[k].computed > 0)
  }
  assert(rows <= 1);
#endif
  for (k : 0 .. live - 1) {
    printf("@ holds %d computed %d\n", id[k], line[k].computed)
  }
  printf("@ end\n")
}

active proctype spyre() {
  atomic {
    CHOOSE(limit, LIMIT_FROM, LIMIT_TO);
    printf("@ limit %d\n", limit)
  }
  do
  /* A request arrives. */
  :: atomic {
       MAY_ARRIVE ->
       CHOOSE(line[live].prompt, 1, MAX_PROMPT);
       CHOOSE(line[live].left, 1, MAX_TOKENS);
       d_step {
         rows = line[live].prompt + line[live].left - 1;
         if
         :: rows <= MAX_MODEL_LEN && rows <= limit ->
            arrived++;
            id[live] = arrived;
            printf("@ arrive %d prompt %d max_tokens %d\n",
                   id[live], line[live].prompt, line[live].left);
            live++
         :: else -> /* it can never run, so it is refused */
            line[live].prompt = 0;
            line[live].left = 0
         fi
       }
     }
  /* A step: one chunk, or else a token for every decoding request, or else nothing. */
  :: atomic {
       d_step {
         live > 0 || MORE ->
         judge();
         if
         :: fits -> prefill()
         :: !fits && decoding > 0 -> decode()
         :: else -> idle()
         fi
       }
       do
       :: d_step { emitting > 0 && line[decoding - emitting].left > 0 -> emitting-- }
       /* The token was the request's last one, by max_tokens or by an early EOS. */
       :: d_step {
            emitting > 0 && (EARLY_EOS || line[decoding - emitting].left == 0) ->
            at = decoding - emitting;
            printf("@ ends %d left %d\n", id[at], line[at].left);
            leave(decoding - emitting);
            emitting--
          }
       :: d_step { emitting == 0 -> settle() } break
       od
     }
#ifdef ABORTS
  /* A request is aborted in any state; any number of them between two steps. */
  :: atomic {
       live > 0 ->
       CHOOSE(victim, 0, live - 1);
       d_step {
         printf("@ abort %d\n", id[victim]);
         leave(victim);
         victim = 0;
         tidy()
       }
     }
#endif
  :: live == 0 && !MORE -> break
  od
}
