/* interceptor.h, on_connection: the events that an interceptor gets about the connections of its channel or runtime. */
#include "unary.h"

#include <unistd.h>

/* The kinds of events that have come, a letter each, in their order; and the last event of each kind. */
typedef struct log {
  pthread_mutex_t mutex;
  char kinds[256];
  char address[16][64], message[16][256], target[16][64], version[16][16], alpn[16][16], speaks[32];
  uint64_t ms[16];
  char slow_one[512]; /* the line of the last slow callback */
  latch any, slow, finalized;
  penstock_channel *closes;       /* the channel to close at the first event; NULL: none */
  penstock_interceptor_id leaves; /* the registration to remove at the first event; 0: none */
} log;

#define LOG_INIT                                                                                                       \
  { .mutex = PTHREAD_MUTEX_INITIALIZER, .any = LATCH_INIT, .slow = LATCH_INIT, .finalized = LATCH_INIT }

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from ? from : "(null)"); }

enum { NEVER, MAYBE, ALWAYS };

/* Which members each kind of event has. */
static const struct {
  int address, message, ms;
} members[13] = {
    [PENSTOCK_CONNECTION_RESOLVING] = {NEVER, NEVER, NEVER},
    [PENSTOCK_CONNECTION_UNRESOLVED] = {NEVER, ALWAYS, NEVER},
    [PENSTOCK_CONNECTION_CONNECTING] = {ALWAYS, NEVER, NEVER},
    [PENSTOCK_CONNECTION_SECURED] = {ALWAYS, NEVER, NEVER},
    [PENSTOCK_CONNECTION_READY] = {ALWAYS, NEVER, NEVER},
    [PENSTOCK_CONNECTION_DRAINING] = {ALWAYS, MAYBE, NEVER},
    [PENSTOCK_CONNECTION_LOST] = {ALWAYS, ALWAYS, NEVER},
    [PENSTOCK_CONNECTION_BACKOFF] = {ALWAYS, ALWAYS, MAYBE},
    [PENSTOCK_CONNECTION_SILENT] = {ALWAYS, NEVER, ALWAYS},
    [PENSTOCK_CONNECTION_IGNORED] = {MAYBE, ALWAYS, NEVER},
    [PENSTOCK_CONNECTION_HEALTHY] = {ALWAYS, NEVER, NEVER},
    [PENSTOCK_CONNECTION_UNHEALTHY] = {ALWAYS, ALWAYS, NEVER},
};

static void check_member(int32_t kind, const char *what, int rule, bool is_there) {
  if (rule == MAYBE || is_there == (rule == ALWAYS)) return;
  test_failed(__FILE__, __LINE__, "an event of kind %d has %s %s", kind, is_there ? "a" : "no", what);
}

/* The fields that every event has: its level, its name, and its line of JSON. */
static void check_line(const penstock_connection_event *event) {
  char start[64];
  static const char *const levels[] = {"debug", "info", "warning", "error"};
  CHECK(event->level >= PENSTOCK_EVENT_DEBUG && event->level <= PENSTOCK_EVENT_ERROR);
  snprintf(start, sizeof(start), "\"level\":\"%s\",\"event\":\"%s\",\"target\":\"", levels[event->level & 3],
           event->name);
  CHECK_HAS(event->json, start);
}

static void heard(void *user_data, const penstock_connection_event *event) {
  log *self = user_data;
  if (!CHECK(event->struct_size >= sizeof(*event) && event->kind >= 1 && event->kind <= 23)) return;
  check_line(event);
  if (event->kind == PENSTOCK_CONNECTION_SLOW_CALLBACK) {
    copy(self->slow_one, sizeof(self->slow_one), event->json);
    latch_signal(&self->slow);
  }
  if (event->kind > 12) return; /* bindings/python/tests/test_event_log.py has the others */
  check_member(event->kind, "address", members[event->kind].address, event->address && *event->address);
  check_member(event->kind, "message", members[event->kind].message, event->message && *event->message);
  check_member(event->kind, "ms", members[event->kind].ms, event->ms > 0);
  check_member(event->kind, "tls_version", event->kind == PENSTOCK_CONNECTION_SECURED ? ALWAYS : NEVER,
               event->tls_version);
  pthread_mutex_lock(&self->mutex);
  size_t length = strlen(self->kinds);
  if (length < sizeof(self->kinds) - 1) self->kinds[length] = " RUCSYDLBsIHU"[event->kind];
  copy(self->address[event->kind], 64, event->address);
  copy(self->message[event->kind], 256, event->message);
  copy(self->target[event->kind], 64, event->target);
  copy(self->version[event->kind], 16, event->tls_version);
  copy(self->alpn[event->kind], 16, event->tls_alpn);
  bool is_ready = event->kind == PENSTOCK_CONNECTION_READY;
  CHECK((event->protocol != NULL) == is_ready && (event->http != NULL) == is_ready);
  if (is_ready) snprintf(self->speaks, sizeof(self->speaks), "%s/%s", event->protocol, event->http);
  self->ms[event->kind] = event->ms;
  pthread_mutex_unlock(&self->mutex);
  if (self->closes) OK(penstock_channel_close(self->closes));
  if (self->leaves) OK(penstock_registration_remove(self->leaves, NULL));
  self->closes = NULL;
  self->leaves = 0;
  latch_signal(&self->any);
}

