/* interceptor.h: the order, levels and filters of interceptors, and the registry, as calls see them. */
#include "test.h"

static penstock_interceptor_id add_at(probe *probe, penstock_channel *channel, int32_t priority, uint32_t level,
                                      uint32_t per_attempt) {
  penstock_interceptor table = probe_table(probe);
  table.level = level;
  table.per_attempt = per_attempt;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

static int32_t note_level(probe *self, penstock_hop *hop, int32_t event) {
  (void)event;
  atomic_fetch_or((atomic_int *)self->context, 1 << penstock_hop_level(hop));
  return PENSTOCK_NEXT;
}

/* The order of a chain is: object level, codec, bytes level per call, bytes level per attempt. Each of these is ordered
 * by priority, then by registration. */
TEST(levels_stand_in_their_order) {
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const struct {
    const char *name;
    int32_t priority;
    uint32_t level, per_attempt;
    int levels;
  } places[] = {
      {"attempt", INT32_MAX, PENSTOCK_LEVEL_BYTES, 1, 1 << 0}, {"bytes", 0, PENSTOCK_LEVEL_BYTES, 0, 1 << 0},
      {"both", 7, PENSTOCK_LEVEL_BOTH, 0, 1 << 0 | 1 << 1},    {"object", INT32_MIN, PENSTOCK_LEVEL_OBJECT, 0, 1 << 1},
      {"split", 5, PENSTOCK_LEVEL_BOTH, 1, 1 << 0 | 1 << 1},
  };
  enum { COUNT = sizeof(places) / sizeof(*places) };
  probe probes[COUNT];
  atomic_int levels[COUNT];
  for (int i = 0; i < COUNT; i++) {
    probe_init(&probes[i], places[i].name);
    probes[i].trace = &trace;
    probes[i].hook = note_level;
    atomic_init(&levels[i], 0);
    probes[i].context = &levels[i];
    add_at(&probes[i], channel, places[i].priority, places[i].level, places[i].per_attempt);
  }
  check_echo(channel);
  penstock_channel_release(channel);
  for (int i = 0; i < COUNT; i++) probe_wait_finalized(&probes[i]);
  CHECK_HAS(trace.text, "both:send split:send object:send both:send bytes:send attempt:send split:send ");
  CHECK_HAS(trace.text,
            "split:receive attempt:receive bytes:receive both:receive object:receive split:receive both:receive ");
  for (int i = 0; i < COUNT; i++) {
    int hops = places[i].levels == 3 ? 2 : 1;
    CHECK_INT(atomic_load(&levels[i]), places[i].levels);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_CREATE]), hops);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_DESTROY]), hops);
  }
}

/* ---- One order for the interceptors of runtimes, channels and call options ---- */

static penstock_interceptor_id add_to_options(probe *probe, penstock_call_options *options, int32_t priority) {
  penstock_interceptor table = probe_table(probe);
  penstock_interceptor_id id = 0;
  OK(penstock_call_options_add_interceptor(options, &table, priority, &id, NULL));
  return id;
}

static void echo_with(penstock_channel *channel, penstock_call_options *options) {
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL))) return;
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  penstock_reply_release(reply);
}

static penstock_channel *open_with(penstock_runtime *runtime, const char *options) {
  char target[64];
  snprintf(target, sizeof(target), "ipv4:%s", peer_address());
  penstock_channel *channel = NULL;
  OK(penstock_channel_new_on(runtime, target, options, &channel, NULL));
  return channel;
}

/* Checks the order of interceptors of a runtime, a channel and a call's options, with equal and with extreme
 * priorities. */
