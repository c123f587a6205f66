/* The abilities of a hop in the two lanes: to inject at each point, to refuse a call, to turn an error into a success
 * or a success into an error, to hold one event until another comes, and to keep several events of both lanes at
 * once. */
#include "test.h"

/* Makes a call that sends one message for each character of `sent`; gives the characters that came back. */
static const char *echo_each(penstock_channel *channel, const char *sent, penstock_reply **reply) {
  static char got[64];
  size_t count = 0;
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (; *sent; sent++) OK(penstock_call_send(call, sent, 1));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK && count < sizeof(got) - 1) {
    got[count++] = message_length(message) ? *(const char *)penstock_message_bytes(message, NULL) : '_';
    penstock_message_release(message);
  }
  got[count] = 0;
  OK(penstock_call_wait(call, reply));
  penstock_call_release(call);
  return got;
}

static penstock_reply *wait_reply(penstock_call *call) {
  penstock_reply *reply = NULL;
  int64_t until = test_now_ms() + test_patience_ms();
  while (penstock_call_reply(call, &reply) == PENSTOCK_E_WOULD_BLOCK && test_now_ms() < until) test_pause();
  CHECK(reply != NULL);
  return reply;
}

static void add_probe(probe *probe, penstock_channel *channel, const char *name, void *context,
                      int32_t (*hook)(struct probe *, penstock_hop *, int32_t)) {
  probe_init(probe, name);
  probe->hook = hook;
  probe->context = context;
  probe_add(probe, channel, 0);
}

/* ---- Injecting outbound: as soon as start has left, before a message, at half-close; and too late ---- */

static int32_t inject_everywhere(probe *self, penstock_hop *hop, int32_t event) {
  int *injected = self->context;
  switch (event) {
  case PENSTOCK_EVENT_START:
    CHECK_RESULT(penstock_hop_send(hop, "s", 1), PENSTOCK_E_STATE);
    break;
  case PENSTOCK_EVENT_DEMAND:
    /* Demand comes just after start has left the hop. */
    if ((*injected)++ == 0) OK(penstock_hop_send(hop, "0", 1));
    break;
  case PENSTOCK_EVENT_SEND:
    OK(penstock_hop_send(hop, "+", 1));
    break;
  case PENSTOCK_EVENT_HALF_CLOSE:
    OK(penstock_hop_send(hop, "y", 1));
    OK(penstock_hop_send(hop, "z", 1));
    break;
  case PENSTOCK_EVENT_STATUS:
    CHECK_RESULT(penstock_hop_send(hop, "l", 1), PENSTOCK_E_STATE);
    break;
  default:
    break;
  }
  return PENSTOCK_NEXT;
}
TEST(lanes_inject_outbound_everywhere) {
  penstock_channel *channel = open_channel();
  int injected = 0;
  probe probe;
  add_probe(&probe, channel, "inject", &injected, inject_everywhere);
  penstock_reply *reply = NULL;
  /* The caller receives before it sends: when demand comes the hop sends "0", whose echo comes first. */
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  char got[16] = "";
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) {
    strncat(got, penstock_message_bytes(message, NULL), 1);
    penstock_message_release(message);
  }
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_send(call, "b", 1));
  OK(penstock_call_half_close(call));
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    strncat(got, penstock_message_bytes(message, NULL), 1);
    penstock_message_release(message);
  }
  CHECK_STR(got, "0+a+byz");
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Drops the caller's messages, and sends one message instead. */
static int32_t replace_all(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) return PENSTOCK_DROP;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) OK(penstock_hop_send(hop, "instead", 7));
  return PENSTOCK_NEXT;
}
TEST(lanes_drop_and_inject_at_half_close) {
  penstock_channel *channel = open_channel();
  probe probe;
  add_probe(&probe, channel, "replace", NULL, replace_all);
  /* In a unary call, too, only the messages that leave the hop count, not those that came to it. */
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(length == 7 && data && memcmp(data, "instead", 7) == 0);
  penstock_reply_release(reply);
  reply = NULL;
  CHECK_STR(echo_each(channel, "abc", &reply), "i");
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- Injecting inbound, before each message and before the status ---- */

static int32_t inject_inbound(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE || event == PENSTOCK_EVENT_STATUS) {
    penstock_result result = penstock_hop_deliver(hop, event == PENSTOCK_EVENT_STATUS ? "$" : "+", 1);
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_WOULD_BLOCK);
  }
  return PENSTOCK_NEXT;
}
static void inbound_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  strncat(user_data, penstock_message_bytes(message, NULL), 1);
}
TEST(lanes_inject_inbound) {
  penstock_channel *channel = open_channel();
  probe probe;
  add_probe(&probe, channel, "inject", NULL, inject_inbound);
  char got[16] = "";
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = got;
  table.on_message = inbound_message;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
  OK(penstock_call_demand(call, 100));
  OK(penstock_call_try_send(call, "a", 1));
  OK(penstock_call_try_send(call, "b", 1));
  OK(penstock_call_half_close(call));
  penstock_reply *reply = wait_reply(call);
  if (!reply) return;
  CHECK_STR(got, "+a+b$");
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- Refusing a call at each event but a received message, with a full status ---- */

static const char refusal[] =
    "{\"name\": \"FAILED_PRECONDITION\", \"message\": \"not today\", \"metadata\": {\"x-why\": \"because\"}, \"details\": "
    "[{\"@type\": \"t/google.rpc.RetryInfo\", \"retryDelay\": \"2s\"}, {\"@type\": \"t/acme.X\", \"base64\": \"AAEC\"}]}";

static int32_t refuse(probe *self, penstock_hop *hop, int32_t event) {
  if (event != *(int32_t *)self->context) return PENSTOCK_NEXT;
  penstock_status *status = NULL;
  if (OK(penstock_status_from_json(refusal, &status, NULL))) OK(penstock_hop_end_with(hop, status));
  penstock_status_release(status);
  return PENSTOCK_NEXT;
}
TEST(lanes_refuse_with_details_and_trailers) {
  static const int32_t events[] = {PENSTOCK_EVENT_START, PENSTOCK_EVENT_SEND, PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_STATUS};
  for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
    int32_t event = events[i];
    penstock_channel *channel = open_channel();
    probe probe, above;
    add_probe(&above, channel, "above", NULL, NULL);
    add_probe(&probe, channel, "refuse", &event, refuse);
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_FAILED_PRECONDITION);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "not today");
    const void *value = NULL;
    size_t length = 0;
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-why", 0, &value, NULL));
    OK(penstock_status_detail_find(penstock_reply_status(reply), "acme.X", &value, &length));
    CHECK(length == 3 && memcmp(value, "\0\1\2", 3) == 0);
    CHECK_HAS(penstock_reply_status_json(reply), "\"retryDelay\":\"2s\"");
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
    probe_wait_finalized(&above);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  }
}

