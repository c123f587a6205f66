/* Asynchronous style: each callback of the interceptor has to resolve its event: at once or later, on any thread.
 * penstock_async_interceptor_table turns a table of such callbacks into an ordinary penstock_interceptor, which is then
 * registered. The style is meant for bindings to languages that have promises, futures or callbacks where C has
 * verdicts and tickets.
 */
#ifndef PENSTOCK_ASYNC_H
#define PENSTOCK_ASYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A callback for one event. `hop` is a handle that is bound to this event: hop.h says what such a bound hop can do. The
 * event waits until penstock_hop_resolve resolves it or penstock_hop_end ends the call: in the callback or later, on
 * any thread. Later events of the same lane wait behind it, unseen; the other lane goes on.
 * Memory: `hop` is owned by the callee; free with penstock_hop_release. If `hop` is released for the last time before
 * its event has been resolved, the call ends with INTERNAL and a message that names the interceptor. */
typedef void (*penstock_async_callback)(penstock_hop *hop, void *state);

/* Fill with PENSTOCK_ASYNC_INTERCEPTOR_INIT, then set what you need. Any callback may be NULL: then its event passes.
 *
 * Threading: as with penstock_interceptor: on the thread that drives the runtime, or on the interceptor's executors.
 * Within one call the callbacks of one lane run in order: each begins after the event of the one before has been
 * resolved. */
typedef struct penstock_async_interceptor {
  size_t struct_size;
  const char *name;             /* as in penstock_interceptor */
  const char *methods;          /* as in penstock_interceptor */
  uint32_t kinds;               /* mask of call kinds; 0 is all */
  uint32_t level;               /* as in penstock_interceptor */
  uint32_t per_attempt;         /* as in penstock_interceptor */
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, as that of penstock_interceptor */

  penstock_hop_create create;   /* as in penstock_interceptor; without it `state` is user_data */
  penstock_hop_destroy destroy; /* as in penstock_interceptor; a bound hop whose event is unresolved by then
                                   gives PENSTOCK_E_GONE */

  penstock_async_callback on_start;      /* the start: nothing has been sent yet */
  penstock_async_callback on_send;       /* a message to the server */
  penstock_async_callback on_half_close; /* the caller is done sending */
  penstock_async_callback on_headers;    /* the response's headers */
  penstock_async_callback on_receive;    /* a message from the server */
  penstock_async_callback on_status;     /* the call's status. That of a local cancel or deadline can be neither changed
                                        nor delayed: it is passed on when the callback returns, and to resolve it with
                                        any verdict but NEXT gives PENSTOCK_E_GONE */
  penstock_hop_callback on_cancel;       /* as in penstock_interceptor: something else has ended the call */
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
 * `interceptor`. It sets name and methods (the same pointers), kinds, level, per_attempt, user_data, finalizer and the
 * callbacks. The other fields stay as they are: set executors, limits and the like before or after. To free a table
 * that is not registered after all, call table->finalizer(table->user_data).
 * result: E_INVALID_ARGUMENT: a NULL, a struct_size that is too small. E_UNSUPPORTED: fields that this version does not
 * know are set. Other faults are reported where the table is registered.
 * memory: `interceptor` is borrowed during the call, its user_data transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
                                                              penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