static void check_order(const char *options_json, const char *expected) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_with(runtime, options_json);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const struct {
    const char *name;
    char place;
    int32_t priority;
  } all[] = {{"c1", 'c', 0},          {"r1", 'r', 0},         {"o1", 'o', 0},          {"r2", 'r', 0},
             {"o2", 'o', 0},          {"c2", 'c', 0},         {"low", 'r', INT32_MIN}, {"high", 'c', INT32_MAX},
             {"top", 'o', INT32_MAX}, {"end", 'o', INT32_MIN}};
  enum { COUNT = sizeof(all) / sizeof(*all) };
  probe probes[COUNT];
  for (int i = 0; i < COUNT; i++) {
    probe_init(&probes[i], all[i].name);
    probes[i].trace = &trace;
    if (all[i].place == 'c') probe_add(&probes[i], channel, all[i].priority);
    if (all[i].place == 'r') probe_add_to_runtime(&probes[i], runtime, all[i].priority);
    if (all[i].place == 'o') add_to_options(&probes[i], options, all[i].priority);
  }
  echo_with(channel, options);
  CHECK_HAS(trace.text, expected);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  for (int i = 0; i < COUNT; i++) probe_wait_finalized(&probes[i]);
}

TEST(places_merge_in_one_order) {
  check_order("{\"tls\": false}",
              "high:send top:send c1:send r1:send o1:send r2:send o2:send c2:send low:send end:send ");
}
TEST(places_merge_newest_first) {
  check_order("{\"tls\": false, \"tie_order\": \"lifo\"}",
              "top:send high:send c2:send o2:send r2:send o1:send r1:send c1:send end:send low:send ");
}

/* ---- Per call ---- */

typedef struct option_user {
  penstock_channel *channel;
  penstock_call_options *options;
  int calls;
} option_user;

static void *use_options(void *pointer) {
  option_user *user = pointer;
  for (int i = 0; i < user->calls; i++) echo_with(user->channel, user->options);
  return NULL;
}

/* Several threads make many calls with one set of options, while an interceptor is added to it. */
TEST(options_carry_interceptors_for_many_calls) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  probe probe, late;
  probe_init(&probe, "probe");
  probe_init(&late, "late");
  penstock_interceptor_id id = add_to_options(&probe, options, 0);
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), 0);
  option_user user = {channel, options, test_rounds(50)};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, use_options, &user);
  penstock_interceptor_id late_id = add_to_options(&late, options, 1);
  CHECK(late_id > id);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), 4 * user.calls);
  int before = atomic_load(&late.seen[PENSTOCK_EVENT_CREATE]);
  echo_with(channel, options);
  CHECK_INT(atomic_load(&late.seen[PENSTOCK_EVENT_CREATE]), before + 1);
  CHECK_RESULT(penstock_registration_wait_removed(id, 0), PENSTOCK_E_STATE);
  penstock_call_options_release(options);
  CHECK_RESULT(penstock_registration_remove(id, NULL), PENSTOCK_E_NOT_FOUND);
  OK(penstock_registration_wait_removed(id, 20000));
  OK(penstock_registration_wait_removed(late_id, 20000));
  CHECK_INT(atomic_load(&probe.finalized), 1);
  CHECK_INT(atomic_load(&late.finalized), 1);
  penstock_channel_release(channel);
}

/* Interceptors in options can be moved, filtered, replaced and removed like any other, with effect for later calls. */
TEST(options_registrations_change) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const char *const names[] = {"a", "b", "new"};
  probe probes[3];
  for (int i = 0; i < 3; i++) {
    probe_init(&probes[i], names[i]);
    probes[i].trace = &trace;
  }
  penstock_interceptor_id a = add_to_options(&probes[0], options, 2), b = probe_add(&probes[1], channel, 1), id = 0;
  echo_with(channel, options);
  CHECK_HAS(trace.text, "a:send b:send ");
  OK(penstock_registration_set_priority(a, 0, NULL));
  trace.text[0] = 0;
  echo_with(channel, options);
  CHECK_HAS(trace.text, "b:send a:send ");
  OK(penstock_registration_set_filter(a, BIDI, 0, NULL));
  trace.text[0] = 0;
  echo_with(channel, options);
  CHECK(strstr(trace.text, "a:") == NULL);
  penstock_interceptor table = probe_table(&probes[2]);
  OK(penstock_registration_replace(a, &table, &id, NULL));
  OK(penstock_registration_wait_removed(a, 20000));
  CHECK_INT(atomic_load(&probes[0].finalized), 1);
  trace.text[0] = 0;
  echo_with(channel, options);
  CHECK_HAS(trace.text, "b:send new:send ");
  OK(penstock_registration_remove(b, NULL));
  OK(penstock_registration_remove(id, NULL));
  CHECK_RESULT(penstock_registration_remove(id, NULL), PENSTOCK_E_NOT_FOUND);
  OK(penstock_registration_wait_removed(id, 20000));
  trace.text[0] = 0;
  echo_with(channel, options);
  CHECK_STR(trace.text, "");
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  for (int i = 0; i < 3; i++) probe_wait_finalized(&probes[i]);
}

