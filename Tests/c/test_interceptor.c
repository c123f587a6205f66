/* interceptor.h: order, filters, lifetimes, values. Laws are those of docs/laws.md. */
#include "unary.h"

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
  /* A higher priority is earlier outbound and later inbound. `create` runs when start comes to the hop. */
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
  OK(penstock_registration_set_priority(id, 3, NULL));
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

/* Law 6: a removal does not change the calls that already have the interceptor. */
TEST(interceptor_removal) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  OK(penstock_registration_remove(id, NULL));
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), 1);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  OK(penstock_call_send(call, "y", 1));
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_SEND]), 2);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
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
    if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
    penstock_call_release(call);
    if (!CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), cases[i].unary + cases[i].bidi)) {
      printf("  case %zu\n", i);
    }
    OK(penstock_registration_remove(id, NULL));
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
  probe_init_with(&probe, "probe", skip, NULL);
  probe_add(&probe, channel, 0);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_STR(probe.log, "C");
}

/* The only callback of its table. The table has no create, so the state of the callback is user_data. (Another table of
 * the test has no callback at all.) */
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
        !CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), "the-culprit")) {
      printf("  case %zu: %d from %s\n", i, cases[i].verdict, event_name(cases[i].event));
    }
    penstock_reply_release(reply);
    for (int k = 0; k < 3; k++) OK(penstock_registration_remove(ids[k], NULL));
    probe_wait_finalized(&above);
    probe_wait_finalized(&wrong);
    probe_wait_finalized(&below);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(latch_count(&above.done), 1);
    CHECK_INT(latch_count(&below.done), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
  }
  /* The return values of the callbacks of signals are ignored. */
  static const nonsense ignored[] = {
      {PENSTOCK_EVENT_DEMAND, 77}, {PENSTOCK_EVENT_SENT, PENSTOCK_TAKE}, {PENSTOCK_EVENT_DEMAND, PENSTOCK_PAUSE}};
  for (size_t i = 0; i < 3; i++) {
    probe probe;
    probe_init_with(&probe, "signals", return_nonsense, (void *)&ignored[i]);
    penstock_interceptor_id id = probe_add(&probe, channel, 0);
    check_echo(channel);
    CHECK(atomic_load(&probe.seen[ignored[i].event]) > 0);
    OK(penstock_registration_remove(id, NULL));
    probe_wait_finalized(&probe);
  }
  penstock_channel_release(channel);
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
    CHECK(penstock_hop_value(hop, "removed") == NULL);
    CHECK_RESULT(penstock_hop_set_value(hop, NULL, (void *)4, value_finalizer), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_INT(atomic_load(&values_finalized), 3);
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    CHECK(penstock_hop_value(hop, "answer") == (void *)42);
    CHECK(penstock_hop_value(hop, "replaced") == (void *)2);
    OK(penstock_hop_set_value(hop, "late", (void *)5, NULL));
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_values_reach_the_caller) {
  atomic_store(&values_finalized, 0);
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "values", set_values, NULL);
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
  /* In blocking style the call itself gives the values, after its end. */
  atomic_store(&values_finalized, 0);
  channel = open_channel();
  probe_init_with(&probe, "values", set_values, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  CHECK(penstock_call_value(call, "answer") == (void *)42);
  penstock_call_release(call);
  EVENTUALLY(atomic_load(&values_finalized) == 5);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
