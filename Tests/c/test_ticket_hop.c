/* penstock_ticket_hop: another thread delivers messages, or changes the event, through the hop that it gets from a
 * ticket; no callback has retained that hop. */
#include "calls.h"
#include "unary.h"

typedef struct pauser {
  int32_t event;
  latch paused;
  penstock_ticket ticket;
} pauser;

static int32_t pause_once(probe *self, penstock_hop *hop, int32_t event) {
  pauser *pauser = self->context;
  if (event != pauser->event) return PENSTOCK_NEXT;
  pauser->ticket = penstock_hop_ticket(hop);
  latch_signal(&pauser->paused);
  return PENSTOCK_PAUSE;
}

/* Waits until the hop pauses, and gets the hop by its ticket. */
static penstock_hop *hop_of(pauser *pauser) {
  penstock_hop *hop = NULL;
  latch_wait(&pauser->paused, 1);
  OK(penstock_ticket_hop(pauser->ticket, &hop));
  return hop;
}

/* Messages may be delivered before they are asked for, before and after TAKE, up to hold_bytes. */
TEST(ticket_hop_answers_before_it_is_asked) {
  enum { size = 64, fit = 65536 / size };
  static const char data[size];
  penstock_channel *channel = open_channel();
  pauser pauser = {PENSTOCK_EVENT_START, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "stub", pause_once, &pauser);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_hop *hop = hop_of(&pauser);
  for (int i = 0; i < fit / 2; i++) OK(penstock_hop_deliver(hop, data, size));
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_TAKE));
  for (int i = fit / 2; i < fit; i++) OK(penstock_hop_deliver(hop, data, size));
  CHECK_RESULT(penstock_hop_deliver(hop, data, size), PENSTOCK_E_WOULD_BLOCK);
  penstock_message *message = NULL;
  for (int i = 0; i <= fit; i++) {
    if (i == 1) EVENTUALLY(penstock_hop_deliver(hop, data, size) == PENSTOCK_OK);
    if (!OK(penstock_call_receive(call, &message))) break;
    CHECK_INT(message_length(message), size);
    penstock_message_release(message);
  }
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_hop_deliver_status(hop, status));
  penstock_status_release(status);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  CHECK_RESULT(penstock_hop_deliver(hop, data, size), PENSTOCK_E_GONE);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The hop injects the message that the caller has asked for, before any message of the server. */
static void *receive_two(void *call) {
  CHECK_MESSAGE(call, "put in");
  CHECK_MESSAGE(call, "a");
  return NULL;
}
TEST(ticket_hop_puts_in_a_message_that_is_asked_for) {
  penstock_channel *channel = open_channel();
  pauser pauser = {PENSTOCK_EVENT_HEADERS, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "injector", pause_once, &pauser);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_hop *hop = hop_of(&pauser);
  CHECK_RESULT(penstock_hop_deliver(hop, "early", 5), PENSTOCK_E_WOULD_BLOCK);
  pthread_t reader;
  pthread_create(&reader, NULL, receive_two, call);
  EVENTUALLY(penstock_hop_deliver(hop, "put in", 6) == PENSTOCK_OK);
  CHECK_RESULT(penstock_hop_deliver(hop, "more", 4), PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT));
  OK(penstock_call_send(call, "a", 1));
  pthread_join(reader, NULL);
  OK(penstock_call_half_close(call));
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- The message of a callback that returns HOLD, while another thread replaces it ---- */

enum { HOLD_BYTES = 1000, REPLACEMENTS = 100 };

typedef struct holder {
  size_t size; /* of the message that the thread puts in; 0: one after another, of 1 to REPLACEMENTS bytes */
  latch held;
  penstock_ticket ticket;
  penstock_hop *hop;
  atomic_bool begun;
  pthread_t thread;
} holder;

