/* Flow control through a chain: a slow reader stops the server, a slow server stops the sender, the memory in use stays
 * limited, and the counts of demanded and of sent messages stay exact, whatever hops do. docs/hops.md,
 * "Demand". */
#include "observed.h"

/* ---- Eight hops, each with a different task ---- */

enum { HOPS = 8, SIZE = 10000 };

static atomic_int injected, dropped;

static int32_t pause_each(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_RECEIVE && event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  OK(penstock_ticket_resolve_after(penstock_hop_ticket(hop), PENSTOCK_NEXT, 0));
  return PENSTOCK_PAUSE;
}
static int32_t hold_some(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event != PENSTOCK_EVENT_RECEIVE && event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  return atomic_load(&self->seen[event]) % 4 ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}
static int32_t ask_late(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_DEMAND) {
    /* Passes no demand down. Instead the hop itself asks for the same number of messages. */
    uint64_t n = penstock_hop_count(hop);
    OK(penstock_hop_set_count(hop, 0));
    OK(penstock_hop_demand(hop, n));
  }
  return PENSTOCK_NEXT;
}
enum { AHEAD = 4 };
static int32_t ask_ahead(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DEMAND && atomic_load(&self->seen[event]) == 1) {
    OK(penstock_hop_set_count(hop, penstock_hop_count(hop) + AHEAD));
  }
  return PENSTOCK_NEXT;
}
static int32_t drop_tenth(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event != PENSTOCK_EVENT_RECEIVE && event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  if (atomic_load(&self->seen[event]) % 10 != 5) return PENSTOCK_NEXT;
  atomic_fetch_add(&dropped, 1);
  return PENSTOCK_DROP;
}
static int32_t inject_tenth(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_RECEIVE && event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  if (atomic_load(&self->seen[event]) % 10 != 7) return PENSTOCK_NEXT;
  penstock_result result =
      event == PENSTOCK_EVENT_SEND ? penstock_hop_send(hop, "injected", 8) : penstock_hop_deliver(hop, "injected", 8);
  CHECK(result == PENSTOCK_OK || (event == PENSTOCK_EVENT_RECEIVE && result == PENSTOCK_E_WOULD_BLOCK));
  atomic_fetch_add(&injected, result == PENSTOCK_OK);
  return PENSTOCK_NEXT;
}
static atomic_llong sent_counted[HOPS];
static int32_t count_sent(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_SENT) {
    atomic_fetch_add((atomic_llong *)self->context, (long long)penstock_hop_count(hop));
  }
  return PENSTOCK_NEXT;
}

/* The hops apply to calls of `method` only, not to the echoes in between. */
static void add_hops(probe *probes, penstock_channel *channel, const char *method) {
  static int32_t (*const hooks[HOPS])(probe *, penstock_hop *, int32_t) = {
      count_sent, pause_each, hold_some, ask_late, ask_ahead, drop_tenth, inject_tenth, count_sent};
  static const char *const names[HOPS] = {"top", "pauses", "holds", "late", "ahead", "drops", "injects", "bottom"};
  atomic_store(&injected, 0);
  atomic_store(&dropped, 0);
  for (int i = 0; i < HOPS; i++) {
    atomic_store(&sent_counted[i], 0);
    probe_init(&probes[i], names[i]);
    probes[i].hook = hooks[i];
    probes[i].context = &sent_counted[i];
    penstock_interceptor table = probe_table(&probes[i]);
    table.methods = method;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, HOPS - i, &id, NULL));
  }
}

