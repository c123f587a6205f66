/* A hop sends the rest of its call to another channel. */
#include "test.h"

typedef struct way {
  penstock_channel *to;
  const char *authority; /* an authority that the hop sets, too; NULL: none */
  penstock_result result;
  char target[64], sent_authority[64]; /* the target and the authority that the hop sees afterwards */
} way;

static int32_t send_there(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  way->result = penstock_request_set_channel(penstock_hop_request(hop), way->to);
  if (way->authority) OK(penstock_request_set_authority(penstock_hop_request(hop), way->authority));
  snprintf(way->target, sizeof(way->target), "%s", penstock_hop_target(hop));
  snprintf(way->sent_authority, sizeof(way->sent_authority), "%s",
           penstock_request_authority(penstock_hop_request(hop)));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-echo-metadata", "1"));
  return PENSTOCK_NEXT;
}

static penstock_channel *open_dead(penstock_runtime *runtime, const char *more) {
  char options[128];
  snprintf(options, sizeof(options), "{\"tls\": false%s}", more);
  penstock_channel *channel = NULL;
  if (runtime) {
    OK(penstock_channel_new_on(runtime, dead_address(), options, &channel, NULL));
  } else {
    OK(penstock_channel_new(dead_address(), options, &channel, NULL));
  }
  return channel;
}

static void add_sender(probe *probe, way *way, penstock_channel *channel) {
  probe_init(probe, "sender");
  probe->hook = send_there;
  probe->context = way;
  probe_add(probe, channel, 1);
}

/* Copies the value of a trailer into `text`. */
static void trailer(penstock_reply *reply, const char *name, char *text, size_t size) {
  const void *value = NULL;
  size_t length = 0;
  snprintf(text, size, "%s", "");
  if (penstock_metadata_get(penstock_reply_trailers(reply), name, 0, &value, &length) == PENSTOCK_OK) {
    snprintf(text, size, "%.*s", (int)length, (const char *)value);
  }
}

static void run_unary(penstock_channel *channel, int32_t *code, char *authority, size_t size) {
  penstock_reply *reply = NULL;
  *code = -1;
  if (!OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL))) return;
  *code = penstock_reply_code(reply);
  trailer(reply, "seen-:authority", authority, size);
  if (!*authority) trailer(reply, "seen-authority", authority, size);
  penstock_reply_release(reply);
}

TEST(redirect_takes_target_and_authority_from_the_other_channel) {
  penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
  way way = {.to = good};
  probe sender, below, others;
  add_sender(&sender, &way, dead);
  probe_init(&below, "below");
  probe_add(&below, dead, 0);
  probe_init(&others, "the other channel's");
  probe_add(&others, good, 0);
  int32_t code;
  char authority[64];
  run_unary(dead, &code, authority, sizeof(authority));
  CHECK_INT(code, 0);
  CHECK_RESULT(way.result, PENSTOCK_OK);
  CHECK_STR(way.target, peer_address());
  CHECK_STR(way.sent_authority, peer_address());
  CHECK_STR(authority, peer_address());
  /* The call keeps its own interceptors, and gets no others. */
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(atomic_load(&others.seen[PENSTOCK_EVENT_START]), 0);
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
  probe_wait_finalized(&below);
  probe_wait_finalized(&others);
}

TEST(redirect_is_in_the_trace) {
  penstock_channel *dead = open_dead(NULL, ", \"trace\": true"), *good = open_channel();
  way way = {.to = good};
  probe sender;
  add_sender(&sender, &way, dead);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(dead, UNARY, "ping", 4, NULL, &reply, NULL));
  CHECK_HAS(penstock_reply_trace_json(reply), "\"what\":\"redirected\",\"hop\":\"sender\"");
  penstock_reply_release(reply);
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
}

