/* Traces of calls and snapshots of runtimes: the events, and the holder of a call. */
#include "traces.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static penstock_channel *open_traced(const char *trace) {
  char options[128];
  snprintf(options, sizeof(options), "{\"tls\": false, \"trace\": %s}", trace);
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(peer_address(), options, &channel, NULL));
  return channel;
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text ? strstr(text, part) : NULL; at; at = strstr(at + 1, part)) count++;
  return count;
}

/* ---- Events ---- */

TEST(trace_has_each_event_of_a_call) {
  penstock_channel *channel = open_traced("true");
  probe slow;
  probe_init_with(&slow, "slow", pause_start, NULL);
  probe_add(&slow, channel, 0);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "s3cret message", 14, NULL, &reply, NULL));
  const char *trace = penstock_reply_trace_json(reply);
  CHECK(trace == penstock_reply_trace_json(reply));
  CHECK_HAS(trace, "\"method\":\"/penstock.Echo/Unary\"");
  CHECK_HAS(trace, "\"ended\":true,\"holder\":null");
  CHECK_HAS(trace, "\"dropped\":0");
  /* The trace has the callbacks create, start, send, half_close, headers, receive, status and destroy once each, and
   * each demand and sent. */
  int signals = atomic_load(&slow.seen[PENSTOCK_EVENT_DEMAND]) + atomic_load(&slow.seen[PENSTOCK_EVENT_SENT]);
  CHECK_INT(count_of(trace, "\"what\":\"callback\",\"hop\":\"slow\""), 8 + signals);
  CHECK_HAS(trace, "\"event\":\"create\",\"lane\":null,\"verdict\":\"NEXT\"");
  CHECK_HAS(trace, "\"event\":\"start\",\"lane\":\"outbound\",\"verdict\":\"PAUSE\"");
  CHECK_INT(count_of(trace, "\"what\":\"resolved\""), 1);
  CHECK_INT(count_of(trace, "\"what\":\"ended\""), 1);
  CHECK_HAS(trace, "\"what\":\"caller\",\"hop\":null,\"event\":\"start\"");
  CHECK_HAS(trace, "\"what\":\"transport\",\"hop\":null,\"event\":\"half_close\"");
  CHECK_HAS(trace, "\"what\":\"transport\",\"hop\":null,\"event\":\"receive\"");
  CHECK_HAS(trace, "\"what\":\"caller\",\"hop\":null,\"event\":\"receive\"");
  CHECK_HAS(trace, "\"thread\":\"driving\"");
  /* In the trace the pause comes first, then the end of the pause, then the message. */
  const char *paused = strstr(trace, "PAUSE"), *resolved = strstr(trace, "\"resolved\"");
  const char *sent = strstr(trace, "\"what\":\"transport\",\"hop\":null,\"event\":\"send\"");
  CHECK(paused && resolved && sent && paused < resolved && resolved < sent);
  CHECK(strstr(trace, "s3cret") == NULL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&slow);
}

TEST(trace_is_off_unless_asked_for) {
  penstock_channel *channel = open_channel();
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  CHECK_STR(penstock_reply_trace_json(reply), "{}");
  penstock_reply_release(reply);
  /* Call options turn the trace on for one call, or off for one call. */
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"trace\": true}", &options, NULL));
  OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_HAS(penstock_reply_trace_json(reply), "\"what\":\"ended\"");
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  channel = open_traced("true");
  OK(penstock_call_options_new("{\"trace\": false}", &options, NULL));
  OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_STR(penstock_reply_trace_json(reply), "{}");
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(trace_keeps_the_latest) {
  penstock_channel *channel = open_traced("{\"events\": 3}");
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  const char *trace = penstock_reply_trace_json(reply);
  CHECK_INT(count_of(trace, "\"us\":"), 3);
  CHECK(strstr(trace, "\"dropped\":0") == NULL);
  /* The last event of the trace is the end of the call. */
  const char *end = strstr(trace, "\"what\":\"ended\"");
  CHECK(end && strstr(end, "\"us\":") == NULL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

TEST(trace_options_are_checked) {
  static const char *const wrong[] = {
      "1", "null", "\"yes\"", "{\"events\": 0}", "{\"events\": 65537}", "{\"kept\": 1}"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    char json[64];
    snprintf(json, sizeof(json), "{\"trace\": %s}", wrong[i]);
    penstock_call_options *options = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_call_options_new(json, &options, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "$.trace");
    penstock_channel *channel = NULL;
    CHECK_RESULT(penstock_channel_new("a:1", json, &channel, NULL), PENSTOCK_E_INVALID_JSON);
  }
}

/* ---- The verdicts in a trace ---- */

static int32_t finish_at_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_hop_end(hop, 7, "no"));
  return PENSTOCK_NEXT;
}
static int32_t restart_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_STATUS ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static void trace_of(penstock_channel *channel, const char *request, char *text, size_t size) {
  penstock_reply *reply = NULL;
  text[0] = 0;
  if (!OK(penstock_channel_unary(channel, UNARY, request, strlen(request), NULL, &reply, NULL))) return;
  snprintf(text, size, "%s", penstock_reply_trace_json(reply));
  penstock_reply_release(reply);
}

