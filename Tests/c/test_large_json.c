/* JSON texts that are so large that they are read in parts: they mean what small ones do, and faults have their paths. */
#include "test.h"

#include <stdarg.h>

static char *text;
static size_t length;

static void begin(void) {
  text = malloc(8 << 20);
  length = 0;
}

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  length += (size_t)vsprintf(text + length, format, arguments);
  va_end(arguments);
}

/* Adds `count` times `element`, with commas between them, and in each the number for "#". */
static void repeat(int count, const char *element) {
  for (int i = 0; i < count; i++) {
    if (i > 0) text[length++] = ',';
    for (const char *at = element; *at != 0; at++) {
      if (*at == '#') {
        add("%d", i);
      } else {
        text[length++] = *at;
      }
    }
  }
  text[length] = 0;
}

/* Makes a channel with the text as its options. */
static void fails(const char *path, const char *words) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new("localhost:1", text, &channel, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, path, words);
  CHECK(channel == NULL);
  free(text);
}

static void succeeds(void) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new("localhost:1", text, &channel, NULL));
  penstock_channel_release(channel);
  free(text);
}

#define CONFIG "{\"tls\": false, \"service_config\": {\"x\": 1, \"methodConfig\": [{\"waitForReady\": true, \"name\": ["

TEST(large_configs) {
  begin();
  add(" \n" CONFIG);
  repeat(50000, "{\"service\": \"s#\"}");
  add("], \"unknown\": {\"a\": [[], {}, \"]\\\"}\", 1e3]}}], \"more\": [");
  repeat(20000, "[#, {}]");
  add(" ]}}\t ");
  succeeds();
  /* A name, and its service, that are large themselves. */
  begin();
  add(CONFIG "{\"junk\": [");
  repeat(20000, "#");
  add("], \"service\": \"a.B\", \"more\": [");
  repeat(20000, "#");
  add("], \"method\": \"C\"}]}]}}");
  succeeds();
  begin();
  add(CONFIG "{\"service\": \"");
  memset(text + length, 'a', 200000);
  length += 200000;
  add("\"}]}]}}");
  succeeds();
}

TEST(large_configs_with_faults) {
  begin();
  add(CONFIG);
  repeat(40000, "{\"service\": \"s#\"}");
  add(", {\"service\": 7}]}]}}");
  fails("$.service_config.methodConfig[0].name[40000].service", "expected a string, got an integer");
  begin();
  add(CONFIG);
  repeat(40000, "{\"service\": \"s#\"}");
  add(", {\"service\": \"s17\"}]}]}}");
  fails("$.service_config.methodConfig[0].name[40000]", "this name has a config already");
  begin();
  add(CONFIG);
  repeat(40000, "{\"service\": \"s#\"}");
  add("]}, {\"retryPolicy\": 3}]}}");
  fails("$.service_config.methodConfig[1].retryPolicy", "expected an object, got an integer");
  begin();
  add("{\"service_config\": {\"loadBalancingConfig\": [");
  repeat(30000, "{\"x#\": {}}");
  add("]}}");
  fails("$.service_config.loadBalancingConfig", "none of the policies is known");
  begin();
  add("{\"service_config\": {\"loadBalancingConfig\": [{");
  repeat(30000, "\"x#\": {}");
  add("}]}}");
  fails("$.service_config.loadBalancingConfig[0]", "expected an object with one member");
  begin();
  add("{\"service_config\": {\"methodConfig\": {");
  repeat(30000, "\"x#\": {}");
  add("}}}");
  fails("$.service_config.methodConfig", "expected an array, got an object");
}

