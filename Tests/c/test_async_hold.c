/* Asynchronous style: HOLD, signals, on_pick, and what may be set in the tables. */
#include "ready.h"

#include <stddef.h>

typedef struct holder {
  atomic_int seen[13]; /* by PENSTOCK_EVENT_... */
  atomic_int finalized, demanded, sent;
  latch held;
  penstock_hop *kept[8];
  size_t count;
  int holds; /* this event is held */
  char address[64];
} holder;

static void hold(holder *self, penstock_hop *hop) {
  OK(penstock_hop_resolve(hop, PENSTOCK_HOLD));
  CHECK_INT(penstock_hop_event(hop), self->holds);
  OK(penstock_hop_resolve(hop, PENSTOCK_HOLD)); /* it is still to be resolved, so it can be said twice */
  if (self->count == sizeof(self->kept) / sizeof(*self->kept)) abort();
  self->kept[self->count++] = hop;
}

static void came(penstock_hop *hop, void *state) {
  holder *self = state;
  int event = penstock_hop_event(hop);
  if (event == self->holds) hold(self, hop);
  atomic_fetch_add(&self->seen[event], 1);
  if (event == self->holds) {
    latch_signal(&self->held);
    return;
  }
  OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
  CHECK_RESULT(penstock_hop_resolve(hop, PENSTOCK_HOLD), PENSTOCK_E_ALREADY);
  penstock_hop_release(hop);
}

static int32_t signalled(penstock_hop *hop, void *state) {
  holder *self = state;
  int event = penstock_hop_event(hop), count = (int)penstock_hop_count(hop);
  CHECK(count > 0);
  atomic_fetch_add(event == PENSTOCK_EVENT_DEMAND ? &self->demanded : &self->sent, count);
  return PENSTOCK_NEXT;
}

static int32_t picked(penstock_hop *hop, void *state) {
  holder *self = state;
  const char *address = penstock_hop_address(hop);
  if (CHECK(address != NULL)) snprintf(self->address, sizeof(self->address), "%s", address);
  atomic_fetch_add(&self->seen[PENSTOCK_EVENT_PICK], 1);
  return atomic_load(&self->seen[PENSTOCK_EVENT_PICK]) > 1 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

static void finalized(void *user_data) { atomic_fetch_add(&((holder *)user_data)->finalized, 1); }

static penstock_async_interceptor holder_table(holder *self, int holds) {
  memset(self, 0, sizeof(*self));
  self->held = (latch)LATCH_INIT;
  self->holds = holds;
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.name = "holder";
  table.user_data = self;
  table.finalizer = finalized;
  table.on_start = table.on_send = table.on_half_close = table.on_headers = table.on_receive = table.on_status = came;
  return table;
}

static penstock_channel *open_on(const penstock_async_interceptor *given, penstock_executor *executor) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.outbound_executor = executor;
  OK(penstock_async_interceptor_table(given, &table, NULL));
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  return channel;
}

static penstock_channel *open_with(const penstock_async_interceptor *given) { return open_on(given, NULL); }

static void close_with(holder *self, penstock_channel *channel) {
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
}

static void receive(penstock_call *call, const char *text) {
  penstock_message *message = NULL;
  if (!OK(penstock_call_receive(call, &message))) return;
  size_t length = 0;
  const char *data = penstock_message_bytes(message, &length);
  CHECK(data && length == strlen(text) && memcmp(data, text, length) == 0);
  penstock_message_release(message);
}

/* ---- HOLD ---- */

