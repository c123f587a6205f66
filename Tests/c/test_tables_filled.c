/* Tables that callers get filled, in the sizes that they have in earlier and later versions of the headers: nothing behind
 * struct_size is written. */
#include "credentials.h"
#include "tables.h"

static const size_t async_sizes[] = {offsetof(penstock_async_interceptor, on_demand),
                                     sizeof(penstock_async_interceptor), sizeof(penstock_async_interceptor) + LATER};
static const size_t sync_sizes[] = {sizeof(penstock_sync_interceptor), sizeof(penstock_sync_interceptor) + LATER};

static void place_empty(memory *memory, size_t size) {
  penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT;
  PLACE(memory, size, empty);
}

/* Whether a table that was to be filled is as it was before. */
static bool check_empty(const memory *memory) {
  size_t wrong = 0;
  for (size_t i = sizeof(size_t); i < memory->size; i++) wrong += memory->as.bytes[i] != 0;
  return CHECK_INT(wrong, 0) && check_intact(memory);
}

static void drop(memory *memory) {
  const penstock_interceptor *table = &memory->as.interceptor;
  if (CHECK(table->finalizer != NULL)) table->finalizer(table->user_data);
}

static void give_token(penstock_token_request request, const char *refused, void *user_data) {
  (void)refused;
  (void)user_data;
  OK(penstock_token_complete(request, "token", -1));
}

static void no_line(const char *line, size_t length, void *user_data) {
  (void)line;
  (void)length;
  (void)user_data;
}

static int32_t just_next(penstock_hop *call, void *user_data) {
  (void)user_data;
  return penstock_hop_next(call) == PENSTOCK_OK ? PENSTOCK_NEXT : -1;
}

/* Each of these fills `table`. Those that take user data give `finalized` to it; the others count it up. */
typedef penstock_result (*filler)(penstock_interceptor *table, atomic_int *finalized, penstock_error **error);

static penstock_result fill_token(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  return penstock_ready_bearer_token("{\"allow_cleartext\": true}", give_token, finalized, count_up, table, error);
}
static penstock_result fill_token_once(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  return penstock_ready_bearer_token("{\"allow_cleartext\": true, \"replay_bytes\": 0}", give_token, finalized,
                                     count_up, table, error);
}
static penstock_result fill_token_file(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  /* Any file of one line is a token. */
  return penstock_ready_token_file("{\"file\": \"/proc/sys/kernel/ostype\", \"allow_cleartext\": true}", table, error);
}
static penstock_result fill_jwt(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  char json[128];
  count_up(finalized);
  snprintf(json, sizeof(json),
           "{\"key_file\": \"%s\", \"issuer\": \"me\", \"scope\": \"all\", \"allow_cleartext\": true}", key_file());
  return penstock_ready_jwt(json, table, error);
}
static penstock_result fill_logging(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  return penstock_ready_logging(NULL, no_line, finalized, count_up, table, error);
}
static penstock_result fill_metrics(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  penstock_metrics *metrics = NULL;
  OK(penstock_metrics_new(NULL, &metrics, error));
  penstock_result result = penstock_ready_metrics(metrics, table);
  penstock_metrics_release(metrics);
  count_up(finalized);
  return result;
}
static penstock_result fill_telemetry(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  penstock_telemetry *telemetry = NULL;
  OK(penstock_telemetry_new(NULL, &telemetry, error));
  penstock_result result = penstock_ready_telemetry(telemetry, table, error);
  penstock_telemetry_release(telemetry);
  count_up(finalized);
  return result;
}
static penstock_result fill_trace(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_trace_context(NULL, table, error);
}
static penstock_result fill_cache(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_response_cache(NULL, table, error);
}
static penstock_result fill_rate(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_rate_limit("{\"rate\": 1000000}", table, error);
}
static penstock_result fill_faults(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_fault_injection(NULL, table, error);
}
static penstock_result fill_hedging(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_hedging(NULL, NULL, table, error);
}
static penstock_result fill_rules(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  count_up(finalized);
  return penstock_ready_header_rules("{\"request\": [{\"set\": \"a\", \"value\": \"b\"}]}", table, error);
}

/* The sizes of the tables that the next two fillers hand in. */
static size_t async_size = sizeof(penstock_async_interceptor), sync_size = sizeof(penstock_sync_interceptor);

static void pass(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
  penstock_hop_release(hop);
}

