/* Ready-made interceptors: each function fills a table that is then registered like any other, in any place, with any
 * priority and filter.
 *
 * These rules hold for all of these interceptors, and for that of telemetry.h:
 * - `table` was made with PENSTOCK_INTERCEPTOR_INIT. All of it but its struct_size is overwritten, as far as struct_size
 *   goes. E_INVALID_ARGUMENT: struct_size is too small. E_UNSUPPORTED: struct_size is that of an earlier header, whose
 *   table has no room for a field that the interceptor needs (telemetry's on_pick), or fields are set that this version
 *   does not know. The table is then as it was.
 * - Other fields than user_data, finalizer and callbacks may be changed before the table is registered. As with any
 *   table, the registration takes over its user_data, so register it only once. Free a table that is not registered with
 *   `table.finalizer(table.user_data)`.
 * - penstock_ready_share makes a second table with the same state (one cache, one rate, one token), to be registered
 *   elsewhere.
 * - `options_json` is an object (NUL-terminated) or NULL for the defaults, which the comments show as the options'
 *   values. With E_INVALID_JSON `error` names the JSON path. A percentage is a number from 0 to 100, whole or not.
 * - The `user_data` that a function of this header gets is transferred, even on error.
 * - One interceptor may serve any number of calls, channels and runtimes. docs/ready.md has an example of each.
 */
#ifndef PENSTOCK_READY_H
#define PENSTOCK_READY_H

#include "channel.h"
#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `other` with a second table that shares the state of `table`. `table` was filled by a function of this header
 * and has not been finalized. Either may have the size of an earlier header.
 * result: E_INVALID_ARGUMENT: a NULL, another kind of table, or a struct_size that is too small. E_UNSUPPORTED: `other`
 * has no room for a field that the interceptor needs. E_FORKED: the table of a parent of this process.
 * memory: `table` is borrowed during the call; `other` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_share(const penstock_interceptor *table, penstock_interceptor *other);

/* ---- Bearer token: gets a token, sends it, gets a new one when it has expired or was refused ---- */

/* The number of a request for a token: never 0, and never used again. */
typedef uint64_t penstock_token_request;
/* The user's source of tokens. It runs on the thread that drives the runtime of the call that needs the token, so it
 * must not wait. It answers `request` with penstock_token_complete or penstock_token_fail, at once or later, from any
 * thread. `refused` is the token that the server has refused and that this request is to replace, NULL if no token was
 * refused; it is valid until this function returns. At most one request is open at a time: a request that is not
 * answered ends after refresh_timeout_ms, and the next call makes another. */
typedef void (*penstock_token_source)(penstock_token_request request, const char *refused, void *user_data);

