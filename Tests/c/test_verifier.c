/* verifier.h: the program's own check of servers' certificates. */
#include "unary.h"

#include <sched.h>

typedef struct verifier {
  int32_t result;
  const char *words;
  atomic_int asked, finalized;
  size_t count;
  char name[64];
  penstock_channel *channel; /* makes a call in the verifier, which can't work */
  penstock_verification *server;
} verifier;

static int32_t look(penstock_verification *server, void *user_data) {
  verifier *self = user_data;
  atomic_fetch_add(&self->asked, 1);
  self->server = server;
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
  if (self->channel) {
    penstock_reply *reply = NULL;
    CHECK_RESULT(penstock_channel_unary(self->channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_WOULD_DEADLOCK);
  }
  CHECK_RESULT(penstock_verification_explain(server, "\xff"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_verification_explain(server, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  if (self->words) {
    OK(penstock_verification_explain(server, "not these words"));
    OK(penstock_verification_explain(server, self->words));
  }
  return self->result;
}

static void ended(void *user_data) { atomic_fetch_add(&((verifier *)user_data)->finalized, 1); }

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
  verifier self = {.result = PENSTOCK_SERVER_ACCEPTED};
  penstock_channel *channel = secure("ca.pem", "");
  self.channel = channel;
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, NULL);
  check_call(channel, NULL);
  CHECK_INT(atomic_load(&self.asked), 1);
  CHECK_INT(self.count, 2);
  CHECK_STR(self.name, "127.0.0.1");
  /* Outside of the verifier the handle shows nothing. */
  CHECK_INT(penstock_verification_count(self.server), 0);
  CHECK(penstock_verification_name(self.server) == NULL);
  CHECK(penstock_verification_certificate(self.server, 0, NULL) == NULL);
  CHECK_RESULT(penstock_verification_explain(self.server, "late"), PENSTOCK_E_STATE);
  CHECK_INT(atomic_load(&self.finalized), 0);
  finish(channel, &self);
}

TEST(verifier_refuses_in_its_own_words) {
  verifier self = {.result = 0, .words = "it is of another\ntenant"};
  penstock_channel *channel = secure("ca.pem", "");
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, "certificate verify failed: the program refuses the server: it is of another");
  check_call(channel, "; subject CN=");
  self.words = NULL;
  self.result = -1;
  OK(penstock_channel_reset_backoff(channel));
  while (atomic_load(&self.asked) < 2) check_call(channel, "the program refuses the server");
  finish(channel, &self);
}

/* Its check comes last, and is the only one with "verify": false. */
TEST(verifier_is_asked_about_what_the_library_accepts) {
  verifier self = {.result = PENSTOCK_SERVER_ACCEPTED};
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

  verifier no = {.result = 0, .words = "nobody"};
  channel = secure("self.pem", ", \"verify\": false");
  OK(penstock_channel_set_verifier(channel, look, &no, ended));
  check_call(channel, "the program refuses the server: nobody");
  finish(channel, &no);
}

TEST(verifier_is_replaced_for_later_connections) {
  verifier first = {.result = 0}, second = {.result = PENSTOCK_SERVER_ACCEPTED};
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

TEST(verifier_has_nothing_to_say_without_tls) {
  verifier self = {.result = 0};
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(peer_address(), "{\"tls\": false}", &channel, NULL));
  OK(penstock_channel_set_verifier(channel, look, &self, ended));
  check_call(channel, NULL);
  CHECK_INT(atomic_load(&self.asked), 0);
  OK(penstock_channel_close(channel));
  verifier late = {.result = 0};
  CHECK_RESULT(penstock_channel_set_verifier(channel, look, &late, ended), PENSTOCK_E_CLOSED);
  CHECK_INT(atomic_load(&late.finalized), 1);
  finish(channel, &self);
}
