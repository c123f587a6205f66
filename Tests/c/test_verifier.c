/* verifier.h: the program's own check of servers' certificates. */
#include "unary.h"

#include <sched.h>

typedef struct verifier {
  enum { REFUSES, ACCEPTS, SAYS_NOTHING, CHANGES_ITS_MIND } answer;
  const char *words;
  atomic_int asked, finalized;
  size_t count;
  char name[64];
  penstock_channel *channel; /* makes a call in the verifier, which can't work */
  struct verifier *next;     /* the verifier that is set within this one */
} verifier;

static void ended(void *user_data) { atomic_fetch_add(&((verifier *)user_data)->finalized, 1); }

static void look(penstock_verification *server, void *user_data) {
  verifier *self = user_data;
  atomic_fetch_add(&self->asked, 1);
  self->count = penstock_verification_count(server);
  const char *name = penstock_verification_name(server);
  snprintf(self->name, sizeof(self->name), "%s", name ? name : "(none)");
  for (size_t i = 0; i < self->count; i++) {
    size_t length = 0, again = 0;
    const unsigned char *der = penstock_verification_certificate(server, i, &length);
    /* DER begins with a SEQUENCE whose length has two bytes. */
    if (!CHECK(der && length > 100 && der[0] == 0x30 && der[1] == 0x82)) continue;
    CHECK_INT(length, 4 + (der[2] << 8 | der[3]));
    CHECK(penstock_verification_certificate(server, i, &again) == der && again == length);
    CHECK(penstock_verification_certificate(server, i, NULL) == der);
  }
  size_t length = 7;
  CHECK(penstock_verification_certificate(server, self->count, &length) == NULL && length == 0);
  CHECK(penstock_verification_certificate(server, SIZE_MAX, NULL) == NULL);
  if (self->channel && !self->next) {
    penstock_reply *reply = NULL;
    CHECK_RESULT(penstock_channel_unary(self->channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_WOULD_DEADLOCK);
  }
  if (self->next) OK(penstock_channel_set_verifier(self->next->channel, look, self->next, ended));
  switch (self->answer) {
  case SAYS_NOTHING:
    break;
  case REFUSES:
    OK(penstock_verification_refuse(server, "not these words"));
    OK(penstock_verification_refuse(server, self->words));
    break;
  case CHANGES_ITS_MIND:
    OK(penstock_verification_accept(server));
    CHECK_RESULT(penstock_verification_refuse(server, "\xff"), PENSTOCK_E_INVALID_ARGUMENT);
    OK(penstock_verification_accept(server));
    break;
  case ACCEPTS:
    OK(penstock_verification_accept(server));
  }
}

/* A channel to the peer with TLS; `more` are members of the "tls" object. */
static penstock_channel *secure(const char *roots, const char *more) {
  char options[1200];
  penstock_channel *channel = NULL;
  snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"%s}}", certificate(roots), more);
  OK(penstock_channel_new(tls_address(false), options, &channel, NULL));
  return channel;
}

/* Makes a call, and checks that its message has `words`; NULL: that it succeeds. */
static void check_call(penstock_channel *channel, const char *words) {
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), words ? PENSTOCK_STATUS_UNAVAILABLE : PENSTOCK_STATUS_OK);
  if (words) CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), words);
  penstock_reply_release(reply);
}

/* Releases the channel, and waits until its verifier is not needed any more. */
static void finish(penstock_channel *channel, verifier *self) {
  penstock_channel_release(channel);
  while (atomic_load(&self->finalized) == 0) sched_yield();
  CHECK_INT(atomic_load(&self->finalized), 1);
}

TEST(verifier_sees_the_verified_chain) {
  verifier self = {.answer = ACCEPTS};
  penstock_channel *channel = secure("ca.pem", "");
  self.channel = channel;
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, NULL);
  check_call(channel, NULL);
  CHECK_INT(atomic_load(&self.asked), 1);
  CHECK_INT(self.count, 2);
  CHECK_STR(self.name, "127.0.0.1");
  CHECK_INT(atomic_load(&self.finalized), 0);
  finish(channel, &self);
}

TEST(verifier_refuses_in_its_own_words) {
  verifier self = {.answer = REFUSES, .words = "it is of another\ntenant"};
  penstock_channel *channel = secure("ca.pem", "");
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, "certificate verify failed: the program refuses the server: it is of another");
  check_call(channel, "; subject CN=");
  finish(channel, &self);

  static const struct {
    int answer;
    const char *words;
  } others[] = {{REFUSES, "the program refuses the server; subject"},
                {SAYS_NOTHING, "the program refuses the server without an answer; subject"},
                {CHANGES_ITS_MIND, "the program refuses the server; subject"}};
  for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
    verifier other = {0};
    other.answer = others[i].answer;
    channel = secure("ca.pem", "");
    OK(penstock_channel_set_verifier(channel, look, &other, ended));
    check_call(channel, others[i].words);
    finish(channel, &other);
  }
}

