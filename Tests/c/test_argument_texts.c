/* The messages of errors about arguments: each names the arguments, or the field of a table, that it is about. */
#include "calls.h"

/* Checks that `call`, whose last argument is &error, gives `code` with exactly this message. */
#define SAYS(call, code, words)                                                                                        \
  do {                                                                                                                 \
    penstock_error *error = NULL;                                                                                      \
    CHECK_RESULT((call), (code));                                                                                      \
    CHECK_STR(error ? penstock_error_message(error) : NULL, (words));                                                  \
    if (error) CHECK_ERROR(error, (code), NULL, NULL);                                                                 \
  } while (0)
#define WRONG(call, words) SAYS(call, PENSTOCK_E_INVALID_ARGUMENT, words)
#define CLOSED(call)       SAYS(call, PENSTOCK_E_CLOSED, "the channel or its runtime has been closed")

static penstock_channel *idle_channel(void) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new("localhost:1", "{\"tls\": false}", &channel, NULL));
  return channel;
}

TEST(argument_texts_of_makers) {
  penstock_runtime *runtime = new_runtime("{}");
  penstock_channel *channel = NULL;
  WRONG(penstock_runtime_new("{}", NULL, &error), "runtime must not be NULL");
  WRONG(penstock_runtime_default(NULL, &error), "runtime must not be NULL");
  WRONG(penstock_channel_new(NULL, "{}", &channel, &error), "target and channel must not be NULL");
  WRONG(penstock_channel_new("localhost:1", "{}", NULL, &error), "target and channel must not be NULL");
  WRONG(penstock_channel_new_on(NULL, "localhost:1", "{}", &channel, &error),
        "runtime, target and channel must not be NULL");
  WRONG(penstock_channel_new_on(runtime, NULL, "{}", &channel, &error), "runtime, target and channel must not be NULL");
  WRONG(penstock_channel_new_on(runtime, "localhost:1", "{}", NULL, &error),
        "runtime, target and channel must not be NULL");
  WRONG(penstock_call_options_new("{}", NULL, &error), "options must not be NULL");
  WRONG(penstock_metrics_new("{}", NULL, &error), "metrics must not be NULL");
  WRONG(penstock_telemetry_new("{}", NULL, &error), "telemetry must not be NULL");
  OK(penstock_runtime_shutdown(runtime, -1));
  SAYS(penstock_channel_new_on(runtime, "localhost:1", "{}", &channel, &error), PENSTOCK_E_CLOSED,
       "the runtime has been shut down");
  CHECK(channel == NULL);
  penstock_runtime_release(runtime);
}

TEST(argument_texts_of_metadata_and_statuses) {
  penstock_metadata *metadata = NULL;
  penstock_status *status = NULL;
  OK(penstock_metadata_new(&metadata));
  WRONG(penstock_metadata_set_json(NULL, "{}", &error), "metadata and json must not be NULL");
  WRONG(penstock_metadata_set_json(metadata, NULL, &error), "metadata and json must not be NULL");
  WRONG(penstock_status_from_json(NULL, &status, &error), "json and status must not be NULL");
  WRONG(penstock_status_from_json("{}", NULL, &error), "json and status must not be NULL");
  penstock_metadata_release(metadata);
}

TEST(argument_texts_of_certificates) {
  penstock_channel *channel = idle_channel(), *secure = NULL;
  OK(penstock_channel_new("localhost:1", "{\"tls\": {\"verify\": false}}", &secure, NULL));
  WRONG(penstock_channel_set_tls_pem(NULL, NULL, 0, NULL, 0, NULL, 0, &error), "channel must not be NULL");
  for (int i = 0; i < 3; i++) {
    WRONG(penstock_channel_set_tls_pem(secure, NULL, i == 0, NULL, i == 1, NULL, i == 2, &error),
          "NULL is allowed with length 0 only");
  }
  SAYS(penstock_channel_set_tls_pem(channel, NULL, 0, NULL, 0, NULL, 0, &error), PENSTOCK_E_STATE,
       "the channel has no TLS");
  penstock_channel_close(channel);
  CLOSED(penstock_channel_set_tls_pem(channel, NULL, 0, NULL, 0, NULL, 0, &error));
  penstock_channel_release(channel);
  penstock_channel_release(secure);
}

