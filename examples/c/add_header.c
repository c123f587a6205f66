/* Two interceptors: one adds a header to every call of one service, the other reads a trailer of every response.
 *
 *     add_header [TARGET]
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

static int32_t add_token(penstock_hop *hop, void *token) {
  penstock_metadata_set(penstock_hop_metadata(hop), "authorization", token);
  return PENSTOCK_NEXT;
}

/* In on_status the metadata is the trailers. If a request has "x-echo-metadata", the peer (docs/peer.md) returns each
 * request header as a trailer "seen-NAME". */
static int32_t print_seen(penstock_hop *hop, void *times) {
  const void *value;
  if (penstock_metadata_get(penstock_hop_metadata(hop), "seen-authorization", 0, &value, NULL) == PENSTOCK_OK) {
    printf("the server saw: authorization: %s\n", (const char *)value);
    ++*(int *)times;
  }
  return PENSTOCK_NEXT;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_reply *reply;
  penstock_interceptor_id id;
  int times = 0;

  penstock_interceptor auth = PENSTOCK_INTERCEPTOR_INIT;
  auth.name = "auth";
  auth.methods = "/penstock.Echo/*";
  auth.user_data = "Bearer s3cret"; /* the state that callbacks get, as there is no `create` */
  auth.on_start = add_token;

  penstock_interceptor print = PENSTOCK_INTERCEPTOR_INIT;
  print.name = "print";
  print.user_data = &times;
  print.on_status = print_seen;

  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &auth, /* priority */ 100, &id, &error) ||
      penstock_channel_add_interceptor(channel, &print, 50, &id, &error) ||
      penstock_call_options_new("{\"deadline_ms\": 5000, \"metadata\": {\"x-echo-metadata\": \"1\"}}", &options,
                                &error) ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, options, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  puts(penstock_reply_status_json(reply));
  int ok = penstock_reply_code(reply) == PENSTOCK_STATUS_OK && times == 1;
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
