/* Side calls, which a hop makes for its own call: their deadline and end, the places where they may wait, and many at
 * once. */
#include "side.h"

/* ---- Deadline and end ---- */

typedef struct seen_deadline {
  _Atomic int64_t unary;
} seen_deadline;

static int32_t note_deadline(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START && penstock_hop_kind(hop) == PENSTOCK_KIND_UNARY) {
    atomic_store(&((seen_deadline *)self->context)->unary, request_deadline_ms(penstock_hop_request(hop)));
  }
  return PENSTOCK_NEXT;
}

/* A hop that is retained in on_start for the thread of the test. */
typedef struct kept {
  penstock_hop *hop;
  latch started;
} kept;

static int32_t keep_hop(probe *self, penstock_hop *hop, int32_t event) {
  kept *kept = self->context;
  if (event == PENSTOCK_EVENT_START && !kept->hop) {
    kept->hop = penstock_hop_retain(hop);
    latch_signal(&kept->started);
  }
  return PENSTOCK_NEXT;
}

typedef struct scene {
  penstock_channel *channel;
  probe maker, below;
  kept kept;
  seen_deadline seen;
  penstock_call *parent;
} scene;

/* Opens a bidi call whose hop is retained, with another hop below it. */
static bool scene_open(scene *scene, const char *options_json) {
  memset(scene, 0, sizeof(*scene));
  latch empty = LATCH_INIT;
  scene->kept.started = empty;
  atomic_store(&scene->seen.unary, -2);
  scene->channel = open_channel();
  probe_init(&scene->maker, "maker");
  scene->maker.hook = keep_hop;
  scene->maker.context = &scene->kept;
  probe_init(&scene->below, "below");
  scene->below.hook = note_deadline;
  scene->below.context = &scene->seen;
  probe_add(&scene->maker, scene->channel, 2);
  probe_add(&scene->below, scene->channel, 1);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(options_json, &options, NULL));
  OK(penstock_channel_call(scene->channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &scene->parent, NULL));
  penstock_call_options_release(options);
  const penstock_metadata *headers = NULL;
  return OK(penstock_call_wait_headers(scene->parent, &headers)) && latch_wait(&scene->kept.started, 1);
}

static int32_t scene_finish_parent(scene *scene) {
  penstock_reply *reply = NULL;
  if (!OK(penstock_call_wait(scene->parent, &reply))) return -1;
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  return code;
}

static void scene_close(scene *scene) {
  penstock_call_release(scene->parent);
  penstock_hop_release(scene->kept.hop);
  penstock_channel_release(scene->channel);
  probe_wait_finalized(&scene->maker);
  probe_wait_finalized(&scene->below);
}

/* A unary side call in blocking style, on this thread. */
static int32_t blocking_unary(penstock_hop *hop, const char *options_json, uint32_t flags) {
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(options_json, &options, NULL));
  penstock_call *call = NULL;
  penstock_error *error = NULL;
  penstock_result result =
      penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, flags, options, NULL, &call, &error);
  penstock_call_options_release(options);
  if (!OK(result)) {
    printf("  %s\n", penstock_error_message(error));
    penstock_error_release(error);
    return -1;
  }
  OK(penstock_call_send(call, "hello", 5));
  penstock_reply *reply = NULL;
  int32_t code = -1;
  if (OK(penstock_call_wait(call, &reply))) {
    code = penstock_reply_code(reply);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  return code;
}

TEST(side_call_in_blocking_style_on_another_thread) {
  scene scene;
  REQUIRE(scene_open(&scene, NULL));
  CHECK_INT(blocking_unary(scene.kept.hop, NULL, 0), 0);
  CHECK_INT(atomic_load(&scene.seen.unary), -1);
  CHECK_INT(STARTS(scene.below), 2);
  CHECK_INT(STARTS(scene.maker), 1);
  CHECK_INT(scene_finish_parent(&scene), 0);
  scene_close(&scene);
}

TEST(side_call_inherits_the_earlier_deadline) {
  scene scene;
  REQUIRE(scene_open(&scene, "{\"deadline_ms\": 600000}"));
  CHECK_INT(blocking_unary(scene.kept.hop, NULL, 0), 0);
  int64_t left = atomic_load(&scene.seen.unary);
  CHECK(left > 0 && left <= 600000);
  CHECK_INT(blocking_unary(scene.kept.hop, "{\"deadline_ms\": 500000}", 0), 0);
  left = atomic_load(&scene.seen.unary);
  CHECK(left > 0 && left <= 500000);
  CHECK_INT(blocking_unary(scene.kept.hop, "{\"deadline_ms\": 900000}", 0), 0);
  left = atomic_load(&scene.seen.unary);
  CHECK(left > 0 && left <= 600000);
  CHECK_INT(blocking_unary(scene.kept.hop, NULL, PENSTOCK_SIDE_CALL_DETACHED), 0);
  CHECK_INT(atomic_load(&scene.seen.unary), -1);
  CHECK_INT(scene_finish_parent(&scene), 0);
  scene_close(&scene);
}