/* Fills `table` with an interceptor that sends a bearer token from `source`. Calls that come while there is no token
 * wait (PAUSE); one request serves them all. A token is kept until it expires. When a call ends with UNAUTHENTICATED,
 * its token is discarded, and the call is started again once, with the next token (RESTART). A call that has the header
 * already is left alone. Options:
 *   "header": "authorization"; "scheme": "Bearer", the word before the token ("": none)
 *   "refresh_early_ms": 60000; how long before a token expires the next token is asked for, while the old token is
 *     still used (at most half of the token's lifetime)
 *   "refresh_timeout_ms": 30000; how long a call waits for a token before it ends with UNAVAILABLE; 0: without limit
 *   "replay_bytes": 65536, as in penstock_interceptor: a call that has sent more is not started again
 *   "allow_cleartext": false; a call on a channel without TLS ends with UNAUTHENTICATED, and no token is asked for,
 *       also if a hop below redirects the call to such a channel (penstock_request_set_channel). A unix socket counts
 *       as TLS
 * result: E_INVALID_ARGUMENT: `source` or `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `user_data` is transferred, even on error: the `finalizer`
 * (nullable) gets it when the last table has been freed. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_bearer_token(const char *options_json, penstock_token_source source,
                                                         void *user_data, penstock_finalizer finalizer,
                                                         penstock_interceptor *table, penstock_error **error);
/* Answers `request` with `token` (NUL-terminated), which is valid for `expires_in_ms` milliseconds from now; -1: until
 * a server refuses it; 0: only for the calls that wait now.
 * result: E_INVALID_ARGUMENT: `request` is 0, `token` is NULL or has characters that a header can't have, or
 * `expires_in_ms` is less than -1; the request stays open. E_ALREADY: the request has been answered, or another has
 * replaced it. E_GONE: its interceptor has been freed, or a forked child answers. E_NO_MEMORY: the request stays open.
 * memory: `token` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_token_complete(penstock_token_request request, const char *token,
                                                     int64_t expires_in_ms);
/* Answers `request` with a failure. The calls that wait end with `code` (1-16) and `message` (NULL is ""); a call whose
 * token the server refused keeps its UNAUTHENTICATED. The next call makes another request.
 * result: E_INVALID_ARGUMENT: `request` is 0, or `code` is outside 1-16. E_ALREADY, E_GONE, E_NO_MEMORY: as
 * penstock_token_complete.
 * memory: `message` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_token_fail(penstock_token_request request, int32_t code, const char *message);

/* Fills `table` with the interceptor of penstock_ready_bearer_token, whose tokens stand in a file that is replaced from
 * time to time, such as the token of a service account in a pod of Kubernetes. The file is a regular one and has the
 * token alone, with blanks or line ends around it or without, at most 65536 bytes. It is read on the thread that drives
 * the runtime: before the first call, with a call when the token is older than "reread_ms", and when the server has
 * refused the token. A call that comes while the file can't be read, and there is no token, ends with UNAVAILABLE, which
 * names the file and the reason. Options:
 *   "file": the path; required
 *   "reread_ms": 60000; how old a token may be before the file is read again (1 to 86400000). If it can't be read then,
 *       the old token is used for as long again
 *   "header", "scheme", "replay_bytes", "allow_cleartext": as in penstock_ready_bearer_token
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option, or "file" is missing.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_token_file(const char *options_json, penstock_interceptor *table,
                                                       penstock_error **error);

/* ---- Logging: each event as a line of JSON ---- */

/* Takes one line of the log: `line` is a JSON object without a line end, of `length` bytes and a NUL, borrowed during
 * the call. It runs on the thread that runs the event's callback; if several runtimes share the interceptor, on several
 * threads at once. */
typedef void (*penstock_log_line)(const char *line, size_t length, void *user_data);

/* Fills `table` with an interceptor that gives each event to `write`. A line has "time_ms" (since 1970), "call"
 * (penstock_hop_call_id), "event" and "method". Some events add to this: "start" adds "kind", "target" and "metadata";
 * "headers" adds "peer" and "metadata"; "send" and "receive" add "bytes"; "cancel" adds "code", "name", "message",
 * "elapsed_us", "attempts" (how often the call was sent), "waited_us" ({"name", "connection", "slot"}: how long it waited
 * for each) and "peer" (the server's address, or null); "status" adds the same and "metadata". Options:
 *   "events": ["start", "headers", "status", "cancel"]; any of these and of "send", "half_close" and "receive"
 *   "redact": ["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"]; the values of these names
 *       are shown as "redacted"
 *   "redact_binary": false; true redacts the values of names that end in "-bin", too
 *   "metadata": true; whether lines have "metadata"
 *   "messages": "sizes"; with "none" the lines of "send" and "receive" have no "bytes"
 *   "channel": "warning"; the least level of the channel's events that are logged, too, as lines in the form of "json"
 *       in penstock_connection_event: "debug", "info", "warning", "error", or "none"
 * result: E_INVALID_ARGUMENT: `write` or `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `user_data` is transferred, even on error: the `finalizer`
 * (nullable) gets it when the last table has been freed. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_logging(const char *options_json, penstock_log_line write, void *user_data,
                                                    penstock_finalizer finalizer, penstock_interceptor *table,
                                                    penstock_error **error);

/* ---- Metrics: counters, and histograms of how long calls took, by method and code ---- */

typedef struct penstock_metrics penstock_metrics;
/* Makes counters with the options in `options_json`:
 *   "buckets_ms": [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000]; the upper bounds of the histograms' buckets,
 *       rising, at most 64
 *   "max_methods": 256; calls of further methods, counted for each target, are counted together as "other"
 *   "max_peers": 256; further servers are counted together as "other"
 * result: E_INVALID_ARGUMENT: `metrics` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call; *metrics is owned by the caller; free with
 * penstock_metrics_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_metrics_new(const char *options_json, penstock_metrics **metrics,
                                                  penstock_error **error);
/* Adds a reference to `metrics`.
 * result: `metrics`; NULL for NULL.
 * memory: the reference is given back with penstock_metrics_release.
 * threads: any */
