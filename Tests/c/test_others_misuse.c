/* Faults reported in other libraries, fourth part: going on after the end, completing twice, growing over limits,
 * reference cycles, changes under load, refused jobs. See docs/others.md. */
#include "others.h"

/* ---- After penstock_hop_end ---- */

typedef struct reckless {
  int32_t event, verdict;
  penstock_ticket ticket;
} reckless;

static int32_t finish_and_go_on(probe *self, penstock_hop *hop, int32_t event) {
  reckless *plan = self->context;
  if (event != plan->event) return PENSTOCK_NEXT;
  plan->ticket = penstock_hop_ticket(hop);
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "local reply"));
  CHECK_RESULT(penstock_hop_end(hop, PENSTOCK_STATUS_OK, ""), PENSTOCK_E_ALREADY);
  /* These functions have no effect, whatever they return. */
  penstock_hop_send(hop, "more", 4);
  penstock_hop_deliver(hop, "more", 4);
  penstock_hop_demand(hop, 5);
  if (penstock_hop_metadata(hop)) penstock_metadata_set(penstock_hop_metadata(hop), "x-more", "1");
  return plan->verdict;
}

static penstock_result last_use(penstock_ticket ticket) {
  return ticket ? penstock_ticket_resolve(ticket, PENSTOCK_NEXT) : PENSTOCK_E_GONE;
}

/* envoy 13857: the chain went on after a local reply, into a stream that was gone. Here a hop ends the call and then
 * calls functions and returns each verdict, without any effect. */
TEST(others_envoy_13857_nothing_goes_on_after_a_finish) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};
  static const int32_t verdicts[] = {PENSTOCK_NEXT, PENSTOCK_PAUSE,   PENSTOCK_HOLD, PENSTOCK_DROP,
                                     PENSTOCK_TAKE, PENSTOCK_RESTART, 1000};
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 42; i++) {
    probe above, wild, below;
    reckless plan = {events[i / 7], verdicts[i % 7], 0};
    probe_init(&above, "above");
    probe_init(&wild, "wild");
    probe_init(&below, "below");
    wild.hook = finish_and_go_on;
    wild.context = &plan;
    penstock_interceptor_id ids[] = {probe_add(&above, channel, 3), probe_add(&wild, channel, 2),
                                     probe_add(&below, channel, 1)};
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_call_send(call, "x", 1);
    check_finish(call, PENSTOCK_STATUS_ABORTED);
    penstock_result late = last_use(plan.ticket);
    CHECK(late == PENSTOCK_E_GONE || late == PENSTOCK_E_ALREADY);
    for (int k = 0; k < 3; k++) OK(penstock_registration_remove(ids[k], NULL));
    check_ended(&above);
    check_ended(&wild);
    check_ended(&below);
    CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 1);
    CHECK_INT(seen(&wild, PENSTOCK_EVENT_CANCEL), 0);
  }
  penstock_channel_release(channel);
}

static int32_t complete_within(probe *self, penstock_hop *hop, int32_t event) {
  reckless *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  plan->ticket = penstock_hop_ticket(hop);
  OK(penstock_ticket_end(plan->ticket, PENSTOCK_STATUS_UNAVAILABLE, "at once"));
  return plan->verdict;
}

/* envoy 3259: the answer to a filter's request came before the filter had finished making it. Here a ticket ends the
 * call before its callback has returned PAUSE or HOLD. */
TEST(others_envoy_3259_a_completion_before_the_callback_returns) {
  static const int32_t verdicts[] = {PENSTOCK_PAUSE, PENSTOCK_HOLD};
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 2; i++) {
    probe hasty, below;
    reckless plan = {PENSTOCK_EVENT_START, verdicts[i], 0};
    probe_init(&hasty, "hasty");
    probe_init(&below, "below");
    hasty.hook = complete_within;
    hasty.context = &plan;
    penstock_interceptor_id ids[] = {probe_add(&hasty, channel, 2), probe_add(&below, channel, 1)};
    check_unary(channel, NULL, PENSTOCK_STATUS_UNAVAILABLE, "at once");
    for (int k = 0; k < 2; k++) OK(penstock_registration_remove(ids[k], NULL));
    check_ended(&hasty);
    check_ended(&below);
    CHECK_STR(below.log, "");
  }
  penstock_channel_release(channel);
}

/* ---- Over a limit ---- */

static int32_t grow(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) {
    char *large = calloc(1, 3000);
    OK(penstock_hop_set_bytes(hop, large, 3000));
    free(large);
  }
  /* The hop goes on sending after its large message has ended the call. */
  if (event == PENSTOCK_EVENT_HALF_CLOSE) penstock_hop_send(hop, "more", 4);
  return PENSTOCK_NEXT;
}

/* kgateway 4801: a filter made a message larger than the limit; the local reply freed the filters while they ran. Here
 * the call ends, and each hop lives until its destroy. */
