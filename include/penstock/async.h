/* Asynchronous style: an interceptor each of whose callbacks gets a completion, to be called once: now or later, on any
 * thread. It is made into an ordinary interceptor, and registered as one: made for bindings, whose languages have
 * promises, futures or callbacks where C has verdicts and tickets.
 */
#ifndef PENSTOCK_ASYNC_H
#define PENSTOCK_ASYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a callback owes its event. Until it is called the event waits, and later ones of its lane behind it, unseen; the
 * other lane goes on. One that is released without having been called ends the call with INTERNAL and a message that
 * names the interceptor. Reference counted; any thread. */
typedef struct penstock_completion penstock_completion;

/* Asked for each call before anything else. `method` is borrowed during the call, `kind` is PENSTOCK_KIND_... Returns
 * PENSTOCK_NEXT with *state set for the callbacks of this call, or PENSTOCK_SKIP: not this call. */
typedef int32_t (*penstock_async_create)(void *user_data, const char *method, int32_t kind, void **state);
typedef void (*penstock_async_destroy)(void *state);
/* `metadata`, `data` and `status` may be read, and metadata and status changed, until the completion is called; they are
 * the event's, not the callee's. `completion` is owned by the callee; free with penstock_completion_release. */
typedef void (*penstock_async_metadata)(void *state, penstock_metadata *metadata, penstock_completion *completion);
typedef void (*penstock_async_message)(void *state, const void *data, size_t length, penstock_completion *completion);
typedef void (*penstock_async_signal)(void *state, penstock_completion *completion);
typedef void (*penstock_async_status)(void *state, penstock_status *status, penstock_completion *completion);
/* `status` is borrowed during the call, and not to be changed. */
typedef void (*penstock_async_cancel)(void *state, const penstock_status *status);

/* Fill with PENSTOCK_ASYNC_INTERCEPTOR_INIT, then set what you need. Any callback may be NULL: then its event passes.
 *
 * Threading: as with penstock_interceptor: on the thread that drives the runtime, or on the interceptor's executors. For
 * one call those of one lane come in order, each after the completion of the one before. */
typedef struct penstock_async_interceptor {
  size_t struct_size;
  const char *name;             /* as in penstock_interceptor */
  const char *methods;          /* as in penstock_interceptor */
  uint32_t kinds;               /* mask of call kinds; 0 is all */
  uint32_t flags;               /* as in penstock_interceptor. Where messages are objects on_request and on_response get
                                   NULL: see penstock_completion_hop */
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, as that of penstock_interceptor */

  penstock_async_create create;   /* without it `state` is user_data */
  penstock_async_destroy destroy; /* exactly once, last; completions that are still open are then void */

  penstock_async_metadata on_start;    /* the request's metadata */
  penstock_async_message on_request;   /* a message to the server */
  penstock_async_signal on_half_close; /* the caller is done sending */
  penstock_async_metadata on_headers;  /* the response's headers */
  penstock_async_message on_response;  /* a message from the server */
  penstock_async_status on_status;     /* the end. A cancel or a deadline can neither be changed nor held up: it goes on
                                          when the callback returns, and all but next gives PENSTOCK_E_GONE */
  penstock_async_cancel on_cancel;     /* no on_status comes, or comes again: the call ended by another hand */
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

/* Fills `table`, which was made with PENSTOCK_INTERCEPTOR_INIT, for the functions that register: name (the same pointer),
 * methods (likewise), kinds, flags, user_data, finalizer and the callbacks. The other fields stay: set executors, limits and the
 * like before or after. Who does not register the table calls table->finalizer(table->user_data).
 * Memory: `interceptor` is borrowed during the call, its user_data transferred, even on error.
 * E_INVALID_ARGUMENT: a NULL, a struct_size that is too small. E_UNSUPPORTED: a larger struct_size with a tail that is
 * not zero. What else is wrong is told where the table is registered. */
PENSTOCK_API penstock_result penstock_async_interceptor_table(const penstock_async_interceptor *interceptor,
                                                              penstock_interceptor *table, penstock_error **error);

/* Each of these ends the completion; any thread, also within its callback. E_ALREADY: it has been called. E_GONE: the
 * call has ended, or went on without it. Both do no harm. */

/* The event goes on, with what was changed in its metadata or status. */
PENSTOCK_API penstock_result penstock_completion_next(penstock_completion *completion);
/* The event goes on as a copy of `data` (NULL only with length 0). E_STATE: it is no message (the completion stays). */
PENSTOCK_API penstock_result penstock_completion_next_message(penstock_completion *completion, const void *data,
                                                              size_t length);
/* The call ends here with `code` (0-16) and `message` (copied; NULL is ""), as with penstock_hop_finish. */
PENSTOCK_API penstock_result penstock_completion_cancel(penstock_completion *completion, int32_t code,
                                                        const char *message);
/* The same with a built status, copied. */
PENSTOCK_API penstock_result penstock_completion_cancel_with(penstock_completion *completion,
                                                             const penstock_status *status);
/* Ends it with any verdict that a ticket for the event takes: NEXT, DROP (messages), TAKE (start), RESTART (status).
 * E_INVALID_ARGUMENT: another (the completion stays). */
PENSTOCK_API penstock_result penstock_completion_resolve(penstock_completion *completion, int32_t verdict);
/* The hop, for what else hop.h offers: within the callback, all of it; later, what any thread may call. Lives as long
 * as the completion; it may be retained. NULL for NULL. */
PENSTOCK_API penstock_hop *penstock_completion_hop(penstock_completion *completion);
PENSTOCK_API penstock_completion *penstock_completion_retain(penstock_completion *completion);
/* The last release of one that has not been called breaks the interceptor: see above. */
PENSTOCK_API void penstock_completion_release(penstock_completion *completion);

#ifdef __cplusplus
}
#endif
#endif