PENSTOCK_API penstock_metrics *penstock_metrics_retain(penstock_metrics *metrics);
/* Gives a reference back. Interceptors that count into the metrics go on counting. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_metrics_release(penstock_metrics *metrics);
/* Fills `table` with an interceptor that counts into `metrics`. Any number of tables may share the same metrics.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED: the metrics of a parent of this process.
 * memory: `metrics` is retained; `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_metrics(penstock_metrics *metrics, penstock_interceptor *table);
/* Gives the counters as JSON: {"methods": [{"method", "target", "kind", "started", "in_flight", "sent": {"messages", "bytes"},
 * "received": {as sent}, "codes": [{"code", "name", "count", "seconds", "buckets": [{"le_ms", "count"}]}]}],
 * "peers": [{"target", "peer", "codes": [{"code", "name", "count"}], "connections": {"opened", "lost", "failed"}}]}; each
 * bucket's count includes those before it, and the last bucket has "le_ms": null. "peer" is "none" for calls that had no
 * server.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED: the metrics of a parent of this process. E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_metrics_snapshot_json(penstock_metrics *metrics, char **json);
/* Gives the counters in Prometheus' text format 0.0.4: grpc_client_started_total, grpc_client_handled_total,
 * grpc_client_msg_sent_total, grpc_client_msg_received_total, grpc_client_handling_seconds and grpc_client_in_flight, with
 * the labels grpc_type, grpc_service, grpc_method and grpc_target, and for handled and handling_seconds also grpc_code;
 * grpc_client_peer_handled_total, with grpc_target, grpc_peer and grpc_code; grpc_client_connections_opened_total,
 * grpc_client_connections_lost_total and grpc_client_connect_failures_total, with grpc_target and grpc_peer.
 * result: as penstock_metrics_snapshot_json.
 * memory: *text is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_metrics_prometheus_text(penstock_metrics *metrics, char **text);

/* ---- W3C trace context (level 1): traceparent and tracestate ---- */

/* Fills `table` with an interceptor that carries the trace context. A valid traceparent in the request's metadata is
 * passed on, with its tracestate; without a valid one a new trace begins, without tracestate. The traceparent that is
 * sent is also the call's value "penstock.traceparent", a string. Options:
 *   "sampled": 100; the percentage of the traces beginning here that are marked as sampled
 *   "parent_id": "new": a traceparent that is passed on gets a new parent-id; with "keep" it keeps its own
 *   "seed": a number from 0, with which the same ids are made each time; without it they are random
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_trace_context(const char *options_json, penstock_interceptor *table,
                                                          penstock_error **error);

/* ---- Response cache: unary calls ---- */

/* Fills `table` with a cache. It answers a call that has the same method, request bytes and chosen metadata as an
 * earlier call, with the headers, message, status and trailers of the earlier response, if that was OK. The call's
 * value "penstock.cache" is then the string "hit". To keep methods out of the cache, use the table's `methods`.
 * Options:
 *   "ttl_ms": 60000; how long a response may be used
 *   "max_entries": 1024, "max_bytes": 16777216; how many responses, and how many bytes of them, are kept: the least
 *       recently used are dropped first
 *   "metadata": ["authorization"]; names of the request's metadata: a call must have the same values of them as the
 *       earlier call
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_response_cache(const char *options_json, penstock_interceptor *table,
                                                           penstock_error **error);

/* ---- Rate limit: a token bucket that lets calls wait ---- */

/* Fills `table` with a rate limit. A call that comes too early waits its turn (PAUSE). A call that would have to wait
 * too long, or behind too many others, ends at once. Options:
 *   "rate": calls per second, a number from 0.001 to 1000000; must be given
 *   "burst": how many calls may start at once after a quiet time (default: the rate, rounded up)
 *   "max_wait_ms": 1000, "max_waiting": 1000; how long a call may wait, and behind how many others; 0: no call waits
 *   "code": "RESOURCE_EXHAUSTED"; the status of calls that end at once, by name or number
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_rate_limit(const char *options_json, penstock_interceptor *table,
                                                       penstock_error **error);

/* ---- Hedging: sends a unary call again while it has no answer ---- */

