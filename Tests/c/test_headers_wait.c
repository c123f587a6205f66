/* headers_wait: response headers wait at a hop that records until it has decided, so that a call can be sent again also
 * where the server sends headers, and then an error. In callbacks, in asynchronous and in synchronous style. */
#include "calls.h"

enum { BEGINS_WITH_HEADERS = 1 };

/* Stands for the server: it refuses the first attempt of each call. */
static int32_t refuse_first(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START || penstock_hop_attempt(hop) > 1) return PENSTOCK_NEXT;
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-status", "14"));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-count", "0")); /* messages before that */
  if (self->context) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-begin", "headers"));
  return PENSTOCK_NEXT;
}

static bool fails(penstock_hop *hop) {
  return penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_UNAVAILABLE &&
         penstock_hop_can_restart(hop) == PENSTOCK_OK;
}

static int32_t on_status(penstock_hop *hop, void *state) {
  (void)state;
  return fails(hop) ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static void on_status_async(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_hop_resolve(hop, fails(hop) ? PENSTOCK_RESTART : PENSTOCK_NEXT));
  penstock_hop_release(hop);
}

static int32_t intercept(penstock_hop *hop, void *user_data) {
  (void)user_data;
  for (int tried = 0; tried < 2; tried++) {
    OK(penstock_hop_next(hop));
    penstock_status *status = penstock_hop_status(hop);
    if (!status || penstock_status_code(status) != PENSTOCK_STATUS_UNAVAILABLE) break;
  }
  return PENSTOCK_NEXT;
}

typedef enum style { CALLBACKS, ASYNC, SYNC, STYLES } style;

static penstock_interceptor table_of(style style) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_async_interceptor promise = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  penstock_sync_interceptor function = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  table.name = promise.name = function.name = "again";
  promise.on_status = on_status_async;
  promise.replay_bytes = 100;
  function.intercept = intercept;
  if (style == ASYNC) OK(penstock_async_interceptor_table(&promise, &table, NULL));
  if (style == SYNC) OK(penstock_sync_interceptor_table(&function, &table, NULL));
  if (style == CALLBACKS) table.on_status = on_status;
  if (style == CALLBACKS) table.replay_bytes = 100;
  return table;
}

typedef struct bench {
  penstock_channel *channel;
  probe above, server;
} bench;

static void bench_open(bench *bench, const penstock_interceptor *table, bool begins_with_headers, const char *options) {
  penstock_interceptor_id id;
  memset(bench, 0, sizeof(*bench));
  OK(penstock_channel_new(peer_address(), options ? options : "{\"tls\": false}", &bench->channel, NULL));
  probe_init(&bench->above, "above");
  probe_init_with(&bench->server, "server", refuse_first, begins_with_headers ? &bench->server : NULL);
  probe_add(&bench->above, bench->channel, 2);
  OK(penstock_channel_add_interceptor(bench->channel, table, 1, &id, NULL));
  probe_add(&bench->server, bench->channel, 0);
}

static void bench_close(bench *bench) {
  penstock_channel_release(bench->channel);
  probe_wait_finalized(&bench->above);
  probe_wait_finalized(&bench->server);
}

/* Makes a call whose first attempt the server refuses. Returns the code of the call; `*attempts` were made. */
static int32_t code_of_call(bench *bench, const char *method, int32_t kind, int *attempts) {
  penstock_call *call = start_call(bench->channel, method, kind);
  penstock_reply *reply = NULL;
  penstock_message *message;
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
  int32_t code = OK(penstock_call_wait(call, &reply)) ? penstock_reply_code(reply) : -1;
  penstock_reply_release(reply);
  penstock_call_release(call);
  *attempts = atomic_load(&bench->server.seen[PENSTOCK_EVENT_START]);
  return code;
}

static void check_restart(style style, bool begins_with_headers, const char *method, int32_t kind,
                          const char *options) {
  bench bench;
  penstock_interceptor table = table_of(style);
  int attempts;
  bench_open(&bench, &table, begins_with_headers, options);
  bool holds = CHECK_INT(code_of_call(&bench, method, kind, &attempts), PENSTOCK_STATUS_OK);
  holds = CHECK_INT(attempts, 2) && holds;
  /* The hop above sees the headers of the second attempt alone. */
  holds = CHECK_INT(atomic_load(&bench.above.seen[PENSTOCK_EVENT_HEADERS]), 1) && holds;
  if (!holds) printf("  style %d, headers %d, %s, %s\n", style, begins_with_headers, method, options ? options : "");
  bench_close(&bench);
}

TEST(headers_wait_for_a_restart_in_each_style) {
  for (int style = CALLBACKS; style < STYLES; style++) {
    for (int first = 0; first <= BEGINS_WITH_HEADERS; first++) {
      check_restart(style, first, UNARY, PENSTOCK_KIND_UNARY, NULL);
      check_restart(style, first, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, NULL);
    }
  }
}

