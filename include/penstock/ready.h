/* Ready-made interceptors: each function fills a table that is then registered like any other, in any place, with any
 * priority and filter.
 *
 * What the eight have in common:
 * - `table` is overwritten whole, struct_size included; name, methods and kinds may be changed before it is registered.
 *   Its user_data goes with the registration, as that of any table does: register it once. A table that is not
 *   registered is freed by `table.finalizer(table.user_data)`.
 * - penstock_ready_share makes a second table of the same state (one cache, one rate, one token) for another place.
 * - `options_json` is an object (NUL-terminated, borrowed during the call) or NULL for the defaults. E_INVALID_JSON
 *   names the JSON path. A percentage is a number from 0 to 100, whole or not.
 * - A `user_data` that is given here is transferred, even on error.
 * - They may be shared by any number of calls, channels and runtimes. docs/ready.md has an example of each.
 */
#ifndef PENSTOCK_READY_H
#define PENSTOCK_READY_H

#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `other` with another table of what `table` (filled by a function of this header, and not finalized) stands
 * for: both have the same state. E_INVALID_ARGUMENT: another kind of table. E_FORKED: one of this process's parent. */
PENSTOCK_API penstock_result penstock_ready_share(const penstock_interceptor *table, penstock_interceptor *other);

/* ---- Bearer token: gets a token, sends it, gets a new one when it has expired or was refused ---- */

/* One token that is asked for. */
typedef struct penstock_token_request penstock_token_request;
/* The user's source of tokens. It runs on the thread that drives the runtime of the call that needs the token: it must
 * not wait. It answers `request`, at once or later, from any thread; `request` is borrowed during the call, retain it
 * to answer later. At most one request is open at a time. */
typedef void (*penstock_token_source)(penstock_token_request *request, void *user_data);

/* Calls that come while there is no token wait (PAUSE); one request serves them all. A token is kept until it expires.
 * UNAUTHENTICATED throws the token away that was sent; the call is started anew once, with the next token (RESTART).
 * A call that brings the header itself is left alone. Options:
 *   "header": "authorization"; "scheme": "Bearer", what stands before the token ("" is nothing)
 *   "refresh_early_ms": 60000; so long before it expires a new token is asked for, while the old one is used still
 *       (at most half of the token's time)
 *   "refresh_timeout_ms": 30000; how long a call waits for a token: then it ends with UNAVAILABLE. 0: without end
 *   "replay_bytes": 65536, as in penstock_interceptor: a call that has sent more is not started anew
 *   "allow_cleartext": false; a call on a channel without TLS ends with UNAUTHENTICATED, and no token is asked for, also
 *       where a hop below sends it there (penstock_hop_set_channel). A unix socket is as good as TLS */
PENSTOCK_API penstock_result penstock_ready_bearer_token(const char *options_json, penstock_token_source source,
                                                         void *user_data, penstock_finalizer finalizer,
                                                         penstock_interceptor *table, penstock_error **error);
/* The token that the server has refused and that this request is to replace; NULL where it is about none. Lives as
 * long as the request. */
PENSTOCK_API const char *penstock_token_request_refused(const penstock_token_request *request);
/* Answers with a token (NUL-terminated, copied), good for `expires_in_ms` from now; -1: until it is refused, 0: for the
 * calls that wait now. E_INVALID_ARGUMENT: not what a header may have; the request stays open. E_ALREADY: answered. */
PENSTOCK_API penstock_result penstock_token_request_complete(penstock_token_request *request, const char *token,
                                                             int64_t expires_in_ms);
/* Answers that there is none: the calls that wait end with `code` (1-16) and `message` (copied; NULL is ""); one that
 * was refused keeps its UNAUTHENTICATED. The next call asks again. E_ALREADY: answered. */
PENSTOCK_API penstock_result penstock_token_request_fail(penstock_token_request *request, int32_t code,
                                                         const char *message);
PENSTOCK_API penstock_token_request *penstock_token_request_retain(penstock_token_request *request);
/* The last release of a request that was not answered fails it with UNAVAILABLE. */
PENSTOCK_API void penstock_token_request_release(penstock_token_request *request);

/* ---- Logging: each event as a line of JSON ---- */

/* `line` is a JSON object without a line end, NUL-terminated behind its `length` bytes; borrowed during the call. On
 * the thread that runs the event's callback; several at a time where several runtimes share it. */
typedef void (*penstock_log_line)(const char *line, size_t length, void *user_data);

/* A line has "time_ms" (since 1970), "call" (penstock_hop_call_id), "event", "method"; for "start" "kind", "target" and
 * "metadata"; for "headers" "metadata"; for "send" and "receive" "bytes"; for "status" and "cancel" "code", "name",
 * "message", "elapsed_us" and (status) "metadata". Options:
 *   "events": ["start", "headers", "status", "cancel"]; of these, "send", "half_close" and "receive"
 *   "redact": ["authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"]; their values are shown as
 *       "redacted"
 *   "redact_binary": false; those of names that end with "-bin", too
 *   "metadata": true
 *   "messages": "sizes" or "none": whether "send" and "receive" tell "bytes" */
