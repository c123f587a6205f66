/* The counts of demanded messages and of sent messages stay exact, whatever a hop does. The hop under test is between a
 * caller and a hop that has taken the call and counts the demand. docs/hops.md, "Demand". */
#include "others.h"

typedef int32_t (*hook)(probe *, penstock_hop *, int32_t);

typedef struct line {
  penstock_channel *channel;
  penstock_call *call;
  collector caller;
  probe middle, end;
  penstock_hop *middle_hop, *end_hop;
  atomic_int asked; /* the total demand that has reached the bottom hop */
  latch taken, paused;
  penstock_ticket ticket;
  int lowered;
  bool records;
} line;

static int32_t far_end(probe *self, penstock_hop *hop, int32_t event) {
  line *line = self->context;
  if (event == PENSTOCK_EVENT_DEMAND) atomic_fetch_add(&line->asked, (int)penstock_hop_count(hop));
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_hop_release(line->end_hop);
  line->end_hop = penstock_hop_retain(hop);
  latch_signal(&line->taken);
  return PENSTOCK_TAKE;
}

static void add_to_streams(line *line, probe *probe, const char *name, hook hook, int32_t priority,
                           size_t replay_bytes) {
  probe_init(probe, name);
  probe->hook = hook;
  probe->context = line;
  penstock_interceptor table = probe_table(probe);
  table.methods = BIDI;
  table.replay_bytes = replay_bytes;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(line->channel, &table, priority, &id, NULL));
}

static void line_open_recording(line *line, hook middle, size_t replay_bytes) {
  memset(line, 0, sizeof(*line));
  line->records = replay_bytes > 0;
  line->channel = open_channel();
  line->taken = line->paused = (latch)LATCH_INIT;
  line->caller = (collector)COLLECTOR_INIT;
  add_to_streams(line, &line->middle, "middle", middle, 2, replay_bytes);
  add_to_streams(line, &line->end, "end", far_end, 1, 0);
  line->call = start_collecting(line->channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &line->caller);
}

static void line_open(line *line, hook middle) {
  line_open_recording(line, middle, 0);
  latch_wait(&line->taken, 1);
}

static void line_close(line *line) {
  OK(penstock_call_cancel(line->call, NULL));
  latch_wait(&line->caller.finalized, 1);
  penstock_call_release(line->call);
  penstock_hop_release(line->middle_hop);
  penstock_hop_release(line->end_hop);
  penstock_channel_release(line->channel);
  /* A hop that begins the call again sees more than one status. */
  if (line->records) {
    probe_wait_finalized(&line->middle);
  } else {
    check_ended(&line->middle);
  }
  check_ended(&line->end);
}

/* Makes another call, so that all earlier requests have been carried out. Then checks that the bottom hop has been
 * asked for `asked` messages in all, and that the caller has got `got`. */
#define CHECK_LINE(line, asked_, got_)                                                                                 \
  do {                                                                                                                 \
    check_echo((line)->channel);                                                                                       \
    CHECK_INT(atomic_load(&(line)->asked), asked_);                                                                    \
    CHECK_INT(atomic_load(&(line)->caller.messages), got_);                                                            \
  } while (0)

static void ask(line *line, uint64_t n) { OK(penstock_call_demand(line->call, n)); }

static void deliver(line *line, const char *messages) {
  for (; *messages; messages++) OK(penstock_hop_deliver(line->end_hop, messages, 1));
}
static int32_t pass(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop, (void)event;
  return PENSTOCK_NEXT;
}

TEST(demand_passes) {
  line line;
  line_open(&line, pass);
  ask(&line, 5);
  CHECK_LINE(&line, 5, 0);
  deliver(&line, "abcde");
  CHECK_LINE(&line, 5, 5);
  CHECK_STR(line.caller.text, "abcde");
  line_close(&line);
}

