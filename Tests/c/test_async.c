/* async.h: interceptors whose callbacks get completions, called within them, later and elsewhere, twice, or never. */
#include "test.h"

enum { START = PENSTOCK_EVENT_START, SEND, HALF_CLOSE, HEADERS, RECEIVE, STATUS };

typedef enum act {
  PASS,         /* next, within the callback */
  PASS_LATER,   /* next, on another thread */
  DROP,         /* released uncalled, within the callback */
  DROP_LATER,   /* released uncalled, on another thread */
  CANCEL,       /* with DATA_LOSS, within the callback */
  CANCEL_LATER, /* the same on another thread */
  KEEP,         /* for the test, which takes it with `take_kept` */
} act;

/* An interceptor in asynchronous style, which counts and records; one worker thread completes what is for later. */
typedef struct style {
  act acts[7]; /* by PENSTOCK_EVENT_... */
  /* What is called first in each callback. */
  void (*look)(struct style *self, int32_t event, penstock_completion *completion);
  void *context;
  atomic_int seen[7];
  atomic_int created, destroyed, cancelled, finalized;
  bool declines;
  char method[64];
  int32_t kind;
  int32_t cancel_code;
  latch kept_latch, finalized_latch;
  penstock_completion *kept;
  /* What the running callback was given. */
  penstock_metadata *metadata;
  penstock_status *status;
  const char *data;
  size_t length;

  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct {
    penstock_completion *completion;
    act act;
  } queue[256];
  size_t queued, done;
  bool stop;
  pthread_t worker;
} style;

static void complete(penstock_completion *completion, act act) {
  if (act == PASS || act == PASS_LATER) {
    OK(penstock_completion_next(completion));
    CHECK_RESULT(penstock_completion_cancel(completion, PENSTOCK_STATUS_ABORTED, "late"), PENSTOCK_E_ALREADY);
  }
  if (act == CANCEL || act == CANCEL_LATER) {
    OK(penstock_completion_cancel(completion, PENSTOCK_STATUS_DATA_LOSS, "not today"));
    CHECK_RESULT(penstock_completion_next(completion), PENSTOCK_E_ALREADY);
  }
  penstock_completion_release(completion);
}

