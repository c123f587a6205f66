/* The smallest program: one unary call to helloworld.Greeter.
 *
 *     hello [TARGET] [NAME]
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

/* HelloRequest { string name = 1; } as protobuf encodes it: a key, a length, the bytes. A program with more than one
 * message type uses a protobuf library. */
static size_t encode(unsigned char request[130], const char *name) {
  size_t length = strlen(name) < 127 ? strlen(name) : 127;
  request[0] = 1 << 3 | 2;
  request[1] = (unsigned char)length;
  memcpy(request + 2, name, length);
  return length + 2;
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "localhost:50051";
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_reply *reply;
  unsigned char request[130];
  size_t length = encode(request, argc > 2 ? argv[2] : "you");

  if (penstock_channel_new(target, "{\"tls\": false, \"default_deadline_ms\": 5000}", &channel, &error) !=
      PENSTOCK_OK) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    penstock_error_release(error);
    return 1;
  }
  if (penstock_channel_unary(channel, "/helloworld.Greeter/SayHello", request, length, NULL, &reply, &error) !=
      PENSTOCK_OK) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    penstock_error_release(error);
    penstock_channel_release(channel);
    return 1;
  }

  /* The call ran. Its status tells how it ended. */
  int ok = penstock_reply_code(reply) == PENSTOCK_STATUS_OK;
  const unsigned char *message = penstock_reply_bytes(reply, &length);
  if (ok && length >= 2)
    printf("%.*s\n", (int)(length - 2), (const char *)message + 2); /* HelloReply { string message = 1; } */
  else
    fprintf(stderr, "%s\n", penstock_reply_status_json(reply));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
