/* Socket addresses and look-ups, a part of csystem.h. Addresses are filled and read here, so that Swift needs no casts
 * between sockaddr types. */
#ifndef PENSTOCK_CSYSTEM_ADDRESSES_H
#define PENSTOCK_CSYSTEM_ADDRESSES_H
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The index of the interface that the zone of an IPv6 address names by its number or its name; 0: there is none. */
static inline uint32_t cs_zone(const char *zone) {
  if (*zone < '0' || *zone > '9') return if_nametoindex(zone);
  char *end = NULL;
  errno = 0;
  unsigned long number = strtoul(zone, &end, 10);
  return *end || errno || number > UINT32_MAX ? if_nametoindex(zone) : (uint32_t)number;
}
/* Fills in an IP address from text. Returns its length, or 0 if `text` is not an IPv4 or IPv6 address (without
 * brackets, perhaps with a zone, as in "fe80::1%eth0"). */
static inline uint32_t cs_address_literal(struct sockaddr_storage *storage, const char *text, uint16_t port) {
  struct sockaddr_in *four = (struct sockaddr_in *)storage;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)storage;
  memset(storage, 0, sizeof *storage);
  if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    return sizeof *four;
  }
  memset(storage, 0, sizeof *storage);
  char six_text[INET6_ADDRSTRLEN];
  const char *zone = strchr(text, '%');
  size_t length = zone ? (size_t)(zone - text) : strlen(text);
  if (length >= sizeof six_text) return 0;
  memcpy(six_text, text, length);
  six_text[length] = 0;
  if (inet_pton(AF_INET6, six_text, &six->sin6_addr) != 1) return 0;
  if (zone && !(six->sin6_scope_id = cs_zone(zone + 1))) return 0;
  six->sin6_family = AF_INET6;
  six->sin6_port = htons(port);
  return sizeof *six;
}
/* Fills in the address of a unix socket. Returns its length, or 0 if the path is empty, does not fit, or contains a
 * NUL. Only an abstract path, which begins with a NUL, may contain NULs. */
static inline uint32_t cs_address_unix(struct sockaddr_storage *storage, const void *path, size_t length) {
  struct sockaddr_un *un = (struct sockaddr_un *)storage;
  memset(storage, 0, sizeof *storage);
  int abstract = length > 0 && ((const char *)path)[0] == 0;
  if (length == 0 || length + (abstract ? 0 : 1) > sizeof un->sun_path) return 0;
  if (!abstract && memchr(path, 0, length)) return 0;
  un->sun_family = AF_UNIX;
  memcpy(un->sun_path, path, length);
  return (uint32_t)(offsetof(struct sockaddr_un, sun_path) + length + (abstract ? 0 : 1));
}
/* Fills in the address of a vsock (a socket of a virtual machine or its host), and returns its length. */
static inline uint32_t cs_address_vsock(struct sockaddr_storage *storage, uint32_t cid, uint32_t port) {
  struct sockaddr_vm *vm = (struct sockaddr_vm *)storage;
  memset(storage, 0, sizeof *storage);
  vm->svm_family = AF_VSOCK;
  vm->svm_cid = cid;
  vm->svm_port = port;
  return sizeof *vm;
}
static inline uint32_t cs_address_vsock_cid(const struct sockaddr_storage *storage) {
  return ((const struct sockaddr_vm *)storage)->svm_cid;
}
static inline uint32_t cs_address_vsock_port(const struct sockaddr_storage *storage) {
  return ((const struct sockaddr_vm *)storage)->svm_port;
}
/* The port in host byte order; 0: the address has no port. */
static inline uint16_t cs_address_port(const struct sockaddr_storage *storage) {
  if (storage->ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)storage)->sin_port);
  if (storage->ss_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)storage)->sin6_port);
  return 0;
}
/* The IP address as text, NUL-terminated; "" for other addresses. */
static inline void cs_address_text(const struct sockaddr_storage *storage, char *text, uint32_t size) {
  const char *r = NULL;
  if (storage->ss_family == AF_INET)
    r = inet_ntop(AF_INET, &((const struct sockaddr_in *)storage)->sin_addr, text, size);
  else if (storage->ss_family == AF_INET6)
    r = inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)storage)->sin6_addr, text, size);
  if (!r && size) text[0] = 0;
}
static inline uint32_t cs_address_scope(const struct sockaddr_storage *storage) {
  return storage->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)storage)->sin6_scope_id : 0;
}
static inline const char *cs_address_path(const struct sockaddr_storage *storage) {
  return ((const struct sockaddr_un *)storage)->sun_path;
}
static inline size_t cs_address_path_offset(void) { return offsetof(struct sockaddr_un, sun_path); }

