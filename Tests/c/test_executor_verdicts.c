/* executor.h: what callbacks may do on an executor. */
#include "pool.h"

static int32_t use_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  if (event == PENSTOCK_EVENT_START) {
    CHECK_STR(penstock_request_method(penstock_hop_request(hop)), "/other.Service/Method");
    OK(penstock_request_set_method(penstock_hop_request(hop), UNARY));
    CHECK_STR(penstock_request_method(penstock_hop_request(hop)), UNARY);
    OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-trailers-mine", "1"));
    OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), 60000));
    CHECK(request_deadline_ms(penstock_hop_request(hop)) > 50000);
    OK(penstock_request_set_compression(penstock_hop_request(hop), "gzip"));
    CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
    OK(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), 1000));
    CHECK_INT(request_max_send_message_bytes(penstock_hop_request(hop)), 1000);
    OK(penstock_hop_set_value(hop, "k", (void *)7, NULL));
  }
  if (event == PENSTOCK_EVENT_SEND) {
    OK(hop_bytes(hop, &data, &length));
    CHECK_INT(length, 4);
    OK(penstock_hop_set_bytes(hop, "request", 7));
    CHECK(penstock_hop_value(hop, "k") == (void *)7);
    CHECK_STR(penstock_request_compression(penstock_hop_request(hop)), "gzip");
  }
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-mine", "2"));
  if (event == PENSTOCK_EVENT_RECEIVE) {
    OK(hop_bytes(hop, &data, &length));
    CHECK(length == 7 && memcmp(data, "request", 7) == 0);
    OK(penstock_hop_set_bytes(hop, "response", 8));
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    OK(penstock_status_set_message(penstock_hop_status(hop), "mine", 4));
    OK(penstock_metadata_get(penstock_hop_metadata(hop), "x-trailers-mine", 0, &data, &length));
  }
  if (event == PENSTOCK_EVENT_DEMAND) OK(penstock_hop_set_count(hop, penstock_hop_count(hop)));
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_change_everything) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  probe_init_with(&probe, "editor", use_everything, NULL);
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, pool.executor, pool.executor);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/other.Service/Method", "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "mine");
  size_t length = 0;
  const char *message = penstock_reply_bytes(reply, &length);
  CHECK(length == 8 && memcmp(message, "response", 8) == 0);
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-mine", 0, &value, &length));
  CHECK(penstock_reply_value(reply, "k") == (void *)7);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&pool);
}

typedef struct resolver {
  pthread_mutex_t mutex;
  penstock_ticket open[3];
  int count;
} resolver;

/* Pauses at on_start and on_status, holds the first three messages and the headers, and injects a message at the
 * half-close. */
static int32_t defer(probe *self, penstock_hop *hop, int32_t event) {
  resolver *plan = self->context;
  if (event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_STATUS) {
    penstock_ticket ticket = penstock_hop_ticket(hop);
    CHECK(ticket != 0);
    if (event == PENSTOCK_EVENT_START) {
      OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT)); /* before the callback has returned */
    } else {
      OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 1));
    }
    return PENSTOCK_PAUSE;
  }
  if (event == PENSTOCK_EVENT_SEND && plan->count < 3) {
    pthread_mutex_lock(&plan->mutex);
    plan->open[plan->count++] = penstock_hop_ticket(hop);
    bool full = plan->count == 3;
    pthread_mutex_unlock(&plan->mutex);
    if (full) {
      /* The tickets are resolved in any order; the events leave in their own order. */
      OK(penstock_ticket_resolve(plan->open[1], PENSTOCK_NEXT));
      OK(penstock_ticket_resolve(plan->open[0], PENSTOCK_NEXT));
      OK(penstock_ticket_resolve(plan->open[2], PENSTOCK_NEXT));
    }
    return PENSTOCK_HOLD;
  }
  if (event == PENSTOCK_EVENT_HEADERS) return PENSTOCK_HOLD; /* the headers are held until the first message */
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    int last = 4;
    OK(penstock_hop_send(hop, &last, sizeof(last)));
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_defer_and_inject) {
  pool pool;
  pool_open(&pool, 4);
  for (int shared = 0; shared < 2; shared++) {
    probe probe;
    resolver plan = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    probe_init_with(&probe, "defers", defer, &plan);
    penstock_channel *channel = open_channel();
    add_on(channel, &probe, 0, pool.executor, shared ? pool.executor : NULL);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    for (int i = 0; i < 4; i++) OK(penstock_call_send(call, &i, sizeof(i)));
    OK(penstock_call_half_close(call));
    for (int i = 0; i < 5; i++) {
      penstock_message *message = NULL;
      int got = -1;
      if (!OK(penstock_call_receive(call, &message))) break;
      memcpy(&got, penstock_message_bytes(message, NULL), sizeof(got));
      CHECK_INT(got, i);
      penstock_message_release(message);
    }
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
      CHECK(penstock_reply_headers(reply) != NULL);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
    penstock_channel_release(channel);
    latch_wait(&probe.done, 1);
    probe_wait_finalized(&probe);
  }
  pool_close(&pool);
}

