/* Makes unary calls over the Connect protocol: by POST, and by GET because the method has no side effects. Messages
 * are JSON here, so that curl can call the same method:
 *
 *     connect [TARGET]
 *     curl -H 'content-type: application/json' -d '{"name": "curl"}' http://TARGET/helloworld.Greeter/SayHello
 *     curl 'http://TARGET/helloworld.Greeter/SayHello?connect=v1&encoding=json&message=%7B%22name%22:%22curl%22%7D'
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

#define METHOD "/helloworld.Greeter/SayHello"

/* Prints the protocol and the HTTP method by which a call was sent to the server. */
static int32_t on_headers(penstock_hop *hop, void *state) {
  (void)state;
  printf("%s over %s: ", penstock_request_http_method(penstock_hop_request(hop)), penstock_hop_protocol(hop));
  return PENSTOCK_NEXT;
}

static int call(penstock_channel *channel, const char *request, const char *options) {
  penstock_error *error = NULL;
  penstock_call_options *made = NULL;
  penstock_reply *reply = NULL;
  int ok = 0;
  if (penstock_call_options_new(options, &made, &error) == PENSTOCK_OK &&
      penstock_channel_unary(channel, METHOD, request, strlen(request), made, &reply, &error) == PENSTOCK_OK) {
    size_t length;
    const char *message = penstock_reply_bytes(reply, &length);
    ok = penstock_reply_code(reply) == PENSTOCK_STATUS_OK;
    printf("%.*s\n", ok ? (int)length : 0, ok ? message : "");
    if (!ok) fprintf(stderr, "%s\n", penstock_reply_status_json(reply));
  } else {
    fprintf(stderr, "%s\n", penstock_error_message(error));
  }
  penstock_error_release(error);
  penstock_reply_release(reply);
  penstock_call_options_release(made);
  return ok;
}

int main(int argc, char **argv) {
  char url[256];
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_interceptor_id id;
  penstock_interceptor says = PENSTOCK_INTERCEPTOR_INIT;
  says.name = "says";
  says.on_headers = on_headers;
  /* "http://" means cleartext. With Connect, a cleartext channel uses HTTP/1.1. A path prefix may follow the port. */
  snprintf(url, sizeof(url), "http://%s", argc > 1 ? argv[1] : "localhost:50051");
  if (penstock_channel_new(url,
                           "{\"protocol\": \"connect\", \"content_subtype\": \"json\", \"default_deadline_ms\": 5000}",
                           &channel, &error) != PENSTOCK_OK ||
      penstock_channel_add_interceptor(channel, &says, 0, &id, &error) != PENSTOCK_OK) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  int ok = call(channel, "{\"name\": \"you\"}", NULL);
  ok = call(channel, "{\"name\": \"you again\"}", "{\"idempotency\": \"no_side_effects\"}") && ok;
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
