/* codec.h: the hops above the codec see objects, and the hops below it see bytes; the owner of each object; the effect
 * of a codec that fails. */
#include "test.h"

/* The objects are texts, and the codec counts those that are alive. */
typedef struct text {
  char *bytes;
  size_t length;
} text;

typedef struct text_codec {
  atomic_int alive, encoded, decoded, finalized;
  atomic_bool fails_to_encode, fails_to_decode;
  atomic_int refuses_to_copy; /* the number of the first copy that is refused; 0: none */
  atomic_int copied;
  penstock_codec *handle; /* borrowed */
} text_codec;

static text *text_new(text_codec *codec, const void *data, size_t length) {
  text *made = malloc(sizeof(text));
  made->bytes = malloc(length + 1);
  memcpy(made->bytes, data, length);
  made->length = length;
  atomic_fetch_add(&codec->alive, 1);
  return made;
}

static int32_t text_encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  text_codec *codec = user_data;
  const text *given = object;
  CHECK_HAS(method, "/penstock.Echo/");
  atomic_fetch_add(&codec->encoded, 1);
  if (atomic_load(&codec->fails_to_encode)) return 1;
  OK(penstock_buffer_append(bytes, "<", 1));
  OK(penstock_buffer_append(bytes, given->bytes, given->length));
  return penstock_buffer_append(bytes, ">", 1);
}

static int32_t text_decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  text_codec *codec = user_data;
  (void)method;
  atomic_fetch_add(&codec->decoded, 1);
  if (atomic_load(&codec->fails_to_decode)) return 1;
  *object = text_new(codec, data, length);
  return 0;
}

static void text_free(void *user_data, void *object) {
  text *given = object;
  free(given->bytes);
  free(given);
  atomic_fetch_sub(&((text_codec *)user_data)->alive, 1);
}

static void *text_copy(void *user_data, void *object) {
  const text *given = object;
  text_codec *codec = user_data;
  int limit = atomic_load(&codec->refuses_to_copy);
  if (atomic_fetch_add(&codec->copied, 1) + 1 >= limit && limit > 0) return NULL;
  return text_new(user_data, given->bytes, given->length);
}

static void codec_finalizer(void *user_data) { atomic_fetch_add(&((text_codec *)user_data)->finalized, 1); }

static penstock_codec *make_codec(text_codec *state, bool copies) {
  memset(state, 0, sizeof(*state));
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.user_data = state;
  functions.finalizer = codec_finalizer;
  functions.encode = text_encode;
  functions.decode = text_decode;
  functions.free = text_free;
  functions.copy = copies ? text_copy : NULL;
  penstock_codec *codec = NULL;
  OK(penstock_codec_new(&functions, &codec, NULL));
  state->handle = codec;
  return codec;
}

static bool is_text(const void *object, const char *expected) {
  const text *given = object;
  return CHECK(given != NULL) && CHECK_INT(given->length, strlen(expected)) &&
         CHECK(memcmp(given->bytes, expected, given->length) == 0);
}

static penstock_message *new_message(text_codec *state, penstock_codec *codec, const char *bytes) {
  penstock_message *message = NULL;
  OK(penstock_message_new_object(codec, text_new(state, bytes, strlen(bytes)), 0, &message));
  return message;
}

/* Waits until every object has been freed, then releases the codec. */
static void codec_close(text_codec *state, penstock_codec *codec) {
  EVENTUALLY(atomic_load(&state->alive) == 0);
  penstock_codec_release(codec);
  EVENTUALLY(atomic_load(&state->finalized) == 1);
}