/* The interceptors live as long as a call that has them. */
TEST(options_may_go_before_their_call) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor table = probe_table(&probe);
  table.kinds = 1u << PENSTOCK_KIND_BIDI;
  table.methods = BIDI;
  penstock_interceptor_id id = 0;
  OK(penstock_call_options_add_interceptor(options, &table, 0, &id, NULL));
  echo_with(channel, options);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), 0);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  penstock_call_options_release(options);
  CHECK_RESULT(penstock_registration_wait_removed(id, 0), PENSTOCK_E_TIMEOUT);
  CHECK_RESULT(penstock_registration_wait_removed(id, 20), PENSTOCK_E_TIMEOUT);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  OK(penstock_registration_wait_removed(id, 20000));
  CHECK_INT(atomic_load(&probe.finalized), 1);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_SEND]), 1);
  penstock_channel_release(channel);
}

/* ---- Changes on a live registration ---- */

TEST(filters_change_without_losing_the_place) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe probes[4];
  penstock_interceptor_id ids[4];
  static const char *const names[] = {"a", "b", "c", "d"};
  for (int i = 0; i < 4; i++) {
    probe_init(&probes[i], names[i]);
    probes[i].trace = &trace;
    ids[i] = i % 2 ? probe_add_to_runtime(&probes[i], runtime, 0) : probe_add(&probes[i], channel, 0);
  }
  OK(penstock_registration_set_filter(ids[1], "/penstock.Echo/Bidi,/other/*", 0, NULL));
  OK(penstock_registration_set_filter(ids[2], NULL, 1u << PENSTOCK_KIND_BIDI, NULL));
  check_echo(channel);
  CHECK_HAS(trace.text, "a:send d:send ");
  char *json = NULL;
  if (OK(penstock_channel_interceptors_json(channel, &json))) {
    CHECK_HAS(json, "\"methods\":\"/penstock.Echo/Bidi,/other/*\",\"kinds\":[\"unary\",\"client_stream\","
                    "\"server_stream\",\"bidi\"]");
    CHECK_HAS(json, "\"methods\":\"*\",\"kinds\":[\"bidi\"]");
  }
  penstock_free(json);
  OK(penstock_registration_set_filter(ids[1], "*", 0, NULL));
  OK(penstock_registration_set_filter(ids[2], UNARY, 0, NULL));
  trace.text[0] = 0;
  check_echo(channel);
  CHECK_HAS(trace.text, "a:send b:send c:send d:send ");

  penstock_error *error = NULL;
  CHECK_RESULT(penstock_registration_set_filter(ids[0], "/a/b*c", 0, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "/a/b*c");
  CHECK_RESULT(penstock_registration_set_filter(ids[0], NULL, 1u << 4, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "kinds");
  OK(penstock_registration_remove(ids[0], NULL));
  CHECK_RESULT(penstock_registration_set_filter(ids[0], NULL, 0, &error), PENSTOCK_E_NOT_FOUND);
  CHECK_ERROR(error, PENSTOCK_E_NOT_FOUND, NULL, NULL);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  for (int i = 0; i < 4; i++) probe_wait_finalized(&probes[i]);
}

TEST(replacing_keeps_the_place) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const char *const names[] = {"a", "b", "c", "new", "newer"};
  probe probes[5];
  for (int i = 0; i < 5; i++) {
    probe_init(&probes[i], names[i]);
    probes[i].trace = &trace;
  }
  probe_add(&probes[0], channel, 3);
  penstock_interceptor_id b = probe_add_to_runtime(&probes[1], runtime, 3), id = 0;
  probe_add(&probes[2], channel, 3);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_interceptor table = probe_table(&probes[3]);
  OK(penstock_registration_replace(b, &table, &id, NULL));
  CHECK(id != b && id != 0);
  /* The call that was created before keeps the old interceptor. */
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  CHECK_HAS(trace.text, "a:send b:send c:send ");
  CHECK_RESULT(penstock_registration_wait_removed(b, 0), PENSTOCK_E_TIMEOUT);
  trace.text[0] = 0;
  check_echo(channel);
  CHECK_HAS(trace.text, "a:send new:send c:send ");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  OK(penstock_registration_wait_removed(b, 20000));
  CHECK_INT(atomic_load(&probes[1].finalized), 1);
  /* The replacement also has the priority of the old interceptor, and the old id is no longer valid. */
  OK(penstock_registration_set_priority(id, 2, NULL));
  CHECK_RESULT(penstock_registration_set_priority(b, 2, NULL), PENSTOCK_E_NOT_FOUND);
  penstock_interceptor_id newer = 0;
  table = probe_table(&probes[4]);
  table.kinds = 1u << PENSTOCK_KIND_UNARY;
  OK(penstock_registration_replace(id, &table, &newer, NULL));
  OK(penstock_registration_wait_removed(id, 20000));
  CHECK_INT(atomic_load(&probes[3].finalized), 1);
  trace.text[0] = 0;
  check_echo(channel);
  CHECK_HAS(trace.text, "a:send c:send newer:send ");
  /* If a replacement is refused, only the new interceptor is finalized. */
  probe refused;
  probe_init(&refused, "refused");
  table = probe_table(&refused);
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_registration_replace(id, &table, &b, &error), PENSTOCK_E_NOT_FOUND);
  CHECK_ERROR(error, PENSTOCK_E_NOT_FOUND, NULL, NULL);
  CHECK_INT(atomic_load(&refused.finalized), 1);
  probe_init(&refused, "refused");
  table = probe_table(&refused);
  table.methods = "";
  CHECK_RESULT(penstock_registration_replace(newer, &table, &b, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&refused.finalized), 1);
  CHECK_INT(atomic_load(&probes[4].finalized), 0);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  for (int i = 0; i < 5; i++) probe_wait_finalized(&probes[i]);
}

