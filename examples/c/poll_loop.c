/* A program with an event loop of its own drives the runtime: the library has no thread, and all callbacks run on the
 * program's only thread.
 *
 *     poll_loop [TARGET]
 */
#include <penstock/penstock.h>
#include <poll.h>
#include <stdio.h>

typedef struct {
  int messages, done;
} progress;

/* Callback style: no function waits. The callbacks run within penstock_runtime_poll. */
static void on_message(penstock_call *call, penstock_message *message, void *user_data) {
  size_t length;
  const char *text = penstock_message_bytes(message, &length);
  printf("message: %.*s\n", (int)length, text);
  ((progress *)user_data)->messages++;
  penstock_call_demand(call, 1); /* asks for the next message */
}

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  puts(penstock_reply_status_json(reply));
  ((progress *)user_data)->done = 1;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_runtime *runtime;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_call *call;
  progress state = {0, 0};
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = &state;
  callbacks.on_message = on_message;
  callbacks.on_reply = on_reply;

  if (penstock_runtime_new("{\"mode\": \"host\"}", &runtime, &error) ||
      penstock_channel_new_on(runtime, argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_call_options_new("{\"deadline_ms\": 5000, \"metadata\": {\"x-count\": \"3\"}}", &options, &error) ||
      penstock_channel_call(channel, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, options, &callbacks,
                            &call, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  penstock_call_options_release(options);
  penstock_call_try_send(call, "tick", 4);
  penstock_call_half_close(call);
  penstock_call_demand(call, 1);
  penstock_call_release(call); /* a call in callback style goes on without a handle */

  /* The program's loop: the descriptor is readable whenever the runtime has work, timers included. */
  struct pollfd watched = {.events = POLLIN};
  penstock_runtime_fd(runtime, &watched.fd);
  while (!state.done) {
    if (poll(&watched, 1, /* the program's own timers */ 1000) > 0) penstock_runtime_poll(runtime, 0);
  }
  penstock_channel_release(channel);
  penstock_runtime_shutdown(runtime, -1);
  penstock_runtime_release(runtime);
  return state.messages == 3 ? 0 : 1;
}