typedef struct finishing {
  int32_t event;
} finishing;
static int32_t finish_there(probe *self, penstock_hop *hop, int32_t event) {
  if (event != ((finishing *)self->context)->event) return PENSTOCK_NEXT;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_DATA_LOSS, "here"));
  CHECK_RESULT(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "again"), PENSTOCK_E_ALREADY);
  return PENSTOCK_NEXT;
}
TEST(law_2_executor_callbacks_may_finish) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS,
                                   PENSTOCK_EVENT_DEMAND,  PENSTOCK_EVENT_SENT};
  pool pool;
  pool_open(&pool, 4);
  for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
    probe above, here, below;
    finishing plan = {events[i]};
    probe_init(&above, "above");
    probe_init(&here, "here");
    probe_init(&below, "below");
    here.hook = finish_there;
    here.context = &plan;
    penstock_channel *channel = open_channel();
    add_on(channel, &above, 3, pool.executor, pool.executor);
    add_on(channel, &here, 2, pool.executor, pool.executor);
    add_on(channel, &below, 1, pool.executor, pool.executor);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_call_send(call, "x", 1);
    penstock_call_half_close(call);
    penstock_message *message = NULL;
    if (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DATA_LOSS);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe *all[] = {&above, &here, &below};
    for (int k = 0; k < 3; k++) {
      probe_wait_finalized(all[k]);
      CHECK_INT(latch_count(&all[k]->done), atomic_load(&all[k]->seen[PENSTOCK_EVENT_CREATE]));
    }
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_CANCEL]), 0);
    CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), 0);
  }
  pool_close(&pool);
}

/* Takes the call and delivers headers in on_start; the callbacks of later events answer with messages and a status. */
static int32_t answer(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    OK(penstock_hop_deliver_headers(hop, NULL));
    return PENSTOCK_TAKE;
  }
  if (event == PENSTOCK_EVENT_SEND) {
    const void *data = NULL;
    size_t length = 0;
    OK(hop_bytes(hop, &data, &length));
    OK(penstock_hop_deliver(hop, data, length));
  }
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    penstock_status *status = NULL;
    OK(penstock_status_new(PENSTOCK_STATUS_OK, "taken", &status));
    OK(penstock_hop_deliver_status(hop, status));
    penstock_status_release(status);
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_take) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  probe_init_with(&probe, "stub", answer, NULL);
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, pool.executor, pool.executor);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/no.Such/Method", "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "taken");
  size_t length = 0;
  penstock_reply_bytes(reply, &length);
  CHECK_INT(length, 4);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&pool);
}

/* Restarts the call from a job of the executor, while the caller sends. */
static int32_t restart_there(probe *self, penstock_hop *hop, int32_t event) {
  atomic_int *restarts = self->context;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAUTHENTICATED) return PENSTOCK_NEXT;
  OK(penstock_hop_can_restart(hop));
  OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "x-new", "1"));
  atomic_fetch_add(restarts, 1);
  return PENSTOCK_RESTART;
}
static int32_t refuse_old(probe *self, penstock_hop *hop, int32_t event) {
  const void *value = NULL;
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    bool is_new = penstock_metadata_get(penstock_hop_metadata(hop), "x-new", 0, &value, NULL) == PENSTOCK_OK;
    if (!is_new) OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "who"));
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_restart) {
  pool pool;
  pool_open(&pool, 4);
  probe here, below;
  atomic_int restarts = 0;
  probe_init(&here, "here");
  probe_init(&below, "below");
  here.hook = restart_there;
  here.context = &restarts;
  here.replay_bytes = 100000;
  below.hook = refuse_old;
  penstock_channel *channel = open_channel();
  add_on(channel, &here, 2, pool.executor, pool.executor);
  add_on(channel, &below, 1, pool.executor, NULL);
  int rounds = test_rounds(50);
  for (int i = 0; i < rounds; i++) exchange(channel, 20);
  CHECK_INT(atomic_load(&restarts), rounds);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  probe_wait_finalized(&below);
  CHECK_INT(latch_count(&here.done), rounds);
  CHECK_INT(latch_count(&below.done), 2 * rounds);
  pool_close(&pool);
}
