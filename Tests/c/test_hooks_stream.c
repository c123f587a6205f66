/* Statements of docs/hooks.md about streams: each test shows one callback, or one thing that a hop can do. */
#include "others.h"

/* A stream through one hop. */
typedef struct story {
  penstock_channel *channel;
  probe probe;
  penstock_call *call;
} story;

static void begin_with(story *story, int32_t (*hook)(struct probe *, penstock_hop *, int32_t), void *context,
                       const char *method, int32_t kind, const char *json) {
  story->channel = open_channel();
  probe_init_with(&story->probe, "hop", hook, context);
  probe_add(&story->probe, story->channel, 0);
  story->call = start_with(story->channel, method, kind, json);
}

static void begin(story *story, int32_t (*hook)(struct probe *, penstock_hop *, int32_t), void *context) {
  begin_with(story, hook, context, BIDI, PENSTOCK_KIND_BIDI, "{}");
}

static void send_all(story *story, const char *letters) {
  for (const char *c = letters; *c; c++) OK(penstock_call_send(story->call, c, 1));
  OK(penstock_call_half_close(story->call));
}

/* Receives the messages to the end, and checks that they are `expected` when they are joined by spaces. */
static void check_all(story *story, const char *expected) {
  char all[128] = "";
  penstock_message *message = NULL;
  while (penstock_call_receive(story->call, &message) == PENSTOCK_OK) {
    size_t used = strlen(all), length = 0;
    const char *text = penstock_message_bytes(message, &length);
    snprintf(all + used, sizeof(all) - used, "%s%.*s", used ? " " : "", (int)length, text);
    penstock_message_release(message);
  }
  CHECK_STR(all, expected);
}

static void end(story *story, int32_t code) {
  check_finish(story->call, code);
  penstock_channel_release(story->channel);
  check_ended(&story->probe);
}

/* ---- Events that a hop sees and changes ---- */

/* Puts brackets around each message at the event that the context names. */
static int32_t bracket(probe *self, penstock_hop *hop, int32_t event) {
  if (event != *(int32_t *)self->context) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  char changed[32];
  OK(hop_bytes(hop, &data, &length));
  int size = snprintf(changed, sizeof(changed), "[%.*s]", (int)length, (const char *)data);
  OK(penstock_hop_set_bytes(hop, changed, (size_t)size));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_send_changes_each_message) {
  story story;
  int32_t event = PENSTOCK_EVENT_SEND;
  begin(&story, bracket, &event);
  send_all(&story, "abc");
  check_all(&story, "[a] [b] [c]");
  CHECK_INT(seen(&story.probe, PENSTOCK_EVENT_SEND), 3);
  end(&story, 0);
}

TEST(hooks_stream_on_receive_changes_each_message) {
  story story;
  int32_t event = PENSTOCK_EVENT_RECEIVE;
  begin(&story, bracket, &event);
  send_all(&story, "abc");
  check_all(&story, "[a] [b] [c]");
  CHECK_INT(seen(&story.probe, PENSTOCK_EVENT_RECEIVE), 3);
  end(&story, 0);
}

static int32_t change_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK_STR(penstock_request_method(penstock_hop_request(hop)), "/penstock.Echo/Nothing");
  OK(penstock_request_set_method(penstock_hop_request(hop), SERVER_STREAM));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-count", "3"));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_start_changes_the_request) {
  story story;
  begin_with(&story, change_start, NULL, "/penstock.Echo/Nothing", PENSTOCK_KIND_SERVER_STREAM, "{}");
  send_all(&story, "a");
  check_all(&story, "a a a");
  end(&story, 0);
}

static int32_t change_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_HEADERS) return PENSTOCK_NEXT;
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_metadata_get(penstock_hop_metadata(hop), "x-headers-a", 0, &value, &length));
  CHECK(is_text(value, length, "theirs"));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-headers-a", "ours"));
  return PENSTOCK_NEXT;
}

