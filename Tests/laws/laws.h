/* Shared by the parts of the program: the calls under test ("trials"), the records of their hops, and the report of a
 * broken law. */
#ifndef LAWS_H
#define LAWS_H

#include <penstock/penstock.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { max_hops = 64, max_trace = 512, max_tickets = 256, call_threads = 4, helper_threads = 3 };

/* ---- Random ---- */

extern uint64_t seed;

uint64_t mix(uint64_t *state);
uint32_t below(uint64_t *state, uint32_t n);
bool chance(uint64_t *state, uint32_t percent);

/* ---- The channels (laws.c) ---- */

/* The channel that calls are made on, and the one that hops redirect them to: to the same server under another name. */
enum { own = 0, other = 1 };
extern penstock_channel *channels[2];
extern char targets[2][64];

/* ---- Executors (executors.c) ---- */

/* The place of one lane of a registration: the driving thread, or the way in which its executor runs jobs. */
typedef enum place {
  place_driving,
  place_serial,  /* the library's serial executor */
  place_pool,    /* several threads, the newest job first */
  place_inline,  /* jobs run within submit */
  place_refusing /* like the pool, but one job in 400 is refused */
} place;

void executors_start(void);
/* Waits until every job has run, and ends the executors. */
void executors_stop(void);
/* Gives the executor of a place, where one lane of a registration runs; borrowed; NULL for the driving thread. */
penstock_executor *executor_of(place place);
/* Whether a callback of a lane with this place may run on this thread. */
bool is_at(place place);
/* Notes that a callback of a lane with the place `place` runs on this thread. */
void note_place(place place);
bool is_job_of(place place);

/* ---- The events of a call's hops (trace.c) ---- */

/* Callbacks of the two lanes may run at the same time if the executors of the lanes differ. */
enum { outbound = 0, inbound = 1 };

typedef struct hop_record {
  struct trial *trial;
  penstock_hop *handle;
  int number; /* the number of the registration */
  int run;    /* how often functions had begun the call again before this hop was made */
  place places[2];
  uint64_t random[2];
  atomic_int running[2]; /* the event whose callback runs; 0: none */
  atomic_bool takes;
  atomic_bool destroyed;
  int next[2];           /* the least number that the next message of a lane may have */
  pthread_mutex_t mutex; /* guards the four fields below */
  int count;
  uint8_t seen[max_trace]; /* PENSTOCK_EVENT_... */
  uint64_t order[max_trace];
  int32_t verdicts[max_trace];
  atomic_bool finished; /* the hop has ended the call itself, or has broken law 7 */
  atomic_bool
      may_finish; /* the hop may have ended the call: it tried on an executor, perhaps too late, or it has delivered a status */
} hop_record;

struct side;

typedef struct trial {
  struct side *side;  /* the side call that this trial is for; NULL: a call of the program */
  struct side *sides; /* the side calls that hops of this call have made */
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* a hop was destroyed */
  uint64_t call_id;
  int hop_count;
  atomic_int runs; /* how often functions have begun the call again */
  hop_record hops[max_hops];
  atomic_uint_least64_t clock;
  penstock_ticket tickets[max_tickets];
  int ticket_count;
  int functions[max_hops]; /* the registrations of the synchronous interceptors whose functions have run */
  int function_count;
  int functions_open;
  pthread_t worker;             /* the thread that runs the functions, while one of them is running */
  _Atomic(const char *) target; /* the target to which a hop has redirected the call; NULL: the channel's own */
  atomic_int inside;            /* the number of helper threads and functions that use the trial */
} trial;

extern atomic_int failures;

void broken(trial *trial, const char *law, const char *format, ...) __attribute__((format(printf, 3, 4)));

trial *trial_new(void);
/* Frees the trial (the record of a call) once no helper thread and no function uses it. */
void trial_free(trial *trial);
bool runs_elsewhere(const hop_record *hop);
/* The lane to which the callback of this event belongs. */
int lane_of(int32_t event);
/* Records an event; gives its index among the hop's events, or -1 if there is no room. */
int record(hop_record *hop, int32_t event);
void record_verdict(hop_record *hop, int index, int32_t verdict);
void enter(hop_record *hop, int lane, int32_t event);
void leave(hop_record *hop, int lane);
/* Checks an ended call law by law. */
void check_trial(trial *trial);

/* ---- The contents of messages (contents.c) ---- */

/* How many messages of callers were read, at hops and by callers, and how many words that hops have put into messages.
 */
extern atomic_int echoes, words;

/* Checks the bytes of one message. They may hold several of the caller's messages, which are numbered, and words that
 * hops send or write ("injected", "taken", "answer", "changed"). Numbers may be missing, but no number comes twice or
 * after a greater one. *next is the least number that may come, and is moved past each number that has come. */
void read_content(trial *trial, const char *where, int *next, const void *data, size_t length);
/* Checks the message of on_send or on_receive by read_content. */
void read_event(penstock_hop *hop, hop_record *self, int lane);

/* ---- Cancels (cancels.c) ---- */

/* How many unary calls were cancelled by their scope. */
extern atomic_int cancelled_by_scope;

typedef struct canceller {
  trial *trial;
  penstock_cancel_scope *scope; /* the scope of a unary call; then `call` is NULL */
  penstock_call *call;
  uint32_t yields; /* how often its thread yields before it cancels */
  pthread_t thread;
} canceller;

/* Starts a thread that cancels the call, and that the caller joins; false: there is no thread. */
bool cancel_soon(canceller *self);
/* Makes a unary call. Half of these calls are cancelled by their scope, before they begin or by another thread. NULL:
 * the call failed. */
penstock_reply *call_unary(trial *trial, const char *method, penstock_call_options *options, uint64_t *random);

/* ---- Calls that hops make (side.c) ---- */

extern atomic_int sides_made, sides_cancelled;

void make_side_call(penstock_hop *hop, hop_record *maker, uint64_t *random);
/* Checks in create that this hop may be in its call, if that is a side call, and that the call's deadline is right. */
void check_side_hop(trial *trial, penstock_hop *hop, int number);
/* Checks that all side calls of a call that has ended have kept the laws. */
void check_sides(trial *trial);

/* ---- The registrations (hops.c, synchronous.c) ---- */

typedef struct registration {
  int number;
  atomic_int finalized;
  atomic_int live; /* hops between create and destroy */
  bool sees_sends, sees_receives;
  int32_t priority;
  place places[2];
} registration;

enum { max_registrations = 4096 };
extern registration registrations[max_registrations];
extern atomic_int next_registration;

/* Hops find the trial of their call by its slot, whose number is in the call's metadata. */
enum { slot_count = 64, side_slot_count = 32 };
typedef struct slot {
  pthread_mutex_t mutex;
  trial *trial;
} slot;
extern slot slots[slot_count + side_slot_count];

extern atomic_int functions_run, redirected;

/* Fills the table with a synchronous interceptor, which has the name, the methods and the finalizer that were in the
 * table. */
void fill_synchronous(registration *self, penstock_interceptor *table);

/* Registers a random interceptor. False: there are enough, or it failed. */
bool add_one(uint64_t *random, penstock_interceptor_id *id);

#endif
