/* hop.h and call.h: the parts of a call that create and on_start see and change; credentials; values; per-call
 * metadata. */
#include "test.h"

static penstock_call_options *new_options(const char *json) {
  penstock_call_options *options = NULL;
  penstock_error *error = NULL;
  OK(penstock_call_options_new(json, &options, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return options;
}

/* Makes a unary call; the server returns the request headers in the trailers, with "seen-" before each name. */
static penstock_reply *unary_seen(penstock_channel *channel, const char *options_json, const void *data,
                                  size_t length) {
  penstock_call_options *options = new_options(options_json);
  if (options)
    OK(penstock_metadata_set(penstock_request_metadata(penstock_call_options_request(options)), "x-echo-metadata",
                             "1"));
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, data, length, options, &reply, NULL));
  penstock_call_options_release(options);
  return reply;
}

/* The `index`th value of a trailer; "" if there is none. */
static const char *seen(penstock_reply *reply, const char *name, size_t index) {
  const void *value = NULL;
  return penstock_metadata_get(penstock_reply_trailers(reply), name, index, &value, NULL) == PENSTOCK_OK ? value : "";
}

/* ---- create ---- */

static const char all_options[] =
    "{\"deadline_ms\": 20000, \"authority\": \"given.example\", \"compression\": \"gzip\", \"idempotency\": "
    "\"idempotent\", \"wait_for_ready\": true, \"max_receive_message_bytes\": 1000, \"max_send_message_bytes\": 2000, "
    "\"metadata\": {\"x-given\": \"1\"}}";

