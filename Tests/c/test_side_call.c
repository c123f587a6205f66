/* Side calls, which a hop makes for its own call: their chain. */
#include "side.h"

/* ---- Which chain ---- */

typedef struct plan {
  told told;
  const char *method;
  int32_t kind;
  uint32_t flags;
  int32_t at; /* the event in which the side call is made */
  bool waits; /* the event waits until the reply is there */
  atomic_int made;
} plan;

static int32_t make_one(probe *self, penstock_hop *hop, int32_t event) {
  plan *plan = self->context;
  if (event != plan->at || atomic_fetch_add(&plan->made, 1) > 0) return PENSTOCK_NEXT;
  if (plan->waits) plan->told.ticket = penstock_hop_ticket(hop);
  OK(begin(hop, plan->method, plan->kind, plan->flags, &plan->told));
  return plan->waits ? PENSTOCK_PAUSE : PENSTOCK_NEXT;
}

static void plan_init(plan *plan, const char *method, int32_t kind, uint32_t flags, int32_t at, bool waits) {
  memset(plan, 0, sizeof(*plan));
  told_init(&plan->told);
  plan->method = method;
  plan->kind = kind;
  plan->flags = flags;
  plan->at = at;
  plan->waits = waits;
}

static void add_maker(probe *probe, plan *plan, penstock_channel *channel, int32_t priority) {
  probe_init(probe, "maker");
  probe->hook = make_one;
  probe->context = plan;
  probe_add(probe, channel, priority);
}

TEST(side_call_starts_below_its_hop) {
  penstock_channel *channel = open_channel();
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, 0, PENSTOCK_EVENT_START, true);
  probe above, maker, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  probe_add(&above, channel, 3);
  add_maker(&maker, &token, channel, 2);
  probe_add(&below, channel, 1);
  check_echo(channel);
  latch_wait(&token.told.replied, 1);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_STR(token.told.body, "token");
  CHECK_INT(STARTS(above), 1);
  CHECK_INT(STARTS(maker), 1);
  CHECK_INT(STARTS(below), 2);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_DESTROY]), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&token.told.finalized), 1);
}

TEST(side_call_from_the_top_meets_all) {
  penstock_channel *channel = open_channel();
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, PENSTOCK_SIDE_CALL_FROM_TOP, PENSTOCK_EVENT_START, true);
  probe above, maker;
  probe_init(&above, "above");
  probe_add(&above, channel, 3);
  add_maker(&maker, &token, channel, 2);
  check_echo(channel);
  latch_wait(&token.told.replied, 1);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_INT(STARTS(above), 2);
  CHECK_INT(STARTS(maker), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&above);
}

static void add_filtered(probe *probe, penstock_channel *channel, const char *methods, uint32_t kinds) {
  penstock_interceptor table = probe_table(probe);
  penstock_interceptor_id id;
  table.methods = methods;
  table.kinds = kinds;
  OK(penstock_channel_add_interceptor(channel, &table, 1, &id, NULL));
}

/* The chain of a side call is that of a new call (law 6) of the same method and kind. */
TEST(side_call_meets_what_is_registered_now_for_its_method) {
  penstock_channel *channel = open_channel();
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, 0, PENSTOCK_EVENT_SEND, false);
  probe maker, removed, later, later_above, its_method, other_kind;
  probe_init(&removed, "removed");
  probe_init(&later, "later");
  probe_init(&later_above, "later above");
  probe_init(&its_method, "its method");
  probe_init(&other_kind, "other kind");
  add_maker(&maker, &token, channel, 2);
  penstock_interceptor_id id = probe_add(&removed, channel, 1);
  add_filtered(&its_method, channel, UNARY, 0);
  add_filtered(&other_kind, channel, NULL, 1u << PENSTOCK_KIND_BIDI);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  const penstock_metadata *headers = NULL;
  OK(penstock_call_wait_headers(call, &headers));
  OK(penstock_registration_remove(id, NULL));
  probe_add(&later, channel, 1);
  probe_add(&later_above, channel, 3);
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&token.told.replied, 1);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_INT(STARTS(removed), 1);
  CHECK_INT(STARTS(later), 1);
  CHECK_INT(STARTS(later_above), 0);
  CHECK_INT(STARTS(its_method), 1);
  CHECK_INT(STARTS(other_kind), 1);
  CHECK_INT(STARTS(maker), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&removed);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&later);
  probe_wait_finalized(&later_above);
  probe_wait_finalized(&its_method);
  probe_wait_finalized(&other_kind);
}