TEST(others_kgateway_4801_a_message_grown_over_the_limit_ends_the_call) {
  penstock_channel *channel = open_channel();
  probe above, growing, below;
  probe_init(&above, "above");
  probe_init(&growing, "growing");
  probe_init(&below, "below");
  growing.hook = grow;
  probe_add(&above, channel, 3);
  probe_add(&growing, channel, 2);
  probe_add(&below, channel, 1);
  check_unary(channel, "{\"max_send_message_bytes\": 2000}", PENSTOCK_STATUS_RESOURCE_EXHAUSTED, "");
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"max_send_message_bytes\": 2000}");
  penstock_call_send(call, "x", 1);
  check_finish(call, PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&growing);
  check_ended(&below);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 2);
}

/* ---- Completed twice, or late ---- */

typedef struct race {
  penstock_ticket ticket;
  atomic_int go, first, refused;
} race;

static void *complete(void *pointer) {
  race *race = pointer;
  while (!atomic_load(&race->go)) continue;
  penstock_result result;
  switch (test_random(5)) {
  case 0:
    result = penstock_ticket_resolve(race->ticket, PENSTOCK_NEXT);
    break;
  case 1:
    result = penstock_ticket_resolve(race->ticket, PENSTOCK_DROP);
    break;
  case 2:
    result = penstock_ticket_end(race->ticket, PENSTOCK_STATUS_ABORTED, "x");
    break;
  case 3:
    result = penstock_ticket_resolve(race->ticket, PENSTOCK_NEXT);
    break;
  default: {
    penstock_hop *bound = NULL;
    if (penstock_ticket_hop(race->ticket, &bound) == PENSTOCK_OK) {
      penstock_hop_set_bytes(bound, "y", 1);
      penstock_hop_release(bound);
    }
    result = penstock_ticket_resolve(race->ticket, PENSTOCK_NEXT);
    break;
  }
  }
  if (result == PENSTOCK_OK) {
    atomic_fetch_add(&race->first, 1);
  } else {
    CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE);
    atomic_fetch_add(&race->refused, 1);
  }
  return NULL;
}

/* gRPC proposal L5 (proposal 14): calling `next` a second time is undefined there. Here eight threads resolve one
 * ticket: at most one of them succeeds, and the others get an error. */
TEST(others_grpc_proposal_14_a_second_completion_is_a_value) {
  penstock_channel *channel = open_channel();
  probe probe;
  pauser pauser = {PENSTOCK_EVENT_SEND, NULL, 0, LATCH_INIT};
  pauser_init(&probe, &pauser, "slow");
  probe_add(&probe, channel, 0);
  for (int i = 0; i < test_rounds(100); i++) {
    pauser.ticket = 0;
    collector collector = COLLECTOR_INIT;
    penstock_call *call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    OK(penstock_call_demand(call, 5));
    latch_wait(&pauser.paused, i + 1);
    race race = {pauser.ticket, 0, 0, 0};
    pthread_t threads[8];
    for (int k = 0; k < 8; k++) pthread_create(&threads[k], NULL, complete, &race);
    if (i % 4 == 0) OK(penstock_call_cancel(call, "too"));
    atomic_store(&race.go, 1);
    for (int k = 0; k < 8; k++) pthread_join(threads[k], NULL);
    CHECK(atomic_load(&race.first) == 1 || (i % 4 == 0 && atomic_load(&race.first) == 0));
    CHECK_INT(atomic_load(&race.first) + atomic_load(&race.refused), 8);
    latch_wait(&collector.finalized, 1);
    CHECK_RESULT(penstock_ticket_resolve(race.ticket, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
  check_ended(&probe);
}

/* ---- Reference cycles ---- */

typedef struct circle {
  penstock_channel *channel;
  atomic_int states, values;
  latch finalized;
} circle;

static void release_hop(void *hop) { penstock_hop_release(hop); }
static void circle_finalizer(void *user_data) {
  circle *circle = user_data;
  penstock_channel_release(circle->channel);
  latch_signal(&circle->finalized);
}
static int32_t circle_create(penstock_hop *hop, void *user_data, void **state) {
  (void)user_data;
  *state = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}
static int32_t circle_start(penstock_hop *hop, void *state) {
  OK(penstock_hop_set_value(hop, "own hop", penstock_hop_retain(state), release_hop));
  return PENSTOCK_NEXT;
}
static void circle_destroy(penstock_hop *hop, void *state) {
  (void)hop;
  penstock_hop_release(state);
}

/* grpc-swift 1279: interceptor, hop, call and channel refer to each other, and all of them are freed. (A leak checker
 * finds memory that is left.) */
TEST(others_grpc_swift_1279_a_circle_of_references_is_let_go) {
  penstock_channel *channel = open_channel();
  circle circle = {penstock_channel_retain(channel), 0, 0, LATCH_INIT};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &circle;
  table.finalizer = circle_finalizer;
  table.create = circle_create;
  table.on_start = circle_start;
  table.destroy = circle_destroy;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_echo(channel);
  OK(penstock_registration_remove(id, NULL));
  latch_wait(&circle.finalized, 1);
  penstock_channel_release(channel);
}

static long resident_kilobytes(void) {
  long pages = 0, ignored = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &ignored, &pages) != 2) CHECK(false);
  if (file) fclose(file);
  return pages * 4;
}

static void echo_often(penstock_call *call, int times) {
  for (int i = 0; i < times; i++) {
    OK(penstock_call_send(call, "message", 7));
    check_receive(call, "message");
  }
}

static int32_t pause_always(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  OK(event == PENSTOCK_EVENT_SEND ? penstock_ticket_resolve(ticket, PENSTOCK_NEXT)
                                  : penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 0));
  return PENSTOCK_PAUSE;
}