static void *work(void *argument) {
  style *self = argument;
  pthread_mutex_lock(&self->mutex);
  while (!self->stop || self->done < self->queued) {
    if (self->done == self->queued) {
      pthread_cond_wait(&self->changed, &self->mutex);
      continue;
    }
    size_t next = self->done++;
    pthread_mutex_unlock(&self->mutex);
    complete(self->queue[next].completion, self->queue[next].act);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

static void came(style *self, int32_t event, penstock_completion *completion) {
  atomic_fetch_add(&self->seen[event], 1);
  if (self->look) self->look(self, event, completion);
  act act = self->acts[event];
  if (act == KEEP) {
    self->kept = completion;
    latch_signal(&self->kept_latch);
  } else if (act == PASS_LATER || act == DROP_LATER || act == CANCEL_LATER) {
    pthread_mutex_lock(&self->mutex);
    if (self->queued == sizeof(self->queue) / sizeof(self->queue[0])) abort();
    self->queue[self->queued].completion = completion;
    self->queue[self->queued].act = act;
    self->queued++;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->mutex);
  } else {
    complete(completion, act);
  }
}

/* The state of a call is a pointer to its style's own pointer, so that a wrong one shows. */
static int32_t create(void *user_data, const char *method, int32_t kind, void **state) {
  style *self = user_data;
  atomic_fetch_add(&self->created, 1);
  snprintf(self->method, sizeof(self->method), "%s", method);
  self->kind = kind;
  if (self->declines) return PENSTOCK_SKIP;
  style **mine = malloc(sizeof(*mine));
  *mine = self;
  *state = mine;
  return PENSTOCK_NEXT;
}
static void destroy(void *state) {
  style **mine = state;
  atomic_fetch_add(&(*mine)->destroyed, 1);
  free(mine);
}
static void on_metadata(void *state, penstock_metadata *metadata, penstock_completion *completion, int32_t event) {
  style *self = *(style **)state;
  self->metadata = metadata;
  CHECK(metadata != NULL);
  came(self, event, completion);
}
static void on_start(void *state, penstock_metadata *metadata, penstock_completion *completion) {
  on_metadata(state, metadata, completion, START);
}
static void on_headers(void *state, penstock_metadata *metadata, penstock_completion *completion) {
  on_metadata(state, metadata, completion, HEADERS);
}
static void on_message(void *state, const void *data, size_t length, penstock_completion *completion, int32_t event) {
  style *self = *(style **)state;
  self->data = data;
  self->length = length;
  CHECK(data != NULL);
  came(self, event, completion);
}
static void on_request(void *state, const void *data, size_t length, penstock_completion *completion) {
  on_message(state, data, length, completion, SEND);
}
static void on_response(void *state, const void *data, size_t length, penstock_completion *completion) {
  on_message(state, data, length, completion, RECEIVE);
}
static void on_half_close(void *state, penstock_completion *completion) {
  came(*(style **)state, HALF_CLOSE, completion);
}
static void on_status(void *state, penstock_status *status, penstock_completion *completion) {
  style *self = *(style **)state;
  self->status = status;
  CHECK(status != NULL);
  came(self, STATUS, completion);
}
static void on_cancel(void *state, const penstock_status *status) {
  style *self = *(style **)state;
  self->cancel_code = penstock_status_code(status);
  atomic_fetch_add(&self->cancelled, 1);
}
static void finalize(void *user_data) {
  style *self = user_data;
  atomic_fetch_add(&self->finalized, 1);
  latch_signal(&self->finalized_latch);
}

static void style_init(style *self) {
  memset(self, 0, sizeof(*self));
  self->kept_latch = (latch)LATCH_INIT;
  self->finalized_latch = (latch)LATCH_INIT;
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->changed, NULL);
  if (pthread_create(&self->worker, NULL, work, self)) abort();
}

static penstock_interceptor style_table(style *self) {
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.name = "promise";
  table.user_data = self;
  table.finalizer = finalize;
  table.create = create;
  table.destroy = destroy;
  table.on_start = on_start;
  table.on_request = on_request;
  table.on_half_close = on_half_close;
  table.on_headers = on_headers;
  table.on_response = on_response;
  table.on_status = on_status;
  table.on_cancel = on_cancel;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  return made;
}

static void style_add(style *self, penstock_channel *channel, int32_t priority) {
  penstock_interceptor table = style_table(self);
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
}

static penstock_completion *take_kept(style *self, int count) {
  latch_wait(&self->kept_latch, count);
  return self->kept;
}

/* `calls`: how many calls had it. */
static void style_end(style *self, int calls) {
  latch_wait(&self->finalized_latch, 1);
  pthread_mutex_lock(&self->mutex);
  self->stop = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->worker, NULL);
  CHECK_INT(atomic_load(&self->finalized), 1);
  CHECK_INT(atomic_load(&self->created), calls);
  CHECK_INT(atomic_load(&self->destroyed), self->declines ? 0 : calls);
}

/* A bidi call that sends `count` messages, and reads them all back. */
static void exchange(penstock_channel *channel, int count) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  if (!call) return;
  for (int i = 0; i < count; i++) OK(penstock_call_send(call, &i, sizeof(i)));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < count; i++) {
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    int got = -1;
    if (CHECK_INT(penstock_message_length(message), sizeof(got))) memcpy(&got, penstock_message_data(message), 4);
    CHECK_INT(got, i);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
}

static void set_all(style *self, act act) {
  for (int event = START; event <= STATUS; event++) self->acts[event] = act;
}

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

