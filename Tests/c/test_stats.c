/* The statistics of a call, in each callback and in the reply; in cleartext, over TLS, with gzip. */
#include "calls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* Gives the integer after "key": in `json`; -1 for null, -2 if the key is absent. */
static int64_t number(const char *json, const char *key) {
  char name[64];
  snprintf(name, sizeof(name), "\"%s\":", key);
  const char *at = json ? strstr(json, name) : NULL;
  if (!at) return -2;
  at += strlen(name);
  return strncmp(at, "null", 4) == 0 ? -1 : strtoll(at, NULL, 10);
}

/* Gives the object after "key": in a separate buffer. */
static const char *part(const char *json, const char *key) {
  static char parts[4][512];
  static int next;
  char *out = parts[next++ % 4];
  char name[64];
  snprintf(name, sizeof(name), "\"%s\":{", key);
  const char *at = json ? strstr(json, name) : NULL;
  const char *end = at ? strchr(at, '}') : NULL;
  snprintf(out, sizeof(parts[0]), "%.*s", end ? (int)(end - at) : 0, at ? at : "");
  return out;
}

/* The statistics of one call, as each callback saw them. */
typedef struct seen_stats {
  char *json[12];
} seen_stats;

static int32_t see_stats(probe *self, penstock_hop *hop, int32_t event) {
  seen_stats *seen = self->context;
  free(seen->json[event]);
  seen->json[event] = NULL;
  char *json = NULL;
  if (OK(penstock_hop_stats_json(hop, &json))) seen->json[event] = strdup(json);
  penstock_free(json);
  return PENSTOCK_NEXT;
}

static void forget_stats(seen_stats *seen) {
  for (int i = 0; i < 12; i++) free(seen->json[i]);
}

TEST(stats_grow_with_the_call) {
  penstock_channel *channel = open_channel();
  seen_stats seen = {{NULL}};
  probe probe;
  probe_init_with(&probe, "stats", see_stats, &seen);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  const char *json = seen.json[PENSTOCK_EVENT_CREATE];
  CHECK(number(json, "created_unix_ms") > 1600000000000);
  CHECK_INT(number(json, "first_byte_sent_us"), -1);
  CHECK_INT(number(json, "headers_us"), -1);
  CHECK_INT(number(json, "duration_us"), -1);
  CHECK_INT(number(json, "attempts"), 0);
  CHECK_INT(number(json, "peer"), -1);
  CHECK_HAS(json, "\"protocol\":null,\"http\":null");
  CHECK_INT(number(json, "connection_silent_ms"), -1);
  json = seen.json[PENSTOCK_EVENT_HEADERS];
  char peer[80];
  snprintf(peer, sizeof(peer), "\"peer\":\"%s\"", peer_address());
  CHECK_HAS(json, peer);
  CHECK_HAS(json, "\"local\":\"127.0.0.1:");
  CHECK_HAS(json, "\"protocol\":\"grpc\",\"http\":\"2\"");
  CHECK_INT(number(json, "tls"), -1);
  CHECK(number(json, "connection_silent_ms") >= 0);
  CHECK_INT(number(json, "attempts"), 1);
  CHECK(number(json, "first_byte_sent_us") >= 0 && number(json, "headers_us") >= number(json, "first_byte_sent_us"));
  CHECK_INT(number(json, "first_message_us"), -1);
  CHECK_INT(number(part(json, "sent"), "messages"), 1);
  CHECK_INT(number(part(json, "received"), "messages"), 0);
  json = seen.json[PENSTOCK_EVENT_STATUS];
  CHECK_INT(number(part(json, "sent"), "wire_bytes"), 9);
  CHECK_INT(number(part(json, "received"), "wire_bytes"), 9);
  CHECK_INT(number(part(json, "received"), "bytes"), 4);
  CHECK(number(json, "first_message_us") >= number(json, "headers_us"));
  CHECK_INT(number(json, "duration_us"), -1);
  json = penstock_reply_stats_json(reply);
  CHECK(number(json, "duration_us") >= number(json, "first_message_us"));
  CHECK(number(seen.json[PENSTOCK_EVENT_DESTROY], "duration_us") == number(json, "duration_us"));
  CHECK_INT(number(part(json, "sent"), "compressed_bytes"), 4);
  char *pem = NULL;
  CHECK_RESULT(penstock_reply_peer_certificates_pem(reply, &pem), PENSTOCK_E_NOT_FOUND);
  CHECK(pem == NULL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  forget_stats(&seen);
}

TEST(stats_of_compressed_messages) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"compression\": \"gzip\", \"metadata\": {\"x-compress\": \"gzip\"}}",
                                       &options, NULL));
  char *data = calloc(1, 100000);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, data, 100000, options, &reply, NULL));
  free(data);
  const char *ways[] = {"sent", "received"};
  for (int i = 0; i < 2; i++) {
    const char *json = part(penstock_reply_stats_json(reply), ways[i]);
    CHECK_INT(number(json, "messages"), 1);
    CHECK_INT(number(json, "bytes"), 100000);
    CHECK(number(json, "compressed_bytes") > 20 && number(json, "compressed_bytes") < 1000);
    CHECK_INT(number(json, "wire_bytes"), number(json, "compressed_bytes") + 5);
  }
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(stats_of_a_stream) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send(call, "abcd", 4));
    penstock_message *message = NULL;
    if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  const char *json = penstock_reply_stats_json(reply);
  CHECK_INT(number(part(json, "sent"), "messages"), 3);
  CHECK_INT(number(part(json, "received"), "messages"), 3);
  CHECK_INT(number(part(json, "received"), "wire_bytes"), 27);
  CHECK_INT(number(json, "attempts"), 1);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(stats_without_a_connection) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  const char *json = penstock_reply_stats_json(reply);
  CHECK_INT(number(json, "peer"), -1);
  CHECK_INT(number(json, "local"), -1);
  CHECK_INT(number(json, "tls"), -1);
  CHECK_INT(number(json, "first_byte_sent_us"), -1);
  CHECK(number(json, "duration_us") >= 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* ---- RESTART: bytes and attempts add up, times are those of the last attempt ---- */

static int32_t restart_once(penstock_hop *hop, void *state) {
  (void)state;
  return penstock_hop_can_restart(hop) == PENSTOCK_OK ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}
TEST(stats_count_attempts) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.on_status = restart_once;
  table.replay_bytes = 1000;
  REQUIRE_OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"metadata\": {\"x-status\": \"14\"}}", &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "abc", 3, options, &reply, NULL));
  const char *json = penstock_reply_stats_json(reply);
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(number(json, "attempts"), 2);
  CHECK_INT(number(part(json, "sent"), "messages"), 2);
  CHECK_INT(number(part(json, "sent"), "wire_bytes"), 16);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* ---- TLS ---- */