static void hold_messages(penstock_executor *executor) {
  holder self;
  penstock_async_interceptor given = holder_table(&self, PENSTOCK_EVENT_SEND);
  penstock_channel *channel = open_on(&given, executor);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL));
  OK(penstock_call_send(call, "one", 3));
  OK(penstock_call_send(call, "two", 3));
  OK(penstock_call_half_close(call));
  /* With PAUSE the second message and the half-close would wait unseen. */
  latch_wait(&self.held, 2);
  EVENTUALLY(atomic_load(&self.seen[PENSTOCK_EVENT_HALF_CLOSE]) == 1);
  for (size_t i = 0; i < 2; i++) {
    CHECK_INT(penstock_hop_event(self.kept[i]), PENSTOCK_EVENT_SEND);
    /* Later events can be shown only when a callback has returned, so it has. */
    CHECK_RESULT(penstock_hop_resolve(self.kept[i], PENSTOCK_HOLD), PENSTOCK_E_STATE);
    CHECK_HAS(penstock_hop_why(self.kept[i]), "the callback has returned");
    CHECK_RESULT(penstock_hop_resolve(self.kept[i], PENSTOCK_PAUSE), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_STR(penstock_hop_why(self.kept[i]), "");
  }
  OK(penstock_hop_set_bytes(self.kept[1], "second", 6));
  for (size_t i = 0; i < 2; i++) {
    OK(penstock_hop_resolve(self.kept[i], PENSTOCK_NEXT));
    CHECK_RESULT(penstock_hop_resolve(self.kept[i], PENSTOCK_HOLD), PENSTOCK_E_ALREADY);
    penstock_hop_release(self.kept[i]);
  }
  receive(call, "one");
  receive(call, "second");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_call_release(call);
  close_with(&self, channel);
}

TEST(async_hold_shows_the_events_behind) {
  hold_messages(NULL);
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  hold_messages(executor);
  penstock_executor_release(executor);
}

/* A held event that its owner releases ends the call as a paused one does; a cancel passes it. */
TEST(async_hold_that_is_released_or_cancelled) {
  for (int cancels = 0; cancels < 2; cancels++) {
    holder self;
    penstock_async_interceptor given = holder_table(&self, PENSTOCK_EVENT_HEADERS);
    penstock_channel *channel = open_with(&given);
    penstock_call *call = NULL;
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL));
    OK(penstock_call_send(call, "one", 3));
    latch_wait(&self.held, 1);
    if (cancels) OK(penstock_call_cancel(call, NULL));
    if (!cancels) penstock_hop_release(self.kept[0]);
    OK(penstock_call_wait(call, &reply));
    CHECK_INT(penstock_reply_code(reply), cancels ? PENSTOCK_STATUS_CANCELLED : PENSTOCK_STATUS_INTERNAL);
    if (!cancels) CHECK_HAS(penstock_reply_status_json(reply), "holder");
    if (cancels) {
      EVENTUALLY(penstock_hop_event(self.kept[0]) == PENSTOCK_EVENT_NONE);
      CHECK_RESULT(penstock_hop_resolve(self.kept[0], PENSTOCK_HOLD), PENSTOCK_E_GONE);
      CHECK_RESULT(penstock_hop_resolve(self.kept[0], PENSTOCK_NEXT), PENSTOCK_E_GONE);
      penstock_hop_release(self.kept[0]);
    }
    penstock_reply_release(reply);
    penstock_call_release(call);
    close_with(&self, channel);
  }
}

/* Holds the headers and the messages of a response until its status comes, and begins the call again if that is an
 * error. The table itself says how much is recorded. */
static void judge(penstock_hop *hop, void *state) {
  holder *self = state;
  int event = penstock_hop_event(hop);
  atomic_fetch_add(&self->seen[event], 1);
  if (event != PENSTOCK_EVENT_STATUS) {
    self->holds = event;
    hold(self, hop);
    return;
  }
  bool again = penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_OK;
  if (again) OK(penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(hop)), "x-status"));
  if (again) OK(penstock_hop_can_restart(hop));
  for (size_t i = 0; i < self->count; i++) {
    if (!again) OK(penstock_hop_resolve(self->kept[i], PENSTOCK_NEXT));
    penstock_hop_release(self->kept[i]);
  }
  self->count = 0;
  OK(penstock_hop_resolve(hop, again ? PENSTOCK_RESTART : PENSTOCK_NEXT));
  penstock_hop_release(hop);
}

