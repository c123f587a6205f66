/* interceptor.h: order, filters, lifetimes, verdicts. Laws are those of docs/interceptors.md. */
#include "test.h"

static penstock_reply *unary(penstock_channel *channel, const char *request) {
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, request, strlen(request), NULL, &reply, NULL));
  return reply;
}

static bool message_is(const penstock_reply *reply, const char *text) {
  size_t length = 0;
  const void *data = penstock_reply_message(reply, &length);
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

TEST(interceptor_order) {
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe probes[3];
  static const char *const names[] = {"low", "high", "middle"};
  static const int32_t priorities[] = {INT32_MIN, INT32_MAX, 0};
  for (int i = 0; i < 3; i++) {
    probe_init(&probes[i], names[i]);
    probes[i].trace = &trace;
    probe_add(&probes[i], channel, priorities[i]);
  }
  check_echo(channel);
  penstock_channel_release(channel);
  for (int i = 0; i < 3; i++) probe_wait_finalized(&probes[i]);
  /* Higher is earlier outbound, later inbound. Each `create` comes when start has come there. */
  CHECK_HAS(trace.text, "high:create high:start middle:create middle:start low:create low:start ");
  CHECK_HAS(trace.text, "high:send middle:send low:send ");
  CHECK_HAS(trace.text, "high:half_close middle:half_close low:half_close ");
  CHECK_HAS(trace.text, "low:headers middle:headers high:headers ");
  CHECK_HAS(trace.text, "low:receive middle:receive high:receive ");
  CHECK_HAS(trace.text, "low:status ");
  const char *low = strstr(trace.text, "low:status"), *middle = strstr(trace.text, "middle:status");
  const char *high = strstr(trace.text, "high:status");
  CHECK(low && middle && high && low < middle && middle < high);
  for (int i = 0; i < 3; i++) {
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_CREATE]), 1);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_DESTROY]), 1);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_CANCEL]), 0);
    CHECK_INT(probes[i].log[0], 'C');
    CHECK_INT(probes[i].log[strlen(probes[i].log) - 1], 'd');
  }
}

TEST(interceptor_priority_changes_take_effect_for_later_calls) {
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe a, b;
  probe_init(&a, "a");
  probe_init(&b, "b");
  a.trace = b.trace = &trace;
  penstock_interceptor_id id = probe_add(&a, channel, 1);
  probe_add(&b, channel, 2);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_channel_set_interceptor_priority(channel, id, 3, NULL));
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  CHECK_HAS(trace.text, "b:send a:send");
  penstock_call_release(call);
  latch_wait(&a.done, 1);
  latch_wait(&b.done, 1);
  trace.text[0] = 0;
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&a);
  probe_wait_finalized(&b);
  CHECK_HAS(trace.text, "a:send b:send");
}

/* Law 6. */
TEST(interceptor_removal) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  OK(penstock_channel_remove_interceptor(channel, id, NULL));
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), 1);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  OK(penstock_call_send(call, "y", 1));
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_SEND]), 2);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  probe_wait_finalized(&probe);
  CHECK_INT(latch_count(&probe.done), 1);
  penstock_channel_release(channel);
}

