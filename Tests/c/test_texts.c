/* The texts of errors, which have to name the cause (docs/errors.md). Most calls here end because of a deadline. */
#include "calls.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* Ends a call whose deadline passes, and checks that its message has `part`. */
static void check_deadline(int line, penstock_call *call, const char *part) {
  penstock_reply *reply = NULL;
  if (!check_result(__FILE__, line, "wait", penstock_call_wait(call, &reply), PENSTOCK_OK)) return;
  check_int(__FILE__, line, "code", penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  check_has(__FILE__, line, "message", penstock_status_message(penstock_reply_status(reply), NULL), part);
  penstock_reply_release(reply);
  penstock_call_release(call);
}
#define CHECK_DEADLINE(call, part) check_deadline(__LINE__, (call), (part))

static penstock_channel *open_with(const char *target, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, options, &channel, NULL));
  return channel;
}

static void cancel(penstock_call *call) {
  OK(penstock_call_cancel(call, NULL));
  penstock_call_release(call);
}

static penstock_call *start_unary(penstock_channel *channel, const char *options) {
  penstock_call *call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, options);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  return call;
}

/* ---- The deadline ---- */

static int32_t pause_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK(penstock_hop_ticket(hop) != 0);
  return PENSTOCK_PAUSE;
}

static int32_t take_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}

TEST(texts_of_a_deadline_name_the_hop) {
  static const struct {
    int32_t (*hook)(probe *, penstock_hop *, int32_t);
    const char *text;
  } cases[] = {{pause_start, "deadline exceeded: paused in `auth` for "},
               {take_start, "deadline exceeded: taken by `auth`, which has not answered"}};
  for (int i = 0; i < 2; i++) {
    penstock_channel *channel = open_channel();
    probe auth;
    probe_init_with(&auth, "auth", cases[i].hook, NULL);
    probe_add(&auth, channel, 0);
    CHECK_DEADLINE(start_unary(channel, "{\"deadline_ms\": 50}"), cases[i].text);
    penstock_channel_release(channel);
    probe_wait_finalized(&auth);
  }
}

TEST(texts_of_a_deadline_name_the_last_failure_of_connecting) {
  penstock_channel *channel = open_with(dead_address(), "{\"tls\": false, \"wait_for_ready\": true}");
  char text[160];
  snprintf(text, sizeof(text), "deadline exceeded: waiting for a connection to %s: Connection refused", dead_address());
  /* The first attempt fails long before the deadline. */
  CHECK_DEADLINE(start_unary(channel, "{\"deadline_ms\": 500}"), text);
  penstock_channel_release(channel);
}

TEST(texts_of_a_deadline_name_the_failure_of_the_lookup) {
  penstock_channel *channel = open_with("pool.example:443", "{\"tls\": false, \"wait_for_ready\": true}");
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  CHECK_DEADLINE(start_unary(channel, "{\"deadline_ms\": 50}"),
                 "deadline exceeded: waiting for the addresses of the name");
  OK(penstock_resolver_push(resolver, "{\"error\": \"no servers today\"}", NULL));
  penstock_call *call = start_unary(channel, "{}");
  EVENTUALLY(trace_has(call, "does not resolve: no servers today"));
  cancel(call);
  CHECK_DEADLINE(
      start_unary(channel, "{\"deadline_ms\": 50}"),
      "waiting for the addresses of the name: the name of pool.example:443 does not resolve: no servers today");
  penstock_channel_release(channel);
  penstock_resolver_release(resolver);
}

TEST(texts_of_a_deadline_that_has_passed_before) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, "{\"deadline_ms\": 0}");
  /* The call may have ended before this thread sends. */
  penstock_call_send(call, "x", 1);
  penstock_call_half_close(call);
  CHECK_DEADLINE(call, "deadline exceeded before the request was sent");
  penstock_channel_release(channel);
}

/* Over HTTP/1.1 the channel's own option limits the calls, not the server. */
TEST(texts_name_the_limit_of_connections) {
  penstock_channel *channel =
      open_with(peer_address(), "{\"tls\": false, \"protocol\": \"connect\", \"http1_max_connections\": 1}");
  check_echo(channel);
  penstock_call *first = start_unary(channel, "{\"metadata\": {\"x-delay-ms\": \"600000\"}}");
  EVENTUALLY(trace_has(first, "waiting for the server"));
  penstock_call *second = start_unary(channel, "{}");
  EVENTUALLY(trace_has(second, "waiting for one of the channel's 1 connections to the server (http1_max_connections)"));
  cancel(second);
  CHECK_DEADLINE(start_unary(channel, "{\"deadline_ms\": 100}"),
                 "waiting for one of the channel's 1 connections to the server (http1_max_connections)");
  cancel(first);
  penstock_channel_release(channel);
}

