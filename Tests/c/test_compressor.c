/* compressor.h: compressions that the program makes itself. The one here writes each run of equal letters as a digit and
 * the letter. The servers are scripts, which show what a message is on the wire. */
#include "calls.h"
#include "dialer.h"

#include <unistd.h>

enum { PIECE = 64 << 10 };

typedef struct rle {
  atomic_int compressed, decompressed, finalized;
  atomic_size_t appended; /* by the last decompress */
  enum { WORKS, FAILS_SILENTLY, FAILS_WITH_WORDS, FAILS_LATE, WAITS, ENDS_ALL, GIVES_NOTHING } compresses, decompresses;
  penstock_channel *channel;
  penstock_compressor *next; /* takes the place of this one while it runs */
} rle;

/* Fails as `how` says; true: it works. */
static bool works(rle *self, int how, penstock_compression *message) {
  penstock_reply *reply = NULL;
  switch (how) {
  case FAILS_WITH_WORDS:
    OK(penstock_compression_fail(message, "not these words"));
    CHECK_RESULT(penstock_compression_fail(message, "\xff"), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_compression_fail(message, NULL), PENSTOCK_E_INVALID_ARGUMENT);
    OK(penstock_compression_fail(message, "no\ndictionary"));
    return false;
  case FAILS_LATE:
    OK(penstock_compression_append(message, "x", 1));
    OK(penstock_compression_fail(message, "it is \"late\""));
    return true;
  case WAITS:
    CHECK_RESULT(penstock_channel_unary(self->channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_WOULD_DEADLOCK);
    return true;
  case ENDS_ALL:
    OK(penstock_channel_add_compressor(self->channel, self->next));
    OK(penstock_channel_close(self->channel));
    CHECK_INT(atomic_load(&self->finalized), 0);
    return true;
  default:
    return how == WORKS;
  }
}

static int32_t compress_runs(void *user_data, const void *data, size_t length, penstock_compression *message) {
  rle *self = user_data;
  const char *text = data;
  atomic_fetch_add(&self->compressed, 1);
  CHECK(length > 0);
  CHECK_INT(penstock_compression_room(message), UINT32_MAX);
  if (self->compresses == GIVES_NOTHING) return 0;
  if (!works(self, (int)self->compresses, message)) return 7;
  for (size_t i = 0, run; i < length; i += run) {
    for (run = 1; run < 9 && i + run < length && text[i + run] == text[i]; run++) continue;
    char pair[] = {(char)('0' + run), text[i]};
    OK(penstock_compression_append(message, pair, 2));
  }
  return 0;
}

/* 'M' in place of the digit stands for 16 MiB. */
static int32_t decompress_runs(void *user_data, const void *data, size_t length, penstock_compression *message) {
  rle *self = user_data;
  const char *text = data;
  static char run[PIECE];
  atomic_fetch_add(&self->decompressed, 1);
  atomic_store(&self->appended, 0);
  CHECK_RESULT(penstock_compression_append(message, NULL, 1), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_compression_append(message, NULL, 0));
  if (!works(self, (int)self->decompresses, message)) return -1;
  if (length % 2 != 0) return 1;
  for (size_t i = 0; i < length; i += 2) {
    memset(run, text[i + 1], PIECE);
    size_t left = text[i] == 'M' ? 16 << 20 : (size_t)(text[i] - '0');
    for (size_t count; left > 0; left -= count) {
      count = left < PIECE ? left : PIECE;
      size_t room = penstock_compression_room(message);
      penstock_result result = penstock_compression_append(message, run, count);
      if (result == PENSTOCK_E_TOO_LARGE) {
        CHECK(room < count);
        CHECK_INT(penstock_compression_room(message), 0);
        CHECK_RESULT(penstock_compression_append(message, "x", 1), PENSTOCK_E_TOO_LARGE);
        return 0;
      }
      OK(result);
      CHECK_INT(penstock_compression_room(message), room - count);
      atomic_fetch_add(&self->appended, count);
    }
  }
  return 0;
}

static void ended(void *user_data) { atomic_fetch_add(&((rle *)user_data)->finalized, 1); }

static penstock_compressor *make(rle *self, const char *name) {
  penstock_compressor_functions functions = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
  functions.user_data = self;
  functions.finalizer = ended;
  functions.name = name;
  functions.compress = compress_runs;
  functions.decompress = decompress_runs;
  penstock_compressor *made = NULL;
  OK(penstock_compressor_new(&functions, &made, NULL));
  return made;
}

/* A server that answers each call of one connection with `steps`, and a channel to it with the compressor. */
typedef struct server {
  char path[40], address[64];
  int input, lines;
  penstock_channel *channel;
} server;

static void serve(server *self, rle *state, const char *steps, const char *options) {
  strcpy(self->path, "/tmp/penstock-compressor-XXXXXX");
  int script = mkstemp(self->path);
  REQUIRE(script >= 0);
  static const char start[] = "handshake\n";
  CHECK(write(script, start, sizeof(start) - 1) == (ssize_t)sizeof(start) - 1);
  CHECK(write(script, steps, strlen(steps)) == (ssize_t)strlen(steps));
  close(script);
  char *const more[] = {"--script", self->path, NULL};
  self->lines = start_peer(self->address, sizeof(self->address), more, &self->input);
  penstock_compressor *compressor = make(state, "x-rle");
  self->channel = NULL;
  REQUIRE_OK(penstock_channel_new(self->address, options, &self->channel, NULL));
  OK(penstock_channel_add_compressor(self->channel, compressor));
  penstock_compressor_release(compressor);
  state->channel = self->channel;
}

static void finish(server *self, rle *state) {
  penstock_channel_release(self->channel);
  EVENTUALLY(atomic_load(&state->finalized) == 1);
  close(self->input);
  close(self->lines);
  unlink(self->path);
}

#define RLE          "{\"tls\": false, \"compression\": \"x-rle\"}"
#define ANSWER(data) "expect headers\nanswer\n  grpc-encoding: X-RLE\ndata " data "\ntrailers\n  grpc-status: 0\n"

/* Makes a unary call, and checks its code, and the words of its status or the bytes of its answer. */
static void check_unary(int line, penstock_channel *channel, const char *request, int32_t code, const char *expected) {
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_unary(channel, UNARY, request, strlen(request), NULL, &reply, NULL))) return;
  check_int(__FILE__, line, "status code", penstock_reply_code(reply), code);
  size_t length = 0;
  const char *bytes = penstock_reply_bytes(reply, &length);
  const char *found = code == 0 ? bytes : penstock_status_message(penstock_reply_status(reply), &length);
  if (!found || length != strlen(expected) || memcmp(found, expected, length) != 0) {
    test_failed(__FILE__, line, "\"%.*s\", not \"%s\"", (int)length, found ? found : "", expected);
  }
  penstock_reply_release(reply);
}
#define CHECK_UNARY(channel, request, code, expected) check_unary(__LINE__, (channel), (request), (code), (expected))

