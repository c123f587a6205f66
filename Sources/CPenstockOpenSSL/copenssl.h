/* OpenSSL for the TLS engine, with static-inline shims for C macros, which Swift cannot import. */
#ifndef PENSTOCK_COPENSSL_H
#define PENSTOCK_COPENSSL_H
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

/* Restricts the context to TLS 1.2 or later, without compression, renegotiation (RFC 9113 sections 9.2, 9.2.1) and
 * cached sessions. Also takes back what the system's configuration of OpenSSL may have weakened: OpenSSL applies its
 * section [system_default] to each context. Returns 1 on success. */
static inline int penstock_ssl_ctx_harden(SSL_CTX *context) {
  enum { LEAST_LEVEL = 2 }; /* keys of at least 112 bits of security, no SHA-1 in certificates */
  if (SSL_CTX_get_security_level(context) < LEAST_LEVEL) SSL_CTX_set_security_level(context, LEAST_LEVEL);
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION | SSL_OP_LEGACY_SERVER_CONNECT);
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  return (int)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
}

static inline int penstock_ssl_ctx_set_versions(SSL_CTX *context, int least, int most) {
  return SSL_CTX_set_min_proto_version(context, least) == 1 && SSL_CTX_set_max_proto_version(context, most) == 1;
}

/* Whether the context has the cipher suite of this exact name: 1; 0: it has not; -1: it has, but the suite is without
 * forward secrecy, AEAD or certificates. */
static inline int penstock_ssl_ctx_has_cipher(const SSL_CTX *context, const char *name) {
  STACK_OF(SSL_CIPHER) *all = SSL_CTX_get_ciphers(context);
  for (int i = 0; i < sk_SSL_CIPHER_num(all); i++) {
    const SSL_CIPHER *one = sk_SSL_CIPHER_value(all, i);
    if (strcmp(SSL_CIPHER_get_name(one), name) != 0) continue;
    int exchange = SSL_CIPHER_get_kx_nid(one);
    int is_secret = exchange == NID_kx_ecdhe || exchange == NID_kx_dhe || exchange == NID_kx_any;
    /* With an anonymous suite no certificate is checked. */
    int is_known = SSL_CIPHER_get_auth_nid(one) != NID_auth_null;
    return is_secret && is_known && SSL_CIPHER_is_aead(one) == 1 ? 1 : -1;
  }
  return 0;
}

/* Makes the context give new sessions of clients to its callback, and keep none itself. */
static inline void penstock_ssl_ctx_gives_sessions(SSL_CTX *context) {
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
}

/* Whether the certificate of the session's peer is valid at present, by the clock. */
static inline int penstock_session_is_current(const SSL_SESSION *session) {
  X509 *peer = SSL_SESSION_get0_peer((SSL_SESSION *)session);
  return peer && X509_cmp_current_time(X509_get0_notAfter(peer)) > 0;
}

/* The SSL whose peer's certificates are being verified. */
static inline SSL *penstock_verified_ssl(X509_STORE_CTX *verification) {
  return (SSL *)X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx());
}

/* Stores the SHA-256 of the certificate's SubjectPublicKeyInfo, 32 bytes. Returns 1 on success. */
static inline int penstock_certificate_key_hash(OSSL_LIB_CTX *library, const X509 *certificate, unsigned char *hash) {
  unsigned char *der = NULL;
  size_t size = 0;
  int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  int done = length > 0 && EVP_Q_digest(library, "SHA256", NULL, der, (size_t)length, hash, &size) == 1 && size == 32;
  OPENSSL_free(der);
  return done;
}

/* Writes the URI at `index` among those of the certificate's subject alternative names. Returns the number of these. */
static inline int penstock_certificate_uri(const X509 *certificate, int index, BIO *bio) {
  GENERAL_NAMES *names = (GENERAL_NAMES *)X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
  int count = 0;
  for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING *uri = name->d.uniformResourceIdentifier;
    if (count++ == index) BIO_write(bio, ASN1_STRING_get0_data(uri), ASN1_STRING_length(uri));
  }
  GENERAL_NAMES_free(names);
  return count;
}

/* Writes the name of a subject or an issuer, as in RFC 2253, in printable ASCII. */
static inline void penstock_name_write(const X509_NAME *name, BIO *bio) {
  if (name) X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253);
}

/* The algorithm with which the key signs tokens, as RFC 7518 (3.3, 3.4) allows it. */
enum { PENSTOCK_SIGNS_NONE, PENSTOCK_SIGNS_RS256, PENSTOCK_SIGNS_ES256 };
static inline int penstock_key_algorithm(const EVP_PKEY *key) {
  char curve[32];
  if (EVP_PKEY_is_a(key, "RSA")) return EVP_PKEY_get_bits(key) >= 2048 ? PENSTOCK_SIGNS_RS256 : PENSTOCK_SIGNS_NONE;
  int is_p256 = EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_group_name(key, curve, sizeof curve, NULL) == 1 &&
                strcmp(curve, SN_X9_62_prime256v1) == 0;
  return is_p256 ? PENSTOCK_SIGNS_ES256 : PENSTOCK_SIGNS_NONE;
}

/* Signs the text with SHA-256. Writes the signature to `out`, which has room for `most` bytes, and returns its size; 0: it
 * could not be made. That of an EC key is R and S of 32 bytes each, not in DER. */