TEST(redirect_keeps_an_authority_that_was_set) {
  penstock_channel *dead = open_dead(NULL, ", \"authority\": \"channel.test\""), *good = open_channel();
  way way = {.to = good, .authority = "hop.test"};
  probe sender;
  add_sender(&sender, &way, dead);
  int32_t code;
  char authority[64];
  run_unary(dead, &code, authority, sizeof(authority));
  CHECK_INT(code, 0);
  CHECK_STR(authority, "hop.test");
  /* If the hop sets no authority, the call gets that of the other channel; the option "authority" of its own channel
   * does not count. */
  way.authority = NULL;
  run_unary(dead, &code, authority, sizeof(authority));
  CHECK_INT(code, 0);
  CHECK_STR(authority, peer_address());
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
}

/* The channel that is set last counts, whichever hop sets it. */
TEST(redirect_twice) {
  penstock_channel *first = open_channel(), *dead = open_dead(NULL, "");
  way away = {.to = dead}, back = {.to = first};
  probe upper, lower;
  probe_init_with(&upper, "upper", send_there, &away);
  probe_add(&upper, first, 2);
  probe_init_with(&lower, "lower", send_there, &back);
  probe_add(&lower, first, 1);
  check_echo(first);
  CHECK_STR(away.target, dead_address());
  CHECK_STR(back.target, peer_address());
  back.to = dead;
  CHECK_INT(unary_code(first, "ping"), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(first);
  penstock_channel_release(dead);
  probe_wait_finalized(&upper);
  probe_wait_finalized(&lower);
}

static int32_t refuse_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  penstock_result result = penstock_request_set_channel(penstock_hop_request(hop), way->to);
  if (event == PENSTOCK_EVENT_START) {
    CHECK_RESULT(penstock_request_set_channel(penstock_hop_request(hop), NULL), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_request_set_channel(NULL, way->to), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(result, PENSTOCK_OK);
  } else if (event == PENSTOCK_EVENT_DESTROY) {
    CHECK(result == PENSTOCK_E_GONE || result == PENSTOCK_E_STATE);
  } else if (!CHECK_RESULT(result, PENSTOCK_E_STATE)) {
    printf("  in %s\n", event_name(event));
  }
  return PENSTOCK_NEXT;
}

TEST(redirect_only_in_on_start) {
  penstock_channel *channel = open_channel(), *other = open_channel();
  way way = {.to = other};
  probe probe;
  probe_init_with(&probe, "everywhere", refuse_elsewhere, &way);
  probe_add(&probe, channel, 0);
  check_echo(channel);
  penstock_channel_release(channel);
  penstock_channel_release(other);
  probe_wait_finalized(&probe);
}

TEST(redirect_needs_an_open_channel_of_the_same_runtime) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel(), *foreign = open_channel_on(runtime), *closed = open_channel();
  OK(penstock_channel_close(closed));
  way way = {.to = foreign};
  probe sender;
  add_sender(&sender, &way, channel);
  check_echo(channel);
  CHECK_RESULT(way.result, PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_STR(way.target, peer_address());
  way.to = closed;
  check_echo(channel);
  CHECK_RESULT(way.result, PENSTOCK_E_CLOSED);
  penstock_channel_release(closed);
  penstock_channel_release(foreign);
  penstock_runtime_release(runtime);
  penstock_channel_release(channel);
  probe_wait_finalized(&sender);
}

/* ---- How long the other channel lives ---- */

static penstock_call *redirected_bidi(penstock_channel *from) {
  penstock_call *call = start_call(from, BIDI, PENSTOCK_KIND_BIDI);
  const penstock_metadata *headers = NULL;
  if (call) OK(penstock_call_wait_headers(call, &headers));
  return call;
}

static void check_end(penstock_call *call, int32_t code, const char *message) {
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), code);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), message);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
}

TEST(redirect_keeps_the_other_channel_until_the_end) {
  penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
  way way = {.to = good};
  probe sender;
  add_sender(&sender, &way, dead);
  penstock_call *call = redirected_bidi(dead);
  penstock_channel_release(good);
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  check_end(call, 0, "");
  penstock_channel_release(dead);
  probe_wait_finalized(&sender);
}