TEST(interceptor_method_and_kind_filters) {
  static const struct {
    const char *methods;
    uint32_t kinds;
    bool unary, bidi;
  } cases[] = {
      {NULL, 0, true, true},
      {"*", 0, true, true},
      {"/penstock.Echo/*", 0, true, true},
      {"/penstock.Echo/Unary", 0, true, false},
      {"/penstock.Echo/Un*", 0, true, false},
      {"/penstock.Echo/Una", 0, false, false},
      {"/other.Echo/*,/penstock.Echo/Bidi", 0, false, true},
      {"/other.Echo/*", 0, false, false},
      {NULL, 1u << PENSTOCK_KIND_BIDI, false, true},
      {NULL, 1u << PENSTOCK_KIND_UNARY, true, false},
      {"/penstock.Echo/Unary", 1u << PENSTOCK_KIND_BIDI, false, false},
      {NULL, 15, true, true},
  };
  penstock_channel *channel = open_channel();
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    probe probe;
    probe_init(&probe, "probe");
    penstock_interceptor table = probe_table(&probe);
    table.methods = cases[i].methods;
    table.kinds = cases[i].kinds;
    penstock_interceptor_id id = 0;
    if (!OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL))) {
      printf("  case %zu\n", i);
      continue;
    }
    check_echo(channel);
    if (!CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), cases[i].unary)) printf("  case %zu\n", i);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_finish(call, &reply))) penstock_reply_release(reply);
    penstock_call_release(call);
    if (!CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), cases[i].unary + cases[i].bidi)) {
      printf("  case %zu\n", i);
    }
    OK(penstock_channel_remove_interceptor(channel, id, NULL));
    probe_wait_finalized(&probe);
  }
  penstock_channel_release(channel);
}

static int32_t skip(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_CREATE ? PENSTOCK_SKIP : PENSTOCK_NEXT;
}

TEST(interceptor_skip) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  probe.hook = skip;
  probe_add(&probe, channel, 0);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_STR(probe.log, "C");
}

/* A table with all NULL, and one with a single callback whose state is user_data. */
static int32_t count_start(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add((atomic_int *)state, 1);
  return PENSTOCK_NEXT;
}
TEST(interceptor_null_callbacks) {
  penstock_channel *channel = open_channel();
  penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT, one = PENSTOCK_INTERCEPTOR_INIT;
  atomic_int starts = 0;
  one.user_data = &starts;
  one.on_start = count_start;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &empty, 0, &id, NULL));
  OK(penstock_channel_add_interceptor(channel, &one, 0, &id, NULL));
  check_echo(channel);
  check_echo(channel);
  CHECK_INT(atomic_load(&starts), 2);
  penstock_channel_release(channel);
}

/* ---- Law 7 ---- */

typedef struct nonsense {
  int32_t event, verdict;
} nonsense;
static int32_t return_nonsense(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  const nonsense *what = self->context;
  return event == what->event ? what->verdict : PENSTOCK_NEXT;
}

TEST(interceptor_nonsense_ends_the_call_with_internal) {
  static const nonsense cases[] = {
      {PENSTOCK_EVENT_CREATE, PENSTOCK_PAUSE},
      {PENSTOCK_EVENT_CREATE, 77},
      {PENSTOCK_EVENT_START, -1},
      {PENSTOCK_EVENT_START, 77},
      {PENSTOCK_EVENT_START, PENSTOCK_DROP},
      {PENSTOCK_EVENT_START, PENSTOCK_SKIP},
      {PENSTOCK_EVENT_START, PENSTOCK_RESTART},
      {PENSTOCK_EVENT_START, PENSTOCK_PAUSE},
      {PENSTOCK_EVENT_SEND, PENSTOCK_TAKE},
      {PENSTOCK_EVENT_SEND, PENSTOCK_PAUSE},
      {PENSTOCK_EVENT_SEND, INT32_MAX},
      {PENSTOCK_EVENT_HALF_CLOSE, PENSTOCK_DROP},
      {PENSTOCK_EVENT_HALF_CLOSE, INT32_MIN},
      {PENSTOCK_EVENT_HEADERS, PENSTOCK_DROP},
      {PENSTOCK_EVENT_HEADERS, PENSTOCK_TAKE},
      {PENSTOCK_EVENT_RECEIVE, PENSTOCK_SKIP},
      {PENSTOCK_EVENT_RECEIVE, PENSTOCK_RESTART},
      {PENSTOCK_EVENT_STATUS, PENSTOCK_DROP},
      {PENSTOCK_EVENT_STATUS, PENSTOCK_PAUSE},
      {PENSTOCK_EVENT_STATUS, 1000},
  };
  penstock_channel *channel = open_channel();
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    probe above, wrong, below;
    probe_init(&above, "above");
    probe_init(&wrong, "the-culprit");
    probe_init(&below, "below");
    wrong.hook = return_nonsense;
    wrong.context = (void *)&cases[i];
    penstock_interceptor_id ids[3] = {probe_add(&above, channel, 3), probe_add(&wrong, channel, 2),
                                      probe_add(&below, channel, 1)};
    penstock_reply *reply = unary(channel, "x");
    if (!CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL) ||
        !CHECK_HAS(penstock_status_message(penstock_reply_status(reply)), "the-culprit")) {
      printf("  case %zu: %d from %s\n", i, cases[i].verdict, event_name(cases[i].event));
    }
    penstock_reply_release(reply);
    for (int k = 0; k < 3; k++) OK(penstock_channel_remove_interceptor(channel, ids[k], NULL));
    probe_wait_finalized(&above);
    probe_wait_finalized(&wrong);
    probe_wait_finalized(&below);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(latch_count(&above.done), 1);
    CHECK_INT(latch_count(&below.done), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
  }
  /* What signals return is ignored. */
  static const nonsense ignored[] = {
      {PENSTOCK_EVENT_DEMAND, 77}, {PENSTOCK_EVENT_SENT, PENSTOCK_TAKE}, {PENSTOCK_EVENT_DEMAND, PENSTOCK_PAUSE}};
  for (size_t i = 0; i < 3; i++) {
    probe probe;
    probe_init(&probe, "signals");
    probe.hook = return_nonsense;
    probe.context = (void *)&ignored[i];
    penstock_interceptor_id id = probe_add(&probe, channel, 0);
    check_echo(channel);
    CHECK(atomic_load(&probe.seen[ignored[i].event]) > 0);
    OK(penstock_channel_remove_interceptor(channel, id, NULL));
    probe_wait_finalized(&probe);
  }
  penstock_channel_release(channel);
}