/* The errno with which the process can't open another descriptor now; 0: it can. Without descriptors the system's
 * resolver may say of any name that it is not known. */
static inline int32_t cs_descriptor_lack(void) {
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno == EMFILE || errno == ENFILE ? (int32_t)errno : 0;
  close(fd);
  return 0;
}

/* Looks a host up by getaddrinfo, for a stream socket. Returns 0 or an EAI_ code. *system gets the errno of a failure
 * that is the system's, otherwise 0. */
static inline int32_t cs_resolve(const void *host, uint16_t port, struct addrinfo **list, int32_t *system) {
  struct addrinfo hints;
  char service[8];
  uint32_t p = port;
  int i = 7;
  memset(&hints, 0, sizeof hints);
  hints.ai_socktype = SOCK_STREAM;
  /* A host with '%' and ':' is an IPv6 address with a scope, so it is parsed and not looked up as a name. */
  bool numeric = host && strchr(host, '%') && strchr(host, ':');
  hints.ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0);
  service[i] = 0;
  do service[--i] = (char)('0' + p % 10);
  while ((p /= 10) != 0);
  *list = NULL;
  errno = 0;
  int r = getaddrinfo(host, service + i, &hints, list);
  *system = 0;
  if (r == 0) return 0;
  *system = r == EAI_SYSTEM || errno == EMFILE || errno == ENFILE ? (int32_t)errno : cs_descriptor_lack();
  return (int32_t)r;
}

/* Asks DNS for the SRV records of a name. Returns the length of the answer, or an EAI_ code, which is negative. The
 * code is EAI_NONAME if the name has no such records. */
static inline int32_t cs_services(const void *name, void *answer, int32_t size) {
  if (!name || !answer) return EAI_MEMORY;
#ifdef __GLIBC__
  struct __res_state state;
  memset(&state, 0, sizeof state);
  if (res_ninit(&state) != 0) return EAI_FAIL;
  int length = res_nquery(&state, name, ns_c_in, ns_t_srv, answer, size);
  int error = state.res_h_errno;
  res_nclose(&state);
#else
  /* musl's resolver has no state that threads would share. */
  int length = res_query(name, ns_c_in, ns_t_srv, answer, size);
  int error = h_errno;
#endif
  /* If the answer did not fit into `size` bytes, `length` may be the length of the whole answer. */
  if (length >= 0) return length < size ? length : size;
  return error == HOST_NOT_FOUND || error == NO_DATA ? EAI_NONAME : error == TRY_AGAIN ? EAI_AGAIN : EAI_FAIL;
}

/* The number of bytes that a name takes in a DNS message of `size` bytes. The name begins at the offset `at`, which is
 * not beyond the message's end. -1: no valid name begins there. */
static inline int32_t cs_dns_name_length(const void *message, int32_t size, int32_t at) {
  const uint8_t *bytes = message;
  return bytes ? dn_skipname(bytes + at, bytes + size) : -1;
}
/* The largest number of bytes that cs_dns_name writes: a host's name, a dot and a NUL. */
enum { CS_HOST_SIZE = NS_MAXDNAME + 1 };
/* Reads the name at the offset `at` of a DNS message into `name`, and adds a dot and a NUL. Because of the dot the
 * system's resolver does not append the search domains of resolv.conf. Returns the length with the dot and the NUL.
 * Returns 0 if no valid name begins there, or if it is the name of the root. */
static inline int32_t cs_dns_name(const void *message, int32_t size, int32_t at, void *name) {
  const uint8_t *bytes = message;
  if (!bytes || !name || dn_expand(bytes, bytes + size, bytes + at, name, NS_MAXDNAME) < 1) return 0;
  char *text = name;
  size_t length = strlen(text);
  if (length == 0) return 0;
  memcpy(text + length, ".", 2);
  return (int32_t)length + 2;
}
#endif
