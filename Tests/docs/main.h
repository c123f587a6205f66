/* Follows the fragment: registers its callbacks, makes a unary call and a stream, and reports whether the callbacks
 * ran. */
static int ran;

#define COUNTED(callback)                                                                                              \
  static int32_t counted_##callback(penstock_hop *hop, void *state) {                                                  \
    ran++;                                                                                                             \
    return callback(hop, state);                                                                                       \
  }
#ifdef HAS_on_start
COUNTED(on_start)
#endif
#ifdef HAS_on_send
COUNTED(on_send)
#endif
#ifdef HAS_on_half_close
COUNTED(on_half_close)
#endif
#ifdef HAS_on_headers
COUNTED(on_headers)
#endif
#ifdef HAS_on_receive
COUNTED(on_receive)
#endif
#ifdef HAS_on_status
#ifdef ASYNC
static void counted_on_status(penstock_hop *hop, void *state) {
  ran++;
  on_status(hop, state);
}
#else
COUNTED(on_status)
#endif
#endif
#ifdef HAS_on_demand
COUNTED(on_demand)
#endif
#ifdef HAS_on_sent
COUNTED(on_sent)
#endif
#ifdef HAS_on_pick
COUNTED(on_pick)
#endif
#ifdef HAS_intercept
COUNTED(intercept)
#endif
#ifdef HAS_destroy
static void counted_destroy(penstock_hop *hop, void *state) {
  ran++;
  destroy(hop, state);
}
#endif

#ifndef HAS_create
static int32_t make_state(penstock_hop *hop, void *user_data, void **state) {
  *state = malloc(1);
  return PENSTOCK_NEXT;
}
#endif

/* For fragments that need a failure: the server ends the first attempt of each call with FAILS. With the environment
 * variable BEGINS=headers it sends response headers before that. */
#ifdef FAILS
static int32_t fail_first(penstock_hop *hop, void *state) {
  char code[12];
  if (penstock_hop_attempt(hop) > 1) return PENSTOCK_NEXT;
  snprintf(code, sizeof(code), "%d", FAILS);
  penstock_metadata_set(penstock_hop_metadata(hop), "x-status", code);
  penstock_metadata_set(penstock_hop_metadata(hop), "x-begin", getenv("BEGINS"));
  return PENSTOCK_NEXT;
}
#endif

/* Uses the codec functions of a fragment: sends a point to the server and gets it back. */
#ifdef HAS_encode
static int use_codec(penstock_channel *channel) {
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode;
  functions.decode = decode;
  functions.free = free_point;
  penstock_codec *codec;
  if (penstock_codec_new(&functions, &codec, NULL) || penstock_channel_set_codec(channel, codec)) return 1;
  point *sent = malloc(sizeof(point));
  *sent = (point){1, 2};
  penstock_message *request;
  penstock_reply *reply;
  if (penstock_message_new_object(codec, sent, 0, &request)) return 1;
  if (penstock_channel_unary_message(channel, UNARY, request, NULL, &reply, NULL)) return 1;
  penstock_message_release(request);
  const point *back = penstock_message_object(penstock_reply_response_message(reply));
  ran += back && back->x == 1 && back->y == 2;
  penstock_reply_release(reply);
  penstock_codec_release(codec);
  return penstock_channel_set_codec(channel, NULL);
}
#endif

/* Makes a side call while a start waits, and gives its reply to the fragment's have_token. */
#ifdef HAS_have_token
static void told(penstock_call *call, penstock_reply *reply, void *user_data) {
  ran++;
  have_token(call, reply, user_data);
  penstock_hop_release(((waiting_start *)user_data)->bound);
  free(user_data);
}
static int32_t ask(penstock_hop *hop, void *state) {
  waiting_start *start = malloc(sizeof(*start));
  start->ticket = penstock_hop_ticket(hop);
  if (penstock_ticket_hop(start->ticket, &start->bound)) abort();
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = start;
  callbacks.on_reply = told;
  penstock_call *call;
  if (penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, NULL, &callbacks, &call, NULL)) abort();
  penstock_call_send(call, "s3cret", 6);
  penstock_call_half_close(call);
  penstock_call_release(call);
  return PENSTOCK_PAUSE;
}
#endif