/* Fills `table` with an interceptor that sends a unary call several times, and takes the first answer (gRFC A6,
 * "Hedging Policy"). It takes the call: each attempt is a side call with the same start, message, deadline and context,
 * through the hops below. An attempt that ends with OK, or with a code that is not in "non_fatal_codes", decides the
 * call, and the other attempts are cancelled. After a code that is in it, the next attempt is sent at once, or when the
 * server's "grpc-retry-pushback-ms" says. If all attempts fail, the call ends as the last one. From the second attempt
 * on, the server is told in "grpc-previous-rpc-attempts" how many came before. `other` (nullable) is a channel of the
 * same runtime and loop to which the attempts after the first go, as after penstock_request_set_channel; on any other
 * loop or runtime calls end with FAILED_PRECONDITION. It must not be the channel on which the table is registered, nor
 * one whose interceptors lead back here (two channels that hedge to each other): each would keep the other until one is
 * closed or the interceptor is removed. On a runtime the table keeps the runtime, by `other`, until that is shut down or
 * the interceptor is removed. An attempt that ends because `other` is closed, or for lack of memory, counts as failed,
 * whatever "non_fatal_codes" has.
 * The call's value "penstock.hedging" is a JSON text once the call has been decided: {"sent", "won": the number of the
 * attempt that has decided the call, from 1; 0: all have failed, "cancelled"}. A call of another kind than unary, if the
 * table's `kinds` is changed, ends with UNIMPLEMENTED; at the object level a call ends with INTERNAL.
 * Options:
 *   "max_attempts": 2; how often a call is sent at most, 2 to 5
 *   "delay_ms": 100; how long an attempt may have no answer before the next one is sent; 0: all are sent at once
 *   "non_fatal_codes": ["UNAVAILABLE"]; codes by name or number; may be empty
 *   "throttle": {"max_tokens": 10, "token_ratio": 0.1}; an attempt that fails takes a token, one that succeeds brings
 *       "token_ratio" of one back, and with half of the tokens or fewer only first attempts are sent. Absent: no throttle
 *       but "retryThrottling" of the channel's service config, which holds further attempts back in any case
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option. E_FORKED: the channel of a parent of this
 * process.
 * memory: `options_json` is borrowed during the call. `other` is retained until the last table has been freed. `table`
 * is the caller's until it is registered; the head of this file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_hedging(const char *options_json, penstock_channel *other,
                                                    penstock_interceptor *table, penstock_error **error);
/* Gives the figures of the interceptor of `table` as JSON: {"calls", "sent": the attempts that were sent; of them are
 * "open", "won": have decided a call, "failed", "cancelled": because another attempt has won or the call has ended;
 * "hedges": the attempts after the first of a call, "hedges_won"; "throttled": calls that were not sent again because
 * of a throttle, "refused": because of the server; "throttle": as in penstock_channel_stats_json, or null}. `table` was
 * filled by penstock_ready_hedging or penstock_ready_share, and has not been finalized: keep a shared table for this.
 * result: E_INVALID_ARGUMENT: a NULL, another kind of table, or a struct_size that is too small. E_FORKED: the table of
 * a parent of this process. E_NO_MEMORY.
 * memory: `table` is borrowed during the call; *json is owned by the caller; free with penstock_free.
 * threads: any */
PENSTOCK_API penstock_result penstock_hedging_stats_json(const penstock_interceptor *table, char **json);

/* ---- Fault injection ---- */

/* Fills `table` with an interceptor that delays calls before anything is sent, ends them, or both. Options:
 *   "delay": {"ms": 0, "percent": 100}; how long calls are delayed, and what percentage of them. Absent: none
 *   "abort": {"code": "UNAVAILABLE", "message": "injected fault", "percent": 100}; the status with which calls end, and
 *       what percentage of them. Absent: none
 *   "seed": a number from 0, with which the same faults come each time; without it they are random
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_fault_injection(const char *options_json, penstock_interceptor *table,
                                                            penstock_error **error);

/* ---- Header rules: change metadata ---- */

/* Fills `table` with rules for metadata. Options: "request", "headers" and "trailers", each a list of rules that are
 * applied in order:
 *   {"set": "name", "value": "text"}   one value instead of any others
 *   {"add": "name", "value": "text"}   one more value
 *   {"remove": "name"}                 no value any more
 *   {"rename": "name", "to": "other"}  the values go to the other name
 * The value of a "-bin" name is base64.
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_header_rules(const char *options_json, penstock_interceptor *table,
                                                         penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