TEST(side_call_ends_with_its_call) {
  scene scene;
  REQUIRE(scene_open(&scene, NULL));
  told attached, detached, nested;
  told_init(&attached);
  told_init(&detached);
  told_init(&nested);
  OK(begin(scene.kept.hop, BIDI, PENSTOCK_KIND_BIDI, 0, &attached));
  OK(begin(scene.kept.hop, BIDI, PENSTOCK_KIND_BIDI, PENSTOCK_SIDE_CALL_DETACHED, &detached));
  latch_wait(&attached.headers, 1);
  latch_wait(&detached.headers, 1);
  CHECK_INT(scene_finish_parent(&scene), 0);
  latch_wait(&attached.replied, 1);
  CHECK_INT(atomic_load(&attached.code), PENSTOCK_STATUS_CANCELLED);
  CHECK_STR(attached.message, "the call for which it was made has ended");
  CHECK_INT(atomic_load(&detached.code), -1);
  OK(penstock_channel_close(scene.channel));
  latch_wait(&detached.replied, 1);
  CHECK_INT(atomic_load(&detached.code), PENSTOCK_STATUS_CANCELLED);
  CHECK_STR(detached.message, "channel closed");
  scene_close(&scene);
}

/* A hop of the side call makes another side call: all of them end with the first call. */
static int32_t keep_second(probe *self, penstock_hop *hop, int32_t event) {
  kept *kept = self->context;
  if (event == PENSTOCK_EVENT_START && atomic_load(&self->seen[PENSTOCK_EVENT_START]) == 2) {
    kept->hop = penstock_hop_retain(hop);
    latch_signal(&kept->started);
  }
  return PENSTOCK_NEXT;
}

TEST(side_calls_of_side_calls_end_with_the_first) {
  scene scene;
  kept second = {NULL, LATCH_INIT};
  REQUIRE(scene_open(&scene, NULL));
  scene.below.context = &second;
  scene.below.hook = keep_second;
  told child, grandchild;
  told_init(&child);
  told_init(&grandchild);
  OK(begin(scene.kept.hop, BIDI, PENSTOCK_KIND_BIDI, 0, &child));
  latch_wait(&second.started, 1);
  OK(begin(second.hop, BIDI, PENSTOCK_KIND_BIDI, 0, &grandchild));
  latch_wait(&grandchild.headers, 1);
  OK(penstock_call_cancel(scene.parent, "enough"));
  CHECK_INT(scene_finish_parent(&scene), PENSTOCK_STATUS_CANCELLED);
  latch_wait(&child.replied, 1);
  latch_wait(&grandchild.replied, 1);
  CHECK_INT(atomic_load(&child.code), PENSTOCK_STATUS_CANCELLED);
  CHECK_INT(atomic_load(&grandchild.code), PENSTOCK_STATUS_CANCELLED);
  CHECK_RESULT(begin(second.hop, BIDI, PENSTOCK_KIND_BIDI, 0, &grandchild), PENSTOCK_E_GONE);
  penstock_hop_release(second.hop);
  scene_close(&scene);
}

TEST(side_call_after_the_end_is_refused) {
  scene scene;
  REQUIRE(scene_open(&scene, NULL));
  CHECK_INT(scene_finish_parent(&scene), 0);
  for (uint32_t flags = 0; flags < 4; flags++) {
    told told;
    told_init(&told);
    CHECK_RESULT(begin(scene.kept.hop, UNARY, PENSTOCK_KIND_UNARY, flags, &told), PENSTOCK_E_GONE);
    /* The user data is transferred, even on error. */
    CHECK_INT(atomic_load(&told.finalized), 1);
  }
  scene_close(&scene);
}

