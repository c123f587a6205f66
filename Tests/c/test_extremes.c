/* Extreme arguments: lengths beyond all memory, tables with a huge struct_size, JSON with very deep nesting. */
#include "test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Lengths ---- */

static const size_t lengths[] = {
    SIZE_MAX,         SIZE_MAX - 1,      (size_t)INT64_MAX + 1, INT64_MAX,       INT64_MAX - 1,   INT64_MAX - 31,
    INT64_MAX - 4096, INT64_MAX / 2 + 1, (size_t)1 << 62,       (size_t)1 << 60, (size_t)1 << 48, (size_t)1 << 47,
};

#define EACH(length) (size_t at_ = 0; at_ < sizeof(lengths) / sizeof(*lengths) && (length = lengths[at_], true); at_++)

TEST(lengths_that_no_memory_has) {
  penstock_metadata *metadata = NULL;
  penstock_status *status = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  REQUIRE_OK(penstock_status_new(PENSTOCK_STATUS_INTERNAL, "x", &status));
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  atomic_int finalized = 0;
  int rounds = 0;
  size_t length = 0;
  for
    EACH(length) {
      static const char *const names[] = {"x-bin", "x"};
      for (int i = 0; i < 2; i++) {
        CHECK_RESULT(penstock_metadata_set_bytes(metadata, names[i], "x", length), PENSTOCK_E_INVALID_ARGUMENT);
        CHECK_RESULT(penstock_metadata_add_bytes(metadata, names[i], "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      }
      CHECK_RESULT(penstock_status_add_detail(status, "type/x", "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_RESULT(penstock_status_set_detail(status, "type/x", "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      penstock_message *message = NULL;
      CHECK_RESULT(penstock_message_new_lent("x", length, 0, &finalized, count_up, &message),
                   PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_INT(atomic_load(&finalized), ++rounds);
      CHECK_RESULT(penstock_call_send(call, "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_RESULT(penstock_call_try_send(call, "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      penstock_reply *reply = NULL;
      penstock_error *error = NULL;
      CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", length, NULL, &reply, &error),
                   PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "request");
    }
  CHECK_INT(penstock_metadata_count(metadata), 0);
  /* The greatest length that is not refused as an invalid argument. No memory is that large: each function fails before
   * it reads the data. */
  CHECK_RESULT(penstock_metadata_set_bytes(metadata, "x-bin", "x", ((size_t)1 << 47) - 1), PENSTOCK_E_NO_MEMORY);
  CHECK_RESULT(penstock_call_send(call, "x", ((size_t)1 << 47) - 1), PENSTOCK_E_TOO_LARGE);
  penstock_call_release(call);
  check_echo(channel);
  penstock_channel_release(channel);
  penstock_status_release(status);
  penstock_metadata_release(metadata);
}

/* Passes the extreme lengths to functions in callbacks. */
static int32_t set_huge(probe *probe, penstock_hop *hop, int32_t event) {
  (void)probe;
  size_t length = 0;
  for
    EACH(length) {
      if (event != PENSTOCK_EVENT_SEND) break;
      CHECK_RESULT(penstock_hop_set_bytes(hop, "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_RESULT(penstock_hop_send(hop, "x", length), PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_RESULT(penstock_hop_deliver(hop, "x", length), PENSTOCK_E_INVALID_ARGUMENT);
    }
  return PENSTOCK_NEXT;
}

TEST(lengths_that_no_memory_has_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "huge", set_huge, NULL);
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  check_echo(channel);
  CHECK(atomic_load(&probe.seen[PENSTOCK_EVENT_SEND]) > 0);
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&probe);
  penstock_channel_release(channel);
}

/* ---- Tables ---- */

/* Gives `size` bytes of zeros, followed by a page that must not be read. */
static void *at_the_edge(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) abort();
  return pages + page - size;
}

static void gone(void *edge, size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  munmap((char *)edge + size - page, 2 * page);
}

static const size_t sizes[] = {1025, 65536, (size_t)1 << 32, (size_t)1 << 47, INT64_MAX - 7, INT64_MAX};

TEST(tables_that_say_they_are_huge) {
  penstock_channel *channel = open_channel();
  penstock_interceptor *table = at_the_edge(sizeof(*table)), made = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor *sync = at_the_edge(sizeof(*sync));
  penstock_async_interceptor *async = at_the_edge(sizeof(*async));
  penstock_codec_functions *functions = at_the_edge(sizeof(*functions));
  penstock_call_callbacks *callbacks = at_the_edge(sizeof(*callbacks));
  penstock_resolver_functions *resolving = at_the_edge(sizeof(*resolving));
  penstock_connector_functions *connecting = at_the_edge(sizeof(*connecting));
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    table->struct_size = sync->struct_size = async->struct_size = sizes[i];
    functions->struct_size = callbacks->struct_size = resolving->struct_size = sizes[i];
    connecting->struct_size = sizes[i];
    penstock_interceptor_id id = 0;
    penstock_error *error = NULL;
    penstock_codec *codec = NULL;
    penstock_call *call = NULL;
    penstock_resolver *resolver = NULL;
    CHECK_RESULT(penstock_channel_set_resolver(channel, resolving, &resolver, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
    CHECK_RESULT(penstock_channel_set_connector(channel, connecting, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
    CHECK_RESULT(penstock_channel_add_interceptor(channel, table, 0, &id, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
    CHECK_RESULT(penstock_sync_interceptor_table(sync, &made, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
    CHECK_RESULT(penstock_async_interceptor_table(async, &made, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
    CHECK_RESULT(penstock_codec_new(functions, &codec, &error), PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "fields that this version does not know");
    CHECK_RESULT(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, callbacks, &call, &error),
                 PENSTOCK_E_UNSUPPORTED);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
  }
  gone(table, sizeof(*table));
  gone(sync, sizeof(*sync));
  gone(async, sizeof(*async));
  gone(functions, sizeof(*functions));
  gone(resolving, sizeof(*resolving));
  gone(connecting, sizeof(*connecting));
  gone(callbacks, sizeof(*callbacks));
  penstock_channel_release(channel);
}

/* ---- Nesting ---- */

enum { DEEP = 2000, STACK = 128 << 10 };

/* Gives `start`, followed by `depth` nested arrays or objects, all of them closed, so that only the depth is wrong. */
static char *nested(const char *start, int depth, bool objects, const char *end) {
  char *text = malloc((size_t)depth * 7 + strlen(start) + strlen(end) + 8), *at = text;
  at += sprintf(at, "%s", start);
  for (int i = 0; i < depth; i++) at += sprintf(at, objects ? "{\"a\":" : "[");
  at += sprintf(at, "1");
  for (int i = 0; i < depth; i++) *at++ = objects ? '}' : ']';
  sprintf(at, "%s", end);
  return text;
}

static void *refuse_nested(void *channel_pointer) {
  penstock_channel *channel = channel_pointer;
  penstock_metadata *metadata = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_metadata_new(&metadata));
  for (int kind = 0; kind < 4; kind++) {
    const char *start = kind & 1 ? "{\"metadata\": " : "", *end = kind & 1 ? "}" : "";
    char *json = nested(start, DEEP, kind & 2, end);
    penstock_error *error = NULL;
    penstock_runtime *runtime = NULL;
    penstock_channel *other = NULL;
    penstock_call_options *options = NULL;
    penstock_status *status = NULL;
    CHECK_RESULT(penstock_runtime_new(json, &runtime, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    CHECK_RESULT(penstock_channel_new("localhost:1", json, &other, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    CHECK_RESULT(penstock_call_options_new(json, &options, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    CHECK_RESULT(penstock_metadata_set_json(metadata, json, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    CHECK_RESULT(penstock_status_from_json(json, &status, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    CHECK_RESULT(penstock_ready_rate_limit(json, &table, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    free(json);
  }
  penstock_metadata_release(metadata);
  check_echo(channel);
  return NULL;
}

TEST(json_that_nests_without_end_on_a_small_stack) {
  penstock_channel *channel = open_channel();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK_INT(pthread_attr_setstacksize(&attributes, STACK), 0);
  pthread_t thread;
  CHECK_INT(pthread_create(&thread, &attributes, refuse_nested, channel), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  penstock_channel_release(channel);
}

/* JSON that is nested sixty-four levels deep is parsed, and refused for its contents only; one level more is refused as
 * too deep. Brackets within strings do not count. */
TEST(json_may_nest_so_deep) {
  penstock_metadata *metadata = NULL;
  penstock_error *error = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  for (int objects = 0; objects < 2; objects++) {
    char *json = nested("{\"a\": ", 63, objects, "}");
    CHECK_RESULT(penstock_metadata_set_json(metadata, json, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, objects ? "$.a.a" : "$.a[0]", objects ? "unknown key" : "expected");
    free(json);
    json = nested("{\"a\": ", 64, objects, "}");
    CHECK_RESULT(penstock_metadata_set_json(metadata, json, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "nested more than 64 deep");
    free(json);
  }
  char *json = nested("{\"a\": \"\\\"", DEEP, false, "\"}");
  OK(penstock_metadata_set_json(metadata, json, NULL));
  free(json);
  json = nested("{\"a\": \"x\"}", DEEP, false, "");
  json[strlen("{\"a\": \"x\"}")] = 0;
  OK(penstock_metadata_set_json(metadata, json, NULL));
  free(json);
  penstock_metadata_release(metadata);
}
