/* Synchronous interceptors among others: RESTART around them, objects, redirects, registrations that change while a
 * function runs, and calls from runtime to runtime. */
#include "players.h"

/* ---- RESTART ---- */

static int32_t restart_unauthenticated(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAUTHENTICATED) return PENSTOCK_NEXT;
  CHECK_RESULT(penstock_hop_can_restart(hop), PENSTOCK_OK);
  OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "authorization", "new"));
  return PENSTOCK_RESTART;
}

static int32_t demand_token(player *self, penstock_hop *call) {
  const void *value = NULL;
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(call));
  if (penstock_metadata_get(metadata, "authorization", 0, &value, NULL) == PENSTOCK_OK) {
    CHECK_INT(penstock_hop_attempt(call), 2);
    CHECK_STR(value, "new");
    return pass(self, call);
  }
  CHECK_INT(penstock_hop_attempt(call), 1);
  OK(penstock_hop_end(call, PENSTOCK_STATUS_UNAUTHENTICATED, "who are you"));
  /* The function of the next attempt may already run. This function changes only its own copy of the metadata. */
  for (int i = 0; i < 1000; i++) penstock_metadata_set(metadata, "authorization", "stale");
  return PENSTOCK_NEXT;
}

TEST(sync_below_a_restart_runs_again) {
  for (int nested = 0; nested < 2; nested++) {
    penstock_runtime *runtime = new_runtime("{\"max_workers\": 2}");
    penstock_channel *channel = open_channel_on(runtime);
    probe auth;
    player above, below;
    probe_init_with(&auth, "auth", restart_unauthenticated, NULL);
    penstock_interceptor table = probe_table(&auth);
    penstock_interceptor_id id = 0;
    table.replay_bytes = 100;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    player_add(&below, channel, -1, demand_token);
    if (nested) player_add(&above, channel, 1, pass);
    int rounds = test_rounds(100);
    for (int i = 0; i < rounds; i++) check_echo(channel);
    CHECK_INT(below.runs, rounds * 2);
    if (nested) CHECK_INT(above.runs, rounds);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, -1));
    penstock_runtime_release(runtime);
    latch_wait(&below.finalized, 1);
    if (nested) latch_wait(&above.finalized, 1);
    probe_wait_finalized(&auth);
  }
}

/* ---- Objects: texts that are counted ---- */

static char *text_new(atomic_int *alive, const char *bytes, size_t length) {
  char *text = calloc(1, length + 1);
  memcpy(text, bytes, length);
  atomic_fetch_add(alive, 1);
  return text;
}
static int32_t text_encode(void *alive, const char *method, void *object, penstock_buffer *bytes) {
  (void)alive, (void)method;
  return penstock_buffer_append(bytes, object, strlen(object));
}
static int32_t text_decode(void *alive, const char *method, const void *data, size_t length, void **object) {
  (void)method;
  *object = text_new(alive, data, length);
  return 0;
}
static void text_free(void *alive, void *object) {
  free(object);
  atomic_fetch_sub((atomic_int *)alive, 1);
}

typedef struct texts {
  atomic_int alive;
  penstock_codec *codec;
} texts;

static penstock_result put_text(penstock_hop *call, player *self, const char *text,
                                penstock_result (*put)(penstock_hop *, penstock_message *)) {
  texts *all = self->context;
  return put_object(call, all->codec, text_new(&all->alive, text, strlen(text)), put);
}

