/* Interceptors with each protocol: redirects between channels of different protocols, a GET that a hop allows, URLs
 * with a prefix, and the ready-made interceptors over Connect. */
#include "calls.h"
#include "ready.h"

static penstock_channel *open_protocol(const char *protocol, const char *prefix) {
  char target[128], options[128];
  penstock_channel *channel = NULL;
  snprintf(target, sizeof(target), "http://%s%s", peer_address(), prefix);
  snprintf(options, sizeof(options), "{\"protocol\": \"%s\", \"http\": \"2\"}", protocol);
  OK(penstock_channel_new(target, options, &channel, NULL));
  return channel;
}

#define ECHOES "\"x-echo-metadata\": \"1\""

static const char *trailer(penstock_reply *reply, const char *name) {
  const void *value = NULL;
  return penstock_metadata_get(penstock_reply_trailers(reply), name, 0, &value, NULL) == PENSTOCK_OK ? value : "-";
}

/* ---- URLs ---- */

static int32_t see_method(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_STATUS)
    CHECK_STR(penstock_request_method(penstock_hop_request(hop)), UNARY);
  return PENSTOCK_NEXT;
}

TEST(url_prefix_stands_before_each_path) {
  static const char *const protocols[] = {"grpc", "grpc-web", "grpc-web-text", "connect"};
  for (size_t i = 0; i < 4; i++) {
    penstock_channel *channel = open_protocol(protocols[i], "/v1/%7Ea/");
    probe probe;
    probe_init_with(&probe, "see", see_method, NULL);
    probe_add(&probe, channel, 0);
    /* The peer does not have this service. Several calls are made, because later calls may use header blocks that
     * earlier calls have prepared. */
    for (int round = 0; round < 3; round++) {
      penstock_reply *reply = ready_unary(channel, "x", ECHOES);
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
      CHECK_STR(trailer(reply, "seen-path"), "/v1/%7Ea" UNARY);
      CHECK_STR(trailer(reply, "seen-authority"), peer_address());
      CHECK_STR(trailer(reply, "seen-scheme"), "http");
      penstock_reply_release(reply);
    }
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

/* ---- Redirect ---- */

/* Redirects each call to the channel `to`, in on_start or when a status has arrived. */
typedef struct detour {
  penstock_channel *to;
  const char *protocol; /* the protocol of `to` */
  bool restarts;
} detour;

static int32_t redirect(probe *self, penstock_hop *hop, int32_t event) {
  detour *detour = self->context;
  penstock_request *request = penstock_hop_request(hop);
  if (event == PENSTOCK_EVENT_START && !detour->restarts) OK(penstock_request_set_channel(request, detour->to));
  if (event == PENSTOCK_EVENT_HEADERS) CHECK_STR(penstock_hop_protocol(hop), detour->protocol);
  if (event == PENSTOCK_EVENT_STATUS && detour->restarts && penstock_status_code(penstock_hop_status(hop)) != 0) {
    OK(penstock_request_set_channel(request, detour->to));
    return PENSTOCK_RESTART;
  }
  if (event == PENSTOCK_EVENT_STATUS) CHECK_STR(penstock_hop_protocol(hop), detour->protocol);
  return PENSTOCK_NEXT;
}

static void check_detour(penstock_channel *from, detour detour, const char *type) {
  probe probe;
  probe_init_with(&probe, "redirect", redirect, &detour);
  probe.replay_bytes = detour.restarts ? 1000 : 0;
  penstock_interceptor_id id = probe_add(&probe, from, 0);
  penstock_reply *reply = ready_unary(from, "ping", ECHOES);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, "ping"));
  CHECK_STR(trailer(reply, "seen-content-type"), type);
  char facts[64];
  snprintf(facts, sizeof(facts), "\"protocol\":\"%s\",\"http\":\"2\"", detour.protocol);
  CHECK_HAS(penstock_reply_stats_json(reply), facts);
  penstock_reply_release(reply);
  penstock_call *call = start_call(from, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "one", 3));
  if (!detour.restarts) CHECK_MESSAGE(call, "one");
  OK(penstock_call_send(call, "two", 3));
  OK(penstock_call_half_close(call));
  if (detour.restarts) CHECK_MESSAGE(call, "one");
  CHECK_MESSAGE(call, "two");
  penstock_reply *ended = NULL;
  OK(penstock_call_wait(call, &ended));
  CHECK_INT(penstock_reply_code(ended), 0);
  penstock_reply_release(ended);
  penstock_call_release(call);
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&probe);
}

TEST(redirect_to_a_channel_of_another_protocol) {
  penstock_channel *grpc = open_protocol("grpc", ""), *connect = open_protocol("connect", "");
  penstock_channel *web = open_protocol("grpc-web", ""), *text = open_protocol("grpc-web-text", "");
  check_detour(grpc, (detour){connect, "connect", false}, "application/proto");
  check_detour(connect, (detour){grpc, "grpc", false}, "application/grpc");
  check_detour(connect, (detour){web, "grpc-web", false}, "application/grpc-web+proto");
  check_detour(web, (detour){text, "grpc-web-text", false}, "application/grpc-web-text+proto");
  penstock_channel_release(grpc);
  penstock_channel_release(connect);
  penstock_channel_release(web);
  penstock_channel_release(text);
}