static void bare_status(void *state, penstock_status *status, penstock_completion *completion) {
  CHECK_INT(penstock_status_code(status), PENSTOCK_STATUS_OK);
  count_up(state);
  OK(penstock_completion_next(completion));
  penstock_completion_release(completion);
}
TEST(async_null_callbacks_pass) {
  atomic_int told = 0;
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.user_data = &told; /* without create it is the state */
  table.on_status = bare_status;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  made.hold_bytes = 77;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  CHECK(!made.create && !made.destroy && !made.on_start && !made.on_send && !made.on_half_close && !made.on_headers &&
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

static void edit(style *self, int32_t event, penstock_completion *completion) {
  penstock_hop *hop = penstock_completion_hop(completion);
  CHECK_INT(penstock_hop_event(hop), event);
  if (event == START) {
    OK(penstock_metadata_set(self->metadata, "x-echo-metadata", "1"));
    OK(penstock_hop_set_method(hop, UNARY));
  }
  if (event == HEADERS) OK(penstock_metadata_set(self->metadata, "x-seen", "headers"));
  if (event == STATUS) {
    OK(penstock_status_set_message(self->status, "changed"));
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
  CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "changed");
  penstock_reply_release(reply);
  CHECK_STR(style.method, "/other.Service/Method");
  penstock_channel_release(channel);
  style_end(&style, 1);
}

typedef struct unary_run {
  penstock_channel *channel;
  penstock_reply *reply;
} unary_run;
static void *run_unary(void *argument) {
  unary_run *run = argument;
  OK(penstock_channel_unary(run->channel, UNARY, "ping", 4, NULL, &run->reply, NULL));
  return NULL;
}

TEST(async_changes_later) {
  style style;
  style_init(&style);
  set_all(&style, KEEP);
  unary_run run = {open_channel(), NULL};
  style_add(&style, run.channel, 0);
  pthread_t caller;
  REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
  penstock_completion *kept = take_kept(&style, 1);
  OK(penstock_metadata_set(style.metadata, "x-trailers-mine", "1"));
  CHECK_RESULT(penstock_completion_next_message(kept, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_completion_resolve(kept, PENSTOCK_DROP), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_completion_resolve(kept, PENSTOCK_PAUSE), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_completion_resolve(kept, 99), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_completion_next(kept));
  penstock_completion_release(kept);
  kept = take_kept(&style, 2); /* on_request */
  CHECK_INT(style.length, 4);
  CHECK(memcmp(style.data, "ping", 4) == 0);
  OK(penstock_completion_next_message(kept, "request", 7));
  CHECK_RESULT(penstock_completion_next_message(kept, "again", 5), PENSTOCK_E_ALREADY);
  penstock_completion_release(kept);
  kept = take_kept(&style, 3); /* on_half_close */
  OK(penstock_completion_next(kept));
  penstock_completion_release(kept);
  kept = take_kept(&style, 4); /* on_headers */
  OK(penstock_completion_next(kept));
  penstock_completion_release(kept);
  kept = take_kept(&style, 5); /* on_response */
  CHECK_INT(style.length, 7);
  CHECK(memcmp(style.data, "request", 7) == 0);
  OK(penstock_completion_next_message(kept, "response", 8));
  penstock_completion_release(kept);
  kept = take_kept(&style, 6); /* on_status */
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_status_trailers(style.status), "x-trailers-mine", 0, &value, NULL));
  OK(penstock_status_set_message(style.status, "late"));
  OK(penstock_completion_next(kept));
  pthread_join(caller, NULL);
  CHECK_RESULT(penstock_completion_next(kept), PENSTOCK_E_ALREADY);
  penstock_completion_release(kept);
  REQUIRE(run.reply != NULL);
  size_t length = 0;
  const char *message = penstock_reply_message(run.reply, &length);
  CHECK(length == 8 && memcmp(message, "response", 8) == 0);
  CHECK_STR(penstock_status_message(penstock_reply_status(run.reply)), "late");
  penstock_reply_release(run.reply);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

static void replace_now(style *self, int32_t event, penstock_completion *completion) {
  (void)self;
  if (event != SEND && event != RECEIVE) return;
  OK(penstock_completion_next_message(completion, "now", 3));
}
TEST(async_replaces_within_the_callback) {
  style style;
  style_init(&style);
  style.look = replace_now;
  style.acts[SEND] = style.acts[RECEIVE] = DROP; /* released after it was called: no harm */
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "a long message", 14, NULL, &reply, NULL));
  size_t length = 0;
  const char *message = penstock_reply_message(reply, &length);
  CHECK(length == 3 && memcmp(message, "now", 3) == 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

static void drop_some(style *self, int32_t event, penstock_completion *completion) {
  int number = 0;
  if (event == SEND || event == RECEIVE) memcpy(&number, self->data, sizeof(number));
  if (event == RECEIVE && number % 2) OK(penstock_completion_resolve(completion, PENSTOCK_DROP));
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

/* ---- Ending ---- */

static void expect_end(act act, int32_t event, int32_t code, const char *message) {
  style style;
  style_init(&style);
  style.acts[event] = act;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), code);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply)), message);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

