/* Error details: one of a google.rpc type, whose fields the library shows as JSON, and one of the application's own
 * type, which the application finds by that type and decodes.
 *
 *     error_detail
 *
 * An interceptor acts as the server here, to give both kinds of details; details from a server are read in the same
 * way.
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <string.h>

/* message Complaint { int32 count = 2; }, as protobuf encodes it, with count 3. */
static const unsigned char complaint[] = {2 << 3, 3};
/* google.rpc.RetryInfo with a retry_delay of 2 seconds. */
static const unsigned char retry_info[] = {1 << 3 | 2, 2, 1 << 3, 2};

static int32_t complain(penstock_hop *hop, void *state) {
  penstock_status *status;
  (void)state;
  if (penstock_status_new(PENSTOCK_STATUS_FAILED_PRECONDITION, "no pressure", &status)) return PENSTOCK_NEXT;
  penstock_status_add_detail(status, "type.googleapis.com/google.rpc.RetryInfo", retry_info, sizeof retry_info);
  penstock_status_add_detail(status, "type.googleapis.com/penstock.Complaint", complaint, sizeof complaint);
  penstock_hop_end_with(hop, status);
  penstock_status_release(status);
  return PENSTOCK_NEXT;
}

int main(void) {
  penstock_error *error = NULL;
  penstock_channel *channel;
  penstock_reply *reply;
  penstock_interceptor_id id;
  penstock_interceptor server = PENSTOCK_INTERCEPTOR_INIT;
  server.name = "server";
  server.on_start = complain;

  if (penstock_channel_new("unix:/nobody/listens/here", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &server, 0, &id, &error) ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", NULL, 0, NULL, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  puts(penstock_reply_status_json(reply));

  const penstock_status *status = penstock_reply_status(reply);
  for (size_t i = 0; i < penstock_status_detail_count(status); i++) {
    const char *type_url;
    const void *value;
    size_t length;
    if (penstock_status_detail_at(status, i, &type_url, &value, &length) == PENSTOCK_OK)
      printf("detail %zu: %s, %zu bytes\n", i, type_url, length);
  }

  const void *value;
  size_t length;
  int count = 0;
  if (penstock_status_detail_find(status, "penstock.Complaint", &value, &length) == PENSTOCK_OK && length == 2)
    count = ((const unsigned char *)value)[1];
  printf("%d complaints\n", count);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  return count == 3 ? 0 : 1;
}