/* What nobody has asked for waits: one message always has room, others up to hold_bytes. */
TEST(demand_is_not_needed_for_one_message) {
  static const char large[65537];
  line line;
  line_open(&line, pass);
  OK(penstock_hop_deliver(line.end_hop, large, sizeof(large)));
  CHECK_RESULT(penstock_hop_deliver(line.end_hop, "b", 1), PENSTOCK_E_WOULD_BLOCK);
  CHECK_LINE(&line, 0, 0);
  ask(&line, 1);
  CHECK_LINE(&line, 1, 1);
  OK(penstock_hop_deliver(line.end_hop, "b", 1));
  CHECK_RESULT(penstock_hop_deliver(line.end_hop, large, sizeof(large)), PENSTOCK_E_WOULD_BLOCK);
  ask(&line, 1);
  CHECK_LINE(&line, 2, 2);
  line_close(&line);
}

static int32_t lower(probe *self, penstock_hop *hop, int32_t event) {
  line *line = self->context;
  if (event == PENSTOCK_EVENT_CREATE) line->middle_hop = penstock_hop_retain(hop);
  if (event == PENSTOCK_EVENT_DEMAND) OK(penstock_hop_set_count(hop, 2));
  return PENSTOCK_NEXT;
}

TEST(demand_lowered_is_asked_for_later) {
  line line;
  line_open(&line, lower);
  ask(&line, 5);
  CHECK_LINE(&line, 2, 0);
  deliver(&line, "ab");
  OK(penstock_hop_demand(line.middle_hop, 3));
  CHECK_LINE(&line, 5, 2);
  deliver(&line, "cde");
  CHECK_LINE(&line, 5, 5);
  CHECK_STR(line.caller.text, "abcde");
  line_close(&line);
}

static int32_t raise_first(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DEMAND && seen(self, event) == 1) {
    OK(penstock_hop_set_count(hop, penstock_hop_count(hop) + 3));
  }
  return PENSTOCK_NEXT;
}

/* The hop adds three to the first demand only. So three messages more than the caller has asked for wait at the hop,
 * and their number stays the same with each later demand. */
TEST(demand_raised_reads_ahead) {
  line line;
  line_open(&line, raise_first);
  ask(&line, 2);
  CHECK_LINE(&line, 5, 0);
  deliver(&line, "abcde");
  CHECK_LINE(&line, 5, 2);
  ask(&line, 3);
  CHECK_LINE(&line, 8, 5);
  deliver(&line, "fgh");
  CHECK_LINE(&line, 8, 5);
  ask(&line, 3);
  CHECK_LINE(&line, 11, 8);
  CHECK_STR(line.caller.text, "abcdefgh");
  line_close(&line);
}

static int32_t drop_second(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  bool message = event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE;
  return message && seen(self, event) % 2 == 0 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

TEST(demand_of_a_dropped_message_is_renewed) {
  line line;
  line_open(&line, drop_second);
  ask(&line, 3);
  CHECK_LINE(&line, 3, 0);
  deliver(&line, "axb");
  CHECK_LINE(&line, 4, 2);
  deliver(&line, "y");
  CHECK_LINE(&line, 5, 2);
  deliver(&line, "c");
  CHECK_LINE(&line, 5, 3);
  CHECK_STR(line.caller.text, "abc");
  /* Outbound: each message of the caller is reported as sent once, whether it is dropped or not. */
  for (int i = 0; i < 6; i++) OK(penstock_call_try_send(line.call, "m", 1));
  CHECK_LINE(&line, 5, 3);
  CHECK_INT(atomic_load(&line.caller.sent), 6);
  CHECK_INT(seen(&line.end, PENSTOCK_EVENT_SEND), 3);
  line_close(&line);
}

static int32_t inject_before(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE) {
    penstock_result result = penstock_hop_deliver(hop, "+", 1);
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_WOULD_BLOCK);
  }
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_send(hop, "+", 1));
  return PENSTOCK_NEXT;
}

/* An injected message uses demand that the hop has passed down already: so the hop passes down that much less of the
 * next demand, and the number of messages that wait at the hop does not grow with each injection. */
