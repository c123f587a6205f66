/* Synchronous interceptors: one function that sees the whole call, and may wait.
 *
 * The function reads the request and may change it, sends it on with penstock_hop_next, which returns with the response,
 * and may change the response. Instead, the function may end the call or answer it. The interceptor is part of the chain
 * like every interceptor, with the same places, priorities, filters and removal.
 *
 * One thread runs all the synchronous interceptors of a call: while one of them waits in penstock_hop_next, the
 * interceptor below it runs on the same thread. It is the thread that waits for the call, if it has the whole request
 * and is in no callback: in penstock_channel_unary and penstock_channel_unary_message, and for a unary call or a server
 * stream in blocking style that the program has not half-closed before it began to wait. The blocking function then
 * returns after the functions have returned, even if the deadline or a cancel has ended the call. If it gives up its wait
 * (PENSTOCK_E_INTERRUPTED), workers run the functions that have not begun. For other calls it is
 * a worker thread of the runtime, of which there are up to "max_workers" (see penstock_runtime_new). If no worker is
 * free, a call waits for one, and its deadline goes on.
 * A function may make blocking calls of its own: its thread runs the synchronous interceptors of these calls, too, so
 * even one worker is enough. (If a function waits for something else, such as a lock or a condition, that must not depend
 * on another worker.)
 */
#ifndef PENSTOCK_SYNC_H
#define PENSTOCK_SYNC_H

#include "hop.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The function of a synchronous interceptor. `hop` is its hop, to be used on the function's thread, until the function
 * returns: elsewhere the functions named here give PENSTOCK_E_STATE (NULL if they return a pointer). If the function
 * retains the hop (penstock_hop_retain), any thread can do with it what a retained hop can do: make side calls, end
 * the call, half-close, and put messages into a stream.
 * Before next: penstock_hop_request is the request, which next sends; penstock_hop_message and _set_message read and
 * replace the request message of a call that has just one.
 * penstock_hop_next waits for the response. After it: penstock_hop_metadata gives the response's headers, which may be
 * changed (NULL for a trailers-only response); penstock_hop_message and _set_message read and replace the one response
 * message; penstock_hop_status gives the status with its trailers, which may be changed (NULL: only the headers of a
 * stream have come; after E_GONE from next it is the status that the caller gets, read-only, or NULL if a hop above
 * has restarted the call, or if another thread, or a function below, has ended it at this hop). If there was no message,
 * a message that is set is added: together with the status OK this makes a success of an error.
 * penstock_hop_next may be called again when penstock_hop_status gives a status: the call begins again below this hop,
 * with the request as it is now (penstock_request_message and _set_message read and replace its messages then), and
 * next waits for another response, as often as the function likes. The earlier response is dropped; its metadata and
 * status stay readable until the function returns, its message does not. The call can begin again as long as no part of
 * the response has gone above and the request has at most replay_bytes (65,536, unless the table says otherwise).
 * With the headers of a stream next returns at once, unless they wait at the hop (headers_wait of penstock_interceptor):
 * then it returns with the first message or with the status, so that the call can begin again behind headers, too.
 * Otherwise next gives PENSTOCK_E_STATE, penstock_hop_why says why, and the response stays. An interceptor with
 * per_attempt keeps no request, so it can't begin the call again.
 * Instead of next: penstock_hop_deliver_headers, _deliver and then _deliver_status answer the call, and nothing is
 * sent; the caller gets the messages as it asks for them. Before or after next penstock_hop_end ends the call. A
 * second end or answer gives E_ALREADY; if the call was ended elsewhere meanwhile (by a cancel, the deadline, a hop
 * above), all of these give E_GONE. Without a message penstock_hop_message gives NULL.
 * After next the function returns PENSTOCK_NEXT, and the response goes on as it is then. After an end or an answer the
 * return value is ignored, and also if the call was ended elsewhere. Any other value, and PENSTOCK_NEXT without a
 * next, an end or an answer, ends the call with INTERNAL and a message that names the interceptor.
 * Threading: on the thread that waits for the call or on a worker (see above), never while a lock of the library is held;
 * for different calls at the same time. Every function of the library may be called in it, also those that wait;
 * penstock_runtime_shutdown of its own runtime gives PENSTOCK_E_WOULD_DEADLOCK. If the call is interruptible (see
 * penstock_call_options_set_on_interrupted), so is penstock_hop_next on the thread that waits for it. */
typedef int32_t (*penstock_intercept)(penstock_hop *hop, void *user_data);

/* Fill with PENSTOCK_SYNC_INTERCEPTOR_INIT, then set the fields that you need. */
typedef struct penstock_sync_interceptor {
  /* These fields are those of penstock_interceptor, in the same order. */
  size_t struct_size;
  const char *name;             /* the interceptor's name in error messages and lists; NUL-terminated */
  const char *methods;          /* patterns of methods, see penstock_interceptor; NULL is every method */
  uint32_t kinds;               /* mask of call kinds; 0 is all */
  uint32_t level;               /* PENSTOCK_LEVEL_... */
  uint32_t per_attempt;         /* 1: one hop for each attempt; 0: one for each call */
  size_t hold_bytes;            /* limit on further messages while they wait at the hop, as in penstock_interceptor; a
                                   single response always has room; 0: the limit on a received message */
  size_t replay_bytes;          /* how many bytes of request messages are recorded, so that next can begin the call
                                   again; 0 is 65,536, but nothing is recorded with per_attempt */
  size_t max_restarts;          /* how often next may begin one call again; 0: without limit */
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when neither a registration nor a running function has it, or on error */
  penstock_intercept intercept; /* the function; not NULL */
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

/* Fills `table`, which was made with PENSTOCK_INTERCEPTOR_INIT, with an interceptor that runs the function of
 * `interceptor`. name, methods, kinds, level, per_attempt, hold_bytes, replay_bytes, max_restarts and headers_wait may
 * be set in `table` before, and they stay; where `interceptor` sets the same field, both have to agree. They may also be
 * set or changed after this function, until the table is registered (replay_bytes 0 then records nothing); the other
 * fields may not. Register the table once, with any of the functions that register a table. To free a table that is not
 * registered after all, call table.finalizer(table.user_data).
 * result: E_INVALID_ARGUMENT: a NULL, a struct_size that is too small, no function, or `table` has user_data, a
 * finalizer, a callback, or another value than `interceptor` in a field that both set. E_UNSUPPORTED: fields that this
 * version does not know are set, or `table` is that of an earlier header and has no room for a field that is needed.
 * E_NO_MEMORY. After an error `table` is as it was. Other faults are reported where the table is registered: so are
 * executors, because the function has a thread of its own.
 * memory: `interceptor` is borrowed during the call, its user_data transferred, even on error; the table's strings live
 * as long as its user_data.
 * threads: any */
PENSTOCK_API penstock_result penstock_sync_interceptor_table(const penstock_sync_interceptor *interceptor,
                                                             penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
