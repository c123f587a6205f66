/* Faults reported in other libraries, first part: order, calls that never end, many calls at once, metadata. Each test
 * is named after the public report; docs/others.md has the fault, and the rule that prevents it here. */
#include "others.h"

/* connect-swift 342: in both lanes a paused message also holds up all that follows it, half-close and status
 * included. */
TEST(others_connect_swift_342_a_slow_message_is_not_overtaken) {
  static const int32_t events[] = {PENSTOCK_EVENT_SEND, PENSTOCK_EVENT_RECEIVE};
  for (int i = 0; i < 2; i++) {
    penstock_channel *channel = open_channel();
    probe above, slow, below;
    pauser pauser = {events[i], "3", 0, LATCH_INIT};
    collector collector = COLLECTOR_INIT;
    probe_init(&above, "above");
    pauser_init(&slow, &pauser, "slow");
    probe_init(&below, "below");
    probe_add(&above, channel, 3);
    probe_add(&slow, channel, 2);
    probe_add(&below, channel, 1);
    penstock_call *call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
    OK(penstock_call_demand(call, 100));
    for (const char *c = "12345678"; *c; c++) OK(penstock_call_try_send(call, c, 1));
    OK(penstock_call_half_close(call));
    latch_wait(&pauser.paused, 1);
    EVENTUALLY(seen(&above, PENSTOCK_EVENT_HALF_CLOSE) == 1);
    EVENTUALLY(atomic_load(&collector.messages) == 2);
    if (events[i] == PENSTOCK_EVENT_SEND) {
      CHECK_INT(seen(&slow, PENSTOCK_EVENT_SEND), 3);
      CHECK_INT(seen(&below, PENSTOCK_EVENT_SEND), 2);
      CHECK_INT(seen(&below, PENSTOCK_EVENT_HALF_CLOSE), 0);
    }
    CHECK_INT(seen(&above, PENSTOCK_EVENT_RECEIVE), 2);
    OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT));
    latch_wait(&collector.finalized, 1);
    CHECK_STR(collector.text, "12345678");
    CHECK_INT(collector.code, 0);
    penstock_call_release(call);
    penstock_channel_release(channel);
    check_ended(&above);
    check_ended(&slow);
    check_ended(&below);
  }
}

/* grpc-node 1984: the messages and the status wait for slow work at the headers. */
TEST(others_grpc_node_1984_the_status_waits_for_slow_headers) {
  penstock_channel *channel = open_channel();
  probe above, slow;
  pauser pauser = {PENSTOCK_EVENT_HEADERS, NULL, 0, LATCH_INIT};
  collector collector = COLLECTOR_INIT;
  probe_init(&above, "above");
  pauser_init(&slow, &pauser, "slow");
  probe_add(&above, channel, 2);
  probe_add(&slow, channel, 1);
  penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &collector);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&pauser.paused, 1);
  /* Another call has been made and answered, so the answer to the paused call has come, too. */
  check_echo(channel);
  CHECK_INT(latch_count(&collector.headers), 0);
  CHECK_INT(latch_count(&collector.replies), 0);
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, 0);
  CHECK_STR(collector.text, "x");
  CHECK_HAS(above.log, "hRTdhRTd");
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&slow);
}

/* grpc-node 2707: if an OK overtook a large message, the call would fail with "no message received". */
TEST(others_grpc_node_2707_the_status_waits_for_a_slow_message) {
  penstock_channel *channel = open_channel();
  probe slow;
  pauser pauser = {PENSTOCK_EVENT_RECEIVE, NULL, 0, LATCH_INIT};
  pauser_init(&slow, &pauser, "slow");
  probe_add(&slow, channel, 0);
  enum { SIZE = 80000 };
  char *data = calloc(1, SIZE);
  collector collector = COLLECTOR_INIT;
  penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &collector);
  OK(penstock_call_try_send(call, data, SIZE));
  OK(penstock_call_half_close(call));
  latch_wait(&pauser.paused, 1);
  check_echo(channel);
  CHECK_INT(latch_count(&collector.replies), 0);
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, 0);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_reply(call, &reply))) {
    size_t length = 0;
    CHECK(penstock_reply_bytes(reply, &length) != NULL);
    CHECK_INT(length, SIZE);
    penstock_reply_release(reply);
  }
  free(data);
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&slow);
}

/* ---- Failures of interceptors ---- */

typedef struct failure {
  int32_t event, verdict;
} failure;

static int32_t fail_at(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  const failure *failure = self->context;
  return event == failure->event ? failure->verdict : PENSTOCK_NEXT;
}

/* Hops above the hop that fails get a status, and hops below it get on_cancel. The caller gets INTERNAL, although the
 * call has no deadline. */