/* ---- The list ---- */

TEST(list_tells_place_level_filter_and_calls) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  probe a, b, c;
  probe_init(&a, "a");
  probe_init(&b, "b");
  probe_init(&c, "c");
  add_at(&a, channel, 1, PENSTOCK_LEVEL_BYTES, 1);
  probe_add_to_runtime(&b, runtime, -5);
  add_at(&c, channel, INT32_MIN, PENSTOCK_LEVEL_BOTH, 0);
  check_echo(channel);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  char *json = NULL;
  if (OK(penstock_channel_interceptors_json(channel, &json))) {
    const char *first = strstr(json, "\"name\":\"c\""), *second = strstr(json, "\"name\":\"b\"");
    const char *third = strstr(json, "\"name\":\"a\"");
    CHECK(first && second && third && first < second && second < third);
    CHECK_HAS(json, "\"priority\":-2147483648,\"place\":\"channel\",\"level\":\"both\",\"per\":\"call\",");
    CHECK_HAS(json, "\"priority\":-5,\"place\":\"runtime\",\"level\":\"bytes\",\"per\":\"call\",");
    CHECK_HAS(json, "\"priority\":1,\"place\":\"channel\",\"level\":\"bytes\",\"per\":\"attempt\",");
    CHECK_HAS(first, "\"calls_in_flight\":1,\"calls_seen\":2");
  }
  penstock_free(json);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  if (OK(penstock_runtime_interceptors_json(runtime, &json))) {
    CHECK_HAS(json, "\"name\":\"b\"");
    CHECK_HAS(json, "\"calls_in_flight\":0,\"calls_seen\":2");
    CHECK(strstr(json, "\"name\":\"a\"") == NULL);
  }
  penstock_free(json);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&a);
  probe_wait_finalized(&b);
  probe_wait_finalized(&c);
}

/* ---- A thousand ---- */

/* A thousand interceptors whose filters exclude all calls do not disturb the calls. When the filter of one is changed,
 * it gets the next call. */
