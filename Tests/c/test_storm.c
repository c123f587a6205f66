/* Storms: registration, priorities, cancels and releases against running calls. They check that everything ends exactly
 * once and, under ThreadSanitizer, that there are no data races. */
#include "test.h"

typedef struct storm {
  penstock_runtime *runtime;
  penstock_channel *channel;
  atomic_int stop;
  atomic_int calls, replies, finalizers, registrations, created, destroyed, registration_finalizers;
} storm;

static int32_t storm_create(penstock_hop *hop, void *user_data, void **state) {
  (void)hop;
  *state = user_data;
  atomic_fetch_add(&((storm *)user_data)->created, 1);
  return PENSTOCK_NEXT;
}
static void storm_destroy(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add(&((storm *)state)->destroyed, 1);
}
static int32_t storm_event(penstock_hop *hop, void *state) {
  (void)state;
  static _Thread_local uint32_t turn;
  switch (turn++ % 16) {
  case 3:
    if (penstock_hop_event(hop) != PENSTOCK_EVENT_STATUS) {
      penstock_ticket ticket = penstock_hop_ticket(hop);
      if (ticket) {
        penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 1);
        return PENSTOCK_PAUSE;
      }
    }
    break;
  case 7:
    penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "storm");
    break;
  default:
    break;
  }
  return PENSTOCK_NEXT;
}
static void storm_finalizer(void *user_data) { atomic_fetch_add(&((storm *)user_data)->registration_finalizers, 1); }

static penstock_interceptor storm_table(storm *storm) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "storm";
  table.user_data = storm;
  table.finalizer = storm_finalizer;
  table.create = storm_create;
  table.destroy = storm_destroy;
  table.on_start = table.on_send = table.on_headers = table.on_receive = table.on_status = storm_event;
  return table;
}

static void *register_often(void *pointer) {
  storm *storm = pointer;
  while (!atomic_load(&storm->stop)) {
    penstock_interceptor table = storm_table(storm);
    penstock_interceptor_id id = 0;
    bool on_runtime = test_random(2);
    penstock_result result =
        on_runtime ? penstock_runtime_add_interceptor(storm->runtime, &table, (int32_t)test_random(10), &id, NULL)
                   : penstock_channel_add_interceptor(storm->channel, &table, (int32_t)test_random(10), &id, NULL);
    atomic_fetch_add(&storm->registrations, 1);
    if (!OK(result)) break;
    for (int i = 0; i < 3; i++) {
      int32_t priority = (int32_t)test_random(10);
      OK(penstock_registration_set_priority(id, priority, NULL));
      char *json = NULL;
      OK(penstock_channel_interceptors_json(storm->channel, &json));
      penstock_free(json);
    }
    OK(penstock_registration_remove(id, NULL));
  }
  return NULL;
}

static void storm_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  CHECK(penstock_reply_code(reply) >= 0);
  atomic_fetch_add(&((storm *)user_data)->replies, 1);
}
static void storm_call_finalizer(void *user_data) { atomic_fetch_add(&((storm *)user_data)->finalizers, 1); }

static void *call_back_often(void *pointer) {
  storm *storm = pointer;
  for (int i = 0; i < test_rounds(300); i++) {
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = storm;
    table.finalizer = storm_call_finalizer;
    table.on_reply = storm_reply;
    penstock_call *call = NULL;
    atomic_fetch_add(&storm->calls, 1);
    if (!OK(penstock_channel_call(storm->channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL))) break;
    penstock_call_try_send(call, "x", 1);
    penstock_call_demand(call, 1 + test_random(3));
    if (test_random(2)) penstock_call_try_send(call, "y", 1);
    if (test_random(3) == 0) {
      penstock_call_cancel(call, "storm");
    } else {
      penstock_call_half_close(call);
      penstock_call_demand(call, 10);
    }
    penstock_call_release(call);
  }
  return NULL;
}

static void *block_often(void *pointer) {
  storm *storm = pointer;
  for (int i = 0; i < test_rounds(300); i++) {
    if (test_random(2)) {
      penstock_reply *reply = NULL;
      if (!OK(penstock_channel_unary(storm->channel, UNARY, "x", 1, NULL, &reply, NULL))) break;
      penstock_reply_release(reply);
    } else {
      penstock_call *call = NULL;
      if (!OK(penstock_channel_call(storm->channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL))) break;
      penstock_call_send(call, "x", 1);
      penstock_message *message = NULL;
      if (test_random(2) && penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
      penstock_reply *reply = NULL;
      if (test_random(2) && OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
      penstock_call_release(call);
    }
  }
  return NULL;
}

static void *open_often(void *pointer) {
  storm *storm = pointer;
  for (int i = 0; i < test_rounds(60); i++) {
    penstock_channel *channel = open_channel_on(storm->runtime);
    if (!channel) break;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = storm;
    table.finalizer = storm_call_finalizer;
    table.on_reply = storm_reply;
    penstock_call *call = NULL;
    atomic_fetch_add(&storm->calls, 1);
    if (OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL))) {
      penstock_call_try_send(call, "x", 1);
      penstock_call_half_close(call);
      penstock_call_release(call);
    }
    if (test_random(2)) penstock_channel_close(channel);
    penstock_channel_release(channel);
  }
  return NULL;
}