static inline size_t penstock_key_sign(OSSL_LIB_CTX *library, EVP_PKEY *key, const void *text, size_t length,
                                       unsigned char *out, size_t most) {
  enum { HALF = 32 };
  size_t size = most;
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  int done = context && EVP_DigestSignInit_ex(context, NULL, "SHA256", library, NULL, key, NULL) == 1 &&
             EVP_DigestSign(context, out, &size, (const unsigned char *)text, length) == 1;
  EVP_MD_CTX_free(context);
  if (!done) return 0;
  if (penstock_key_algorithm(key) != PENSTOCK_SIGNS_ES256) return size;
  const unsigned char *der = out;
  ECDSA_SIG *pair = d2i_ECDSA_SIG(NULL, &der, (long)size);
  done = pair && BN_bn2binpad(ECDSA_SIG_get0_r(pair), out, HALF) == HALF &&
         BN_bn2binpad(ECDSA_SIG_get0_s(pair), out + HALF, HALF) == HALF;
  ECDSA_SIG_free(pair);
  return done ? 2 * HALF : 0;
}

static inline X509 *penstock_chain_at(const struct stack_st_X509 *chain, int index) {
  return sk_X509_value(chain, index);
}

/* Adds the certificate, which is retained, to the client's chain. Returns 1 on success. */
static inline int penstock_ssl_ctx_add_chain(SSL_CTX *context, X509 *certificate) {
  return (int)SSL_CTX_add1_chain_cert(context, certificate);
}

static inline int penstock_ssl_set_sni(SSL *ssl, const char *name) { return (int)SSL_set_tlsext_host_name(ssl, name); }

/* Whether a name is an IP address. */
static inline int penstock_is_address(const char *name) {
  ASN1_OCTET_STRING *address = a2i_IPADDRESS(name);
  int is_one = address != NULL;
  if (!is_one) ERR_clear_error();
  ASN1_OCTET_STRING_free(address);
  return is_one;
}

/* Whether a certificate is for a host name or an IP address. Its common name does not count, and a "*" stands for a whole
 * label only (RFC 9525 section 6.3). */
static inline int penstock_certificate_names(X509 *certificate, const char *name) {
  const unsigned int flags = X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
  if (penstock_is_address(name)) return X509_check_ip_asc(certificate, name, 0) == 1;
  return X509_check_host(certificate, name, 0, flags, NULL) == 1;
}

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

/* Gives the descriptor back if it is a regular file's, on which no operation waits for another process. Otherwise closes
 * it, and returns -EINVAL. */
static inline int32_t penstock_if_regular(int fd) {
  struct stat now;
  if (fstat(fd, &now) == 0 && S_ISREG(now.st_mode)) return fd;
  close(fd);
  return -EINVAL;
}

/* The next two functions read files that an option names. penstock_open_read returns a descriptor or -errno,
 * penstock_read the number of bytes or -errno. With `only_regular` other files, such as pipes, are refused: -EINVAL. */
static inline int32_t penstock_open_read(const char *path, int only_regular) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (only_regular ? O_NONBLOCK : 0));
  if (fd < 0) return -(int32_t)errno;
  return only_regular ? penstock_if_regular(fd) : fd;
}
static inline int64_t penstock_read(int32_t fd, void *bytes, size_t count) {
  ssize_t n;
  do n = read(fd, bytes, count);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -(int64_t)errno : (int64_t)n;
}

/* The facts by which a changed file is recognised. All 0: there is no such regular file. */
typedef struct {
  int64_t changed_s, changed_ns, written_s, written_ns, size;
  uint64_t file, device;
} penstock_file_stamp;

static inline penstock_file_stamp penstock_stamp(const char *path) {
  struct stat now;
  penstock_file_stamp stamp = {0, 0, 0, 0, 0, 0, 0};
  if (stat(path, &now) != 0 || !S_ISREG(now.st_mode)) return stamp;
  stamp.changed_s = (int64_t)now.st_ctim.tv_sec, stamp.changed_ns = (int64_t)now.st_ctim.tv_nsec;
  stamp.written_s = (int64_t)now.st_mtim.tv_sec, stamp.written_ns = (int64_t)now.st_mtim.tv_nsec;
  stamp.size = (int64_t)now.st_size, stamp.file = (uint64_t)now.st_ino, stamp.device = (uint64_t)now.st_dev;
  return stamp;
}
static inline int penstock_stamps_equal(penstock_file_stamp a, penstock_file_stamp b) {
  return a.changed_s == b.changed_s && a.changed_ns == b.changed_ns && a.written_s == b.written_s &&
         a.written_ns == b.written_ns && a.size == b.size && a.file == b.file && a.device == b.device;
}

/* The next two functions write a regular file, which only its owner may read if they make it. penstock_open_append
 * returns a descriptor, or -errno; for a pipe, whose reader may be slow or gone, -EINVAL or -ENXIO.
 * penstock_append_line writes the line and its end at once, so that lines of several processes do not mix. */
static inline int32_t penstock_open_append(const char *path) {
  int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  return fd < 0 ? -(int32_t)errno : penstock_if_regular(fd);
}
static inline void penstock_append_line(int32_t fd, const char *line) {
  struct iovec parts[2] = {{(void *)line, strlen(line)}, {(void *)"\n", 1}};
  ssize_t n;
  do n = writev(fd, parts, 2);
  while (n < 0 && errno == EINTR);
}
#endif