PENSTOCK_API penstock_result penstock_ready_logging(const char *options_json, penstock_log_line write, void *user_data,
                                                    penstock_finalizer finalizer, penstock_interceptor *table,
                                                    penstock_error **error);

/* ---- Metrics: counters, and histograms of how long calls took, by method and code ---- */

typedef struct penstock_metrics penstock_metrics;
/* Options:
 *   "buckets_ms": [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000]; upper bounds, rising, at most 64
 *   "max_methods": 256; calls of more methods are counted together as "other"
 * Memory: owned by the caller; free with penstock_metrics_release. */
PENSTOCK_API penstock_result penstock_metrics_new(const char *options_json, penstock_metrics **metrics,
                                                  penstock_error **error);
PENSTOCK_API penstock_metrics *penstock_metrics_retain(penstock_metrics *metrics);
PENSTOCK_API void penstock_metrics_release(penstock_metrics *metrics);
/* A table that counts into `metrics`, which it retains; for any number of places. E_FORKED: they are the parent's. */
PENSTOCK_API penstock_result penstock_ready_metrics(penstock_metrics *metrics, penstock_interceptor *table);
/* {"methods": [{"method", "kind", "started", "in_flight", "sent": {"messages", "bytes"}, "received": {the same},
 *  "codes": [{"code", "name", "count", "seconds", "buckets": [{"le_ms", "count"}]}]}]}; bucket counts add up, the last
 * has "le_ms": null. Any thread, while calls run. E_FORKED. Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_metrics_snapshot_json(penstock_metrics *metrics, char **json);
/* The same in Prometheus' text format 0.0.4: grpc_client_started_total, grpc_client_handled_total,
 * grpc_client_msg_sent_total, grpc_client_msg_received_total, grpc_client_handling_seconds, with the labels grpc_type,
 * grpc_service, grpc_method and (handled, handling_seconds) grpc_code. */
PENSTOCK_API penstock_result penstock_metrics_prometheus_text(penstock_metrics *metrics, char **text);

/* ---- W3C trace context (level 1): traceparent and tracestate ---- */

/* A valid traceparent in the request's metadata is passed on, with its tracestate; without one, or with an invalid one,
 * a new trace begins, without tracestate. What is sent is also the call's value "penstock.traceparent", a string. Options:
 *   "sampled": 100; how many percent of the traces that begin here are sampled
 *   "parent_id": "new" or "keep": whether what is passed on gets a parent-id of its own
 *   "seed": a number from 0; for the same numbers each time */
PENSTOCK_API penstock_result penstock_ready_trace_context(const char *options_json, penstock_interceptor *table,
                                                          penstock_error **error);

/* ---- Response cache: unary calls ---- */

/* Answers a call whose method, request bytes and chosen metadata are those of one before, from OK responses only:
 * headers, message, status and trailers as they came. The call's value "penstock.cache" is then the string "hit".
 * What must not be cached is kept out by the table's `methods`. Options:
 *   "ttl_ms": 60000; "max_entries": 1024, "max_bytes": 16777216: the least recently used go first
 *   "metadata": ["authorization"]; request metadata whose values belong to the key */
PENSTOCK_API penstock_result penstock_ready_response_cache(const char *options_json, penstock_interceptor *table,
                                                           penstock_error **error);

/* ---- Rate limit: a token bucket that lets calls wait ---- */

/* A call that comes too early waits its turn (PAUSE). One that would have to wait too long, or behind too many, ends at
 * once. Options:
 *   "rate": calls per second, a number from 0.001 to 1000000; must be given
 *   "burst": how many may start at once after a quiet time; the rate, rounded up
 *   "max_wait_ms": 1000; "max_waiting": 1000; 0: nobody waits
 *   "code": "RESOURCE_EXHAUSTED" or another status, by name or number */
PENSTOCK_API penstock_result penstock_ready_rate_limit(const char *options_json, penstock_interceptor *table,
                                                       penstock_error **error);

/* ---- Fault injection ---- */

/* Delays calls before anything is sent, or ends them, or one after the other. Options:
 *   "delay": {"ms": 0, "percent": 100}
 *   "abort": {"code": "UNAVAILABLE", "message": "injected fault", "percent": 100}
 *   "seed": a number from 0; for the same faults each time */
PENSTOCK_API penstock_result penstock_ready_fault_injection(const char *options_json, penstock_interceptor *table,
                                                            penstock_error **error);

/* ---- Header rules: change metadata ---- */

/* Options: "request", "headers" and "trailers", each a list of rules that are applied in order:
 *   {"set": "name", "value": "text"}   one value instead of any others
 *   {"add": "name", "value": "text"}   a value more
 *   {"remove": "name"}
 *   {"rename": "name", "to": "other"}
 * The value of a "-bin" name is base64. */
PENSTOCK_API penstock_result penstock_ready_header_rules(const char *options_json, penstock_interceptor *table,
                                                         penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