/* Its check comes last, and is the only one with "verify": false. */
TEST(verifier_is_asked_about_what_the_library_accepts) {
  verifier self = {.answer = ACCEPTS};
  penstock_channel *channel = secure("self.pem", "");
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, "certificate verify failed: ");
  CHECK_INT(atomic_load(&self.asked), 0);
  finish(channel, &self);

  atomic_store(&self.finalized, 0);
  channel = secure("self.pem", ", \"verify\": false, \"server_name\": \"other.example\"");
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, NULL);
  CHECK_INT(atomic_load(&self.asked), 1);
  CHECK(self.count >= 1);
  CHECK_STR(self.name, "other.example");
  finish(channel, &self);

  verifier no = {.answer = REFUSES, .words = "nobody"};
  channel = secure("self.pem", ", \"verify\": false");
  OK(penstock_channel_set_verifier(channel, look, &no, ended));
  check_call(channel, "the program refuses the server: nobody");
  finish(channel, &no);
}

TEST(verifier_is_replaced_for_later_connections) {
  verifier first = {.answer = REFUSES}, second = {.answer = ACCEPTS};
  penstock_channel *channel = secure("ca.pem", ", \"session_resumption\": true");
  OK(penstock_channel_set_verifier(channel, look, &first, ended));
  check_call(channel, "the program refuses the server");
  OK(penstock_channel_set_verifier(channel, look, &second, ended));
  OK(penstock_channel_reset_backoff(channel));
  /* Calls fail at once until the new connection is ready. */
  int32_t code = PENSTOCK_STATUS_UNAVAILABLE;
  for (int64_t until = test_now_ms() + test_patience_ms(); code != PENSTOCK_STATUS_OK && test_now_ms() < until;) {
    penstock_reply *reply = unary(channel, "x");
    code = penstock_reply_code(reply);
    penstock_reply_release(reply);
  }
  CHECK_INT(atomic_load(&second.asked), 1);
  CHECK_INT(atomic_load(&first.finalized), 1);
  check_call(channel, NULL);
  OK(penstock_channel_set_verifier(channel, NULL, NULL, NULL));
  while (atomic_load(&second.finalized) == 0) check_call(channel, NULL);
  penstock_channel_release(channel);
}

/* Makes a call, and waits until its connection has been closed because nobody used it. */
static void call_and_rest(penstock_channel *channel, int32_t expected) {
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), expected);
  penstock_reply_release(reply);
  int32_t state = PENSTOCK_CONNECTIVITY_READY;
  while (state == PENSTOCK_CONNECTIVITY_READY)
    OK(penstock_channel_wait_connectivity(channel, state, test_patience_ms(), &state));
}

/* A session of a connection that another verifier has let pass is not resumed: not even one whose ticket comes after the
 * change, as the second call's would, where the change is made within the handshake. */
TEST(verifier_is_asked_again_after_a_change) {
  for (int within = 0; within < 2; within++) {
    verifier first = {.answer = ACCEPTS}, second = {.answer = REFUSES, .words = "no more"};
    char options[1200];
    penstock_channel *channel = NULL;
    snprintf(options, sizeof(options),
             "{\"idle_timeout_ms\": 1, \"tls\": {\"roots_file\": \"%s\", \"session_resumption\": true}}",
             certificate("ca.pem"));
    OK(penstock_channel_new(tls_address(false), options, &channel, NULL));
    OK(penstock_channel_set_verifier(channel, look, &first, ended));
    if (within == 0) {
      call_and_rest(channel, PENSTOCK_STATUS_OK);
      /* Sessions are resumed: so this one is not asked again. */
      call_and_rest(channel, PENSTOCK_STATUS_OK);
      CHECK_INT(atomic_load(&first.asked), 1);
      OK(penstock_channel_set_verifier(channel, look, &second, ended));
    } else {
      second.channel = channel;
      first.next = &second;
      call_and_rest(channel, PENSTOCK_STATUS_OK);
      second.channel = NULL;
    }
    check_call(channel, "the program refuses the server: no more");
    CHECK_INT(atomic_load(&second.asked), 1);
    finish(channel, &second);
    CHECK_INT(atomic_load(&first.finalized), 1);
  }
}

TEST(verifier_has_nothing_to_say_without_tls) {
  verifier self = {.answer = REFUSES};
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(peer_address(), "{\"tls\": false}", &channel, NULL));
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, NULL);
  CHECK_INT(atomic_load(&self.asked), 0);
  OK(penstock_channel_close(channel));
  verifier late = {.answer = REFUSES};
  CHECK_RESULT(penstock_channel_set_verifier(channel, look, &late, ended), PENSTOCK_E_CLOSED);
  CHECK_INT(atomic_load(&late.finalized), 1);
  finish(channel, &self);
}
