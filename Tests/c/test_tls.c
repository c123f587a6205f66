/* channel.h, "tls": which certificates are accepted, and the messages of failed handshakes. */
#include "unary.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

/* Checks the status message of a unary call over TLS to `target`, to which the channel can't connect; `more` are
 * members of the "tls" object. */
static void check_refused(const char *target, const char *more, const char *words) {
  char options[2048];
  snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"%s}}", certificate("ca.pem"), more);
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(target, options, &channel, NULL));
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), words);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* RFC 9525, section 6.3: the common name of a certificate is not compared with the host's name. */
TEST(tls_a_name_in_the_cn_is_none) {
  char *const arguments[] = {"--tls", "--cert", (char *)certificate("cn.pem"), "--key", (char *)certificate("cn.key"),
                             NULL};
  char target[64];
  int input;
  start_peer(target, sizeof(target), arguments, &input);
  check_refused(target, ", \"server_name\": \"localhost\"", "hostname mismatch, expected host localhost");
  check_refused(target, "", "IP address mismatch, expected host 127.0.0.1");
}

TEST(tls_server_name_is_a_name) {
  static const char *const wrong[] = {"",
                                      ".example.com",
                                      "*.example.com",
                                      "a..b",
                                      ".",
                                      "[::1]",
                                      "a b",
                                      "a/b",
                                      "a:1",
                                      ("b\xc3\xbc"
                                       "cher.example")};
  char options[512], label[65];
  for (size_t i = 0; i <= sizeof(wrong) / sizeof(*wrong); i++) {
    memset(label, 'a', sizeof(label));
    label[64] = 0;
    const char *name = i < sizeof(wrong) / sizeof(*wrong) ? wrong[i] : label;
    snprintf(options, sizeof(options), "{\"tls\": {\"verify\": false, \"server_name\": \"%s\"}}", name);
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_channel_new("localhost:1", options, &channel, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.tls.server_name", "$.tls.server_name: it ");
    penstock_channel_release(channel);
  }
}

/* With TLS 1.3 the server refuses a missing or unknown client certificate only after the client's handshake. */
TEST(tls_a_client_certificate_that_is_asked_for) {
  check_refused(tls_address(true), "", "it asked for a client certificate, and the channel has none");
  char more[1200];
  snprintf(more, sizeof(more), ", \"certificate_chain_file\": \"%s\", \"private_key_file\": \"%s\"",
           certificate("self.pem"), certificate("self.key"));
  check_refused(tls_address(true), more, "it asked for a client certificate, and may not accept the channel's");
}

TEST(tls_and_cleartext_do_not_meet) {
  check_refused(peer_address(), "", "the peer does not speak TLS: it answered \"HTTP/1.1 400");
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(tls_address(false), "{\"tls\": false}", &channel, NULL));
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), "it sent nothing, and may want TLS");
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* Gives the text of a file; the caller frees it. */
static char *text_of(const char *name) {
  FILE *file = fopen(certificate(name), "r");
  char *text = calloc(1, 65536);
  CHECK(file && fread(text, 1, 65535, file) > 0);
  if (file) fclose(file);
  return text;
}

static int32_t tls_code(penstock_channel *channel) {
  penstock_reply *reply = unary(channel, "x");
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  return code;
}

/* A text as bytes that no NUL ends. */
#define PEM(text) text, strlen(text)

/* Certificates are set before the first connection, and again for later ones: an existing connection stays. */
TEST(tls_certificates_are_set_in_pem_form) {
  char *ca = text_of("ca.pem"), *chain = text_of("client.pem"), *key = text_of("client.key");
  char *stranger = text_of("self.pem"), *strange_key = text_of("self.key");
  char options[1200];
  snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"}}", certificate("self.pem"));
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(tls_address(true), options, &channel, NULL));
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_UNAVAILABLE);
  OK(penstock_channel_set_tls_pem(channel, PEM(ca), NULL, 0, NULL, 0, NULL));
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_UNAVAILABLE);
  OK(penstock_channel_set_tls_pem(channel, PEM(ca), PEM(chain), PEM(key), NULL));
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);
  OK(penstock_channel_set_tls_pem(channel, NULL, 0, PEM(stranger), PEM(strange_key), NULL));
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);

  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, PEM("no PEM"), NULL, 0, NULL, 0, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "roots_pem: no certificate in PEM form");
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, PEM(ca), PEM(chain), NULL, 0, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL,
              "certificate_chain: a certificate chain without its private key");
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, PEM(ca), PEM(chain), PEM(strange_key), &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "does not belong");
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, NULL, 1, NULL, 0, NULL, 0, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "length 0");
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, ca, strlen(ca) / 2, NULL, 0, NULL, 0, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "roots_pem: ");
  CHECK_RESULT(penstock_channel_set_tls_pem(NULL, PEM(ca), NULL, 0, NULL, 0, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "channel");
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);
  penstock_channel_close(channel);
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, PEM(ca), NULL, 0, NULL, 0, NULL), PENSTOCK_E_CLOSED);
  penstock_channel_release(channel);
  channel = open_channel();
  CHECK_RESULT(penstock_channel_set_tls_pem(channel, PEM(ca), NULL, 0, NULL, 0, NULL), PENSTOCK_E_STATE);
  penstock_channel_release(channel);
  free(ca), free(chain), free(key), free(stranger), free(strange_key);
}