TEST(a_thousand_interceptors) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  enum { COUNT = 1000 };
  static penstock_interceptor_id ids[COUNT];
  static atomic_int finalized;
  atomic_init(&finalized, 0);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &finalized;
  table.finalizer = count_up;
  char pattern[32];
  for (int i = 0; i < COUNT; i++) {
    snprintf(pattern, sizeof(pattern), "/service%d/*", i);
    table.methods = pattern;
    int32_t priority = (int32_t)test_random(UINT32_MAX);
    OK(i % 2 ? penstock_runtime_add_interceptor(runtime, &table, priority, &ids[i], NULL)
             : penstock_channel_add_interceptor(channel, &table, priority, &ids[i], NULL));
  }
  for (int i = 0; i < test_rounds(100); i++) check_echo(channel);
  OK(penstock_registration_set_filter(ids[1], "/penstock.Echo/*", 0, NULL));
  check_echo(channel);
  char *json = NULL;
  if (OK(penstock_channel_interceptors_json(channel, &json))) {
    CHECK_HAS(json,
              "\"methods\":\"/penstock.Echo/*\",\"kinds\":[\"unary\",\"client_stream\",\"server_stream\",\"bidi\"],"
              "\"calls_in_flight\":0,\"calls_seen\":1}");
    CHECK_HAS(json, "/service998/*");
  }
  penstock_free(json);
  for (int i = 0; i < COUNT; i++) {
    OK(penstock_registration_remove(ids[i], NULL));
  }
  CHECK_INT(atomic_load(&finalized), COUNT);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* ---- Side calls ---- */

typedef struct replacement {
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_interceptor_id id;
  probe *by;
  latch ended;
  atomic_int code;
} replacement;

static void side_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  atomic_store(&((replacement *)user_data)->code, penstock_reply_code(reply));
}
static void side_finalizer(void *user_data) { latch_signal(&((replacement *)user_data)->ended); }

static int32_t replace_and_call(probe *self, penstock_hop *hop, int32_t event) {
  replacement *context = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_interceptor table = probe_table(context->by);
  OK(penstock_registration_replace(context->id, &table, &context->id, NULL));
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = context;
  callbacks.finalizer = side_finalizer;
  callbacks.on_reply = side_reply;
  penstock_call *call = NULL;
  if (OK(penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, context->options, &callbacks, &call, NULL))) {
    OK(penstock_call_try_send(call, "side", 4));
    OK(penstock_call_half_close(call));
  }
  penstock_call_release(call);
  return PENSTOCK_NEXT;
}

/* A side call starts below the place of its hop, even if the hop's interceptor was replaced meanwhile; the interceptors
 * of its own options apply, too. */
TEST(side_calls_keep_to_the_place_of_a_replaced_hop) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const char *const names[] = {"above", "old", "below", "new", "own"};
  probe probes[5];
  for (int i = 0; i < 5; i++) {
    probe_init(&probes[i], names[i]);
    if (i > 1) probes[i].trace = &trace;
  }
  replacement context = {channel, options, 0, &probes[3], LATCH_INIT, -1};
  probes[1].hook = replace_and_call;
  probes[1].context = &context;
  probe_add(&probes[0], channel, 1);
  context.id = probe_add(&probes[1], channel, 0);
  probe_add(&probes[2], channel, -1);
  add_to_options(&probes[4], options, INT32_MAX);
  check_echo(channel);
  latch_wait(&context.ended, 1);
  CHECK_INT(atomic_load(&context.code), PENSTOCK_STATUS_OK);
  CHECK_HAS(trace.text, "own:start below:create below:start ");
  CHECK_INT(atomic_load(&probes[0].seen[PENSTOCK_EVENT_START]), 1);
  CHECK_INT(atomic_load(&probes[1].seen[PENSTOCK_EVENT_START]), 1);
  CHECK_INT(atomic_load(&probes[2].seen[PENSTOCK_EVENT_START]), 2);
  CHECK_INT(atomic_load(&probes[3].seen[PENSTOCK_EVENT_START]), 0);
  CHECK_INT(atomic_load(&probes[4].seen[PENSTOCK_EVENT_START]), 1);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  for (int i = 0; i < 5; i++) probe_wait_finalized(&probes[i]);
}
