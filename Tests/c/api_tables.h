/* Callbacks and tables for random calls of the API: each callback calls a few random functions. */
#ifndef PENSTOCK_API_TABLES_H
#define PENSTOCK_API_TABLES_H

#include "api_picks.h"

#include <sys/socket.h>
#include <unistd.h>

/* Sometimes sets a struct_size that is too small: then the table is not read, and the caller still owns what the table
 * points to.
 */
static inline owner pick_table_owner(const char *function, size_t *struct_size) {
  if (!once_in(24)) return pick_owner(function);
  *struct_size = 3;
  return (owner){&unowned, end_cell};
}

/* Gives `function`, or NULL in one of four cases. */
#define MAYBE(function) (once_in(4) ? NULL : (function))

/* ---- Calls ---- */

static void api_on_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  check_alive(user_data);
  look_at_metadata(headers);
  if (once_in(4)) keep(KIND_call, penstock_call_retain(call));
  act_at((place){0}, 3);
}

static void api_on_message(penstock_call *call, penstock_message *message, void *user_data) {
  check_alive(user_data);
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  look_at_bytes(data, length);
  if (once_in(4)) keep(KIND_message, penstock_message_retain(message));
  if (!once_in(3)) OK(penstock_call_demand(call, 1));
  act_at((place){0}, 3);
}

static void api_on_sent(penstock_call *call, uint64_t count, void *user_data) {
  check_alive(user_data);
  CHECK(call != NULL && count > 0);
  act_at((place){0}, 3);
}

static void api_on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  check_alive(user_data);
  CHECK(call != NULL);
  if (user_data != &unowned) atomic_fetch_add(&((cell *)user_data)->replies, 1);
  look_at_text(penstock_reply_status_json(reply));
  if (once_in(4)) keep(KIND_reply, penstock_reply_retain(reply));
  act_at((place){0}, 3);
}

static void api_on_readable(penstock_call *call, void *user_data) {
  check_alive(user_data);
  CHECK(call != NULL);
  penstock_message *message = NULL;
  while (once_in(4) && penstock_call_receive(call, &message) == PENSTOCK_OK) keep(KIND_message, message);
  act_at((place){0}, 3);
}

static inline const penstock_call_callbacks *pick_callbacks(const char *function, penstock_call_callbacks *table) {
  if (once_in(2)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_call_callbacks){size,
                                     owner.data,
                                     owner.finalizer,
                                     MAYBE(api_on_headers),
                                     MAYBE(api_on_message),
                                     MAYBE(api_on_sent),
                                     api_on_reply,
                                     once_in(3) ? api_on_readable : NULL};
  if (table->on_readable && !once_in(16)) table->on_message = NULL;
  return table;
}

/* Notes that a call has begun with this table, and so must deliver a reply. */
static inline void note_begun(const penstock_call_callbacks *table) {
  if (table && table->user_data != &unowned) atomic_store(&((cell *)table->user_data)->begun, true);
}

static inline int32_t api_interrupted(void *user_data) {
  check_alive(user_data);
  return 1;
}

/* ---- Interceptors ---- */

static int32_t api_create(penstock_hop *hop, void *user_data, void **state) {
  check_alive(user_data);
  act_at((place){.hop = hop}, 3);
  switch (below(24)) {
  case 0:
    return PENSTOCK_SKIP;
  case 1:
    return 99;
  default:
    *state = new_cell("create");
    return PENSTOCK_NEXT;
  }
}

static void api_destroy(penstock_hop *hop, void *state) {
  act_at((place){.hop = hop}, 2);
  if (state) end_cell(state);
}

static int32_t api_event(penstock_hop *hop, void *state) {
  check_alive(state);
  if (once_in(8)) keep(KIND_hop, penstock_hop_retain(hop));
  if (once_in(4)) change_metadata(penstock_hop_metadata(hop));
  if (once_in(4)) change_status(penstock_hop_status(hop));
  act_at((place){.hop = hop}, 6);
  if (!once_in(4)) return PENSTOCK_NEXT;
  if (once_in(2)) {
    keep_number(&tickets, penstock_hop_ticket(hop));
    return once_in(2) ? PENSTOCK_PAUSE : PENSTOCK_HOLD;
  }
  return once_in(8) ? 99 : (int32_t)below(7);
}

static void api_connection(void *user_data, const penstock_connection_event *event) {
  check_alive(user_data);
  if (event->kind < 1 || !event->target || (event->kind == PENSTOCK_CONNECTION_READY && !event->address)) {
    test_failed(__FILE__, __LINE__, "a connection event of kind %d without its address", event->kind);
  }
  act_at((place){.hop = NULL}, 4);
}