static int32_t look_at_call(penstock_hop *hop, void *user_data, void **state) {
  *state = user_data;
  CHECK_INT(penstock_hop_event(hop), PENSTOCK_EVENT_CREATE);
  CHECK_STR(penstock_request_method(penstock_hop_request(hop)), BIDI);
  CHECK_INT(penstock_hop_kind(hop), PENSTOCK_KIND_BIDI);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  CHECK_STR(penstock_request_authority(penstock_hop_request(hop)), "given.example");
  int64_t left = request_deadline_ms(penstock_hop_request(hop));
  CHECK(left > 1000 && left <= 20000);
  CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
  CHECK_INT(request_idempotency(penstock_hop_request(hop)), PENSTOCK_IDEMPOTENCY_IDEMPOTENT);
  CHECK_INT(request_wait_for_ready(penstock_hop_request(hop)), 1);
  CHECK_INT(request_max_receive_message_bytes(penstock_hop_request(hop)), 1000);
  CHECK_INT(request_max_send_message_bytes(penstock_hop_request(hop)), 2000);
  CHECK_INT(request_has_credentials(penstock_hop_request(hop)), 0);
  const void *value = NULL;
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  /* The metadata has the values of the caller and of a hop above; it is read-only here. */
  OK(penstock_metadata_get(metadata, "x-given", 0, &value, NULL));
  OK(penstock_metadata_get(metadata, "x-above", 0, &value, NULL));
  CHECK_RESULT(penstock_metadata_set(metadata, "x-given", "2"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_metadata_remove(metadata, "x-given"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_metadata_set_json(metadata, "{}", NULL), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_compression(penstock_hop_request(hop), "identity"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_max_receive_message_bytes(penstock_hop_request(hop), 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_idempotency(penstock_hop_request(hop), 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_wait_for_ready(penstock_hop_request(hop), 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_credentials(penstock_hop_request(hop), "x"), PENSTOCK_E_STATE);
  /* A value that is set in create can be read by the hops below and by the caller. */
  OK(penstock_hop_set_value(hop, "created", user_data, NULL));
  return PENSTOCK_NEXT;
}

static int32_t add_above(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-above", "1"));
  return PENSTOCK_NEXT;
}

TEST(create_sees_the_call_and_its_options) {
  penstock_channel *channel = open_channel();
  probe above;
  probe_init_with(&above, "above", add_above, NULL);
  probe_add(&above, channel, 1);
  latch finalized = LATCH_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.user_data = &finalized;
  table.finalizer = signal_latch;
  table.create = look_at_call;
  REQUIRE_OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call_options *options = new_options(all_options);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(penstock_call_value(call, "created") == &finalized);
  CHECK(penstock_reply_value(reply, "created") == &finalized);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  latch_wait(&finalized, 1);
  probe_wait_finalized(&above);
}

/* ---- on_start ---- */

static int32_t set_everything(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) {
    penstock_result expected = event == PENSTOCK_EVENT_DESTROY ? PENSTOCK_E_GONE : PENSTOCK_E_STATE;
    penstock_result result = penstock_request_set_compression(penstock_hop_request(hop), "gzip");
    if (result != expected && !(event == PENSTOCK_EVENT_DESTROY && result == PENSTOCK_E_STATE)) {
      CHECK_RESULT(result, expected);
      printf("  in %s\n", event_name(event));
    }
    CHECK(penstock_request_set_credentials(penstock_hop_request(hop), NULL) != PENSTOCK_OK);
    if (event > PENSTOCK_EVENT_START && event < PENSTOCK_EVENT_CREATE) {
      CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
      CHECK_INT(request_idempotency(penstock_hop_request(hop)), PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS);
    }
    return PENSTOCK_NEXT;
  }
  if (self->context) return PENSTOCK_NEXT;
  CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "identity");
  CHECK_RESULT(penstock_request_set_compression(penstock_hop_request(hop), "br"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_compression(penstock_hop_request(hop), "gzip"));
  CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
  CHECK_INT(request_max_receive_message_bytes(penstock_hop_request(hop)), 4 << 20);
  CHECK_RESULT(penstock_request_set_max_receive_message_bytes(penstock_hop_request(hop), SIZE_MAX),
               PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_max_receive_message_bytes(penstock_hop_request(hop), 5 << 20));
  CHECK_INT(request_max_receive_message_bytes(penstock_hop_request(hop)), 5 << 20);
  size_t too_many = (size_t)INT32_MAX + 1;
  CHECK_RESULT(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), too_many),
               PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), 6 << 20));
  CHECK_INT(request_max_send_message_bytes(penstock_hop_request(hop)), 6 << 20);
  CHECK_INT(request_idempotency(penstock_hop_request(hop)), PENSTOCK_IDEMPOTENCY_UNKNOWN);
  CHECK_RESULT(penstock_request_set_idempotency(penstock_hop_request(hop), 3), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_idempotency(penstock_hop_request(hop), -1), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_idempotency(penstock_hop_request(hop), PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS));
  CHECK_INT(request_wait_for_ready(penstock_hop_request(hop)), 0);
  OK(penstock_request_set_wait_for_ready(penstock_hop_request(hop), 1));
  CHECK_INT(request_wait_for_ready(penstock_hop_request(hop)), 1);
  CHECK_RESULT(penstock_request_set_credentials(penstock_hop_request(hop), ""), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_credentials(penstock_hop_request(hop), "a\nb"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_credentials(penstock_hop_request(hop), "Bearer x"));
  CHECK_INT(request_has_credentials(penstock_hop_request(hop)), 1);
  OK(penstock_request_set_credentials(penstock_hop_request(hop), NULL));
  CHECK_INT(request_has_credentials(penstock_hop_request(hop)), 0);
  return PENSTOCK_NEXT;
}

TEST(start_is_changed_whole) {
  penstock_channel *channel = open_channel();
  probe above, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  above.hook = below.hook = set_everything;
  below.context = &below;
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  /* More than the default limit for received messages: a hop has raised the limit. */
  size_t size = (4 << 20) + 100;
  char *data = calloc(1, size);
  penstock_reply *reply = unary_seen(channel, NULL, data, size);
  REQUIRE(reply != NULL);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(seen(reply, "seen-grpc-encoding", 0), "gzip");
  size_t length = 0;
  penstock_reply_bytes(reply, &length);
  CHECK_INT(length, size);
  penstock_reply_release(reply);
  free(data);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
}

static int32_t limit_both(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  if (self->context) {
    OK(penstock_request_set_max_receive_message_bytes(penstock_hop_request(hop), 3));
  } else {
    OK(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), 3));
  }
  return PENSTOCK_NEXT;
}
TEST(start_lowers_limits) {
  for (int receive = 0; receive < 2; receive++) {
    penstock_channel *channel = open_channel();
    probe probe;
    probe_init_with(&probe, "limits", limit_both, receive ? &probe : NULL);
    probe_add(&probe, channel, 0);
    CHECK_INT(unary_code(channel, "abc"), 0);
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "abcd", 4, NULL, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
    CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL),
              receive ? "max_receive_message_bytes" : "max_send_message_bytes");
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

/* ---- Credentials ---- */

