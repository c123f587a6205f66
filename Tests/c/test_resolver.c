/* resolver.h: a resolver of the program (docs/channel.md). */
#include "test.h"

#include <unistd.h>

typedef struct {
  penstock_resolver *resolver;
  const char *pushes; /* the snapshot that `resolve` pushes; NULL: none */
  latch resolved, stopped, finalized;
} finder;

static void on_resolve(void *user_data) {
  finder *self = user_data;
  if (self->pushes) OK(penstock_resolver_push(self->resolver, self->pushes, NULL));
  latch_signal(&self->resolved);
}

static void on_stop(void *user_data) { latch_signal(&((finder *)user_data)->stopped); }

static void on_end(void *user_data) { latch_signal(&((finder *)user_data)->finalized); }

#define FINDER_INIT                                                                                                    \
  { NULL, NULL, LATCH_INIT, LATCH_INIT, LATCH_INIT }

static penstock_channel *open_with(finder *self, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new("orders.example:443", options, &channel, NULL));
  penstock_resolver_functions functions = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
  functions.user_data = self;
  functions.finalizer = on_end;
  functions.resolve = on_resolve;
  functions.stop = on_stop;
  OK(penstock_channel_set_resolver(channel, &functions, &self->resolver, NULL));
  return channel;
}

/* Gives a snapshot with these addresses. It is valid until the thread calls `at` again. */
static const char *at(const char *first, const char *second) {
  static _Thread_local char text[512];
  snprintf(text, sizeof(text), "{\"addresses\": [{\"address\": \"%s\"}%s%s%s]}", first,
           second ? ", {\"weight\": 3, \"attributes\": {\"zone\": \"a\", \"rack\": \"\"}, \"address\": \"" : "",
           second ? second : "", second ? "\"}" : "");
  return text;
}

/* Makes a unary call. Returns its status code, and copies the first `size` - 1 bytes of its status JSON into `words`. */
static int32_t code_of(penstock_channel *channel, const char *options, char *words, size_t size) {
  penstock_call_options *parsed = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new(options, &parsed, NULL));
  OK(penstock_channel_unary(channel, UNARY, "x", 1, parsed, &reply, NULL));
  int32_t code = reply ? penstock_reply_code(reply) : -1;
  if (words) snprintf(words, size, "%s", reply ? penstock_reply_status_json(reply) : "");
  penstock_reply_release(reply);
  penstock_call_options_release(parsed);
  return code;
}

TEST(resolver_pushes_within_resolve) {
  finder self = FINDER_INIT;
  char snapshot[256];
  snprintf(snapshot, sizeof(snapshot), "%s", at(peer_address(), NULL));
  self.pushes = snapshot;
  penstock_channel *channel = open_with(&self, "{\"tls\": false}");
  CHECK_INT(penstock_channel_connectivity(channel), PENSTOCK_CONNECTIVITY_IDLE);
  CHECK_INT(latch_count(&self.resolved), 0);
  check_echo(channel);
  latch_wait(&self.resolved, 1);
  OK(penstock_channel_close(channel));
  latch_wait(&self.finalized, 1);
  CHECK_INT(latch_count(&self.stopped), 1);
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_resolver_push(self.resolver, snapshot, &error), PENSTOCK_E_CLOSED);
  CHECK_ERROR(error, PENSTOCK_E_CLOSED, NULL, "the channel has closed");
  penstock_channel_release(channel);
  penstock_resolver_release(self.resolver);
}

/* The first call uses the addresses that were pushed before it; the last address has a server. */
TEST(resolver_pushes_first) {
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false}");
  OK(penstock_resolver_push(self.resolver, "{\"error\": \"later\"}", NULL));
  OK(penstock_resolver_push(self.resolver, at(dead_address(), peer_address()), NULL));
  check_echo(channel);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

/* A resolver without functions is not asked for addresses. A call waits until another thread pushes them. */
static void *push_later(void *argument) {
  test_pause();
  usleep(20000);
  OK(penstock_resolver_push(argument, at(peer_address(), NULL), NULL));
  return NULL;
}

TEST(resolver_pushes_from_a_thread) {
  penstock_channel *channel = NULL;
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_new("anything", "{\"tls\": false}", &channel, NULL));
  REQUIRE_OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, push_later, resolver) == 0);
  check_echo(channel);
  pthread_join(thread, NULL);
  penstock_resolver *again = penstock_resolver_retain(resolver);
  penstock_resolver_release(resolver);
  OK(penstock_resolver_push(again, at(peer_address(), NULL), NULL));
  check_echo(channel);
  penstock_resolver_release(again);
  check_echo(channel);
  penstock_channel_release(channel);
}