static bool has(log *self, const char *kinds) {
  pthread_mutex_lock(&self->mutex);
  bool found = strstr(self->kinds, kinds) != NULL;
  pthread_mutex_unlock(&self->mutex);
  return found;
}

static void finalize(void *user_data) { latch_signal(&((log *)user_data)->finalized); }

static penstock_interceptor table_of(log *self) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "observer";
  table.user_data = self;
  table.finalizer = finalize;
  table.on_connection = heard;
  return table;
}

static penstock_interceptor_id observe(log *self, penstock_channel *channel) {
  penstock_interceptor table = table_of(self);
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  return id;
}

static penstock_channel *open_at(penstock_runtime *runtime, const char *target, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new_on(runtime, target, options, &channel, NULL));
  return channel;
}

/* One connection, from the look-up of the name to its end. The runtime's interceptor gets all events. The channel's
 * interceptor does not get the last one, because closing the channel removes the interceptor. */
TEST(connection_events_of_one_connection) {
  static log all = LOG_INIT, own = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_interceptor table = table_of(&all);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL));
  penstock_channel *channel = open_at(runtime, peer_address(), "{\"tls\": false}");
  observe(&own, channel);
  check_echo(channel);
  EVENTUALLY(has(&all, "RCY"));
  CHECK_STR(all.kinds, "RCY");
  CHECK_STR(own.kinds, "RCY");
  CHECK_STR(all.target[1], peer_address());
  CHECK_STR(all.address[1], "(null)");
  CHECK_STR(all.address[5], peer_address());
  CHECK_STR(all.version[5], "(null)");
  CHECK_STR(all.speaks, "grpc/2");
  OK(penstock_channel_close(channel));
  EVENTUALLY(has(&all, "RCYL"));
  CHECK_STR(all.address[7], peer_address());
  latch_wait(&own.finalized, 1);
  penstock_channel_release(channel);
  OK(penstock_registration_remove(id, NULL));
  latch_wait(&all.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

TEST(connection_events_have_the_facts_of_tls) {
  static log self = LOG_INIT;
  penstock_channel *channel = open_tls_channel(false);
  observe(&self, channel);
  check_echo(channel);
  EVENTUALLY(has(&self, "RCSY"));
  CHECK(strncmp(self.version[4], "TLSv1.", 6) == 0);
  CHECK_STR(self.alpn[4], "h2");
  CHECK_STR(self.address[4], tls_address(false));
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
}

TEST(connection_events_say_why_and_when) {
  static log self = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, dead_address(), "{\"tls\": false, \"initial_backoff_ms\": 60000}");
  observe(&self, channel);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  EVENTUALLY(has(&self, "RCB"));
  CHECK_STR(self.message[8], "Connection refused");
  CHECK_STR(self.address[8], dead_address());
  CHECK(self.ms[8] > 30000 && self.ms[8] <= 72000);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);

  static log name = LOG_INIT;
  channel = open_at(runtime, "dns:///no-such-host.invalid:1", "{\"tls\": false}");
  observe(&name, channel);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  EVENTUALLY(has(&name, "RU"));
  CHECK_HAS(name.message[2], "does not resolve");
  penstock_channel_release(channel);
  latch_wait(&name.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

/* The server ends while the channel is connected to it. */
TEST(connection_events_of_a_server_that_goes) {
  static log self = LOG_INIT;
  char target[64];
  int input;
  char *const arguments[] = {NULL};
  int output = start_peer(target, sizeof(target), arguments, &input);
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, target, "{\"tls\": false, \"initial_backoff_ms\": 60000}");
  observe(&self, channel);
  check_echo(channel);
  close(input);
  EVENTUALLY(has(&self, "L") || has(&self, "D"));
  CHECK(has(&self, "RCY"));
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
  close(output);
}

/* If the server of a connection with a call sends nothing, the connection is reported as silent again and again. A
 * connection without calls is not. */
TEST(connection_events_of_silence) {
  static log self = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, peer_address(), "{\"tls\": false, \"silence_event_ms\": 50}");
  observe(&self, channel);
  check_echo(channel);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"metadata\": {\"x-delay-ms\": \"600000\"}}", &options, NULL));
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  EVENTUALLY(has(&self, "ss"));
  pthread_mutex_lock(&self.mutex);
  CHECK(self.ms[9] >= 50 && self.ms[9] < 60000);
  pthread_mutex_unlock(&self.mutex);
  OK(penstock_call_cancel(call, NULL));
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

