/* Two synchronous interceptors. Each is one function that sees the whole call, and may wait. `log` is above `auth`,
 * which fetches a token by a call of its own. Both run on one worker thread.
 *
 *     sync [TARGET]
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

static const char echo[] = "/penstock.Echo/Unary";

static int32_t log_call(penstock_hop *hop, void *user_data) {
  (void)user_data;
  /* Lets the call go on, and waits for its response. During the wait, this thread runs `auth`. */
  if (penstock_hop_next(hop) == PENSTOCK_OK) {
    penstock_status *status = penstock_hop_status(hop);
    const char *method = penstock_request_method(penstock_hop_request(hop));
    printf("%s: %s\n", method, penstock_status_code_name(penstock_status_code(status)));
  } /* else a cancel or the deadline has ended the call during the wait */
  return PENSTOCK_NEXT;
}

static int32_t add_token(penstock_hop *hop, void *user_data) {
  (void)user_data;
  penstock_call *side;
  penstock_message *token;
  char header[64];
  /* A side call's chain begins below this interceptor, so the side call does not meet it. This function may wait for
   * the side call. */
  if (penstock_hop_start_side_call(hop, echo, PENSTOCK_KIND_UNARY, 0, NULL, NULL, &side, NULL)) {
    penstock_hop_end(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "no token");
    return PENSTOCK_NEXT;
  }
  penstock_call_send(side, "fetched", 7);
  if (penstock_call_receive(side, &token) != PENSTOCK_OK) {
    penstock_hop_end(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "no token");
  } else {
    size_t length;
    const char *text = penstock_message_bytes(token, &length);
    snprintf(header, sizeof(header), "Bearer %.*s", (int)length, text);
    penstock_message_release(token);
    penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "authorization", header);
    penstock_hop_next(hop);
  }
  penstock_call_release(side);
  return PENSTOCK_NEXT;
}

static penstock_result add(penstock_channel *channel, const char *name, int32_t priority, penstock_intercept function,
                           penstock_error **error) {
  penstock_interceptor_id id;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  sync.name = name;
  sync.intercept = function;
  penstock_result result = penstock_sync_interceptor_table(&sync, &table, error);
  return result ? result : penstock_channel_add_interceptor(channel, &table, priority, &id, error);
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_reply *reply;
  const void *seen = "";

  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      add(channel, "log", 200, log_call, &error) || add(channel, "auth", 100, add_token, &error) ||
      penstock_call_options_new("{\"deadline_ms\": 5000, \"metadata\": {\"x-echo-metadata\": \"1\"}}", &options,
                                &error) ||
      penstock_channel_unary(channel, echo, "hi", 2, options, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  penstock_metadata_get(penstock_reply_trailers(reply), "seen-authorization", 0, &seen, NULL);
  printf("%s; the server saw: authorization: %s\n", penstock_status_code_name(penstock_reply_code(reply)),
         (const char *)seen);
  int ok = strcmp(seen, "Bearer fetched") == 0;
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