/* grpc 25449: each message of a long stream left something behind with an interceptor, until the stream ended. Here the
 * memory of a long stream may not grow. */
TEST(others_grpc_25449_a_long_stream_does_not_grow) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probe_init(&probes[0], "a");
  probe_init_with(&probes[1], "b", pause_always, NULL);
  probe_add(&probes[0], channel, 2);
  probe_add(&probes[1], channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  echo_often(call, test_rounds(2000));
  long before = resident_kilobytes();
  echo_often(call, test_rounds(20000));
  long grown = resident_kilobytes() - before;
  printf("  %d messages each way: %ld KiB more\n", test_rounds(20000), grown);
  /* If 64 bytes stayed for each message, the growth would be 2500 KiB. A sanitizer does not reuse freed memory at
   * once. */
  if (test_slow() == 1) CHECK(grown < 1000);
  check_finish(call, 0);
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) check_ended(&probes[i]);
}

/* ---- Changes under load ---- */

typedef struct load {
  penstock_channel *channel;
  atomic_int stop;
} load;

static int32_t pause_a_while(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START && event != PENSTOCK_EVENT_HEADERS) return PENSTOCK_NEXT;
  OK(penstock_ticket_resolve_after(penstock_hop_ticket(hop), PENSTOCK_NEXT, test_random(2)));
  return PENSTOCK_PAUSE;
}

static void *keep_calling(void *pointer) {
  load *load = pointer;
  while (!atomic_load(&load->stop)) check_echo(load->channel);
  return NULL;
}

/* envoy 8025: a filter crashed when it was configured anew while requests waited in it. Here an interceptor is added
 * and removed while calls are paused in it. */
TEST(others_envoy_8025_changed_while_calls_are_paused_in_it) {
  load load = {open_channel(), 0};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, keep_calling, &load);
  for (int i = 0; i < test_rounds(50); i++) {
    probe probe;
    probe_init_with(&probe, "ext_authz", pause_a_while, NULL);
    penstock_interceptor_id id = probe_add(&probe, load.channel, 0);
    EVENTUALLY(seen(&probe, PENSTOCK_EVENT_START) >= 4);
    OK(penstock_registration_remove(id, NULL));
    check_ended(&probe);
  }
  atomic_store(&load.stop, 1);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(load.channel);
}

static int32_t refuse_job(penstock_job job, void *argument, void *user_data) {
  (void)job, (void)argument;
  atomic_fetch_add((atomic_int *)user_data, 1);
  return 1;
}

/* concurrency-limits 190: a full executor dropped the response, and no interceptor learned of it. Here a refused job
 * ends the call, and all hops learn of it. */
TEST(others_concurrency_limits_190_a_refused_job_ends_the_call) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 2; i++) {
    atomic_int refused = 0;
    penstock_executor *full = NULL;
    REQUIRE_OK(penstock_executor_new(refuse_job, &refused, NULL, &full));
    probe above, limited, below;
    probe_init(&above, "above");
    probe_init(&limited, "limited");
    probe_init(&below, "below");
    penstock_interceptor table = probe_table(&limited);
    if (i == 0) {
      table.outbound_executor = full;
    } else {
      table.inbound_executor = full;
    }
    penstock_interceptor_id ids[3] = {probe_add(&above, channel, 3), 0, probe_add(&below, channel, 1)};
    OK(penstock_channel_add_interceptor(channel, &table, 2, &ids[1], NULL));
    penstock_executor_release(full);
    check_unary(channel, NULL, PENSTOCK_STATUS_INTERNAL, "'limited'");
    for (int k = 0; k < 3; k++) OK(penstock_registration_remove(ids[k], NULL));
    check_ended(&above);
    check_ended(&limited);
    check_ended(&below);
    CHECK(atomic_load(&refused) > 0);
    CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 1);
    CHECK_INT(latch_count(&limited.done), 1);
  }
  penstock_channel_release(channel);
}