/* ---- Verdicts ---- */

static int32_t drop_b(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(penstock_hop_message(hop, &data, &length));
  const char *wanted = event == PENSTOCK_EVENT_SEND ? "b" : "d";
  return length == 1 && memcmp(data, wanted, 1) == 0 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

TEST(interceptor_drop) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "drop");
  probe.hook = drop_b;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (const char *c = "abcde"; *c; c++) OK(penstock_call_send(call, c, 1));
  OK(penstock_call_half_close(call));
  char got[8] = "";
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    strncat(got, penstock_message_data(message), 1);
    penstock_message_release(message);
  }
  CHECK_STR(got, "ace");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t change_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_set_message(hop, "changed", 7));
  if (event == PENSTOCK_EVENT_RECEIVE) {
    const void *data = NULL;
    size_t length = 0;
    OK(penstock_hop_message(hop, &data, &length));
    CHECK(length == 7 && memcmp(data, "changed", 7) == 0);
    OK(penstock_hop_set_message(hop, NULL, 0));
    OK(penstock_hop_set_message(hop, "again", 5));
  }
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-seen", "yes"));
  if (event == PENSTOCK_EVENT_STATUS) {
    OK(penstock_status_set_code(penstock_hop_status(hop), PENSTOCK_STATUS_OK));
    OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-trailer", "yes"));
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_changes_everything) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "change");
  probe.hook = change_everything;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(message_is(reply, "again"));
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-seen", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailer", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t hold_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_HEADERS ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

/* A HOLD without a ticket is released by the next NEXT in its lane. */
TEST(interceptor_hold_without_a_ticket) {
  penstock_channel *channel = open_channel();
  probe above, holder;
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe_init(&above, "above");
  probe_init(&holder, "holder");
  above.trace = holder.trace = &trace;
  holder.hook = hold_headers;
  probe_add(&above, channel, 2);
  probe_add(&holder, channel, 1);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&holder);
  CHECK_HAS(trace.text, "holder:headers holder:receive above:headers above:receive");
}

static int32_t hold_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_SEND ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

