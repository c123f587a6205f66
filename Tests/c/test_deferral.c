/* Deferral: the memory that is kept while a hop is paused, and the events that end a pause. docs/hops.md,
 * "Tickets" and "Memory of a call". */
#include "observed.h"

static const int32_t pausable[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};

/* ---- What ends a pause ---- */

/* A call is paused at `event`, and ended by its deadline, by the caller's cancel, or by closing the channel. */
typedef enum { BY_DEADLINE, BY_CANCEL, BY_CLOSE } ending;

static void check_pause_ends(int32_t event, ending ending) {
  penstock_channel *channel = open_channel();
  probe above, slow, below;
  pauser pauser = {event, NULL, 0, LATCH_INIT};
  probe_init(&above, "above");
  pauser_init(&slow, &pauser, "slow");
  probe_init(&below, "below");
  probe_add(&above, channel, 3);
  probe_add(&slow, channel, 2);
  probe_add(&below, channel, 1);
  collector collector = COLLECTOR_INIT;
  int64_t started = test_now_ms();
  penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY,
                                         ending == BY_DEADLINE ? "{\"deadline_ms\": 60}" : NULL, &collector);
  penstock_call_try_send(call, "x", 1);
  penstock_call_half_close(call);
  /* Under valgrind and sanitizers the deadline may come before the event does. */
  EVENTUALLY(latch_count(&pauser.paused) == 1 || latch_count(&collector.finalized) == 1);
  if (ending != BY_DEADLINE) started = test_now_ms();
  if (ending == BY_CANCEL) OK(penstock_call_cancel(call, NULL));
  if (ending == BY_CLOSE) OK(penstock_channel_close(channel));
  latch_wait(&collector.finalized, 1);
  int64_t took = test_now_ms() - started;
  /* The call does not wait for the ticket, which nobody resolves. */
  CHECK(took < test_patience_ms());
  if (ending == BY_DEADLINE) CHECK(took >= 60);
  CHECK_INT(collector.code, ending == BY_DEADLINE ? PENSTOCK_STATUS_DEADLINE_EXCEEDED : PENSTOCK_STATUS_CANCELLED);
  if (pauser.ticket) {
    CHECK_RESULT(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_resolve_after(pauser.ticket, PENSTOCK_NEXT, 1), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_end(pauser.ticket, 1, NULL), PENSTOCK_E_GONE);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&slow);
  check_ended(&below);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), ending == BY_DEADLINE ? seen(&above, PENSTOCK_EVENT_CREATE) : 1);
}

TEST(deferral_ends_with_the_deadline) {
  for (int i = 0; i < 6; i++) check_pause_ends(pausable[i], BY_DEADLINE);
}
TEST(deferral_ends_with_a_cancel) {
  for (int i = 0; i < 6; i++) check_pause_ends(pausable[i], BY_CANCEL);
}
TEST(deferral_ends_with_the_channel) {
  for (int i = 0; i < 6; i++) check_pause_ends(pausable[i], BY_CLOSE);
}

/* ---- resume_after ---- */

typedef struct later {
  uint64_t first, second; /* milliseconds */
  bool resumes;
} later;

static int32_t pause_for(probe *self, penstock_hop *hop, int32_t event) {
  later *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, plan->first));
  OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, plan->second));
  if (plan->resumes) OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  return PENSTOCK_PAUSE;
}

/* resume_after is called twice for one ticket: the earlier time ends the pause, and the later one has no effect. If the
 * ticket is resolved before both, neither time has an effect. */
TEST(deferral_resume_after) {
  static const struct {
    later plan;
    int64_t at_least, below;
  } cases[] = {{{40, 60000, false}, 40, 20000},
               {{60000, 40, false}, 40, 20000},
               {{60000, UINT64_MAX, true}, 0, 20000},
               {{0, 0, false}, 0, 20000}};
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 4; i++) {
    probe probe;
    later plan = cases[i].plan;
    probe_init_with(&probe, "later", pause_for, &plan);
    penstock_interceptor_id id = probe_add(&probe, channel, 0);
    int64_t started = test_now_ms();
    check_echo(channel);
    int64_t took = test_now_ms() - started;
    CHECK(took >= cases[i].at_least && took < cases[i].below * test_slow());
    OK(penstock_registration_remove(id, NULL));
    check_ended(&probe);
  }
  penstock_channel_release(channel);
}