static char *read_file(const char *path) {
  FILE *file = fopen(path, "r");
  char *text = calloc(1, 65536);
  if (CHECK(file != NULL)) {
    text[fread(text, 1, 65535, file)] = 0;
    fclose(file);
  }
  return text;
}

static int32_t see_certificates(probe *self, penstock_hop *hop, int32_t event) {
  char *json = NULL, *pem = NULL;
  if (event == PENSTOCK_EVENT_CREATE) {
    CHECK_RESULT(penstock_hop_peer_certificates_pem(hop, &pem), PENSTOCK_E_NOT_FOUND);
  }
  if (event == PENSTOCK_EVENT_HEADERS && OK(penstock_hop_stats_json(hop, &json))) {
    CHECK_HAS(json, "\"tls\":{\"version\":\"TLSv1.");
    CHECK_HAS(json, "\"alpn\":\"h2\"");
    CHECK_INT(number(json, "certificates"), 2);
    if (OK(penstock_hop_peer_certificates_pem(hop, &pem))) CHECK_STR(pem, self->context);
  }
  penstock_free(json);
  penstock_free(pem);
  return PENSTOCK_NEXT;
}

TEST(stats_of_tls) {
  char *shown = read_file(certificate("server.pem"));
  for (int mutual = 0; mutual < 2; mutual++) {
    penstock_channel *channel = open_tls_channel(mutual);
    probe probe;
    probe_init_with(&probe, "certificates", see_certificates, shown);
    probe_add(&probe, channel, 0);
    penstock_reply *replies[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
      REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &replies[i], NULL));
      CHECK_INT(penstock_reply_code(replies[i]), 0);
    }
    /* A reply keeps the facts of its connection after the connection has gone. */
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
    for (int i = 0; i < 2; i++) {
      const char *json = penstock_reply_stats_json(replies[i]);
      CHECK_HAS(json, tls_address(mutual));
      CHECK_HAS(json, "\"cipher\":\"TLS_");
      CHECK_INT(number(json, "certificates"), 2);
      char *pem = NULL;
      if (OK(penstock_reply_peer_certificates_pem(replies[i], &pem))) CHECK_STR(pem, shown);
      penstock_free(pem);
      penstock_reply_release(replies[i]);
    }
  }
  free(shown);
}

