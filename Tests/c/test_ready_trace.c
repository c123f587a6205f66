/* ready.h: trace context. */
#include "ready.h"

static penstock_channel *trace_channel(const char *options) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_trace_context(options, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  ready_add(channel, &table, 0);
  return channel;
}

/* Gives the trace headers that the server gets for `metadata`; `state` may be NULL. */
static void trace_sent(penstock_channel *channel, const char *metadata, char parent[128], char state[1024]) {
  char with_echo[900];
  snprintf(with_echo, sizeof(with_echo), "\"x-echo-metadata\": \"1\"%s%s", metadata ? ", " : "",
           metadata ? metadata : "");
  penstock_reply *reply = ready_unary(channel, "x", with_echo);
  CHECK_INT(penstock_reply_code(reply), 0);
  snprintf(parent, 128, "%s", ready_value(penstock_reply_trailers(reply), "seen-traceparent"));
  if (state) snprintf(state, 1024, "%s", ready_value(penstock_reply_trailers(reply), "seen-tracestate"));
  const char *value = penstock_reply_value(reply, "penstock.traceparent");
  CHECK_STR(value ? value : "", parent);
  penstock_reply_release(reply);
}

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static void check_traceparent(const char *text) {
  bool valid = strlen(text) == 55 && memcmp(text, "00-", 3) == 0 && text[35] == '-' && text[52] == '-';
  for (int i = 3; valid && i < 55; i++) valid = i == 35 || i == 52 || strchr("0123456789abcdef", text[i]);
  if (!CHECK(valid)) printf("  \"%s\"\n", text);
}

TEST(trace_context_begins_a_trace) {
  char first[128], second[128], state[1024];
  penstock_channel *channel = trace_channel(NULL);
  trace_sent(channel, NULL, first, NULL);
  trace_sent(channel, "\"tracestate\": \"a=1\"", second, state);
  check_traceparent(first);
  check_traceparent(second);
  CHECK_STR(first + 53, "01");
  CHECK(memcmp(first + 3, second + 3, 32) != 0);
  CHECK_STR(state, ""); /* a tracestate without a traceparent is not sent */
  penstock_channel_release(channel);
}

TEST(trace_context_passes_a_parent_on) {
  char parent[128], state[1024];
  penstock_channel *channel = trace_channel(NULL), *keeping = trace_channel("{\"parent_id\": \"keep\"}");
  trace_sent(channel, "\"traceparent\": \"00-" TRACE "-" PARENT "-01\", \"tracestate\": \"rojo=00f067aa0ba902b7\"",
             parent, state);
  check_traceparent(parent);
  CHECK(memcmp(parent, "00-" TRACE "-", 36) == 0);
  CHECK(memcmp(parent + 36, PARENT, 16) != 0);
  CHECK_STR(parent + 53, "01");
  CHECK_STR(state, "rojo=00f067aa0ba902b7");
  trace_sent(keeping, "\"traceparent\": \"00-" TRACE "-" PARENT "-00\"", parent, NULL);
  CHECK_STR(parent, "00-" TRACE "-" PARENT "-00");
  /* If the traceparent has a later version, only the flag that version 00 knows is passed on. */
  trace_sent(keeping, "\"traceparent\": \"cc-" TRACE "-" PARENT "-f1-what-the-future-brings\"", parent, NULL);
  CHECK_STR(parent, "00-" TRACE "-" PARENT "-01");
  penstock_channel_release(channel);
  penstock_channel_release(keeping);
}