TEST(resolver_errors_are_told) {
  finder self = FINDER_INIT;
  char words[1024];
  penstock_channel *channel =
      open_with(&self, "{\"tls\": false, \"connect_timeout_ms\": 50, \"initial_backoff_ms\": 20, "
                       "\"max_backoff_ms\": 20}");
  /* Nothing has been pushed yet, so this call fails. */
  CHECK_INT(code_of(channel, "{}", words, sizeof(words)), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(words, "the name of orders.example:443 did not resolve in time");
  latch_wait(&self.resolved, 3);
  OK(penstock_resolver_push(self.resolver, "{\"error\": \"no such list\"}", NULL));
  EVENTUALLY(code_of(channel, "{}", words, sizeof(words)) == PENSTOCK_STATUS_UNAVAILABLE &&
             strstr(words, "the name of orders.example:443 does not resolve: no such list"));
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  CHECK_INT(code_of(channel, "{\"wait_for_ready\": true}", NULL, 0), 0);
  /* A pushed error keeps the addresses. */
  OK(penstock_resolver_push(self.resolver, "{\"error\": \"gone\"}", NULL));
  check_echo(channel);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

/* The connection moves to the new address, and a later snapshot without a service config ends the earlier service
 * config. */
TEST(resolver_moves_a_channel) {
  char other[64];
  int input = -1;
  char *const none[] = {NULL};
  int output = start_peer(other, sizeof(other), none, &input);
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false}");
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  check_echo(channel);
  char config[512];
  snprintf(config, sizeof(config),
           "{\"addresses\": [{\"address\": \"%s\"}], \"service_config\": {\"methodConfig\": [{\"name\": [{}], "
           "\"maxResponseMessageBytes\": 0}]}}",
           other);
  OK(penstock_resolver_push(self.resolver, config, NULL));
  EVENTUALLY(code_of(channel, "{}", NULL, 0) == PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  OK(penstock_resolver_push(self.resolver, at(other, NULL), NULL));
  EVENTUALLY(code_of(channel, "{}", NULL, 0) == 0);
  close(input);
  close(output);
  /* The other peer has ended, so calls fail until the resolver pushes another address. */
  EVENTUALLY(code_of(channel, "{}", NULL, 0) == PENSTOCK_STATUS_UNAVAILABLE);
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  EVENTUALLY(code_of(channel, "{}", NULL, 0) == 0);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

TEST(resolver_is_replaced) {
  finder first = FINDER_INIT, second = FINDER_INIT;
  penstock_channel *channel = open_with(&first, "{\"tls\": false}");
  OK(penstock_resolver_push(first.resolver, at(peer_address(), NULL), NULL));
  check_echo(channel);
  penstock_resolver_functions functions = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
  functions.user_data = &second;
  functions.finalizer = on_end;
  functions.resolve = on_resolve;
  OK(penstock_channel_set_resolver(channel, &functions, &second.resolver, NULL));
  latch_wait(&first.finalized, 1);
  CHECK_INT(latch_count(&first.stopped), 1);
  latch_wait(&second.resolved, 1);
  CHECK_RESULT(penstock_resolver_push(first.resolver, at(dead_address(), NULL), NULL), PENSTOCK_E_CLOSED);
  check_echo(channel);
  OK(penstock_resolver_push(second.resolver, at(peer_address(), NULL), NULL));
  check_echo(channel);
  OK(penstock_channel_close(channel));
  latch_wait(&second.finalized, 1);
  CHECK_RESULT(penstock_channel_set_resolver(channel, &functions, &first.resolver, NULL), PENSTOCK_E_CLOSED);
  latch_wait(&second.finalized, 2);
  penstock_channel_release(channel);
  penstock_resolver_release(first.resolver);
  penstock_resolver_release(second.resolver);
}

/* An idle channel wants no addresses. */
TEST(resolver_rests) {
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false, \"idle_timeout_ms\": 30}");
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  check_echo(channel);
  latch_wait(&self.resolved, 1);
  latch_wait(&self.stopped, 1);
  OK(penstock_resolver_push(self.resolver, at(dead_address(), peer_address()), NULL));
  check_echo(channel);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

/* The latest snapshot answers each request for addresses, also one that comes later: the program need not push it again. */
TEST(resolver_pushes_nothing_when_asked) {
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false, \"idle_timeout_ms\": 30}");
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  for (int times = 0; times < 3; times++) {
    char *json = NULL;
    check_echo(channel);
    OK(penstock_channel_stats_json(channel, 60000, &json));
    CHECK_HAS(json, "\"name\":{\"addresses\":1,\"resolving\":false,");
    penstock_free(json);
    EVENTUALLY(penstock_channel_connectivity(channel) == PENSTOCK_CONNECTIVITY_IDLE);
  }
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

static const struct {
  const char *json, *path, *words;
} wrong[] = {
    {"", NULL, NULL},
    {"[]", "$", "expected an object"},
    {"{}", "$", "either \"addresses\" or only \"error\""},
    {"{\"service_config\": {}}", "$", "either \"addresses\" or only \"error\""},
    {"{\"error\": \"x\", \"addresses\": [{\"address\": \"1.2.3.4:5\"}]}", "$", "either \"addresses\""},
    {"{\"error\": \"x\", \"service_config\": {}}", "$", "only \"error\""},
    {"{\"error\": 3}", "$.error", "expected a string"},
    {"{\"addresses\": {}}", "$.addresses", "expected an array"},
    {"{\"addresses\": []}", "$.addresses", "at least one address"},
    {"{\"addresses\": [\"1.2.3.4:5\"]}", "$.addresses[0]", "expected an object"},
    {"{\"addresses\": [{}]}", "$.addresses[0]", "it has no \"address\""},
    {"{\"addresses\": [{\"address\": 3}]}", "$.addresses[0].address", "expected an address"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\"}, {\"address\": \"example.com:5\"}]}", "$.addresses[1].address",
     "expected an address"},
    {"{\"addresses\": [{\"address\": \"ipv4:1.2.3.4:5,1.2.3.4:6\"}]}", "$.addresses[0].address", "expected an address"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\", \"weight\": 0}]}", "$.addresses[0].weight", "from 1 to 65535"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\", \"weight\": 65536}]}", "$.addresses[0].weight", "got 65536"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\", \"attributes\": {\"zone\": 3}}]}", "$.addresses[0].attributes.zone",
     "expected a string"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\", \"attributes\": []}]}", "$.addresses[0].attributes",
     "expected an object"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\", \"more\": 1}]}", "$.addresses[0].more", "unknown key"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\"}], \"more\": 1}", "$.more", "unknown key"},
    {"{\"addresses\": [{\"address\": \"1.2.3.4:5\"}], \"service_config\": {\"methodConfig\": 3}}",
     "$.service_config.methodConfig", "expected an array"},
};

/* A snapshot that is refused changes nothing. */
TEST(resolver_snapshots_are_checked) {
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false}");
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_error *error = NULL;
    if (!CHECK_RESULT(penstock_resolver_push(self.resolver, wrong[i].json, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", wrong[i].json);
    }
    if (error) CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, wrong[i].path, wrong[i].words);
  }
  static const char *const right[] = {"ipv4:1.2.3.4:5", "1.2.3.4",   "[::1]:5",        "ipv6:[::1]:5",
                                      "unix:/run/x",    "vsock:2:5", "unix-abstract:x"};
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++)
    OK(penstock_resolver_push(self.resolver, at(right[i], right[i]), NULL));
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  size_t size = 64 * 1025;
  char *many = malloc(size), *end = many;
  end += sprintf(end, "{\"addresses\": [{\"address\": \"1.2.3.4:1\"}");
  for (int i = 1; i < 1025; i++) end += sprintf(end, ", {\"address\": \"1.2.3.4:%d\"}", i + 1);
  sprintf(end, "]}");
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_resolver_push(self.resolver, many, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.addresses", "at most 1024 addresses");
  free(many);
  check_echo(channel);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}

static void *push_often(void *argument) {
  finder *self = argument;
  for (int i = 0; i < test_rounds(2000); i++) {
    const char *snapshot =
        i % 5 == 0 ? "{\"error\": \"now and then\"}" : at(i % 2 ? peer_address() : dead_address(), peer_address());
    penstock_result result = penstock_resolver_push(self->resolver, snapshot, NULL);
    if (result != PENSTOCK_E_CLOSED) OK(result);
  }
  return NULL;
}

/* Threads push while calls run, and while the channel closes. */
TEST(resolver_storm) {
  finder self = FINDER_INIT;
  penstock_channel *channel = open_with(&self, "{\"tls\": false}");
  OK(penstock_resolver_push(self.resolver, at(peer_address(), NULL), NULL));
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, push_often, &self) == 0);
  for (int i = 0; i < test_rounds(200); i++) CHECK_INT(code_of(channel, "{\"wait_for_ready\": true}", NULL, 0), 0);
  OK(penstock_channel_close(channel));
  penstock_channel_release(channel);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  latch_wait(&self.finalized, 1);
  penstock_resolver_release(self.resolver);
}
