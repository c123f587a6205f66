/* Tables that callers hand in, in the sizes that they have in earlier and later versions of the headers: nothing behind
 * struct_size is read. */
#include "tables.h"

static const size_t callbacks_sizes[] = {offsetof(penstock_call_callbacks, on_readable),
                                         sizeof(penstock_call_callbacks), sizeof(penstock_call_callbacks) + LATER};
static const size_t codec_sizes[] = {offsetof(penstock_codec_functions, name), sizeof(penstock_codec_functions),
                                     sizeof(penstock_codec_functions) + LATER};
static const size_t compressor_sizes[] = {sizeof(penstock_compressor_functions),
                                          sizeof(penstock_compressor_functions) + LATER};
static const size_t resolver_sizes[] = {sizeof(penstock_resolver_functions),
                                        sizeof(penstock_resolver_functions) + LATER};
static const size_t connector_sizes[] = {sizeof(penstock_connector_functions),
                                         sizeof(penstock_connector_functions) + LATER};

TEST(tables_interceptor_of_each_version) {
  penstock_channel *channel = open_channel();
  size_t size;
  EACH(size, interceptor_sizes) {
    probe probe;
    memory memory;
    penstock_interceptor_id id = 0;
    probe_init(&probe, "versions");
    penstock_interceptor table = probe_table(&probe);
    PLACE(&memory, size, table);
    if (!OK(penstock_channel_add_interceptor(channel, &memory.as.interceptor, 0, &id, NULL))) continue;
    check_echo(channel);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]), 1);
    OK(penstock_registration_replace(id, &memory.as.interceptor, &id, NULL));
    probe_wait_finalized(&probe);
    atomic_store(&probe.finalized, 0);
    check_echo(channel);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]), 2);
    OK(penstock_registration_remove(id, NULL));
    EVENTUALLY(atomic_load(&probe.finalized) == 1);
    check_intact(&memory);
  }
  penstock_channel_release(channel);
}

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  (void)reply;
  latch_signal(user_data);
}

TEST(tables_callbacks_of_each_version) {
  penstock_channel *channel = open_channel();
  size_t size;
  EACH(size, callbacks_sizes) {
    latch ended = LATCH_INIT;
    memory memory;
    penstock_call *call = NULL;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = &ended;
    table.on_reply = on_reply;
    PLACE(&memory, size, table);
    if (!OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &memory.as.callbacks, &call, NULL)))
      continue;
    OK(penstock_call_half_close(call));
    latch_wait(&ended, 1);
    check_intact(&memory);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

static int32_t encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)user_data;
  (void)method;
  return penstock_buffer_append(bytes, object, strlen(object));
}

static int32_t decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data;
  (void)method;
  char *text = calloc(1, length + 1);
  memcpy(text, data, length);
  *object = text;
  return 0;
}

static void free_text(void *user_data, void *object) {
  (void)user_data;
  free(object);
}

TEST(tables_codec_of_each_version) {
  penstock_channel *channel = open_channel();
  size_t size;
  EACH(size, codec_sizes) {
    memory memory;
    atomic_int finalized = 0;
    penstock_codec *codec = NULL;
    penstock_message *request = NULL;
    penstock_reply *reply = NULL;
    penstock_codec_functions table = PENSTOCK_CODEC_FUNCTIONS_INIT;
    table.user_data = &finalized;
    table.finalizer = count_up;
    table.encode = encode;
    table.decode = decode;
    table.free = free_text;
    PLACE(&memory, size, table);
    if (!OK(penstock_codec_new(&memory.as.codec, &codec, NULL))) continue;
    OK(penstock_channel_set_codec(channel, codec));
    OK(penstock_message_new_object(codec, strdup("text"), 0, &request));
    if (OK(penstock_channel_unary_message(channel, UNARY, request, NULL, &reply, NULL))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    }
    penstock_reply_release(reply);
    penstock_message_release(request);
    penstock_codec_release(codec);
    OK(penstock_channel_set_codec(channel, NULL));
    EVENTUALLY(atomic_load(&finalized) == 1);
    check_intact(&memory);
  }
  penstock_channel_release(channel);
}

static int32_t copy_message(void *user_data, const void *data, size_t length, penstock_compression *message) {
  (void)user_data;
  return penstock_compression_append(message, data, length);
}

TEST(tables_compressor_of_each_version) {
  size_t size;
  EACH(size, compressor_sizes) {
    memory memory;
    atomic_int finalized = 0;
    penstock_compressor *compressor = NULL;
    penstock_compressor_functions table = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
    table.user_data = &finalized;
    table.finalizer = count_up;
    table.name = "x-copy";
    table.compress = table.decompress = copy_message;
    PLACE(&memory, size, table);
    penstock_channel *channel = open_channel();
    if (OK(penstock_compressor_new(&memory.as.compressor, &compressor, NULL))) {
      OK(penstock_channel_add_compressor(channel, compressor));
    }
    penstock_compressor_release(compressor);
    check_echo(channel);
    penstock_channel_release(channel);
    EVENTUALLY(atomic_load(&finalized) == 1);
    check_intact(&memory);
  }
}

TEST(tables_resolver_of_each_version) {
  penstock_channel *channel = open_channel();
  size_t size;
  EACH(size, resolver_sizes) {
    memory memory;
    atomic_int asked = 0, finalized = 0;
    penstock_resolver *resolver = NULL, *none = NULL;
    penstock_resolver_functions table = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
    table.user_data = &finalized;
    table.finalizer = count_up;
    PLACE(&memory, size, table);
    if (!OK(penstock_channel_set_resolver(channel, &memory.as.resolver, &resolver, NULL))) continue;
    OK(penstock_channel_set_resolver(channel, NULL, &none, NULL));
    EVENTUALLY(atomic_load(&finalized) == 1);
    CHECK_INT(asked, 0);
    check_intact(&memory);
    penstock_resolver_release(resolver);
    penstock_resolver_release(none);
  }
  penstock_channel_release(channel);
}

static void decline(penstock_connecting *connecting, void *user_data) {
  (void)user_data;
  OK(penstock_connecting_decline(connecting));
}

TEST(tables_connector_of_each_version) {
  size_t size;
  EACH(size, connector_sizes) {
    memory memory;
    atomic_int finalized = 0;
    penstock_connector_functions table = PENSTOCK_CONNECTOR_FUNCTIONS_INIT;
    table.user_data = &finalized;
    table.finalizer = count_up;
    table.connect = decline;
    PLACE(&memory, size, table);
    penstock_channel *channel = open_channel();
    OK(penstock_channel_set_connector(channel, &memory.as.connector, NULL));
    check_echo(channel);
    penstock_channel_release(channel);
    EVENTUALLY(atomic_load(&finalized) == 1);
    check_intact(&memory);
  }
}