TEST(redirect_ends_with_either_channel) {
  for (int which = 0; which < 2; which++) {
    penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
    way way = {.to = good};
    probe sender;
    add_sender(&sender, &way, dead);
    penstock_call *call = redirected_bidi(dead);
    OK(penstock_channel_close(which == 0 ? good : dead));
    check_end(call, PENSTOCK_STATUS_CANCELLED, "channel closed");
    penstock_channel_release(dead);
    penstock_channel_release(good);
    probe_wait_finalized(&sender);
  }
}

static void exchange_one(penstock_call *call) {
  penstock_message *message = NULL;
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
}

/* A graceful close of either channel waits for the redirected call. A redirected call of other channels, which ends
 * meanwhile, does not count. */
TEST(redirect_and_a_graceful_close) {
  for (int which = 0; which < 2; which++) {
    penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
    way way = {.to = good};
    probe sender;
    add_sender(&sender, &way, dead);
    penstock_call *call = redirected_bidi(dead);
    penstock_channel *others[2] = {open_dead(NULL, ""), open_channel()};
    struct way other_way = {.to = others[1]};
    probe other_sender;
    add_sender(&other_sender, &other_way, others[0]);
    penstock_call *other = redirected_bidi(others[0]);
    penstock_channel *closing = which == 0 ? dead : good;
    OK(penstock_channel_close_gracefully(closing, 60000));
    exchange_one(call);
    exchange_one(other);
    check_end(other, 0, "");
    exchange_one(call);
    CHECK(penstock_channel_connectivity(closing) != PENSTOCK_CONNECTIVITY_SHUTDOWN);
    check_end(call, 0, "");
    EVENTUALLY(penstock_channel_connectivity(closing) == PENSTOCK_CONNECTIVITY_SHUTDOWN);
    for (int i = 0; i < 2; i++) penstock_channel_release(others[i]);
    probe_wait_finalized(&other_sender);
    penstock_channel_release(dead);
    penstock_channel_release(good);
    probe_wait_finalized(&sender);
  }
}

/* The other channel closes between on_start and the moment when the start leaves. */
static int32_t close_after(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) {
    send_there(self, hop, event);
    OK(penstock_channel_close(((way *)self->context)->to));
    OK(penstock_ticket_resolve_after(penstock_hop_ticket(hop), PENSTOCK_NEXT, 5));
    return PENSTOCK_PAUSE;
  }
  return PENSTOCK_NEXT;
}

TEST(redirect_to_a_channel_that_closes_meanwhile) {
  penstock_channel *first = open_channel(), *closing = open_channel();
  way way = {.to = closing};
  probe sender;
  probe_init_with(&sender, "sender", close_after, &way);
  probe_add(&sender, first, 0);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(first, UNARY, "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "channel closed");
  penstock_reply_release(reply);
  penstock_channel_release(closing);
  penstock_channel_release(first);
  probe_wait_finalized(&sender);
}

/* Redirects the call, and makes a side call on the dead channel on which the call was made; the side call's result does
 * not matter. */
static void side_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  atomic_store((atomic_int *)user_data, penstock_reply_code(reply));
}
static int32_t send_and_call(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  if (event == PENSTOCK_EVENT_START) {
    send_there(self, hop, event);
    static atomic_int code;
    atomic_store(&code, -1);
    way->authority = NULL;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = &code;
    table.on_reply = side_reply;
    penstock_call *call = NULL;
    if (OK(penstock_hop_start_side_call(hop, UNARY, 0, PENSTOCK_SIDE_CALL_DETACHED, NULL, &table, &call, NULL))) {
      penstock_call_release(call);
    }
  }
  return PENSTOCK_NEXT;
}

TEST(redirect_of_many_at_once) {
  penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
  way way = {.to = good};
  probe sender;
  probe_init_with(&sender, "sender", send_and_call, &way);
  probe_add(&sender, dead, 0);
  int rounds = test_rounds(50);
  for (int i = 0; i < rounds; i++) check_echo(dead);
  OK(penstock_channel_close(dead));
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
}