TEST(async_cancel_at_every_event) {
  for (int event = START; event <= STATUS; event++) {
    expect_end(CANCEL, event, PENSTOCK_STATUS_DATA_LOSS, "not today");
    expect_end(CANCEL_LATER, event, PENSTOCK_STATUS_DATA_LOSS, "not today");
  }
}

TEST(law_7_async_completion_dropped_at_every_event) {
  const char *words = "interceptor 'promise' dropped its completion";
  for (int event = START; event <= STATUS; event++) {
    expect_end(DROP, event, PENSTOCK_STATUS_INTERNAL, words);
    expect_end(DROP_LATER, event, PENSTOCK_STATUS_INTERNAL, words);
  }
}

static void cancel_with(style *self, int32_t event, penstock_completion *completion) {
  (void)self;
  if (event != START) return;
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OUT_OF_RANGE, "far", &status));
  OK(penstock_status_add_detail(status, "type.googleapis.com/a.B", "xy", 2));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-t", "1"));
  OK(penstock_completion_cancel_with(completion, status));
  penstock_status_release(status);
}
TEST(async_cancel_with_a_built_status) {
  style style;
  style_init(&style);
  style.look = cancel_with;
  style.acts[START] = DROP;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OUT_OF_RANGE);
  CHECK_INT(penstock_status_detail_count(penstock_reply_status(reply)), 1);
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-t", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

/* A deadline passes by a completion that is never called. */
TEST(law_4_async_deadline_while_a_completion_is_open) {
  for (int event = START; event <= STATUS; event++) {
    style style;
    style_init(&style);
    style.acts[event] = KEEP;
    penstock_channel *channel = open_channel();
    style_add(&style, channel, 0);
    penstock_call_options *options = NULL;
    penstock_reply *reply = NULL;
    OK(penstock_call_options_new("{\"deadline_ms\": 40}", &options, NULL));
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    penstock_reply_release(reply);
    penstock_call_options_release(options);
    latch_wait(&style.kept_latch, 1);
    /* The deadline came to on_status; or to on_cancel, where a status was held there. */
    CHECK_INT(atomic_load(&style.seen[STATUS]), 1);
    CHECK_INT(atomic_load(&style.cancelled), event == STATUS ? 1 : 0);
    if (event == STATUS) CHECK_INT(style.cancel_code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    CHECK_INT(atomic_load(&style.destroyed), 1);
    penstock_completion *kept = style.kept;
    CHECK_RESULT(penstock_completion_next(kept), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_hop_demand(penstock_completion_hop(kept), 1), PENSTOCK_E_GONE);
    penstock_completion_release(kept);
    penstock_channel_release(channel);
    style_end(&style, 1);
  }
}

static void refuse_to_change(style *self, int32_t event, penstock_completion *completion) {
  if (event != STATUS) return;
  CHECK_INT(penstock_status_code(self->status), PENSTOCK_STATUS_CANCELLED);
  CHECK_RESULT(penstock_status_set_code(self->status, 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_completion_cancel(completion, 1, NULL), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_completion_resolve(completion, PENSTOCK_RESTART), PENSTOCK_E_GONE);
}
/* The caller cancels while on_start's completion is open: on_status gets CANCELLED, and next there is no error. */
TEST(async_cancel_by_the_caller) {
  for (int drops = 0; drops < 2; drops++) {
    style style;
    style_init(&style);
    style.look = refuse_to_change;
    style.acts[START] = KEEP;
    style.acts[STATUS] = drops ? DROP : PASS;
    penstock_channel *channel = open_channel();
    style_add(&style, channel, 0);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_completion *kept = take_kept(&style, 1);
    OK(penstock_call_cancel(call, "enough"));
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_call_finish(call, &reply));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    penstock_reply_release(reply);
    penstock_call_release(call);
    CHECK_INT(atomic_load(&style.seen[STATUS]), 1);
    penstock_completion_release(kept); /* uncalled: the call has ended */
    penstock_channel_release(channel);
    style_end(&style, 1);
  }
}

static int32_t finish_on_receive(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE) OK(penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "stop"));
  return PENSTOCK_NEXT;
}
TEST(async_ended_by_a_hop_above) {
  style style;
  probe above;
  style_init(&style);
  style.acts[HEADERS] = PASS_LATER;
  probe_init(&above, "above");
  above.hook = finish_on_receive;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  probe_add(&above, channel, 1);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_ABORTED);
  CHECK_INT(atomic_load(&style.cancelled), 1);
  CHECK_INT(style.cancel_code, PENSTOCK_STATUS_ABORTED);
  CHECK_INT(atomic_load(&style.seen[STATUS]), 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  style_end(&style, 1);
}