TEST(async_hold_until_the_status_then_restart) {
  holder self;
  penstock_async_interceptor given = holder_table(&self, 0);
  given.on_headers = given.on_receive = given.on_status = judge;
  given.replay_bytes = 100;
  penstock_channel *channel = open_with(&given);
  penstock_call *call = NULL;
  penstock_call_options *options = ready_options("\"x-status\": \"14\"");
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "one", 3));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_INT(atomic_load(&self.seen[PENSTOCK_EVENT_STATUS]), 2);
  CHECK_INT(atomic_load(&self.seen[PENSTOCK_EVENT_HEADERS]), 2);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  close_with(&self, channel);
}

/* ---- Signals and on_pick ---- */

TEST(async_signals_and_picks) {
  holder self;
  penstock_async_interceptor given = holder_table(&self, 0);
  given.per_attempt = 1;
  given.on_demand = given.on_sent = signalled;
  given.on_pick = picked;
  penstock_channel *channel = open_with(&given);
  check_echo(channel);
  CHECK_INT(atomic_load(&self.seen[PENSTOCK_EVENT_PICK]), 1);
  CHECK_HAS(self.address, ":");
  CHECK_INT(atomic_load(&self.sent), 1);
  CHECK(atomic_load(&self.demanded) >= 1);
  penstock_reply *reply = ready_unary(channel, "x", NULL); /* the only server is refused */
  CHECK_HAS(penstock_reply_status_json(reply), "refused every endpoint");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  close_with(&self, channel);
}

/* ---- What is set in a table ---- */

static int32_t just_next(penstock_hop *call, void *user_data) {
  (void)user_data;
  return penstock_hop_next(call) == PENSTOCK_OK ? PENSTOCK_NEXT : -1;
}

static int32_t never(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}
static int32_t never_created(penstock_hop *hop, void *user_data, void **state) {
  (void)hop, (void)user_data, (void)state;
  return PENSTOCK_NEXT;
}
static void never_destroyed(penstock_hop *hop, void *state) { (void)hop, (void)state; }
static void never_told(void *user_data, const penstock_connection_event *event) { (void)user_data, (void)event; }

/* Fills `table` by one of the two styles; `limits`: the style's own table says limits, too. */
static penstock_result fill(bool is_sync, bool limits, penstock_interceptor *table, atomic_int *counter,
                            penstock_error **error) {
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_async_interceptor async = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  sync.intercept = just_next;
  sync.user_data = async.user_data = counter;
  sync.finalizer = async.finalizer = count_up;
  if (limits) {
    sync.name = async.name = "own";
    sync.methods = async.methods = "/own/*";
    sync.kinds = async.kinds = 1;
    sync.level = async.level = PENSTOCK_LEVEL_BOTH;
    sync.per_attempt = async.per_attempt = 1;
    sync.hold_bytes = async.hold_bytes = 1;
    sync.replay_bytes = async.replay_bytes = 2;
    sync.max_restarts = async.max_restarts = 3;
    async.headers_wait = 5;
  }
  return is_sync ? penstock_sync_interceptor_table(&sync, table, error)
                 : penstock_async_interceptor_table(&async, table, error);
}

TEST(async_and_sync_keep_what_is_set) {
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  for (int is_sync = 0; is_sync < 2; is_sync++) {
    atomic_int counter = 0;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, empty = PENSTOCK_INTERCEPTOR_INIT;
    table.name = "before";
    table.methods = "/before/*";
    table.kinds = 2;
    table.level = PENSTOCK_LEVEL_BOTH;
    table.per_attempt = 1;
    table.hold_bytes = 7;
    table.replay_bytes = 8;
    table.max_restarts = 9;
    table.headers_wait = 4;
    table.outbound_executor = executor;
    OK(fill(is_sync, false, &table, &counter, NULL));
    CHECK_STR(table.name, "before");
    CHECK_STR(table.methods, "/before/*");
    CHECK(table.kinds == 2 && table.level == PENSTOCK_LEVEL_BOTH && table.per_attempt == 1);
    CHECK(table.hold_bytes == 7 && table.replay_bytes == 8 && table.max_restarts == 9 && table.headers_wait == 4);
    CHECK(table.outbound_executor == executor && table.inbound_executor == NULL);
    ready_drop(&table);
    table = empty;
    table.name = "own";
    table.kinds = 1;
    table.hold_bytes = 1;
    OK(fill(is_sync, true, &table, &counter, NULL)); /* both say the same */
    CHECK_STR(table.name, "own");
    CHECK(table.kinds == 1 && table.level == PENSTOCK_LEVEL_BOTH && table.per_attempt == 1);
    CHECK(table.hold_bytes == 1 && table.replay_bytes == 2 && table.max_restarts == 3);
    CHECK_INT(table.headers_wait, is_sync ? 0 : 5);
    ready_drop(&table);
    table = empty;
    OK(fill(is_sync, false, &table, &counter, NULL));
    CHECK_INT(table.replay_bytes, is_sync ? 65536 : 0);
    CHECK(table.name == NULL && table.methods == NULL);
    ready_drop(&table);
    CHECK_INT(atomic_load(&counter), 3);
  }
  penstock_executor_release(executor);
}