/* Malformed texts: the fault is at the end, or between the parts. */
TEST(large_texts_that_are_malformed) {
  static const struct {
    const char *end, *path, *words;
  } rows[] = {
      {",]}}", "$.service_config.x", "unexpected token"},
      {",,1]}}", "$.service_config.x[40001]", "unexpected token"},
      {" 1]}}", "$.service_config.x[39999]", "']' expected"},
      {"}}}", "$.service_config.x", "']' expected"},
      {"]}", "$.service_config", "'}' expected"},
      {"]}} 1", "$", "end of file expected"},
      {"]}}}", "$", "end of file expected"},
      {"], \"x\": 2}}", "$.service_config.x", "duplicate object key"},
      {"], \"\\u0078\": 2}}", "$.service_config.\\\\u0078", "duplicate object key"},
      {"], \"y\" 2}}", "$.service_config", "':' expected"},
      {", \"\\x\"]}}", "$.service_config.x[40000]", "invalid escape"},
      {", \"]}}", "$.service_config.x[40000]", "premature end of input"},
      {", tru]}}", "$.service_config.x[40000]", "invalid token"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
    begin();
    add("{\"service_config\": {\"x\": [");
    repeat(40000, "{\"a\": #}");
    add("%s", rows[i].end);
    fails(rows[i].path, rows[i].words);
  }
  begin();
  add("{\"service_config\": {");
  repeat(40000, "\"a#\": 1");
  add(", \"a12345\": 1}}");
  fails("$.service_config.a12345", "duplicate object key");
}

/* Commas without a member beside large members, which are parts of their own. */
TEST(large_members_with_commas_too_many) {
  static const struct {
    const char *begin, *end;
    bool is_right;
  } rows[] = {
      {"{\"x\": [", "]}", true},
      {"{\"x\": [ , ", "]}", false},
      {"{\"x\": [1, , ", "]}", false},
      {"{\"x\": [", ", ]}", false},
      {"{\"x\": [", ", , 1]}", false},
      {"{\"x\": [", "]", false},
      {"{\"x\": {\"y\": ", "}}", true},
      {"{\"x\": { , \"y\": ", "}}", false},
      {"{\"x\": {\"z\": 1, , \"y\": ", "}}", false},
      {"{\"x\": {\"y\": ", ", }}", false},
      {"{\"x\": {\"y\": ", ", , \"z\": 1}}", false},
      {"{\"x\": {\"y\" ", "}}", false},
      {"{\"x\": {\"y\" : : ", "}}", false},
      {"{\"x\": {", "}}", false},
      {"{\"x\": {\"y\": ", " 1}}", false},
      {"{\"x\": {\"y\": 1 ", "}}", false},
      {"{\"x\": {\"y\": ", ", \"y\": 1}}", false},
      {"{\"x\": {\"y\": 1, \"y\": ", "}}", false},
      {"{\"x\": {\"y\": ", "}, \"x\": 1}", false},
  };
  for (int isObject = 0; isObject < 2; isObject++) {
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
      begin();
      add("{\"service_config\": %s%c", rows[i].begin, isObject ? '{' : '[');
      repeat(20000, isObject ? "\"a#\": #" : "#");
      add("%c%s}", isObject ? '}' : ']', rows[i].end);
      if (rows[i].is_right) {
        succeeds();
      } else {
        fails(NULL, NULL);
      }
    }
  }
}

/* The pairs of large metadata are those of the text, in its order. */
TEST(large_metadata) {
  penstock_metadata *metadata = NULL;
  char *json = NULL;
  OK(penstock_metadata_new(&metadata));
  begin();
  add("{\"many\":[");
  repeat(20000, "\"v#\"");
  add("],");
  repeat(5000, "\"n#\":[\"v\"]");
  add(",\"x\":[\"\",\"a b\"]}");
  OK(penstock_metadata_set_json(metadata, text, NULL));
  CHECK_INT(penstock_metadata_count(metadata), 25002);
  OK(penstock_metadata_json(metadata, &json));
  CHECK_JSON(json, text);
  penstock_free(json);
  free(text);

  begin();
  add("{\"a-bin\": {\"base64\": \"");
  memset(text + length, 'A', 400000);
  length += 400000;
  add("\"}, \"b\": {\"base64\": \"YWI=\"}}");
  OK(penstock_metadata_set_json(metadata, text, NULL));
  CHECK_INT(penstock_metadata_count(metadata), 2);
  free(text);

  penstock_error *error = NULL;
  begin();
  add("{\"many\": [");
  repeat(20000, "\"v#\"");
  add(", 7]}");
  CHECK_RESULT(penstock_metadata_set_json(metadata, text, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.many[20000]", "expected a string");
  CHECK_INT(penstock_metadata_count(metadata), 2);
  free(text);
  penstock_metadata_release(metadata);
}
