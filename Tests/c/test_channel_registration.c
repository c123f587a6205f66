/* channel.h, registration.h: registering interceptors, and tables of other sizes. */
#include "test.h"

TEST(channel_registration_list) {
  penstock_channel *channel = open_channel();
  char *json = NULL;
  REQUIRE_OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_JSON(json, "[]");
  penstock_free(json);
  probe low, high, middle;
  probe_init(&low, "low");
  probe_init(&high, "high");
  probe_init(&middle, "middle");
  penstock_interceptor_id low_id = probe_add(&low, channel, -5);
  penstock_interceptor_id high_id = probe_add(&high, channel, 100);
  penstock_interceptor table = probe_table(&middle);
  table.methods = "/a.B/C,/penstock.Echo/*";
  table.kinds = (1u << PENSTOCK_KIND_UNARY) | (1u << PENSTOCK_KIND_BIDI);
  penstock_interceptor_id middle_id = 0;
  REQUIRE_OK(penstock_channel_add_interceptor(channel, &table, 7, &middle_id, NULL));
  CHECK(low_id != high_id && low_id != middle_id && middle_id != high_id);
  REQUIRE_OK(penstock_channel_interceptors_json(channel, &json));
  const char *a = strstr(json, "\"high\""), *b = strstr(json, "\"middle\""), *c = strstr(json, "\"low\"");
  CHECK(a && b && c && a < b && b < c);
  CHECK_HAS(json, "/penstock.Echo/*");
  CHECK_HAS(json, "\"priority\"");
  CHECK_HAS(json, "-5");
  CHECK_HAS(json, "\"place\"");
  CHECK_HAS(json, "\"kinds\"");
  penstock_free(json);
  OK(penstock_registration_set_priority(low_id, 1000, NULL));
  REQUIRE_OK(penstock_channel_interceptors_json(channel, &json));
  CHECK(strstr(json, "\"low\"") && strstr(json, "\"low\"") < strstr(json, "\"high\""));
  penstock_free(json);
  OK(penstock_registration_remove(middle_id, NULL));
  probe_wait_finalized(&middle);
  REQUIRE_OK(penstock_channel_interceptors_json(channel, &json));
  CHECK(strstr(json, "\"middle\"") == NULL);
  penstock_free(json);
  penstock_channel_release(channel);
  probe_wait_finalized(&low);
  probe_wait_finalized(&high);
}