/* ---- Changing a success into an error, and an error into a success ---- */

static int32_t fail_it(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  penstock_status *status = penstock_hop_status(hop);
  CHECK_INT(penstock_status_code(status), 0);
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_DATA_LOSS));
  OK(penstock_status_set_message(status, "that answer is wrong", 20));
  OK(penstock_status_add_detail(status, "t/acme.Why", "w", 1));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-checked", "1"));
  return PENSTOCK_NEXT;
}
TEST(lanes_success_becomes_an_error) {
  penstock_channel *channel = open_channel();
  probe probe;
  add_probe(&probe, channel, "fail", NULL, fail_it);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DATA_LOSS);
  CHECK_HAS(penstock_reply_status_json(reply), "that answer is wrong");
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_status_detail_find(penstock_reply_status(reply), "acme.Why", &value, &length));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-checked", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t rescue(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  penstock_status *status = penstock_hop_status(hop);
  CHECK_INT(penstock_status_code(status), PENSTOCK_STATUS_UNAVAILABLE);
  OK(penstock_hop_deliver(hop, "from elsewhere", 14));
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_OK));
  OK(penstock_status_set_message(status, "", 0));
  return PENSTOCK_NEXT;
}
TEST(lanes_error_becomes_a_success_with_a_message) {
  penstock_channel *channel = open_channel();
  probe probe;
  add_probe(&probe, channel, "rescue", NULL, rescue);
  penstock_call_options *options = NULL;
  REQUIRE_OK(
      penstock_call_options_new("{\"metadata\": {\"x-status\": \"14\", \"x-message\": \"gone\"}}", &options, NULL));
  for (int32_t kind = PENSTOCK_KIND_UNARY; kind <= PENSTOCK_KIND_CLIENT_STREAM; kind++) {
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, kind ? CLIENT_STREAM : UNARY, kind, options, NULL, &call, NULL));
    OK(penstock_call_send(call, "x", 1));
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_call_wait(call, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    size_t length = 0;
    const char *data = penstock_reply_bytes(reply, &length);
    CHECK(length == 14 && data && memcmp(data, "from elsewhere", 14) == 0);
    penstock_reply_release(reply);
    penstock_call_release(call);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- HOLD: the verdict on one event depends on a later event ---- */

typedef struct holding {
  int32_t held; /* a mask of events that are held without a ticket */
} holding;

static int32_t hold_some(probe *self, penstock_hop *hop, int32_t event) {
  holding *holding = self->context;
  if (event == PENSTOCK_EVENT_HEADERS) {
    /* The hop may change the headers until they leave. */
    OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-held", "1"));
  }
  return (holding->held >> event) & 1 ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

static int32_t drop_received(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_RECEIVE ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

static void check_held(bool drops, int32_t held, const char *method, int32_t kind, const char *expected) {
  holding holding = {held};
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe above, hold, below;
  probe_init(&above, "above");
  probe_init(&hold, "hold");
  probe_init(&below, "below");
  above.trace = hold.trace = below.trace = &trace;
  hold.hook = hold_some;
  if (drops) below.hook = drop_received;
  hold.context = &holding;
  probe_add(&above, channel, 3);
  probe_add(&hold, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, method, kind, NULL, NULL, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&hold);
  probe_wait_finalized(&below);
  CHECK_HAS(trace.text, expected);
}

TEST(lanes_headers_wait_for_the_first_message) {
  check_held(false, 1 << PENSTOCK_EVENT_HEADERS, UNARY, PENSTOCK_KIND_UNARY,
             "below:headers hold:headers below:receive hold:receive above:headers above:receive");
}
TEST(lanes_headers_wait_for_the_status) {
  /* No message of this stream comes up to the hop, because the hop below drops it: so the hop sees the headers, then
   * the status. The server answers once the request is complete, so that its headers do not come between the call and
   * the send. */
  check_held(true, 1 << PENSTOCK_EVENT_HEADERS, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
             "hold:headers below:receive below:status hold:status above:headers above:status");
}
TEST(lanes_headers_and_message_wait_for_the_status) {
  check_held(
      false, 1 << PENSTOCK_EVENT_HEADERS | 1 << PENSTOCK_EVENT_RECEIVE, UNARY, PENSTOCK_KIND_UNARY,
      "hold:headers below:receive hold:receive below:status hold:status above:headers above:receive above:status");
}
TEST(lanes_start_waits_for_the_first_message) {
  check_held(false, 1 << PENSTOCK_EVENT_START, BIDI, PENSTOCK_KIND_BIDI,
             "above:start hold:create hold:start above:send hold:send below:create below:start");
}
TEST(lanes_start_and_message_wait_for_half_close) {
  check_held(false, 1 << PENSTOCK_EVENT_START | 1 << PENSTOCK_EVENT_SEND, UNARY, PENSTOCK_KIND_UNARY,
             "above:half_close hold:half_close below:create below:start");
}

/* ---- Both lanes at once: events are held with tickets, resolved in any order, and leave in order ---- */

enum { EACH_LANE = 3 };
typedef struct both_lanes {
  penstock_ticket tickets[2 * EACH_LANE];
  int sent, received;
  latch held; /* signalled for each held event */
} both_lanes;

/* Holds the first three answers, and the caller's messages after its first three. */
static int32_t hold_both(probe *self, penstock_hop *hop, int32_t event) {
  both_lanes *lanes = self->context;
  int place = -1;
  if (event == PENSTOCK_EVENT_SEND && lanes->sent++ >= EACH_LANE) place = lanes->sent - 1;
  if (event == PENSTOCK_EVENT_RECEIVE && lanes->received++ < EACH_LANE) place = lanes->received - 1;
  if (place < 0) return PENSTOCK_NEXT;
  if (!CHECK(place < 2 * EACH_LANE)) return PENSTOCK_NEXT;
  lanes->tickets[place] = penstock_hop_ticket(hop);
  CHECK(lanes->tickets[place] != 0);
  latch_signal(&lanes->held);
  return PENSTOCK_HOLD;
}

TEST(lanes_both_open_and_resolved_in_any_order) {
  for (int round = 0; round < test_rounds(60); round++) {
    both_lanes lanes = {{0}, 0, 0, LATCH_INIT};
    penstock_channel *channel = open_channel();
    probe probe;
    add_probe(&probe, channel, "both", &lanes, hold_both);
    char got[16] = "";
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = got;
    table.on_message = inbound_message;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
    OK(penstock_call_demand(call, 100));
    for (const char *c = "abcdef"; *c; c++) OK(penstock_call_try_send(call, c, 1));
    OK(penstock_call_half_close(call));
    latch_wait(&lanes.held, 2 * EACH_LANE);
    /* Three answers have come to the hop, and no more come: the caller's last three messages wait at the hop, too. */
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), EACH_LANE);
    int order[2 * EACH_LANE];
    for (int i = 0; i < 2 * EACH_LANE; i++) order[i] = i;
    for (int i = 2 * EACH_LANE - 1; i > 0; i--) {
      int other = (int)test_random((uint32_t)i + 1), was = order[i];
      order[i] = order[other];
      order[other] = was;
    }
    /* The second event of each lane is changed or dropped before it leaves. */
    bool drops = round % 2 == 1;
    for (int i = 0; i < 2 * EACH_LANE; i++) {
      penstock_ticket ticket = lanes.tickets[order[i]];
      bool is_second = order[i] % EACH_LANE == 1;
      penstock_hop *bound = NULL;
      if (is_second && !drops && OK(penstock_ticket_hop(ticket, &bound))) {
        OK(penstock_hop_set_bytes(bound, order[i] < EACH_LANE ? "B" : "E", 1));
        penstock_hop_release(bound);
      }
      OK(is_second && drops ? penstock_ticket_resolve(ticket, PENSTOCK_DROP)
                            : penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
      penstock_result again = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
      /* Once the last ticket is resolved, the call may have ended. */
      if (i == 2 * EACH_LANE - 1 && again == PENSTOCK_E_GONE) continue;
      CHECK_RESULT(again, PENSTOCK_E_ALREADY);
    }
    penstock_reply *reply = wait_reply(call);
    if (!reply) return;
    CHECK_STR(got, drops ? "acdf" : "aBcdEf");
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}
