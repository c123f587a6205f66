/* Calls in turn to several servers, but only to those whose health service (grpc.health.v1) says SERVING.
 *
 *     healthy [ADDRESS[,ADDRESS...]]
 *
 * A server without a health service, such as penstock-peer, counts as serving.
 */
#include <penstock/penstock.h>
#include <stdio.h>

static const char options[] = "{\"tls\": false, \"service_config\": {"
                              "  \"loadBalancingConfig\": [{\"round_robin\": {}}],"
                              "  \"healthCheckConfig\": {\"serviceName\": \"\"}}}"; /* "": the server as a whole */

int main(int argc, char **argv) {
  char target[1024];
  snprintf(target, sizeof(target), "ipv4:%s", argc > 1 ? argv[1] : "127.0.0.1:50051,127.0.0.1:50052");
  penstock_error *error = NULL;
  penstock_channel *channel;
  if (penstock_channel_new(target, options, &channel, &error) != PENSTOCK_OK) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    penstock_error_release(error);
    return 1;
  }
  /* A call waits until the first server has said that it serves, and fails if all have said that they do not. */
  penstock_call_options *wait;
  if (penstock_call_options_new("{\"deadline_ms\": 5000}", &wait, NULL) != PENSTOCK_OK) return 1;
  int failed = 0;
  for (int i = 0; i < 6; i++) {
    penstock_reply *reply;
    if (penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, wait, &reply, NULL) != PENSTOCK_OK) return 1;
    failed += penstock_reply_code(reply) != PENSTOCK_STATUS_OK;
    /* The status, or "peer" in the statistics, tells which server answered. */
    printf("%s\n", penstock_reply_code(reply) == PENSTOCK_STATUS_OK ? penstock_reply_stats_json(reply)
                                                                    : penstock_reply_status_json(reply));
    penstock_reply_release(reply);
  }
  penstock_call_options_release(wait);
  penstock_channel_release(channel);
  return failed ? 1 : 0;
}
