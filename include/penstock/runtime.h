/* Runtime: owns an event loop, on a thread of its own or driven by the host program.
 *
 * One thread at a time drives a runtime: its own thread, a thread that waits in a blocking call, or one in
 * penstock_runtime_poll. Callbacks run on the thread that drives.
 */
#ifndef PENSTOCK_RUNTIME_H
#define PENSTOCK_RUNTIME_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_runtime penstock_runtime;

/* A runtime. `options` is a JSON object (NUL-terminated, borrowed during the call) or NULL:
 *   "mode": "thread" (default): a thread of its own; "host": the program calls penstock_runtime_poll
 *   "caller_drives": true (default): a blocking call may drive the loop from its own thread, where not many wait at
 *     once; in host mode always
 *   "linger_us": how long the loop stays free for the next blocking call before the thread takes it back (200); up to
 *     16 times as long after a run of calls, at most until something is due. What is sent or cancelled meanwhile by a
 *     thread that does not wait rests as long
 *   "spin_us": how long a blocking call that drives the loop looks for an answer again and again before it sleeps (0;
 *     up to 1000000): lower latency for CPU time, where a core is free
 *   "max_workers": how many threads may run the functions of synchronous interceptors (4; 1 to 1024). They are started
 *     when there is work for them, and end when there was none for a while; see sync.h
 * Memory: owned by the caller; free with penstock_runtime_release.
 * Errors: E_INVALID_ARGUMENT, E_INVALID_JSON, E_SYSTEM (descriptors, threads). */
PENSTOCK_API penstock_result penstock_runtime_new(const char *options, penstock_runtime **runtime,
                                                  penstock_error **error);
/* The runtime of channels that name none: made when it is first used, ended with its last user. Retained for the
 * caller; free with penstock_runtime_release. */
PENSTOCK_API penstock_result penstock_runtime_default(penstock_runtime **runtime, penstock_error **error);
PENSTOCK_API penstock_runtime *penstock_runtime_retain(penstock_runtime *runtime);
/* The last release lets the runtime end by itself once its channels and calls have gone. */
PENSTOCK_API void penstock_runtime_release(penstock_runtime *runtime);

/* Host mode: a descriptor that is readable whenever a poll would do work; the runtime's own, not to be closed.
 * E_STATE: not in host mode. */
PENSTOCK_API penstock_result penstock_runtime_fd(penstock_runtime *runtime, int *fd);
/* Host mode: runs one turn: waits up to `timeout_ms` (0: not at all; -1: until there is work) and does all that is
 * ready. E_BUSY: within a callback of this runtime, or timeout_ms is 0 and another thread drives; otherwise it waits
 * for that thread up to timeout_ms, then E_TIMEOUT. E_INTERRUPTED: a signal handler ran. E_CLOSED: shut down, or
 * something in the program has closed descriptors of the runtime. */
PENSTOCK_API penstock_result penstock_runtime_poll(penstock_runtime *runtime, int64_t timeout_ms);

/* What the runtime is at, for when something does not go on:
 * {"complete", "running": null or {"interceptor" (null: a callback of the call's own), "event", "call": an id, "for_ms":
 *  at most so long}, "calls": [{"id", "method", "kind", "target", "age_ms", "deadline_ms", "attempts", "holder",
 *  "outbound", "inbound": as in penstock_call_trace_json}, ...], the latest first}
 * The loop is asked for the calls. If it does not answer within `timeout_ms`, because a callback does not return,
 * "complete" is false, "calls" null, and "running" names the interceptor. Any thread; on the driving thread at once.
 * Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_runtime_snapshot_json(penstock_runtime *runtime, int64_t timeout_ms, char **json);

/* Ends every call with CANCELLED ("runtime shut down"), closes every channel and connection, and joins the threads;
 * waits up to `timeout_ms` (-1: without limit; 0 is enough for a host-driven runtime, which the calling thread ends by
 * itself). E_TIMEOUT: a user's function or the resolver has not returned; what they hold stays until they do, and it may
 * be called again. E_WOULD_DEADLOCK: in a callback, or in the function of a
 * synchronous interceptor of this runtime. E_ALREADY: done. */
PENSTOCK_API penstock_result penstock_runtime_shutdown(penstock_runtime *runtime, int64_t timeout_ms);

/* Registers `interceptor` for calls on every channel of the runtime that are created from now on. The table is
 * borrowed during the call; its user_data is transferred, even on error. Returns E_INVALID_ARGUMENT, E_UNSUPPORTED (a
 * larger struct_size with a tail that is not zero, or flags that this version does not know), E_CLOSED, E_NO_MEMORY.
 * With the functions of registration.h the interceptor is removed, replaced or changed. */
PENSTOCK_API penstock_result penstock_runtime_add_interceptor(penstock_runtime *runtime,
                                                              const penstock_interceptor *interceptor, int32_t priority,
                                                              penstock_interceptor_id *id, penstock_error **error);
/* [{"id", "name", "priority", "place": "runtime" or "channel", "level": "bytes", "object" or "both", "per": "call" or
 * "attempt", "methods", "kinds", "calls_in_flight", "calls_seen"}, ...] in the order that calls meet them. Those of
 * one call (penstock_call_options_add_interceptor) are not in it. The counts are of calls that have it in their chain,
 * whether its `create` declined or not.
 * Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_runtime_interceptors_json(penstock_runtime *runtime, char **json);

#ifdef __cplusplus
}
#endif
#endif