TEST(trace_says_which_hop_ended_the_call) {
  penstock_channel *channel = open_traced("true");
  probe guard;
  probe_init_with(&guard, "guard", finish_at_headers, NULL);
  probe_add(&guard, channel, 0);
  static char trace[65536];
  trace_of(channel, "x", trace, sizeof(trace));
  CHECK_HAS(trace, "\"what\":\"ended_by_hop\",\"hop\":\"guard\"");
  CHECK_HAS(trace, "\"code\":7");
  penstock_channel_release(channel);
  probe_wait_finalized(&guard);
}

TEST(trace_says_why_a_restart_was_not_honoured) {
  static const struct {
    size_t bytes;
    const char *request, *why;
  } cases[] = {{0, "x", "PENSTOCK_E_STATE"}, {2, "too long", "PENSTOCK_E_TOO_LARGE"}, {64, "x", "PENSTOCK_E_ALREADY"}};
  for (size_t i = 0; i < 3; i++) {
    penstock_channel *channel = NULL;
    OK(penstock_channel_new(dead_address(), "{\"tls\": false, \"trace\": true}", &channel, NULL));
    probe retry;
    probe_init_with(&retry, "retry", restart_once, NULL);
    penstock_interceptor table = probe_table(&retry);
    penstock_interceptor_id id;
    table.replay_bytes = cases[i].bytes;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    static char trace[65536];
    trace_of(channel, cases[i].request, trace, sizeof(trace));
    CHECK_INT(count_of(trace, "\"what\":\"restarted\""), cases[i].bytes == 64 ? 1 : 0);
    CHECK_INT(count_of(trace, "\"what\":\"not_restarted\""), 1);
    CHECK_HAS(trace, cases[i].why);
    penstock_channel_release(channel);
    probe_wait_finalized(&retry);
  }
}

TEST(trace_on_an_executor_tells_the_thread) {
  penstock_channel *channel = open_traced("true");
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  probe away;
  probe_init(&away, "away");
  penstock_interceptor table = probe_table(&away);
  penstock_interceptor_id id;
  table.outbound_executor = table.inbound_executor = executor;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  static char trace[65536];
  trace_of(channel, "x", trace, sizeof(trace));
  CHECK_HAS(trace, "\"what\":\"executor\",\"hop\":\"away\"");
  CHECK_HAS(trace, "\"thread\":\"other\"");
  penstock_executor_release(executor);
  penstock_channel_release(channel);
  probe_wait_finalized(&away);
}

/* ---- The holder of a call ---- */

typedef struct stop {
  penstock_ticket ticket;
  penstock_hop *hop;
  int32_t at, verdict;
  latch reached;
} stop;

static int32_t stop_there(probe *self, penstock_hop *hop, int32_t event) {
  stop *stop = self->context;
  if (event != stop->at) return PENSTOCK_NEXT;
  stop->ticket = penstock_hop_ticket(hop);
  stop->hop = penstock_hop_retain(hop);
  latch_signal(&stop->reached);
  return stop->verdict;
}

static void check_snapshot(penstock_runtime *runtime, const char *part) {
  char *json = NULL;
  if (!OK(penstock_runtime_snapshot_json(runtime, 20000, &json))) return;
  CHECK_HAS(json, "{\"complete\":true,\"running\":null");
  CHECK_HAS(json, part);
  penstock_free(json);
}

static void check_holder(penstock_call *call, const char *part) {
  char *json = NULL;
  /* Tries for a while, because under load the loop may be late. */
  for (int i = 0; i < 200; i++) {
    if (!OK(penstock_call_trace_json(call, &json))) return;
    if (strstr(json, part)) break;
    penstock_free(json);
    json = NULL;
    test_pause();
  }
  CHECK(json != NULL);
  if (!json) {
    OK(penstock_call_trace_json(call, &json));
    CHECK_HAS(json, part);
  }
  penstock_free(json);
}