/* Sees and replaces objects at the object level, and bytes at the bytes level. */
static int32_t look_at_both(probe *self, penstock_hop *hop, int32_t event) {
  text_codec *codec = self->context;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) {
    CHECK(hop_object(hop) == NULL);
    return PENSTOCK_NEXT;
  }
  const void *data = NULL;
  size_t length = 0;
  if (penstock_hop_level(hop) == PENSTOCK_LEVEL_OBJECT) {
    CHECK(penstock_hop_codec(hop) == codec->handle);
    CHECK_RESULT(hop_bytes(hop, &data, &length), PENSTOCK_E_STATE);
    penstock_message *bytes = NULL;
    OK(penstock_message_new("x", 1, 0, &bytes));
    CHECK_RESULT(penstock_hop_set_message(hop, bytes), PENSTOCK_E_STATE);
    CHECK_RESULT(penstock_hop_send_message(hop, bytes), PENSTOCK_E_STATE);
    penstock_message_release(bytes);
    CHECK_RESULT(penstock_hop_set_bytes(hop, "x", 1), PENSTOCK_E_STATE);
    CHECK_RESULT(penstock_hop_send(hop, "x", 1), PENSTOCK_E_STATE);
    is_text(hop_object(hop), event == PENSTOCK_EVENT_SEND ? "abc" : "<ABC>");
    const char *fresh = event == PENSTOCK_EVENT_SEND ? "ABC" : "done";
    OK(put_object(hop, codec->handle, text_new(codec, fresh, strlen(fresh)), penstock_hop_set_message));
    is_text(hop_object(hop), fresh);
  } else {
    CHECK(hop_object(hop) == NULL);
    CHECK(penstock_hop_codec(hop) == NULL);
    CHECK_RESULT(put_object(hop, codec->handle, text_new(codec, "x", 1), penstock_hop_set_message), PENSTOCK_E_STATE);
    if (OK(hop_bytes(hop, &data, &length))) {
      CHECK(length == 5 && memcmp(data, "<ABC>", 5) == 0);
    }
  }
  return PENSTOCK_NEXT;
}

TEST(codec_stands_between_the_levels) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_codec(channel, codec));
  probe both;
  probe_init_with(&both, "both", look_at_both, &state);
  penstock_interceptor table = probe_table(&both);
  table.level = PENSTOCK_LEVEL_BOTH;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_reply *reply = NULL;
  if (OK(unary_object(channel, codec, text_new(&state, "abc", 3), &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    is_text(reply_object(reply), "done");
    penstock_reply_release(reply);
  }
  CHECK_INT(atomic_load(&both.seen[PENSTOCK_EVENT_CREATE]), 2);
  CHECK_INT(atomic_load(&both.seen[PENSTOCK_EVENT_DESTROY]), 2);
  CHECK_INT(atomic_load(&state.encoded), 1);
  CHECK_INT(atomic_load(&state.decoded), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&both);
  codec_close(&state, codec);
}

TEST(codec_of_a_stream_in_the_call_options) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  penstock_channel *channel = open_channel();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(NULL, &options, NULL));
  OK(penstock_call_options_set_codec(options, codec));
  penstock_call *call = NULL;
  if (!OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL))) return;
  penstock_call_options_release(options);
  CHECK_RESULT(penstock_call_send(call, "x", 1), PENSTOCK_E_STATE);
  penstock_message *given = new_message(&state, codec, "abc");
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send_message(call, given));
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    is_text(penstock_message_object(message), "<abc>");
    size_t length = 1;
    CHECK(penstock_message_bytes(message, &length) == NULL);
    CHECK_INT(length, 0);
    penstock_message_release(message);
  }
  /* The send buffer has room for about a thousand of these messages. */
  penstock_result result = PENSTOCK_OK;
  int sent = 0;
  for (; sent < 100000 && result == PENSTOCK_OK; sent++) result = penstock_call_try_send_message(call, given);
  CHECK(result == PENSTOCK_E_WOULD_BLOCK || sent == 100000);
  OK(penstock_call_half_close(call));
  CHECK_RESULT(penstock_call_send_message(call, given), PENSTOCK_E_STATE);
  is_text(penstock_message_object(given), "abc");
  penstock_message_release(given);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  codec_close(&state, codec);
}

TEST(codec_that_fails_ends_the_call_and_names_the_method) {
  for (int encodes = 0; encodes < 2; encodes++) {
    text_codec state;
    penstock_codec *codec = make_codec(&state, false);
    atomic_store(encodes ? &state.fails_to_encode : &state.fails_to_decode, true);
    penstock_channel *channel = open_channel();
    OK(penstock_channel_set_codec(channel, codec));
    probe above, below;
    probe_init(&above, "above");
    probe_init(&below, "below");
    penstock_interceptor table = probe_table(&above);
    table.level = PENSTOCK_LEVEL_OBJECT;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    probe_add(&below, channel, 0);
    penstock_reply *reply = NULL;
    if (OK(unary_object(channel, codec, text_new(&state, "abc", 3), &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
      CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), UNARY);
      CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), encodes ? "encode" : "decode");
      CHECK(reply_object(reply) == NULL);
      penstock_reply_release(reply);
    }
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
    penstock_channel_release(channel);
    probe_wait_finalized(&above);
    probe_wait_finalized(&below);
    CHECK_INT(latch_count(&above.done), 1);
    CHECK_INT(latch_count(&below.done), 1);
    codec_close(&state, codec);
  }
}