/* ---- Other verdicts ---- */

static void refresh(style *self, int32_t event, penstock_completion *completion) {
  if (event != STATUS || penstock_status_code(self->status) != PENSTOCK_STATUS_UNAUTHENTICATED) return;
  penstock_hop *hop = penstock_completion_hop(completion);
  OK(penstock_hop_can_restart(hop));
  OK(penstock_metadata_remove(penstock_hop_request_metadata(hop), "x-status"));
}
/* The first status is kept until the test says RESTART. */
TEST(async_restarts) {
  style style;
  style_init(&style);
  style.look = refresh;
  style.acts[STATUS] = KEEP;
  unary_run run = {open_channel(), NULL};
  penstock_interceptor table = style_table(&style);
  table.replay_bytes = 100;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(run.channel, &table, 0, &id, NULL));
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"metadata\": {\"x-status\": \"16\"}}", &options, NULL));
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(run.channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  penstock_completion *kept = take_kept(&style, 1);
  OK(penstock_completion_resolve(kept, PENSTOCK_RESTART));
  penstock_completion_release(kept);
  kept = take_kept(&style, 2);
  OK(penstock_completion_next(kept));
  penstock_completion_release(kept);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  size_t length = 0;
  penstock_reply_message(reply, &length);
  CHECK_INT(length, 4);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  CHECK_INT(atomic_load(&style.seen[START]), 1);
  CHECK_INT(atomic_load(&style.seen[STATUS]), 2);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

/* TAKE by completion, and an answer through the hop, all on another thread. */
TEST(async_takes) {
  style style;
  style_init(&style);
  style.acts[START] = KEEP;
  unary_run run = {open_channel(), NULL};
  style_add(&style, run.channel, 0);
  style.look = NULL;
  pthread_t caller;
  REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
  penstock_completion *kept = take_kept(&style, 1);
  penstock_hop *hop = penstock_completion_hop(kept);
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ALREADY_EXISTS, "mine", &status));
  OK(penstock_hop_deliver_status(hop, status));
  OK(penstock_completion_resolve(kept, PENSTOCK_TAKE));
  pthread_join(caller, NULL);
  CHECK_RESULT(penstock_hop_deliver_status(hop, status), PENSTOCK_E_GONE);
  penstock_completion_release(kept);
  penstock_status_release(status);
  REQUIRE(run.reply != NULL);
  CHECK_INT(penstock_reply_code(run.reply), PENSTOCK_STATUS_ALREADY_EXISTS);
  penstock_reply_release(run.reply);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

/* ---- Races ---- */