TEST(headers_wait_for_a_restart_over_each_protocol) {
  const char *protocols[] = {"connect", "grpc-web", "grpc-web-text"};
  for (int i = 0; i < 3; i++) {
    char options[100];
    for (int http = 1; http <= 2; http++) {
      snprintf(options, sizeof(options), "{\"tls\": false, \"protocol\": \"%s\", \"http\": \"%s\"}", protocols[i],
               http == 1 ? "1.1" : "2");
      check_restart(CALLBACKS, BEGINS_WITH_HEADERS, UNARY, PENSTOCK_KIND_UNARY, options);
      check_restart(CALLBACKS, BEGINS_WITH_HEADERS, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, options);
    }
  }
}

/* In the other kinds, and where none are to wait, the table says so. */
TEST(headers_wait_where_the_table_says_so) {
  const struct {
    const char *method;
    int32_t kind;
    uint64_t headers_wait;
    int32_t code;
  } calls[] = {
      {SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, 0, PENSTOCK_STATUS_UNAVAILABLE},
      {SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, 1u << PENSTOCK_KIND_SERVER_STREAM, PENSTOCK_STATUS_OK},
      {SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, 15, PENSTOCK_STATUS_OK},
      {UNARY, PENSTOCK_KIND_UNARY, PENSTOCK_HEADERS_PASS, PENSTOCK_STATUS_UNAVAILABLE},
      {UNARY, PENSTOCK_KIND_UNARY, 1u << PENSTOCK_KIND_SERVER_STREAM, PENSTOCK_STATUS_UNAVAILABLE},
      {CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, PENSTOCK_HEADERS_PASS, PENSTOCK_STATUS_UNAVAILABLE},
  };
  for (size_t i = 0; i < STYLES * sizeof(calls) / sizeof(*calls); i++) {
    bench bench;
    style style = i % STYLES;
    penstock_interceptor table = table_of(style);
    int attempts;
    /* A function that has not returned has not passed the headers of a call with one response message. */
    bool one = calls[i / STYLES].kind != PENSTOCK_KIND_SERVER_STREAM;
    int32_t code = style == SYNC && one ? PENSTOCK_STATUS_OK : calls[i / STYLES].code;
    table.headers_wait = calls[i / STYLES].headers_wait;
    bench_open(&bench, &table, true, NULL);
    if (!CHECK_INT(code_of_call(&bench, calls[i / STYLES].method, calls[i / STYLES].kind, &attempts), code))
      printf("  %s with %llu, style %d\n", calls[i / STYLES].method, (unsigned long long)table.headers_wait, style);
    CHECK_INT(attempts, code == PENSTOCK_STATUS_OK ? 2 : 1);
    bench_close(&bench);
  }
}

TEST(headers_wait_is_checked) {
  const uint64_t wrong[] = {17, 32, UINT64_MAX, (uint64_t)1 << 32};
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 4; i++) {
    penstock_interceptor table = table_of(CALLBACKS);
    penstock_interceptor_id id;
    penstock_error *error = NULL;
    table.headers_wait = wrong[i];
    CHECK_RESULT(penstock_channel_add_interceptor(channel, &table, 0, &id, &error), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "headers_wait");
  }
  penstock_channel_release(channel);
}

/* A caller that has not half-closed may wait for the headers before it sends: they do not wait. After that they do, until
 * the first message; the message need not have been asked for. */
TEST(headers_wait_for_no_caller_that_waits_for_them) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = table_of(CALLBACKS);
  penstock_interceptor_id id;
  table.headers_wait = 15;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  for (int half_closes = 0; half_closes <= 1; half_closes++) {
    penstock_call *call = half_closes ? start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM)
                                      : start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    const penstock_metadata *headers = NULL;
    if (half_closes) {
      OK(penstock_call_send(call, "ping", 4));
      OK(penstock_call_half_close(call));
    }
    OK(penstock_call_wait_headers(call, &headers));
    CHECK(headers != NULL);
    if (!half_closes) {
      OK(penstock_call_send(call, "ping", 4));
      OK(penstock_call_half_close(call));
    }
    penstock_message *message = NULL;
    if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
    CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

/* ---- A call that is sent again fails as a fresh one does ---- */

/* Restarts with the address of a server that can't be connected to: the next attempt to connect is 60 s away, and the
 * call does not wait for it. */
static void check_unconnected(const char *address, const char *options, const char *words) {
  penstock_channel *channel = NULL;
  penstock_interceptor table = table_of(CALLBACKS);
  penstock_interceptor_id id;
  penstock_reply *reply = NULL;
  penstock_call_options *deadline = options_of("{\"deadline_ms\": 20000}");
  REQUIRE_OK(penstock_channel_new(address, options, &channel, NULL));
  table.max_restarts = 3;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, deadline, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
    CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), words);
    CHECK_HAS(penstock_reply_stats_json(reply), "\"attempts\":4");
  }
  penstock_reply_release(reply);
  penstock_call_options_release(deadline);
  penstock_channel_release(channel);
}

TEST(restart_does_not_wait_for_the_back_off) {
  check_unconnected(dead_address(), "{\"tls\": false, \"initial_backoff_ms\": 60000}", "refused");
}

/* The server closes the connection, because the client has no certificate. */
TEST(restart_names_the_last_failure_of_connecting) {
  char options[600];
  snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"}, \"initial_backoff_ms\": 60000}",
           certificate("ca.pem"));
  check_unconnected(tls_address(true), options, "certificate");
}