static const char secret[] =
    "{\"credentials\": {\"authorization\": \"Bearer s3cret\", \"x-key-bin\": \"AAE\"}, \"metadata\": "
    "{\"authorization\": \"Basic other\", \"x-plain\": \"p\"}}";

static int32_t see_no_secret(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_DESTROY) return PENSTOCK_NEXT;
  CHECK_INT(request_has_credentials(penstock_hop_request(hop)), 1);
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  char *json = NULL;
  if (OK(penstock_metadata_json(penstock_hop_metadata(hop), &json))) CHECK(strstr(json, "s3cret") == NULL);
  penstock_free(json);
  return PENSTOCK_NEXT;
}

TEST(credentials_go_over_tls_only) {
  penstock_channel *secure = open_tls_channel(false), *plain = open_channel();
  probe probe;
  probe_init_with(&probe, "see", see_no_secret, NULL);
  probe_add(&probe, secure, 0);
  penstock_reply *reply = unary_seen(secure, secret, "x", 1);
  REQUIRE(reply != NULL);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(seen(reply, "seen-authorization", 0), "Bearer s3cret");
  CHECK_STR(seen(reply, "seen-authorization", 1), "");
  CHECK_STR(seen(reply, "seen-x-plain", 0), "p");
  penstock_reply_release(reply);

  reply = unary_seen(plain, secret, "x", 1);
  REQUIRE(reply != NULL);
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), "TLS");
  CHECK_HAS(penstock_reply_stats_json(reply), "\"first_byte_sent_us\":null");
  CHECK(strstr(penstock_reply_status_json(reply), "s3cret") == NULL);
  CHECK(strstr(penstock_reply_stats_json(reply), "s3cret") == NULL);
  penstock_reply_release(reply);
  penstock_channel_release(secure);
  penstock_channel_release(plain);
  probe_wait_finalized(&probe);
}

static int32_t set_token(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_credentials(penstock_hop_request(hop), self->context));
  return PENSTOCK_NEXT;
}
TEST(credentials_set_by_a_hop) {
  penstock_channel *secure = open_tls_channel(true), *plain = open_channel();
  probe probes[2];
  probe above;
  probe_init(&above, "above");
  for (int i = 0; i < 2; i++) {
    probe_init_with(&probes[i], "token", set_token, "Bearer of the hop");
    probe_add(&probes[i], i ? plain : secure, 0);
  }
  probe_add(&above, plain, 1);
  /* The hop's credentials replace all credentials of the options. */
  penstock_reply *reply = unary_seen(secure, secret, "x", 1);
  REQUIRE(reply != NULL);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(seen(reply, "seen-authorization", 0), "Bearer of the hop");
  CHECK_STR(seen(reply, "seen-x-key-bin", 0), "");
  penstock_reply_release(reply);
  /* Hops see the refusal as they see any status. */
  CHECK_INT(unary_code(plain, "x"), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_HEADERS]), 0);
  penstock_channel_release(secure);
  penstock_channel_release(plain);
  probe_wait_finalized(&probes[0]);
  probe_wait_finalized(&probes[1]);
  probe_wait_finalized(&above);
}

/* ---- Per-call metadata without JSON ---- */

TEST(options_metadata) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = new_options("{\"metadata\": {\"x-a\": \"1\", \"x-echo-metadata\": \"1\"}}");
  REQUIRE(options != NULL);
  penstock_metadata *metadata = penstock_request_metadata(penstock_call_options_request(options));
  CHECK_INT(penstock_metadata_count(metadata), 2);
  OK(penstock_metadata_add(metadata, "x-a", "2"));
  OK(penstock_metadata_set_bytes(metadata, "x-b-bin", "\0\1", 2));
  CHECK_RESULT(penstock_metadata_set(metadata, "grpc-timeout", "1S"), PENSTOCK_E_INVALID_ARGUMENT);
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
    CHECK_STR(seen(reply, "seen-x-a", 0), "1");
    CHECK_STR(seen(reply, "seen-x-a", 1), "2");
    CHECK_INT(penstock_metadata_count(metadata), 4);
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* ---- Values ---- */

