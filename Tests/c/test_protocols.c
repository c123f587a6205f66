/* The protocol of a channel, as hops and callers see it: its name, the HTTP method of a request, and the name of the
 * messages' encoding. Most tests need no server, because a hop answers. */
#include "syncer.h"

#include <stddef.h>

static penstock_channel *open_with(const char *target, const char *options) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  if (!OK(penstock_channel_new(target, options, &channel, &error))) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return channel;
}

static penstock_call_options *options_of(const char *json) {
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(json, &options, NULL));
  return options;
}

/* ---- The name ---- */

/* The last interceptor of the chain: notes the protocol and the method that it sees in on_start, and answers instead of
 * a server. */
typedef struct note {
  char protocol[16], method[8], later[8];
  int32_t allows;
  penstock_channel *to; /* NULL: the call is not redirected */
  bool forbids;
} note;

static void note_method(char *text, penstock_hop *hop) {
  snprintf(text, 8, "%s", penstock_request_http_method(penstock_hop_request(hop)));
}

static int32_t take_note(probe *self, penstock_hop *hop, int32_t event) {
  note *note = self->context;
  penstock_request *request = penstock_hop_request(hop);
  if (event == PENSTOCK_EVENT_CREATE) {
    CHECK_RESULT(penstock_request_set_allows_get(request, 0), PENSTOCK_E_STATE);
    CHECK(penstock_request_http_method(request) != NULL);
  }
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  note->allows = request_allows_get(request);
  note_method(note->method, hop);
  if (note->forbids) OK(penstock_request_set_allows_get(request, 0));
  if (note->to) OK(penstock_request_set_channel(request, note->to));
  note_method(note->later, hop);
  snprintf(note->protocol, sizeof(note->protocol), "%s", penstock_hop_protocol(hop));
  OK(penstock_hop_deliver(hop, "x", 1));
  OK(answer_hop(hop, NULL));
  return PENSTOCK_TAKE;
}

static note run_noting(penstock_channel *channel, const char *options, note given) {
  probe probe;
  probe_init_with(&probe, "note", take_note, &given);
  penstock_interceptor table = probe_table(&probe);
  penstock_call_options *made = options_of(options);
  penstock_interceptor_id id = 0;
  OK(penstock_call_options_add_interceptor(made, &table, 0, &id, NULL));
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, "x", 1, made, &reply, NULL))) CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_options_release(made);
  probe_wait_finalized(&probe);
  return given;
}

TEST(protocol_of_a_hop_is_that_of_its_channel) {
  static const char *const names[] = {"grpc", "grpc-web", "grpc-web-text", "connect"};
  for (size_t i = 0; i < 4; i++) {
    char options[64];
    snprintf(options, sizeof(options), "{\"tls\": false, \"protocol\": \"%s\"}", names[i]);
    penstock_channel *channel = open_with(dead_address(), options),
                     *other = open_with(dead_address(), "{\"tls\": false}");
    CHECK_STR(run_noting(channel, NULL, (note){0}).protocol, names[i]);
    /* After a redirect, the hop's protocol is that of the channel that the call was redirected to. */
    CHECK_STR(run_noting(channel, NULL, (note){.to = other}).protocol, "grpc");
    CHECK_STR(run_noting(other, NULL, (note){.to = channel}).protocol, names[i]);
    penstock_channel_release(channel);
    penstock_channel_release(other);
  }
}

/* ---- The HTTP method ---- */

#define SAFE "{\"idempotency\": \"no_side_effects\"}"