/* A reader takes a message only now and then, through eight hops, from a server that never stops sending. */
TEST(flow_a_slow_reader_stops_the_server) {
  observed observed;
  if (!observe(&observed, "{\"tls\": false}")) return;
  echo_times(observed.channel, 20);
  probe probes[HOPS];
  add_hops(probes, observed.channel, SERVER_STREAM);
  char *data = calloc(1, SIZE);
  penstock_call *call = start_with(observed.channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                                   "{\"metadata\": {\"x-count\": \"2000000000\"}}");
  OK(penstock_call_send(call, data, SIZE));
  free(data);
  long before = bytes_in_use(), peak = before;
  int taken = 0, times = test_rounds(200);
  for (; taken < times; taken++) {
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    penstock_message_release(message);
    echo_times(observed.channel, 3);
    long now = bytes_in_use();
    if (now > peak) peak = now;
  }
  OK(penstock_call_cancel(call, "enough"));
  check_finish(call, PENSTOCK_STATUS_CANCELLED);
  if (latch_wait(&observed.ended, 1)) {
    long out = observed.out;
    /* `unread` are the messages on their way from the server to the reader. They wait in the peer's own buffer, in the
     * window and at the hops, so the limit is the sum of these. */
    long unread = out - taken - atomic_load(&dropped) + atomic_load(&injected);
    long limit = (WINDOW + HELD + PEER_KEEPS) / SIZE + AHEAD + 4;
    printf("  %d read of %ld sent: %ld unread, of at most %ld; %ld KiB more memory at the peak\n", taken, out, unread,
           limit, (peak - before) / 1024);
    CHECK(unread >= 0 && unread <= limit);
    CHECK(out > taken);
  }
  /* A growing buffer takes up to twice its contents; under a sanitizer the memory is not known. */
  if (test_slow() == 1) CHECK(peak - before < 2 * (WINDOW + HELD + (AHEAD + 4) * SIZE));
  close_observed(&observed);
  for (int i = 0; i < HOPS; i++) check_ended(&probes[i]);
}

/* For a blocking reader the library reads ahead small messages that have arrived whole, except the last one, so that a
 * cancel still ends the call. */
TEST(flow_small_messages_are_read_ahead) {
  enum { MESSAGES = 2000, AT_MOST = 64 };
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "counts");
  penstock_interceptor table = probe_table(&probe);
  table.methods = SERVER_STREAM;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call =
      start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, "{\"metadata\": {\"x-repeat\": \"2000\"}}");
  OK(penstock_call_send(call, "small", 5));
  int most = 0;
  for (int taken = 1; taken < MESSAGES; taken++) {
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    CHECK_INT((int)message_length(message), 5);
    penstock_message_release(message);
    int ahead = atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]) - taken;
    if (ahead > most) most = ahead;
  }
  CHECK(most > 0 && most <= AT_MOST);
  OK(penstock_call_cancel(call, "enough"));
  check_finish(call, PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
  check_ended(&probe);
}

/* ---- Upload ---- */

/* The server stops reading, because it echoes and nobody reads its answers. */
TEST(flow_a_slow_server_stops_the_sender) {
  observed observed;
  if (!observe(&observed, "{\"tls\": false}")) return;
  echo_times(observed.channel, 20);
  probe probes[HOPS];
  add_hops(probes, observed.channel, BIDI);
  char *data = calloc(1, SIZE);
  collector collector = COLLECTOR_INIT;
  penstock_call *call = start_collecting(observed.channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
  long before = bytes_in_use(), peak = before, taken = 0;
  for (int idle = 0; idle < 20;) {
    penstock_result result = penstock_call_try_send(call, data, SIZE);
    if (result == PENSTOCK_OK) {
      taken++, idle = 0;
    } else {
      CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
      echo_times(observed.channel, 5);
      idle++;
    }
    long now = bytes_in_use();
    if (now > peak) peak = now;
  }
  /* Both windows are full, that of the answers and that of the requests. The peer holds a few more messages. */
  long through = taken - atomic_load(&dropped);
  long limit = (2 * WINDOW + 3 * PEER_KEEPS + SEND_BUFFER + HELD) / SIZE;
  long long sent = atomic_load(&sent_counted[0]);
  printf(
      "  %ld taken of an endless stream, %ld of them passed on (at most %ld), %lld told as sent; %ld KiB more memory "
      "at the peak\n",
      taken, through, limit, sent, (peak - before) / 1024);
  CHECK(through > WINDOW / SIZE && through <= limit);
  CHECK(sent < taken && sent >= taken - SEND_BUFFER / SIZE - 1);
  if (test_slow() == 1) CHECK(peak - before < 2 * (WINDOW + SEND_BUFFER + HELD));
  /* Once the answers are read, all messages leave, and each has been reported as sent once. */
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 1000000));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, 0);
  CHECK_INT(atomic_load(&sent_counted[0]), taken);
  penstock_call_release(call);
  latch_wait(&observed.ended, 1);
  /* on_sent also reports to the bottom hop the messages that the hop above it has injected, but no messages that had
   * not left when the call ended. */
  CHECK(observed.in > 0 && atomic_load(&sent_counted[HOPS - 1]) <= observed.in);
  free(data);
  close_observed(&observed);
  for (int i = 0; i < HOPS; i++) check_ended(&probes[i]);
}