static int32_t answer_with_object(probe *self, penstock_hop *hop, int32_t event) {
  text_codec *codec = self->context;
  if (event == PENSTOCK_EVENT_START) return PENSTOCK_TAKE;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    penstock_status *status = NULL;
    OK(penstock_status_new(0, NULL, &status));
    OK(put_object(hop, penstock_hop_codec(hop), text_new(codec, "stub", 4), penstock_hop_deliver_message));
    OK(penstock_hop_deliver_status(hop, status));
    penstock_status_release(status);
  }
  return PENSTOCK_NEXT;
}

TEST(codec_is_not_asked_where_an_object_hop_answers) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_codec(channel, codec));
  probe stub;
  probe_init_with(&stub, "stub", answer_with_object, &state);
  penstock_interceptor table = probe_table(&stub);
  table.level = PENSTOCK_LEVEL_OBJECT;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_reply *reply = NULL;
  if (OK(unary_object(channel, codec, text_new(&state, "abc", 3), &reply))) {
    is_text(reply_object(reply), "stub");
    penstock_reply_release(reply);
  }
  CHECK_INT(atomic_load(&state.encoded) + atomic_load(&state.decoded), 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&stub);
  codec_close(&state, codec);
}

static int32_t fail_and_restart(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  penstock_result *said = self->context;
  *said = penstock_hop_can_restart(hop);
  return PENSTOCK_RESTART;
}

static int32_t fail_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_HALF_CLOSE && penstock_hop_attempt(hop) == 1) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAVAILABLE, "again"));
  }
  return PENSTOCK_NEXT;
}

TEST(codec_copies_objects_for_a_restart) {
  for (int copies = 0; copies < 2; copies++) {
    text_codec state;
    penstock_codec *codec = make_codec(&state, copies);
    penstock_channel *channel = open_channel();
    OK(penstock_channel_set_codec(channel, codec));
    penstock_result said = PENSTOCK_OK;
    probe top, below;
    probe_init(&top, "top");
    probe_init(&below, "below");
    top.hook = fail_and_restart;
    top.context = &said;
    top.replay_bytes = 1000;
    below.hook = fail_once;
    penstock_interceptor table = probe_table(&top);
    table.level = PENSTOCK_LEVEL_OBJECT;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    probe_add(&below, channel, 0);
    penstock_reply *reply = NULL;
    if (OK(unary_object(channel, codec, text_new(&state, "abc", 3), &reply))) {
      CHECK_INT(penstock_reply_code(reply), copies ? PENSTOCK_STATUS_OK : PENSTOCK_STATUS_UNAVAILABLE);
      if (copies) is_text(reply_object(reply), "<abc>");
      if (!copies) CHECK_RESULT(said, PENSTOCK_E_UNSUPPORTED);
      penstock_reply_release(reply);
    }
    penstock_channel_release(channel);
    probe_wait_finalized(&top);
    probe_wait_finalized(&below);
    codec_close(&state, codec);
  }
}

/* If the codec refuses the first copy, the call can't be restarted. If it refuses the second, which is made for the
 * second attempt, the call ends with RESOURCE_EXHAUSTED. */