TEST(http_method_is_get_for_a_safe_unary_call_over_connect) {
  static const struct {
    const char *protocol, *options, *method;
  } cases[] = {
      {"connect", SAFE, "GET"},   {"connect", "{\"idempotency\": \"idempotent\"}", "POST"},
      {"connect", NULL, "POST"},  {"grpc", SAFE, "POST"},
      {"grpc-web", SAFE, "POST"}, {"grpc-web-text", SAFE, "POST"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    char options[64];
    snprintf(options, sizeof(options), "{\"tls\": false, \"protocol\": \"%s\"}", cases[i].protocol);
    penstock_channel *channel = open_with(dead_address(), options);
    note seen = run_noting(channel, cases[i].options, (note){0});
    if (!CHECK_STR(seen.method, cases[i].method)) printf("  case %zu\n", i);
    CHECK_INT(seen.allows, 1);
    /* A hop forbids GET. */
    CHECK_STR(run_noting(channel, cases[i].options, (note){.forbids = true}).later, "POST");
    penstock_channel_release(channel);
  }
}

TEST(http_method_follows_a_redirect) {
  penstock_channel *connect = open_with(dead_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  penstock_channel *grpc = open_with(dead_address(), "{\"tls\": false}");
  note seen = run_noting(grpc, SAFE, (note){.to = connect});
  CHECK_STR(seen.method, "POST");
  CHECK_STR(seen.later, "GET");
  seen = run_noting(connect, SAFE, (note){.to = grpc});
  CHECK_STR(seen.method, "GET");
  CHECK_STR(seen.later, "POST");
  penstock_channel_release(connect);
  penstock_channel_release(grpc);
}

TEST(http_method_of_a_stream_is_post) {
  penstock_channel *channel = open_with(dead_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  note seen = {.method = ""};
  probe probe;
  probe_init_with(&probe, "note", take_note, &seen);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = options_of(SAFE);
  penstock_call *call = NULL;
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_STR(seen.method, "POST");
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(get_is_forbidden_by_call_options) {
  penstock_channel *channel = open_with(dead_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  penstock_call_options *options = options_of(SAFE);
  penstock_request *request = penstock_call_options_request(options);
  CHECK_INT(request_allows_get(request), 1);
  CHECK(penstock_request_http_method(request) == NULL);
  OK(penstock_request_set_allows_get(request, 0));
  CHECK_INT(request_allows_get(request), 0);
  note seen = {.method = ""};
  probe probe;
  probe_init_with(&probe, "note", take_note, &seen);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  penstock_reply_release(reply);
  CHECK_STR(seen.method, "POST");
  CHECK_INT(seen.allows, 0);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The synchronous style: the interceptor's function decides before it calls next, or answers instead. */
static int32_t decide(syncer *self, penstock_hop *hop) {
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_hop_protocol(hop), "connect");
  CHECK_STR(penstock_request_http_method(request), "GET");
  OK(penstock_request_set_allows_get(request, 0));
  CHECK_STR(penstock_request_http_method(request), "POST");
  CHECK_INT(request_allows_get(request), 0);
  OK(penstock_request_set_allows_get(request, 7));
  CHECK_STR(penstock_request_http_method(request), "GET");
  CHECK_INT(request_allows_get(request), 1);
  OK(penstock_hop_deliver(hop, self->text, 1));
  OK(answer_hop(hop, NULL));
  return PENSTOCK_NEXT;
}

TEST(http_method_in_synchronous_style) {
  penstock_channel *channel = open_with(dead_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  syncer one;
  syncer_init(&one, decide);
  one.text = "x";
  syncer_add(&one, channel, 0);
  penstock_call_options *options = options_of(SAFE);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  bench_close(&one, channel);
}

/* The asynchronous style: the callback of a bound hop decides, and another thread answers while the call waits at
 * on_start. */
static void *answer_elsewhere(void *given) {
  penstock_hop *hop = given;
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_hop_protocol(hop), "connect");
  CHECK_STR(penstock_request_http_method(request), "POST");
  OK(penstock_hop_deliver(hop, "x", 1));
  OK(answer_hop(hop, NULL));
  OK(penstock_hop_resolve(hop, PENSTOCK_TAKE));
  /* on_start is over, so the request can't be changed any more. */
  CHECK(penstock_request_set_allows_get(request, 1) != PENSTOCK_OK);
  penstock_hop_release(hop);
  return NULL;
}

static pthread_t answerer;

static void decide_later(penstock_hop *hop, void *state) {
  (void)state;
  CHECK_STR(penstock_request_http_method(penstock_hop_request(hop)), "GET");
  OK(penstock_request_set_allows_get(penstock_hop_request(hop), 0));
  if (pthread_create(&answerer, NULL, answer_elsewhere, hop)) abort();
}

TEST(http_method_in_asynchronous_style) {
  penstock_channel *channel = open_with(dead_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  penstock_async_interceptor callbacks = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  callbacks.on_start = decide_later;
  OK(penstock_async_interceptor_table(&callbacks, &table, NULL));
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call_options *options = options_of(SAFE);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  pthread_join(answerer, NULL);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* ---- The name of the encoding ---- */

/* Copies the content-type of a unary call, as the server has seen it, to `text`. */
static void seen_type(penstock_reply *reply, char *text, size_t size) {
  const void *value = NULL;
  snprintf(text, size, "-");
  if (reply &&
      penstock_metadata_get(penstock_reply_trailers(reply), "seen-content-type", 0, &value, NULL) == PENSTOCK_OK)
    snprintf(text, size, "%s", (const char *)value);
}

#define ECHO "\"metadata\": {\"x-echo-metadata\": \"1\"}"

static void check_type(penstock_channel *channel, const char *options, const char *expected) {
  penstock_call_options *made = options_of(options);
  penstock_reply *reply = NULL;
  char type[64];
  OK(penstock_channel_unary(channel, UNARY, "x", 1, made, &reply, NULL));
  seen_type(reply, type, sizeof(type));
  CHECK_STR(type, expected);
  penstock_reply_release(reply);
  penstock_call_options_release(made);
}

TEST(content_subtype_is_an_option) {
  penstock_channel *plain = open_channel();
  check_type(plain, "{" ECHO "}", "application/grpc");
  check_type(plain, "{" ECHO ", \"content_subtype\": \"json\"}", "application/grpc+json");
  check_type(plain, "{" ECHO ", \"content_subtype\": \"x-y.z_1\"}", "application/grpc+x-y.z_1");
  check_type(plain, "{" ECHO ", \"content_subtype\": \"\"}", "application/grpc");
  penstock_channel_release(plain);
  penstock_channel *named = open_with(peer_address(), "{\"tls\": false, \"content_subtype\": \"json\"}");
  check_type(named, "{" ECHO "}", "application/grpc+json");
  check_type(named, "{" ECHO ", \"content_subtype\": \"thrift\"}", "application/grpc+thrift");
  check_type(named, "{" ECHO ", \"authority\": \"a.example\"}", "application/grpc+json");
  penstock_channel_release(named);
  static const char *const wrong[] = {"{\"content_subtype\": \"JSON\"}", "{\"content_subtype\": \"a b\"}",
                                      "{\"content_subtype\": \"a/b\"}", "{\"content_subtype\": 1}",
                                      "{\"content_subtype\": null}"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_call_options *options = NULL;
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_call_options_new(wrong[i], &options, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.content_subtype", "the name of an encoding");
    CHECK_RESULT(penstock_channel_new(dead_address(), wrong[i], &channel, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.content_subtype", "the name of an encoding");
  }
}

/* ---- Codecs ---- */

static int32_t encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)user_data, (void)method;
  return penstock_buffer_append(bytes, object, strlen(object));
}

static int32_t decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data, (void)method;
  char *made = calloc(1, length + 1);
  memcpy(made, data, length);
  *object = made;
  return 0;
}

static void free_text(void *user_data, void *object) {
  (void)user_data;
  free(object);
}

static penstock_codec_functions functions_named(const char *name) {
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode;
  functions.decode = decode;
  functions.free = free_text;
  functions.name = name;
  return functions;
}

/* Makes a unary call with an object as its message, and checks the content-type that the server has seen. */
static void check_codec(penstock_channel *channel, penstock_codec *codec, const char *options, const char *expected) {
  penstock_call_options *made = options_of(options);
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  char type[64];
  OK(penstock_message_new_object(codec, strdup("ping"), 0, &message));
  OK(penstock_call_options_set_codec(made, codec));
  OK(penstock_channel_unary_message(channel, UNARY, message, made, &reply, NULL));
  seen_type(reply, type, sizeof(type));
  CHECK_STR(type, expected);
  CHECK_STR(reply_object(reply), "ping");
  penstock_reply_release(reply);
  penstock_message_release(message);
  penstock_call_options_release(made);
}

/* Two hops, above and below the codec, check the codec's name in the request. The lower hop sets another name if its
 * `context` is a name. */
static int32_t see_name(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK_STR(penstock_request_content_subtype(penstock_hop_request(hop)), "json");
  if (self->context && penstock_hop_level(hop) == PENSTOCK_LEVEL_BYTES)
    OK(penstock_request_set_content_subtype(penstock_hop_request(hop), self->context));
  return PENSTOCK_NEXT;
}

TEST(codec_names_the_encoding) {
  penstock_codec_functions functions = functions_named(NULL);
  penstock_codec *unnamed = NULL, *json = NULL;
  OK(penstock_codec_new(&functions, &unnamed, NULL));
  char name[] = "json";
  functions = functions_named(name);
  OK(penstock_codec_new(&functions, &json, NULL));
  name[0] = '?'; /* the library has copied the name */
  penstock_channel *channel = open_channel();
  check_codec(channel, unnamed, "{" ECHO "}", "application/grpc");
  check_codec(channel, json, "{" ECHO "}", "application/grpc+json");
  /* The content_subtype of the call's options, or of a hop, overrides the codec's name. */
  check_codec(channel, json, "{" ECHO ", \"content_subtype\": \"other\"}", "application/grpc+other");
  probe probe;
  probe_init_with(&probe, "see", see_name, NULL);
  penstock_interceptor table = probe_table(&probe);
  table.level = PENSTOCK_LEVEL_BOTH;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_codec(channel, json, "{" ECHO "}", "application/grpc+json");
  probe.context = "hop";
  check_codec(channel, json, "{" ECHO "}", "application/grpc+hop");
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&probe);
  penstock_channel_release(channel);
  /* The codec's name overrides the channel's option. If the codec has no name, the option applies. */
  channel = open_with(peer_address(), "{\"tls\": false, \"content_subtype\": \"cbor\"}");
  check_codec(channel, json, "{" ECHO "}", "application/grpc+json");
  check_codec(channel, unnamed, "{" ECHO "}", "application/grpc+cbor");
  /* The channel gets a codec, which is removed again later. */
  OK(penstock_channel_set_codec(channel, json));
  penstock_codec_release(json);
  penstock_codec_release(unnamed);
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  char type[64];
  OK(penstock_message_new_object(json, strdup("ping"), 0, &message));
  penstock_call_options *options = options_of("{" ECHO "}");
  OK(penstock_channel_unary_message(channel, UNARY, message, options, &reply, NULL));
  seen_type(reply, type, sizeof(type));
  CHECK_STR(type, "application/grpc+json");
  penstock_reply_release(reply);
  penstock_message_release(message);
  penstock_call_options_release(options);
  OK(penstock_channel_set_codec(channel, NULL));
  check_type(channel, "{" ECHO "}", "application/grpc+cbor");
  penstock_channel_release(channel);
}

TEST(codec_with_a_wrong_name_or_an_older_table) {
  static const char *const wrong[] = {"", "JSON", "a b", "a/b", "j\xc3\xa9", "a\n"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_codec_functions functions = functions_named(wrong[i]);
    penstock_codec *codec = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_codec_new(&functions, &codec, &error), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "functions.name");
    CHECK(codec == NULL);
  }
  /* The table of the first version has no field `name`. The library must not read beyond that table. */
  penstock_codec_functions functions = functions_named("not valid");
  penstock_codec *codec = NULL;
  functions.struct_size = offsetof(penstock_codec_functions, name);
  OK(penstock_codec_new(&functions, &codec, NULL));
  penstock_codec_release(codec);
  functions.struct_size--;
  CHECK_RESULT(penstock_codec_new(&functions, &codec, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  struct {
    penstock_codec_functions table;
    void *more;
  } larger = {functions_named("json"), NULL};
  larger.table.struct_size = sizeof(larger);
  OK(penstock_codec_new(&larger.table, &codec, NULL));
  penstock_codec_release(codec);
  larger.more = &larger;
  CHECK_RESULT(penstock_codec_new(&larger.table, &codec, NULL), PENSTOCK_E_UNSUPPORTED);
}