/* Fills a table at random; some tables make a state for each hop, others have none. */
static inline void fill_interceptor(const char *function, penstock_interceptor *table) {
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
  table->struct_size = size;
  table->name = pick_text(function, "name");
  table->methods = once_in(2) ? NULL : pick_text(function, "methods");
  table->kinds = once_in(2) ? 0 : pick_mask();
  table->level = once_in(2) ? 0 : below(4);
  table->per_attempt = once_in(4) ? below(3) : 0;
  table->hold_bytes = pick_size();
  table->user_data = owner.data;
  table->finalizer = owner.finalizer;
  if (once_in(2)) table->create = api_create, table->destroy = api_destroy;
  penstock_hop_callback *callbacks[] = {&table->on_start,   &table->on_send,    &table->on_half_close,
                                        &table->on_headers, &table->on_receive, &table->on_status,
                                        &table->on_cancel,  &table->on_demand,  &table->on_sent};
  for (size_t i = 0; i < COUNT_OF(callbacks); i++) *callbacks[i] = once_in(2) ? NULL : api_event;
  if (table->per_attempt == 1 || once_in(16)) table->on_pick = MAYBE(api_event);
  table->replay_bytes = once_in(2) ? 0 : pick_size();
  table->max_restarts = below(3);
  if (once_in(4)) table->on_connection = api_connection;
}

static int32_t api_intercept(penstock_hop *call, void *user_data) {
  check_alive(user_data);
  place place = {.hop = call, .may_wait = true};
  change_metadata(penstock_request_metadata(penstock_hop_request(call)));
  act_at(place, 8);
  if (once_in(6)) return (int32_t)below(3);
  penstock_hop_next(call);
  change_metadata(penstock_hop_metadata(call));
  change_status(penstock_hop_status(call));
  act_at(place, 8);
  return once_in(16) ? 99 : PENSTOCK_NEXT;
}

static inline const penstock_sync_interceptor *pick_sync(const char *function, penstock_sync_interceptor *table) {
  if (once_in(16)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_sync_interceptor){.struct_size = size,
                                       .name = pick_text(function, "name"),
                                       .methods = once_in(2) ? NULL : pick_text(function, "methods"),
                                       .kinds = once_in(2) ? 0 : pick_mask(),
                                       .level = once_in(2) ? 0 : below(4),
                                       .per_attempt = once_in(4) ? below(3) : 0,
                                       .hold_bytes = pick_size(),
                                       .user_data = owner.data,
                                       .finalizer = owner.finalizer,
                                       .intercept = once_in(16) ? NULL : api_intercept};
  return table;
}

/* Resolves the event now, or later when another thread takes the hop from the store, or never: then the call ends when
 * the last reference to the hop is released. */
static void api_async_event(penstock_hop *hop, void *state) {
  check_alive(state);
  if (once_in(4)) change_metadata(penstock_hop_metadata(hop));
  if (once_in(4)) change_status(penstock_hop_status(hop));
  act_at((place){.hop = hop}, 3);
  if (once_in(3)) {
    keep(KIND_bound, hop);
    return;
  }
  if (!once_in(12)) penstock_hop_resolve(hop, PENSTOCK_NEXT);
  penstock_hop_release(hop);
}

static inline const penstock_async_interceptor *pick_async(const char *function, penstock_async_interceptor *table) {
  if (once_in(16)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_async_interceptor){.struct_size = size,
                                        .name = once_in(8) ? ONE_OF(odd_texts) : "async",
                                        .methods = once_in(2) ? NULL : "/penstock.Echo/*",
                                        .kinds = once_in(2) ? 0 : pick_mask(),
                                        .level = once_in(2) ? 0 : below(4),
                                        .per_attempt = once_in(4) ? below(3) : 0,
                                        .user_data = owner.data,
                                        .finalizer = owner.finalizer,
                                        .on_start = MAYBE(api_async_event),
                                        .on_send = MAYBE(api_async_event),
                                        .on_half_close = MAYBE(api_async_event),
                                        .on_headers = MAYBE(api_async_event),
                                        .on_receive = MAYBE(api_async_event),
                                        .on_status = MAYBE(api_async_event),
                                        .on_cancel = MAYBE(api_event)};
  if (once_in(2)) table->create = api_create, table->destroy = api_destroy;
  return table;
}