static int32_t answer_value(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  int *asked = penstock_hop_value(hop, "asked");
  CHECK(asked && *asked == 42);
  int *answer = malloc(sizeof(int));
  *answer = asked ? *asked + 1 : 0;
  OK(penstock_hop_set_value(hop, "answer", answer, free));
  return PENSTOCK_NEXT;
}
TEST(values_of_caller_and_hops) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "answer", answer_value, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  int *asked = malloc(sizeof(int));
  *asked = 42;
  OK(penstock_call_set_value(call, "asked", asked, free));
  CHECK(penstock_call_value(call, "asked") == asked);
  CHECK(penstock_call_value(call, "nothing") == NULL);
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  /* This thread reads a value while the call runs. */
  int *answer = penstock_call_value(call, "answer");
  CHECK(answer && *answer == 43);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  penstock_call_release(call);
  CHECK(penstock_reply_value(reply, "answer") == answer);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The first value of a call may be set after its end: the reply has it, too, and keeps it. */
TEST(values_after_the_end) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  latch finalized = LATCH_INIT;
  CHECK(penstock_reply_value(reply, "late") == NULL);
  CHECK(penstock_call_value(call, "late") == NULL);
  OK(penstock_call_set_value(call, "late", &finalized, signal_latch));
  CHECK(penstock_call_value(call, "late") == &finalized);
  CHECK(penstock_reply_value(reply, "late") == &finalized);
  penstock_call_release(call);
  CHECK(penstock_reply_value(reply, "late") == &finalized);
  CHECK_INT(latch_count(&finalized), 0);
  penstock_reply_release(reply);
  latch_wait(&finalized, 1);
  penstock_channel_release(channel);
}

/* Many threads set, replace, remove and read the values of a call at once: every finalizer runs once. */
enum { VALUE_THREADS = 4, VALUE_ROUNDS = 2000 };
typedef struct value_race {
  penstock_call *call;
  atomic_int made, finalized;
} value_race;
typedef struct counted {
  value_race *race;
} counted;
static void finalize_counted(void *pointer) {
  counted *value = pointer;
  value_race *race = value->race;
  atomic_fetch_add(&race->finalized, 1);
  /* The finalizer runs under no lock, so it may use the values again. */
  penstock_call_value(race->call, "0");
  free(value);
}
static void *race_values(void *pointer) {
  value_race *race = pointer;
  for (int i = 0; i < test_rounds(VALUE_ROUNDS); i++) {
    char key[2] = {(char)('0' + test_random(6)), 0};
    if (test_random(4) == 0) {
      OK(penstock_call_set_value(race->call, key, NULL, NULL));
    } else {
      counted *value = malloc(sizeof(counted));
      value->race = race;
      atomic_fetch_add(&race->made, 1);
      OK(penstock_call_set_value(race->call, key, value, finalize_counted));
    }
    penstock_call_value(race->call, key);
  }
  return NULL;
}
TEST(values_from_many_threads) {
  penstock_channel *channel = open_channel();
  value_race race = {start_call(channel, BIDI, PENSTOCK_KIND_BIDI), 0, 0};
  pthread_t threads[VALUE_THREADS];
  for (int i = 0; i < VALUE_THREADS; i++) pthread_create(&threads[i], NULL, race_values, &race);
  for (int i = 0; i < VALUE_THREADS; i++) pthread_join(threads[i], NULL);
  for (char key[2] = "0"; key[0] < '6'; key[0]++) OK(penstock_call_set_value(race.call, key, NULL, NULL));
  CHECK(atomic_load(&race.made) > 0);
  CHECK_INT(atomic_load(&race.finalized), atomic_load(&race.made));
  penstock_call_release(race.call);
  penstock_channel_release(channel);
}

/* The channel on which a call runs decides whether credentials are secure, not the channel on which it was made. */
static int32_t go_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_channel(penstock_hop_request(hop), self->context));
  return PENSTOCK_NEXT;
}
TEST(credentials_of_a_redirected_call) {
  for (int secure = 0; secure < 2; secure++) {
    penstock_channel *from = secure ? open_channel() : open_tls_channel(false);
    penstock_channel *to = secure ? open_tls_channel(false) : open_channel();
    probe probe;
    probe_init_with(&probe, "elsewhere", go_elsewhere, to);
    probe_add(&probe, from, 0);
    penstock_reply *reply = unary_seen(from, secret, "x", 1);
    REQUIRE(reply != NULL);
    CHECK_INT(penstock_reply_code(reply), secure ? 0 : PENSTOCK_STATUS_UNAUTHENTICATED);
    CHECK_STR(seen(reply, "seen-authorization", 0), secure ? "Bearer s3cret" : "");
    penstock_reply_release(reply);
    penstock_channel_release(from);
    probe_wait_finalized(&probe);
    penstock_channel_release(to);
  }
}