/* ---- Thousands of tickets in one call ---- */

typedef struct hoard {
  penstock_ticket *tickets;
  atomic_int count, next;
  latch full;
  int limit;
} hoard;

static int32_t hoard_each(probe *self, penstock_hop *hop, int32_t event) {
  hoard *hoard = self->context;
  if (event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  int at = atomic_fetch_add(&hoard->count, 1);
  if (at >= hoard->limit) return PENSTOCK_NEXT;
  hoard->tickets[at] = penstock_hop_ticket(hop);
  if (at + 1 == hoard->limit) latch_signal(&hoard->full);
  return PENSTOCK_HOLD;
}

static void *resolve_all(void *pointer) {
  hoard *hoard = pointer;
  for (int i; (i = atomic_fetch_add(&hoard->next, 1)) < hoard->limit;) {
    OK(penstock_ticket_resolve(hoard->tickets[i], PENSTOCK_NEXT));
    /* If this was the last ticket, the call may have ended: then the result is E_GONE. */
    penstock_result again = penstock_ticket_resolve(hoard->tickets[i], PENSTOCK_DROP);
    CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  }
  return NULL;
}

static void count_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  collector *collector = user_data;
  int number = 0;
  memcpy(&number, penstock_message_bytes(message, NULL), sizeof(number));
  CHECK_INT(number, atomic_fetch_add(&collector->messages, 1));
}

/* All tickets are open at once, and four threads resolve them in any order: the messages go up in their own order. */
TEST(deferral_ten_thousand_tickets_in_one_call) {
  hoard hoard = {NULL, 0, 0, LATCH_INIT, test_slow() == 1 ? 10000 : 1000};
  hoard.tickets = calloc((size_t)hoard.limit, sizeof(*hoard.tickets));
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "hoard", hoard_each, &hoard);
  penstock_interceptor table = probe_table(&probe);
  table.hold_bytes = 1 << 20;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  collector collector = COLLECTOR_INIT;
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = &collector;
  callbacks.finalizer = collector_finalizer;
  callbacks.on_message = count_message;
  callbacks.on_reply = collect_reply;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &call, NULL));
  OK(penstock_call_demand(call, (uint64_t)hoard.limit));
  for (int i = 0; i < hoard.limit; i++) {
    penstock_result result;
    while ((result = penstock_call_try_send(call, &i, sizeof(i))) == PENSTOCK_E_WOULD_BLOCK) test_pause();
    OK(result);
  }
  OK(penstock_call_half_close(call));
  latch_wait(&hoard.full, 1);
  CHECK_INT(atomic_load(&collector.messages), 0);
  for (int i = hoard.limit - 1; i > 0; i--) {
    int other = (int)test_random((uint32_t)i + 1);
    penstock_ticket ticket = hoard.tickets[i];
    hoard.tickets[i] = hoard.tickets[other];
    hoard.tickets[other] = ticket;
  }
  int64_t started = test_now_ms();
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, resolve_all, &hoard);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  latch_wait(&collector.finalized, 1);
  printf("  %d tickets resolved in %lld ms\n", hoard.limit, (long long)(test_now_ms() - started));
  CHECK_INT(collector.code, 0);
  CHECK_INT(atomic_load(&collector.messages), hoard.limit);
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&probe);
  free(hoard.tickets);
}

/* ---- The memory that is kept during a pause ---- */

enum { LARGE = 300000, HUGE = 3000000, PAUSERS = 3 };

static bool is_outbound(int32_t event) { return event <= PENSTOCK_EVENT_HALF_CLOSE; }

typedef struct kept {
  long bytes;    /* how many more bytes are allocated than before the call */
  long accepted; /* messages of the caller that were accepted */
  long received; /* messages that the peer has sent */
} kept;

/* Measures the memory that a call keeps while the first of three pausing hops that `event` reaches is paused. The
 * caller sends one message or, in a bidi call, as many as are accepted before the pause; unless the call is unary, the
 * caller asks for a thousand messages. Then the test waits long enough for all that can come. */