/* ---- Tables that a function of the library has filled, and that are not registered yet ---- */

enum { TABLES = 8 };
static penstock_interceptor tables[TABLES];

static inline bool take_table(penstock_interceptor *table) {
  uint32_t at = below(TABLES);
  pthread_mutex_lock(&store_mutex);
  *table = tables[at];
  memset(&tables[at], 0, sizeof(tables[at]));
  pthread_mutex_unlock(&store_mutex);
  return table->struct_size > 0;
}

static inline void keep_table(const penstock_interceptor *table) {
  uint32_t at = below(TABLES);
  pthread_mutex_lock(&store_mutex);
  penstock_interceptor other = *table;
  if (!atomic_load(&stopping)) {
    other = tables[at];
    tables[at] = *table;
  }
  pthread_mutex_unlock(&store_mutex);
  if (other.finalizer) other.finalizer(other.user_data);
}

/* Picks a table to register; its executors are borrowed until `give_back_executors`. Tables that the library has filled
 * are not changed. */
static inline const penstock_interceptor *pick_interceptor(const char *function, penstock_interceptor *table) {
  if (once_in(16)) return NULL;
  if (take_table(table)) return table;
  fill_interceptor(function, table);
  table->outbound_executor = once_in(3) ? borrow(KIND_executor) : NULL;
  table->inbound_executor = once_in(3) ? borrow(KIND_executor) : NULL;
  return table;
}

static inline void give_back_executors(const penstock_interceptor *table) {
  if (!table) return;
  drop(KIND_executor, table->outbound_executor);
  drop(KIND_executor, table->inbound_executor);
}

/* ---- Executors: jobs run at once, or on a thread of the test ---- */

typedef struct queued {
  penstock_job job;
  void *argument;
  struct queued *next;
} queued;

static pthread_mutex_t jobs_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_changed = PTHREAD_COND_INITIALIZER;
static queued *jobs;
static bool jobs_closed;

static void *run_jobs(void *nothing) {
  pthread_mutex_lock(&jobs_mutex);
  while (jobs || !jobs_closed) {
    queued *first = jobs;
    if (!first) {
      pthread_cond_wait(&jobs_changed, &jobs_mutex);
      continue;
    }
    jobs = first->next;
    pthread_mutex_unlock(&jobs_mutex);
    first->job(first->argument);
    free(first);
    pthread_mutex_lock(&jobs_mutex);
  }
  pthread_mutex_unlock(&jobs_mutex);
  return nothing;
}

static int32_t api_submit(penstock_job job, void *argument, void *user_data) {
  check_alive(user_data);
  switch (below(16)) {
  case 0:
    return -1;
  case 1:
    job(argument);
    return 0;
  default: {
    queued *one = malloc(sizeof(*one));
    *one = (queued){job, argument, NULL};
    pthread_mutex_lock(&jobs_mutex);
    one->next = jobs;
    jobs = one;
    pthread_cond_signal(&jobs_changed);
    pthread_mutex_unlock(&jobs_mutex);
    return 0;
  }
  }
}

/* ---- Codecs: an object is a cell ---- */

static int32_t api_encode(void *user_data, const char *method, void *object, penstock_buffer *buffer) {
  check_alive(user_data);
  check_alive(object);
  look_at_text(method);
  act_at((place){.buffer = buffer}, 3);
  return once_in(16) ? 1 : 0;
}

static int32_t api_decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  check_alive(user_data);
  look_at_text(method);
  look_at_bytes(data, length);
  if (once_in(16)) return 1;
  *object = new_cell("decode");
  return 0;
}

static void api_free(void *user_data, void *object) {
  check_alive(user_data);
  if (object) end_cell(object);
}

static void *api_copy(void *user_data, void *object) {
  check_alive(user_data);
  check_alive(object);
  return once_in(4) ? NULL : new_cell("copy");
}

static inline const penstock_codec_functions *pick_functions(const char *function, penstock_codec_functions *table) {
  if (once_in(16)) return NULL;
  static const char *const names[] = {NULL, "json", "x.y-z_1", "No", ""};
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_codec_functions){size,
                                      owner.data,
                                      owner.finalizer,
                                      api_encode,
                                      once_in(16) ? NULL : api_decode,
                                      api_free,
                                      MAYBE(api_copy),
                                      names[below(3) + (once_in(8) ? 2 : 0)]};
  return table;
}

/* ---- Compressors ---- */