/* If a call waits at a hop, the traces of the call and of the hop, and the runtime's snapshot, say so. */
TEST(trace_tells_who_holds_a_call) {
  static const struct {
    int32_t at, verdict;
    const char *text;
  } cases[] = {
      {PENSTOCK_EVENT_START, PENSTOCK_PAUSE, "\"text\":\"paused in `auth` for "},
      {PENSTOCK_EVENT_SEND, PENSTOCK_HOLD, "\"text\":\"held in `auth` for "},
      {PENSTOCK_EVENT_RECEIVE, PENSTOCK_PAUSE, "\"text\":\"paused in `auth` for "},
  };
  for (size_t i = 0; i < 3; i++) {
    penstock_runtime *runtime = new_runtime(NULL);
    penstock_channel *channel = open_channel_on(runtime);
    stop stop = {.at = cases[i].at, .verdict = cases[i].verdict, .reached = LATCH_INIT};
    probe auth;
    probe_init_with(&auth, "auth", stop_there, &stop);
    probe_add(&auth, channel, 0);
    penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
    OK(penstock_call_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    latch_wait(&stop.reached, 1);
    check_holder(call, cases[i].text);
    check_holder(call, " ms\"");
    check_snapshot(runtime, cases[i].text);
    check_snapshot(runtime, "\"method\":\"/penstock.Echo/Unary\"");
    char *json = NULL;
    OK(penstock_hop_trace_json(stop.hop, &json));
    CHECK_HAS(json, "\"events\":null");
    CHECK_HAS(json, cases[i].text);
    penstock_free(json);
    end_call(call);
    CHECK_RESULT(penstock_hop_trace_json(stop.hop, &json), PENSTOCK_E_GONE);
    penstock_hop_release(stop.hop);
    check_snapshot(runtime, "\"calls\":[]");
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
    probe_wait_finalized(&auth);
  }
}

TEST(trace_tells_what_else_a_call_waits_for) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  const penstock_metadata *headers = NULL;
  OK(penstock_call_wait_headers(call, &headers));
  check_holder(call, "waiting for the caller to ask for a message");
  char *json = NULL;
  OK(penstock_call_trace_json(call, &json));
  CHECK_HAS(json, "\"protocol\":\"grpc\",\"http\":\"2\"");
  CHECK_HAS(json, "\"connection_silent_ms\":");
  CHECK(!strstr(json, "\"connection_silent_ms\":null"));
  penstock_free(json);
  json = NULL;
  end_call(call);
  /* No server answers at 192.0.2.1, so the connection is never made. */
  penstock_channel_release(channel);
  OK(penstock_channel_new("192.0.2.1:1", "{\"tls\": false}", &channel, NULL));
  call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 50 && !json; i++) {
    OK(penstock_call_trace_json(call, &json));
    if (strstr(json, "waiting for a connection") || strstr(json, "\"ended\":true")) break;
    penstock_free(json);
    json = NULL;
    test_pause();
  }
  /* On a machine without a network the connection fails at once, and so does the call. */
  CHECK(json && (strstr(json, "waiting for a connection") || strstr(json, "\"ended\":true")));
  penstock_free(json);
  end_call(call);
  penstock_channel_release(channel);
}

/* The server's SETTINGS_MAX_CONCURRENT_STREAMS is 0, so the call waits. */
TEST(trace_tells_that_a_server_allows_no_more_calls) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  CHECK_INT(bind(listener, (struct sockaddr *)&address, size), 0);
  CHECK_INT(listen(listener, 1), 0);
  CHECK_INT(getsockname(listener, (struct sockaddr *)&address, &size), 0);
  char target[64];
  snprintf(target, sizeof(target), "127.0.0.1:%d", ntohs(address.sin_port));
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, "{\"tls\": false}", &channel, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  int peer = accept(listener, NULL, NULL);
  check_holder(call, "\"state\":\"connection\"");
  check_holder(call, "\"connection_silent_ms\":null");
  static const uint8_t settings[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0};
  CHECK_INT(write(peer, settings, sizeof(settings)), (int64_t)sizeof(settings));
  check_holder(call, "\"state\":\"slot\"");
  check_holder(call, "waiting for the server to allow one more call on the connection");
  end_call(call);
  penstock_channel_release(channel);
  close(peer);
  close(listener);
}

static int32_t take_it(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}

TEST(trace_tells_who_has_taken_a_call) {
  penstock_channel *channel = open_channel();
  probe stub;
  probe_init_with(&stub, "stub", take_it, NULL);
  probe_add(&stub, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  check_holder(call, "taken by `stub`");
  end_call(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&stub);
}

/* On the driving thread the function returns at once, and its snapshot names the running callback. */
static int32_t look_inside(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) {
    char *json = NULL;
    OK(penstock_hop_trace_json(hop, &json));
    CHECK_HAS(json, "\"state\":\"running\",\"hop\":\"curious\"");
    penstock_free(json);
    OK(penstock_runtime_snapshot_json(self->context, 0, &json));
    CHECK_HAS(json, "{\"complete\":true,\"running\":{\"interceptor\":\"curious\",\"event\":\"start\"");
    penstock_free(json);
  }
  return PENSTOCK_NEXT;
}

TEST(snapshot_within_a_callback) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  probe curious;
  probe_init_with(&curious, "curious", look_inside, runtime);
  probe_add(&curious, channel, 0);
  check_echo(channel);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&curious);
}
