/* picker.h: a picker of the program (docs/channel.md). */
#include "servers.h"

typedef struct {
  int32_t (*choose)(penstock_pick *pick, void *context);
  void *context;
  atomic_int asked, most;
  latch finalized;
} chooser;

#define CHOOSER(function, argument)                                                                                    \
  { function, argument, 0, 0, LATCH_INIT }

static int32_t choose(penstock_pick *pick, void *user_data) {
  chooser *self = user_data;
  atomic_fetch_add(&self->asked, 1);
  int count = (int)penstock_pick_count(pick);
  if (count > atomic_load(&self->most)) atomic_store(&self->most, count);
  return self->choose(pick, self->context);
}

static void on_end(void *user_data) { latch_signal(&((chooser *)user_data)->finalized); }

static void set_picker(servers *all, chooser *self) {
  OK(penstock_channel_set_picker(all->channel, choose, self, on_end));
}

/* Gives the value "x-user" of the call's metadata; NULL if there is none. */
static const char *user_of(penstock_pick *pick, char *text, size_t size) {
  const void *value = NULL;
  size_t length = 0;
  const penstock_metadata *metadata = penstock_request_metadata(penstock_pick_request(pick));
  if (penstock_metadata_get(metadata, "x-user", 0, &value, &length) != PENSTOCK_OK) return NULL;
  snprintf(text, size, "%.*s", (int)length, (const char *)value);
  return text;
}

/* Gives the index of an address, or PENSTOCK_PICK_WAIT if the address is not ready. */
static int32_t index_of(penstock_pick *pick, const char *address) {
  for (size_t i = 0; i < penstock_pick_count(pick); i++)
    if (strcmp(penstock_pick_address(pick, i), address) == 0) return (int32_t)i;
  return PENSTOCK_PICK_WAIT;
}

/* Each user has a server, whose index is the last digit of the user's name. */
static int32_t by_user(penstock_pick *pick, void *context) {
  servers *all = context;
  char text[64];
  const char *user = user_of(pick, text, sizeof(text));
  CHECK_STR(penstock_request_method(penstock_pick_request(pick)), UNARY);
  return user ? index_of(pick, all->address[(user[strlen(user) - 1] - '0') % SERVERS]) : 0;
}

TEST(picker_pins_users) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, PICK_FIRST, NULL);
  chooser self = CHOOSER(by_user, &all);
  set_picker(&all, &self);
  for (int i = 0; i < 30; i++) {
    char user[16];
    snprintf(user, sizeof(user), "user%d", i % 7);
    outcome found = ask(&all, user, NULL);
    CHECK_INT(found.code, 0);
    CHECK_INT(found.server, i % 7 % SERVERS);
  }
  CHECK_INT(atomic_load(&self.most), SERVERS);
  OK(penstock_channel_close(all.channel));
  latch_wait(&self.finalized, 1);
  CHECK_RESULT(penstock_channel_set_picker(all.channel, choose, &self, on_end), PENSTOCK_E_CLOSED);
  latch_wait(&self.finalized, 2);
  end_servers(&all);
}

