/* An interceptor that answers calls itself: a stub for tests. Nothing is sent; no server has to run.
 *
 *     stub
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

/* The verdict TAKE makes this hop answer the call in place of a server. It gets the caller's messages and half-close;
 * NEXT accepts them, and they go no further. */
static int32_t take(penstock_hop *hop, void *state) {
  (void)hop;
  (void)state;
  return PENSTOCK_TAKE;
}

/* At the half-close the request is complete: delivers the answer. A message may be delivered because a unary caller has
 * asked for one. */
static int32_t answer(penstock_hop *hop, void *state) {
  const char *text = state;
  penstock_metadata *headers;
  penstock_status *status;
  if (penstock_metadata_new(&headers) || penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status)) return PENSTOCK_NEXT;
  penstock_metadata_set(headers, "x-stub", "yes");
  penstock_hop_deliver_headers(hop, headers);
  penstock_hop_deliver(hop, text, strlen(text));
  penstock_hop_deliver_status(hop, status);
  penstock_metadata_release(headers);
  penstock_status_release(status);
  return PENSTOCK_NEXT;
}

int main(void) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_reply *reply;
  penstock_interceptor_id id;
  penstock_interceptor stub = PENSTOCK_INTERCEPTOR_INIT;
  stub.name = "stub";
  stub.methods = "/penstock.Echo/*";
  stub.user_data = "canned";
  stub.on_start = take;
  stub.on_half_close = answer;

  /* The low priority puts the stub below the channel's other interceptors, which work as with a server. */
  if (penstock_channel_new("unix:/nobody/listens/here", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &stub, -1000, &id, &error) ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, NULL, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  size_t length;
  const char *text = penstock_reply_bytes(reply, &length);
  printf("%.*s %s\n", (int)length, text ? text : "", penstock_reply_status_json(reply));
  int ok = text != NULL && length == 6 && memcmp(text, "canned", 6) == 0;
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
