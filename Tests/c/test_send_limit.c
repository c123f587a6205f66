/* max_send_message_bytes is exact to the byte, for each way in which a message can be sent. */
#include "calls.h"

enum { LIMIT = 8 };
#define AT_LIMIT "12345678"
#define OVER     "123456789"
static const char options[] = "{\"max_send_message_bytes\": 8}";

/* ---- Messages of the caller ---- */

static penstock_result send_wrapped(penstock_call *call, const void *data, size_t length,
                                    penstock_result (*send)(penstock_call *, penstock_message *)) {
  penstock_message *message = NULL;
  OK(penstock_message_new_lent(data, length, 0, NULL, NULL, &message));
  penstock_result result = send(call, message);
  penstock_message_release(message);
  return result;
}
static penstock_result send_message(penstock_call *call, const void *data, size_t length) {
  return send_wrapped(call, data, length, penstock_call_send_message);
}
static penstock_result try_send_message(penstock_call *call, const void *data, size_t length) {
  return send_wrapped(call, data, length, penstock_call_try_send_message);
}

static void check_sent(penstock_result (*send)(penstock_call *, const void *, size_t)) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, options);
  CHECK_RESULT(send(call, OVER, LIMIT + 1), PENSTOCK_E_TOO_LARGE);
  OK(send(call, AT_LIMIT, LIMIT));
  CHECK_MESSAGE(call, AT_LIMIT);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  /* In a call with one message the functions do not check whether the send buffer has room. */
  call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, options);
  CHECK_RESULT(send(call, OVER, LIMIT + 1), PENSTOCK_E_TOO_LARGE);
  OK(send(call, AT_LIMIT, LIMIT));
  CHECK_MESSAGE(call, AT_LIMIT);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
TEST(send_limit_of_send) { check_sent(penstock_call_send); }
TEST(send_limit_of_try_send) { check_sent(penstock_call_try_send); }
TEST(send_limit_of_send_message) { check_sent(send_message); }
TEST(send_limit_of_try_send_message) { check_sent(try_send_message); }

/* Makes a unary call with the call options `with`, and gives its status code. A status other than OK must say that the
 * message is over the limit. */
static int32_t echo_code(penstock_channel *channel, const char *request, const char *with) {
  penstock_call_options *call_options = options_of(with);
  penstock_reply *reply = NULL;
  int32_t code = -1;
  if (OK(penstock_channel_unary(channel, UNARY, request, strlen(request), call_options, &reply, NULL))) {
    code = penstock_reply_code(reply);
    if (code != PENSTOCK_STATUS_OK) {
      CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL),
                "a message to send is over max_send_message_bytes");
    }
  }
  penstock_reply_release(reply);
  penstock_call_options_release(call_options);
  return code;
}

TEST(send_limit_of_unary) {
  penstock_channel *channel = open_channel();
  penstock_call_options *limited = options_of(options);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, OVER, LIMIT + 1, limited, &reply, NULL), PENSTOCK_E_TOO_LARGE);
  CHECK(reply == NULL);
  penstock_call_options_release(limited);
  CHECK_INT(echo_code(channel, AT_LIMIT, options), PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
}

/* ---- Messages of a hop ---- */

/* The hop has only on_start, so that the request leaves in one step after it. */
static int32_t lower(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), LIMIT));
  return PENSTOCK_NEXT;
}
TEST(send_limit_that_a_start_lowers) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "lower";
  table.on_start = lower;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  CHECK_INT(echo_code(channel, AT_LIMIT, NULL), PENSTOCK_STATUS_OK);
  CHECK_INT(echo_code(channel, OVER, NULL), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  penstock_channel_release(channel);
}

/* `change` replaces each message by the text in the context; `inject` sends that text before each message. */
static int32_t change(probe *self, penstock_hop *hop, int32_t event) {
  const char *text = self->context;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_set_bytes(hop, text, strlen(text)));
  return PENSTOCK_NEXT;
}
static int32_t inject(probe *self, penstock_hop *hop, int32_t event) {
  const char *text = self->context;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_send(hop, text, strlen(text)));
  return PENSTOCK_NEXT;
}

static void check_hop(int32_t (*hook)(probe *, penstock_hop *, int32_t), const char *text, int32_t code) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "hop", hook, (void *)(uintptr_t)text);
  probe_add(&probe, channel, 0);
  if (hook == change) CHECK_INT(echo_code(channel, "a", options), code);
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, options);
  OK(penstock_call_send(call, "a", 1));
  if (code == PENSTOCK_STATUS_OK) {
    CHECK_MESSAGE(call, text);
    if (hook == inject) CHECK_MESSAGE(call, "a");
  }
  CHECK_FINISH(call, code);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
TEST(send_limit_of_what_a_hop_changes) {
  check_hop(change, AT_LIMIT, PENSTOCK_STATUS_OK);
  check_hop(change, OVER, PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
}
TEST(send_limit_of_what_a_hop_injects) {
  check_hop(inject, AT_LIMIT, PENSTOCK_STATUS_OK);
  check_hop(inject, OVER, PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
}
