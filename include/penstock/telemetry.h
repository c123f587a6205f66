/* OpenTelemetry: the metrics of gRPC's clients (gRFC A66) and the spans of their calls (gRFC A72), recorded by an
 * interceptor that is ready to be registered. A program reads them as OTLP/JSON or in Prometheus' text format, or has the
 * library export them to a collector, by OTLP over gRPC.
 *
 *   penstock_telemetry_new("{\"resource\": {\"service.name\": \"shop\"}}", &telemetry, &error);
 *   penstock_ready_telemetry(telemetry, &table, &error);
 *   penstock_runtime_add_interceptor(runtime, &table, 0, &id, &error);
 *   ... every minute, and once at the end:
 *   penstock_telemetry_flush(telemetry, collector, 10000, &code, &error);
 *
 * Calls to a collector, whose methods begin with "/opentelemetry.proto.collector.", are never recorded. */
#ifndef PENSTOCK_TELEMETRY_H
#define PENSTOCK_TELEMETRY_H

#include "channel.h"
#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In a forked child that goes on with its parent's handles (fork.h) the object begins anew: the spans, the counts and the
 * running calls are the parent's. */
typedef struct penstock_telemetry penstock_telemetry;

/* Makes an object that records, with the options in `options_json` (NUL-terminated; NULL for the defaults, which are
 * shown here as the options' values):
 *   "resource": {"service.name": "unknown_service"}; the attributes of the resource, at most 64 strings
 *   "metrics": true, "spans": true; what is recorded
 *   "messages": true; whether each message of an attempt is an event of its span, at most 128 of a span
 *   "sampled": 100; the percentage of the traces beginning here whose spans are recorded, a number from 0 to 100
 *   "max_methods": 256; how many pairs of a method and a target are counted apart; the others are counted together as
 *       "other"
 *   "max_spans": 2048, "max_span_bytes": 4194304; how many spans, and how many bytes of them, are kept until they are read
 *       or exported; further ones are dropped, and counted
 * result: E_INVALID_ARGUMENT: `telemetry` is NULL. E_INVALID_JSON: a wrong option; `error` names the JSON path.
 * memory: `options_json` is borrowed during the call; *telemetry is owned by the caller; free with
 * penstock_telemetry_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_telemetry_new(const char *options_json, penstock_telemetry **telemetry,
                                                    penstock_error **error);
/* Adds a reference to `telemetry`.
 * result: `telemetry`; NULL for NULL.
 * memory: the reference is given back with penstock_telemetry_release.
 * threads: any */
