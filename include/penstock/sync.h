/* Synchronous interceptors: one function that sees a call whole, and may wait.
 *
 * The function runs on a worker thread of the call's runtime. It looks at the request and may change it, lets it go on
 * with penstock_hop_next, which returns with the response, and may change that. Or it ends the call, or answers
 * it. It stands in the chain like every interceptor: same places, priorities, filters, removal.
 *
 * A runtime has up to "max_workers" workers (see penstock_runtime_new). One of them serves all the synchronous
 * interceptors of a call: while one of these waits in next, the next one down runs on the same thread. With no free
 * worker a call waits, and its deadline runs. A function may make blocking calls of its own: a worker that waits for a
 * call runs that call's synchronous interceptors itself, so even one worker is enough. (If a
 * function waits by other means, for a lock or a condition, that must not need a worker.)
 */
#ifndef PENSTOCK_SYNC_H
#define PENSTOCK_SYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The function. `hop` is its hop, on the function's thread, until the function returns: elsewhere the functions named here
 * give PENSTOCK_E_STATE (NULL if they return a pointer). What a retained hop does on any thread works for as long as this
 * one is kept (penstock_hop_retain): side calls, an end of the call, half-close, messages into a stream.
 * Before next: penstock_hop_request is the request, which next sends; penstock_hop_message and _set_message are the one
 * request message of a kind that has one.
 * penstock_hop_next waits for the response. After it: penstock_hop_metadata are the response's headers, which may be
 * changed (NULL: a trailers-only answer has none); penstock_hop_message and _set_message the one response message;
 * penstock_hop_status the status with its trailers, which may be changed (NULL: the headers of a stream have come; where
 * next gave E_GONE it is the status that the caller gets, read-only, or NULL where a hop above has restarted the call). A
 * message that is set where there was none is put in: with the status set to OK an error becomes a success.
 * penstock_hop_next again, where penstock_hop_status is there: the call begins again below this hop, with the request as it
 * is now, and next waits for another response, as often as the function likes. The response that was there goes; its
 * metadata and status stay readable until the function returns, its message does not. The call can begin again for as long
 * as nothing of the response has gone above and the request has at most replay_bytes (65,536, unless the table says
 * otherwise); if not, next gives PENSTOCK_E_STATE, penstock_hop_why says why, and the response stays. An interceptor for
 * each attempt keeps no request.
 * Instead of next: penstock_hop_deliver_headers and _deliver, then _deliver_status answer the call, and nothing goes
 * below; the caller gets the messages as it asks for them. Before or after next penstock_hop_end ends the call.
 * A second end or answer gives E_ALREADY; if the call was ended elsewhere meanwhile (by a cancel, the deadline, a hop above),
 * all of these give E_GONE; where there is no message penstock_hop_message gives NULL.
 * Returns PENSTOCK_NEXT when it has called next, and the response is to go on as it is then. After an end or an answer the
 * function's return value is ignored, as it is if the call was ended elsewhere. Any other value, and PENSTOCK_NEXT without one
 * of the three, ends the call with INTERNAL and a message that names the interceptor.
 * Threading: on a worker, never while a lock of the library is held; for different calls at the same time. Every
 * function of the library may be called in it, those that wait too; penstock_runtime_shutdown of its own runtime gives
 * PENSTOCK_E_WOULD_DEADLOCK. */
typedef int32_t (*penstock_intercept)(penstock_hop *hop, void *user_data);

/* Fill with PENSTOCK_SYNC_INTERCEPTOR_INIT, then set what you need. */
typedef struct penstock_sync_interceptor {
  size_t struct_size;
  const char *name;     /* as in penstock_interceptor, like all but the last */
  const char *methods;  /* patterns of methods; NULL is every one */
  uint32_t kinds;       /* mask of call kinds; 0 is all */
  uint32_t level;       /* PENSTOCK_LEVEL_... */
  uint32_t per_attempt; /* 1: one for each attempt */
  size_t hold_bytes; /* the largest response that may wait in a call that has one; 0: the limit on a received message */
  void *user_data;   /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when neither a registration nor a running function has it, or on error */
  penstock_intercept intercept; /* not NULL */
} penstock_sync_interceptor;

#ifdef __cplusplus
static inline penstock_sync_interceptor penstock_sync_interceptor_init(void) {
  penstock_sync_interceptor empty = penstock_sync_interceptor();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_SYNC_INTERCEPTOR_INIT penstock_sync_interceptor_init()
#else
#define PENSTOCK_SYNC_INTERCEPTOR_INIT                                                                                 \
  { .struct_size = sizeof(penstock_sync_interceptor) }
#endif

/* Fills `table` (made with PENSTOCK_INTERCEPTOR_INIT) with an interceptor that runs `interceptor`'s function: to be
 * registered once, by any of the functions that register a table, as it is. One that is not registered after all is let
 * go by its own finalizer: table.finalizer(table.user_data).
 * result: E_INVALID_ARGUMENT: a NULL, a struct_size that is too small, no function. E_UNSUPPORTED: a larger struct_size
 * with a tail that is not zero. E_NO_MEMORY.
 * memory: `interceptor` is borrowed during the call, its user_data transferred, even on error; the table's strings live
 * as long as its user_data.
 * threads: any */
PENSTOCK_API penstock_result penstock_sync_interceptor_table(const penstock_sync_interceptor *interceptor,
                                                             penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
