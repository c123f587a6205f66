/* A program that exports the symbols of an OpenSSL of its own, as Node does: it is linked with OpenSSL's archives, or, as
 * a module of Node, uses Node's. It makes TLS connections of its own, and calls by libpenstock, which it loads. Neither
 * may disturb the other.
 *
 *     exporting LIBRARY TARGET ROOTS */
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEED(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))
#define FIND(name)      __typeof__(&name) found_##name = (__typeof__(&name))dlsym(library, #name)

static void *library;
static const char *target;
static char trusting[4200], distrusting[4300];
static EVP_PKEY *key;
static X509 *certificate;

static void fail(int line, const char *condition) {
  fprintf(stderr, "line %d: %s\n", line, condition);
  ERR_print_errors_fp(stderr);
  exit(1);
}

static void make_certificate(void) {
  NEED((key = EVP_EC_gen("P-256")) && (certificate = X509_new()));
  X509_NAME *name = X509_get_subject_name(certificate);
  NEED(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"own", -1, -1, 0));
  NEED(X509_set_issuer_name(certificate, name) && X509_set_pubkey(certificate, key));
  NEED(X509_gmtime_adj(X509_getm_notBefore(certificate), -60) &&
       X509_gmtime_adj(X509_getm_notAfter(certificate), 3600));
  NEED(X509_sign(certificate, key, EVP_sha256()));
}

static SSL *one_side(SSL_CTX *context, BIO *in, BIO *out) {
  SSL *ssl = SSL_new(context);
  NEED(ssl && BIO_up_ref(in) && BIO_up_ref(out));
  SSL_set_bio(ssl, in, out);
  return ssl;
}

/* Makes a connection of the program's own, over memory. */
static void connect_by_myself(void) {
  SSL_CTX *server = SSL_CTX_new(TLS_server_method()), *client = SSL_CTX_new(TLS_client_method());
  NEED(server && client && SSL_CTX_use_certificate(server, certificate) && SSL_CTX_use_PrivateKey(server, key));
  NEED(X509_STORE_add_cert(SSL_CTX_get_cert_store(client), certificate));
  SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
  BIO *up = BIO_new(BIO_s_mem()), *down = BIO_new(BIO_s_mem());
  SSL *asks = one_side(client, down, up), *answers = one_side(server, up, down);
  SSL_set_connect_state(asks);
  SSL_set_accept_state(answers);
  for (int turn = 0; turn < 10; turn++) {
    SSL_do_handshake(asks);
    SSL_do_handshake(answers);
  }
  char text[8] = "";
  NEED(SSL_is_init_finished(asks) && SSL_is_init_finished(answers) && SSL_version(asks) == TLS1_3_VERSION);
  NEED(SSL_get_verify_result(asks) == X509_V_OK && SSL_write(asks, "you", 3) == 3);
  NEED(SSL_read(answers, text, sizeof(text)) == 3 && memcmp(text, "you", 3) == 0);
  SSL_free(asks);
  SSL_free(answers);
  BIO_free(up);
  BIO_free(down);
  SSL_CTX_free(client);
  SSL_CTX_free(server);
  ERR_clear_error();
}

/* Makes a call over TLS. `words`: a part of the status; NULL: the call has to succeed. */
static void call(const char *options, const char *words) {
  FIND(penstock_channel_new);
  FIND(penstock_channel_unary);
  FIND(penstock_channel_release);
  FIND(penstock_reply_bytes);
  FIND(penstock_reply_status_json);
  FIND(penstock_reply_release);
  penstock_channel *channel = NULL;
  penstock_reply *reply = NULL;
  size_t length = 0;
  NEED(found_penstock_channel_new(target, options, &channel, NULL) == PENSTOCK_OK);
  NEED(found_penstock_channel_unary(channel, "/penstock.Echo/Unary", "you", 3, NULL, &reply, NULL) == PENSTOCK_OK);
  const char *answer = found_penstock_reply_bytes(reply, &length), *status = found_penstock_reply_status_json(reply);
  if (words ? !strstr(status, words) : !answer || length != 3 || memcmp(answer, "you", 3)) {
    fprintf(stderr, "%s\n", status);
    exit(1);
  }
  found_penstock_reply_release(reply);
  found_penstock_channel_release(channel);
}

static void *both(void *argument) {
  for (int turn = 0; turn < 5; turn++) {
    connect_by_myself();
    call(trusting, NULL);
    NEED(ERR_peek_error() == 0);
    connect_by_myself();
    call(distrusting, "certificate verify failed");
    NEED(ERR_peek_error() == 0);
  }
  return argument;
}

static void run(const char *path, const char *server, const char *roots) {
  pthread_t threads[4];
  target = server;
  snprintf(trusting, sizeof(trusting), "{\"tls\": {\"roots_file\": \"%s\"}}", roots);
  snprintf(distrusting, sizeof(distrusting), "{\"tls\": {\"roots_file\": \"%s\", \"server_name\": \"a.example\"}}",
           roots);
  make_certificate();
  connect_by_myself();
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  NEED(library);
  NEED(dlsym(RTLD_DEFAULT, "SSL_new") == (void *)SSL_new); /* the loader finds the program's first */
  both(NULL);
  for (int i = 0; i < 4; i++) NEED(pthread_create(&threads[i], NULL, both, NULL) == 0);
  for (int i = 0; i < 4; i++) NEED(pthread_join(threads[i], NULL) == 0);
  FIND(penstock_version_json);
  FIND(penstock_free);
  char *versions = NULL;
  NEED(found_penstock_version_json(&versions) == PENSTOCK_OK);
  puts(versions);
  fflush(stdout);
  found_penstock_free(versions);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

#ifdef MODULE_OF_NODE
/* The function that Node calls when it has loaded a module (Node-API). */
void *napi_register_module_v1(void *environment, void *exports) {
  (void)environment;
  run(getenv("LIBRARY"), getenv("TARGET"), getenv("ROOTS"));
  return exports;
}
#else
int main(int argc, char **argv) {
  if (argc < 4) return 2;
  run(argv[1], argv[2], argv[3]);
  return 0;
}
#endif
