/* Makes the same unary calls with or without interceptors: what callgrind counts. `cost ADDRESS CALLS MODE`, where MODE
 * is "none", "filtered" (one that wants another method) or "null" (one without callbacks). Checks every reply. */
#include <penstock/penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, penstock_error *error) {
  fprintf(stderr, "%s: %s\n", what, penstock_error_message(error));
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const long calls = atol(argv[2]);
  penstock_channel *channel;
  penstock_error *error = NULL;
  if (penstock_channel_new(argv[1], "{\"tls\": false}", &channel, &error)) return fail("channel", error);
  if (strcmp(argv[3], "none") != 0) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.name = argv[3];
    if (strcmp(argv[3], "filtered") == 0) table.methods = "/other.Service/*";
    if (penstock_channel_add_interceptor(channel, &table, 0, &id, &error)) return fail("interceptor", error);
  }
  for (long i = 0; i < calls; i++) {
    penstock_reply *reply;
    if (penstock_channel_unary(channel, "/penstock.Echo/Unary", "hello", 5, NULL, &reply, &error))
      return fail("unary", error);
    size_t length;
    const void *message = penstock_reply_message(reply, &length);
    if (penstock_reply_code(reply) != PENSTOCK_STATUS_OK || length != 5 || memcmp(message, "hello", 5) != 0) {
      fprintf(stderr, "%s\n", penstock_reply_status_json(reply));
      return 1;
    }
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
  return 0;
}