/* ---- Servers of these tests, which answer as they are told ---- */

static int listen_at(char *target, size_t size, uint16_t port) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
  socklen_t length = sizeof(address);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  CHECK_INT(bind(listener, (struct sockaddr *)&address, length), 0);
  CHECK_INT(listen(listener, 8), 0);
  CHECK_INT(getsockname(listener, (struct sockaddr *)&address, &length), 0);
  snprintf(target, size, "127.0.0.1:%d", ntohs(address.sin_port));
  return listener;
}

/* Answers each connection, with `text` once its client has sent something, and then closes it, or lets it open. */
typedef struct answerer {
  int listener;
  const char *text;
  size_t length;
  int stays;
  atomic_int kept;
} answerer;

static void *answer(void *context) {
  answerer *self = context;
  for (;;) {
    int client = accept(self->listener, NULL, NULL);
    if (client < 0) return NULL;
    char start[4096];
    if (self->length > 0 && read(client, start, sizeof(start)) > 0)
      CHECK_INT(write(client, self->text, self->length), (int64_t)self->length);
    if (self->stays) {
      atomic_store(&self->kept, client);
    } else {
      shutdown(client, SHUT_WR);
      while (read(client, start, sizeof(start)) > 0) continue;
      close(client);
    }
  }
}

static void end_answerer(answerer *self, pthread_t thread) {
  shutdown(self->listener, SHUT_RDWR);
  pthread_join(thread, NULL);
  if (self->kept) close(self->kept);
  close(self->listener);
}

static void status_of(penstock_channel *channel, char *text, size_t size) {
  penstock_reply *reply = NULL;
  *text = 0;
  if (!OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL))) return;
  snprintf(text, size, "%s", penstock_reply_status_json(reply));
  penstock_reply_release(reply);
}

/* A server that never answers. */
TEST(texts_of_a_deadline_name_the_server) {
  static const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
  char target[64], text[160], peer[100];
  answerer self = {
      .listener = listen_at(target, sizeof(target), 0), .text = settings, .length = sizeof(settings), .stays = 1};
  pthread_t thread;
  pthread_create(&thread, NULL, answer, &self);
  penstock_channel *channel = open_with(target, "{\"tls\": false}");
  snprintf(text, sizeof(text), "deadline exceeded: waiting for the server %s", target);
  snprintf(peer, sizeof(peer), "\"peer\":\"%s\",\"local\":\"127.0.0.1:", target);
  penstock_call *call = start_unary(channel, "{}");
  EVENTUALLY(trace_has(call, peer));
  EVENTUALLY(trace_has(call, text + strlen("deadline exceeded: ")));
  cancel(call);
  CHECK_DEADLINE(start_unary(channel, "{\"deadline_ms\": 100}"), text);
  /* The caller of a bidi call may still send. */
  strcat(text, ", or for the caller to send");
  call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 100}");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_DEADLINE(call, text);
  penstock_channel_release(channel);
  end_answerer(&self, thread);
}

/* A server that closes connections may want TLS, but not if a connection without TLS has worked before. */
TEST(texts_guess_at_tls_only_before_a_connection_has_worked) {
  char target[64], text[1024];
  answerer self = {.listener = listen_at(target, sizeof(target), 0)};
  pthread_t thread;
  pthread_create(&thread, NULL, answer, &self);
  penstock_channel *channel = open_with(target, "{\"tls\": false}");
  status_of(channel, text, sizeof(text));
  CHECK_HAS(text, "may want TLS");
  end_answerer(&self, thread);

  /* Another server at the same address sends its SETTINGS before it closes. */
  uint16_t port = (uint16_t)atoi(strrchr(target, ':') + 1);
  static const char settings[] = {0, 0, 0, 4, 0, 0, 0, 0, 0};
  self = (answerer){.listener = listen_at(target, sizeof(target), port), .text = settings, .length = sizeof(settings)};
  pthread_create(&thread, NULL, answer, &self);
  OK(penstock_channel_reset_backoff(channel));
  EVENTUALLY((status_of(channel, text, sizeof(text)),
              strstr(text, "before HTTP/2 began") == NULL && strstr(text, "Connection refused") == NULL));
  end_answerer(&self, thread);

  self = (answerer){.listener = listen_at(target, sizeof(target), port)};
  pthread_create(&thread, NULL, answer, &self);
  OK(penstock_channel_reset_backoff(channel));
  EVENTUALLY((OK(penstock_channel_reset_backoff(channel)), status_of(channel, text, sizeof(text)),
              strstr(text, "before HTTP/2 began") != NULL));
  CHECK(!strstr(text, "may want TLS"));
  penstock_channel_release(channel);
  end_answerer(&self, thread);
}

