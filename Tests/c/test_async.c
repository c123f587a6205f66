/* async.h: interceptors whose callbacks resolve their events at once or later; the events that they pass and change. */
#include "completions.h"

/* ---- Passing ---- */

TEST(async_completed_within_the_callback) {
  style style;
  style_init(&style);
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  check_echo(channel);
  for (int event = START; event <= STATUS; event++) CHECK_INT(atomic_load(&style.seen[event]), 1);
  CHECK_STR(style.method, UNARY);
  CHECK_INT(style.kind, PENSTOCK_KIND_UNARY);
  exchange(channel, 20);
  CHECK_INT(atomic_load(&style.seen[SEND]), 21);
  CHECK_INT(atomic_load(&style.seen[RECEIVE]), 21);
  CHECK_INT(style.kind, PENSTOCK_KIND_BIDI);
  penstock_channel_release(channel);
  style_end(&style, 2);
}

TEST(async_completed_later_on_another_thread) {
  style style;
  style_init(&style);
  set_all(&style, PASS_LATER);
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  check_echo(channel);
  exchange(channel, 50);
  for (int event = START; event <= STATUS; event++) {
    CHECK_INT(atomic_load(&style.seen[event]), event == SEND || event == RECEIVE ? 51 : 2);
  }
  penstock_channel_release(channel);
  style_end(&style, 2);
}

TEST(async_two_above_each_other_on_a_runtime) {
  style above, below;
  style_init(&above);
  style_init(&below);
  set_all(&above, PASS_LATER);
  below.acts[RECEIVE] = PASS_LATER;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_interceptor first = style_table(&above), second = style_table(&below);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &first, 1, &id, NULL));
  OK(penstock_runtime_add_interceptor(runtime, &second, -1, &id, NULL));
  penstock_channel *channel = open_channel_on(runtime);
  penstock_runtime_release(runtime);
  exchange(channel, 30);
  penstock_channel_release(channel);
  style_end(&above, 1);
  style_end(&below, 1);
}

TEST(async_declined) {
  style style;
  style_init(&style);
  style.declines = true;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  check_echo(channel);
  CHECK_INT(atomic_load(&style.seen[START]), 0);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

static void bare_status(penstock_hop *hop, void *state) {
  CHECK_INT(penstock_status_code(penstock_hop_status(hop)), PENSTOCK_STATUS_OK);
  count_up(state);
  OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
  penstock_hop_release(hop);
}
TEST(async_null_callbacks_pass) {
  atomic_int told = 0;
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.user_data = &told; /* the state of the callbacks, because there is no create */
  table.on_status = bare_status;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  made.hold_bytes = 77;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  CHECK(!made.create && !made.on_start && !made.on_send && !made.on_half_close && !made.on_headers &&
        !made.on_receive && !made.on_cancel && !made.on_demand && !made.on_sent);
  CHECK_INT(made.hold_bytes, 77);
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &made, 0, &id, NULL));
  check_echo(channel);
  exchange(channel, 3);
  CHECK_INT(atomic_load(&told), 2);
  penstock_channel_release(channel);
}

/* ---- Changing ---- */

static void edit(style *self, int32_t event, penstock_hop *hop) {
  CHECK_INT(penstock_hop_event(hop), event);
  if (event == START) {
    OK(penstock_metadata_set(self->metadata, "x-echo-metadata", "1"));
    OK(penstock_request_set_method(penstock_hop_request(hop), UNARY));
  }
  if (event == HEADERS) OK(penstock_metadata_set(self->metadata, "x-seen", "headers"));
  if (event == STATUS) {
    OK(penstock_status_set_message(self->status, "changed", 7));
    OK(penstock_metadata_set(penstock_status_trailers(self->status), "x-seen", "status"));
  }
}
TEST(async_changes_within_the_callback) {
  style style;
  style_init(&style);
  style.look = edit;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/other.Service/Method", "x", 1, NULL, &reply, NULL));
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "seen-x-echo-metadata", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-seen", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-seen", 0, &value, NULL));
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "changed");
  penstock_reply_release(reply);
  CHECK_STR(style.method, "/other.Service/Method");
  penstock_channel_release(channel);
  style_end(&style, 1);
}

