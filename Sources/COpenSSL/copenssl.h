/* OpenSSL for the TLS engine, with static-inline shims for C macros, which Swift cannot import. */
#ifndef PENSTOCK_COPENSSL_H
#define PENSTOCK_COPENSSL_H
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

/* Restricts the context to TLS 1.2 or later, without compression, renegotiation (RFC 9113 sections 9.2, 9.2.1) and
 * cached sessions. Returns 1 on success. */
static inline int penstock_ssl_ctx_harden(SSL_CTX *context) {
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return (int)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
}

/* Adds the certificate, which is retained, to the client's chain. Returns 1 on success. */
static inline int penstock_ssl_ctx_add_chain(SSL_CTX *context, X509 *certificate) {
  return (int)SSL_CTX_add1_chain_cert(context, certificate);
}

static inline int penstock_ssl_set_sni(SSL *ssl, const char *name) { return (int)SSL_set_tlsext_host_name(ssl, name); }

static inline void penstock_bio_wants_read(BIO *bio) { BIO_set_retry_read(bio); }
static inline void penstock_bio_no_retry(BIO *bio) { BIO_clear_retry_flags(bio); }

static inline int penstock_error_is_pem_end(unsigned long error) {
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}
static inline int penstock_error_reason(unsigned long error) { return ERR_GET_REASON(error); }
static inline int penstock_error_is_ssl(unsigned long error) { return ERR_GET_LIB(error) == ERR_LIB_SSL; }

/* The certificates that the server has sent, its own certificate first: a new stack with a reference to each, to be
 * freed with penstock_chain_free. NULL: there are none, or no memory. */
static inline struct stack_st_X509 *penstock_ssl_chain(const SSL *ssl) {
  STACK_OF(X509) *chain = SSL_get_peer_cert_chain(ssl);
  return chain ? X509_chain_up_ref(chain) : NULL;
}
static inline void penstock_chain_free(struct stack_st_X509 *chain) { sk_X509_pop_free(chain, X509_free); }
static inline int penstock_chain_count(const struct stack_st_X509 *chain) { return sk_X509_num(chain); }
/* Writes the certificates in PEM form. Returns 1 on success. */
static inline int penstock_chain_write(const struct stack_st_X509 *chain, BIO *bio) {
  for (int i = 0; i < sk_X509_num(chain); i++) {
    if (PEM_write_bio_X509(bio, sk_X509_value(chain, i)) != 1) return 0;
  }
  return 1;
}
static inline int64_t penstock_bio_memory(BIO *bio, char **start) { return (int64_t)BIO_get_mem_data(bio, start); }

/* The next two functions read files that an option names. penstock_open_read returns a descriptor or -errno,
 * penstock_read the number of bytes or -errno. */
static inline int32_t penstock_open_read(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
  return fd < 0 ? -(int32_t)errno : fd;
}
static inline int64_t penstock_read(int32_t fd, void *bytes, size_t count) {
  ssize_t n;
  do n = read(fd, bytes, count);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}
#endif