/* Likewise with TLS: a server whose handshake has worked speaks TLS. */
TEST(texts_guess_at_cleartext_only_before_tls_has_worked) {
  char target[64], text[1024], tls[600];
  snprintf(tls, sizeof(tls), "{\"tls\": {\"roots_file\": \"%s\"}}", certificate("ca.pem"));
  char chain[300], key[300];
  snprintf(chain, sizeof(chain), "%s", certificate("server.pem"));
  snprintf(key, sizeof(key), "%s", certificate("server.key"));
  char *const arguments[] = {"--tls", "--cert", chain, "--key", key, NULL};
  int input, output = start_peer(target, sizeof(target), arguments, &input);
  penstock_channel *channel = open_with(target, tls);
  check_echo(channel);
  close(input);
  char rest[256];
  while (read(output, rest, sizeof(rest)) > 0) continue;
  close(output);
  answerer self = {.listener = listen_at(target, sizeof(target), (uint16_t)atoi(strrchr(target, ':') + 1))};
  pthread_t thread;
  pthread_create(&thread, NULL, answer, &self);
  EVENTUALLY((OK(penstock_channel_reset_backoff(channel)), status_of(channel, text, sizeof(text)),
              strstr(text, "during the TLS handshake") != NULL));
  CHECK(!strstr(text, "may not speak TLS"));
  penstock_channel_release(channel);
  channel = open_with(target, tls);
  status_of(channel, text, sizeof(text));
  CHECK_HAS(text, "may not speak TLS");
  penstock_channel_release(channel);
  end_answerer(&self, thread);
}

/* ---- An answer that is no RPC ---- */

#define PAGE_HEAD "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: "

/* The status has the first 512 bytes of a proxy's page. Bytes that are not printable are replaced. */
TEST(texts_have_the_page_of_a_proxy) {
  static char whole[2048], long_page[700];
  memset(long_page, 'y', sizeof(long_page) - 1);
  snprintf(whole, sizeof(whole), PAGE_HEAD "%zu\r\n\r\n%s", strlen(long_page), long_page);
  const struct {
    const char *text, *body;
  } cases[] = {
      {PAGE_HEAD "29\r\n\r\n<h1>Bad\ngateway</h1>\x01\xc3\xa4 \"a\"\t",
       "\"body\":\"<h1>Bad gateway</h1>... \\\"a\\\" \""},
      /* The rest of this page never comes. */
      {PAGE_HEAD "1000\r\n\r\n<h1>Bad gateway", "\"body\":\"<h1>Bad gateway\""},
      {whole, "yyy\""},
  };
  for (int i = 0; i < 3; i++) {
    char target[64], text[2048];
    answerer self = {.listener = listen_at(target, sizeof(target), 0),
                     .text = cases[i].text,
                     .length = strlen(cases[i].text),
                     .stays = i == 1};
    pthread_t thread;
    pthread_create(&thread, NULL, answer, &self);
    static const char *const protocols[] = {"connect", "grpc-web"};
    for (int j = 0; j < 2; j++) {
      char options[200];
      snprintf(options, sizeof(options), "{\"tls\": false, \"protocol\": \"%s\", \"http\": \"1.1\"}", protocols[j]);
      penstock_channel *channel = open_with(target, options);
      status_of(channel, text, sizeof(text));
      CHECK_HAS(text, "\"code\":14");
      CHECK_HAS(text, "HTTP status 502");
      CHECK_HAS(text, cases[i].body);
      if (i == 2) {
        const char *body = strstr(text, "\"body\":\"");
        CHECK(body && strspn(body + 8, "y") == 512);
      }
      penstock_channel_release(channel);
      if (self.stays) {
        int client = atomic_exchange(&self.kept, 0);
        if (client) close(client);
      }
    }
    end_answerer(&self, thread);
  }
}