/* Sees the caller's own text at the object level, and the bytes that are sent at the bytes level. */
static int32_t at_both_levels(player *self, penstock_hop *call) {
  atomic_int *alive = &((texts *)self->context)->alive;
  const void *data = NULL;
  size_t length = 0;
  bool sees_objects = penstock_hop_level(call) == PENSTOCK_LEVEL_OBJECT;
  char *given = hop_object(call);
  if (!sees_objects) {
    CHECK(given == NULL);
    OK(hop_bytes(call, &data, &length));
    CHECK(length == 7 && memcmp(data, "changed", 7) == 0);
    CHECK(penstock_hop_codec(call) == NULL);
    CHECK_RESULT(put_text(call, self, "x", penstock_hop_set_message), PENSTOCK_E_STATE);
    CHECK_RESULT(put_text(call, self, "x", penstock_hop_deliver_message), PENSTOCK_E_STATE);
    OK(penstock_hop_next(call));
    CHECK(hop_object(call) == NULL);
    CHECK_RESULT(put_text(call, self, "x", penstock_hop_set_message), PENSTOCK_E_STATE);
    OK(penstock_hop_set_bytes(call, "bytes", 5));
    return PENSTOCK_NEXT;
  }
  CHECK_RESULT(hop_bytes(call, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_set_bytes(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_deliver(call, "x", 1), PENSTOCK_E_STATE);
  if (strcmp(given, "answer") == 0) {
    OK(put_text(call, self, "stub", penstock_hop_deliver_message));
    OK(answer_hop(call, NULL));
    return PENSTOCK_NEXT;
  }
  CHECK_STR(given, "given");
  OK(put_text(call, self, "first", penstock_hop_set_message));
  OK(put_text(call, self, "changed", penstock_hop_set_message));
  CHECK_STR(hop_object(call), "changed");
  OK(penstock_hop_next(call));
  /* It is too late to deliver the object, so it is freed at once. */
  int before = atomic_load(alive);
  CHECK_RESULT(put_text(call, self, "late", penstock_hop_deliver_message), PENSTOCK_E_STATE);
  CHECK_INT(atomic_load(alive), before);
  CHECK_RESULT(hop_bytes(call, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_set_bytes(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_STR(hop_object(call), "bytes");
  OK(put_text(call, self, "done", penstock_hop_set_message));
  return PENSTOCK_NEXT;
}

TEST(sync_sees_objects_above_the_codec) {
  texts all = {0};
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.user_data = &all.alive;
  functions.encode = text_encode;
  functions.decode = text_decode;
  functions.free = text_free;
  penstock_codec *codec = NULL;
  REQUIRE_OK(penstock_codec_new(&functions, &codec, NULL));
  all.codec = codec;
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_codec(channel, codec));
  player both;
  player_add_at(&both, channel, 0, at_both_levels, PENSTOCK_LEVEL_BOTH);
  both.context = &all;
  static const char *const requests[] = {"given", "answer"}, *const responses[] = {"done", "stub"};
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = NULL;
    char *request = text_new(&all.alive, requests[i], strlen(requests[i]));
    OK(unary_object(channel, codec, request, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    CHECK_STR(reply_object(reply), responses[i]);
    penstock_reply_release(reply);
  }
  CHECK_INT(both.runs, 3);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  latch_wait(&both.finalized, 1);
  EVENTUALLY(atomic_load(&all.alive) == 0);
  penstock_codec_release(codec);
}

/* ---- Redirect ---- */

static int32_t send_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_channel(penstock_hop_request(hop), self->context));
  return PENSTOCK_NEXT;
}

static int32_t look_at_target(player *self, penstock_hop *call) {
  CHECK_STR(penstock_hop_target(call), peer_address());
  CHECK_STR(penstock_request_authority(penstock_hop_request(call)), peer_address());
  return pass(self, call);
}

TEST(sync_below_a_redirect_sees_where_the_call_goes) {
  penstock_channel *nowhere = NULL, *other = open_channel();
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &nowhere, NULL));
  probe redirect;
  player below;
  probe_init_with(&redirect, "redirect", send_elsewhere, other);
  probe_add(&redirect, nowhere, 1);
  player_add(&below, nowhere, 0, look_at_target);
  check_echo(nowhere);
  CHECK_INT(below.runs, 1);
  penstock_channel_release(nowhere);
  penstock_channel_release(other);
  probe_wait_finalized(&redirect);
  latch_wait(&below.finalized, 1);
}

/* ---- Registrations that change or end while a function runs ---- */

typedef struct place_plan {
  penstock_interceptor_id id;
  penstock_runtime *runtime;
  latch entered, go;
} place_plan;

static int32_t wait_for_itself(player *self, penstock_hop *call) {
  place_plan *plan = self->context;
  latch_signal(&plan->entered);
  latch_wait(&plan->go, 1);
  CHECK_RESULT(penstock_registration_wait_removed(plan->id, -1), PENSTOCK_E_WOULD_DEADLOCK);
  return pass(self, call);
}

TEST(sync_in_every_place_replaced_filtered_and_waited_for) {
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 2}");
  penstock_channel *channel = open_channel_on(runtime);
  player wide, first, second, own;
  place_plan plan = {.entered = LATCH_INIT, .go = LATCH_INIT};
  penstock_interceptor table = player_table(&wide, pass, 0);
  penstock_interceptor_id wide_id = 0, id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 3, &wide_id, NULL));
  table = player_table(&first, wait_for_itself, 0);
  first.context = &plan;
  OK(penstock_channel_add_interceptor(channel, &table, 2, &plan.id, NULL));
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  table = player_table(&own, pass, 0);
  OK(penstock_call_options_add_interceptor(options, &table, 1, &id, NULL));

  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&plan.entered, 1);
  /* Another interceptor replaces the running one; later calls have the new one. */
  table = player_table(&second, pass, 0);
  OK(penstock_registration_replace(plan.id, &table, &id, NULL));
  check_echo(channel);
  CHECK_INT(second.runs, 1);
  CHECK_INT(first.runs, 1);
  CHECK_RESULT(penstock_registration_wait_removed(plan.id, 0), PENSTOCK_E_TIMEOUT);
  latch_signal(&plan.go);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  OK(penstock_registration_wait_removed(plan.id, test_patience_ms()));
  CHECK_INT(latch_count(&first.finalized), 1);
  CHECK_INT(own.runs, 1);
  CHECK_INT(wide.runs, 2);
  OK(penstock_registration_set_filter(id, "/nobody.Has/This", 0, NULL));
  OK(penstock_registration_set_filter(wide_id, NULL, 1u << PENSTOCK_KIND_BIDI, NULL));
  check_echo(channel);
  CHECK_INT(second.runs, 1);
  CHECK_INT(wide.runs, 2);
  penstock_call_options_release(options);
  latch_wait(&own.finalized, 1);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
  latch_wait(&second.finalized, 1);
  latch_wait(&wide.finalized, 1);
}

