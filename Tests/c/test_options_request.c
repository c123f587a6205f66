/* call.h: the functions that set, without JSON, the request in call options. Each call with these options starts with
 * a copy of that request. */
#include "calls.h"
#include "hops.h"

/* ---- Values that change from call to call, without JSON ---- */

/* Checks that the request is as the options have set it. */
static int32_t as_options_say(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_request_authority(request), "other.example");
  CHECK_STR(penstock_request_compression(request), "gzip");
  CHECK_STR(penstock_request_content_subtype(request), "json");
  CHECK_HAS(penstock_request_user_agent(request), "app/1");
  CHECK_INT(request_max_receive_message_bytes(request), 1000);
  CHECK_INT(request_max_send_message_bytes(request), 2000);
  CHECK_INT(request_idempotency(request), PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS);
  CHECK_INT(request_wait_for_ready(request), 1);
  CHECK_INT(request_has_credentials(request), 0);
  int64_t left = request_deadline_ms(request);
  CHECK(left > 50000 && left <= 60000);
  return PENSTOCK_NEXT;
}

TEST(options_request) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"authority\": \"first.example\", \"deadline_ms\": 5}");
  penstock_request *request = penstock_call_options_request(options);
  CHECK_STR(penstock_request_authority(request), "first.example");
  CHECK_INT(request_deadline_ms(request), 5);
  CHECK_STR(penstock_request_compression(request), "identity");
  CHECK_INT(request_max_receive_message_bytes(request), 4 << 20);
  CHECK_STR(penstock_request_content_subtype(request), "");
  CHECK(penstock_request_method(request) == NULL);
  CHECK_RESULT(penstock_request_set_method(request, UNARY), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_channel(request, channel), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_authority(request, "no host"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_credentials(request, ""), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_deadline_ms(request, -2), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_compression(request, "lzma"), PENSTOCK_E_INVALID_ARGUMENT);
  /* The names are those of the options, and not all that a server may send. */
  CHECK_RESULT(penstock_request_set_compression(request, "GZIP"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_compression(request, "x-gzip"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_authority(request, "other.example"));
  OK(penstock_request_set_compression(request, "gzip"));
  OK(penstock_request_set_content_subtype(request, "json"));
  OK(penstock_request_set_user_agent(request, "app/1"));
  OK(penstock_request_set_max_receive_message_bytes(request, 1000));
  OK(penstock_request_set_max_send_message_bytes(request, 2000));
  OK(penstock_request_set_idempotency(request, PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS));
  OK(penstock_request_set_wait_for_ready(request, 1));
  OK(penstock_request_set_deadline_ms(request, 60000));
  CHECK_STR(penstock_request_authority(request), "other.example");
  CHECK_INT(request_deadline_ms(request), 60000);
  probe probe;
  probe_init_with(&probe, "probe", as_options_say, NULL);
  probe_add(&probe, channel, 0);
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 2);
  /* One call has credentials, which need TLS and are refused here; a later one has a deadline of 0, which has
   * passed. */
  OK(penstock_request_set_deadline_ms(request, -1));
  CHECK_INT(request_deadline_ms(request), -1);
  OK(penstock_request_set_credentials(request, "Bearer s3cret"));
  CHECK_INT(request_has_credentials(request), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  channel = open_channel();
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  penstock_reply_release(reply);
  OK(penstock_request_set_credentials(request, NULL));
  OK(penstock_request_set_deadline_ms(request, 0));
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}
