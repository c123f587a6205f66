/* Shared by the tests of ready.h: unary calls with given metadata, and tables that are not registered. */
#ifndef PENSTOCK_TEST_READY_H
#define PENSTOCK_TEST_READY_H

#include "test.h"

/* Makes call options with this metadata, which is given as the members of a JSON object, without its braces; NULL:
 * none. */
static inline penstock_call_options *ready_options(const char *metadata) {
  char json[1024];
  penstock_call_options *options = NULL;
  snprintf(json, sizeof(json), "{\"metadata\": {%s}}", metadata ? metadata : "");
  OK(penstock_call_options_new(json, &options, NULL));
  return options;
}

/* Starts a call in blocking style and sends its request. */
static inline penstock_call *ready_begin(penstock_channel *channel, const char *request, const char *metadata) {
  penstock_call_options *options = ready_options(metadata);
  penstock_call *call = NULL;
  if (OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL))) {
    /* A call that an interceptor answers may have ended already. */
    penstock_result sent = penstock_call_send(call, request, strlen(request)), closed = penstock_call_half_close(call);
    CHECK(sent == PENSTOCK_OK || sent == PENSTOCK_E_GONE);
    CHECK(closed == PENSTOCK_OK || closed == PENSTOCK_E_GONE);
  }
  penstock_call_options_release(options);
  return call;
}

static inline penstock_reply *ready_finish(penstock_call *call) {
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  penstock_call_release(call);
  return reply;
}

static inline penstock_reply *ready_unary(penstock_channel *channel, const char *request, const char *metadata) {
  return ready_finish(ready_begin(channel, request, metadata));
}

static inline int32_t ready_code(penstock_reply *reply) {
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  return code;
}

static inline bool ready_message_is(const penstock_reply *reply, const char *text) {
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

/* Gives the value of a header; "" if there is none. */
static inline const char *ready_value(const penstock_metadata *metadata, const char *name) {
  const void *value = NULL;
  return metadata && penstock_metadata_get(metadata, name, 0, &value, NULL) == PENSTOCK_OK ? value : "";
}

static inline const char *ready_message(const penstock_reply *reply) {
  return penstock_status_message(penstock_reply_status(reply), NULL);
}

static inline penstock_interceptor_id ready_add(penstock_channel *channel, const penstock_interceptor *table,
                                                int32_t priority) {
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, table, priority, &id, NULL));
  return id;
}

/* Frees a table that is not registered, by a call of its finalizer. */
static inline void ready_drop(penstock_interceptor *table) { table->finalizer(table->user_data); }

/* Checks that `make` refuses these options, and names `path`. */
static inline void check_refused(penstock_result (*make)(const char *, penstock_interceptor *, penstock_error **),
                                 const char *json, const char *path) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  if (!CHECK_RESULT(make(json, &table, &error), PENSTOCK_E_INVALID_JSON)) printf("  %s\n", json ? json : "no options");
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, path, path);
  CHECK(table.finalizer == NULL);
}

#endif
