/* Shared by the tests of the bearer token: a source of tokens, and a server that refuses some of them. */
#ifndef PENSTOCK_BEARER_H
#define PENSTOCK_BEARER_H

#include "ready.h"

#define SOURCE_LIMIT 64

/* A source of tokens: "token-1", "token-2", ... */
typedef struct source {
  bool answers; /* whether the callback itself answers; if not, `requests` keeps the requests */
  int64_t expires_in_ms;
  int32_t fails;               /* if not 0, each request fails with this code */
  penstock_token_request late; /* an expired request; `ask` tries to answer it, and is refused */
  atomic_int asked;
  latch was_asked;
  penstock_token_request requests[SOURCE_LIMIT];
  char refused[SOURCE_LIMIT][32];
  atomic_int finalized;
} source;

static inline void source_init(source *source, bool answers) {
  memset(source, 0, sizeof(*source));
  source->answers = answers;
  source->expires_in_ms = -1;
  source->was_asked = (latch)LATCH_INIT;
}

static inline void source_finalize(void *user_data) { atomic_fetch_add(&((source *)user_data)->finalized, 1); }

static inline void source_answer(source *source, int number) {
  char token[32];
  snprintf(token, sizeof(token), "token-%d", number);
  OK(penstock_token_complete(source->requests[number - 1], token, source->expires_in_ms));
}

static inline void ask(penstock_token_request request, const char *refused, void *user_data) {
  source *self = user_data;
  int number = atomic_fetch_add(&self->asked, 1) + 1;
  if (number > SOURCE_LIMIT) abort();
  snprintf(self->refused[number - 1], sizeof(self->refused[0]), "%s", refused ? refused : "");
  if (self->late) {
    CHECK_RESULT(penstock_token_complete(self->late, "late", -1), PENSTOCK_E_ALREADY);
    CHECK_RESULT(penstock_token_fail(self->late, PENSTOCK_STATUS_ABORTED, NULL), PENSTOCK_E_ALREADY);
  }
  if (self->fails) {
    OK(penstock_token_fail(request, self->fails, "no luck"));
  } else {
    self->requests[number - 1] = request;
    if (self->answers) source_answer(self, number);
  }
  latch_signal(&self->was_asked);
}

/* A hop below the bearer token. It makes the server refuse "token-1" to "token-N", where N is `refused_up_to`, and
 * requests without a token. */
typedef struct guard {
  probe probe;
  int refused_up_to;
  bool at_once; /* the server refuses before the first message of a stream */
} guard;

static inline int32_t refuse(probe *self, penstock_hop *hop, int32_t event) {
  const guard *guard = self->context;
  const void *value = NULL;
  int number = 0;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (penstock_metadata_get(metadata, "authorization", 0, &value, NULL) != PENSTOCK_OK ||
      sscanf(value, "Bearer token-%d", &number) != 1 || number <= guard->refused_up_to) {
    OK(penstock_metadata_set(metadata, "x-status", "16"));
    OK(penstock_metadata_set(metadata, "x-message", "who are you"));
    if (guard->at_once) OK(penstock_metadata_set(metadata, "x-after", "0"));
  }
  return PENSTOCK_NEXT;
}

static inline void guard_add(guard *guard, penstock_channel *channel, int refused_up_to) {
  probe_init(&guard->probe, "guard");
  guard->probe.hook = refuse;
  guard->probe.context = guard;
  guard->refused_up_to = refused_up_to;
  guard->at_once = false;
  probe_add(&guard->probe, channel, -10);
}

/* A bearer interceptor for channels without TLS. */
static inline penstock_interceptor bearer(source *source, const char *options) {
  char json[256];
  const char *more = options && options[1] != '}' ? ", " : "";
  snprintf(json, sizeof(json), "{\"allow_cleartext\": true%s%s", more, options ? options + 1 : "}");
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_bearer_token(json, ask, source, source_finalize, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return table;
}

static inline penstock_interceptor_id bearer_add(penstock_channel *channel, source *source, const char *options) {
  penstock_interceptor table = bearer(source, options);
  return ready_add(channel, &table, 10);
}

static inline void end(penstock_channel *channel, source *source) {
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&source->finalized) == 1);
}

#endif
