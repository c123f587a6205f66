import CPenstockOpenSSL
import PenstockWire

/// The demands on a server's certificate beside its chain and name: the keys of which its chain has to have one,
/// and the SPIFFE ids of which it has to have one. They are checked within the handshake, so a server that
/// fails gets neither a client certificate nor a byte of a call.
struct PeerIdentity {
  /// SHA-256 hashes of SubjectPublicKeyInfos; empty: any key.
  let pins: [ByteBuffer]
  /// Empty: any.
  let spiffeIDs: [ByteBuffer]

  private static let hashSize = 32
  /// How many bytes of a peer's text an error text has at most.
  private static let mostText = 200

  var isEmpty: Bool { pins.isEmpty && spiffeIDs.isEmpty }

  /// The demand that the server's certificate does not meet, in words; nil: it meets all. `chain`: the chain
  /// as it was verified, or nil if it was not: then only the server's own certificate counts.
  func flaw(of certificate: OpaquePointer, _ chain: OpaquePointer?, _ library: OpaquePointer?) -> ByteBuffer?
  {
    pinFlaw(certificate, chain, library) ?? spiffeFlaw(certificate)
  }

  private func pinFlaw(
    _ certificate: OpaquePointer, _ chain: OpaquePointer?, _ library: OpaquePointer?
  ) -> ByteBuffer? {
    if pins.isEmpty { return nil }
    let words = ByteBuffer().say("none of \"spki_pins\" fits the server's chain: found ")
    for index in 0..<(chain.map { penstock_chain_count($0) } ?? 1) {
      guard let one = chain == nil ? certificate : penstock_chain_at(chain, index),
        let hash = PeerIdentity.hash(one, library)
      else { return ByteBuffer().say("the server's key could not be hashed for \"spki_pins\"") }
      let isPinned = withExtendedLifetime(hash) { pins.contains(where: { bytesEqual($0.view, hash.view) }) }
      if isPinned { return nil }
      if index > 0 { words.say(", ") }
      _ = withExtendedLifetime(hash) { Base64.encode(hash.view, padded: true, into: words) }
      words.say(" (")
      PeerIdentity.say(PeerIdentity.subject(one), to: words)
      words.say(")")
    }
    words.say("; expected ")
    for (index, pin) in pins.prefix(4).enumerated() {
      if index > 0 { words.say(" or ") }
      _ = Base64.encode(pin.view, padded: true, into: words)
    }
    if pins.count > 4 { words.say(" or ").say(pins.count - 4).say(" more") }
    return words
  }

  private static func hash(_ certificate: OpaquePointer, _ library: OpaquePointer?) -> ByteBuffer? {
    guard let out = ByteBuffer(capacity: hashSize), let room = out.spare(atLeast: hashSize),
      let start = room.baseAddress
    else { return nil }
    guard penstock_certificate_key_hash(library, certificate, start.assumingMemoryBound(to: UInt8.self)) == 1
    else {
      ERR_clear_error()
      return nil
    }
    out.commit(hashSize)
    return out
  }

  /// The X.509-SVID standard demands exactly one URI (section 2), and a certificate that is no authority's
  /// (section 4.1).
  private func spiffeFlaw(_ certificate: OpaquePointer) -> ByteBuffer? {
    if spiffeIDs.isEmpty { return nil }
    let words = ByteBuffer().say("none of \"spiffe_ids\" fits the server's certificate: found ")
    var count = 0
    let uri = PeerIdentity.text { count = Int(penstock_certificate_uri(certificate, 0, $0)) }
    if count != 1 {
      words.say(count).say(" URIs")
    } else if X509_check_ca(certificate) != 0 {
      words.say("the certificate of an authority")
    } else if withExtendedLifetime(uri, { spiffeIDs.contains(where: { bytesEqual($0.view, uri.view) }) }) {
      return nil
    } else {
      PeerIdentity.say(uri, to: words)
    }
    words.say("; expected ")
    for (index, id) in spiffeIDs.prefix(4).enumerated() {
      if index > 0 { words.say(" or ") }
      PeerIdentity.say(id, to: words)
    }
    if spiffeIDs.count > 4 { words.say(" or ").say(spiffeIDs.count - 4).say(" more") }
    return words
  }

  /// Adds the subject and the issuer of a certificate to an error text.
  static func say(_ certificate: OpaquePointer, to words: ByteBuffer) {
    words.say("; subject ")
    say(subject(certificate), to: words)
    words.say(", issuer ")
    say(name(X509_get_issuer_name(certificate)), to: words)
  }

  private static func say(_ text: ByteBuffer, to words: ByteBuffer) {
    withExtendedLifetime(text) { _ = words.say(printable: text.view, limit: mostText) }
  }

  private static func subject(_ certificate: OpaquePointer) -> ByteBuffer {
    name(X509_get_subject_name(certificate))
  }

  private static func name(_ name: OpaquePointer?) -> ByteBuffer {
    let text = text { penstock_name_write(name, $0) }
    return text.isEmpty ? text.say("(empty)") : text
  }

  /// The bytes that `write` puts into a BIO; empty if there is no memory.
  private static func text(_ write: (OpaquePointer) -> Void) -> ByteBuffer {
    guard let bio = BIO_new(BIO_s_mem()) else { return ByteBuffer() }
    defer { BIO_free(bio) }
    write(bio)
    var start: UnsafeMutablePointer<CChar>?
    let count = Int(penstock_bio_memory(bio, &start))
    return ByteBuffer().say(ByteView(start: start, count: count))
  }
}