TEST(demand_is_spent_by_an_injected_message) {
  line line;
  line_open(&line, inject_before);
  ask(&line, 4);
  CHECK_LINE(&line, 4, 0);
  deliver(&line, "ab");
  CHECK_LINE(&line, 4, 4);
  deliver(&line, "cd");
  CHECK_LINE(&line, 4, 4);
  ask(&line, 2);
  CHECK_LINE(&line, 4, 6);
  ask(&line, 1);
  CHECK_LINE(&line, 5, 6);
  deliver(&line, "e");
  CHECK_LINE(&line, 5, 7);
  ask(&line, 1);
  CHECK_LINE(&line, 5, 8);
  CHECK_STR(line.caller.text, "+a+bcd+e");
  /* Outbound: on_sent for an injected message comes only to the hop that has injected it. */
  for (int i = 0; i < 3; i++) OK(penstock_call_try_send(line.call, "m", 1));
  CHECK_LINE(&line, 5, 8);
  CHECK_INT(atomic_load(&line.caller.sent), 3);
  CHECK_INT(seen(&line.end, PENSTOCK_EVENT_SEND), 6);
  line_close(&line);
}

static int32_t hold_until_fourth(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  bool message = event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE;
  return message && seen(self, event) % 4 ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

/* For a held message the hop asks for one more at once. So after the held message has gone up, the next message that
 * the caller asks for is already there. */
TEST(demand_of_a_held_message_is_renewed_once) {
  line line;
  line_open(&line, hold_until_fourth);
  ask(&line, 1);
  CHECK_LINE(&line, 1, 0);
  deliver(&line, "a");
  CHECK_LINE(&line, 2, 0);
  deliver(&line, "b");
  CHECK_LINE(&line, 3, 0);
  deliver(&line, "c");
  CHECK_LINE(&line, 4, 0);
  deliver(&line, "d");
  for (int got = 1; got < 4; got++) {
    CHECK_LINE(&line, 4, got);
    ask(&line, 1);
  }
  CHECK_LINE(&line, 4, 4);
  ask(&line, 1);
  CHECK_LINE(&line, 5, 4);
  CHECK_STR(line.caller.text, "abcd");
  /* Outbound: a message is reported as sent when it is held, and not again. */
  for (int i = 0; i < 3; i++) OK(penstock_call_try_send(line.call, "m", 1));
  CHECK_LINE(&line, 5, 4);
  CHECK_INT(atomic_load(&line.caller.sent), 3);
  CHECK_INT(seen(&line.end, PENSTOCK_EVENT_SEND), 0);
  OK(penstock_call_try_send(line.call, "m", 1));
  CHECK_LINE(&line, 5, 4);
  CHECK_INT(atomic_load(&line.caller.sent), 4);
  CHECK_INT(seen(&line.end, PENSTOCK_EVENT_SEND), 4);
  line_close(&line);
}

static int32_t pause_start(probe *self, penstock_hop *hop, int32_t event) {
  line *line = self->context;
  if (event == PENSTOCK_EVENT_START) {
    line->middle_hop = penstock_hop_retain(hop);
    line->ticket = penstock_hop_ticket(hop);
    latch_signal(&line->paused);
    return PENSTOCK_PAUSE;
  }
  return event == PENSTOCK_EVENT_STATUS && seen(self, event) == 1 ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static int32_t restart_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  return event == PENSTOCK_EVENT_STATUS && seen(self, event) == 1 ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

/* When a hop begins the call again, what was asked for below it, and has not come, is asked for again: by the hop itself
 * before its start went down, and by the caller. */
TEST(demand_is_repeated_by_a_restart) {
  line line;
  line_open_recording(&line, pause_start, 100);
  latch_wait(&line.paused, 1);
  OK(penstock_hop_demand(line.middle_hop, 2));
  ask(&line, 1);
  CHECK_LINE(&line, 0, 0);
  OK(penstock_ticket_resolve(line.ticket, PENSTOCK_NEXT));
  latch_wait(&line.taken, 1);
  CHECK_LINE(&line, 3, 0);
  OK(penstock_hop_end(line.end_hop, PENSTOCK_STATUS_UNAVAILABLE, "again"));
  latch_wait(&line.taken, 2);
  CHECK_LINE(&line, 6, 0);
  line_close(&line);
  line_open_recording(&line, restart_once, 100);
  latch_wait(&line.taken, 1);
  ask(&line, 3);
  CHECK_LINE(&line, 3, 0);
  OK(penstock_hop_end(line.end_hop, PENSTOCK_STATUS_UNAVAILABLE, "again"));
  latch_wait(&line.taken, 2);
  CHECK_LINE(&line, 6, 0);
  deliver(&line, "abc");
  CHECK_LINE(&line, 6, 3);
  line_close(&line);
}

static int32_t answer_demand(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_DEMAND) OK(penstock_hop_deliver(hop, "*", 1));
  return PENSTOCK_NEXT;
}

/* A hop answers each demand with a message of its own: however often it does so, only one message is asked for below
 * it. */
TEST(demand_answered_by_the_hop_itself) {
  line line;
  line_open(&line, answer_demand);
  for (int i = 1; i <= 50; i++) {
    ask(&line, 1);
    CHECK_LINE(&line, 1, i);
  }
  deliver(&line, "a");
  CHECK_LINE(&line, 1, 50);
  line_close(&line);
}

/* ---- A run: neighbouring hops that share their counts, until one sends or delivers a message of its own ---- */

typedef struct echoes {
  penstock_hop *upper, *lower;
  atomic_int count;
  latch messages, ended;
} echoes;

static int32_t keep(probe *self, penstock_hop *hop, int32_t event) {
  penstock_hop **place = self->context;
  if (event == PENSTOCK_EVENT_CREATE) *place = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}

/* At the first message the lower hop sends a message of its own to the server: from then on this hop has counts of its
 * own. */
static void put_one_in(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call, (void)message;
  echoes *echoes = user_data;
  /* The callbacks of both hops have returned. */
  CHECK_INT(penstock_hop_event(echoes->upper), PENSTOCK_EVENT_NONE);
  CHECK_INT(penstock_hop_event(echoes->lower), PENSTOCK_EVENT_NONE);
  if (atomic_fetch_add(&echoes->count, 1) == 0) OK(penstock_hop_send(echoes->lower, "3", 1));
  latch_signal(&echoes->messages);
}

static void note_end(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)reply;
  latch_signal(&((echoes *)user_data)->ended);
}