TEST(async_and_sync_refuse_what_would_be_lost) {
  static const char *const names[] = {
      "name",      "methods",   "kinds",     "level",    "hold_bytes", "replay_bytes",  "max_restarts", "user_data",
      "finalizer", "create",    "destroy",   "on_start", "on_send",    "on_half_close", "on_headers",   "on_receive",
      "on_status", "on_cancel", "on_demand", "on_sent",  "on_pick",    "on_connection"};
  for (int is_sync = 0; is_sync < 2; is_sync++) {
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
      atomic_int counter = 0;
      penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, before;
      penstock_error *error = NULL;
      char words[64];
      switch (i) {
      case 0:
        table.name = "x";
        break;
      case 1:
        table.methods = "*";
        break;
      case 2:
        table.kinds = 2;
        break;
      case 3:
        table.level = PENSTOCK_LEVEL_OBJECT;
        break;
      case 4:
        table.hold_bytes = 11;
        break;
      case 5:
        table.replay_bytes = 12;
        break;
      case 6:
        table.max_restarts = 13;
        break;
      case 7:
        table.user_data = &table;
        break;
      case 8:
        table.finalizer = count_up;
        break;
      case 9:
        table.create = never_created;
        break;
      case 10:
        table.destroy = never_destroyed;
        break;
      case 11:
        table.on_start = never;
        break;
      case 12:
        table.on_send = never;
        break;
      case 13:
        table.on_half_close = never;
        break;
      case 14:
        table.on_headers = never;
        break;
      case 15:
        table.on_receive = never;
        break;
      case 16:
        table.on_status = never;
        break;
      case 17:
        table.on_cancel = never;
        break;
      case 18:
        table.on_demand = never;
        break;
      case 19:
        table.on_sent = never;
        break;
      case 20:
        table.on_pick = never;
        break;
      case 21:
        table.on_connection = never_told;
        break;
      default:
        break;
      }
      before = table;
      CHECK_RESULT(fill(is_sync, true, &table, &counter, &error), PENSTOCK_E_INVALID_ARGUMENT);
      snprintf(words, sizeof(words), "table.%s:", names[i]);
      CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, words);
      CHECK(memcmp(&table, &before, sizeof(table)) == 0);
      CHECK_INT(atomic_load(&counter), 1);
    }
  }
}

/* Callbacks that are set in a filled table would get the library's state, and a synchronous function has no executor. */
TEST(tables_changed_after_they_were_filled) {
  penstock_channel *channel = open_channel();
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  for (int i = 0; i < 5; i++) {
    atomic_int counter = 0;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    penstock_error *error = NULL;
    if (i == 2) {
      OK(penstock_ready_header_rules(NULL, &table, NULL));
      count_up(&counter);
    } else {
      OK(fill(i != 0, false, &table, &counter, NULL));
    }
    if (i < 3) table.on_connection = never_told;
    if (i == 3) table.outbound_executor = executor;
    if (i == 4) table.inbound_executor = executor;
    CHECK_RESULT(penstock_channel_add_interceptor(channel, &table, 0, &id, &error), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, i < 3 ? "on_connection" : "executors");
    CHECK_INT(atomic_load(&counter), 1);
  }
  penstock_executor_release(executor);
  penstock_channel_release(channel);
}
