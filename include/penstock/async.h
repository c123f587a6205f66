/* Asynchronous interceptors: each callback resolves its event, at once or later, on any thread.
 * penstock_async_interceptor_table turns a table of such callbacks into an ordinary penstock_interceptor, which is then
 * registered. This style is meant for bindings to languages that have promises, futures or callbacks where C has
 * verdicts and tickets.
 */
#ifndef PENSTOCK_ASYNC_H
#define PENSTOCK_ASYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A callback for one event. `hop` is a handle that is bound to this event: hop.h says what a bound hop can do. The
 * event waits until penstock_hop_resolve resolves it or penstock_hop_end ends the call: in the callback or later, on
 * any thread. Later events of the same lane wait behind it, unseen; the other lane goes on. To see the later events
 * while this one waits, the callback calls penstock_hop_resolve with PENSTOCK_HOLD before it returns.
 * Memory: `hop` is owned by the callee; free with penstock_hop_release. If `hop` is released for the last time before
 * its event has been resolved, the call ends with INTERNAL and a message that names the interceptor. */
typedef void (*penstock_async_callback)(penstock_hop *hop, void *state);

/* Fill with PENSTOCK_ASYNC_INTERCEPTOR_INIT, then set what you need. Any callback may be NULL: then its event passes.
 *
 * Threading: the callbacks run on the interceptor's executors, or, without executors, on the thread that drives the
 * runtime. Within one call the callbacks of one lane run in order: each begins after the event before it has been
 * resolved, or held. */
typedef struct penstock_async_interceptor {
  /* These fields are those of penstock_interceptor, in the same order. */
  size_t struct_size;
  const char *name;             /* the interceptor's name in error messages and lists; NUL-terminated */
  const char *methods;          /* patterns of methods, see penstock_interceptor; NULL is every method */
  uint32_t kinds;               /* mask of call kinds; 0 is all */
  uint32_t level;               /* PENSTOCK_LEVEL_... */
  uint32_t per_attempt;         /* 1: one hop for each attempt; 0: one for each call */
  size_t hold_bytes;            /* how many message bytes HOLD may park per call and lane; 0 is 65536 */
  size_t replay_bytes;          /* how many bytes of request messages are recorded for RESTART; 0: nothing is */
  size_t max_restarts;          /* how often one call may be restarted here; 0 is 1 */
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, after removal and the end of the last call that has it, or on error */

  penstock_hop_create create;   /* called when start comes to the hop, see penstock_interceptor; without it `state` is
                                   user_data */
  penstock_hop_destroy destroy; /* the last callback of each hop; after it a bound hop whose event is unresolved gives
                                   PENSTOCK_E_GONE */

  penstock_async_callback on_start;      /* the start: nothing has been sent yet */
  penstock_async_callback on_send;       /* a message to the server */
  penstock_async_callback on_half_close; /* the caller is done sending */
  penstock_async_callback on_headers;    /* the response's headers */
  penstock_async_callback on_receive;    /* a message from the server */
  penstock_async_callback on_status;     /* the call's status. The status of a local cancel or deadline can be neither
                                            changed nor delayed: it goes on when the callback returns, and
                                            penstock_hop_resolve with any verdict but NEXT gives PENSTOCK_E_GONE */
  penstock_hop_callback on_cancel;       /* a signal: something other than this hop has ended the call; see
                                            penstock_interceptor */

  /* These are as in penstock_interceptor: `hop` is the callback's own, and nothing waits. */
  penstock_hop_callback on_demand; /* a signal: more messages are asked for */
  penstock_hop_callback on_sent;   /* a signal: the transport has taken messages, or hops below have dropped them */
  penstock_hop_callback on_pick;   /* an endpoint has been picked. Only with per_attempt. NEXT; DROP refuses it */
  uint64_t headers_wait; /* with replay_bytes: the kinds of calls in which headers wait here for the verdict on
                                      the event behind them */
} penstock_async_interceptor;

#ifdef __cplusplus
static inline penstock_async_interceptor penstock_async_interceptor_init(void) {
  penstock_async_interceptor empty = penstock_async_interceptor();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_ASYNC_INTERCEPTOR_INIT penstock_async_interceptor_init()
#else
#define PENSTOCK_ASYNC_INTERCEPTOR_INIT                                                                                \
  { .struct_size = sizeof(penstock_async_interceptor) }
#endif

/* Fills `table`, which was made with PENSTOCK_INTERCEPTOR_INIT, with an interceptor that calls the callbacks of
 * `interceptor`; the table has the same pointers to name and methods. Other fields than user_data, finalizer and the
 * callbacks may be set in `table` before, and they stay; where `interceptor` sets the same field, both have to agree.
 * They may also be set or changed after this function, until the table is registered. To free a table that is not
 * registered after all, call table.finalizer(table.user_data).
 * result: E_INVALID_ARGUMENT: a NULL, a struct_size that is too small, or `table` has user_data, a finalizer, a
 * callback, or another value than `interceptor` in a field that both set. E_UNSUPPORTED: fields that this version does
 * not know are set, or `table` is that of an earlier header and has no room for a field that is needed. After an error
 * `table` is as it was. Other faults are reported where the table is registered.
 * memory: `interceptor` is borrowed during the call, its user_data transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
                                                              penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