TEST(channel_registration_errors) {
  penstock_channel *channel = open_channel();
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_registration_remove(0, &error), PENSTOCK_E_NOT_FOUND);
  CHECK_ERROR(error, PENSTOCK_E_NOT_FOUND, NULL, NULL);
  CHECK_RESULT(penstock_registration_remove(UINT64_MAX, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_set_priority(12345678, 1, &error), PENSTOCK_E_NOT_FOUND);
  CHECK_ERROR(error, PENSTOCK_E_NOT_FOUND, NULL, NULL);
  probe one;
  probe_init(&one, "one");
  penstock_interceptor_id id = probe_add(&one, channel, 0);
  OK(penstock_registration_remove(id, NULL));
  CHECK_RESULT(penstock_registration_remove(id, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_set_priority(id, 1, NULL), PENSTOCK_E_NOT_FOUND);
  probe_wait_finalized(&one);
  penstock_channel_release(channel);
}

/* A table with a wrong struct_size is refused; a larger one is accepted if its additional bytes are zero. If a table is
 * refused for its contents, its finalizer runs once. */
TEST(channel_registration_struct_size) {
  penstock_channel *channel = open_channel();
  struct {
    penstock_interceptor table;
    char tail[64];
  } larger;
  probe probe;
  penstock_interceptor_id id;
  penstock_error *error = NULL;

  static const size_t wrong[] = {0, 1, 7, 8, 16, SIZE_MAX};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    probe_init(&probe, "wrong size");
    larger.table = probe_table(&probe);
    larger.table.struct_size = wrong[i];
    memset(larger.tail, 0, sizeof(larger.tail));
    if (wrong[i] == SIZE_MAX) larger.tail[0] = 1;
    penstock_result result = penstock_channel_add_interceptor(channel, &larger.table, 0, &id, &error);
    CHECK(result == PENSTOCK_E_INVALID_ARGUMENT || result == PENSTOCK_E_UNSUPPORTED);
    if (result == PENSTOCK_OK) OK(penstock_registration_remove(id, NULL));
    penstock_error_release(error);
    error = NULL;
  }

  probe_init(&probe, "zero tail");
  larger.table = probe_table(&probe);
  larger.table.struct_size = sizeof(larger);
  memset(larger.tail, 0, sizeof(larger.tail));
  if (OK(penstock_channel_add_interceptor(channel, &larger.table, 0, &id, NULL))) {
    check_echo(channel);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 1);
    OK(penstock_registration_remove(id, NULL));
    probe_wait_finalized(&probe);
  }

  probe_init(&probe, "non-zero tail");
  larger.table = probe_table(&probe);
  larger.table.struct_size = sizeof(larger);
  larger.tail[sizeof(larger.tail) - 1] = 1;
  CHECK_RESULT(penstock_channel_add_interceptor(channel, &larger.table, 0, &id, &error), PENSTOCK_E_UNSUPPORTED);
  CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, NULL);
  CHECK_INT(atomic_load(&probe.finalized), 1);

  static const struct {
    uint32_t level, per_attempt;
    penstock_result result;
  } stands[] = {{3, 0, PENSTOCK_E_UNSUPPORTED},
                {UINT32_MAX, 0, PENSTOCK_E_UNSUPPORTED},
                {PENSTOCK_LEVEL_BYTES, 2, PENSTOCK_E_UNSUPPORTED},
                {PENSTOCK_LEVEL_OBJECT, 1, PENSTOCK_E_INVALID_ARGUMENT}};
  for (size_t i = 0; i < sizeof(stands) / sizeof(*stands); i++) {
    probe_init(&probe, "stands");
    larger.table = probe_table(&probe);
    larger.table.level = stands[i].level;
    larger.table.per_attempt = stands[i].per_attempt;
    CHECK_RESULT(penstock_channel_add_interceptor(channel, &larger.table, 0, &id, NULL), stands[i].result);
    CHECK_INT(atomic_load(&probe.finalized), 1);
  }

  static const struct {
    uint32_t level;
    size_t replay_bytes;
    penstock_result result;
  } records[] = {{PENSTOCK_LEVEL_BYTES, 1, PENSTOCK_E_INVALID_ARGUMENT},
                 {PENSTOCK_LEVEL_BYTES, SIZE_MAX, PENSTOCK_E_INVALID_ARGUMENT},
                 {PENSTOCK_LEVEL_BOTH, 1, PENSTOCK_OK}};
  for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
    probe_init(&probe, "records");
    larger.table = probe_table(&probe);
    larger.table.level = records[i].level;
    larger.table.per_attempt = 1;
    larger.table.replay_bytes = records[i].replay_bytes;
    CHECK_RESULT(penstock_channel_add_interceptor(channel, &larger.table, 0, &id, &error), records[i].result);
    if (records[i].result != PENSTOCK_OK) {
      CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "interceptor.replay_bytes: expected 0 with per_attempt");
    } else {
      OK(penstock_registration_remove(id, NULL));
    }
    CHECK_INT(atomic_load(&probe.finalized), 1);
  }

  probe_init(&probe, "kinds");
  larger.table = probe_table(&probe);
  larger.table.kinds = 1u << 4;
  CHECK(penstock_channel_add_interceptor(channel, &larger.table, 0, &id, NULL) != PENSTOCK_OK);
  CHECK_INT(atomic_load(&probe.finalized), 1);

  probe_init(&probe, "no channel");
  larger.table = probe_table(&probe);
  CHECK_RESULT(penstock_channel_add_interceptor(NULL, &larger.table, 0, &id, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&probe.finalized), 1);
  probe_init(&probe, "no id");
  larger.table = probe_table(&probe);
  CHECK_RESULT(penstock_channel_add_interceptor(channel, &larger.table, 0, NULL, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&probe.finalized), 1);

  static const char *const methods[] = {"",       "a",     "/a/b*c",       "/a/b,", "/a/b,,/c/d",
                                        "**",     "/a",    "/pkg.Service", "/a/",   "/a/b,/pkg.Service",
                                        "/a b/*", "/a/b?c"};
  for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
    probe_init(&probe, "methods");
    larger.table = probe_table(&probe);
    larger.table.methods = methods[i];
    penstock_result result = penstock_channel_add_interceptor(channel, &larger.table, 0, &id, NULL);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_ARGUMENT)) {
      printf("  \"%s\"\n", methods[i]);
      if (result == PENSTOCK_OK) penstock_registration_remove(id, NULL);
    }
    CHECK_INT(atomic_load(&probe.finalized), 1);
  }
  penstock_channel_release(channel);
}