TEST(connection_events_name_what_is_ignored) {
  static log self = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel =
      open_at(runtime, peer_address(),
              "{\"tls\": false, \"service_config\": {\"loadBalancingConfig\": [{\"weighted_round_robin\": {}}], "
              "\"methodConfig\": [{\"hedgingPolicy\": {}}]}}");
  observe(&self, channel);
  check_echo(channel);
  EVENTUALLY(has(&self, "IIRCY"));
  CHECK_HAS(self.message[10], "hedgingPolicy");
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

/* The health of a server: the events say why it does not get calls, and nothing more if it does. */
TEST(connection_events_of_health) {
  static const struct {
    const char *service, *kinds, *message;
  } cases[] = {{"penstock.Echo", "RCYH", "(null)"},
               {"nobody", "RCYU", "the server says that it does not know the service (health check)"}};
  for (int i = 0; i < 2; i++) {
    log self = LOG_INIT;
    penstock_runtime *runtime = new_runtime(NULL);
    char options[256];
    snprintf(options, sizeof(options),
             "{\"tls\": false, \"service_config\": {\"loadBalancingConfig\": [{\"round_robin\": {}}], "
             "\"healthCheckConfig\": {\"serviceName\": \"%s\"}}}",
             cases[i].service);
    penstock_channel *channel = open_at(runtime, peer_address(), options);
    observe(&self, channel);
    OK(penstock_channel_connect(channel));
    EVENTUALLY(has(&self, cases[i].kinds));
    CHECK_STR(self.message[i == 0 ? PENSTOCK_CONNECTION_HEALTHY : PENSTOCK_CONNECTION_UNHEALTHY], cases[i].message);
    penstock_channel_release(channel);
    latch_wait(&self.finalized, 1);
    OK(penstock_runtime_shutdown(runtime, 20000));
    penstock_runtime_release(runtime);
  }
}

/* What is ignored is told again when the policy changes, and not when another takes its place. */
TEST(connection_events_name_what_is_ignored_after_a_change_of_the_policy) {
  static log self = LOG_INIT;
  static const char snapshot[] = "{\"addresses\": [{\"address\": \"%s\"}], \"service_config\": "
                                 "{\"loadBalancingConfig\": [{\"%s\": {}}]}}";
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, "pool.example:443", "{\"tls\": false}");
  observe(&self, channel);
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  static const char *const policies[] = {"round_robin", "weighted_round_robin", "round_robin", "weighted_round_robin"};
  for (int i = 0; i < 4; i++) {
    char text[300];
    snprintf(text, sizeof(text), snapshot, peer_address(), policies[i]);
    OK(penstock_resolver_push(resolver, text, NULL));
    check_echo(channel);
    EVENTUALLY(has(&self, i < 1 ? "RCY" : i < 3 ? "RCYI" : "RCYII"));
    check_echo(channel);
  }
  CHECK_STR(self.kinds, "RCYII");
  CHECK_HAS(self.message[10], "weighted_round_robin");
  CHECK_STR(self.address[10], "(null)");
  penstock_channel_release(channel);
  penstock_resolver_release(resolver);
  latch_wait(&self.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

/* An interceptor may close its channel, or remove itself, in on_connection. */
TEST(connection_events_may_end_everything) {
  static log closing = LOG_INIT, leaving = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, peer_address(), "{\"tls\": false}");
  closing.closes = channel;
  observe(&closing, channel);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  latch_wait(&closing.finalized, 1);

  channel = open_at(runtime, peer_address(), "{\"tls\": false}");
  penstock_interceptor table = table_of(&leaving);
  OK(penstock_channel_add_interceptor(channel, &table, 0, &leaving.leaves, NULL));
  check_echo(channel);
  latch_wait(&leaving.finalized, 1);
  CHECK_STR(leaving.kinds, "R");
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}

/* An interceptor with on_connection alone has no hops, and calls are not counted for it. */
TEST(connection_events_alone_make_no_hop) {
  static log self = LOG_INIT;
  penstock_channel *channel = open_channel();
  observe(&self, channel);
  check_echo(channel);
  char *json = NULL;
  OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_HAS(json, "\"calls_seen\":0");
  penstock_free(json);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
}

static void slow_end(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)reply;
  usleep(120000);
  latch_signal(user_data);
}

/* A callback of the call itself has no interceptor's name. */
TEST(connection_events_tell_a_slow_callback_of_the_call) {
  static log self = LOG_INIT;
  latch ended = LATCH_INIT;
  penstock_channel *channel = open_channel();
  observe(&self, channel);
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &ended;
  table.on_reply = slow_end;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 1));
  latch_wait(&ended, 1);
  latch_wait(&self.slow, 1);
  CHECK_HAS(self.slow_one, "\"method\":\"/penstock.Echo/Unary\",\"interceptor\":null,\"callback\":\"on_status\"}");
  penstock_call_release(call);
  penstock_channel_release(channel);
  latch_wait(&self.finalized, 1);
}

/* Each connection of HTTP/1.1 is told as ready, also one that the pool makes for a further call. */
TEST(connection_events_over_http1) {
  log all = LOG_INIT;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_at(runtime, peer_address(), "{\"tls\": false, \"protocol\": \"connect\"}");
  observe(&all, channel);
  penstock_call *first = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  penstock_call *second = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  EVENTUALLY(has(&all, "RCYCY"));
  CHECK_STR(all.speaks, "connect/1.1");
  penstock_call_release(first);
  penstock_call_release(second);
  penstock_channel_release(channel);
  latch_wait(&all.finalized, 1);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
}