TEST(async_changes_later) {
  style style;
  style_init(&style);
  set_all(&style, KEEP);
  unary_run run = {open_channel(), NULL};
  style_add(&style, run.channel, 0);
  pthread_t caller;
  REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
  penstock_hop *kept = take_kept(&style, 1);
  OK(penstock_metadata_set(style.metadata, "x-trailers-mine", "1"));
  CHECK_RESULT(penstock_hop_set_bytes(kept, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_resolve(kept, PENSTOCK_DROP), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_hop_resolve(kept, PENSTOCK_PAUSE), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_hop_resolve(kept, 99), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  penstock_hop_release(kept);
  kept = take_kept(&style, 2); /* the hop of on_send */
  CHECK_INT(style.length, 4);
  CHECK(memcmp(style.data, "ping", 4) == 0);
  OK(penstock_hop_set_bytes(kept, "request", 7));
  CHECK_INT(penstock_hop_event(kept), SEND);
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  CHECK_RESULT(penstock_hop_set_bytes(kept, "again", 5), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_resolve(kept, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  CHECK_INT(penstock_hop_event(kept), PENSTOCK_EVENT_NONE);
  penstock_hop_release(kept);
  kept = take_kept(&style, 3); /* the hop of on_half_close */
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  penstock_hop_release(kept);
  kept = take_kept(&style, 4); /* the hop of on_headers */
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  penstock_hop_release(kept);
  kept = take_kept(&style, 5); /* the hop of on_receive */
  CHECK_INT(style.length, 7);
  CHECK(memcmp(style.data, "request", 7) == 0);
  OK(penstock_hop_set_bytes(kept, "response", 8));
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  penstock_hop_release(kept);
  kept = take_kept(&style, 6); /* the hop of on_status */
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_status_trailers(style.status), "x-trailers-mine", 0, &value, NULL));
  OK(penstock_status_set_message(style.status, "late", 4));
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  pthread_join(caller, NULL);
  CHECK_RESULT(penstock_hop_resolve(kept, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  penstock_hop_release(kept);
  REQUIRE(run.reply != NULL);
  size_t length = 0;
  const char *message = penstock_reply_bytes(run.reply, &length);
  CHECK(length == 8 && memcmp(message, "response", 8) == 0);
  CHECK_STR(penstock_status_message(penstock_reply_status(run.reply), NULL), "late");
  penstock_reply_release(run.reply);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

static void replace_now(style *self, int32_t event, penstock_hop *hop) {
  (void)self;
  if (event != SEND && event != RECEIVE) return;
  OK(penstock_hop_set_bytes(hop, "now", 3));
  OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
}
TEST(async_replaces_within_the_callback) {
  style style;
  style_init(&style);
  style.look = replace_now;
  style.acts[SEND] = style.acts[RECEIVE] =
      DROP; /* releases the hop after its event was resolved, which has no effect */
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "a long message", 14, NULL, &reply, NULL));
  size_t length = 0;
  const char *message = penstock_reply_bytes(reply, &length);
  CHECK(length == 3 && memcmp(message, "now", 3) == 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

static void drop_some(style *self, int32_t event, penstock_hop *hop) {
  int number = 0;
  if (event == SEND || event == RECEIVE) memcpy(&number, self->data, sizeof(number));
  if (event == RECEIVE && number % 2) OK(penstock_hop_resolve(hop, PENSTOCK_DROP));
}
TEST(async_drops_a_message) {
  style style;
  style_init(&style);
  style.look = drop_some;
  style.acts[RECEIVE] = DROP;
  for (int event = START; event <= STATUS; event++) {
    if (event != RECEIVE) style.acts[event] = PASS_LATER;
  }
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 1; i < 4; i += 2) OK(penstock_call_send(call, &i, sizeof(i)));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_call_release(call);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

/* ---- The table ---- */

TEST(async_table_is_checked) {
  atomic_int finalized = 0;
  penstock_error *error = NULL;
  struct {
    penstock_async_interceptor table;
    char more[8];
  } larger = {.table = PENSTOCK_ASYNC_INTERCEPTOR_INIT, .more = {0}};
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT, empty = PENSTOCK_INTERCEPTOR_INIT;
  larger.table.user_data = &finalized;
  larger.table.finalizer = count_up;
  larger.table.struct_size = sizeof(larger);
  OK(penstock_async_interceptor_table(&larger.table, &made, NULL));
  CHECK_INT(atomic_load(&finalized), 0);
  made.finalizer(made.user_data); /* this table was never registered */
  CHECK_INT(atomic_load(&finalized), 1);
  made = empty;
  larger.more[3] = 1;
  CHECK_RESULT(penstock_async_interceptor_table(&larger.table, &made, &error), PENSTOCK_E_UNSUPPORTED);
  CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
  CHECK_INT(atomic_load(&finalized), 2);
  larger.table.struct_size = sizeof(larger.table);
  larger.table.per_attempt = 1;
  OK(penstock_async_interceptor_table(&larger.table, &made, NULL));
  CHECK_INT(made.per_attempt, 1);
  made.finalizer(made.user_data);
  CHECK_INT(atomic_load(&finalized), 3);
  larger.table.struct_size = 8;
  CHECK_RESULT(penstock_async_interceptor_table(&larger.table, &made, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "struct_size");
  CHECK_INT(atomic_load(&finalized), 3); /* a table of this size cannot be read: the caller still owns its user data */
}