TEST(side_call_refuses_what_is_wrong) {
  scene scene;
  REQUIRE(scene_open(&scene, NULL));
  penstock_hop *hop = scene.kept.hop;
  penstock_call *call = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_hop_start_side_call(hop, "nonsense", 0, 0, NULL, NULL, &call, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "nonsense");
  CHECK_RESULT(penstock_hop_start_side_call(hop, UNARY, 7, 0, NULL, NULL, &call, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "kind");
  CHECK_RESULT(penstock_hop_start_side_call(hop, UNARY, 0, 4, NULL, NULL, &call, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "flags");
  CHECK(call == NULL);
  OK(penstock_channel_close(scene.channel));
  CHECK_INT(scene_finish_parent(&scene), PENSTOCK_STATUS_CANCELLED);
  penstock_result result = penstock_hop_start_side_call(hop, UNARY, 0, 0, NULL, NULL, &call, NULL);
  CHECK(result == PENSTOCK_E_GONE || result == PENSTOCK_E_CLOSED);
  scene_close(&scene);
}

/* A side call in blocking style can be made in a callback, which must not block; waiting is refused, and releasing the
 * call cancels it. */
static int32_t block_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_call *call = NULL;
  if (!OK(penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, NULL, NULL, &call, NULL)))
    return PENSTOCK_NEXT;
  penstock_reply *reply = NULL;
  OK(penstock_call_try_send(call, "x", 1));
  CHECK_RESULT(penstock_call_wait(call, &reply), PENSTOCK_E_WOULD_DEADLOCK);
  penstock_call_release(call);
  return PENSTOCK_NEXT;
}

TEST(side_call_that_waits_in_a_callback_would_deadlock) {
  penstock_channel *channel = open_channel();
  probe maker;
  probe_init_with(&maker, "maker", block_in_callback, NULL);
  probe_add(&maker, channel, 0);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&maker);
}

/* On an executor's thread a callback may wait: there a side call works like any other call. */
static int32_t block_on_executor(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) CHECK_INT(blocking_unary(hop, NULL, 0), 0);
  return PENSTOCK_NEXT;
}

TEST(side_call_that_waits_on_an_executor) {
  penstock_channel *channel = open_channel();
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  probe maker, below;
  probe_init(&maker, "maker");
  probe_init(&below, "below");
  maker.hook = block_on_executor;
  penstock_interceptor table = probe_table(&maker);
  penstock_interceptor_id id;
  table.outbound_executor = executor;
  OK(penstock_channel_add_interceptor(channel, &table, 1, &id, NULL));
  probe_add(&below, channel, 0);
  check_echo(channel);
  CHECK_INT(STARTS(maker), 1);
  CHECK_INT(STARTS(below), 2);
  penstock_executor_release(executor);
  penstock_channel_release(channel);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&below);
}

/* ---- Many at once ---- */

/* Every start waits for a token; some callers cancel before it comes. */
static int32_t wait_for_token(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  told *told = malloc(sizeof(*told));
  told_init(told);
  told->ticket = penstock_hop_ticket(hop);
  penstock_call_callbacks table = told_table(told);
  table.finalizer = free;
  penstock_call *call = NULL;
  if (!OK(penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, NULL, &table, &call, NULL)))
    return PENSTOCK_NEXT;
  penstock_call_try_send(call, "token", 5);
  penstock_call_half_close(call);
  penstock_call_release(call);
  return PENSTOCK_PAUSE;
}

typedef struct storm {
  penstock_channel *channel;
  int rounds;
  atomic_int good, cancelled;
} storm;

static void *storm_thread(void *argument) {
  storm *storm = argument;
  for (int i = 0; i < storm->rounds; i++) {
    penstock_call *call = start_call(storm->channel, UNARY, PENSTOCK_KIND_UNARY);
    penstock_reply *reply = NULL;
    /* A call that will be cancelled has sent nothing, so it can't end before the cancel. */
    bool impatient = test_random(3) == 0;
    if (impatient) {
      OK(penstock_call_cancel(call, "impatient"));
    } else {
      OK(penstock_call_send(call, "x", 1));
    }
    if (OK(penstock_call_wait(call, &reply))) {
      int32_t code = penstock_reply_code(reply);
      CHECK_INT(code, impatient ? PENSTOCK_STATUS_CANCELLED : 0);
      atomic_fetch_add(code == 0 ? &storm->good : &storm->cancelled, 1);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
  }
  return NULL;
}

TEST(side_calls_in_a_storm) {
  storm storm = {.channel = open_channel(), .rounds = test_rounds(100)};
  probe maker, below;
  probe_init(&maker, "maker");
  probe_init(&below, "below");
  maker.hook = wait_for_token;
  probe_add(&maker, storm.channel, 1);
  probe_add(&below, storm.channel, 0);
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, storm_thread, &storm);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  CHECK_INT(atomic_load(&storm.good) + atomic_load(&storm.cancelled), 8 * storm.rounds);
  CHECK(atomic_load(&storm.good) > 0);
  penstock_channel_release(storm.channel);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&below);
  CHECK_INT(STARTS(below), atomic_load(&below.seen[PENSTOCK_EVENT_DESTROY]));
}