static penstock_result fill_async(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  memory memory;
  penstock_async_interceptor given = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  given.user_data = finalized;
  given.finalizer = count_up;
  given.on_start = given.on_headers = given.on_status = pass;
  PLACE(&memory, async_size, given);
  penstock_result result = penstock_async_interceptor_table(&memory.as.async, table, error);
  check_intact(&memory);
  return result;
}
static penstock_result fill_sync(penstock_interceptor *table, atomic_int *finalized, penstock_error **error) {
  memory memory;
  penstock_sync_interceptor given = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  given.user_data = finalized;
  given.finalizer = count_up;
  given.intercept = just_next;
  PLACE(&memory, sync_size, given);
  penstock_result result = penstock_sync_interceptor_table(&memory.as.sync, table, error);
  check_intact(&memory);
  return result;
}

/* `least`: the smallest table that has room for all fields that the interceptor needs. */
static const struct {
  const char *name;
  filler fill;
  size_t least;
} fillers[] = {
    {"bearer token", fill_token, offsetof(penstock_interceptor, outbound_executor)},
    {"bearer token that records nothing", fill_token_once, offsetof(penstock_interceptor, outbound_executor)},
    {"token file", fill_token_file, offsetof(penstock_interceptor, outbound_executor)},
    {"signed token", fill_jwt, offsetof(penstock_interceptor, outbound_executor)},
    {"logging", fill_logging, offsetof(penstock_interceptor, outbound_executor)},
    {"metrics", fill_metrics, offsetof(penstock_interceptor, outbound_executor)},
    {"telemetry", fill_telemetry, offsetof(penstock_interceptor, headers_wait)},
    {"trace context", fill_trace, offsetof(penstock_interceptor, outbound_executor)},
    {"response cache", fill_cache, offsetof(penstock_interceptor, outbound_executor)},
    {"rate limit", fill_rate, offsetof(penstock_interceptor, outbound_executor)},
    {"fault injection", fill_faults, offsetof(penstock_interceptor, outbound_executor)},
    {"hedging", fill_hedging, offsetof(penstock_interceptor, outbound_executor)},
    {"header rules", fill_rules, offsetof(penstock_interceptor, outbound_executor)},
    {"asynchronous", fill_async, offsetof(penstock_interceptor, outbound_executor)},
    {"synchronous", fill_sync, offsetof(penstock_interceptor, outbound_executor)},
};
enum { FILLERS = sizeof(fillers) / sizeof(*fillers) };

/* Fills a table of `size` bytes, and checks what is written where. */
static bool check_fill(size_t i, memory *memory, size_t size, atomic_int *finalized) {
  penstock_error *error = NULL;
  place_empty(memory, size);
  atomic_store(finalized, 0);
  penstock_result result = fillers[i].fill(&memory->as.interceptor, finalized, &error);
  bool fits = size >= fillers[i].least, as_it_should;
  if (fits) {
    as_it_should = OK(result) && check_intact(memory);
  } else {
    as_it_should = CHECK_RESULT(result, PENSTOCK_E_UNSUPPORTED) && check_empty(memory);
    as_it_should &= CHECK_INT(atomic_load(finalized), 1);
    CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "table.struct_size");
  }
  if (!as_it_should) printf("  %s, %zu bytes\n", fillers[i].name, size);
  return fits && result == PENSTOCK_OK;
}

/* The tables of the three styles begin with the same fields. */
#define SAME_PLACE(field)                                                                                              \
  do {                                                                                                                 \
    CHECK_INT(offsetof(penstock_async_interceptor, field), offsetof(penstock_interceptor, field));                     \
    CHECK_INT(offsetof(penstock_sync_interceptor, field), offsetof(penstock_interceptor, field));                      \
  } while (0)
TEST(tables_of_all_styles_begin_alike) {
  SAME_PLACE(struct_size);
  SAME_PLACE(name);
  SAME_PLACE(methods);
  SAME_PLACE(kinds);
  SAME_PLACE(level);
  SAME_PLACE(per_attempt);
  SAME_PLACE(hold_bytes);
  SAME_PLACE(replay_bytes);
  SAME_PLACE(max_restarts);
  SAME_PLACE(user_data);
  SAME_PLACE(finalizer);
}

TEST(tables_filled_for_each_version) {
  penstock_channel *channel = open_channel();
  for (size_t i = 0; i < FILLERS; i++) {
    size_t size;
    EACH(size, interceptor_sizes) {
      memory memory;
      atomic_int finalized;
      penstock_interceptor_id id = 0;
      if (!check_fill(i, &memory, size, &finalized)) continue;
      if (!OK(penstock_channel_add_interceptor(channel, &memory.as.interceptor, 0, &id, NULL))) continue;
      check_echo(channel);
      OK(penstock_registration_remove(id, NULL));
      OK(penstock_registration_wait_removed(id, -1));
      EVENTUALLY(atomic_load(&finalized) == 1);
      check_intact(&memory);
    }
  }
  penstock_channel_release(channel);
}