TEST(interceptor_hold_is_bounded) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "holder");
  probe.hook = hold_everything;
  penstock_interceptor table = probe_table(&probe);
  table.hold_bytes = 100;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  char data[60] = "";
  penstock_result result = PENSTOCK_OK;
  for (int i = 0; i < 50 && result == PENSTOCK_OK; i++) result = penstock_call_try_send(call, data, sizeof(data));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Law 3. */
static int32_t finish_at(probe *self, penstock_hop *hop, int32_t event) {
  if (event == *(int32_t *)self->context) {
    OK(penstock_hop_finish(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "not you"));
  }
  return PENSTOCK_NEXT;
}

static int32_t finish_twice(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) {
    OK(penstock_hop_finish(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "first"));
    penstock_result again = penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "second");
    CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE);
  }
  return PENSTOCK_NEXT;
}
TEST(interceptor_second_finish_is_refused) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "twice");
  probe.hook = finish_twice;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "first");
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(interceptor_finish_from_every_callback) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS,
                                   PENSTOCK_EVENT_DEMAND,  PENSTOCK_EVENT_SENT};
  penstock_channel *channel = open_channel();
  for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
    probe above, finisher, below;
    int32_t event = events[i];
    probe_init(&above, "above");
    probe_init(&finisher, "finisher");
    probe_init(&below, "below");
    finisher.hook = finish_at;
    finisher.context = &event;
    penstock_interceptor_id ids[3] = {probe_add(&above, channel, 3), probe_add(&finisher, channel, 2),
                                      probe_add(&below, channel, 1)};
    penstock_reply *reply = unary(channel, "x");
    if (!CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_PERMISSION_DENIED))
      printf("  in %s\n", event_name(event));
    CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "not you");
    penstock_reply_release(reply);
    for (int k = 0; k < 3; k++) OK(penstock_channel_remove_interceptor(channel, ids[k], NULL));
    probe_wait_finalized(&above);
    probe_wait_finalized(&finisher);
    probe_wait_finalized(&below);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_CANCEL]), 0);
    CHECK_INT(atomic_load(&finisher.seen[PENSTOCK_EVENT_CANCEL]), 0);
    if (event == PENSTOCK_EVENT_START) {
      CHECK_STR(below.log, "");
    } else if (event != PENSTOCK_EVENT_STATUS && atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]) &&
               !atomic_load(&below.seen[PENSTOCK_EVENT_STATUS])) {
      CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
      CHECK_HAS(below.log, "Xd");
    }
    CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_DESTROY]), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
  }
  penstock_channel_release(channel);
}

/* ---- TAKE ---- */

typedef struct stub {
  penstock_hop *hop;
  latch taken;
  pthread_t thread;
  int messages;
} stub;

static void *answer(void *pointer) {
  stub *stub = pointer;
  latch_wait(&stub->taken, 1);
  penstock_metadata *headers = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_metadata_set(headers, "x-from", "cache"));
  OK(penstock_hop_deliver_headers(stub->hop, headers));
  CHECK(penstock_hop_deliver_headers(stub->hop, headers) != PENSTOCK_OK);
  penstock_metadata_release(headers);
  for (int i = 0; i < stub->messages; i++) {
    penstock_result result;
    int64_t until = test_now_ms() + 20000 * test_slow();
    while ((result = penstock_hop_deliver_message(stub->hop, "cached", 6)) == PENSTOCK_E_WOULD_BLOCK &&
           test_now_ms() < until) {
      test_pause();
    }
    OK(result);
  }
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-age", "3"));
  OK(penstock_hop_deliver_status(stub->hop, status));
  penstock_result again = penstock_hop_deliver_status(stub->hop, status);
  CHECK(again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE || again == PENSTOCK_E_ALREADY);
  again = penstock_hop_deliver_message(stub->hop, "late", 4);
  if (!CHECK(again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE)) printf("  %s\n", penstock_result_name(again));
  penstock_status_release(status);
  penstock_hop_release(stub->hop);
  return NULL;
}