static bool measure(int32_t event, int32_t kind, size_t size, long limit, kept *kept) {
  observed observed;
  if (!observe(&observed, "{\"tls\": false}")) return false;
  const char *method = kind == PENSTOCK_KIND_UNARY ? UNARY : kind == PENSTOCK_KIND_BIDI ? BIDI : SERVER_STREAM;
  echo_times(observed.channel, 20);
  probe probes[PAUSERS];
  pauser pausers[PAUSERS];
  for (int i = 0; i < PAUSERS; i++) {
    pausers[i] = (pauser){event, NULL, 0, LATCH_INIT};
    pauser_init(&probes[i], &pausers[i], "slow");
    penstock_interceptor table = probe_table(&probes[i]);
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(observed.channel, &table, PAUSERS - i, &id, NULL));
  }
  char *data = calloc(1, size);
  long before = bytes_in_use();
  collector collector = COLLECTOR_INIT;
  penstock_call *call =
      start_collecting(observed.channel, method, kind,
                       kind != PENSTOCK_KIND_SERVER_STREAM ? NULL
                       : event == PENSTOCK_EVENT_STATUS    ? "{\"metadata\": {\"x-count\": \"6\"}}"
                                                           : "{\"metadata\": {\"x-count\": \"2000000000\"}}",
                       &collector);
  long accepted = 0;
  if (kind == PENSTOCK_KIND_BIDI && event != PENSTOCK_EVENT_HALF_CLOSE && event != PENSTOCK_EVENT_STATUS) {
    OK(penstock_call_demand(call, 1000));
    for (int idle = 0; idle < 20;) {
      penstock_result result = penstock_call_try_send(call, data, size);
      if (result == PENSTOCK_OK) {
        accepted++, idle = 0;
        continue;
      }
      CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
      test_pause();
      idle++;
    }
  } else {
    OK(penstock_call_try_send(call, data, size));
    accepted = 1;
    OK(penstock_call_half_close(call));
    if (kind != PENSTOCK_KIND_UNARY) OK(penstock_call_demand(call, 1000));
  }
  int first = is_outbound(event) ? 0 : PAUSERS - 1;
  bool paused = latch_wait(&pausers[first].paused, 1);
  /* The test waits a while, because no signal says that nothing more will come. */
  for (int i = 0; i < 30; i++) test_pause();
  kept->bytes = bytes_in_use() - before;
  /* Data that is still being written is not kept memory, so the test waits until less memory is in use. */
  for (int i = 0; i < 2000 && kept->bytes >= limit; i++) {
    test_pause();
    kept->bytes = bytes_in_use() - before;
  }
  kept->accepted = accepted;
  OK(penstock_call_cancel(call, NULL));
  latch_wait(&collector.finalized, 1);
  penstock_call_release(call);
  if (kind != PENSTOCK_KIND_UNARY && event != PENSTOCK_EVENT_START) {
    kept->received = latch_wait(&observed.ended, 1) ? observed.out : 0;
  }
  free(data);
  close_observed(&observed);
  for (int i = 0; i < PAUSERS; i++) check_ended(&probes[i]);
  return paused;
}

/* The limit is a sum: 384 KiB for the send buffer and for a channel without calls; one message on its way out and one
 * on its way in (a unary call has only one of them at a time, and at the headers no response message has come); and the
 * stream's window, if answers can come during the pause. */
static long limit_of(int32_t event, int32_t kind, long size) {
  long limit = 384 << 10;
  if (kind != PENSTOCK_KIND_UNARY) limit += size;
  if (event != PENSTOCK_EVENT_HEADERS) limit += size;
  /* The answers of a bidi call may come while its request waits. */
  if (!is_outbound(event) || kind == PENSTOCK_KIND_BIDI) limit += WINDOW;
  return limit;
}

