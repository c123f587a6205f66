/* hop.h: penstock_hop_why says in words why a function of the hop gave PENSTOCK_E_STATE. */
#include "calls.h"
#include "hops.h"

#define WHY(hop, call, part)                                                                                           \
  do {                                                                                                                 \
    CHECK_RESULT(call, PENSTOCK_E_STATE);                                                                              \
    CHECK_HAS(penstock_hop_why(hop), part);                                                                            \
  } while (0)

static int32_t passing(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  switch (event) {
  case PENSTOCK_EVENT_CREATE:
    CHECK_STR(penstock_hop_why(hop), "");
    WHY(hop, penstock_hop_end(hop, 1, NULL), "can't end the call");
    WHY(hop, penstock_hop_deliver(hop, "x", 1), "start has not come");
    break;
  case PENSTOCK_EVENT_START:
    WHY(hop, penstock_hop_half_close(hop), "start has not left");
    WHY(hop, penstock_hop_send(hop, "x", 1), "start has not left");
    WHY(hop, penstock_hop_next(hop), "synchronous");
    WHY(hop, penstock_hop_resolve(hop, PENSTOCK_NEXT), "no event waits");
    WHY(hop, penstock_hop_set_bytes(hop, "x", 1), "no message");
    WHY(hop, penstock_hop_set_executors(hop, NULL, NULL), "create only");
    WHY(hop, penstock_hop_set_count(hop, 1), "on_demand only");
    WHY(hop, penstock_hop_can_restart(hop), "on_status only");
    break;
  case PENSTOCK_EVENT_SEND:
    WHY(hop, penstock_hop_deliver_status(hop, status), "start has left");
    break;
  case PENSTOCK_EVENT_HALF_CLOSE:
    OK(penstock_hop_half_close(hop));
    CHECK_RESULT(penstock_hop_half_close(hop), PENSTOCK_E_ALREADY);
    break;
  case PENSTOCK_EVENT_STATUS:
    WHY(hop, penstock_hop_can_restart(hop), "no replay_bytes");
    break;
  case PENSTOCK_EVENT_DESTROY:
    WHY(hop, penstock_hop_end(hop, 1, NULL), "destroy");
    break;
  default:
    break;
  }
  penstock_status_release(status);
  return PENSTOCK_NEXT;
}

TEST(hop_why_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "passing", passing, NULL);
  probe_add(&probe, channel, 0);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Whatever result the next function gives, the reason of the one before is gone. */
#define FORGOTTEN(hop, call, result)                                                                                   \
  do {                                                                                                                 \
    WHY(hop, penstock_hop_half_close(hop), "start has not left");                                                      \
    CHECK_RESULT(call, result);                                                                                        \
    CHECK_STR(penstock_hop_why(hop), "");                                                                              \
  } while (0)

static int32_t forgetting(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  penstock_request *request = penstock_hop_request(hop);
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  FORGOTTEN(hop, penstock_request_set_method(request, "/penstock.Echo/Unary"), PENSTOCK_OK);
  FORGOTTEN(hop, penstock_request_set_method(request, "no method"), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_method(request, "/a/b?c"), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_method(request, "/a/b#c"), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_method(request, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_authority(request, ""), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_user_agent(request, "\n"), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_request_set_channel(request, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_set_value(hop, "key", NULL, NULL), PENSTOCK_OK);
  FORGOTTEN(hop, penstock_hop_set_value(hop, NULL, NULL, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_set_bytes(hop, NULL, 1), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_send_message(hop, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_end(hop, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_end_with(hop, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_deliver_status(hop, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_resolve(hop, -1), PENSTOCK_E_INVALID_ARGUMENT);
  FORGOTTEN(hop, penstock_hop_demand(hop, 0), PENSTOCK_OK);
  /* Functions that can't give E_STATE leave the reason. */
  WHY(hop, penstock_hop_half_close(hop), "start has not left");
  penstock_hop_release(penstock_hop_retain(hop));
  CHECK(penstock_hop_metadata(hop) != NULL);
  CHECK_HAS(penstock_hop_why(hop), "start has not left");
  return PENSTOCK_NEXT;
}

TEST(hop_why_is_about_the_last_function) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "forgetting", forgetting, NULL);
  probe_add(&probe, channel, 0);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Answers in place of the server, and checks why some functions are refused to a hop that has taken the call. */
static int32_t taking(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START && event != PENSTOCK_EVENT_HALF_CLOSE) return PENSTOCK_NEXT;
  penstock_metadata *headers = NULL;
  penstock_status *status = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  if (event == PENSTOCK_EVENT_START) {
    OK(penstock_hop_deliver(hop, "early", 5));
    WHY(hop, penstock_hop_deliver_headers(hop, headers), "headers go first");
  } else {
    WHY(hop, penstock_hop_send(hop, "x", 1), "has taken the call");
    WHY(hop, penstock_hop_half_close(hop), "has taken the call");
    OK(penstock_hop_deliver_status(hop, status));
    WHY(hop, penstock_hop_deliver(hop, "late", 4), "has delivered its status");
    WHY(hop, penstock_hop_deliver_headers(hop, headers), "has delivered its status");
  }
  penstock_metadata_release(headers);
  penstock_status_release(status);
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}

TEST(hop_why_in_the_servers_place) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "taking", taking, NULL);
  probe_add(&probe, channel, 0);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Another thread asks for reasons while create runs. In on_status a RESTART is refused, because messages have gone
 * above. */
typedef struct keeper {
  latch kept, asked;
  penstock_hop *hop;
} keeper;

static int32_t keeping(probe *self, penstock_hop *hop, int32_t event) {
  keeper *keeper = self->context;
  if (event == PENSTOCK_EVENT_CREATE) {
    keeper->hop = penstock_hop_retain(hop);
    latch_signal(&keeper->kept);
    latch_wait(&keeper->asked, 1);
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    CHECK_RESULT(penstock_hop_can_restart(hop), PENSTOCK_E_STATE);
    CHECK_HAS(penstock_hop_why(hop), "have gone above");
  }
  return PENSTOCK_NEXT;
}

static void *ask_elsewhere(void *context) {
  keeper *keeper = context;
  latch_wait(&keeper->kept, 1);
  WHY(keeper->hop, penstock_hop_end(keeper->hop, 1, NULL), "start has not come");
  WHY(keeper->hop, penstock_hop_set_bytes(keeper->hop, "x", 1), "only in a callback of this hop");
  latch_signal(&keeper->asked);
  return NULL;
}

TEST(hop_why_on_another_thread) {
  penstock_channel *channel = open_channel();
  keeper keeper = {LATCH_INIT, LATCH_INIT, NULL};
  probe probe;
  probe_init_with(&probe, "keeping", keeping, &keeper);
  probe.replay_bytes = 1000;
  probe_add(&probe, channel, 0);
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, ask_elsewhere, &keeper) == 0);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_OK);
  pthread_join(thread, NULL);
  penstock_hop_release(keeper.hop);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