TEST(redirect_from_an_executor) {
  penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  way way = {.to = good};
  probe sender;
  probe_init_with(&sender, "sender", send_there, &way);
  penstock_interceptor table = probe_table(&sender);
  penstock_interceptor_id id;
  table.outbound_executor = table.inbound_executor = executor;
  OK(penstock_channel_add_interceptor(dead, &table, 0, &id, NULL));
  check_echo(dead);
  CHECK_RESULT(way.result, PENSTOCK_OK);
  CHECK_STR(way.target, peer_address());
  penstock_executor_release(executor);
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
}

/* ---- With RESTART ---- */

/* A request that fails on the first channel is sent again on the other: a hop that records decides this in on_status.
 */
static int32_t fail_over(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  if (penstock_hop_can_restart(hop) != PENSTOCK_OK) return PENSTOCK_NEXT;
  way->result = penstock_request_set_channel(penstock_hop_request(hop), way->to);
  return PENSTOCK_RESTART;
}

/* Notes the target of each attempt. */
static int32_t note_target(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) {
    char *text = self->context;
    size_t used = strlen(text);
    snprintf(text + used, 256 - used, "%s ", penstock_hop_target(hop));
  }
  return PENSTOCK_NEXT;
}

static void add_recording(probe *probe, penstock_channel *channel, int32_t priority, uint32_t restarts) {
  penstock_interceptor table = probe_table(probe);
  penstock_interceptor_id id;
  table.replay_bytes = 1024;
  table.max_restarts = restarts;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
}

TEST(redirect_of_a_restart) {
  penstock_channel *dead = open_dead(NULL, ""), *good = open_channel();
  way way = {.to = good};
  probe sender, below;
  char targets[256] = "", expected[256];
  probe_init_with(&sender, "fail over", fail_over, &way);
  add_recording(&sender, dead, 1, 1);
  probe_init_with(&below, "below", note_target, targets);
  probe_add(&below, dead, 0);
  check_echo(dead);
  CHECK_RESULT(way.result, PENSTOCK_OK);
  snprintf(expected, sizeof(expected), "%s %s ", dead_address(), peer_address());
  CHECK_STR(targets, expected);
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&sender);
  probe_wait_finalized(&below);
}

/* A redirect below a hop that restarts belongs to the attempt: the next attempt goes to the channel that the hop's own
 * start named. */
static int32_t send_away_once(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  if (event == PENSTOCK_EVENT_START && penstock_hop_attempt(hop) == 1) {
    way->result = penstock_request_set_channel(penstock_hop_request(hop), way->to);
  }
  return PENSTOCK_NEXT;
}
static int32_t restart_always(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS || penstock_hop_can_restart(hop) != PENSTOCK_OK) return PENSTOCK_NEXT;
  return penstock_status_code(penstock_hop_status(hop)) == 0 ? PENSTOCK_NEXT : PENSTOCK_RESTART;
}

TEST(redirect_is_undone_by_a_restart_above) {
  penstock_channel *good = open_channel(), *dead = open_dead(NULL, "");
  way way = {.to = dead};
  probe retry, away, below;
  char targets[256] = "", expected[256];
  probe_init_with(&retry, "retry", restart_always, NULL);
  add_recording(&retry, good, 2, 1);
  probe_init_with(&away, "away", send_away_once, &way);
  probe_add(&away, good, 1);
  probe_init_with(&below, "below", note_target, targets);
  probe_add(&below, good, 0);
  check_echo(good);
  CHECK_RESULT(way.result, PENSTOCK_OK);
  snprintf(expected, sizeof(expected), "%s %s ", dead_address(), peer_address());
  CHECK_STR(targets, expected);
  penstock_channel_release(dead);
  penstock_channel_release(good);
  probe_wait_finalized(&retry);
  probe_wait_finalized(&away);
  probe_wait_finalized(&below);
}