/* The limits of docs/hops.md, "Memory of a call", hold for any number of messages. */
TEST(deferral_keeps_what_the_design_names) {
  static const int32_t kinds[] = {PENSTOCK_KIND_UNARY, PENSTOCK_KIND_SERVER_STREAM, PENSTOCK_KIND_BIDI};
  static const char *const names[] = {"unary", "server stream", "bidi"};
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < 6; i++) {
      int32_t event = pausable[i];
      long size = k == 0 ? HUGE : LARGE, limit = limit_of(event, kinds[k], size);
      kept kept = {0, 0, 0};
      if (!measure(event, kinds[k], (size_t)size, limit, &kept)) continue;
      printf("  %s of %ld KiB, paused at %s: %ld taken, %ld sent by the server, %ld KiB kept of at most %ld\n",
             names[k], size / 1024, event_name(event), kept.accepted, kept.received, kept.bytes / 1024, limit / 1024);
      if (test_slow() == 1) CHECK(kept.bytes < limit);
      /* The server has sent no more than fills the window; the caller has sent no more than fills both windows and the
       * buffers on the way. */
      CHECK(kept.received <= 6 && kept.received * LARGE <= WINDOW + PEER_KEEPS + 3 * LARGE);
      CHECK(kept.accepted * size <= 2 * WINDOW + 3 * PEER_KEEPS + SEND_BUFFER + 2 * size);
      if (event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_SEND) CHECK_INT(kept.accepted, 1);
    }
  }
}

/* ---- With messages that hops hold and record ---- */

enum { PIECE = 30000, PIECES = 8 };

/* Holds the first PIECES messages of a lane, then pauses. */
static int32_t hold_then_pause(probe *self, penstock_hop *hop, int32_t event) {
  pauser *pauser = self->context;
  if (event != pauser->event) return PENSTOCK_NEXT;
  if (seen(self, event) <= PIECES) return PENSTOCK_HOLD;
  if (!pauser->ticket) {
    pauser->ticket = penstock_hop_ticket(hop);
    latch_signal(&pauser->paused);
  }
  return PENSTOCK_PAUSE;
}

/* Checks how much memory is kept in the lane of `event` while one hop keeps the request for a RESTART, and the hop below
 * it holds up to hold_bytes and then pauses. */
static void check_kept_by_hops(int32_t event) {
  observed observed;
  if (!observe(&observed, "{\"tls\": false}")) return;
  echo_times(observed.channel, 20);
  probe recorder, holder;
  pauser pauser = {event, NULL, 0, LATCH_INIT};
  probe_init(&recorder, "recorder");
  probe_init_with(&holder, "holder", hold_then_pause, &pauser);
  penstock_interceptor tables[2] = {probe_table(&recorder), probe_table(&holder)};
  tables[0].replay_bytes = 1 << 20;
  tables[1].hold_bytes = PIECES * PIECE;
  for (int i = 0; i < 2; i++) {
    penstock_interceptor_id id = 0;
    tables[i].methods = BIDI;
    OK(penstock_channel_add_interceptor(observed.channel, &tables[i], 2 - i, &id, NULL));
  }
  char *data = calloc(1, PIECE);
  long before = bytes_in_use(), accepted = 0;
  collector collector = COLLECTOR_INIT;
  penstock_call *call = start_collecting(observed.channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
  OK(penstock_call_demand(call, 1000));
  for (int idle = 0; idle < 20;) {
    penstock_result result = penstock_call_try_send(call, data, PIECE);
    if (result == PENSTOCK_OK) {
      accepted++, idle = 0;
    } else {
      CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
      check_echo(observed.channel);
      idle++;
    }
  }
  latch_wait(&pauser.paused, 1);
  long kept = bytes_in_use() - before;
  /* The limit is the sum of the held messages, the paused message, the send buffer, and 384 KiB for everything else. If
   * answers wait, the requests have passed: then the stream's window and the recording are added. */
  long limit = PIECES * PIECE + PIECE + SEND_BUFFER + (384 << 10);
  limit += event == PENSTOCK_EVENT_SEND ? 0 : WINDOW + (1 << 20);
  printf("  %ld taken, %ld KiB kept of at most %ld\n", accepted, kept / 1024, limit / 1024);
  if (test_slow() == 1) CHECK(kept < limit);
  if (event == PENSTOCK_EVENT_SEND) CHECK(accepted <= PIECES + 1 + SEND_BUFFER / PIECE);
  OK(penstock_call_cancel(call, NULL));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  free(data);
  close_observed(&observed);
  check_ended(&recorder);
  check_ended(&holder);
}

TEST(deferral_keeps_what_hops_hold_and_record) {
  check_kept_by_hops(PENSTOCK_EVENT_SEND);
  check_kept_by_hops(PENSTOCK_EVENT_RECEIVE);
}