TEST(tables_of_other_styles_of_each_version) {
  memory memory;
  atomic_int finalized;
  EACH(async_size, async_sizes) {
    if (check_fill(FILLERS - 2, &memory, sizeof(penstock_interceptor), &finalized)) drop(&memory);
    CHECK_INT(atomic_load(&finalized), 1);
  }
  EACH(sync_size, sync_sizes) {
    if (check_fill(FILLERS - 1, &memory, sizeof(penstock_interceptor), &finalized)) drop(&memory);
    CHECK_INT(atomic_load(&finalized), 1);
  }
  async_size = sizeof(penstock_async_interceptor);
  sync_size = sizeof(penstock_sync_interceptor);
}

/* Tables that no header has: too small, with fields that this version does not know, and of memory that was never
 * initialised. */
TEST(tables_that_are_not_filled) {
  static const size_t small[] = {0, 8, 144, offsetof(penstock_interceptor, outbound_executor) - 1};
  static const size_t huge[] = {ROOM + 1, SIZE_MAX / 2, SIZE_MAX};
  for (size_t i = 0; i < FILLERS; i++) {
    memory memory;
    atomic_int finalized;
    size_t size;
    EACH(size, small) {
      place_empty(&memory, sizeof(penstock_interceptor));
      memory.as.struct_size = size;
      atomic_store(&finalized, 0);
      CHECK_RESULT(fillers[i].fill(&memory.as.interceptor, &finalized, NULL), PENSTOCK_E_INVALID_ARGUMENT);
      CHECK_INT(atomic_load(&finalized), 1);
      memory.as.struct_size = memory.size;
      check_empty(&memory);
    }
    EACH(size, huge) {
      place_empty(&memory, sizeof(penstock_interceptor));
      memory.as.struct_size = size;
      atomic_store(&finalized, 0);
      CHECK_RESULT(fillers[i].fill(&memory.as.interceptor, &finalized, NULL), PENSTOCK_E_UNSUPPORTED);
      CHECK_INT(atomic_load(&finalized), 1);
      memory.as.struct_size = memory.size;
      check_empty(&memory);
    }
    place_empty(&memory, sizeof(penstock_interceptor) + LATER);
    memory.as.bytes[memory.size - 1] = 1;
    atomic_store(&finalized, 0);
    CHECK_RESULT(fillers[i].fill(&memory.as.interceptor, &finalized, NULL), PENSTOCK_E_UNSUPPORTED);
    CHECK_INT(atomic_load(&finalized), 1);
    memory.as.bytes[memory.size - 1] = 0;
    check_empty(&memory);
  }
}

/* ---- penstock_ready_share ---- */

TEST(tables_shared_for_each_version) {
  size_t from, to;
  EACH(from, interceptor_sizes) {
    EACH(to, interceptor_sizes) {
      for (size_t i = 0; i < 2; i++) {
        memory memory, other;
        atomic_int finalized;
        if (!check_fill(i, &memory, from, &finalized)) continue;
        place_empty(&other, to);
        penstock_result result = penstock_ready_share(&memory.as.interceptor, &other.as.interceptor);
        if (to < fillers[i].least) {
          CHECK_RESULT(result, PENSTOCK_E_UNSUPPORTED);
          check_empty(&other);
        } else if (OK(result)) {
          check_intact(&other);
          CHECK(other.as.interceptor.user_data == memory.as.interceptor.user_data);
          drop(&other);
        }
        CHECK_INT(atomic_load(&finalized), 0);
        check_intact(&memory);
        drop(&memory);
        CHECK_INT(atomic_load(&finalized), 1);
      }
    }
  }
}

/* Neither table may be one that this version can't read. */
TEST(tables_that_are_not_shared) {
  memory memory, other;
  atomic_int finalized = 0;
  place_empty(&memory, sizeof(penstock_interceptor) + LATER);
  place_empty(&other, sizeof(penstock_interceptor));
  if (!OK(fill_logging(&memory.as.interceptor, &finalized, NULL))) return;
  memory.as.struct_size = 8;
  CHECK_RESULT(penstock_ready_share(&memory.as.interceptor, &other.as.interceptor), PENSTOCK_E_INVALID_ARGUMENT);
  memory.as.struct_size = memory.size;
  memory.as.bytes[memory.size - 1] = 1;
  CHECK_RESULT(penstock_ready_share(&memory.as.interceptor, &other.as.interceptor), PENSTOCK_E_UNSUPPORTED);
  memory.as.bytes[memory.size - 1] = 0;
  check_empty(&other);
  other.as.struct_size = 8;
  CHECK_RESULT(penstock_ready_share(&memory.as.interceptor, &other.as.interceptor), PENSTOCK_E_INVALID_ARGUMENT);
  other.as.struct_size = other.size;
  check_empty(&other);
  CHECK_INT(atomic_load(&finalized), 0);
  drop(&memory);
  CHECK_INT(atomic_load(&finalized), 1);
}
