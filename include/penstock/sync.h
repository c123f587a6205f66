/* Synchronous interceptors: one function that sees a call whole, and may wait.
 *
 * The function runs on a worker thread of the call's runtime. It looks at the request and may change it, lets it go on
 * with penstock_intercepted_next, which returns with the response, and may change that. Or it ends the call, or answers
 * it. It stands in the chain like every interceptor: same places, priorities, filters, removal.
 *
 * A runtime has up to "max_workers" workers (see penstock_runtime_new). One of them serves all the synchronous
 * interceptors of a call: while one of these waits in next, the next one down runs on the same thread. With no free
 * worker a call waits, and its deadline runs. A function may make blocking calls of its own: a worker that waits for a
 * call runs that call's synchronous interceptors itself, so even one worker is enough. (What a function waits for by
 * other means, a lock or a condition, must not need a worker.)
 */
#ifndef PENSTOCK_SYNC_H
#define PENSTOCK_SYNC_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call as a synchronous interceptor sees it: valid until the function returns, on the thread of the function only;
 * on any other every function here gives PENSTOCK_E_STATE (NULL where it returns a pointer). */
typedef struct penstock_intercepted_call penstock_intercepted_call;

/* Returns PENSTOCK_NEXT when it has called next, and the response is to go on as it is then. After
 * penstock_intercepted_cancel or _answer what it returns is ignored, and so it is where another hand (a cancel, the
 * deadline, a hop above) has ended the call meanwhile. Any other value, and PENSTOCK_NEXT without one of the three, ends
 * the call with INTERNAL and a message that names the interceptor.
 * Threading: on a worker, never while a lock of the library is held; for different calls at the same time. Every
 * function of the library may be called in it, those that wait too; penstock_runtime_shutdown of its own runtime gives
 * PENSTOCK_E_WOULD_DEADLOCK. */
typedef int32_t (*penstock_intercept)(penstock_intercepted_call *call, void *user_data);