TEST(compressor_of_a_unary_call) {
  rle state = {0};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
  CHECK_UNARY(server.channel, "xxxxyyyy", 0, "aaabb");
  CHECK_INT(atomic_load(&state.compressed), 1);
  CHECK_INT(atomic_load(&state.decompressed), 1);
  finish(&server, &state);
}

/* Messages without the flag are not the compressor's, and neither is an empty one. */
TEST(compressor_of_a_stream) {
  rle state = {0};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\" prefix=0:2 text=\"3a\" prefix=1:0 prefix=1:4 text=\"1c9d\""),
        RLE);
  penstock_call *call = start_with(server.channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, "{}");
  penstock_message *plain = NULL;
  OK(penstock_message_new("aaaaaaaa", 8, PENSTOCK_MESSAGE_NO_COMPRESS, &plain));
  OK(penstock_call_send(call, "aaaaaaaa", 8));
  OK(penstock_call_send_message(call, plain));
  OK(penstock_call_send(call, "aaaaaaaa", 8));
  penstock_message_release(plain);
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "aaabb");
  CHECK_MESSAGE(call, "3a");
  CHECK_MESSAGE(call, "");
  CHECK_MESSAGE(call, "cddddddddd");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  CHECK_INT(atomic_load(&state.compressed), 2);
  CHECK_INT(atomic_load(&state.decompressed), 2);
  finish(&server, &state);
}

TEST(compressor_stops_a_bomb_at_the_limit) {
  rle state = {0};
  server server;
  serve(&server, &state, ANSWER("prefix=1:20 text=\"MaMaMaMaMaMaMaMaMaMa\""), RLE);
  CHECK_UNARY(server.channel, "x", PENSTOCK_STATUS_RESOURCE_EXHAUSTED,
              "a received message, decompressed, is over the limit of 4194304 bytes (max_receive_message_bytes)");
  CHECK_INT(atomic_load(&state.appended), 4 << 20);
  finish(&server, &state);
}