PENSTOCK_API penstock_telemetry *penstock_telemetry_retain(penstock_telemetry *telemetry);
/* Gives a reference back. Interceptors that record into `telemetry` go on. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_telemetry_release(penstock_telemetry *telemetry);

/* Fills `table` with an interceptor that records into `telemetry`; the head of ready.h has the rules for such tables. Any
 * number of tables may share the object. The table has PENSTOCK_LEVEL_BOTH and per_attempt: one hop for the call as a
 * whole, above the codec, and one for each attempt, below all other hops but those per attempt with a lower priority. A call
 * must have the hops of one telemetry object only, because each takes the traceparent that it finds for its parent.
 *
 * Metrics, with the attributes grpc.method ("package.Service/Method") and grpc.target (with its scheme: "dns:///host:443"
 * for "host:443"), and all but the first also grpc.status (such as "OK"):
 *   grpc.client.attempt.started ({attempt}); grpc.client.attempt.duration (s);
 *   grpc.client.attempt.sent_total_compressed_message_size (By); grpc.client.attempt.rcvd_total_compressed_message_size (By);
 *   grpc.client.call.duration (s)
 *
 * Spans: "Sent.package.Service/Method" for a call, a child of the span that a valid traceparent in its metadata names;
 * and below it one "Attempt.package.Service/Method" for each attempt, which the server gets as traceparent. docs/ready.md
 * has their attributes. A call whose traceparent is not sampled has no spans, and its traceparent is left as it is.
 * result: E_INVALID_ARGUMENT: `telemetry` or `table` is NULL. E_UNSUPPORTED: the table is that of an earlier header, without
 * on_pick. E_FORKED: the object of a parent of this process.
 * memory: `telemetry` is retained; `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_telemetry(penstock_telemetry *telemetry, penstock_interceptor *table,
                                                      penstock_error **error);

/* Gives the metrics in Prometheus' text format 0.0.4: grpc_client_attempt_started_total,
 * grpc_client_attempt_duration_seconds, grpc_client_attempt_sent_total_compressed_message_size_bytes,
 * grpc_client_attempt_rcvd_total_compressed_message_size_bytes and grpc_client_call_duration_seconds, with the labels
 * grpc_method, grpc_target and grpc_status.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED: the object of a parent of this process. E_NO_MEMORY.
 * memory: *text is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_telemetry_prometheus_text(penstock_telemetry *telemetry, char **text);
/* Gives the metrics as OTLP/JSON: an ExportMetricsServiceRequest. The values are cumulative, since the object was made.
 * result: as penstock_telemetry_prometheus_text.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_telemetry_metrics_json(penstock_telemetry *telemetry, char **json);
/* Takes the spans that have ended, as OTLP/JSON: an ExportTraceServiceRequest. Each span is given once.
 * result: as penstock_telemetry_prometheus_text. E_BUSY: another thread takes or exports spans. With an error no span is
 * lost.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_telemetry_spans_json(penstock_telemetry *telemetry, char **json);
/* Gives figures about the object itself: {"spans": {"kept", "bytes", "taken", "dropped", "refused"}, "exports": {"sent",
 * "failed", "code", "message"}}. "taken": spans that were read, or that a collector has accepted; "dropped": those for which
 * there was no room or no memory; "refused": those that a collector has refused. "exports" counts requests; "code" and
 * "message" are the status of the last one that failed, or 0 and the collector's message about one that it has taken, whichever
 * came last; null if there was neither.
 * result: as penstock_telemetry_prometheus_text.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any, also while calls run */
PENSTOCK_API penstock_result penstock_telemetry_stats_json(penstock_telemetry *telemetry, char **json);

/* Exports the metrics, and then the spans, by OTLP over gRPC on `channel`, and waits until the collector has answered, for up
 * to `timeout_ms` milliseconds (0 to 86400000) in all, of which the metrics take half at most. Metrics are sent in requests of
 * about 1 MB, and spans in requests of at most 512 spans and about 1 MB. A program calls this on its own schedule, from a
 * thread that may wait, and once before it ends; nothing is sent otherwise. The channel's codec, "content_subtype" and
 * "max_send_message_bytes" do not hold for exports.
 *
 * `code` (nullable) gets the status of the first request that failed; PENSTOCK_STATUS_OK: none has. After CANCELLED,
 * DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS, after RESOURCE_EXHAUSTED with the detail
 * google.rpc.RetryInfo, and after any status of a request of which nothing was sent, such as that of an interceptor, the
 * spans are kept for the next export; after other statuses they are dropped and counted as refused, as OTLP says.
 * result: OK: requests were sent, or there was nothing to send. E_INVALID_ARGUMENT: `telemetry` or `channel` is NULL, or
 * `timeout_ms` is out of range. E_BUSY: another thread takes or exports spans. E_CLOSED: the channel is closed.
 * E_WOULD_DEADLOCK: on the thread that drives the runtime. E_FORKED: an object of a parent of this process. E_NO_MEMORY. With
 * an error no span is lost.
 * memory: both objects are borrowed during the call.
 * threads: any that may wait */
PENSTOCK_API penstock_result penstock_telemetry_flush(penstock_telemetry *telemetry, penstock_channel *channel,
                                                      int64_t timeout_ms, int32_t *code, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
