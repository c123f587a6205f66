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
#ifdef HAS_on_headers
COUNTED(on_headers)
#endif
#ifdef HAS_on_receive
COUNTED(on_receive)
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

int main(int argc, char **argv) {
  penstock_channel *channel;
  penstock_interceptor_id id;
  if (argc < 2 || penstock_channel_new(argv[1], "{\"tls\": false}", &channel, NULL)) return 1;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = STATE;
  table.name = "fragment";
#ifdef HAS_on_start
  table.on_start = counted_on_start;
#endif
#ifdef HAS_on_send
  table.on_send = counted_on_send;
#endif
#ifdef HAS_on_headers
  table.on_headers = counted_on_headers;
#endif
#ifdef HAS_on_receive
  table.on_receive = counted_on_receive;
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
#ifdef HAS_say_what_hangs
  penstock_runtime *runtime;
  if (penstock_runtime_default(&runtime, NULL)) return 1;
  say_what_hangs(runtime);
  penstock_runtime_release(runtime);
  ran++;
#endif
  penstock_reply *reply;
  if (penstock_channel_unary(channel, "/penstock.Echo/Unary", "you", 3, NULL, &reply, NULL)) return 1;
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