TEST(compressor_may_reach_the_limit) {
  rle state = {0};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), "{\"tls\": false, \"max_receive_message_bytes\": 5}");
  CHECK_UNARY(server.channel, "x", 0, "aaabb");
  finish(&server, &state);
  rle other = {0};
  serve(&server, &other, ANSWER("prefix=1:4 text=\"3a3b\""), "{\"tls\": false, \"max_receive_message_bytes\": 5}");
  CHECK_UNARY(server.channel, "x", PENSTOCK_STATUS_RESOURCE_EXHAUSTED,
              "a received message, decompressed, is over the limit of 5 bytes (max_receive_message_bytes)");
  finish(&server, &other);
}

TEST(compressor_fails) {
  static const char *const words[] = {
      [FAILS_SILENTLY] = "", [FAILS_WITH_WORDS] = ": no.dictionary", [FAILS_LATE] = ": it is \"late\""};
  for (int how = FAILS_SILENTLY; how <= FAILS_LATE; how++) {
    for (int sends = 0; sends < 2; sends++) {
      rle state = {0};
      server server;
      char expected[160];
      *(sends ? &state.compresses : &state.decompresses) = how;
      serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
      snprintf(expected, sizeof(expected), "the program's compressor \"x-rle\" could not %s%s",
               sends ? "compress a message" : "decompress a received message", words[how]);
      CHECK_UNARY(server.channel, "aaaaaaaa", PENSTOCK_STATUS_INTERNAL, expected);
      CHECK_INT(atomic_load(&state.decompressed), 1 - sends);
      finish(&server, &state);
    }
  }
}

/* A message would be lost if the server got no bytes for it. */
TEST(compressor_that_gives_no_bytes) {
  rle state = {.compresses = GIVES_NOTHING};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
  CHECK_UNARY(server.channel, "aaaaaaaa", PENSTOCK_STATUS_INTERNAL,
              "the program's compressor \"x-rle\" could not compress a message: it gave no bytes");
  finish(&server, &state);
}

/* A call that waits for a connection tells the server of the compressors that the channel has by then. */
TEST(compressor_added_while_a_call_waits) {
  rle state = {0}, late = {0};
  server server;
  serve(&server, &state,
        "expect headers\nanswer\n  grpc-encoding: x-late\ndata prefix=1:4 text=\"3a2b\"\n"
        "trailers\n  grpc-status: 0\n",
        "{\"tls\": false}");
  dialer self = DIALER(keep);
  set_connector(server.channel, &self);
  penstock_call *call = start_with(server.channel, UNARY, PENSTOCK_KIND_UNARY, "{}");
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&self.asked, 1);
  penstock_compressor *compressor = make(&late, "x-late");
  OK(penstock_channel_add_compressor(server.channel, compressor));
  penstock_compressor_release(compressor);
  OK(penstock_connecting_decline(self.kept));
  penstock_connecting_release(self.kept);
  CHECK_MESSAGE(call, "aaabb");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  finish(&server, &state);
  latch_wait(&self.finalized, 1);
  EVENTUALLY(atomic_load(&late.finalized) == 1);
}

TEST(compressor_cannot_wait) {
  rle state = {.compresses = WAITS, .decompresses = WAITS};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
  CHECK_UNARY(server.channel, "aaaaaaaa", 0, "aaabb");
  finish(&server, &state);
}

/* Within its functions it is replaced, and its channel is closed: that has its effect when they have returned. */
TEST(compressor_ends_its_channel) {
  for (int sends = 0; sends < 2; sends++) {
    rle state = {0}, next = {0};
    server server;
    if (sends) state.compresses = ENDS_ALL;
    if (!sends) state.decompresses = ENDS_ALL;
    state.next = make(&next, "x-rle");
    serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
    int32_t code = unary_code(server.channel, "aaaaaaaa");
    CHECK(code == PENSTOCK_STATUS_CANCELLED || (code == PENSTOCK_STATUS_OK && !sends));
    CHECK_INT(atomic_load(&next.compressed) + atomic_load(&next.decompressed), 0);
    finish(&server, &state);
    penstock_compressor_release(state.next);
    EVENTUALLY(atomic_load(&next.finalized) == 1);
  }
}

static int32_t choose(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_request_compression(request), "gzip");
  CHECK_RESULT(penstock_request_set_compression(request, "x-none"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_compression(request, "x-rle"));
  CHECK_STR(penstock_request_compression(request), "x-rle");
  return PENSTOCK_NEXT;
}