static int32_t take(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  stub *stub = self->context;
  stub->hop = penstock_hop_retain(hop);
  latch_signal(&stub->taken);
  return PENSTOCK_TAKE;
}

static void check_stub(penstock_runtime *runtime, int32_t kind, const char *method, int messages) {
  penstock_channel *channel = open_channel_on(runtime);
  stub stub = {NULL, LATCH_INIT, 0, messages};
  probe above, taker, below;
  probe_init(&above, "above");
  probe_init(&taker, "taker");
  probe_init(&below, "below");
  taker.hook = take;
  taker.context = &stub;
  probe_add(&above, channel, 3);
  probe_add(&taker, channel, 2);
  probe_add(&below, channel, 1);
  pthread_create(&stub.thread, NULL, answer, &stub);
  penstock_call *call = start_call(channel, method, kind);
  /* The answer may be there, and the call over, before the question. */
  penstock_result sent = penstock_call_send(call, "q", 1);
  if (sent != PENSTOCK_E_GONE) OK(sent);
  int got = 0;
  if (kind == PENSTOCK_KIND_BIDI) {
    penstock_message *message = NULL;
    while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
      CHECK_INT(penstock_message_length(message), 6);
      penstock_message_release(message);
      got++;
    }
    CHECK_INT(got, messages);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) {
    if (!CHECK_INT(penstock_reply_code(reply), 0)) printf("  %s\n", penstock_reply_status_json(reply));
    if (kind == PENSTOCK_KIND_UNARY) CHECK(message_is(reply, "cached"));
    const void *value = NULL;
    OK(penstock_metadata_get(penstock_reply_headers(reply), "x-from", 0, &value, NULL));
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-age", 0, &value, NULL));
    penstock_reply_release(reply);
  }
  pthread_join(stub.thread, NULL);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&taker);
  probe_wait_finalized(&below);
  CHECK_STR(below.log, "");
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(atomic_load(&taker.seen[PENSTOCK_EVENT_STATUS]), 0);
  CHECK_INT(atomic_load(&taker.seen[PENSTOCK_EVENT_CANCEL]), 0);
}

TEST(interceptor_take_unary_from_another_thread) {
  for (int i = 0; i < test_rounds(20); i++) check_stub(NULL, PENSTOCK_KIND_UNARY, UNARY, 1);
}
TEST(interceptor_take_bidi_from_another_thread) {
  for (int i = 0; i < test_rounds(20); i++) check_stub(NULL, PENSTOCK_KIND_BIDI, BIDI, 5);
}
TEST(interceptor_take_on_a_host_runtime) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  check_stub(runtime, PENSTOCK_KIND_UNARY, UNARY, 1);
  check_stub(runtime, PENSTOCK_KIND_BIDI, BIDI, 3);
  penstock_runtime_release(runtime);
}

static int32_t take_and_answer(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) return PENSTOCK_TAKE;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    OK(penstock_hop_deliver_headers(hop, NULL));
    OK(penstock_hop_deliver_message(hop, "stub", 4));
    penstock_status *status = NULL;
    OK(penstock_status_new(0, NULL, &status));
    OK(penstock_hop_deliver_status(hop, status));
    penstock_status_release(status);
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_take_and_answer_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "stub");
  probe.hook = take_and_answer;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(message_is(reply, "stub"));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Cancel and deadline reach a hop that has taken the call. */
static int32_t take_and_wait(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_CANCEL) latch_signal(self->context);
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}
TEST(interceptor_take_is_cancelled) {
  penstock_channel *channel = open_channel();
  probe probe;
  latch cancelled = LATCH_INIT;
  probe_init(&probe, "stub");
  probe.hook = take_and_wait;
  probe.context = &cancelled;
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 30}", &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  latch_wait(&cancelled, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_cancel(call, "stop"));
  latch_wait(&cancelled, 2);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- Injection and demand ---- */