static int32_t hold_each(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  OK(penstock_ticket_resolve(penstock_hop_ticket(hop), PENSTOCK_NEXT));
  return PENSTOCK_HOLD;
}

/* A hop holds each message and releases it: messages that have left the hop and wait for the server still fill the
 * caller's send buffer. */
TEST(flow_a_slow_server_stops_a_hop_that_holds) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "holds");
  probe.hook = hold_each;
  penstock_interceptor table = probe_table(&probe);
  table.methods = BIDI;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  char *data = calloc(1, SIZE);
  collector collector = COLLECTOR_INIT;
  penstock_call *call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
  long taken = 0, limit = (2 * WINDOW + 3 * PEER_KEEPS + SEND_BUFFER + HELD) / SIZE;
  for (int idle = 0; idle < 20 && taken < 2 * limit;) {
    penstock_result result = penstock_call_try_send(call, data, SIZE);
    if (result == PENSTOCK_OK) {
      taken++, idle = 0;
      if (taken % 4 == 0) echo_times(channel, 1);
    } else {
      CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
      echo_times(channel, 5);
      idle++;
    }
  }
  printf("  %ld taken, at most %ld\n", taken, limit);
  CHECK(taken > WINDOW / SIZE && taken <= limit);
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 1000000));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, 0);
  CHECK_INT(collector.sent, taken);
  penstock_call_release(call);
  free(data);
  penstock_channel_release(channel);
  check_ended(&probe);
}

/* ---- How far a sender runs ahead ---- */

/* Counts the messages that a call accepts before there is no room. Nobody drives the runtime, so no message leaves. */
static long run_ahead(penstock_channel *channel, const char *method, int32_t kind, const char *json, size_t size) {
  penstock_call *call = start_with(channel, method, kind, json);
  char *data = calloc(1, size);
  long taken = 0;
  penstock_result result = penstock_call_try_send(call, data, size);
  for (; result == PENSTOCK_OK && taken < 10000; taken++) result = penstock_call_try_send(call, data, size);
  CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_call_cancel(call, NULL));
  penstock_call_release(call);
  free(data);
  return taken;
}

TEST(flow_how_far_a_sender_runs_ahead) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  const int32_t up = PENSTOCK_KIND_CLIENT_STREAM, bidi = PENSTOCK_KIND_BIDI;
  /* A client stream has room for a few more large messages than other streams, and for as many small messages. */
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, NULL, 65536), 655360 / (65536 + 256));
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, NULL, 20000), 16);
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, NULL, 16), SEND_BUFFER / (16 + 256));
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, NULL, 1 << 20), 1);
  CHECK_INT(run_ahead(channel, BIDI, bidi, NULL, 65536), SEND_BUFFER / (65536 + 256));
  /* An explicit option applies to all kinds. */
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, "{\"send_buffer_bytes\": 262144}", 65536), 3);
  CHECK_INT(run_ahead(channel, BIDI, bidi, "{\"send_buffer_bytes\": 655360}", 65536), 9);
  CHECK_INT(run_ahead(channel, CLIENT_STREAM, up, "{\"send_buffer_bytes\": 0}", 16), 1);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
}
