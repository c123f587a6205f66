/* An interceptor that rejects every call without a role. A rejected call never reaches the network.
 *
 *     reject [TARGET]
 */
#include <penstock/penstock.h>
#include <stdio.h>

static int32_t check_role(penstock_hop *hop, void *state) {
  const void *role;
  (void)state;
  if (penstock_metadata_get(penstock_hop_metadata(hop), "x-role", 0, &role, NULL) == PENSTOCK_OK) return PENSTOCK_NEXT;
  penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no x-role");
  return PENSTOCK_NEXT; /* ignored: the call has ended here */
}

static int32_t call(penstock_channel *channel, const char *json) {
  penstock_error *error = NULL;
  penstock_call_options *options;
  penstock_reply *reply;
  if (penstock_call_options_new(json, &options, &error) ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, options, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    penstock_error_release(error);
    return -1;
  }
  int32_t code = penstock_reply_code(reply);
  puts(penstock_reply_status_json(reply));
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  return code;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_interceptor_id id;
  penstock_interceptor guard = PENSTOCK_INTERCEPTOR_INIT;
  guard.name = "guard";
  guard.on_start = check_role;

  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &guard, 100, &id, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  int ok = call(channel, "{\"deadline_ms\": 5000}") == PENSTOCK_STATUS_PERMISSION_DENIED &&
           call(channel, "{\"deadline_ms\": 5000, \"metadata\": {\"x-role\": \"admin\"}}") == PENSTOCK_STATUS_OK;
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