static int32_t api_compress(void *user_data, const void *data, size_t length, penstock_compression *message) {
  check_alive(user_data);
  look_at_bytes(data, length);
  act_at((place){.compression = message}, 3);
  return once_in(16) ? 1 : 0;
}

static inline const penstock_compressor_functions *pick_compressor(const char *function,
                                                                   penstock_compressor_functions *table) {
  if (once_in(16)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_compressor_functions){.struct_size = size,
                                           .user_data = owner.data,
                                           .finalizer = owner.finalizer,
                                           .name = once_in(4) ? pick_text(function, "compression") : "x-api",
                                           .compress = once_in(16) ? NULL : api_compress,
                                           .decompress = once_in(16) ? NULL : api_compress};
  return table;
}

/* ---- Watches and resolvers ---- */

static void api_resolve(void *user_data) {
  check_alive(user_data);
  act_at((place){0}, 3);
}

static inline int32_t api_watch(void *user_data, int32_t state) {
  check_alive(user_data);
  CHECK(state >= PENSTOCK_CONNECTIVITY_IDLE && state <= PENSTOCK_CONNECTIVITY_SHUTDOWN);
  act_at((place){0}, 3);
  return !once_in(4);
}

/* Lets a call wait only rarely, because many calls have no deadline and would wait for ever. */
static int32_t api_pick(penstock_pick *pick, void *user_data) {
  check_alive(user_data);
  CHECK(penstock_pick_count(pick) > 0);
  penstock_request *request = penstock_pick_request(pick);
  look_at_text(penstock_request_method(request));
  look_at_text(penstock_request_authority(request));
  look_at_metadata(penstock_request_metadata(request));
  CHECK_RESULT(penstock_request_set_deadline_ms(request, 5), PENSTOCK_E_STATE);
  act_at((place){.pick = pick}, 4);
  if (once_in(100)) return PENSTOCK_PICK_WAIT;
  return once_in(16) ? pick_small() : (int32_t)below((uint32_t)penstock_pick_count(pick));
}

static void api_verify(penstock_verification *server, void *user_data) {
  check_alive(user_data);
  penstock_verification_accept(server);
}

static inline const penstock_resolver_functions *pick_resolver(const char *function,
                                                               penstock_resolver_functions *table) {
  if (once_in(4)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table = (penstock_resolver_functions){size, owner.data, owner.finalizer, MAYBE(api_resolve), MAYBE(api_resolve)};
  return table;
}

/* A connected socket whose other end is closed, or none. */
static inline int pick_descriptor(void) {
  int ends[2];
  if (once_in(4) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  close(ends[1]);
  return ends[0];
}

static void api_connect(penstock_connecting *connecting, void *user_data) {
  check_alive(user_data);
  look_at_text(penstock_connecting_address(connecting));
  look_at_text(penstock_connecting_target(connecting));
  if (once_in(4)) keep(KIND_connecting, penstock_connecting_retain(connecting));
  if (!once_in(8)) penstock_connecting_decline(connecting);
  act_at((place){0}, 3);
}

static void api_cancel_connect(penstock_connecting *connecting, void *user_data) {
  check_alive(user_data);
  CHECK_RESULT(penstock_connecting_decline(connecting), PENSTOCK_E_GONE);
  act_at((place){0}, 3);
}

static inline const penstock_connector_functions *pick_connector(const char *function,
                                                                 penstock_connector_functions *table) {
  if (once_in(4)) return NULL;
  size_t size = sizeof(*table);
  owner owner = pick_table_owner(function, &size);
  *table =
      (penstock_connector_functions){size, owner.data, owner.finalizer, MAYBE(api_connect), MAYBE(api_cancel_connect)};
  return table;
}

/* ---- Ready-made interceptors ---- */

static void api_source(penstock_token_request request, const char *refused, void *user_data) {
  look_at_text(refused);
  check_alive(user_data);
  if (once_in(3)) {
    keep_number(&tokens, request);
  } else if (once_in(4)) {
    OK(penstock_token_fail(request, 1 + (int32_t)below(16), "no token"));
  } else {
    OK(penstock_token_complete(request, "token", (int64_t)below(20) - 1));
  }
  act_at((place){0}, 2);
}

static void api_log(const char *line, size_t length, void *user_data) {
  check_alive(user_data);
  CHECK_INT(line[length], 0);
  act_at((place){0}, 1);
}

/* No test lacks memory, so the hook never runs. */
static void api_out_of_memory(size_t bytes, void *user_data) {
  (void)user_data;
  test_failed(__FILE__, __LINE__, "no memory for %zu bytes", bytes);
}

#endif