/* The status has the wait that the server names before another attempt; other values than a number mean that it wants none. */
TEST(texts_have_the_wait_that_a_server_names) {
  static const char *const values[][2] = {{"20", ":20}"}, {"-1", ":-1}"}, {"soon", ":-1}"}};
  for (int i = 0; i < 3; i++) {
    char target[64], whole[300], text[2048], expected[60];
    snprintf(whole, sizeof(whole),
             "HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web\r\nContent-Length: 0\r\ngrpc-status: 14\r\n"
             "grpc-retry-pushback-ms: %s\r\n\r\n",
             values[i][0]);
    answerer self = {.listener = listen_at(target, sizeof(target), 0), .text = whole, .length = strlen(whole)};
    pthread_t thread;
    pthread_create(&thread, NULL, answer, &self);
    penstock_channel *channel = open_with(target, "{\"tls\": false, \"protocol\": \"grpc-web\", \"http\": \"1.1\"}");
    status_of(channel, text, sizeof(text));
    snprintf(expected, sizeof(expected), "\"retry_pushback_ms\"%s", values[i][1]);
    CHECK_HAS(text, expected);
    penstock_channel_release(channel);
    end_answerer(&self, thread);
  }
}

/* A status made of this JSON has the body again, and what the server said about further attempts. */
TEST(texts_keep_the_body_of_a_status) {
  static const char json[] = "{\"code\":14,\"name\":\"UNAVAILABLE\",\"message\":\"x\",\"metadata\":{},\"details\":[],"
                             "\"body\":\"<p>\",\"retry_pushback_ms\":-1}";
  penstock_status *status = NULL;
  char *text = NULL;
  penstock_error *error = NULL;
  if (OK(penstock_status_from_json(json, &status, &error)) && OK(penstock_status_json(status, &text)))
    CHECK_JSON(text, json);
  penstock_error_release(error);
  penstock_free(text);
  penstock_status_release(status);
  CHECK_RESULT(penstock_status_from_json("{\"code\": 14, \"body\": 1}", &status, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.body", "expected a string");
  CHECK_RESULT(penstock_status_from_json("{\"code\": 14, \"retry_pushback_ms\": -2}", &status, &error),
               PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.retry_pushback_ms", "a number of milliseconds, or -1");
}

/* ---- Options and targets ---- */

TEST(texts_of_options_that_are_wrong) {
  static const struct {
    const char *options, *text;
  } cases[] = {
      {"{\"tls\": 1}", "$.tls: expected true, false or an object, got an integer"},
      {"{\"tls\": false, \"trace\": 1}", "$.trace: expected true, false or an object with \"events\", got an integer"},
      {"{\"tls\": false, \"http\": \"3\"}", "$.http: expected \"auto\", \"2\" or \"1.1\", got another string"},
      {"{\"tls\": false, \"http\": 2}", "$.http: expected \"auto\", \"2\" or \"1.1\", got an integer"},
      {"{\"tls\": false, \"authority\": \"\"}", "$.authority: expected a host, or host:port, got another string"},
      {"{\"tls\": false, \"service_config\": {\"loadBalancingConfig\": [{}]}}",
       "expected an object with one member, the policy, got another object"},
      {"{\"tls\": false, \"service_config\": {\"methodConfig\": [{\"name\": [{}], \"timeout\": \"1\"}]}}",
       "expected a duration from 0 s, such as \"1.5s\", got another string"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_channel_new("host:1", cases[i].options, &channel, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, cases[i].text);
    penstock_channel_release(channel);
  }
}

TEST(texts_of_addresses_that_are_wrong) {
  penstock_channel *channel = open_with("pool.example:443", "{\"tls\": false}");
  penstock_resolver *resolver = NULL;
  penstock_error *error = NULL;
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  static const struct {
    const char *address, *got;
  } cases[] = {
      {"\"127.1:443\"", "got another string"}, {"\"localhost:443\"", "got another string"}, {"1", "got an integer"}};
  for (int i = 0; i < 3; i++) {
    char text[100];
    snprintf(text, sizeof(text), "{\"addresses\": [{\"address\": %s}]}", cases[i].address);
    CHECK_RESULT(penstock_resolver_push(resolver, text, &error), PENSTOCK_E_INVALID_JSON);
    CHECK(error && strstr(penstock_error_message(error), "expected an address, such as \"ipv4:192.0.2.1:443\""));
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.addresses[0].address", cases[i].got);
  }
  penstock_channel_release(channel);
  penstock_resolver_release(resolver);

  static const char *const targets[] = {"127.1:1",      "dns:///127.1:1", "http://127.1:1", "2130706433:1",
                                        "0x7f.0.0.1:1", "127.0.0.01:1",   "1.2.3.4.5",      "256.1.1.1:1"};
  for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
    channel = NULL;
    CHECK_RESULT(penstock_channel_new(targets[i], "{\"tls\": false}", &channel, &error), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "an IPv4 address");
    penstock_channel_release(channel);
  }
  static const char *const names[] = {"1.example:1", "127.0.0.1:1", "0xg:1", "a.1:1", "1-1:1"};
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    penstock_channel_release(open_with(names[i], "{\"tls\": false}"));
}