/* Many threads ask for the certificates at once. */
static void *ask_certificates(void *reply) {
  for (int i = 0; i < test_rounds(200); i++) {
    char *pem = NULL;
    if (OK(penstock_reply_peer_certificates_pem(reply, &pem))) CHECK_HAS(pem, "BEGIN CERTIFICATE");
    penstock_free(pem);
  }
  return NULL;
}
TEST(stats_certificates_on_many_threads) {
  penstock_channel *channel = open_tls_channel(false);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, ask_certificates, reply);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* A retained hop gives the statistics on any thread, while the call runs and after it. */
typedef struct kept_hop {
  penstock_hop *_Atomic hop;
  atomic_bool ends;
} kept_hop;
static int32_t keep_hop(probe *self, penstock_hop *hop, int32_t event) {
  kept_hop *kept = self->context;
  if (event == PENSTOCK_EVENT_START) kept->hop = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}
static void *ask_stats(void *pointer) {
  kept_hop *kept = pointer;
  while (!atomic_load(&kept->ends)) {
    penstock_hop *hop = kept->hop;
    char *json = NULL;
    if (hop && OK(penstock_hop_stats_json(hop, &json))) CHECK(number(json, "attempts") >= 0);
    penstock_free(json);
  }
  return NULL;
}
TEST(stats_on_another_thread) {
  penstock_channel *channel = open_channel();
  kept_hop kept = {NULL, false};
  probe probe;
  probe_init_with(&probe, "keep", keep_hop, &kept);
  probe_add(&probe, channel, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, ask_stats, &kept);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < test_rounds(200); i++) {
    OK(penstock_call_send(call, "abcd", 4));
    penstock_message *message = NULL;
    if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  char *json = NULL;
  if (OK(penstock_hop_stats_json(kept.hop, &json))) CHECK(number(json, "duration_us") > 0);
  penstock_free(json);
  atomic_store(&kept.ends, true);
  pthread_join(thread, NULL);
  penstock_hop_release(kept.hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Callbacks on an executor read the statistics too, and change how the call is made. */
static int32_t look_on_executor(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_compression(penstock_hop_request(hop), "gzip"));
  if (event == PENSTOCK_EVENT_STATUS) CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
  return see_stats(self, hop, event);
}
TEST(stats_on_executors) {
  penstock_channel *channel = open_channel();
  seen_stats seen = {{NULL}};
  probe probe;
  probe_init_with(&probe, "stats", look_on_executor, &seen);
  penstock_interceptor table = probe_table(&probe);
  OK(penstock_executor_new_serial(&table.inbound_executor));
  table.outbound_executor = table.inbound_executor;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_executor_release(table.inbound_executor);
  for (int i = 0; i < test_rounds(20); i++) check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_INT(number(seen.json[PENSTOCK_EVENT_HEADERS], "attempts"), 1);
  CHECK_HAS(seen.json[PENSTOCK_EVENT_HEADERS], peer_address());
  CHECK_INT(number(part(seen.json[PENSTOCK_EVENT_STATUS], "received"), "bytes"), 4);
  forget_stats(&seen);
}

/* The first use of a hop's handle is in a callback after the call has ended: the statistics are still those of the
 * reply. */
typedef struct late {
  latch returned, seen;
  char *json;
} late;
static void see_late(penstock_hop *hop, void *state) {
  late *late = state;
  latch_wait(&late->returned, 1);
  char *json = NULL;
  if (OK(penstock_hop_stats_json(hop, &json))) late->json = strdup(json);
  penstock_free(json);
  latch_signal(&late->seen);
}
TEST(stats_on_an_executor_after_the_call) {
  penstock_channel *channel = open_channel();
  late late = {LATCH_INIT, LATCH_INIT, NULL};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "late";
  table.user_data = &late;
  table.destroy = see_late;
  OK(penstock_executor_new_serial(&table.inbound_executor));
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_executor_release(table.inbound_executor);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  latch_signal(&late.returned);
  if (latch_wait(&late.seen, 1)) CHECK_STR(late.json, penstock_reply_stats_json(reply));
  free(late.json);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* Waits until the statistics show that the call has waited for `lack` for 1,000 microseconds. */
static void check_waits(penstock_hop *hop, const char *lack) {
  int64_t waited = -1;
  for (int64_t until = test_now_ms() + 20000; waited < 1000 && test_now_ms() < until; test_pause()) {
    char *json = NULL;
    if (!OK(penstock_hop_stats_json(hop, &json))) return;
    waited = number(part(json, "waited"), lack);
    penstock_free(json);
  }
  CHECK(waited >= 1000);
}

typedef struct kept {
  penstock_hop *hop;
  latch there;
} kept;

static int32_t retain_at_start(probe *self, penstock_hop *hop, int32_t event) {
  kept *kept = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  kept->hop = penstock_hop_retain(hop);
  latch_signal(&kept->there);
  return PENSTOCK_NEXT;
}

/* The server accepts a connection, and speaks HTTP/2 only when it is told to. The call waits for addresses, then for a
 * connection, then for a slot, then for the server. */
TEST(stats_tell_what_a_call_waited_for) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  REQUIRE(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 1) &&
          !getsockname(listener, (struct sockaddr *)&address, &size));
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new("dns:///somewhere:1", "{\"tls\": false, \"trace\": true}", &channel, NULL));
  penstock_resolver_functions functions = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, &functions, &resolver, NULL));
  kept kept = {NULL, LATCH_INIT};
  probe keeper;
  probe_init_with(&keeper, "keeper", retain_at_start, &kept);
  probe_add(&keeper, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&kept.there, 1);
  penstock_hop *hop = kept.hop;
  check_waits(hop, "name_us");

  char target[200];
  snprintf(target, sizeof(target), "{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:%d\"}]}", ntohs(address.sin_port));
  OK(penstock_resolver_push(resolver, target, NULL));
  check_waits(hop, "connection_us");
  int peer = accept(listener, NULL, NULL);
  static const uint8_t no_slots[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0};
  CHECK_INT(write(peer, no_slots, sizeof(no_slots)), (int64_t)sizeof(no_slots));
  check_waits(hop, "slot_us");
  static const uint8_t one_slot[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1};
  CHECK_INT(write(peer, one_slot, sizeof(one_slot)), (int64_t)sizeof(one_slot));
  char *json = NULL;
  int64_t sent = -1;
  for (int64_t until = test_now_ms() + 20000; sent < 0 && test_now_ms() < until; test_pause()) {
    penstock_free(json);
    REQUIRE_OK(penstock_hop_stats_json(hop, &json));
    sent = number(json, "first_byte_sent_us");
  }
  int64_t name = number(part(json, "waited"), "name_us"), connection = number(part(json, "waited"), "connection_us");
  int64_t slot = number(part(json, "waited"), "slot_us");
  CHECK(name >= 1000 && connection >= 1000 && slot >= 1000);
  /* The waits are a part of the time before the first byte. */
  CHECK(name + connection + slot <= sent);
  penstock_free(json);

  OK(penstock_call_cancel(call, NULL));
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(number(part(penstock_reply_stats_json(reply), "waited"), "slot_us"), slot);
  const char *at = penstock_reply_trace_json(reply);
  static const char *const waits[] = {"\"for\":\"name\"", "\"for\":\"connection\"", "\"for\":\"slot\"", "\"for\":null"};
  for (int i = 0; i < 4 && at; i++) at = strstr(at, waits[i]);
  CHECK(at != NULL);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_hop_release(hop);
  penstock_resolver_release(resolver);
  penstock_channel_release(channel);
  probe_wait_finalized(&keeper);
  close(peer);
  close(listener);
}

/* A call that finds a connection has not waited. */
TEST(stats_of_a_call_that_has_not_waited) {
  penstock_channel *channel = open_channel();
  check_echo(channel);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  const char *waited = part(penstock_reply_stats_json(reply), "waited");
  CHECK_INT(number(waited, "name_us") + number(waited, "connection_us") + number(waited, "slot_us"), 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}