TEST(codec_that_has_no_copy_for_a_restart) {
  for (int first = 1; first <= 2; first++) {
    text_codec state;
    penstock_codec *codec = make_codec(&state, true);
    atomic_store(&state.refuses_to_copy, first);
    penstock_channel *channel = open_channel();
    OK(penstock_channel_set_codec(channel, codec));
    penstock_result said = PENSTOCK_OK;
    probe top, below;
    probe_init_with(&top, "top", fail_and_restart, &said);
    probe_init_with(&below, "below", fail_once, NULL);
    top.replay_bytes = 1000;
    penstock_interceptor table = probe_table(&top);
    table.level = PENSTOCK_LEVEL_OBJECT;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    probe_add(&below, channel, 0);
    penstock_reply *reply = NULL;
    if (OK(unary_object(channel, codec, text_new(&state, "abc", 3), &reply))) {
      CHECK_INT(penstock_reply_code(reply),
                first == 1 ? PENSTOCK_STATUS_UNAVAILABLE : PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
      CHECK_HAS(penstock_reply_status_json(reply), first == 1 ? "again" : "no memory to send the request again");
      CHECK_RESULT(said, PENSTOCK_E_NO_MEMORY);
      CHECK_INT(atomic_load(&state.copied), first);
      penstock_reply_release(reply);
    }
    penstock_channel_release(channel);
    probe_wait_finalized(&top);
    probe_wait_finalized(&below);
    codec_close(&state, codec);
  }
}

/* A call that does not begin leaves the message, and so the object, as it is. */
TEST(codec_message_of_a_call_that_does_not_begin) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  penstock_channel *channel = open_channel();
  penstock_reply *reply = NULL;
  penstock_message *mine = new_message(&state, codec, "mine");
  CHECK_RESULT(penstock_channel_unary_message(channel, UNARY, mine, NULL, &reply, NULL), PENSTOCK_E_STATE);
  OK(penstock_channel_set_codec(channel, codec));
  CHECK_RESULT(penstock_channel_unary_message(channel, "none", mine, NULL, &reply, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_channel_close(channel));
  CHECK_RESULT(penstock_channel_unary_message(channel, UNARY, mine, NULL, &reply, NULL), PENSTOCK_E_CLOSED);
  is_text(penstock_message_object(mine), "mine");
  penstock_message_release(mine);
  CHECK_INT(atomic_load(&state.alive), 0);
  penstock_channel_release(channel);
  codec_close(&state, codec);
}

/* One object is used in two calls, and lives until its last message is released; a received object may be sent, too. */
TEST(codec_message_is_sent_again) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_codec(channel, codec));
  penstock_message *mine = new_message(&state, codec, "abc");
  penstock_reply *first = NULL, *second = NULL;
  REQUIRE_OK(penstock_channel_unary_message(channel, UNARY, mine, NULL, &first, NULL));
  REQUIRE_OK(penstock_channel_unary_message(channel, UNARY, mine, NULL, &second, NULL));
  is_text(reply_object(second), "<abc>");
  penstock_reply_release(second);
  is_text(penstock_message_object(mine), "abc");
  penstock_message_release(mine);
  penstock_message *received = penstock_message_retain(penstock_reply_response_message(first));
  CHECK(penstock_reply_bytes(first, NULL) == NULL);
  penstock_reply_release(first);
  REQUIRE_OK(penstock_channel_unary_message(channel, UNARY, received, NULL, &first, NULL));
  penstock_message_release(received);
  is_text(reply_object(first), "<<abc>>");
  penstock_reply_release(first);
  CHECK_INT(atomic_load(&state.encoded), 3);
  penstock_channel_release(channel);
  codec_close(&state, codec);
}

/* The library refuses bytes where objects are expected, objects where bytes are expected, and objects of another codec.
 */
TEST(codec_takes_only_its_own_objects) {
  text_codec state, others;
  penstock_codec *codec = make_codec(&state, false), *other = make_codec(&others, false);
  penstock_channel *channel = open_channel();
  penstock_message *given[3] = {new_message(&state, codec, "abc"), new_message(&others, other, "abc"), NULL};
  OK(penstock_message_new("abc", 3, 0, &given[2]));
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  for (int with = 0; with < 2; with++) {
    OK(penstock_channel_set_codec(channel, with ? codec : NULL));
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    for (int i = 0; i < 3; i++) {
      if (i == (with ? 0 : 2)) continue;
      CHECK_RESULT(penstock_call_send_message(call, given[i]), PENSTOCK_E_STATE);
      CHECK_RESULT(penstock_call_try_send_message(call, given[i]), PENSTOCK_E_STATE);
      CHECK_RESULT(penstock_channel_unary_message(channel, UNARY, given[i], NULL, &reply, &error), PENSTOCK_E_STATE);
      CHECK_HAS(penstock_error_message(error), "codec");
      penstock_error_release(error);
    }
    OK(penstock_call_send_message(call, given[with ? 0 : 2]));
    OK(penstock_call_cancel(call, NULL));
    penstock_call_release(call);
  }
  for (int i = 0; i < 3; i++) penstock_message_release(given[i]);
  penstock_channel_release(channel);
  codec_close(&state, codec);
  codec_close(&others, other);
}

TEST(codec_wrong_arguments) {
  text_codec state;
  penstock_codec *codec = make_codec(&state, false);
  for (int missing = 0; missing < 4; missing++) {
    atomic_int finalized = 0;
    penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
    functions.user_data = &finalized;
    functions.finalizer = count_up;
    functions.encode = missing == 0 ? NULL : text_encode;
    functions.decode = missing == 1 ? NULL : text_decode;
    functions.free = missing == 2 ? NULL : text_free;
    CHECK_RESULT(penstock_codec_new(&functions, missing == 3 ? NULL : &codec, NULL), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_INT(atomic_load(&finalized), 1);
  }
  penstock_message *message = NULL;
  text *mine = text_new(&state, "mine", 4);
  CHECK_RESULT(penstock_message_new_object(codec, mine, 0, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_message_new_object(NULL, mine, 0, &message), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&state.alive), 1);
  text_free(&state, mine);
  codec_close(&state, codec);
}