static int32_t encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)user_data, (void)method, (void)object;
  return penstock_buffer_append(bytes, "x", 1);
}
static int32_t decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data, (void)method, (void)data, (void)length;
  *object = NULL;
  return 0;
}
static void free_object(void *user_data, void *object) { (void)user_data, (void)object; }

static penstock_codec *new_codec(void) {
  penstock_codec *codec = NULL;
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode, functions.decode = decode, functions.free = free_object;
  OK(penstock_codec_new(&functions, &codec, NULL));
  return codec;
}

static void on_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call, (void)message, (void)user_data;
}
static void on_readable(penstock_call *call, void *user_data) { (void)call, (void)user_data; }

TEST(argument_texts_of_calls) {
  penstock_channel *channel = idle_channel();
  penstock_call_options *small = options_of("{\"max_send_message_bytes\": 2}"), *coded = options_of("{}");
  penstock_codec *codec = new_codec();
  penstock_message *bytes = NULL, *object = NULL;
  penstock_reply *reply = NULL;
  penstock_call *call = NULL;
  OK(penstock_message_new("xyz", 3, 0, &bytes));
  OK(penstock_message_new_object(codec, &bytes, 0, &object));
  OK(penstock_call_options_set_codec(coded, codec));
#define FOUR "channel, method, request and reply must not be NULL"
  WRONG(penstock_channel_unary(NULL, UNARY, "x", 1, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary(channel, NULL, "x", 1, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary(channel, UNARY, NULL, 1, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary(channel, UNARY, "x", (size_t)1 << 47, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary(channel, UNARY, "x", 1, NULL, NULL, &error), FOUR);
  WRONG(penstock_channel_unary_message(NULL, UNARY, bytes, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary_message(channel, NULL, bytes, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary_message(channel, UNARY, NULL, NULL, &reply, &error), FOUR);
  WRONG(penstock_channel_unary_message(channel, UNARY, bytes, NULL, NULL, &error), FOUR);
  SAYS(penstock_channel_unary(channel, UNARY, "xyz", 3, small, &reply, &error), PENSTOCK_E_TOO_LARGE,
       "the request is over max_send_message_bytes");
  SAYS(penstock_channel_unary_message(channel, UNARY, bytes, small, &reply, &error), PENSTOCK_E_TOO_LARGE,
       "the request is over max_send_message_bytes");
  SAYS(penstock_channel_unary(channel, UNARY, "x", 1, coded, &reply, &error), PENSTOCK_E_STATE,
       "the call has a codec, so it takes objects of it");
  SAYS(penstock_channel_unary_message(channel, UNARY, bytes, coded, &reply, &error), PENSTOCK_E_STATE,
       "the call has a codec, so it takes objects of it");
  SAYS(penstock_channel_unary_message(channel, UNARY, object, NULL, &reply, &error), PENSTOCK_E_STATE,
       "the call has no codec, so it takes bytes only");
  WRONG(penstock_channel_unary(channel, "a\"b", "x", 1, NULL, &reply, &error),
        "method: expected \"/package.Service/Method\", got \"a\"b\"");
#define THREE "channel, method and call must not be NULL"
  WRONG(penstock_channel_call(NULL, UNARY, 0, NULL, NULL, &call, &error), THREE);
  WRONG(penstock_channel_call(channel, NULL, 0, NULL, NULL, &call, &error), THREE);
  WRONG(penstock_channel_call(channel, UNARY, 0, NULL, NULL, NULL, &error), THREE);
  WRONG(penstock_channel_call(channel, UNARY, -1, NULL, NULL, &call, &error), "kind: expected PENSTOCK_KIND_...");
  WRONG(penstock_channel_call(channel, UNARY, 4, NULL, NULL, &call, &error), "kind: expected PENSTOCK_KIND_...");
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.on_message = on_message;
  callbacks.on_readable = on_readable;
  WRONG(penstock_channel_call(channel, UNARY, 0, NULL, &callbacks, &call, &error),
        "callbacks: on_message and on_readable can't both be set");
  penstock_channel_close(channel);
  CLOSED(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, &error));
  CLOSED(penstock_channel_call(channel, UNARY, 0, NULL, NULL, &call, &error));
  CHECK(reply == NULL && call == NULL);
  penstock_message_release(bytes);
  penstock_message_release(object);
  penstock_codec_release(codec);
  penstock_call_options_release(small);
  penstock_call_options_release(coded);
  penstock_channel_release(channel);
}

TEST(argument_texts_of_codecs) {
  penstock_codec *codec = NULL;
#define CODEC "codec, encode, decode and free must not be NULL"
  penstock_codec_functions whole = PENSTOCK_CODEC_FUNCTIONS_INIT;
  whole.encode = encode, whole.decode = decode, whole.free = free_object;
  penstock_codec_functions given = whole;
  WRONG(penstock_codec_new(NULL, &codec, &error), "functions must not be NULL");
  WRONG(penstock_codec_new(&given, NULL, &error), CODEC);
  given.encode = NULL;
  WRONG(penstock_codec_new(&given, &codec, &error), CODEC);
  given = whole, given.decode = NULL;
  WRONG(penstock_codec_new(&given, &codec, &error), CODEC);
  given = whole, given.free = NULL;
  WRONG(penstock_codec_new(&given, &codec, &error), CODEC);
  static const char *const names[] = {"", "a b", "A", "a/b"};
  for (int i = 0; i < 4; i++) {
    given = whole, given.name = names[i];
    WRONG(penstock_codec_new(&given, &codec, &error),
          "functions.name: expected lower-case letters, digits, \"-\", \"_\" or \".\"");
  }
  given = whole, given.struct_size = 8;
  WRONG(penstock_codec_new(&given, &codec, &error),
        "functions.struct_size is too small: use PENSTOCK_CODEC_FUNCTIONS_INIT");
  CHECK(codec == NULL);
}

static int32_t squeeze(void *user_data, const void *data, size_t length, penstock_compression *message) {
  (void)user_data, (void)data, (void)length, (void)message;
  return -1;
}

TEST(argument_texts_of_compressors) {
  penstock_compressor *compressor = NULL;
#define COMPRESSOR "compressor, name, compress and decompress must not be NULL"
  penstock_compressor_functions whole = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
  whole.name = "mine", whole.compress = squeeze, whole.decompress = squeeze;
  penstock_compressor_functions given = whole;
  WRONG(penstock_compressor_new(NULL, &compressor, &error), "functions must not be NULL");
  WRONG(penstock_compressor_new(&given, NULL, &error), COMPRESSOR);
  given.name = NULL;
  WRONG(penstock_compressor_new(&given, &compressor, &error), COMPRESSOR);
  given = whole, given.compress = NULL;
  WRONG(penstock_compressor_new(&given, &compressor, &error), COMPRESSOR);
  given = whole, given.decompress = NULL;
  WRONG(penstock_compressor_new(&given, &compressor, &error), COMPRESSOR);
  given = whole, given.name = "a b";
  WRONG(penstock_compressor_new(&given, &compressor, &error),
        "functions.name: expected lower-case letters, digits, \"-\", \"_\" or \".\"");
  static const char *const names[] = {"identity", "gzip", "x-gzip", "deflate", "zstd"};
  for (int i = 0; i < 5; i++) {
    given = whole, given.name = names[i];
    WRONG(penstock_compressor_new(&given, &compressor, &error),
          "functions.name: the library has a compression with this name");
  }
  CHECK(compressor == NULL);
}

static void connect_nothing(penstock_connecting *connecting, void *user_data) { (void)connecting, (void)user_data; }

TEST(argument_texts_of_connectors_and_resolvers) {
  penstock_channel *channel = idle_channel();
  penstock_resolver *resolver = NULL, *newer = NULL;
  penstock_connector_functions functions = PENSTOCK_CONNECTOR_FUNCTIONS_INIT;
  WRONG(penstock_channel_set_connector(channel, &functions, &error), "functions.connect must not be NULL");
  functions.connect = connect_nothing;
  WRONG(penstock_channel_set_connector(NULL, &functions, &error), "channel must not be NULL");
  WRONG(penstock_connecting_socket(NULL, 0, &error), "connecting must not be NULL");
  WRONG(penstock_channel_set_resolver(NULL, NULL, &resolver, &error), "channel and resolver must not be NULL");
  WRONG(penstock_channel_set_resolver(channel, NULL, NULL, &error), "channel and resolver must not be NULL");
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  WRONG(penstock_resolver_push(NULL, "{}", &error), "resolver and snapshot must not be NULL");
  WRONG(penstock_resolver_push(resolver, NULL, &error), "resolver and snapshot must not be NULL");
  OK(penstock_channel_set_resolver(channel, NULL, &newer, NULL));
  EVENTUALLY(penstock_resolver_push(resolver, "{\"error\": \"x\"}", NULL) == PENSTOCK_E_CLOSED);
  SAYS(penstock_resolver_push(resolver, "{\"error\": \"x\"}", &error), PENSTOCK_E_CLOSED,
       "the channel has closed, or has another resolver");
  penstock_channel_close(channel);
  CLOSED(penstock_channel_set_connector(channel, &functions, &error));
  CLOSED(penstock_channel_set_resolver(channel, NULL, &resolver, &error));
  penstock_resolver_release(resolver);
  penstock_resolver_release(newer);
  penstock_channel_release(channel);
}

static int32_t on_pick(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

TEST(argument_texts_of_registrations) {
  penstock_channel *channel = idle_channel();
  penstock_interceptor whole = PENSTOCK_INTERCEPTOR_INIT, given = whole;
  penstock_interceptor_id id = 0, other = 0;
#define ADD(words) WRONG(penstock_channel_add_interceptor(channel, &given, 0, &id, &error), words)
#define ADD2(words)                                                                                                    \
  SAYS(penstock_channel_add_interceptor(channel, &given, 0, &id, &error), PENSTOCK_E_UNSUPPORTED, words)
  WRONG(penstock_channel_add_interceptor(NULL, &given, 0, &id, &error), "the handle and id must not be NULL");
  WRONG(penstock_channel_add_interceptor(channel, &given, 0, NULL, &error), "the handle and id must not be NULL");
  WRONG(penstock_runtime_add_interceptor(NULL, &given, 0, &id, &error), "the handle and id must not be NULL");
  WRONG(penstock_call_options_add_interceptor(NULL, &given, 0, &id, &error), "the handle and id must not be NULL");
  WRONG(penstock_channel_add_interceptor(channel, NULL, 0, &id, &error), "interceptor must not be NULL");
  given.struct_size = 8;
  ADD("interceptor.struct_size is too small: use PENSTOCK_INTERCEPTOR_INIT");
  given.struct_size = 1025;
  ADD2("interceptor.struct_size: the table has fields that this version does not know");
  given = whole, given.level = 3;
  ADD2("interceptor.level: expected PENSTOCK_LEVEL_...");
  given = whole, given.headers_wait = 17;
  ADD("interceptor.headers_wait: expected a mask of (1 << PENSTOCK_KIND_...) or PENSTOCK_HEADERS_PASS");
  given = whole, given.per_attempt = 2;
  ADD2("interceptor.per_attempt: expected 0 or 1");
  given = whole, given.on_pick = on_pick;
  ADD("interceptor.on_pick: expected per_attempt to be 1");
  given = whole, given.per_attempt = 1, given.level = PENSTOCK_LEVEL_OBJECT;
  ADD("interceptor.per_attempt: expected 0 with PENSTOCK_LEVEL_OBJECT");
  given = whole, given.per_attempt = 1, given.replay_bytes = 1;
  ADD("interceptor.replay_bytes: expected 0 with per_attempt, because each attempt has a new hop");
  given = whole, given.kinds = 16;
  ADD("interceptor.kinds: expected a mask of (1 << PENSTOCK_KIND_...)");
  given = whole, given.methods = "/a/b,c";
  ADD("interceptor.methods: expected methods (\"/package.Service/Method\"), or their beginnings followed by one star "
      "(\"/package.Service/*\"), separated by commas, got '/a/b,c'");
  given = whole, given.kinds = 15, given.headers_wait = 15;
  OK(penstock_channel_add_interceptor(channel, &given, 0, &id, NULL));
  WRONG(penstock_registration_set_filter(id, "x", 0, &error),
        "interceptor.methods: expected methods (\"/package.Service/Method\"), or their beginnings followed by one star "
        "(\"/package.Service/*\"), separated by commas, got 'x'");
  WRONG(penstock_registration_replace(id, NULL, &other, &error), "interceptor must not be NULL");
  WRONG(penstock_registration_replace(id, &whole, NULL, &error), "new_id must not be NULL");
  OK(penstock_registration_remove(id, NULL));
#define UNKNOWN(call) SAYS(call, PENSTOCK_E_NOT_FOUND, "no interceptor is registered under this id")
  UNKNOWN(penstock_registration_remove(id, &error));
  UNKNOWN(penstock_registration_set_priority(id, 1, &error));
  UNKNOWN(penstock_registration_set_filter(id, NULL, 0, &error));
  UNKNOWN(penstock_registration_replace(id, &whole, &other, &error));
  penstock_channel_close(channel);
  CLOSED(penstock_channel_add_interceptor(channel, &whole, 0, &id, &error));
  CHECK(other == 0);
  penstock_channel_release(channel);
}

static void give_no_token(penstock_token_request request, const char *refused, void *user_data) {
  (void)request, (void)refused, (void)user_data;
}

TEST(argument_texts_of_ready_interceptors) {
  penstock_channel *channel = idle_channel();
  penstock_telemetry *telemetry = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_telemetry_new("{}", &telemetry, NULL));
  WRONG(penstock_ready_bearer_token(NULL, NULL, NULL, NULL, &table, &error), "source must not be NULL");
  WRONG(penstock_ready_bearer_token(NULL, give_no_token, NULL, NULL, NULL, &error), "table must not be NULL");
  WRONG(penstock_ready_logging(NULL, NULL, NULL, NULL, &table, &error), "write must not be NULL");
  WRONG(penstock_ready_oauth2("{}", NULL, &table, &error), "server must not be NULL");
  WRONG(penstock_ready_telemetry(NULL, &table, &error), "telemetry must not be NULL");
  WRONG(penstock_ready_telemetry(telemetry, NULL, &error), "table must not be NULL");
#define FLUSH "telemetry and channel must not be NULL, and timeout_ms is from 0 to 86400000"
  WRONG(penstock_telemetry_flush(NULL, channel, 1, NULL, &error), FLUSH);
  WRONG(penstock_telemetry_flush(telemetry, NULL, 1, NULL, &error), FLUSH);
  WRONG(penstock_telemetry_flush(telemetry, channel, -1, NULL, &error), FLUSH);
  WRONG(penstock_telemetry_flush(telemetry, channel, 86400001, NULL, &error), FLUSH);
  WRONG(penstock_ready_oauth2("{\"grant\": \"client_credentials\", \"token_path\": \"/t\", \"client_id\": \"c\"}",
                              channel, &table, &error),
        "the channel to the token server has no TLS (see \"allow_cleartext\")");
  OK(penstock_ready_oauth2("{\"grant\": \"client_credentials\", \"token_path\": \"/t\", \"client_id\": \"c\", "
                           "\"allow_cleartext\": true}",
                           channel, &table, NULL));
  table.finalizer(table.user_data);
  penstock_telemetry_release(telemetry);
  penstock_channel_release(channel);
}

/* ---- Tables that the library fills ---- */

static void resolve_next(penstock_hop *hop, void *state) {
  (void)state;
  penstock_hop_resolve(hop, PENSTOCK_NEXT);
  penstock_hop_release(hop);
}
static int32_t intercept(penstock_hop *hop, void *user_data) {
  (void)user_data;
  return penstock_hop_next(hop) == PENSTOCK_OK ? 0 : -1;
}
static void on_connection(void *user_data, const penstock_connection_event *event) { (void)user_data, (void)event; }
static void finalize(void *user_data) { (void)user_data; }

/* A byte of the field becomes 1; no field is called or read. */
#define FIELD(name)                                                                                                    \
  { #name, offsetof(penstock_interceptor, name) }
TEST(argument_texts_of_fields_that_the_library_sets) {
  static const struct {
    const char *name;
    size_t offset;
  } fields[] = {FIELD(user_data), FIELD(finalizer),     FIELD(create),     FIELD(destroy),       FIELD(on_start),
                FIELD(on_send),   FIELD(on_half_close), FIELD(on_headers), FIELD(on_receive),    FIELD(on_status),
                FIELD(on_cancel), FIELD(on_demand),     FIELD(on_sent),    FIELD(on_connection), FIELD(on_pick)};
  penstock_async_interceptor given = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  given.on_start = resolve_next;
  for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
    penstock_interceptor table, before;
    char words[128];
    /* The bytes between the fields are compared as well. */
    memset(&table, 0, sizeof(table));
    table.struct_size = sizeof(table);
    ((char *)&table)[fields[i].offset] = 1;
    memcpy(&before, &table, sizeof(table));
    snprintf(words, sizeof(words), "table.%s: expected 0, because the function that fills the table sets it",
             fields[i].name);
    WRONG(penstock_async_interceptor_table(&given, &table, &error), words);
    CHECK(memcmp(&table, &before, sizeof(table)) == 0);
  }
}

/* A field that the filler has a value for may have that value before, but no other. */
TEST(argument_texts_of_fields_with_other_values) {
  penstock_async_interceptor given = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  given.name = "a", given.methods = "/a/*", given.kinds = 1, given.level = PENSTOCK_LEVEL_OBJECT, given.hold_bytes = 2;
  given.replay_bytes = 3, given.max_restarts = 4, given.headers_wait = 5, given.on_start = resolve_next;
  penstock_interceptor first = PENSTOCK_INTERCEPTOR_INIT, table;
  OK(penstock_async_interceptor_table(&given, &first, NULL));
  CHECK_STR(first.name, "a");
  CHECK_STR(first.methods, "/a/*");
  CHECK_INT(first.kinds, 1);
  CHECK_INT(first.level, PENSTOCK_LEVEL_OBJECT);
  CHECK_INT(first.hold_bytes, 2);
  CHECK_INT(first.replay_bytes, 3);
  CHECK_INT(first.max_restarts, 4);
  CHECK_INT(first.headers_wait, 5);
  first.finalizer(first.user_data);
#define OTHER(field, value)                                                                                            \
  do {                                                                                                                 \
    penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT;                                                            \
    table = empty, table.field = value;                                                                                \
    WRONG(penstock_async_interceptor_table(&given, &table, &error),                                                    \
          "table." #field ": expected 0, because the function that fills the table sets it");                          \
    table = empty, table.field = given.field;                                                                          \
    if (OK(penstock_async_interceptor_table(&given, &table, NULL))) table.finalizer(table.user_data);                  \
  } while (0)
  OTHER(name, "b");
  OTHER(methods, "/b/*");
  OTHER(kinds, 2);
  OTHER(level, PENSTOCK_LEVEL_BOTH);
  OTHER(hold_bytes, 3);
  OTHER(replay_bytes, 4);
  OTHER(max_restarts, 5);
  OTHER(headers_wait, 6);
  given.level = PENSTOCK_LEVEL_BYTES, given.replay_bytes = 0, given.per_attempt = 1;
  OTHER(per_attempt, 2);
}

/* A table that the library has filled may be changed before it is registered, but not in each way. */
TEST(argument_texts_of_filled_tables) {
  penstock_channel *channel = idle_channel();
  penstock_executor *executor = NULL;
  penstock_interceptor_id id = 0;
  OK(penstock_executor_new_serial(&executor));
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  sync.intercept = intercept;
  penstock_async_interceptor async = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  async.on_start = resolve_next;
#define TOLD                                                                                                           \
  "interceptor.on_connection: expected NULL in a table that the library has filled, whose user_data it would get"
  for (int i = 0; i < 3; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    if (i == 0) OK(penstock_sync_interceptor_table(&sync, &table, NULL));
    if (i == 1) OK(penstock_async_interceptor_table(&async, &table, NULL));
    if (i == 2) OK(penstock_ready_rate_limit("{\"rate\": 1}", &table, NULL));
    table.on_connection = on_connection;
    WRONG(penstock_channel_add_interceptor(channel, &table, 0, &id, &error), TOLD);
  }
  for (int i = 0; i < 2; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    OK(penstock_sync_interceptor_table(&sync, &table, NULL));
    *(i == 0 ? &table.outbound_executor : &table.inbound_executor) = executor;
    WRONG(penstock_channel_add_interceptor(channel, &table, 0, &id, &error),
          "interceptor: expected no executors, because a synchronous function has a thread of its own");
    penstock_interceptor other = PENSTOCK_INTERCEPTOR_INIT;
    OK(penstock_async_interceptor_table(&async, &other, NULL));
    *(i == 0 ? &other.outbound_executor : &other.inbound_executor) = executor;
    OK(penstock_channel_add_interceptor(channel, &other, 0, &id, NULL));
  }
  sync.intercept = NULL, sync.finalizer = finalize;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  WRONG(penstock_sync_interceptor_table(&sync, &table, &error), "interceptor.intercept must not be NULL");
  WRONG(penstock_sync_interceptor_table(NULL, &table, &error), "interceptor must not be NULL");
  WRONG(penstock_async_interceptor_table(NULL, &table, &error), "interceptor must not be NULL");
  WRONG(penstock_async_interceptor_table(&async, NULL, &error), "table must not be NULL");
  penstock_channel_release(channel);
  penstock_executor_release(executor);
}