TEST(compressor_chosen_by_a_hop) {
  rle state = {0};
  server server;
  serve(&server, &state, ANSWER("prefix=1:4 text=\"3a2b\""), "{\"tls\": false, \"compression\": \"gzip\"}");
  probe probe;
  probe_init_with(&probe, "choose", choose, NULL);
  probe_add(&probe, server.channel, 0);
  CHECK_UNARY(server.channel, "aaaaaaaa", 0, "aaabb");
  CHECK_INT(atomic_load(&state.compressed), 1);
  finish(&server, &state);
  probe_wait_finalized(&probe);
}

TEST(compressor_takes_the_place_of_another) {
  rle first = {0}, second = {0}, third = {0};
  server server;
  serve(&server, &first, ANSWER("prefix=1:4 text=\"3a2b\""), RLE);
  penstock_compressor *same = make(&second, "x-rle"), *other = make(&third, "x-other");
  OK(penstock_channel_add_compressor(server.channel, same));
  OK(penstock_channel_add_compressor(server.channel, other));
  CHECK(penstock_compressor_retain(other) == other);
  penstock_compressor_release(other);
  penstock_compressor_release(other);
  penstock_compressor_release(same);
  CHECK_UNARY(server.channel, "aaaaaaaa", 0, "aaabb");
  EVENTUALLY(atomic_load(&first.finalized) == 1);
  CHECK_INT(atomic_load(&first.compressed), 0);
  CHECK_INT(atomic_load(&second.compressed), 1);
  CHECK_INT(atomic_load(&second.decompressed), 1);
  CHECK_INT(atomic_load(&second.finalized) + atomic_load(&third.finalized), 0);
  /* A closed channel needs none, and takes none. */
  OK(penstock_channel_close(server.channel));
  EVENTUALLY(atomic_load(&second.finalized) == 1 && atomic_load(&third.finalized) == 1);
  rle late = {0};
  penstock_compressor *refused = make(&late, "x-rle");
  CHECK_RESULT(penstock_channel_add_compressor(server.channel, refused), PENSTOCK_E_CLOSED);
  penstock_compressor_release(refused);
  CHECK_INT(atomic_load(&late.finalized), 1);
  finish(&server, &first);
}

TEST(compressor_that_the_channel_lacks) {
  rle state = {0};
  penstock_compressor *compressor = make(&state, "x-rle");
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(peer_address(), RLE, &channel, NULL));
  CHECK_UNARY(channel, "aaaaaaaa", PENSTOCK_STATUS_INTERNAL, "the channel has no compressor \"x-rle\"");
  penstock_channel_release(channel);
  penstock_compressor_release(compressor);
  EVENTUALLY(atomic_load(&state.finalized) == 1);
  /* From now on nobody has the name. */
  penstock_call_options *options = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new(peer_address(), RLE, &channel, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_HAS(penstock_error_json(error), "$.compression");
  penstock_error_release(error);
  CHECK_RESULT(penstock_call_options_new("{\"compression\": \"x-rle\"}", &options, NULL), PENSTOCK_E_INVALID_JSON);
  options = options_of("{}");
  CHECK_RESULT(penstock_request_set_compression(penstock_call_options_request(options), "x-rle"),
               PENSTOCK_E_INVALID_ARGUMENT);
  penstock_call_options_release(options);
}

TEST(compressor_with_a_wrong_table) {
  static const char *const names[] = {NULL, "", "gzip", "x-gzip", "identity", "deflate", "zstd", "X-RLE", "a b", "a,b"};
  int refused = 0;
  rle state = {0};
  penstock_compressor *compressor = NULL;
  for (size_t i = 0; i < sizeof(names) / sizeof(*names) + 2; i++) {
    penstock_compressor_functions functions = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
    functions.user_data = &state;
    functions.finalizer = ended;
    functions.name = i < 10 ? names[i] : "x-rle";
    functions.compress = i == 10 ? NULL : compress_runs;
    functions.decompress = i == 11 ? NULL : decompress_runs;
    CHECK_RESULT(penstock_compressor_new(&functions, &compressor, NULL), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK(compressor == NULL);
    CHECK_INT(atomic_load(&state.finalized), ++refused);
    functions.struct_size--;
    CHECK_RESULT(penstock_compressor_new(&functions, &compressor, NULL), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_INT(atomic_load(&state.finalized), refused);
  }
  struct {
    penstock_compressor_functions known;
    void *later;
  } larger = {.known = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT, .later = &state};
  larger.known.struct_size = sizeof(larger);
  larger.known.user_data = &state;
  larger.known.finalizer = ended;
  CHECK_RESULT(penstock_compressor_new(&larger.known, &compressor, NULL), PENSTOCK_E_UNSUPPORTED);
  CHECK_INT(atomic_load(&state.finalized), ++refused);
}
