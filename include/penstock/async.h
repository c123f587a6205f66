/* Asynchronous style: each callback of the interceptor has to resolve its event: at once or later, on any thread.
 * penstock_async_interceptor_table makes an ordinary interceptor of it, which is then registered. The style is meant
 * for bindings to languages that have promises, futures or callbacks where C has verdicts and tickets.
 */
#ifndef PENSTOCK_ASYNC_H
#define PENSTOCK_ASYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `hop` is a handle of the callback's event. The event waits until penstock_hop_resolve resolves it or penstock_hop_end
 * ends the call: in the callback or later, on any thread. Later events of the same lane wait behind it, unseen; the
 * other lane goes on. hop.h says what such a bound hop may do.
 * Memory: `hop` is owned by the callee; free with penstock_hop_release. The last release of a hop whose event has not
 * been resolved ends the call with INTERNAL and a message that names the interceptor. */
typedef void (*penstock_async_callback)(penstock_hop *hop, void *state);

/* Fill with PENSTOCK_ASYNC_INTERCEPTOR_INIT, then set what you need. Any callback may be NULL: then its event passes.
 *
 * Threading: as with penstock_interceptor: on the thread that drives the runtime, or on the interceptor's executors.
 * Within one call the callbacks of one lane run in order, each after the event before it has been resolved. */
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
  penstock_hop_destroy destroy; /* exactly once, last; hops that are unresolved then give PENSTOCK_E_GONE */

  penstock_async_callback on_start;      /* before anything is sent */
  penstock_async_callback on_send;       /* a message to the server */
  penstock_async_callback on_half_close; /* the caller is done sending */
  penstock_async_callback on_headers;    /* the response's headers */
  penstock_async_callback on_receive;    /* a message from the server */
  penstock_async_callback on_status; /* the end. A cancel or a deadline can be neither changed nor delayed: it goes on
                                            when the callback returns, and any verdict but NEXT gives PENSTOCK_E_GONE */
  penstock_hop_callback on_cancel;   /* as in penstock_interceptor: something else has ended the call */
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
 * result: E_INVALID_ARGUMENT: a NULL, a struct_size that is too small. E_UNSUPPORTED: a larger struct_size with a tail that
 * is not zero. Other faults are reported where the table is registered.
 * memory: `interceptor` is borrowed during the call, its user_data transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
                                                              penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