static void *replace(void *context) {
  static const char data[2 * HOLD_BYTES];
  holder *holder = context;
  if (holder->size > 0) {
    OK(penstock_hop_set_bytes(holder->hop, data, holder->size));
    return NULL;
  }
  for (size_t i = 1; i <= REPLACEMENTS; i++) {
    OK(penstock_hop_set_bytes(holder->hop, data, i));
    /* A stronger order would hide a race from ThreadSanitizer. */
    atomic_store_explicit(&holder->begun, true, memory_order_relaxed);
  }
  return NULL;
}

/* Gives the hop to another thread. If that thread puts in one message, it has done so when the callback returns. */
static int32_t hold_and_replace(probe *self, penstock_hop *hop, int32_t event) {
  holder *holder = self->context;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  holder->ticket = penstock_hop_ticket(hop);
  OK(penstock_ticket_hop(holder->ticket, &holder->hop));
  atomic_store(&holder->begun, false);
  pthread_create(&holder->thread, NULL, replace, holder);
  if (holder->size > 0) {
    pthread_join(holder->thread, NULL);
  } else {
    while (!atomic_load_explicit(&holder->begun, memory_order_relaxed)) continue;
  }
  latch_signal(&holder->held);
  return PENSTOCK_HOLD;
}

static penstock_call *start_held(penstock_channel *channel, probe *probe, holder *holder) {
  probe_init_with(probe, "holder", hold_and_replace, holder);
  penstock_interceptor table = probe_table(probe);
  table.hold_bytes = HOLD_BYTES;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  return start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
}

static void check_length(penstock_call *call, size_t length) {
  penstock_message *message = NULL;
  if (!OK(penstock_call_receive(call, &message))) return;
  CHECK_INT(message_length(message), length);
  penstock_message_release(message);
}

TEST(ticket_hop_replaces_a_message_while_its_callback_returns_hold) {
  penstock_channel *channel = open_channel();
  holder holder = {0, LATCH_INIT, 0, NULL, false, 0};
  probe probe;
  penstock_call *call = start_held(channel, &probe, &holder);
  for (int i = 1; i <= test_rounds(20); i++) {
    OK(penstock_call_send(call, "x", 1));
    latch_wait(&holder.held, i);
    pthread_join(holder.thread, NULL);
    penstock_hop_release(holder.hop);
    OK(penstock_ticket_resolve(holder.ticket, PENSTOCK_NEXT));
    check_length(call, REPLACEMENTS);
  }
  OK(penstock_call_half_close(call));
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* A held message counts toward hold_bytes with the size that it has when its callback has returned, and gives back
 * exactly that number, whatever is put in while it waits. A hop above is told `sent` when the message is held. */
TEST(ticket_hop_counts_a_replaced_message_once) {
  static const char data[2 * HOLD_BYTES];
  penstock_channel *channel = open_channel();
  holder holder = {10, LATCH_INIT, 0, NULL, false, 0};
  probe probe, above;
  probe_init(&above, "above");
  probe_add(&above, channel, 1);
  penstock_call *call = start_held(channel, &probe, &holder);
  for (int i = 0; i < 2; i++) {
    OK(penstock_call_send(call, data, sizeof(data)));
    EVENTUALLY(atomic_load(&above.seen[PENSTOCK_EVENT_SENT]) == i + 1);
    OK(penstock_hop_set_bytes(holder.hop, data, sizeof(data)));
    penstock_hop_release(holder.hop);
    holder.size = HOLD_BYTES;
    OK(penstock_ticket_resolve(holder.ticket, PENSTOCK_NEXT));
    check_length(call, sizeof(data));
  }
  /* Both do not fit: together they are one byte too large. */
  OK(penstock_call_send(call, "x", 1));
  EVENTUALLY(atomic_load(&above.seen[PENSTOCK_EVENT_SENT]) == 3);
  penstock_hop_release(holder.hop);
  holder.size = 1;
  OK(penstock_call_send(call, "x", 1));
  CHECK_FINISH(call, PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  penstock_hop_release(holder.hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  probe_wait_finalized(&above);
}