TEST(restart_on_a_channel_of_another_protocol) {
  penstock_channel *connect = open_protocol("connect", ""), *dead = NULL, *wrong = open_protocol("connect", "/no");
  OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &dead, NULL));
  check_detour(dead, (detour){connect, "connect", true}, "application/proto");
  /* A unary error of Connect gives the call no headers. So nothing has passed the hop yet, and the call can begin
   * again. */
  detour detour = {connect, "connect", true};
  probe probe;
  probe_init_with(&probe, "redirect", redirect, &detour);
  probe.replay_bytes = 1000;
  probe_add(&probe, wrong, 0);
  penstock_reply *reply = ready_unary(wrong, "ping", ECHOES);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(trailer(reply, "seen-path"), UNARY);
  penstock_reply_release(reply);
  penstock_channel_release(connect);
  penstock_channel_release(dead);
  penstock_channel_release(wrong);
  probe_wait_finalized(&probe);
}

/* ---- GET ---- */

/* A hop sets the idempotency. It checks the HTTP method before and after the request was sent. In
 * on_send the message is known, and so the method. */
static int32_t make_safe(probe *self, penstock_hop *hop, int32_t event) {
  const char *later = self->context;
  penstock_request *request = penstock_hop_request(hop);
  if (event == PENSTOCK_EVENT_START) {
    CHECK_STR(penstock_request_http_method(request), "POST");
    OK(penstock_request_set_idempotency(request, PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS));
    CHECK_STR(penstock_request_http_method(request), "GET");
  }
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_HEADERS || event == PENSTOCK_EVENT_RECEIVE ||
      event == PENSTOCK_EVENT_STATUS)
    CHECK_STR(penstock_request_http_method(request), later);
  return PENSTOCK_NEXT;
}

static void check_method(const char *request, const char *expected) {
  penstock_channel *channel = open_protocol("connect", "");
  probe probe;
  probe_init_with(&probe, "safe", make_safe, (void *)expected);
  probe_add(&probe, channel, 0);
  for (int round = 0; round < 2; round++) {
    penstock_reply *reply = ready_unary(channel, request, ECHOES);
    CHECK_INT(penstock_reply_code(reply), 0);
    CHECK_STR(trailer(reply, "seen-method"), expected);
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(http_method_is_exact_once_the_request_is_sent) {
  char large[10001];
  memset(large, 'x', sizeof(large) - 1);
  large[sizeof(large) - 1] = 0;
  check_method("ping", "GET");
  check_method(large, "POST");
}

/* ---- Ready-made interceptors over Connect ---- */

static void add_ready(penstock_channel *channel, penstock_interceptor *table, int32_t priority) {
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, table, priority, &id, NULL));
}

TEST(ready_cache_over_connect_by_get) {
  penstock_channel *channel = open_protocol("connect", "");
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_response_cache(NULL, &table, NULL));
  add_ready(channel, &table, 1);
  probe below;
  probe_init(&below, "below");
  probe_add(&below, channel, 0);
  static const char *const options[] = {"{\"idempotency\": \"no_side_effects\", \"metadata\": {" ECHOES "}}",
                                        "{\"idempotency\": \"no_side_effects\", \"metadata\": {" ECHOES
                                        "}, \"content_subtype\": \"json\"}"};
  for (int i = 0; i < 6; i++) {
    /* A cached answer in one encoding is not used for a request in another encoding, even if the requests' bytes are
     * equal. */
    penstock_call_options *made = options_of(options[i % 2]);
    penstock_reply *reply = NULL;
    OK(penstock_channel_unary(channel, UNARY, "1", 1, made, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), 0);
    CHECK(ready_message_is(reply, "1"));
    CHECK_STR(trailer(reply, "seen-method"), "GET");
    CHECK_HAS(trailer(reply, "seen-path"), i % 2 ? "encoding=json" : "encoding=proto");
    const char *value = penstock_reply_value(reply, "penstock.cache");
    CHECK_STR(value ? value : "", i < 2 ? "" : "hit");
    penstock_reply_release(reply);
    penstock_call_options_release(made);
  }
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_START]), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&below);
}

static void keep_line(const char *line, size_t length, void *user_data) {
  CHECK_HAS(line, "{");
  if (length > 0) atomic_fetch_add((atomic_int *)user_data, 1);
}

TEST(ready_trace_context_logging_and_metrics_over_connect) {
  atomic_int lines = 0;
  penstock_channel *channel = open_protocol("connect", "");
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_metrics *metrics = NULL;
  OK(penstock_ready_trace_context(NULL, &table, NULL));
  add_ready(channel, &table, 3);
  table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_logging(NULL, keep_line, &lines, NULL, &table, NULL));
  add_ready(channel, &table, 2);
  OK(penstock_metrics_new(NULL, &metrics, NULL));
  table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_metrics(metrics, &table));
  add_ready(channel, &table, 1);
  penstock_reply *reply = ready_unary(channel, "x", ECHOES);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_HAS(trailer(reply, "seen-traceparent"), "00-");
  CHECK_HAS(trailer(reply, "seen-traceparent"), penstock_reply_value(reply, "penstock.traceparent"));
  CHECK(atomic_load(&lines) > 0);
  char *json = NULL;
  OK(penstock_metrics_snapshot_json(metrics, &json));
  CHECK_HAS(json, UNARY);
  penstock_free(json);
  penstock_reply_release(reply);
  penstock_metrics_release(metrics);
  penstock_channel_release(channel);
}