/* The call is cancelled and ends while the function still runs, so the removed registration is not finalized yet. */
static int32_t outlast(player *self, penstock_hop *call) {
  place_plan *plan = self->context;
  (void)call;
  latch_signal(&plan->entered);
  latch_wait(&plan->go, 1);
  return PENSTOCK_NEXT;
}

TEST(sync_removal_waits_for_a_function_that_outlasts_its_call) {
  penstock_channel *channel = open_channel();
  player self;
  place_plan plan = {.entered = LATCH_INIT, .go = LATCH_INIT};
  penstock_interceptor table = player_table(&self, outlast, 0);
  self.context = &plan;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &plan.id, NULL));
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&plan.entered, 1);
  OK(penstock_call_cancel(call, NULL));
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  penstock_reply_release(reply);
  penstock_call_release(call);
  OK(penstock_registration_remove(plan.id, NULL));
  CHECK_RESULT(penstock_registration_wait_removed(plan.id, 20), PENSTOCK_E_TIMEOUT);
  CHECK_INT(latch_count(&self.finalized), 0);
  latch_signal(&plan.go);
  OK(penstock_registration_wait_removed(plan.id, test_patience_ms()));
  CHECK_INT(latch_count(&self.finalized), 1);
  penstock_channel_release(channel);
}

/* ---- From runtime to runtime ---- */

/* Makes a call on the other runtime, whose function makes a call on this one, and so on, until the count is used up. */
static int32_t ask_other(player *self, penstock_hop *call) {
  const void *value = NULL;
  int left = 3;
  if (penstock_metadata_get(penstock_request_metadata(penstock_hop_request(call)), "left", 0, &value, NULL) ==
      PENSTOCK_OK) {
    left = atoi(value);
  }
  if (left > 0) {
    char json[64];
    snprintf(json, sizeof(json), "{\"metadata\": {\"left\": \"%d\"}}", left - 1);
    penstock_call_options *options = NULL;
    penstock_reply *reply = NULL;
    OK(penstock_call_options_new(json, &options, NULL));
    OK(penstock_channel_unary(self->other, UNARY, "x", 1, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    penstock_call_options_release(options);
  }
  return pass(self, call);
}

static void *echo_some(void *channel) {
  for (int i = 0; i < 5; i++) check_echo(channel);
  return NULL;
}

TEST(sync_two_runtimes_with_one_worker_each_ask_each_other) {
  penstock_runtime *one = new_runtime("{\"max_workers\": 1}");
  penstock_runtime *two = new_runtime("{\"max_workers\": 1, \"caller_drives\": false}");
  penstock_channel *first = open_channel_on(one);
  penstock_channel *second = open_channel_on(two);
  player left, right;
  player_add(&left, first, 0, ask_other);
  player_add(&right, second, 0, ask_other);
  left.other = second;
  right.other = first;
  pthread_t threads[20];
  for (int i = 0; i < 20; i++) pthread_create(&threads[i], NULL, echo_some, i % 2 ? first : second);
  for (int i = 0; i < 20; i++) pthread_join(threads[i], NULL);
  CHECK_INT(left.runs + right.runs, 20 * 5 * 4);
  penstock_channel_release(first);
  penstock_channel_release(second);
  OK(penstock_runtime_shutdown(one, -1));
  OK(penstock_runtime_shutdown(two, -1));
  penstock_runtime_release(one);
  penstock_runtime_release(two);
  latch_wait(&left.finalized, 1);
  latch_wait(&right.finalized, 1);
}