static void check_failure(int32_t event, int32_t verdict, bool reaches_below) {
  penstock_channel *channel = open_channel();
  probe above, wrong, below;
  failure failure = {event, verdict};
  probe_init(&above, "above");
  probe_init(&wrong, "wrong");
  probe_init(&below, "below");
  wrong.hook = fail_at;
  wrong.context = &failure;
  probe_add(&above, channel, 3);
  probe_add(&wrong, channel, 2);
  probe_add(&below, channel, 1);
  check_unary(channel, NULL, PENSTOCK_STATUS_INTERNAL, "'wrong'");
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  check_finish(call, PENSTOCK_STATUS_INTERNAL);
  penstock_channel_release(channel);
  check_ended(&above);
  probe_wait_finalized(&wrong);
  /* If create has refused the call, there is no destroy. */
  CHECK_INT(latch_count(&wrong.done), event == PENSTOCK_EVENT_CREATE ? 0 : 2);
  check_ended(&below);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_CREATE), reaches_below ? 2 : 0);
}

/* grpc-java 6092: a wrong verdict in on_status ends the call. */
TEST(others_grpc_java_6092_a_failure_in_the_last_callback_ends_the_call) {
  check_failure(PENSTOCK_EVENT_STATUS, 1000, true);
  check_failure(PENSTOCK_EVENT_STATUS, PENSTOCK_PAUSE, true);
  check_failure(PENSTOCK_EVENT_STATUS, PENSTOCK_HOLD, true);
}

/* opentelemetry-python-contrib 5046: a wrong verdict in create or on_start ends the call. */
TEST(others_otel_python_5046_a_failure_before_anything_is_sent_ends_the_call) {
  check_failure(PENSTOCK_EVENT_CREATE, 1000, false);
  check_failure(PENSTOCK_EVENT_START, 1000, false);
  check_failure(PENSTOCK_EVENT_START, PENSTOCK_PAUSE, false);
}

/* grpc-dotnet 1864: for the hops above, a call that cannot be started ends like any other. */
TEST(others_grpc_dotnet_1864_a_failed_start_is_seen_as_a_status) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  probe above, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  probe_add(&above, channel, 2);
  probe_add(&below, channel, 1);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  /* A deadline that has passed before the call begins: hops see the call like any other, and nothing is sent. */
  check_unary(channel, "{\"deadline_ms\": 0}", PENSTOCK_STATUS_DEADLINE_EXCEEDED, "");
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&below);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_STATUS), 2);
}

/* grpc-spring-boot-starter 240: a message was refused, and its half-close went on alone. Here the half-close does not
 * go on either. */
TEST(others_grpc_spring_240_the_half_close_stays_behind_a_refused_message) {
  penstock_channel *channel = open_channel();
  probe slow, below;
  pauser pauser = {PENSTOCK_EVENT_SEND, NULL, 0, LATCH_INIT};
  collector collector = COLLECTOR_INIT;
  pauser_init(&slow, &pauser, "slow");
  probe_init(&below, "below");
  probe_add(&slow, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &collector);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&pauser.paused, 1);
  check_echo(channel);
  OK(penstock_ticket_end(pauser.ticket, PENSTOCK_STATUS_INVALID_ARGUMENT, "bad message"));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, PENSTOCK_STATUS_INVALID_ARGUMENT);
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&slow);
  check_ended(&below);
  /* The hop has seen the message and half-close of the echo, and of the refused call only the end. */
  CHECK_INT(seen(&below, PENSTOCK_EVENT_SEND), 1);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_HALF_CLOSE), 1);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_CANCEL), 1);
}

/* csharp-grpc-prometheus 3: no hop sees OK at the end of a stream that fails in the middle. */
TEST(others_csharp_prometheus_3_a_streams_status_is_the_servers) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  for (int i = 0; i < 2; i++) {
    probe_init(&probes[i], i ? "b" : "a");
    probes[i].trace = &trace;
    probe_add(&probes[i], channel, -i);
  }
  penstock_call *call =
      start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                 "{\"metadata\": {\"x-count\": \"5\", \"x-status\": \"9\", \"x-message\": \"half\"}}");
  OK(penstock_call_send(call, "x", 1));
  for (int i = 0; i < 5; i++) check_receive(call, "x");
  check_finish(call, PENSTOCK_STATUS_FAILED_PRECONDITION);
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) check_ended(&probes[i]);
  CHECK_HAS(trace.text, "b:status a:status");
}

/* ---- Many at once ---- */

typedef struct crowd {
  penstock_channel *channel;
  atomic_int started, ended, wrong;
} crowd;

static int32_t crowd_create(penstock_hop *hop, void *user_data, void **state) {
  (void)hop;
  atomic_fetch_add(&((crowd *)user_data)->started, 1);
  *state = calloc(1, sizeof(uint64_t) * 2);
  ((uint64_t *)*state)[0] = penstock_hop_call_id(hop);
  ((uint64_t *)*state)[1] = (uint64_t)(uintptr_t)user_data;
  return PENSTOCK_NEXT;
}
static int32_t crowd_event(penstock_hop *hop, void *state) {
  uint64_t *own = state;
  if (own[0] != penstock_hop_call_id(hop)) atomic_fetch_add(&((crowd *)(uintptr_t)own[1])->wrong, 1);
  return PENSTOCK_NEXT;
}
static void crowd_destroy(penstock_hop *hop, void *state) {
  crowd_event(hop, state);
  atomic_fetch_add(&((crowd *)(uintptr_t)((uint64_t *)state)[1])->ended, 1);
  free(state);
}