/* A filter that no method can match is refused there, too, and the old one goes on. */
TEST(channel_registration_set_filter_that_matches_nothing) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "filtered");
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_registration_set_filter(id, "/penstock.Echo", 0, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "/package.Service/*");
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 1);
  OK(penstock_registration_set_filter(id, "/penstock.Echo/*", 0, NULL));
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 2);
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&probe);
  penstock_channel_release(channel);
}

TEST(channel_callbacks_struct_size) {
  penstock_channel *channel = open_channel();
  struct {
    penstock_call_callbacks table;
    char tail[32];
  } larger;
  static const size_t wrong[] = {0, 1, 7, 8};
  penstock_call *call = NULL;
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    atomic_int finalized = 0;
    penstock_call_callbacks empty = PENSTOCK_CALL_CALLBACKS_INIT;
    larger.table = empty;
    larger.table.struct_size = wrong[i];
    larger.table.user_data = &finalized;
    larger.table.finalizer = count_up;
    penstock_result result =
        penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &larger.table, &call, NULL);
    CHECK(result == PENSTOCK_E_INVALID_ARGUMENT || result == PENSTOCK_E_UNSUPPORTED);
  }
  atomic_int finalized = 0;
  penstock_call_callbacks empty = PENSTOCK_CALL_CALLBACKS_INIT;
  larger.table = empty;
  larger.table.struct_size = sizeof(larger);
  larger.table.user_data = &finalized;
  larger.table.finalizer = count_up;
  memset(larger.tail, 0, sizeof(larger.tail));
  larger.tail[3] = 1;
  CHECK_RESULT(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &larger.table, &call, NULL),
               PENSTOCK_E_UNSUPPORTED);
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK_RESULT(penstock_channel_call(NULL, UNARY, PENSTOCK_KIND_UNARY, NULL, &empty, &call, NULL),
               PENSTOCK_E_INVALID_ARGUMENT);
  penstock_channel_release(channel);
}

TEST(channel_tie_order) {
  static const char *const orders[] = {"fifo", "lifo"};
  for (int lifo = 0; lifo < 2; lifo++) {
    char options[64];
    snprintf(options, sizeof(options), "{\"tls\": false, \"tie_order\": \"%s\"}", orders[lifo]);
    penstock_channel *channel = NULL;
    REQUIRE_OK(penstock_channel_new(peer_address(), options, &channel, NULL));
    probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
    probe a, b;
    probe_init(&a, "a");
    probe_init(&b, "b");
    a.trace = b.trace = &trace;
    probe_add(&a, channel, 3);
    probe_add(&b, channel, 3);
    check_echo(channel);
    penstock_channel_release(channel);
    probe_wait_finalized(&a);
    probe_wait_finalized(&b);
    const char *first = strstr(trace.text, "a:start"), *second = strstr(trace.text, "b:start");
    CHECK(first && second && (lifo ? second < first : first < second));
  }
}
