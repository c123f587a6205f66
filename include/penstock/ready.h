/* Ready-made interceptors: each function fills a table that is then registered like any other, in any place, with any
 * priority and filter.
 *
 * What the eight have in common:
 * - `table` is overwritten whole, struct_size included; name, methods and kinds may be changed before it is registered.
 *   Its user_data goes with the registration, as that of any table does: register it once. A table that is not
 *   registered is freed by `table.finalizer(table.user_data)`.
 * - penstock_ready_share makes a second table of the same state (one cache, one rate, one token) for another place.
 * - `options_json` is an object (NUL-terminated) or NULL for the defaults. With E_INVALID_JSON `error` names the JSON
 *   path. A percentage is a number from 0 to 100, whole or not.
 * - A `user_data` that is given here is transferred, even on error.
 * - They may be shared by any number of calls, channels and runtimes. docs/ready.md has an example of each.
 */
#ifndef PENSTOCK_READY_H
#define PENSTOCK_READY_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `other` with another table of the same interceptor as `table`, which was filled by a function of this header
 * and has not been finalized: both have the same state.
 * result: E_INVALID_ARGUMENT: a NULL, or another kind of table. E_FORKED: the table of a parent of this process.
 * memory: `table` is borrowed during the call; `other` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_share(const penstock_interceptor *table, penstock_interceptor *other);

/* ---- Bearer token: gets a token, sends it, gets a new one when it has expired or was refused ---- */

/* The number of a request for a token: never 0, and never used again. */
typedef uint64_t penstock_token_request;
/* The user's source of tokens. It runs on the thread that drives the runtime of the call that needs the token: it must
 * not wait. It answers `request`, at once or later, from any thread. `refused` is the token that the server has refused
 * and that this request is to replace, borrowed during the call; NULL where it is about none. At most one request is
 * open at a time: one that is not answered ends with refresh_timeout_ms, and the next call makes another. */
typedef void (*penstock_token_source)(penstock_token_request request, const char *refused, void *user_data);

/* Fills `table` with a bearer token of `source`. Calls that come while there is no token wait (PAUSE); one request
 * serves them all. A token is kept until it expires. UNAUTHENTICATED throws the token away that was sent; the call is
 * started anew once, with the next token (RESTART). A call that brings the header itself is left alone. Options:
 *   "header": "authorization"; "scheme": "Bearer", what stands before the token ("" is nothing)
 *   "refresh_early_ms": 60000; so long before it expires a new token is asked for, while the old one is used still
 *       (at most half of the token's time)
 *   "refresh_timeout_ms": 30000; how long a call waits for a token: then it ends with UNAVAILABLE. 0: without end
 *   "replay_bytes": 65536, as in penstock_interceptor: a call that has sent more is not started anew
 *   "allow_cleartext": false; a call on a channel without TLS ends with UNAUTHENTICATED, and no token is asked for,
 *       also where a hop below sends it there (penstock_request_set_channel). A unix socket is as good as TLS
 * result: E_INVALID_ARGUMENT: `source` or `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `user_data` is transferred, even on error: the `finalizer`
 * (nullable) gets it when the last table has gone. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_bearer_token(const char *options_json, penstock_token_source source,
                                                         void *user_data, penstock_finalizer finalizer,
                                                         penstock_interceptor *table, penstock_error **error);
/* Answers `request` with `token` (NUL-terminated), good for `expires_in_ms` milliseconds from now; -1: until it is
 * refused, 0: for the calls that wait now.
 * result: E_INVALID_ARGUMENT: 0, NULL, less than -1, or not what a header may have; the request stays open. E_ALREADY:
 * it has been answered, or another has been made in its place. E_GONE: its interceptor has been freed, or it is a
 * forked child that answers. E_NO_MEMORY: the request stays open.
 * memory: `token` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_token_complete(penstock_token_request request, const char *token,
                                                     int64_t expires_in_ms);
/* Answers `request`: there is no token. The calls that wait end with `code` (1-16) and `message` (NULL is ""); one that
 * was refused keeps its UNAUTHENTICATED. The next call asks again.
 * result: E_INVALID_ARGUMENT: 0, or another code; else as penstock_token_complete.
 * memory: `message` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_token_fail(penstock_token_request request, int32_t code, const char *message);

/* ---- Logging: each event as a line of JSON ---- */

/* `line` is a JSON object without a line end, NUL-terminated behind its `length` bytes; borrowed during the call. On
 * the thread that runs the event's callback; several at a time where several runtimes share it. */
typedef void (*penstock_log_line)(const char *line, size_t length, void *user_data);

/* Fills `table` with an interceptor that gives each event to `write`. A line has "time_ms" (since 1970), "call"
 * (penstock_hop_call_id), "event", "method"; for "start" "kind", "target" and "metadata"; for "headers" "metadata"; for
 * "send" and "receive" "bytes"; for "status" and "cancel" "code", "name", "message", "elapsed_us" and (status)
 * "metadata". Options:
 *   "events": ["start", "headers", "status", "cancel"]; of these, "send", "half_close" and "receive"
 *   "redact": ["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"]; their values are shown as
 *       "redacted"
 *   "redact_binary": false; those of names that end with "-bin", too
 *   "metadata": true
 *   "messages": "sizes" or "none": whether "send" and "receive" tell "bytes"
 * result: E_INVALID_ARGUMENT: `write` or `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `user_data` is transferred, even on error: the `finalizer`
 * (nullable) gets it when the last table has gone. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_logging(const char *options_json, penstock_log_line write, void *user_data,
                                                    penstock_finalizer finalizer, penstock_interceptor *table,
                                                    penstock_error **error);

/* ---- Metrics: counters, and histograms of how long calls took, by method and code ---- */