typedef struct racer {
  penstock_completion *completion;
  pthread_barrier_t *barrier;
  int kind;
  penstock_result result;
} racer;
static void *race(void *argument) {
  racer *self = argument;
  pthread_barrier_wait(self->barrier);
  if (self->kind == 0) self->result = penstock_completion_next(self->completion);
  if (self->kind == 1) self->result = penstock_completion_next_message(self->completion, "raced", 5);
  if (self->kind == 2) self->result = penstock_completion_cancel(self->completion, PENSTOCK_STATUS_ABORTED, "raced");
  penstock_completion_release(self->completion);
  return NULL;
}
/* Within the callback and after it, against each other: one wins, the others are told. */
static void race_all(style *self, int32_t event, penstock_completion *completion) {
  if (event != SEND) return;
  racer *racers = self->context;
  pthread_t threads[3];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, 3);
  for (int i = 0; i < 3; i++) {
    racers[i] = (racer){penstock_completion_retain(completion), &barrier, i, -1};
    if (pthread_create(&threads[i], NULL, race, &racers[i])) abort();
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}
static void check_race(racer *racers) {
  int won = 0;
  for (int i = 0; i < 3; i++) {
    won += racers[i].result == PENSTOCK_OK;
    CHECK(racers[i].result == PENSTOCK_OK || racers[i].result == PENSTOCK_E_ALREADY ||
          racers[i].result == PENSTOCK_E_GONE);
  }
  CHECK_INT(won, 1);
}
TEST(async_one_of_many_calls_wins) {
  penstock_channel *channel = open_channel();
  style style;
  racer racers[3];
  style_init(&style);
  style.look = race_all;
  style.context = racers;
  style.acts[SEND] = DROP;
  style_add(&style, channel, 0);
  int rounds = test_rounds(100);
  for (int i = 0; i < rounds; i++) {
    unary_code(channel, "ping");
    check_race(racers);
  }
  penstock_channel_release(channel);
  style_end(&style, rounds);

  unary_run run = {open_channel(), NULL};
  style_init(&style);
  style.context = racers;
  style.acts[SEND] = KEEP;
  style_add(&style, run.channel, 0);
  for (int i = 0; i < rounds; i++) {
    pthread_t caller;
    REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
    penstock_completion *kept = take_kept(&style, i + 1);
    race_all(&style, SEND, kept);
    check_race(racers);
    penstock_completion_release(kept);
    pthread_join(caller, NULL);
    penstock_reply_release(run.reply);
  }
  penstock_channel_release(run.channel);
  style_end(&style, rounds);
}

/* ---- The table ---- */

TEST(async_table_is_checked) {
  atomic_int finalized = 0;
  penstock_error *error = NULL;
  struct {
    penstock_async_interceptor table;
    char more[8];
  } larger = {.table = PENSTOCK_ASYNC_INTERCEPTOR_INIT, .more = {0}};
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  larger.table.user_data = &finalized;
  larger.table.finalizer = count_up;
  larger.table.struct_size = sizeof(larger);
  OK(penstock_async_interceptor_table(&larger.table, &made, NULL));
  CHECK_INT(atomic_load(&finalized), 0);
  made.finalizer(made.user_data); /* never registered */
  CHECK_INT(atomic_load(&finalized), 1);
  larger.more[3] = 1;
  CHECK_RESULT(penstock_async_interceptor_table(&larger.table, &made, &error), PENSTOCK_E_UNSUPPORTED);
  CHECK_ERROR(error, PENSTOCK_E_UNSUPPORTED, NULL, "struct_size");
  CHECK_INT(atomic_load(&finalized), 2);
  larger.table.struct_size = sizeof(larger.table);
  larger.table.flags = PENSTOCK_PER_ATTEMPT;
  OK(penstock_async_interceptor_table(&larger.table, &made, NULL));
  CHECK_INT(made.flags, PENSTOCK_PER_ATTEMPT);
  made.finalizer(made.user_data);
  CHECK_INT(atomic_load(&finalized), 3);
  larger.table.struct_size = 8;
  CHECK_RESULT(penstock_async_interceptor_table(&larger.table, &made, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "struct_size");
  CHECK_INT(atomic_load(&finalized), 3); /* such a table cannot be read: its user data stays the caller's */
}