static int32_t look(penstock_pick *pick, void *context) {
  servers *all = context;
  penstock_request *request = penstock_pick_request(pick);
  CHECK(penstock_pick_count(pick) >= 1 && penstock_pick_count(pick) <= SERVERS);
  for (size_t i = 0; i < penstock_pick_count(pick); i++) {
    int server = 0;
    while (server < SERVERS - 1 && strcmp(all->address[server], penstock_pick_address(pick, i))) server++;
    CHECK_STR(penstock_pick_address(pick, i), all->address[server]);
    CHECK_INT(penstock_pick_weight(pick, i), server + 1);
    CHECK_STR(penstock_pick_attribute(pick, i, "zone"), server ? "b" : "a");
    CHECK(penstock_pick_attribute(pick, i, "rack") == NULL && penstock_pick_attribute(pick, i, NULL) == NULL);
  }
  CHECK(penstock_pick_address(pick, SERVERS) == NULL && penstock_pick_address(pick, SIZE_MAX) == NULL);
  CHECK(penstock_pick_attribute(pick, SIZE_MAX, "zone") == NULL);
  CHECK_INT(penstock_pick_weight(pick, SERVERS), 0);
  /* The request is readable, and can't be changed. */
  CHECK_STR(penstock_request_authority(request), "pool.example:443");
  CHECK_INT(request_deadline_ms(request) > 0, 1);
  CHECK_INT(request_wait_for_ready(request), 1);
  CHECK_STR(penstock_request_compression(request), "identity");
  CHECK_STR(penstock_request_user_agent(request), "");
  CHECK_STR(penstock_request_content_subtype(request), "");
  CHECK_INT(request_has_credentials(request), 0);
  CHECK_RESULT(penstock_metadata_set(penstock_request_metadata(request), "a", "b"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_method(request, "/a/b"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_authority(request, "a"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_deadline_ms(request, 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_wait_for_ready(request, 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_user_agent(request, "a"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_credentials(request, "a"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_channel(request, all->channel), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_pick_fail(pick, PENSTOCK_STATUS_OK, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_pick_fail(pick, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_channel_unary(all->channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_WOULD_DEADLOCK);
  return 0;
}

TEST(picker_sees_the_call_and_the_endpoints) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  chooser self = CHOOSER(look, &all);
  set_picker(&all, &self);
  for (int i = 0; i < 5; i++) CHECK_INT(ask(&all, NULL, "{\"wait_for_ready\": true, \"deadline_ms\": 15000}").code, 0);
  CHECK_INT(atomic_load(&self.asked), 5);
  end_servers(&all);
  latch_wait(&self.finalized, 1);
}

static int32_t answer(penstock_pick *pick, void *context) {
  (void)pick;
  return *(int32_t *)context;
}

static int32_t refuse(penstock_pick *pick, void *context) {
  (void)context;
  OK(penstock_pick_fail(pick, PENSTOCK_STATUS_ABORTED, "first"));
  OK(penstock_pick_fail(pick, PENSTOCK_STATUS_FAILED_PRECONDITION, "not today"));
  return PENSTOCK_PICK_FAIL;
}

/* A call fails if the picker gives a wrong index or FAIL. */
TEST(picker_answers_are_checked) {
  static const int32_t wrong[] = {SERVERS, INT32_MAX, -3, INT32_MIN};
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  int32_t given = 0;
  chooser self = CHOOSER(answer, &given);
  set_picker(&all, &self);
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    char words[64];
    given = wrong[i];
    outcome found = ask(&all, NULL, "{\"wait_for_ready\": true}");
    CHECK_INT(found.code, PENSTOCK_STATUS_INTERNAL);
    snprintf(words, sizeof(words), "the picker has returned %d for 3 endpoints", (int)given);
    CHECK_HAS(found.words, words);
  }
  given = PENSTOCK_PICK_FAIL;
  outcome found = ask(&all, NULL, "{\"wait_for_ready\": true}");
  CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(found.words, "the picker has failed the call");
  chooser other = CHOOSER(refuse, NULL);
  set_picker(&all, &other);
  latch_wait(&self.finalized, 1);
  found = ask(&all, NULL, NULL);
  CHECK_INT(found.code, PENSTOCK_STATUS_FAILED_PRECONDITION);
  CHECK_HAS(found.words, "not today");
  /* Without a picker the policy chooses again. */
  OK(penstock_channel_set_picker(all.channel, NULL, NULL, NULL));
  latch_wait(&other.finalized, 1);
  connect_all(&all);
  end_servers(&all);
}

/* Of a pick that is over nothing is left: its status does not become that of a later pick, and none can be set. */
typedef struct late {
  penstock_pick *pick;
  atomic_int refused;
} late;

static int32_t refuse_and_choose(penstock_pick *pick, void *context) {
  late *self = context;
  if (!self->pick) {
    self->pick = pick;
    OK(penstock_pick_fail(pick, PENSTOCK_STATUS_ABORTED, "of an earlier call"));
    return 0;
  }
  return PENSTOCK_PICK_FAIL;
}

static int32_t fail_late(penstock_hop *hop, void *user_data) {
  late *self = user_data;
  (void)hop;
  if (self->pick && penstock_pick_fail(self->pick, PENSTOCK_STATUS_ABORTED, "late") == PENSTOCK_E_STATE)
    atomic_fetch_add(&self->refused, 1);
  return PENSTOCK_NEXT;
}

TEST(picker_fails_only_its_own_call) {
  servers all;
  late late = {NULL, 0};
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.user_data = &late;
  table.on_status = fail_late;
  OK(penstock_channel_add_interceptor(all.channel, &table, 0, &id, NULL));
  chooser self = CHOOSER(refuse_and_choose, &late);
  set_picker(&all, &self);
  CHECK_INT(ask(&all, NULL, "{\"wait_for_ready\": true}").code, 0);
  /* The status of this call has been on its way when the call before it tried to set one again. */
  outcome found = ask(&all, NULL, "{\"wait_for_ready\": true}");
  CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(found.words, "the picker has failed the call");
  CHECK_INT(atomic_load(&late.refused), 2);
  end_servers(&all);
  latch_wait(&self.finalized, 1);
}

/* A call that the picker lets wait ends at its deadline. Another waiting call has no deadline: the picker is asked about
 * it again when the endpoints change; then a new picker is asked, which chooses, and the call succeeds. */
TEST(picker_waits) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  int32_t given = PENSTOCK_PICK_WAIT;
  chooser self = CHOOSER(answer, &given);
  set_picker(&all, &self);
  outcome found = ask(&all, NULL, "{\"deadline_ms\": 50}");
  CHECK_INT(found.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(atomic_load(&self.asked), 1);
  penstock_call *call = start_call(all.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  EVENTUALLY(atomic_load(&self.asked) == 2);
  EVENTUALLY(trace_has(call, "waiting for an endpoint that the picker, a hop or the request takes"));
  stop_server(&all, 2);
  EVENTUALLY(atomic_load(&self.asked) >= 3);
  chooser other = CHOOSER(by_user, &all);
  set_picker(&all, &other);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(outcome_of(&all, reply).code, 0);
  penstock_call_release(call);
  /* The server of this user is gone: the call waits until its deadline. */
  CHECK_INT(ask(&all, "user2", "{\"deadline_ms\": 50}").code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(ask(&all, "user1", NULL).server, 1);
  end_servers(&all);
  latch_wait(&self.finalized, 1);
  latch_wait(&other.finalized, 1);
}

/* Without any connection the picker is not asked, and calls fail as on every channel. */
TEST(picker_needs_a_connection) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  for (int i = 0; i < SERVERS; i++) stop_server(&all, i);
  int32_t given = 0;
  chooser self = CHOOSER(answer, &given);
  set_picker(&all, &self);
  outcome found = ask(&all, NULL, NULL);
  CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(found.words, "could not connect to pool.example:443");
  CHECK_INT(ask(&all, NULL, "{\"wait_for_ready\": true, \"deadline_ms\": 50}").code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(atomic_load(&self.asked), 0);
  end_servers(&all);
  latch_wait(&self.finalized, 1);
}

/* The chosen connection allows one call at a time: further calls wait for it, although other connections have room. */
TEST(picker_waits_for_a_slot) {
  servers all;
  char *const one[] = {"--max-concurrent-streams", "1", NULL};
  start_servers(&all, one);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  chooser self = CHOOSER(by_user, &all);
  set_picker(&all, &self);
  enum { CALLS = 20 };
  penstock_call *calls[CALLS];
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{}", &options, NULL));
  OK(penstock_metadata_set(penstock_request_metadata(penstock_call_options_request(options)), "x-user", "user1"));
  for (int i = 0; i < CALLS; i++) {
    calls[i] = NULL;
    OK(penstock_channel_call(all.channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &calls[i], NULL));
    OK(penstock_call_send(calls[i], "x", 1));
    OK(penstock_call_half_close(calls[i]));
  }
  CHECK_INT(ask(&all, "user0", NULL).server, 0);
  for (int i = 0; i < CALLS; i++) {
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(calls[i], &reply))) {
      outcome found = outcome_of(&all, reply);
      CHECK_INT(found.code, 0);
      CHECK_INT(found.server, 1);
    }
    penstock_call_release(calls[i]);
  }
  penstock_call_options_release(options);
  end_servers(&all);
  latch_wait(&self.finalized, 1);
}

/* The picker replaces itself, cancels its call, or closes its channel. The effect comes only after the picker has
 * returned. */
typedef struct {
  servers *all;
  chooser *next;
  bool cancels;
  _Atomic(penstock_call *) call;
} meddler;

static int32_t meddle(penstock_pick *pick, void *context) {
  meddler *self = context;
  (void)pick;
  if (self->next) set_picker(self->all, self->next);
  /* Another thread may drive the loop, and run this picker before the call's handle is known. */
  while (self->cancels && !atomic_load(&self->call)) test_pause();
  if (self->cancels) OK(penstock_call_cancel(atomic_load(&self->call), "by the picker"));
  if (!self->next && !self->cancels) OK(penstock_channel_close(self->all->channel));
  return 0;
}

TEST(picker_meddles) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  meddler closes = {&all, NULL, false, NULL}, cancels = {&all, NULL, true, NULL};
  chooser last = CHOOSER(meddle, &closes), second = CHOOSER(meddle, &cancels);
  meddler replaces = {&all, &second, false, NULL};
  chooser first = CHOOSER(meddle, &replaces);
  set_picker(&all, &first);
  CHECK_INT(ask(&all, NULL, NULL).code, 0);
  latch_wait(&first.finalized, 1);
  penstock_call *call = start_call(all.channel, BIDI, PENSTOCK_KIND_BIDI);
  atomic_store(&cancels.call, call);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(outcome_of(&all, reply).code, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  set_picker(&all, &last);
  int32_t code = ask(&all, NULL, NULL).code;
  CHECK(code == 0 || code == PENSTOCK_STATUS_CANCELLED);
  latch_wait(&second.finalized, 1);
  latch_wait(&last.finalized, 1);
  end_servers(&all);
}

static int32_t at_random(penstock_pick *pick, void *context) {
  (void)context;
  return (int32_t)test_random((uint32_t)penstock_pick_count(pick));
}

static void *replace_often(void *argument) {
  servers *all = argument;
  static chooser self = CHOOSER(at_random, NULL);
  for (int i = 0; i < test_rounds(1000); i++) {
    penstock_result result =
        penstock_channel_set_picker(all->channel, i % 5 ? choose : NULL, &self, i % 5 ? on_end : NULL);
    if (result != PENSTOCK_E_CLOSED) OK(result);
  }
  return NULL;
}

/* Pickers come and go while calls run. */
TEST(picker_storm) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, PICK_FIRST, NULL);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, replace_often, &all) == 0);
  for (int i = 0; i < test_rounds(300); i++) CHECK_INT(ask(&all, NULL, "{\"wait_for_ready\": true}").code, 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  end_servers(&all);
}