/* The headers come before any message, here before the caller has sent anything. */
TEST(hooks_stream_on_headers_changes_them) {
  story story;
  begin_with(&story, change_headers, NULL, BIDI, PENSTOCK_KIND_BIDI, "{\"metadata\": {\"x-headers-a\": \"theirs\"}}");
  const penstock_metadata *headers = NULL;
  const void *value = NULL;
  size_t length = 0;
  if (OK(penstock_call_wait_headers(story.call, &headers))) {
    OK(penstock_metadata_get(headers, "x-headers-a", 0, &value, &length));
    CHECK(is_text(value, length, "ours"));
  }
  send_all(&story, "ab");
  check_all(&story, "a b");
  CHECK_INT(seen(&story.probe, PENSTOCK_EVENT_HEADERS), 1);
  end(&story, 0);
}

static int32_t change_end(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  penstock_status *status = penstock_hop_status(hop);
  const void *value = NULL;
  size_t length = 0;
  CHECK_INT(penstock_status_code(status), PENSTOCK_STATUS_NOT_FOUND);
  OK(penstock_metadata_get(penstock_hop_metadata(hop), "x-trailers-a", 0, &value, &length));
  CHECK(is_text(value, length, "theirs"));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-trailers-a", "ours"));
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_ABORTED));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_status_changes_status_and_trailers) {
  story story;
  begin_with(&story, change_end, NULL, BIDI, PENSTOCK_KIND_BIDI,
             "{\"metadata\": {\"x-status\": \"5\", \"x-after\": \"2\", \"x-trailers-a\": \"theirs\"}}");
  for (int i = 0; i < 2; i++) OK(penstock_call_send(story.call, "a", 1));
  check_all(&story, "a a");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(story.call, &reply))) {
    const void *value = NULL;
    size_t length = 0;
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-a", 0, &value, &length));
    CHECK(is_text(value, length, "ours"));
    penstock_reply_release(reply);
  }
  end(&story, PENSTOCK_STATUS_ABORTED);
}

/* ---- The end of the request, demand and `sent` ---- */

static int32_t add_at_half_close(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_HALF_CLOSE) return PENSTOCK_NEXT;
  CHECK_INT(seen(self, PENSTOCK_EVENT_SEND), 3);
  OK(penstock_hop_send(hop, "!", 1));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_half_close_comes_behind_the_messages) {
  story story;
  begin_with(&story, add_at_half_close, NULL, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, "{}");
  send_all(&story, "abc");
  check_all(&story, "abc!");
  CHECK_INT(seen(&story.probe, PENSTOCK_EVENT_HALF_CLOSE), 1);
  end(&story, 0);
}

/* One event may report several messages. */
static int32_t count_sent(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_SENT) atomic_fetch_add((atomic_int *)self->context, (int)penstock_hop_count(hop));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_sent_tells_of_each_message) {
  story story;
  atomic_int sent = 0;
  begin(&story, count_sent, &sent);
  for (const char *c = "abcd"; *c; c++) OK(penstock_call_send(story.call, c, 1));
  EVENTUALLY(atomic_load(&sent) == 4);
  OK(penstock_call_half_close(story.call));
  check_all(&story, "a b c d");
  end(&story, 0);
  CHECK_INT(atomic_load(&sent), 4);
}

static int32_t ask_for_one(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DEMAND) {
    atomic_fetch_add((atomic_int *)self->context, (int)penstock_hop_count(hop));
    /* The caller's demand does not go down; the hop asks for messages itself. */
    OK(penstock_hop_set_count(hop, 0));
    OK(penstock_hop_demand(hop, 1));
  }
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_on_demand_is_what_the_reader_asks_for) {
  story story;
  atomic_int asked = 0;
  begin(&story, ask_for_one, &asked);
  send_all(&story, "abc");
  check_all(&story, "a b c");
  end(&story, 0);
  CHECK(atomic_load(&asked) >= 3);
}

/* ---- Messages of a hop's own ---- */

static int32_t put_in(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_send(hop, "+", 1));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_send_message_goes_before_the_event) {
  story story;
  begin(&story, put_in, NULL);
  send_all(&story, "ab");
  check_all(&story, "+ a + b");
  end(&story, 0);
}