/* W3C Trace Context, section 3.2.2, says which parents are invalid. */
TEST(trace_context_takes_no_invalid_parent) {
  static const char *const invalid[] = {
      "\"\"",
      "\"00-" TRACE "-" PARENT "\"",
      "\"00-" TRACE "-" PARENT "-01-more\"",
      "\"00-" TRACE "-" PARENT "-01.\"",
      "\"cc-" TRACE "-" PARENT "-01.what\"",
      "\"ff-" TRACE "-" PARENT "-01\"",
      "\"00-00000000000000000000000000000000-" PARENT "-01\"",
      "\"00-" TRACE "-0000000000000000-01\"",
      "\"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01\"",
      "\"00-" TRACE "-B7AD6B7169203331-01\"",
      "\"00-" TRACE "-" PARENT "-0x\"",
      "\"00_" TRACE "-" PARENT "-01\"",
      "\"00-" TRACE "_" PARENT "-01\"",
      "\"0x-" TRACE "-" PARENT "-01\"",
      "[\"00-" TRACE "-" PARENT "-01\", \"00-" TRACE "-" PARENT "-01\"]",
  };
  penstock_channel *channel = trace_channel("{\"parent_id\": \"keep\"}");
  for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++) {
    char metadata[256], parent[128], state[1024];
    snprintf(metadata, sizeof(metadata), "\"traceparent\": %s, \"tracestate\": \"a=1\"", invalid[i]);
    trace_sent(channel, metadata, parent, state);
    check_traceparent(parent);
    if (!CHECK(memcmp(parent + 3, TRACE, 32) != 0) || !CHECK_STR(state, "")) printf("  %s\n", invalid[i]);
  }
  penstock_channel_release(channel);
}

/* W3C Trace Context, section 3.3.1, says which states are valid. */
TEST(trace_context_takes_no_invalid_state) {
  static const struct {
    const char *state;
    bool valid;
  } cases[] = {
      {"a=1", true},
      {"a=1,b=2 , c=3", true},
      {"a_-*/9=x", true},
      {"9tenant@sys=x", true},
      {"a= x y", true},
      {",a=1,,", true},
      {"A=1", false},
      {"9a=1", false},
      {"a=", false},
      {"=1", false},
      {"a", false},
      {"a=b=c", false},
      {"a@=1", false},
      {"a@9s=1", false},
      {"a@b@c=1", false},
      {"a@abcdefghijklmno=1", false},
      {"a1=1,a2=1,a3=1,a4=1,a5=1,a6=1,a7=1,a8=1,a9=1,b1=1,b2=1,b3=1,b4=1,b5=1,b6=1,b7=1,b8=1,b9=1,c1=1,c2=1,c3=1,c4=1,"
       "c5=1,c6=1,c7=1,c8=1,c9=1,d1=1,d2=1,d3=1,d4=1,d5=1,d6=1",
       false},
  };
  penstock_channel *channel = trace_channel("{\"parent_id\": \"keep\"}");
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    char metadata[512], parent[128], state[1024];
    snprintf(metadata, sizeof(metadata), "\"traceparent\": \"00-" TRACE "-" PARENT "-01\", \"tracestate\": \"%s\"",
             cases[i].state);
    trace_sent(channel, metadata, parent, state);
    CHECK_STR(parent, "00-" TRACE "-" PARENT "-01");
    CHECK_STR(state, cases[i].valid ? cases[i].state : "");
  }
  penstock_channel_release(channel);
}

TEST(trace_context_samples_a_percentage) {
  static const struct {
    const char *options;
    int low, high;
  } cases[] = {
      {"{\"sampled\": 0}", 0, 0}, {"{\"sampled\": 100}", 100, 100}, {"{\"sampled\": 25.5, \"seed\": 3}", 10, 45}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_channel *channel = trace_channel(cases[i].options);
    int sampled = 0;
    char parent[128];
    for (int j = 0; j < 100; j++) {
      trace_sent(channel, NULL, parent, NULL);
      sampled += parent[54] == '1';
    }
    CHECK(sampled >= cases[i].low && sampled <= cases[i].high);
    penstock_channel_release(channel);
  }
  char first[128], second[128];
  penstock_channel *channels[2] = {trace_channel("{\"seed\": 9}"), trace_channel("{\"seed\": 9}")};
  trace_sent(channels[0], NULL, first, NULL);
  trace_sent(channels[1], NULL, second, NULL);
  CHECK_STR(first, second);
  for (int i = 0; i < 2; i++) penstock_channel_release(channels[i]);
}

TEST(trace_context_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"sampled\": 100.5}", "$.sampled"}, {"{\"sampled\": true}", "$.sampled"},
      {"{\"parent_id\": 1}", "$.parent_id"}, {"{\"seed\": 1.5}", "$.seed"},
      {"{\"flags\": 1}", "$.flags"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    CHECK_RESULT(penstock_ready_trace_context(cases[i].json, &table, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
  }
}