static void *crowd_calls(void *pointer) {
  crowd *crowd = pointer;
  for (int i = 0; i < test_rounds(200); i++) check_echo(crowd->channel);
  return NULL;
}
static void *crowd_stream(void *pointer) {
  crowd *crowd = pointer;
  penstock_call *call = start_call(crowd->channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < test_rounds(200); i++) {
    OK(penstock_call_send(call, "s", 1));
    check_receive(call, "s");
  }
  check_finish(call, 0);
  return NULL;
}

/* grpc 31438: a stream and a unary call ran at once in one interceptor. Here each hop must get its own state, also
 * while the callbacks of another runtime run at the same time.
 */
TEST(others_grpc_31438_two_calls_at_once_in_one_interceptor) {
  crowd crowds[2] = {{open_channel(), 0, 0, 0}, {NULL, 0, 0, 0}};
  penstock_runtime *runtime = new_runtime(NULL);
  crowds[1].channel = open_channel_on(runtime);
  penstock_runtime_release(runtime);
  for (int i = 0; i < 2; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    table.user_data = &crowds[i];
    table.create = crowd_create;
    table.destroy = crowd_destroy;
    table.on_start = table.on_send = table.on_headers = table.on_receive = table.on_status = crowd_event;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(crowds[i].channel, &table, 0, &id, NULL));
  }
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) {
    pthread_create(&threads[i], NULL, i < 4 ? crowd_stream : crowd_calls, &crowds[i % 2]);
  }
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) {
    penstock_channel_release(crowds[i].channel);
    CHECK_INT(atomic_load(&crowds[i].started), 2 + 2 * test_rounds(200));
    EVENTUALLY(atomic_load(&crowds[i].ended) == atomic_load(&crowds[i].started));
    CHECK_INT(atomic_load(&crowds[i].wrong), 0);
  }
}

/* ---- Metadata ---- */

static int32_t stamp(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  char text[32];
  snprintf(text, sizeof(text), "%llu", (unsigned long long)penstock_hop_call_id(hop));
  OK(penstock_metadata_add(penstock_hop_metadata(hop), "x-trailers-stamp", text));
  return PENSTOCK_NEXT;
}

typedef struct sharer {
  penstock_channel *channel;
  penstock_call_options *options;
} sharer;

static void *share_options(void *pointer) {
  sharer *sharer = pointer;
  for (int i = 0; i < test_rounds(100); i++) {
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(sharer->channel, UNARY, "x", 1, sharer->options, &reply, NULL))) break;
    const void *value = NULL;
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-stamp", 0, &value, NULL));
    CHECK_RESULT(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-stamp", 1, &value, NULL),
                 PENSTOCK_E_NOT_FOUND);
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-given", 0, &value, NULL));
    penstock_reply_release(reply);
  }
  return NULL;
}

/* google-cloud-go 609: many threads make calls with the same options, and an interceptor adds a header to each call.
 * Each call must have only its own. */
TEST(others_google_cloud_go_609_calls_share_no_metadata) {
  sharer sharer = {open_channel(), new_options("{\"metadata\": {\"x-trailers-given\": \"g\"}}")};
  probe probe;
  probe_init_with(&probe, "stamp", stamp, NULL);
  probe_add(&probe, sharer.channel, 0);
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, share_options, &sharer);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  penstock_call_options_release(sharer.options);
  penstock_channel_release(sharer.channel);
  check_ended(&probe);
}

static int32_t change_late(probe *self, penstock_hop *hop, int32_t event) {
  penstock_metadata **kept = self->context;
  if (event == PENSTOCK_EVENT_START) *kept = penstock_metadata_retain(penstock_hop_metadata(hop));
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_STATUS) {
    CHECK(penstock_metadata_set(*kept, "x-trailers-late", "1") == PENSTOCK_E_STATE);
  }
  return PENSTOCK_NEXT;
}

/* grpc-java 11870: metadata that has been passed on can be read by others, and a change of it is refused. */
TEST(others_grpc_java_11870_metadata_that_has_left_cannot_be_changed) {
  penstock_channel *channel = open_channel();
  penstock_metadata *kept = NULL;
  probe probe;
  probe_init_with(&probe, "late", change_late, &kept);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  const void *value = NULL;
  CHECK_RESULT(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-late", 0, &value, NULL),
               PENSTOCK_E_NOT_FOUND);
  penstock_reply_release(reply);
  penstock_metadata_release(kept);
  penstock_channel_release(channel);
  check_ended(&probe);
}
