/* Random chains with synchronous interceptors and others. */
#include "players.h"

static int32_t act_at_random(player *self, penstock_hop *call) {
  const void *data = NULL;
  size_t length = 0;
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(call));
  switch (test_random(16)) {
  case 0:
    return 99;
  case 1:
    return PENSTOCK_NEXT;
  case 2:
    penstock_hop_end(call, PENSTOCK_STATUS_ABORTED, "at random");
    return PENSTOCK_NEXT;
  case 3:
    penstock_hop_deliver_headers(call, metadata);
    penstock_hop_deliver(call, "answer", 6);
    answer_hop(call, NULL);
    return PENSTOCK_NEXT;
  case 4:
    penstock_metadata_set(metadata, "a", "b");
    break;
  case 5:
    penstock_hop_set_bytes(call, "other", 5);
    break;
  case 6:
    penstock_request_set_deadline_ms(penstock_hop_request(call), test_random(20));
    break;
  case 7:
    penstock_hop_set_value(call, "k", malloc(8), free);
    break;
  case 8:
    if (penstock_metadata_get(metadata, "inner", 0, &data, NULL) != PENSTOCK_OK) {
      penstock_call_options *options = NULL;
      penstock_reply *reply = NULL;
      OK(penstock_call_options_new("{\"metadata\": {\"inner\": \"1\"}}", &options, NULL));
      OK(penstock_channel_unary(self->other, UNARY, "x", 1, options, &reply, NULL));
      penstock_reply_release(reply);
      penstock_call_options_release(options);
    }
    break;
  default:
    break;
  }
  penstock_result result = penstock_hop_next(call);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_GONE);
  switch (test_random(12)) {
  case 0:
    return -1;
  case 1:
    penstock_hop_end(call, PENSTOCK_STATUS_DATA_LOSS, NULL);
    break;
  case 2:
    penstock_hop_set_bytes(call, "changed", 7);
    break;
  case 3:
    penstock_status_set_message(penstock_hop_status(call), "changed", 7);
    break;
  case 4:
    penstock_metadata_set(penstock_hop_metadata(call), "c", "d");
    break;
  case 5:
    hop_bytes(call, &data, &length);
    break;
  case 6:
    test_pause();
    break;
  default:
    break;
  }
  return PENSTOCK_NEXT;
}

static int32_t pause_at_random(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event < PENSTOCK_EVENT_START || event > PENSTOCK_EVENT_STATUS || test_random(8) > 0) return PENSTOCK_NEXT;
  if (test_random(20) == 0) {
    penstock_hop_end(hop, PENSTOCK_STATUS_UNAVAILABLE, "at random");
    return PENSTOCK_NEXT;
  }
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (ticket == 0) return PENSTOCK_NEXT;
  penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, test_random(3));
  return PENSTOCK_PAUSE;
}

static void *call_at_random(void *channel) {
  static const char *const methods[] = {UNARY, CLIENT_STREAM, SERVER_STREAM, BIDI};
  static const int32_t kinds[] = {PENSTOCK_KIND_UNARY, PENSTOCK_KIND_CLIENT_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                                  PENSTOCK_KIND_BIDI};
  for (int i = test_rounds(100); i > 0; i--) {
    uint32_t which = test_random(4);
    penstock_call_options *options = NULL;
    penstock_call *call = NULL;
    penstock_reply *reply = NULL;
    OK(penstock_call_options_new(test_random(3) ? NULL : "{\"deadline_ms\": 5}", &options, NULL));
    OK(penstock_channel_call(channel, methods[which], kinds[which], options, NULL, &call, NULL));
    penstock_call_options_release(options);
    penstock_call_send(call, "x", 1);
    if (test_random(6) == 0) penstock_call_cancel(call, "at random");
    if (test_random(3) > 0) {
      penstock_message *message = NULL;
      if (which % 2 == 1) penstock_call_half_close(call);
      if (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    }
    if (test_random(10) > 0 && OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
    penstock_call_release(call);
  }
  return NULL;
}

TEST(sync_random_functions_among_random_callbacks) {
  for (int workers = 1; workers <= 4; workers += 3) {
    char json[64];
    snprintf(json, sizeof(json), "{\"max_workers\": %d}", workers);
    penstock_runtime *runtime = new_runtime(json);
    penstock_channel *channel = open_channel_on(runtime);
    player players[3];
    probe probes[3];
    for (int i = 0; i < 3; i++) {
      player_add(&players[i], channel, -2 * i, act_at_random);
      players[i].other = channel;
      probe_init_with(&probes[i], "probe", pause_at_random, NULL);
      probe_add(&probes[i], channel, -2 * i - 1);
    }
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, call_at_random, channel);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, -1));
    penstock_runtime_release(runtime);
    for (int i = 0; i < 3; i++) {
      latch_wait(&players[i].finalized, 1);
      probe_wait_finalized(&probes[i]);
      CHECK_INT(probes[i].seen[PENSTOCK_EVENT_CREATE], probes[i].seen[PENSTOCK_EVENT_DESTROY]);
    }
  }
}