/* A channel with a connection for each call. */
static penstock_channel *open_each(const char *target, const char *roots, const char *more) {
  char options[1200];
  snprintf(options, sizeof(options),
           "{\"tls\": {\"roots_file\": \"%s\"%s}, \"protocol\": \"connect\", \"http\": \"1.1\", "
           "\"http1_idle_timeout_ms\": 0}",
           roots, more);
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, options, &channel, NULL));
  return channel;
}

/* bindings/python/tests/test_tls_matrix.py and test_tls_files.py have more of the next three. */
TEST(tls_sessions_are_resumed) {
  penstock_channel *channel = open_each(tls_address(false), certificate("ca.pem"), ", \"session_resumption\": true");
  for (int i = 0; i < 4; i++) CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);
  char *stats = NULL;
  OK(penstock_channel_stats_json(channel, 20000, &stats));
  CHECK_HAS(stats, "\"tls\":{\"full_handshakes\":1,\"resumed_handshakes\":3}");
  penstock_free(stats);
  penstock_channel_release(channel);
}

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  REQUIRE(file);
  CHECK(fputs(text, file) >= 0);
  fclose(file);
}

TEST(tls_files_are_read_anew) {
  char roots[] = "/tmp/penstock-roots-XXXXXX", *ca = text_of("ca.pem"), *stranger = text_of("self.pem");
  int descriptor = mkstemp(roots);
  REQUIRE(descriptor >= 0);
  close(descriptor);
  write_file(roots, stranger);
  penstock_channel *channel = open_each(tls_address(false), roots, "");
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_UNAVAILABLE);
  write_file(roots, ca);
  OK(penstock_channel_reset_backoff(channel));
  EVENTUALLY(tls_code(channel) == PENSTOCK_STATUS_OK);
  write_file(roots, "a half-written file");
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);
  CHECK(unlink(roots) == 0);
  CHECK_INT(tls_code(channel), PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
  free(ca), free(stranger);
}

#define PIN "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\""

TEST(tls_the_server_has_to_have_a_key_or_an_identity) {
  check_refused(tls_address(false), ", \"spki_pins\": [\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]",
                "none of \"spki_pins\" fits the server's chain: found ");
  /* Four are named. */
  check_refused(tls_address(false), ", \"spki_pins\": [" PIN "," PIN "," PIN "," PIN "]", "AAA=; subject");
  check_refused(tls_address(false), ", \"spki_pins\": [" PIN "," PIN "," PIN "," PIN "," PIN "," PIN "]",
                " or 2 more; subject");
  check_refused(tls_address(false), ", \"spiffe_ids\": [\"spiffe://example.org/shop\"]",
                "none of \"spiffe_ids\" fits the server's certificate: found 0 URIs; expected spiffe://");
}

TEST(tls_takes_a_text_or_a_file) {
  static const char *const pairs[] = {"roots", "certificate_chain", "private_key", "crls"};
  for (int i = 0; i < 4; i++) {
    char options[200], path[64], words[100];
    snprintf(options, sizeof(options), "{\"tls\": {\"%s_file\": \"x\", \"%s_pem\": \"y\"}}", pairs[i], pairs[i]);
    snprintf(path, sizeof(path), "$.tls.%s_file", pairs[i]);
    snprintf(words, sizeof(words), "expected either this or \"%s_pem\", got both", pairs[i]);
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_channel_new("localhost:1", options, &channel, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, path, words);
  }
}

/* A process without a free descriptor can't read its root certificates: the error says that there are too many open
 * files, not that the certificates are wrong. */
TEST(tls_without_descriptors) {
  penstock_channel *channel = open_channel();
  check_echo(channel);
  struct rlimit before, none;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = before;
  none.rlim_cur = 0;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  char options[600];
  snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"}}", certificate("ca.pem"));
  const char *const all[] = {NULL, options};
  penstock_error *errors[2] = {NULL, NULL};
  penstock_result results[2];
  for (int i = 0; i < 2; i++) {
    penstock_channel *other = NULL;
    results[i] = penstock_channel_new("localhost:1", all[i], &other, &errors[i]);
    penstock_channel_release(other);
  }
  setrlimit(RLIMIT_NOFILE, &before);
  for (int i = 0; i < 2; i++) {
    CHECK_RESULT(results[i], PENSTOCK_E_SYSTEM);
    CHECK_ERROR(errors[i], PENSTOCK_E_SYSTEM, NULL, strerror(EMFILE));
  }
  penstock_channel_release(channel);
}