/* The caller asks for three messages at once. After the first of them the lower hop gets counts of its own; the caller
 * still gets the other two. */
TEST(demand_stays_when_a_hop_leaves_the_others_between_messages) {
  echoes echoes = {NULL, NULL, 0, LATCH_INIT, LATCH_INIT};
  penstock_channel *channel = open_channel();
  probe upper, lower;
  probe_init_with(&upper, "upper", keep, &echoes.upper);
  probe_init_with(&lower, "lower", keep, &echoes.lower);
  probe_add(&upper, channel, 2);
  probe_add(&lower, channel, 1);
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &echoes;
  table.on_message = put_one_in;
  table.on_reply = note_end;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
  OK(penstock_call_demand(call, 3));
  OK(penstock_call_try_send(call, "1", 1));
  OK(penstock_call_try_send(call, "2", 1));
  latch_wait(&echoes.messages, 3);
  OK(penstock_call_cancel(call, NULL));
  latch_wait(&echoes.ended, 1);
  penstock_hop_release(echoes.upper);
  penstock_hop_release(echoes.lower);
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&upper);
  check_ended(&lower);
}

static void *deliver_a_status(void *hop) {
  penstock_status *status = NULL;
  penstock_status_new(0, NULL, &status);
  penstock_result result = penstock_hop_deliver_status(hop, status);
  penstock_status_release(status);
  return (void *)(intptr_t)result;
}

static int32_t deliver_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_DEMAND) return PENSTOCK_NEXT;
  pthread_t thread;
  void *result = NULL;
  pthread_create(&thread, NULL, deliver_a_status, hop);
  pthread_join(thread, &result);
  CHECK_RESULT((penstock_result)(intptr_t)result, PENSTOCK_E_STATE);
  return PENSTOCK_NEXT;
}

/* The hop's verdict on the start was NEXT, so it can't answer the call any more. In on_demand, which follows the start,
 * another thread tries to deliver a status, and is refused. */
TEST(demand_comes_behind_a_start_that_has_passed) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "probe", deliver_elsewhere, NULL);
  probe_add(&probe, channel, 1);
  check_echo(channel);
  CHECK(seen(&probe, PENSTOCK_EVENT_DEMAND) >= 1);
  penstock_channel_release(channel);
  check_ended(&probe);
}