typedef struct penstock_metrics penstock_metrics;
/* Makes counters by the options in `options_json`:
 *   "buckets_ms": [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000]; upper bounds, rising, at most 64
 *   "max_methods": 256; calls of more methods are counted together as "other"
 * result: E_INVALID_ARGUMENT: `metrics` is NULL. E_INVALID_JSON: what the options may not have.
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
/* Gives a reference back. Tables that count into the metrics go on. NULL does nothing.
 * result: none.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_metrics_release(penstock_metrics *metrics);
/* Fills `table` with an interceptor that counts into `metrics`: any number of tables may.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED: the metrics of a parent of this process.
 * memory: the table retains the metrics; it is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_metrics(penstock_metrics *metrics, penstock_interceptor *table);
/* Gives the counters as JSON: {"methods": [{"method", "kind", "started", "in_flight", "sent": {"messages", "bytes"},
 * "received": {as sent}, "codes": [{"code", "name", "count", "seconds", "buckets": [{"le_ms", "count"}]}]}]}; bucket
 * counts add up, the last has "le_ms": null.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED: the metrics of a parent of this process. E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any, while calls run */
PENSTOCK_API penstock_result penstock_metrics_snapshot_json(penstock_metrics *metrics, char **json);
/* Gives the counters in Prometheus' text format 0.0.4: grpc_client_started_total, grpc_client_handled_total,
 * grpc_client_msg_sent_total, grpc_client_msg_received_total, grpc_client_handling_seconds, with the labels grpc_type,
 * grpc_service, grpc_method and (handled, handling_seconds) grpc_code.
 * result: as penstock_metrics_snapshot_json.
 * memory: *text is owned by the caller; free with penstock_free.
 * threads: any, while calls run */
PENSTOCK_API penstock_result penstock_metrics_prometheus_text(penstock_metrics *metrics, char **text);

/* ---- W3C trace context (level 1): traceparent and tracestate ---- */

/* Fills `table` with an interceptor that carries the trace context. A valid traceparent in the request's metadata is
 * passed on, with its tracestate; without one, or with an invalid one, a new trace begins, without tracestate. What is
 * sent is also the call's value "penstock.traceparent", a string. Options:
 *   "sampled": 100; how many percent of the traces that begin here are sampled
 *   "parent_id": "new" or "keep": whether what is passed on gets a parent-id of its own
 *   "seed": a number from 0; for the same numbers each time
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_trace_context(const char *options_json, penstock_interceptor *table,
                                                          penstock_error **error);

/* ---- Response cache: unary calls ---- */

/* Fills `table` with a cache. It answers a call whose method, request bytes and chosen metadata are those of one
 * before, from OK responses only: headers, message, status and trailers as they came. The call's value "penstock.cache"
 * is then the string "hit". What must not be cached is kept out by the table's `methods`. Options:
 *   "ttl_ms": 60000; "max_entries": 1024, "max_bytes": 16777216: the least recently used go first
 *   "metadata": ["authorization"]; request metadata whose values belong to the key
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_response_cache(const char *options_json, penstock_interceptor *table,
                                                           penstock_error **error);

/* ---- Rate limit: a token bucket that lets calls wait ---- */

/* Fills `table` with a rate limit. A call that comes too early waits its turn (PAUSE). One that would have to wait too
 * long, or behind too many, ends at once. Options:
 *   "rate": calls per second, a number from 0.001 to 1000000; must be given
 *   "burst": how many may start at once after a quiet time; the rate, rounded up
 *   "max_wait_ms": 1000; "max_waiting": 1000; 0: nobody waits
 *   "code": "RESOURCE_EXHAUSTED" or another status, by name or number
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_rate_limit(const char *options_json, penstock_interceptor *table,
                                                       penstock_error **error);

/* ---- Fault injection ---- */

/* Fills `table` with an interceptor that delays calls before anything is sent, or
 * ends them, or one after the other. Options:
 *   "delay": {"ms": 0, "percent": 100}
 *   "abort": {"code": "UNAVAILABLE", "message": "injected fault", "percent": 100}
 *   "seed": a number from 0; for the same faults each time
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_fault_injection(const char *options_json, penstock_interceptor *table,
                                                            penstock_error **error);

/* ---- Header rules: change metadata ---- */

/* Fills `table` with rules for metadata. Options: "request", "headers" and "trailers", each a list of rules that are
 * applied in order:
 *   {"set": "name", "value": "text"}   one value instead of any others
 *   {"add": "name", "value": "text"}   a value more
 *   {"remove": "name"}
 *   {"rename": "name", "to": "other"}
 * The value of a "-bin" name is base64.
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: what the options may not have.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered; the head of this
 * file says who frees it then.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_header_rules(const char *options_json, penstock_interceptor *table,
                                                         penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