static void *poll_often(void *pointer) {
  storm *storm = pointer;
  while (!atomic_load(&storm->stop)) {
    penstock_result result = penstock_runtime_poll(storm->runtime, 5);
    if (!CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_TIMEOUT || result == PENSTOCK_E_BUSY)) break;
  }
  return NULL;
}

static void run_storm(const char *options) {
  storm storm = {0};
  storm.runtime = new_runtime(options);
  storm.channel = open_channel_on(storm.runtime);
  bool host = options && strstr(options, "host");
  pthread_t registrars[2], workers[5], poller;
  if (host) pthread_create(&poller, NULL, poll_often, &storm);
  for (int i = 0; i < 2; i++) pthread_create(&registrars[i], NULL, register_often, &storm);
  pthread_create(&workers[0], NULL, call_back_often, &storm);
  pthread_create(&workers[1], NULL, call_back_often, &storm);
  pthread_create(&workers[2], NULL, block_often, &storm);
  pthread_create(&workers[3], NULL, block_often, &storm);
  pthread_create(&workers[4], NULL, open_often, &storm);
  for (int i = 0; i < 5; i++) pthread_join(workers[i], NULL);
  EVENTUALLY(atomic_load(&storm.finalizers) == atomic_load(&storm.calls));
  atomic_store(&storm.stop, 1);
  for (int i = 0; i < 2; i++) pthread_join(registrars[i], NULL);
  if (host) pthread_join(poller, NULL);
  penstock_channel_release(storm.channel);
  OK(penstock_runtime_shutdown(storm.runtime, 10000));
  penstock_runtime_release(storm.runtime);
  EVENTUALLY(atomic_load(&storm.registration_finalizers) == atomic_load(&storm.registrations));
  CHECK_INT(atomic_load(&storm.replies), atomic_load(&storm.calls));
  CHECK_INT(atomic_load(&storm.finalizers), atomic_load(&storm.calls));
  CHECK_INT(atomic_load(&storm.created), atomic_load(&storm.destroyed));
  printf("  %d calls in callback style, %d registrations, %d hops\n", atomic_load(&storm.calls),
         atomic_load(&storm.registrations), atomic_load(&storm.created));
}

TEST(storm_on_a_thread) { run_storm(NULL); }
TEST(storm_without_drivers) { run_storm("{\"caller_drives\": false}"); }
TEST(storm_on_a_host_runtime) { run_storm("{\"mode\": \"host\"}"); }

/* Tickets used from many threads at once, late and twice: no more are spent than were taken. A few may be gone unspent,
 * because their calls have ended. */
typedef struct tickets {
  _Atomic uint64_t slots[64];
  atomic_uint next;
  atomic_int stop, spent, taken, gone;
} tickets;

static int32_t hand_out(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_CREATE || event == PENSTOCK_EVENT_DESTROY) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (!ticket) return PENSTOCK_NEXT;
  tickets *tickets = self->context;
  atomic_fetch_add(&tickets->taken, 1);
  atomic_store(&tickets->slots[atomic_fetch_add(&tickets->next, 1) % 64], ticket);
  return test_random(2) ? PENSTOCK_PAUSE : PENSTOCK_HOLD;
}
static void *spend(void *pointer) {
  tickets *tickets = pointer;
  while (!atomic_load(&tickets->stop)) {
    for (int i = 0; i < 64; i++) {
      penstock_ticket ticket = atomic_load(&tickets->slots[i]);
      if (!ticket) continue;
      penstock_hop *bound = NULL;
      if (penstock_ticket_hop(ticket, &bound) == PENSTOCK_OK) {
        CHECK(penstock_hop_event(bound) <= PENSTOCK_EVENT_STATUS); /* NONE once another thread has spent the ticket */
        penstock_hop_release(bound);
      }
      penstock_result result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
      if (result == PENSTOCK_OK) {
        atomic_fetch_add(&tickets->spent, 1);
      } else if (CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE)) {
        atomic_fetch_add(&tickets->gone, 1);
      }
    }
  }
  return NULL;
}

TEST(storm_of_tickets) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  static tickets tickets;
  memset(&tickets, 0, sizeof(tickets));
  probe probe;
  probe_init_with(&probe, "tickets", hand_out, &tickets);
  probe_add(&probe, channel, 0);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, spend, &tickets);
  for (int i = 0; i < test_rounds(200); i++) check_echo(channel);
  atomic_store(&tickets.stop, 1);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 10000));
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
  /* A server may answer before the half-close has come: the ticket of the half-close is then gone without being
   * spent. */
  int taken = atomic_load(&tickets.taken), spent = atomic_load(&tickets.spent);
  CHECK(spent <= taken && spent >= taken - taken / 6);
  printf("  %d tickets, %d spent, %d too late\n", taken, spent, atomic_load(&tickets.gone));
}

/* One thread cancels a call while another thread sends, receives and waits in it. */
static void *cancel_now(void *call) {
  for (volatile uint32_t i = test_random(200); i > 0; i--) {
  }
  penstock_call_cancel(call, "now");
  penstock_call_release(call);
  return NULL;
}
TEST(storm_of_cancels) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  probe_add(&probe, channel, 0);
  for (int i = 0; i < test_rounds(200); i++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    if (!call) break;
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_now, penstock_call_retain(call));
    penstock_call_send(call, "x", 1);
    penstock_message *message = NULL;
    while (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
    pthread_join(thread, NULL);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]), atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]));
}