static int32_t drop_received(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(hop_bytes(hop, &data, &length));
  if (!is_text(data, length, "b")) return PENSTOCK_NEXT;
  return PENSTOCK_DROP;
}

TEST(hooks_stream_drop_takes_a_message_out) {
  story story;
  begin(&story, drop_received, NULL);
  send_all(&story, "abc");
  check_all(&story, "a c");
  end(&story, 0);
}

/* Answers with two messages and a status, on another thread. */
static void *answer_alone(void *pointer) {
  penstock_hop *hop = pointer;
  penstock_metadata *headers = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_metadata_set(headers, "x-by", "hop"));
  OK(penstock_hop_deliver_headers(hop, headers));
  penstock_metadata_release(headers);
  for (const char *c = "xy"; *c; c++) {
    penstock_result result;
    EVENTUALLY((result = penstock_hop_deliver(hop, c, 1)) != PENSTOCK_E_WOULD_BLOCK);
    CHECK_RESULT(result, PENSTOCK_OK);
  }
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_hop_deliver_status(hop, status));
  penstock_status_release(status);
  penstock_hop_release(hop);
  return NULL;
}

static int32_t take(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK_INT(pthread_create(self->context, NULL, answer_alone, penstock_hop_retain(hop)), 0);
  return PENSTOCK_TAKE;
}

TEST(hooks_stream_taken_is_answered_from_another_thread) {
  story story;
  pthread_t thread;
  begin_with(&story, take, &thread, "/no.Service/AtAll", PENSTOCK_KIND_BIDI, "{}");
  const penstock_metadata *headers = NULL;
  const void *value = NULL;
  if (OK(penstock_call_wait_headers(story.call, &headers))) {
    OK(penstock_metadata_get(headers, "x-by", 0, &value, NULL));
  }
  check_all(&story, "x y");
  pthread_join(thread, NULL);
  end(&story, 0);
}

/* ---- Ends ---- */

static int32_t finish_at(probe *self, penstock_hop *hop, int32_t event) {
  if (event == *(int32_t *)self->context) OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "enough"));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_is_ended_at_any_event) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};
  for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
    story story;
    int32_t event = events[i];
    probe below;
    story.channel = open_channel();
    probe_init_with(&story.probe, "hop", finish_at, &event);
    probe_init(&below, "below");
    probe_add(&story.probe, story.channel, 1);
    probe_add(&below, story.channel, 0);
    story.call = start_call(story.channel, BIDI, PENSTOCK_KIND_BIDI);
    for (const char *c = "ab"; *c; c++) penstock_call_send(story.call, c, 1);
    penstock_call_half_close(story.call);
    penstock_message *message = NULL;
    while (penstock_call_receive(story.call, &message) == PENSTOCK_OK) penstock_message_release(message);
    end(&story, PENSTOCK_STATUS_ABORTED);
    check_ended(&below);
    /* The lower hop gets on_cancel if it has seen start, and no status yet. */
    CHECK_INT(seen(&below, PENSTOCK_EVENT_CANCEL),
              seen(&below, PENSTOCK_EVENT_START) && !seen(&below, PENSTOCK_EVENT_STATUS));
  }
}

static int32_t note_code(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_STATUS)
    atomic_store((atomic_int *)self->context, penstock_status_code(penstock_hop_status(hop)));
  return PENSTOCK_NEXT;
}

TEST(hooks_stream_cancel_comes_as_a_status) {
  story story;
  atomic_int code = -1;
  begin(&story, note_code, &code);
  OK(penstock_call_send(story.call, "a", 1));
  check_receive(story.call, "a");
  OK(penstock_call_cancel(story.call, "enough"));
  end(&story, PENSTOCK_STATUS_CANCELLED);
  CHECK_INT(atomic_load(&code), PENSTOCK_STATUS_CANCELLED);
}

/* ---- Events that wait for a ticket ---- */