/* The interceptor that makes the side call is removed while its call runs: the side call still starts where
 * the interceptor was in the chain. */
TEST(side_call_of_a_removed_interceptor_starts_at_its_old_place) {
  penstock_channel *channel = open_channel();
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, 0, PENSTOCK_EVENT_SEND, false);
  probe above, maker, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  probe_add(&above, channel, 3);
  probe_init_with(&maker, "maker", make_one, &token);
  penstock_interceptor_id id = probe_add(&maker, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  const penstock_metadata *headers = NULL;
  OK(penstock_call_wait_headers(call, &headers));
  OK(penstock_registration_remove(id, NULL));
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&token.told.replied, 1);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_INT(STARTS(above), 1);
  CHECK_INT(STARTS(below), 2);
  penstock_call_release(call);
  probe_wait_finalized(&maker);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
}

/* A side call of a hop above the codec passes neither this hop nor the second hop of its interceptor, which is below
 * the codec; the other hops at the bytes level are below it, whatever their priority. */
TEST(side_call_of_a_hop_above_the_codec) {
  penstock_channel *channel = open_channel();
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, 0, PENSTOCK_EVENT_START, true);
  probe maker, bytes;
  probe_init(&bytes, "bytes");
  probe_add(&bytes, channel, 9);
  probe_init_with(&maker, "maker", make_one, &token);
  penstock_interceptor table = probe_table(&maker);
  penstock_interceptor_id id;
  table.level = PENSTOCK_LEVEL_BOTH;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_echo(channel);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_INT(STARTS(maker), 2);
  CHECK_INT(STARTS(bytes), 2);
  penstock_channel_release(channel);
  latch_wait(&token.told.replied, 1);
  probe_wait_finalized(&maker);
  probe_wait_finalized(&bytes);
}

/* Even if the channel's messages are objects, a hop below the codec makes its side call with bytes. */
static int32_t encode_byte(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)user_data, (void)method;
  return penstock_buffer_append(bytes, object, 1);
}
static int32_t decode_byte(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data, (void)method;
  *object = calloc(1, length + 1);
  memcpy(*object, data, length);
  return 0;
}
static void free_byte(void *user_data, void *object) {
  (void)user_data;
  free(object);
}

TEST(side_call_of_a_hop_below_a_codec_takes_bytes) {
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode_byte;
  functions.decode = decode_byte;
  functions.free = free_byte;
  penstock_codec *codec = NULL;
  REQUIRE_OK(penstock_codec_new(&functions, &codec, NULL));
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_codec(channel, codec));
  plan token;
  plan_init(&token, UNARY, PENSTOCK_KIND_UNARY, 0, PENSTOCK_EVENT_START, true);
  probe maker;
  add_maker(&maker, &token, channel, 0);
  penstock_reply *reply = NULL;
  if (OK(unary_object(channel, codec, calloc(1, 2), &reply))) {
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
  }
  latch_wait(&token.told.replied, 1);
  CHECK_INT(atomic_load(&token.told.code), 0);
  CHECK_STR(token.told.body, "token");
  penstock_codec_release(codec);
  penstock_channel_release(channel);
  probe_wait_finalized(&maker);
}

/* Each level of side calls begins further down, so interceptors that make a side call for every call do not loop for
 * ever. */
static int32_t make_always(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(begin(hop, UNARY, PENSTOCK_KIND_UNARY, PENSTOCK_SIDE_CALL_DETACHED, self->context));
  return PENSTOCK_NEXT;
}

TEST(side_calls_of_side_calls_come_to_an_end) {
  penstock_channel *channel = open_channel();
  told told;
  told_init(&told);
  enum { COUNT = 4 };
  probe makers[COUNT];
  for (int i = 0; i < COUNT; i++) {
    probe_init_with(&makers[i], "maker", make_always, &told);
    probe_add(&makers[i], channel, COUNT - i);
  }
  check_echo(channel);
  /* Each hop doubles the number of calls that come to the hops below it. */
  latch_wait(&told.replied, (1 << COUNT) - 1);
  for (int i = 0; i < COUNT; i++) CHECK_INT(STARTS(makers[i]), 1 << i);
  penstock_channel_release(channel);
  for (int i = 0; i < COUNT; i++) probe_wait_finalized(&makers[i]);
}
