/* hop.h: messages that a hop delivers before start has a verdict reach the caller, whatever the verdict is. */
#include "calls.h"
#include "pool.h"

enum place { IN_CALLBACK, PAUSED, HELD, ON_EXECUTOR, PLACES };

typedef struct early {
  enum place place;
  penstock_ticket ticket;
  latch waits;
} early;

static int32_t deliver_early(probe *self, penstock_hop *hop, int32_t event) {
  early *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(penstock_hop_deliver(hop, "a", 1));
  if (plan->place == IN_CALLBACK || plan->place == ON_EXECUTOR) return PENSTOCK_NEXT;
  plan->ticket = penstock_hop_ticket(hop);
  latch_signal(&plan->waits);
  return plan->place == PAUSED ? PENSTOCK_PAUSE : PENSTOCK_HOLD;
}

/* The caller gets what the hop has delivered, and then the server's message. */
static void expect_early(enum place place) {
  pool pool;
  pool_open(&pool, 1);
  early plan = {place, 0, LATCH_INIT};
  probe above, here;
  probe_init(&above, "above");
  probe_init_with(&here, "here", deliver_early, &plan);
  penstock_channel *channel = open_channel();
  probe_add(&above, channel, 2);
  penstock_executor *executor = place == ON_EXECUTOR ? pool.executor : NULL;
  add_on(channel, &here, 1, executor, executor);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  if (place == PAUSED || place == HELD) {
    penstock_hop *hop = NULL;
    latch_wait(&plan.waits, 1);
    OK(penstock_ticket_hop(plan.ticket, &hop));
    OK(penstock_hop_deliver(hop, "b", 1));
    OK(penstock_ticket_resolve(plan.ticket, PENSTOCK_NEXT));
    penstock_hop_release(hop);
  }
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "a");
  if (place == PAUSED || place == HELD) CHECK_MESSAGE(call, "b");
  CHECK_MESSAGE(call, "x");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&here);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_RECEIVE]), place == PAUSED || place == HELD ? 3 : 2);
  pool_close(&pool);
}

TEST(deliver_in_on_start_arrives) { expect_early(IN_CALLBACK); }
TEST(deliver_while_start_is_paused_arrives) { expect_early(PAUSED); }
TEST(deliver_while_start_is_held_arrives) { expect_early(HELD); }
TEST(deliver_in_on_start_on_an_executor_arrives) { expect_early(ON_EXECUTOR); }

/* A unary call may have one message: what is delivered and then too much ends the call, and vanishes not silently. */
static int32_t deliver_one(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_hop_deliver(hop, "a", 1));
  return PENSTOCK_NEXT;
}
TEST(deliver_in_on_start_of_a_unary_call_is_counted) {
  probe here;
  probe_init_with(&here, "here", deliver_one, NULL);
  penstock_channel *channel = open_channel();
  probe_add(&here, channel, 0);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_UNIMPLEMENTED);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
}
