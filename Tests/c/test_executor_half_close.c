/* executor.h, law 1: a half-close passes a hop while a callback of the hop, on an executor, has sent a message. */
#include "calls.h"
#include "pool.h"

typedef struct sender {
  int32_t event;      /* the callback that sends */
  latch sent, passed; /* the message was sent; the half-close has come to the hop below */
  atomic_int done;
} sender;

static int32_t send_first(probe *self, penstock_hop *hop, int32_t event) {
  sender *plan = self->context;
  if (event != plan->event || atomic_exchange(&plan->done, 1)) return PENSTOCK_NEXT;
  OK(penstock_hop_send(hop, "late", 4));
  latch_signal(&plan->sent);
  latch_wait(&plan->passed, 1);
  CHECK_RESULT(penstock_hop_send(hop, "later", 5), PENSTOCK_E_STATE);
  return PENSTOCK_NEXT;
}

static int32_t see_half_close(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) latch_signal(&((sender *)self->context)->passed);
  return PENSTOCK_NEXT;
}

static void *receive_one(void *call) {
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) {
    CHECK_INT(message_length(message), 1);
    penstock_message_release(message);
  }
  return NULL;
}

static void expect_nothing_behind(int32_t event) {
  pool pool;
  pool_open(&pool, 2);
  sender plan = {event, LATCH_INIT, LATCH_INIT, 0};
  probe here, below;
  probe_init_with(&here, "here", send_first, &plan);
  probe_init_with(&below, "below", see_half_close, &plan);
  penstock_channel *channel = open_channel();
  penstock_interceptor table = probe_table(&here);
  table.outbound_executor = table.inbound_executor = pool.executor;
  table.on_half_close = NULL; /* the half-close does not wait for the callback on the executor */
  table.on_send = NULL;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 2, &id, NULL));
  probe_add(&below, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "x", 1));
  pthread_t reader;
  pthread_create(&reader, NULL, receive_one, call);
  latch_wait(&plan.sent, 1);
  OK(penstock_call_half_close(call));
  pthread_join(reader, NULL);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    CHECK_HAS(penstock_reply_stats_json(reply), "\"sent\":{\"messages\":1,");
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_SEND]), 1);
  const char *half_close = strchr(below.log, 'H');
  CHECK(half_close && !strchr(half_close, 's'));
  pool_close(&pool);
}

TEST(law_1_executor_half_close_passes_on_headers) { expect_nothing_behind(PENSTOCK_EVENT_HEADERS); }
TEST(law_1_executor_half_close_passes_on_receive) { expect_nothing_behind(PENSTOCK_EVENT_RECEIVE); }
TEST(law_1_executor_half_close_passes_on_demand) { expect_nothing_behind(PENSTOCK_EVENT_DEMAND); }
TEST(law_1_executor_half_close_passes_on_sent) { expect_nothing_behind(PENSTOCK_EVENT_SENT); }