static void *resume_soon(void *pointer) {
  OK(penstock_ticket_resolve(*(penstock_ticket *)pointer, PENSTOCK_NEXT));
  free(pointer);
  return NULL;
}

/* Pauses each event until another thread resumes it. */
static int32_t pause_each(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  penstock_ticket ticket =
      event <= PENSTOCK_EVENT_STATUS && event >= PENSTOCK_EVENT_START ? penstock_hop_ticket(hop) : 0;
  if (!ticket) return PENSTOCK_NEXT;
  penstock_ticket *mine = malloc(sizeof(*mine));
  *mine = ticket;
  pthread_t thread;
  CHECK_INT(pthread_create(&thread, NULL, resume_soon, mine), 0);
  pthread_detach(thread);
  return PENSTOCK_PAUSE;
}

TEST(hooks_stream_every_event_goes_on_later) {
  story story;
  begin(&story, pause_each, NULL);
  send_all(&story, "abcd");
  check_all(&story, "a b c d");
  end(&story, 0);
  CHECK_INT(seen(&story.probe, PENSTOCK_EVENT_RECEIVE), 4);
}

static int32_t edit_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  *(penstock_ticket *)self->context = penstock_hop_ticket(hop);
  latch_signal(&self->done);
  return PENSTOCK_PAUSE;
}

TEST(hooks_stream_message_is_edited_while_it_waits) {
  story story;
  penstock_ticket ticket = 0;
  begin(&story, edit_elsewhere, &ticket);
  OK(penstock_call_send(story.call, "a", 1));
  OK(penstock_call_half_close(story.call));
  latch_wait(&story.probe.done, 1);
  penstock_hop *bound = NULL;
  if (OK(penstock_ticket_hop(ticket, &bound))) {
    OK(penstock_hop_set_bytes(bound, "edited", 6));
    penstock_hop_release(bound);
  }
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  check_all(&story, "edited");
  check_finish(story.call, 0);
  penstock_channel_release(story.channel);
  probe_wait_finalized(&story.probe);
}

/* ---- Several hops ---- */

TEST(hooks_stream_passes_hops_in_their_order) {
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe outer, inner;
  probe_init(&outer, "o");
  probe_init(&inner, "i");
  outer.trace = inner.trace = &trace;
  probe_add(&inner, channel, 1);
  probe_add(&outer, channel, 2);
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_half_close(call));
  check_receive(call, "a");
  check_finish(call, 0);
  penstock_channel_release(channel);
  check_ended(&outer);
  check_ended(&inner);
  CHECK_STR(trace.text, "o:create o:start i:create i:start o:send i:send o:half_close i:half_close i:headers o:headers "
                        "i:receive o:receive i:status o:status o:destroy i:destroy ");
}

static int32_t again_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS || penstock_hop_can_restart(hop) != PENSTOCK_OK) return PENSTOCK_NEXT;
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAVAILABLE) return PENSTOCK_NEXT;
  OK(penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(hop)), "x-status"));
  return PENSTOCK_RESTART;
}

/* Counts create, on_start and on_status of each attempt, in a hop with per_attempt. */
TEST(hooks_stream_attempts_have_hops_of_their_own) {
  story story;
  probe each;
  story.channel = open_channel();
  probe_init_with(&story.probe, "again", again_once, NULL);
  story.probe.replay_bytes = 1000;
  probe_add(&story.probe, story.channel, 0);
  probe_init(&each, "each");
  penstock_interceptor table = probe_table(&each);
  table.per_attempt = 1;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(story.channel, &table, 100, &id, NULL));
  story.call = start_with(story.channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                          "{\"metadata\": {\"x-status\": \"14\", \"x-count\": \"2\", \"x-after\": \"0\"}}");
  send_all(&story, "a");
  check_all(&story, "");
  end(&story, 0);
  check_ended(&each);
  CHECK_INT(seen(&each, PENSTOCK_EVENT_CREATE), 2);
  CHECK_INT(seen(&each, PENSTOCK_EVENT_START), 2);
  CHECK_INT(seen(&each, PENSTOCK_EVENT_STATUS), 2);
}
