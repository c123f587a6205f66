/* Runtime: owns an event loop, which has a thread of its own or is driven by the host program. An option makes several
 * loops.
 *
 * One thread at a time drives a loop: its own thread, a thread that waits in a blocking call, or one in
 * penstock_runtime_poll. Callbacks run on the thread that drives the loop. A new channel is put on the loop that has
 * the fewest channels, and stays there with all of its calls.
 */
#ifndef PENSTOCK_RUNTIME_H
#define PENSTOCK_RUNTIME_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_runtime penstock_runtime;

/* Makes a runtime. `options` is a JSON object (NUL-terminated) or NULL; numbers in parentheses are defaults:
 *   "mode": "thread" (default): the runtime has a thread of its own; "host": the program calls penstock_runtime_poll
 *   "caller_drives": true (default): the thread of a blocking call may drive the loop, as long as few threads wait at
 *     once; in host mode it always may
 *   "linger_us": how many microseconds the loop stays free for the next blocking call before the runtime's thread takes
 *     it back (200); up to 16 times as long after a series of calls, but never past the time when a timer is due. A
 *     send or a cancel from a thread that does not wait may be delayed this long
 *   "spin_us": how many microseconds a blocking call that drives the loop polls for a response before it sleeps (0; up
 *     to 1000000): this lowers latency and costs CPU time; use it only if a core is free
 *   "max_workers": how many threads of the runtime may run the functions of synchronous interceptors, for calls whose
 *     own thread does not (32; 1 to 1024). They start when there is work for them, and end after a while without work;
 *     see sync.h
 *   "loops": how many loops drive the runtime's channels, each with a thread of its own (1; 1 to 64; in mode "host"
 *     only 1). With several loops callbacks run on several threads at once, also those of one interceptor, though one
 *     at a time for each channel; a call can be redirected only to a channel of its own loop; and functions that wait
 *     give PENSTOCK_E_WOULD_DEADLOCK on a thread that drives any of the loops
 * result: E_INVALID_ARGUMENT. E_INVALID_JSON: `error` names the JSON path. E_SYSTEM (descriptors, threads).
 * memory: *runtime is owned by the caller; free with penstock_runtime_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_runtime_new(const char *options, penstock_runtime **runtime,
                                                  penstock_error **error);
/* Gives the default runtime: the runtime of channels that name none. It is made at its first use, and ends when nothing
 * uses it any more.
 * result: E_SYSTEM (descriptors, threads).
 * memory: *runtime is owned by the caller; free with penstock_runtime_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_runtime_default(penstock_runtime **runtime, penstock_error **error);
/* Adds a reference to `runtime`.
 * result: `runtime`; NULL for NULL.
 * memory: the reference is given back with penstock_runtime_release.
 * threads: any */
PENSTOCK_API penstock_runtime *penstock_runtime_retain(penstock_runtime *runtime);
/* Gives a reference back. After the last release the runtime ends by itself once its channels and calls have been
 * freed. Host mode: calls under way and the closing of a channel need polls until then, so end what is left by
 * penstock_runtime_shutdown before the last release. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_runtime_release(penstock_runtime *runtime);

/* Host mode: gives in *fd a descriptor that is readable whenever a poll would do work.
 * result: E_STATE: not in host mode. E_CLOSED: shut down.
 * memory: the descriptor is the runtime's own, not to be closed.
 * threads: any */
PENSTOCK_API penstock_result penstock_runtime_fd(penstock_runtime *runtime, int *fd);
/* Host mode: runs one turn of the loop: waits up to `timeout_ms` milliseconds (0: not at all; -1: until there is work)
 * and does all the work that is ready.
 * result: E_BUSY: called in a callback of this runtime, or timeout_ms is 0 and another thread drives. E_TIMEOUT:
 * another thread has been driving for all of timeout_ms. E_INTERRUPTED: a signal handler ran. E_STATE: not in host
 * mode. E_CLOSED: shut down, or something in the program has closed descriptors of the runtime.
 * memory: none.
 * threads: any; not in a callback of the runtime. */
PENSTOCK_API penstock_result penstock_runtime_poll(penstock_runtime *runtime, int64_t timeout_ms);

/* Writes as JSON a snapshot for diagnosing hangs:
 * {"complete", "running": null or {"interceptor" (null: a callback of the call itself), "event", "call": an id,
 *  "for_ms": how long the callback has run at most}, "calls": [{"id", "method", "kind", "target", "age_ms",
 *  "deadline_ms", "attempts", "protocol", "http", "connection_silent_ms", "peer", "local", "holder", "outbound",
 *  "inbound": as in penstock_call_trace_json}, ...], the newest call first, "channels": [as in
 *  penstock_channel_stats_json, ...]}
 * The loop is asked for the calls and channels. If it does not answer within `timeout_ms`, because a callback does not
 * return, "complete" is false, "calls" and "channels" are null, and "running" names the interceptor. Several loops are
 * asked in turn, and share the time: "calls" and "channels" then have those of the loops that answer, loop by loop.
 * result: E_NO_MEMORY, E_FORKED.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any; on the driving thread of the only loop it returns at once. */
PENSTOCK_API penstock_result penstock_runtime_snapshot_json(penstock_runtime *runtime, int64_t timeout_ms, char **json);

/* Ends every call with CANCELLED ("runtime shut down"), closes every channel and connection, and joins the threads;
 * waits up to `timeout_ms` milliseconds (-1: without limit; 0 is enough for a host-driven runtime, which the calling
 * thread itself ends).
 * result: E_TIMEOUT: a user's function or the resolver has not returned; its resources are freed when it returns, and
 * this function may be called again. E_WOULD_DEADLOCK: in a callback, or in the function of a synchronous interceptor
 * of this runtime. E_ALREADY: done.
 * memory: none.
 * threads: any; not in a callback of the runtime. */
PENSTOCK_API penstock_result penstock_runtime_shutdown(penstock_runtime *runtime, int64_t timeout_ms);

/* Registers `interceptor` with `priority` for calls on every channel of the runtime that are created from now on. *id
 * names the registration; with the functions of registration.h the interceptor is removed, replaced or changed.
 * result: E_INVALID_ARGUMENT (a malformed pattern, per_attempt without a hop at the bytes level). E_UNSUPPORTED: a
 * level that this version does not know, or fields that it does not know are set. E_CLOSED. E_NO_MEMORY.
 * memory: the table is borrowed during the call; its user_data is transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_runtime_add_interceptor(penstock_runtime *runtime,
                                                              const penstock_interceptor *interceptor, int32_t priority,
                                                              penstock_interceptor_id *id, penstock_error **error);
/* Lists as JSON the interceptors of the runtime:
 * [{"id", "name", "priority", "place": "runtime" or "channel", "level": "bytes", "object" or "both", "per": "call" or
 * "attempt", "methods", "kinds", "calls_in_flight", "calls_seen"}, ...] in the order that calls meet them. Interceptors
 * of call options (penstock_call_options_add_interceptor) are not listed. The counts include every call whose chain has
 * the interceptor, also if its `create` returned PENSTOCK_SKIP.
 * result: E_NO_MEMORY, E_FORKED.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any */
PENSTOCK_API penstock_result penstock_runtime_interceptors_json(penstock_runtime *runtime, char **json);

#ifdef __cplusplus
}
#endif
#endif