/* Fill with PENSTOCK_SYNC_INTERCEPTOR_INIT, then set what you need. */
typedef struct penstock_sync_interceptor {
  size_t struct_size;
  const char *name;    /* as in penstock_interceptor, like all but the last */
  const char *methods; /* patterns of methods; NULL is every one */
  uint32_t kinds;      /* mask of call kinds; 0 is all */
  uint32_t flags;      /* PENSTOCK_LEVEL_..., with PENSTOCK_PER_ATTEMPT or without */
  size_t hold_bytes;   /* the largest response that may wait in a call that has one; 0: what the call may receive */
  void *user_data;     /* transferred, even on error */
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
 * go by its own finalizer: table.finalizer(table.user_data). `interceptor` is borrowed during the call; the table's
 * strings live as long as its user_data.
 * E_INVALID_ARGUMENT: NULL, a struct_size that is too small, no function. E_UNSUPPORTED: a larger struct_size with a
 * tail that is not zero. E_NO_MEMORY. */
PENSTOCK_API penstock_result penstock_sync_interceptor_table(const penstock_sync_interceptor *interceptor,
                                                             penstock_interceptor *table, penstock_error **error);

/* ---- Going on, ending, answering: each once ---- */

/* Lets the call go on, with what has been changed in it, and waits for its response: the whole of it in a call that has
 * one response message; in one that has many its headers, or the status if that comes first (the rest passes when the
 * function has returned). Meanwhile this worker runs the other synchronous interceptors of the call.
 * E_ALREADY: a second time. E_STATE: after cancel or answer. E_GONE: another hand has ended the call;
 * penstock_intercepted_status tells how. E_FORKED. */
PENSTOCK_API penstock_result penstock_intercepted_next(penstock_intercepted_call *call);
/* Ends the call at once with `code` (0-16) and `message` (copied; NULL is ""), before or after next: as
 * penstock_hop_finish. E_ALREADY: it has been ended or answered by this function. E_GONE: by another hand. */
PENSTOCK_API penstock_result penstock_intercepted_cancel(penstock_intercepted_call *call, int32_t code,
                                                         const char *message);
/* The same with a built status, copied. */
PENSTOCK_API penstock_result penstock_intercepted_cancel_with(penstock_intercepted_call *call,
                                                              const penstock_status *status);
/* Adds a message, copied, to the answer that penstock_intercepted_answer gives. E_STATE: after next or an end, or a
 * second one in a call that has one response. */
PENSTOCK_API penstock_result penstock_intercepted_answer_message(penstock_intercepted_call *call, const void *data,
                                                                 size_t length);
/* Instead of next: answers the call here, and nothing goes below. The caller gets `headers` (nullable: none; copied),
 * the messages that have been added, as it asks for them, and `status` (nullable: OK; copied).
 * E_STATE: after next. E_ALREADY, E_GONE: as penstock_intercepted_cancel. */
PENSTOCK_API penstock_result penstock_intercepted_answer(penstock_intercepted_call *call,
                                                         const penstock_metadata *headers,
                                                         const penstock_status *status);

/* The hop that stands in the chain for the function, for what any thread may do with a hop: penstock_hop_call above all,
 * a call of one's own that does not meet this interceptor. Borrowed until the function returns. */
PENSTOCK_API penstock_hop *penstock_intercepted_hop(penstock_intercepted_call *call);

/* ---- The request: it can be changed until next, cancel or answer; E_STATE after that ---- */

/* A number that names the call within the process; 0 for NULL. */
PENSTOCK_API uint64_t penstock_intercepted_id(const penstock_intercepted_call *call);
/* PENSTOCK_KIND_...; -1 for NULL. */
PENSTOCK_API int32_t penstock_intercepted_kind(const penstock_intercepted_call *call);
/* 1, and one more each time that an interceptor above has restarted the call; 0 for NULL. */
PENSTOCK_API uint32_t penstock_intercepted_attempt(const penstock_intercepted_call *call);
/* PENSTOCK_LEVEL_OBJECT or PENSTOCK_LEVEL_BYTES; -1 for NULL. */
PENSTOCK_API int32_t penstock_intercepted_level(const penstock_intercepted_call *call);
/* The channel's target as it was given, or that of the channel that a hop above has sent the call to. NULL for NULL. */
PENSTOCK_API const char *penstock_intercepted_target(const penstock_intercepted_call *call);
/* "/package.Service/Method"; lives until it is set again or the function returns. NULL for NULL. */
PENSTOCK_API const char *penstock_intercepted_method(const penstock_intercepted_call *call);
/* E_INVALID_ARGUMENT: not "/service/method". Method filters are not applied again. */
PENSTOCK_API penstock_result penstock_intercepted_set_method(penstock_intercepted_call *call, const char *method);
/* The authority that is sent; lives as penstock_intercepted_method. */
PENSTOCK_API const char *penstock_intercepted_authority(const penstock_intercepted_call *call);
PENSTOCK_API penstock_result penstock_intercepted_set_authority(penstock_intercepted_call *call, const char *authority);
/* Milliseconds left until the deadline as it was when start came here, or was set here; 0 if it has passed, -1 for
 * none, and for NULL. */
PENSTOCK_API int64_t penstock_intercepted_deadline_ms(const penstock_intercepted_call *call);
/* Moves the deadline at once to `ms` from now, earlier or later; -1 is none. */
PENSTOCK_API penstock_result penstock_intercepted_set_deadline_ms(penstock_intercepted_call *call, int64_t ms);
/* The request's metadata: the function's own copy, which next sends. Read-only after next. Lives until the function
 * returns. */
PENSTOCK_API penstock_metadata *penstock_intercepted_metadata(penstock_intercepted_call *call);
/* The request message of a call that has one; lives until it is replaced or the call goes on. E_NOT_FOUND: the kind has
 * many, or the caller has sent none. */
PENSTOCK_API penstock_result penstock_intercepted_request(penstock_intercepted_call *call, const void **data,
                                                          size_t *length);
/* Replaces it by a copy of `data` (NULL only with length 0), or puts one in where there was none. E_STATE also: the
 * kind has many. */
PENSTOCK_API penstock_result penstock_intercepted_set_request(penstock_intercepted_call *call, const void *data,
                                                              size_t length);

/* ---- The response: after next, until the function returns or ends the call ---- */

/* The response headers, which may be changed; NULL without (a trailers-only answer has none). */
PENSTOCK_API penstock_metadata *penstock_intercepted_headers(penstock_intercepted_call *call);
/* The message of a call that has one response; lives until it is replaced. E_NOT_FOUND: the kind has many, or the server
 * has sent none. */
PENSTOCK_API penstock_result penstock_intercepted_response(penstock_intercepted_call *call, const void **data,
                                                           size_t *length);
/* Replaces it by a copy of `data` (NULL only with length 0), or puts one in where there was none: with the status set
 * to OK an error becomes a success. E_STATE also: the kind has many. E_GONE: another hand has ended the call. */
PENSTOCK_API penstock_result penstock_intercepted_set_response(penstock_intercepted_call *call, const void *data,
                                                               size_t length);
/* The status, with its trailers: it may be changed. NULL before next, and in a stream whose headers have come.
 * Where next gave E_GONE it is the status that the caller gets, read-only (NULL where a hop above has restarted the
 * call). */
PENSTOCK_API penstock_status *penstock_intercepted_status(penstock_intercepted_call *call);

/* ---- At the object level of a call with a codec: objects in the place of bytes. Elsewhere these give E_STATE (NULL).
 * With E_STATE the object stays the caller's; otherwise it is transferred, even on error. There the functions of messages
 * as bytes give E_STATE. See codec.h ---- */

/* As penstock_intercepted_request and _set_request. Borrowed until it is replaced or the call goes on; NULL: none. */
PENSTOCK_API void *penstock_intercepted_request_object(penstock_intercepted_call *call);
PENSTOCK_API penstock_result penstock_intercepted_set_request_object(penstock_intercepted_call *call, void *object);
/* As penstock_intercepted_response and _set_response. Borrowed until it is replaced; NULL: none. */
PENSTOCK_API void *penstock_intercepted_response_object(penstock_intercepted_call *call);
PENSTOCK_API penstock_result penstock_intercepted_set_response_object(penstock_intercepted_call *call, void *object);
/* As penstock_intercepted_answer_message. */
PENSTOCK_API penstock_result penstock_intercepted_answer_object(penstock_intercepted_call *call, void *object);

/* ---- Call values: what hops and the caller share on purpose ---- */

/* As penstock_hop_set_value. E_GONE: another hand has ended the call. */
PENSTOCK_API penstock_result penstock_intercepted_set_value(penstock_intercepted_call *call, const char *key,
                                                            void *value, penstock_finalizer finalizer);
/* What `key` holds, or NULL. */
PENSTOCK_API void *penstock_intercepted_get_value(penstock_intercepted_call *call, const char *key);

#ifdef __cplusplus
}
#endif
#endif
