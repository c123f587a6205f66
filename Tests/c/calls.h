/* Shared by the tests of call.h: options, and checks of a call's results. */
#ifndef PENSTOCK_CALLS_H
#define PENSTOCK_CALLS_H

#include "test.h"

static inline penstock_call_options *options_of(const char *json) {
  penstock_call_options *options = NULL;
  penstock_error *error = NULL;
  if (!OK(penstock_call_options_new(json, &options, &error))) printf("  %s\n", error ? penstock_error_json(error) : "");
  penstock_error_release(error);
  return options;
}

/* Starts a call in blocking style; `json` are its call options. */
static inline penstock_call *start_with(penstock_channel *channel, const char *method, int32_t kind, const char *json) {
  penstock_call_options *options = options_of(json);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  return call;
}

/* Begins a unary call whose message is `number` in decimal. Every third call has a deadline. */
static inline penstock_call *start_numbered(penstock_channel *channel, int number) {
  char text[16];
  snprintf(text, sizeof(text), "%d", number);
  penstock_call *call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, number % 3 ? "{}" : "{\"deadline_ms\": 60000}");
  OK(penstock_call_send(call, text, strlen(text)));
  OK(penstock_call_half_close(call));
  return call;
}

static inline void check_message(int line, penstock_call *call, const char *expected) {
  penstock_message *message = NULL;
  if (!check_result(__FILE__, line, "receive", penstock_call_receive(call, &message), PENSTOCK_OK)) return;
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  if (length != strlen(expected) || memcmp(data, expected, length) != 0) {
    test_failed(__FILE__, line, "message of %zu bytes, not \"%s\"", length, expected);
  }
  penstock_message_release(message);
}
#define CHECK_MESSAGE(call, expected) check_message(__LINE__, (call), (expected))

static inline void check_finish(int line, penstock_call *call, int32_t code) {
  penstock_reply *reply = NULL;
  if (!check_result(__FILE__, line, "finish", penstock_call_wait(call, &reply), PENSTOCK_OK)) return;
  if (!check_int(__FILE__, line, "status code", penstock_reply_code(reply), code)) {
    printf("  %s\n", penstock_reply_status_json(reply));
  }
  penstock_reply_release(reply);
}
#define CHECK_FINISH(call, code) check_finish(__LINE__, (call), (code))

/* Whether the call's trace has `part`. A loop that is busy for 100 ms does not answer, and the trace lacks what only it
 * knows: so tests ask until it is there. */
static inline bool trace_has(penstock_call *call, const char *part) {
  char *json = NULL;
  bool found = OK(penstock_call_trace_json(call, &json)) && strstr(json, part) != NULL;
  penstock_free(json);
  return found;
}

#endif