int main(int argc, char **argv) {
  penstock_channel *channel;
  penstock_interceptor_id id;
  if (argc < 2 || penstock_channel_new(argv[1], "{\"tls\": false}", &channel, NULL)) return 1;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
#ifdef ASYNC
  penstock_async_interceptor promise = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  promise.on_status = counted_on_status;
  if (penstock_async_interceptor_table(&promise, &table, NULL)) return 1;
#else
  table.user_data = STATE;
#endif
  table.name = "fragment";
  table.replay_bytes = 65536;
#ifdef LEVEL
  table.level = LEVEL;
#endif
#ifdef HAS_on_start
  table.on_start = counted_on_start;
#endif
#ifdef HAS_have_token
  table.on_start = ask;
#endif
#ifdef HAS_on_send
  table.on_send = counted_on_send;
#endif
#ifdef HAS_on_half_close
  table.on_half_close = counted_on_half_close;
#endif
#ifdef HAS_on_headers
  table.on_headers = counted_on_headers;
#endif
#ifdef HAS_on_receive
  table.on_receive = counted_on_receive;
#endif
#if defined(HAS_on_status) && !defined(ASYNC)
  table.on_status = counted_on_status;
#endif
#ifdef HAS_on_demand
  table.on_demand = counted_on_demand;
#endif
#ifdef HAS_on_sent
  table.on_sent = counted_on_sent;
#endif
#ifdef HAS_on_pick
  table.per_attempt = 1;
  table.replay_bytes = 0;
  table.on_pick = counted_on_pick;
#endif
#ifdef HAS_create
  table.create = create;
#endif
#ifdef HAS_destroy
#ifndef HAS_create
  table.create = make_state;
#endif
  table.destroy = counted_destroy;
#endif
  if (penstock_channel_add_interceptor(channel, &table, 1, &id, NULL)) return 1;
#ifdef HAS_intercept
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor function = PENSTOCK_INTERCEPTOR_INIT;
  sync.name = "function";
  sync.intercept = counted_intercept;
  if (penstock_sync_interceptor_table(&sync, &function, NULL)) return 1;
  if (penstock_channel_add_interceptor(channel, &function, 1, &id, NULL)) return 1;
#endif
#ifdef FAILS
  penstock_interceptor server = PENSTOCK_INTERCEPTOR_INIT;
  server.name = "server";
  server.on_start = fail_first;
  if (penstock_channel_add_interceptor(channel, &server, 0, &id, NULL)) return 1;
#endif
#ifdef HAS_encode
  if (use_codec(channel)) return 1;
#endif
#ifdef HAS_say_what_hangs
  penstock_runtime *runtime;
  if (penstock_runtime_default(&runtime, NULL)) return 1;
  say_what_hangs(runtime);
  penstock_runtime_release(runtime);
  ran++;
#endif
#ifdef HAS_use
  ran++;
  if (use(channel)) return 1;
#endif
  penstock_reply *reply;
  if (penstock_channel_unary(channel, UNARY, "you", 3, NULL, &reply, NULL)) return 1;
  size_t length;
  const char *message = penstock_reply_bytes(reply, &length);
  if (penstock_reply_code(reply) != 0) puts(penstock_reply_status_json(reply));
  if (message) printf("%.*s\n", (int)length, message);
  penstock_reply_release(reply);
  penstock_call *call;
  if (penstock_channel_call(channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL)) return 1;
  penstock_call_send(call, "you", 3);
  penstock_call_half_close(call);
  penstock_message *received;
  while (penstock_call_receive(call, &received) == PENSTOCK_OK) penstock_message_release(received);
  if (penstock_call_wait(call, &reply)) return 1;
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  if (!ran) puts("no callback of the fragment ran");
  return ran ? 0 : 1;
}