static int32_t inject(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_HALF_CLOSE) {
    OK(penstock_hop_send_message(hop, "+", 1));
  }
  return PENSTOCK_NEXT;
}
TEST(interceptor_injects_messages) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "inject");
  probe.hook = inject;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_send(call, "b", 1));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) {
    CHECK(message_is(reply, "+a+b+"));
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* More than the one that a unary side may carry. gRPC statuscodes: UNIMPLEMENTED or INTERNAL. */
TEST(interceptor_injected_messages_count) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "inject");
  probe.hook = inject;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  int32_t code = penstock_reply_code(reply);
  CHECK(code == PENSTOCK_STATUS_UNIMPLEMENTED || code == PENSTOCK_STATUS_INTERNAL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t hold_demand(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DEMAND) {
    CHECK(penstock_hop_count(hop) > 0);
    penstock_hop **kept = self->context;
    if (!*kept) {
      *kept = penstock_hop_retain(hop);
      OK(penstock_hop_set_count(hop, 0));
    }
  }
  return PENSTOCK_NEXT;
}

static void *ask_later(void *pointer) {
  penstock_hop *hop = pointer;
  OK(penstock_hop_demand(hop, 2));
  penstock_hop_release(hop);
  return NULL;
}

TEST(interceptor_lowers_demand) {
  penstock_channel *channel = open_channel();
  probe probe;
  penstock_hop *kept = NULL;
  probe_init(&probe, "demand");
  probe.hook = hold_demand;
  probe.context = &kept;
  probe_add(&probe, channel, 0);
  latch finalized = LATCH_INIT;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &finalized;
  table.finalizer = signal_latch;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  EVENTUALLY(atomic_load(&probe.seen[PENSTOCK_EVENT_HEADERS]) == 1);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 0);
  REQUIRE(kept != NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, ask_later, kept);
  latch_wait(&finalized, 1);
  pthread_join(thread, NULL);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- Values ---- */

static atomic_int values_finalized;
static void value_finalizer(void *value) {
  (void)value;
  atomic_fetch_add(&values_finalized, 1);
}
static int32_t set_values(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    OK(penstock_hop_set_value(hop, "answer", (void *)42, value_finalizer));
    OK(penstock_hop_set_value(hop, "replaced", (void *)1, value_finalizer));
    OK(penstock_hop_set_value(hop, "replaced", (void *)2, value_finalizer));
    CHECK_INT(atomic_load(&values_finalized), 1);
    OK(penstock_hop_set_value(hop, "removed", (void *)3, value_finalizer));
    OK(penstock_hop_set_value(hop, "removed", NULL, NULL));
    CHECK_INT(atomic_load(&values_finalized), 2);
    CHECK(penstock_hop_get_value(hop, "removed") == NULL);
    CHECK_RESULT(penstock_hop_set_value(hop, NULL, (void *)4, value_finalizer), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_INT(atomic_load(&values_finalized), 3);
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    CHECK(penstock_hop_get_value(hop, "answer") == (void *)42);
    CHECK(penstock_hop_get_value(hop, "replaced") == (void *)2);
    OK(penstock_hop_set_value(hop, "late", (void *)5, NULL));
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_values_reach_the_caller) {
  atomic_store(&values_finalized, 0);
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "values");
  probe.hook = set_values;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK(penstock_reply_value(reply, "answer") == (void *)42);
  CHECK(penstock_reply_value(reply, "late") == (void *)5);
  CHECK(penstock_reply_value(reply, "removed") == NULL);
  CHECK(penstock_reply_value(reply, "") == NULL);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_INT(atomic_load(&values_finalized), 3);
  penstock_reply_release(reply);
  EVENTUALLY(atomic_load(&values_finalized) == 5);
  /* From the call, in blocking style, after its end. */
  atomic_store(&values_finalized, 0);
  channel = open_channel();
  probe_init(&probe, "values");
  probe.hook = set_values;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  if (OK(penstock_call_finish(call, &reply))) penstock_reply_release(reply);
  CHECK(penstock_call_value(call, "answer") == (void *)42);
  penstock_call_release(call);
  EVENTUALLY(atomic_load(&values_finalized) == 5);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
